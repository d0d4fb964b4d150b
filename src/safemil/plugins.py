"""Parts that installed packages add through entry points."""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from safemil.errors import InputError


def installed(group: str, builtin: Container[str]) -> dict[str, EntryPoint]:
    """Entry points of a group by name, not yet loaded. A built-in part keeps its name."""
    return {each.name: each for each in entry_points(group=group) if each.name not in builtin}


@contextmanager
def named_in_errors(what: str, entry: EntryPoint) -> Iterator[None]:
    """Turn any error of a plug-in into one that names its package."""
    try:
        yield
    except Exception as error:
        package = entry.value if entry.dist is None else entry.dist.name
        raise InputError(
            f'the {what} "{entry.name}" of the installed package {package} does not work: '
            f"{type(error).__name__}: {error}; update or uninstall that package."
        ) from error
