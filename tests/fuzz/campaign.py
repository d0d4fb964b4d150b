"""Runs cases in child processes with limits of time and memory, and sums up what went wrong.

python tests/fuzz/campaign.py --cases 20000 --seed 7
python tests/fuzz/campaign.py --seed 7 --only 1234      one case again, with its traceback
"""

import argparse
import collections
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

SECONDS = 30  # of the processor that a case may take
WAITING = 120  # seconds that may pass, on a machine with other work
MEGABYTES = 500  # above the idle child that a case may take
SPARE = 6 << 30  # address space that a child may take beyond what it has when idle
DONE = "made"  # file that is written last into the folder of valid inputs
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Outcome:
    """What came of a case: "accepted" and "refused" are clean, all else is a defect."""

    number: int
    kind: str
    verdict: str  # accepted, refused, traceback, wrong success, memory, hang or crash
    detail: str = ""

    @property
    def clean(self) -> bool:
        return self.verdict in ("accepted", "refused")


def kind_of(number: int) -> str:
    """Name of the kind of a case."""
    from kinds import KINDS

    return KINDS[number % len(KINDS)].__name__


def run_case(seed: int, number: int, materials: Path) -> Outcome:
    """Run one case in this process."""
    from case import Case, WrongSuccess, peak_memory
    from kinds import KINDS

    from safemil.errors import InputError

    function = KINDS[number % len(KINDS)]
    kind = function.__name__
    with tempfile.TemporaryDirectory(prefix="safemil-fuzz-") as folder:
        case = Case(seed, number, materials, Path(folder))
        _ = case.values  # drawn before the memory is measured
        case.prepared()
        try:
            function(case)
            found = Outcome(number, kind, "accepted")
        except InputError:
            found = Outcome(number, kind, "refused")
        except WrongSuccess as error:
            found = Outcome(number, kind, "wrong success", str(error)[:500])
        except Exception:
            found = Outcome(number, kind, "traceback", traceback.format_exc()[-3000:])
        taken = (peak_memory() - case.memory) // 1000
    if found.clean and taken > MEGABYTES:
        return Outcome(number, kind, "memory", f"{taken} MB")
    return found


def serve(connection: Connection, seed: int, materials: Path) -> None:
    """Run the cases that the parent names, in a child process."""
    sys.path.insert(0, str(HERE))
    os.chdir(tempfile.mkdtemp(prefix="safemil-fuzz-cwd-", dir=materials))
    import kinds

    warnings.simplefilter("ignore")
    kinds.warm_up()
    used = next(
        int(line.split()[1]) << 10
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmSize")
    )
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE, used + SPARE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send(None)
    while (number := connection.recv()) is not None:
        connection.send(run_case(seed, number, materials))


class Child:
    """A process that runs many cases, and is replaced if one of them ends it."""

    def __init__(self, seed: int, materials: Path):
        self.seed, self.materials = seed, materials
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.seed, self.materials), daemon=True)
        self.process.start()
        theirs.close()
        if not self.connection.poll(300):
            raise RuntimeError("a child of the fuzzing did not start")
        self.connection.recv()

    def run(self, number: int) -> Outcome:
        self.connection.send(number)
        try:
            used, began = self._seconds(), time.monotonic()
            while self._seconds() - used < SECONDS and time.monotonic() - began < WAITING:
                if self.connection.poll(1):
                    outcome: Outcome = self.connection.recv()
                    return outcome
            found = Outcome(number, kind_of(number), "hang", f"more than {SECONDS} s, or waiting")
        except (EOFError, ConnectionError, FileNotFoundError):
            self.process.join()
            found = Outcome(number, kind_of(number), "crash", f"exit code {self.process.exitcode}")
        self.stop()
        self._start()
        return found

    def _seconds(self) -> float:
        """Time of the processor that the child has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def campaign(
    numbers: "range | list[int]", seed: int, materials: Path, log: Path | None = None
) -> list[Outcome]:
    """Run cases one after the other in a child; return every outcome."""
    outcomes, began, child = [], time.monotonic(), Child(seed, materials)
    for done, number in enumerate(numbers, 1):
        outcomes.append(child.run(number))
        if not outcomes[-1].clean and log is not None:
            with open(log, "a") as file:
                file.write(json.dumps(asdict(outcomes[-1])) + "\n")
        if log is not None and done % 500 == 0:
            bad = sum(not each.clean for each in outcomes)
            print(f"{done} cases, {bad} defects, {time.monotonic() - began:.0f} s", flush=True)
    child.stop()
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """Count outcomes by verdict and kind, and list each defect once."""
    verdicts = ("accepted", "refused", "traceback", "wrong success", "memory", "hang", "crash")
    counts = collections.Counter((each.kind, each.verdict) for each in outcomes)
    lines = ["".join(f"{head:>14}" for head in ("kind", *verdicts))]
    for kind in sorted({each.kind for each in outcomes}):
        lines.append(f"{kind:>14}" + "".join(f"{counts[kind, verdict]:>14}" for verdict in verdicts))
    totals = collections.Counter(each.verdict for each in outcomes)
    lines.append(f"{'all':>14}" + "".join(f"{totals[verdict]:>14}" for verdict in verdicts))
    alike: dict[tuple[str, ...], list[Outcome]] = {}
    for each in outcomes:
        if not each.clean:
            alike.setdefault((each.verdict, each.kind, _last_lines(each.detail)), []).append(each)
    for (verdict, kind, detail), cases in sorted(alike.items(), key=lambda item: -len(item[1])):
        some = ", ".join(str(each.number) for each in cases[:5])
        lines.append(f"\n{verdict} of {kind}, {len(cases)} times (cases {some}):\n{detail}")
    return "\n".join(lines)


def _last_lines(detail: str) -> str:
    """Where a traceback ends in the package, and the error."""
    lines = detail.strip().splitlines()
    own = [line.strip() for line in lines if "safemil" in line and line.strip().startswith("File")]
    return "\n".join([*own[-1:], *lines[-1:]])[:600]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of the campaign")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the cases to run again")
    parser.add_argument("--kinds", nargs="*", help="only cases of these kinds")
    parser.add_argument(
        "--materials", type=Path, help="folder of valid inputs, to be made once for many runs"
    )
    parser.add_argument("--log", type=Path, default=Path("fuzz.jsonl"), help="file for each defect")
    given = parser.parse_args()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE.parents[1] / ".pytest_cache" / "jax"))
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_TRACEBACK_FILTERING": "off"}
    sys.path.insert(0, str(HERE))
    from materials import build

    with tempfile.TemporaryDirectory(prefix="safemil-fuzz-materials-") as name:
        materials = given.materials or Path(name, "made")
        if not (materials / DONE).exists():
            materials.mkdir()
            build(materials)
            (materials / DONE).touch()
        if given.only:
            for number in given.only:
                found = json.dumps(asdict(run_case(given.seed, number, materials)), indent=2)
                print(found.replace("\\n", "\n"))
            return 0
        numbers = [
            number
            for number in range(given.first, given.first + given.cases)
            if not given.kinds or kind_of(number) in given.kinds
        ]
        given.log.unlink(missing_ok=True)
        outcomes = campaign(numbers, given.seed, materials, given.log)
    print(summary(outcomes))
    defects = sum(not each.clean for each in outcomes)
    print(f"\nseed {given.seed}: {len(outcomes)} cases, {defects} defects")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
