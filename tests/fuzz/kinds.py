"""All kinds of cases; the number of a case chooses one."""

from collections.abc import Callable

import commands
import deployed
import folders
import foreign
import readers
from case import Case

KINDS: list[Callable[[Case], None]] = [
    *readers.KINDS,
    *foreign.KINDS,
    *folders.KINDS,
    *deployed.KINDS,
    *commands.KINDS,
    folders.training,
]


def warm_up() -> None:
    """Import what the cases use, so that no case is charged for it."""
    import safemil.api
    import safemil.bench.page
    import safemil.report.page
    import safemil.tasks.verify  # noqa: F401
