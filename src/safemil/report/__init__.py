"""One self-contained HTML page from a run or from a benchmark's results.

`page.write_report` is the way in. What goes on the page is gathered by `inputs`, measured by `walks`,
`places`, `segments` and `hindsight`, drawn by `svg`, and put together by `run_page` and `bench_page`.
"""
