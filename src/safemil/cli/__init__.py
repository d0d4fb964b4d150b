"""The command line: commands that parse arguments, call the library and print.

A module of this package holds the functions of one noun in `COMMANDS`; their signatures are the flags
(read by tyro) and their docstrings the help. Nothing slow is imported before a command runs, so that
`--help` answers at once.
"""

import importlib
import inspect
import os
import re
import shlex
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence

import tyro
from rich.console import Console

from safemil.errors import InputError, InputWarning, unknown

FLAGS = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
NOUNS = {"data": "safemil.cli.data", "tasks": "safemil.cli.tasks"}
INTRODUCTION = """Learn safe policies from incident logs.

  safemil train safemil --nonpreferred bad.parquet --unlabeled logs.parquet \\
      --out runs/first
"""
CLOSED_PIPE = 141  # the exit code that a shell gives to a program ended by SIGPIPE


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a command that the same arguments with --resume continue; says where its results are."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (a check failed), 2 (bad input), 130 or 141 (interrupted)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = _show_warning
        try:
            code = _dispatch([*arguments])
            sys.stdout.flush()  # a closed pipe is noticed here, and not when Python exits
            return code
        except InputError as error:
            _tell(f"error: {with_flags(str(error))}", "red")
        except BrokenPipeError:
            return _end_of_pipe()
        except OSError as error:
            _tell(f"error: {error.filename or 'file system'}: {error.strerror or error}", "red")
        except Interrupted as stopped:
            command = [each for each in arguments if each not in ("--resume", "--overwrite")]
            print(f"\nstopped; {stopped}. Continue with:\n", file=sys.stderr)
            print(f"  {shlex.join(['safemil', *command, '--resume'])}\n", file=sys.stderr)
            return 130
        except KeyboardInterrupt:
            return 130
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # Rich turns one into the other
                return _end_of_pipe()
            raise
    return 2


def with_flags(message: str) -> str:
    """Replace the arguments in a message of the library by their flags.

    >>> with_flags('give `resume=True`, `action_low=...` or `fill="gap=previous"`')
    'give --resume, --action-low or --fill "gap=previous"'
    """
    return re.sub(
        r'`(\w+)=(?:True|\.\.\.|("[^"`]*"))`',
        lambda found: f"--{found[1].replace('_', '-')} {found[2] or ''}".rstrip(),
        message,
    )


def _end_of_pipe() -> int:
    """Drop what is left to print: the reader of the pipe, such as `head`, has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if issubclass(category, InputWarning):  # a user can do nothing about warnings of other libraries
        _tell(f"warning: {with_flags(str(message))}", "yellow")


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
                (f"safemil {noun} {name}", _first_line(each)) for name, each in _commands(module).items()
            ]
        print(INTRODUCTION)
    width = max(len(name) for name, _ in rows) + 4
    for name, line in rows:
        print(_wrapped(f"  {name}".ljust(width), line))
    print(f"\n`{path} COMMAND --help` shows the flags of a command.")


def _wrapped(start: str, text: str) -> str:
    """Wrap a text to the width of the terminal, with all lines indented as far as `start` is long."""
    width, indent = shutil.get_terminal_size().columns, " " * len(start)
    return textwrap.fill(
        text,
        width,
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _first_line(command: Callable[..., object]) -> str:
    return (inspect.getdoc(command) or "").split("\n", 1)[0]
