"""`safemil export`."""

from typing import Annotated

import tyro

from safemil.cli.arguments import READING, OutFile, PathFlag, ReadingFlags, RunPath
from safemil.terminal import say


def export(
    run: RunPath,
    *,
    out: OutFile,
    unlabeled: PathFlag = None,
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None,
    columns: bool = False,
    taken: bool = False,
    overwrite: bool = False,
    reading: ReadingFlags = READING,
) -> None:
    """Write a policy and its cost to one file that runs without JAX.

    safemil export runs/first --out policy.onnx

    Args:
        run: run folder
        out: file to write: .onnx (extra onnx), or .safetensors, which `safemil.deploy` loads with NumPy alone
        unlabeled: episodes to check the file on (default: the unlabeled pile that the run was trained on)
        seed: seed of the run, if it has several (default: the first)
        columns: ONNX: one input for each column, named as in the log, instead of whole rows
        taken: ONNX: add the action taken as an input; risk is then that of this action, not of the policy's
        overwrite: replace the file
    """
    from safemil.api import Run
    from safemil.cli.arguments import training_data
    from safemil.export import MOST_DIFFERENCE
    from safemil.export import export as write

    trained = Run.load(run)
    chosen = trained.of_seed(seed)
    pile = training_data(run, unlabeled, reading)
    written = write(chosen, out, pile, columns=columns, taken=taken, overwrite=overwrite)
    if len(trained) > 1:
        print(f"seed {chosen.seeds[0]} of {', '.join(map(str, trained.seeds))}")
    print(
        f"{', '.join(written.outputs)}: largest difference from the run {written.difference:.1e} "
        f"over {written.rows:,} rows (at most {MOST_DIFFERENCE:g})"
    )
    say(out)
