"""Cases of the command line: any command with any flags and values, in a folder of odd things."""

import os
from pathlib import Path

import hostile
from case import Case, command, require

COMMANDS: dict[str, list[str]] = {
    "train": [
        "--nonpreferred",
        "--unlabeled",
        "--preset",
        "--config",
        "--set",
        "--seed",
        "--seeds",
        "--out",
        "--task",
    ],
    "score": ["--out", "--top", "--action-low", "--action-high"],
    "evidence": ["--json"],
    "evaluate": ["--task", "--episodes", "--seed", "--stochastic"],
    "algorithms": [],
    "tables": ["--out", "--overwrite"],
    "report": ["--out", "--unlabeled", "--nonpreferred", "--compare", "--task", "--overwrite"],
    "bench": ["--out", "--engine", "--workers", "--studies", "--tasks", "--algorithms"],
    "data info": [
        "--json",
        "--plot",
        "--observation",
        "--action",
        "--action-low",
        "--action-high",
        "--episode",
    ],
    "data convert": ["--format", "--overwrite", "--observation", "--step", "--reward"],
    "data split": ["--nonpreferred", "--unlabeled", "--preferred-share", "--return-rule", "--seed", "--out"],
    "data make": ["--nonpreferred", "--unlabeled", "--seed", "--out", "--overwrite"],
    "tasks list": ["--x"],
    "tasks verify": [],
    "tasks render": ["--out", "--steps", "--seed", "--size"],
}
PATHS = [
    "logs.parquet",
    "logs.csv",
    "logs.hdf5",
    "logs",
    "incidents",
    "safemil",
    "bc",
    "results",
    "results/grid.toml",
]
ODD = [
    "pipe",
    "folder",
    "nowhere",
    "link",
    "loop",
    "empty.csv",
    "binary",
    "text.toml",
    "/dev/null",
    "/dev/zero",
    ".",
]
NUMBERS = [
    "0",
    "1",
    "2",
    "-1",
    "nan",
    "inf",
    "1e9",
    "0.5",
    str(2**31),
    str(2**63),
    "9" * 5000,
    "",
    "x",
    "1_000",
]


def command_line(case: Case) -> None:
    """Words in the right places, and values that are not what the command expects."""
    rng = case.rng
    where = _folder(case)
    name = rng.choice([*COMMANDS, *COMMANDS, *hostile.TEXTS[:6]])
    words = name.split(" ") + [_word(case, where) for _ in range(rng.choice([0, 1, 1, 2, 2]))]
    for flag in rng.sample(COMMANDS.get(name, []), min(rng.choice([0, 1, 2]), len(COMMANDS.get(name, [])))):
        words += [flag, _word(case, where)]
    if name in ("train", "score", "tables", "report", "bench", "tasks render") and rng.random() < 0.7:
        words += [
            "--out",
            str(where / rng.choice(["new.csv", "new.parquet", "new", "new.html", "new.png", "pipe"])),
        ]
    if name in ("train", "bench", "data make", "demo") and not _is_quick(words):
        return
    code = command(case, *(word.replace("\0", "") for word in words))
    require(code in (0, 1, 2), f"exit code {code} of {words}")


def _is_quick(words: list[str]) -> bool:
    """Whether a command trains nothing: it is missing what it would be trained on, or asks for nonsense."""
    return words[0] == "train" and not {"bc", "safemil"} & set(words)


def _word(case: Case, where: Path) -> str:
    rng = case.rng
    kind = rng.random()
    if kind < 0.35:
        return str(case.materials / rng.choice(PATHS))
    if kind < 0.6:
        return str(where / rng.choice(ODD))
    if kind < 0.8:
        return rng.choice(NUMBERS)
    if kind < 0.9:
        return rng.choice(
            ["toy:speed", "SafetyPointGoal1-v0", "bc", "safemil", "parquet", "midrange", "beta=1"]
        )
    texts = [text for text in hostile.TEXTS if "\ud800" not in text]  # no argument can hold that
    return rng.choice([*texts, "\udcff.csv", str(where / "\udcff.csv")])  # bytes that are not UTF-8


def _folder(case: Case) -> Path:
    where = case.folder / "odd"
    where.mkdir()
    os.mkfifo(where / "pipe")
    (where / "folder").mkdir()
    (where / "link").symlink_to("nowhere")
    (where / "loop").symlink_to("loop")
    (where / "empty.csv").touch()
    (where / "\udcff.csv").write_bytes((case.materials / "logs.csv").read_bytes())
    (where / "binary").write_bytes(bytes(range(256)))
    (where / "text.toml").write_text("a = [1, 2]\n")
    return where


KINDS = [command_line, command_line]
