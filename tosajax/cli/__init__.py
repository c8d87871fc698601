"""The `tosajax` command: each of its commands is a module beside this one, by its name."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import tosajax
from tosajax.cli import check, compare, dump, explain, info, rewrite, rounding, run, sweep
from tosajax.cli._common import STDIN

# They import what they need as they run, so that help and errors in arguments come at once.
_COMMANDS = (info, check, explain, run, compare, dump, rewrite, rounding, sweep)

# What bad input leads to; RuntimeError where another program crashes on it.
_TROUBLE = (ValueError, TypeError, OSError, RuntimeError, MemoryError, ImportError)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    # As typed, for pages that say how they were made.
    arguments.line = shlex.join(["tosajax", *(sys.argv[1:] if argv is None else argv)])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return arguments.command(arguments)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output left; let Python's own flush at exit go nowhere.
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
    for command in _COMMANDS:
        command.add(commands)
    return parser


def _fail(message: str, status: int) -> int:
    print(f"tosajax: error: {message}", file=sys.stderr)
    return status


def _show_warning(message: Warning | str, *rest: Any) -> None:
    print(f"tosajax: warning: {message}", file=sys.stderr)


def _one_line(error: Exception, model: str) -> str:
    """What went wrong, and where: errors of files name theirs, all others are of the model."""
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
