"""One self-contained HTML page from a run or from a benchmark's results.

`page` writes it. What goes on the page is read by `inputs`, measured by `replay`, `observations`,
`extreme_segments` and `cost_quality`, drawn by `svg`, and put together by `run_page` and `bench_page`.
"""

from safemil.extras import require_extra

require_extra("report", "a report")
