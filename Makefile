# Needs only Python >= 3.11 and make; everything else is installed into .venv from requirements.lock.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: fuzz test check coverage demo docs lock clean

test: check  ## set up, then run linters, type checks and tests
	$(BIN)/python -m pytest

check: $(STAMP)  ## linters, type checks and the import contracts of pyproject.toml
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

coverage: $(STAMP)  ## run the tests and print which lines of the package none of them reaches
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered

CASES ?= 20000
SEED  ?= 0
fuzz: $(STAMP)  ## read CASES damaged inputs of every kind, in child processes with limits; see SECURITY.md
	$(BIN)/python tests/fuzz/campaign.py --cases $(CASES) --seed $(SEED)

demo: $(STAMP)  ## make data, learn a safe policy from it, report
	$(BIN)/safemil demo --overwrite

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "safemil needs Python >= 3.11, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

docs: $(STAMP)  ## build the documentation into site/
	$(BIN)/mkdocs build --quiet

lock: $(STAMP)  ## pin what pyproject.toml asks for; UPGRADE=--upgrade takes the newest of everything
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra all --group dev --universal \
		--fork-strategy fewest --python-version 3.11 --generate-hashes --no-emit-index-url --no-header $(UPGRADE) -o requirements.lock

clean:
	rm -rf $(VENV) .coverage .mypy_cache .pytest_cache .ruff_cache dist demo site
