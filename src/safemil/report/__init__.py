"""One self-contained HTML page from a run or from a benchmark's results.

`page` writes it. `inputs` reads what it is made from; `replay`, `cost_quality`, `extreme_segments`,
`episode_table` and `policies` compute; `svg`, `figures`, `maps` and `clips` draw; `run_page` and
`bench_page` put it together.
"""

from safemil.extras import require_extra

require_extra("report", "a report")
