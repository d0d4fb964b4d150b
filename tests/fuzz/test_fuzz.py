"""The quick part of the fuzzing: some hundred cases that need no trained run. `make fuzz` runs them all."""

import deployed
import hostile
import pytest
from campaign import Outcome, campaign, summary
from folders import run, training
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import KINDS
from materials import build_untrained

from safemil.errors import InputError
from safemil.settings import parse_assignments

TRAINED = (run, training, *deployed.KINDS)
CASES = [number for number in range(10 * len(KINDS)) if KINDS[number % len(KINDS)] not in TRAINED]
SEED = 1


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> list[Outcome]:
    materials = tmp_path_factory.mktemp("materials")
    build_untrained(materials)
    return campaign(CASES, SEED, materials)


def test_damaged_input_is_refused_or_read_rightly(outcomes):
    assert all(each.clean for each in outcomes), summary(outcomes)


def test_cases_are_neither_all_refused_nor_all_accepted(outcomes):
    verdicts = [each.verdict for each in outcomes]
    assert min(verdicts.count("accepted"), verdicts.count("refused")) > len(CASES) / 5


def test_a_case_is_the_same_whenever_it_is_run():
    document = {"a": [1, 2, {"b": "c"}], "d": 0.5}
    values = hostile.drawn_values(3)
    assert repr(values) == repr(hostile.drawn_values(3))
    first, again = (hostile.damaged_document(document, hostile.random.Random(5), values) for _ in range(2))
    assert repr(first) == repr(again)
    assert document == {"a": [1, 2, {"b": "c"}], "d": 0.5}


@settings(max_examples=200, database=None, deadline=None, derandomize=True)
@given(st.text(max_size=30))
def test_any_text_is_an_assignment_or_refused(text):
    if text.partition("=")[1] and not text.startswith("="):
        assert len(parse_assignments([text])) == 1
    else:
        with pytest.raises(InputError, match="name=value"):
            parse_assignments([text])
