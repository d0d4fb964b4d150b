"""One self-contained HTML page from a run or from a benchmark's results.

`page` writes it. `inputs` reads what it is made from; `replay`, `cost_quality`, `extreme_segments`,
`episode_table` and `policies` compute; `svg`, `figures`, `maps` and `clips` draw; `run_page` and
`bench_page` put it together.
"""

import sys
from types import ModuleType
from typing import Any

from safemil.extras import require_extra

require_extra("report", "a report")


class _Callable(ModuleType):
    """Package that is called as well: importing it must not take `safemil.report`, a function, away."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from safemil.report.page import report

        return report(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
