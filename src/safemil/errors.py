"""What a user did that can't work, said so that they can mend it."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something given can't be used; the message says what was needed, what came and what to do.

    The command line prints the message alone; a traceback means a defect of ours.
    """


class InputWarning(UserWarning):
    """Something given can be used, but the user will want to know about it."""


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a wrong name, answered with the near ones.

    >>> print(unknown("algorithm", "safemill", ["bc", "safemil"]))
    no algorithm "safemill"; did you mean "safemil"? (all: bc, safemil)
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ";"
    return InputError(f'no {what} "{name}"{hint} (all: {", ".join(names)})')
