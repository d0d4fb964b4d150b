"""`safemil evidence`."""

from safemil.cli.arguments import RunPath


def evidence(run: RunPath, *, json: bool = False) -> None:
    """Print how well a run recognises incidents, judged without true costs.

    safemil evidence runs/first

    Args:
        run: run folder
        json: print all numbers as JSON instead
    """
    from json import dumps

    from safemil.evidence import Evidence
    from safemil.runs import RunDirectory
    from safemil.terminal import printable

    RunDirectory(run).read_config()  # a folder that is not a run is refused first
    found = Evidence.load(run)
    print(dumps(found.to_json(), indent=2) if json else printable("\n".join(found.lines())))
