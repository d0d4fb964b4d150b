"""Errors about input that can't be used, and warnings about input that can."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that can't be used; the message says what was expected, what came and what to do.

    A message writes an argument as `name=True` or `name=...`, in backquotes. The command line prints the
    message without a traceback, with the flag --name in its place.
    """


class DivergedError(InputError):
    """Training whose loss or network is no longer finite; the message says which one, and at which update."""


class NoEvidenceError(InputError):
    """Strict training whose cost tells held-out incidents from unlabeled episodes no better than chance."""


class InputWarning(UserWarning):
    """Input that can be used, but that the user should know about."""


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """Make the error for a name that does not exist; it suggests the nearest one that does.

    >>> print(unknown("algorithm", "safemill", ["bc", "safemil"]))
    no algorithm "safemill"; did you mean "safemil"? (all: bc, safemil)
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ";"
    return InputError(f'no {what} "{name}"{hint} (all: {", ".join(names)})')


def shortened(value: object, most: int = 60) -> str:
    """Write a value as Python would, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."
