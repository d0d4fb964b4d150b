"""Consoles that show data as it is: text from files is never markup, control characters are escaped."""

import sys
import unicodedata
from typing import Any

from rich.console import Console
from rich.text import Text


def printable(text: str) -> str:
    r"""Escape characters that would move the cursor, change colours or reorder the text.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in (
        "Cc",
        "Cf",
        "Cs",
        "Co",
        "Cn",
        "Zl",
        "Zp",
    ):
        return character
    return character.encode("unicode_escape").decode()


def say(text: object, *, stderr: bool = False) -> None:
    """Print a line, its control characters escaped; unlike a console's, the line is never wrapped."""
    print(printable(str(text)), file=sys.stderr if stderr else sys.stdout)


class PlainConsole(Console):
    """Console of which every text is plain; styles are given as arguments or as `rich.text.Text`."""

    def render_str(self, text: str, **options: Any) -> Text:
        options |= {"markup": False, "emoji": False, "highlight": False}
        return super().render_str(printable(text), **options)


def console(*, stderr: bool = False) -> Console:
    """Make a console for standard output, or for standard error."""
    return PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)
