"""The command line: verbs that parse, call and print.

A module of this package holds the functions of one noun in `COMMANDS`; their signatures are the flags
(read by tyro) and their docstrings the help. Nothing heavy is imported before a command runs, so that
`--help` answers at once.
"""

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Sequence

import tyro
from rich.console import Console

from safemil.errors import InputError, InputWarning, unknown

FLAGS = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
NOUNS = {"data": "safemil.cli.data", "tasks": "safemil.cli.tasks"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (a check failed), 2 (bad input) or 130 (interrupted)."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = _show_warning
        try:
            return _dispatch(list(sys.argv[1:] if argv is None else argv))
        except InputError as error:
            _tell(f"error: {error}", "red")
        except OSError as error:
            _tell(f"error: {error.filename or 'file system'}: {error.strerror or error}", "red")
        except KeyboardInterrupt:
            return 130
    return 2


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if issubclass(category, InputWarning):  # what libraries warn of is not the user's to mend
        _tell(f"warning: {message}", "yellow")


def _tell(text: str, style: str) -> None:
    Console(stderr=True).print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def _dispatch(arguments: list[str]) -> int:
    path, commands = "safemil", _commands("safemil.cli.verbs")
    if arguments and arguments[0] in NOUNS:
        path, commands = f"safemil {arguments[0]}", _commands(NOUNS[arguments.pop(0)])
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_help(path, commands)
        return 0 if arguments else 2
    verb = arguments.pop(0)
    if verb == "--version" and path == "safemil":
        from safemil import __version__

        print(f"safemil {__version__}")
        return 0
    if verb not in commands:
        names = [*commands, *(NOUNS if path == "safemil" else ())]
        raise unknown("command", verb, names)
    result = tyro.cli(commands[verb], args=arguments, prog=f"{path} {verb}", config=FLAGS)
    return result if isinstance(result, int) else 0


def _commands(module: str) -> dict[str, Callable[..., int | None]]:
    commands: dict[str, Callable[..., int | None]] = importlib.import_module(module).COMMANDS
    return commands


def _print_help(path: str, commands: dict[str, Callable[..., int | None]]) -> None:
    rows = [(f"{path} {name}", _first_line(command)) for name, command in commands.items()]
    if path == "safemil":
        for noun, module in NOUNS.items():
            rows += [
                (f"safemil {noun} {name}", _first_line(command))
                for name, command in _commands(module).items()
            ]
    width = max(len(name) for name, _ in rows) + 2
    if path == "safemil":
        print("Learn safe policies from incident logs.\n")
        print(
            "  safemil train safemil --nonpreferred bad.parquet --unlabeled logs.parquet --out runs/first\n"
        )
    for name, line in rows:
        print(f"  {name:<{width}}{line}")
    print(f"\n`{path} COMMAND --help` shows the flags of a command.")


def _first_line(command: Callable[..., object]) -> str:
    return (inspect.getdoc(command) or "").split("\n", 1)[0]
