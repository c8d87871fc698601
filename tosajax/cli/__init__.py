"""The `tosajax` command: each of its commands is a module of this package, with the same name.

A module has a help text (`HELP`), example command lines without the program's name (`EXAMPLES`),
the help text of its input if that is not a file (`MODEL`), a function that adds its options
(`add_options`), and a function that runs it and returns the exit status (`run`).
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import os
import shlex
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import tosajax
from tosajax.cli import (
    check,
    compare,
    convert,
    dump,
    explain,
    export,
    info,
    quantize,
    rewrite,
    rounding,
    run,
    show,
    sweep,
)
from tosajax.cli._common import STDIN, input_shape

# Commands import most modules when they run, so that help and usage errors appear at once.
_COMMANDS = (
    *(info, show, check, explain, run, compare, convert, export, quantize, dump, rewrite),
    *(rounding, sweep),
)

_EXAMPLES = "examples:"  # the first line of the examples in a help text

# Errors that bad input causes; RuntimeError if another program crashes on it.
_TROUBLE = (ValueError, TypeError, OSError, RuntimeError, MemoryError, ImportError)

_INTERRUPTED = 130  # the exit status as in shells: 128 + SIGINT


def process() -> NoReturn:
    """Runs the command of this process, and exits."""
    sys.unraisablehook = _interrupt_again
    try:
        status = main()
    except KeyboardInterrupt:  # a second interrupt, while the first was reported
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        # At exit, JAX frees data that XLA's compiler threads still use, which crashes.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    # As typed, for the foot of pages.
    arguments.line = shlex.join(["tosajax", *(sys.argv[1:] if argv is None else argv)])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return arguments.run(arguments)
    except KeyboardInterrupt as interrupt:
        notes = "; ".join(getattr(interrupt, "__notes__", ()))
        return _fail(f"interrupted ({notes})" if notes else "interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # The reader of the output left; Python's own flush at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return arguments.trouble
    except Exception as error:
        if arguments.debug:
            raise
        model = "standard input" if arguments.model == STDIN else arguments.model
        return _fail(_one_line(error, model), arguments.trouble)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tosajax", description="Run and inspect TOSA graphs.")
    parser.add_argument("--version", action="version", version=f"tosajax {tosajax.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in _COMMANDS:
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(
            name, help=module.HELP, description=module.HELP, epilog=_examples(module.EXAMPLES),
            formatter_class=_Formatter,
        )  # fmt: skip
        _add_model(command, getattr(module, "MODEL", None))
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        # `trouble` is the exit status of an error.
        command.set_defaults(run=module.run, trouble=1)
        module.add_options(command)
    return parser


class _Formatter(argparse.HelpFormatter):
    """Wraps a help text, except the lines of examples at its end."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        is_examples = text.startswith(_EXAMPLES)
        return text if is_examples else super()._fill_text(text, width, indent)


def _examples(lines: Sequence[str]) -> str:
    return "\n  tosajax ".join([_EXAMPLES, *lines])


def _add_model(command: argparse.ArgumentParser, help_text: str | None) -> None:
    """Adds the input of a command: a graph's file, unless its module describes another input."""
    file = (
        "a TOSA file (.tosa, .json), MLIR (text or bytecode), SPIR-V, VGF, TFLite or ONNX; - for "
        "standard input"
    )
    command.add_argument("model", help=help_text or file)
    if help_text is None:
        which = "which of several in the file (the only one, or main)"
        command.add_argument("--function", metavar="NAME", help=which)
        command.add_argument(
            "--shape", type=input_shape, action="append", default=[], metavar="NAME=1x3x224x224",
            help="shape of an input that the file leaves open; once for each such input",
        )  # fmt: skip


def _fail(message: str, status: int) -> int:
    print(f"tosajax: error: {message}", file=sys.stderr)
    return status


def _interrupt_again(dropped: Any) -> None:
    """Raises an interrupt again that Python dropped in a callback; JAX has a callback of gc.

    Args:
      dropped: the argument of `sys.unraisablehook`.
    """
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        # Delayed, as an immediate interrupt would be dropped again.
        threading.Timer(0.01, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(dropped)


def _show_warning(message: Warning | str, *rest: object) -> None:
    print(f"tosajax: warning: {message}", file=sys.stderr)


def _one_line(error: Exception, model: str) -> str:
    """An error with its file: file errors name their own file, other errors belong to the model."""
    from tosajax.report import FormatError, TosaError

    if isinstance(error, TosaError):
        first, *more = error.report.errors
        rest = f" (and {len(more)} more: see `tosajax check`)" if more else ""
        return f"{model}: {first}{rest}"
    text = str(error).strip().splitlines()
    message = text[0] if text else type(error).__name__
    if not isinstance(error, _TROUBLE):
        defect = f"{type(error).__name__}: {message}"
        return f"{model}: {defect} (a defect of tosajax: --debug shows where)"
    is_of_a_file = isinstance(error, FormatError) or getattr(error, "filename", None) is not None
    return message if is_of_a_file or model in message else f"{model}: {message}"
