"""The command line: commands that parse arguments, call the library and print.

A module of this package holds the functions of one noun in `COMMANDS`; their signatures are the flags
(read by tyro) and their docstrings the help. Nothing slow is imported before a command runs, so that
`--help` answers at once.
"""

import contextlib
import errno
import functools
import importlib
import inspect
import io
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import tyro

from safemil.errors import DivergedError, InputError, InputWarning, NoEvidenceError, unknown
from safemil.terminal import console, printable, say
from safemil.texts import require_utf8

FLAGS = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
NOUNS = {"data": "safemil.cli.data", "tasks": "safemil.cli.tasks"}
INTRODUCTION = """Learn safe policies from incident logs.

  safemil train safemil --nonpreferred bad.parquet --unlabeled logs.parquet \\
      --out runs/first
"""
OF_THE_PATH = (  # errors that another path would not give
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)
CLOSED_PIPE = 141  # the exit code that a shell gives to a program ended by SIGPIPE


class Interrupted(KeyboardInterrupt):
    """A signal during a command that --resume continues; the message says where its results are."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which saves and ends a command as Ctrl-C does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    It is 0, 1 (it failed, or what it checked did), 2 (it can't be done with this input), 130 (Ctrl-C),
    141 (the reader of its output is gone) or 143 (SIGTERM).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):  # where a terminal has no such character, it shows a "?"
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings(), _sigterm():
        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = _show_warning
        try:
            code = _dispatch([*arguments])
            sys.stdout.flush()  # a closed pipe is noticed here, and not when Python exits
            return code
        except (InputError, OSError, MemoryError) as error:
            return _failed(error)
        except Interrupted as stopped:
            command = [each for each in arguments if each not in ("--resume", "--overwrite")]
            say(f"\nstopped; {stopped}. Continue with:\n", stderr=True)
            say(f"  {shlex.join(['safemil', *command, '--resume'])}\n", stderr=True)
            return signal_code(stopped.__cause__)
        except KeyboardInterrupt as stopped:
            print("\nstopped.", file=sys.stderr)
            return signal_code(stopped)
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # Rich turns one into the other
                return _end_of_pipe()
            raise


def signal_code(stopped: BaseException | None) -> int:
    """Exit code that a shell gives to a program ended by the signal."""
    return 128 + (signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def _sigterm() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM; a thread can't, and an earlier call of `main` does already."""

    def terminate(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _failed(error: Exception) -> int:
    """Tell an error in a line; the exit code says whether other input would help."""
    if isinstance(error, BrokenPipeError):
        return _end_of_pipe()
    if isinstance(error, InputError):
        _tell(f"error: {with_flags(str(error))}", "red")
        return 1 if isinstance(error, DivergedError | NoEvidenceError) else 2
    if isinstance(error, OSError):
        _tell(f"error: {error.filename or 'file system'}: {error.strerror or error}", "red")
        return 2 if error.errno in OF_THE_PATH else 1
    _tell(f"error: not enough memory ({error})", "red")
    return 1


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
    console(stderr=True).print(text, style=style, soft_wrap=True)


def _dispatch(arguments: list[str]) -> int:
    for each in arguments:
        require_utf8("the argument", each)
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
    if {"-h", "--help"} & {*arguments}:
        _print_flags(f"{path} {verb}", commands[verb])
        return 0
    result = _parsed(commands[verb], arguments, f"{path} {verb}")()
    return result if isinstance(result, int) else 0


def _parsed(command: Callable[..., int | None], arguments: list[str], prog: str) -> Callable[[], int | None]:
    """Bind the arguments to a command; a message about a wrong one shows its control characters escaped."""

    @functools.wraps(command)
    def bound(*values: Any, **named: Any) -> Callable[[], int | None]:
        return functools.partial(command, *values, **named)

    def parse(words: list[str]) -> Callable[[], int | None]:
        return tyro.cli(bound, args=words, prog=prog, config=FLAGS)

    shown = [printable(each) for each in arguments]
    if shown == arguments:
        return parse(arguments)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return parse(arguments)
    except SystemExit:
        parse(shown)  # says what is wrong, and ends
        raise


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


class _Printed(io.StringIO):
    """Text that is formatted as for standard output, with its colours and characters."""

    encoding = ""

    def __init__(self) -> None:
        super().__init__()
        self.encoding, self.isatty = sys.stdout.encoding, sys.stdout.isatty  # type: ignore[method-assign]


def _print_flags(path: str, command: Callable[..., int | None]) -> None:
    """Print the help of a command; tyro's usage line can be wider than the terminal, ours replaces it."""
    with contextlib.redirect_stdout(_Printed()) as printed, contextlib.suppress(SystemExit):
        tyro.cli(command, args=["--help"], prog=path, config=FLAGS)
    print(_wrapped(f"usage: {path} ", _usage(command)), *printed.getvalue().split("\n")[1:], sep="\n", end="")


def _usage(command: Callable[..., int | None]) -> str:
    """Positional arguments and required flags of a command."""
    words = []
    for name, parameter in inspect.signature(command).parameters.items():
        marks = get_args(parameter.annotation)
        shown = next((mark.metavar for mark in marks if getattr(mark, "metavar", None)), name.upper())
        if tyro.conf.Positional in marks:
            words.append(shown)
        elif parameter.default is inspect.Parameter.empty:
            words.append(f"--{name.replace('_', '-')} {shown}")
    return " ".join([*words, "[options]"])


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
