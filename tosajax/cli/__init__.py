"""The `tosajax` command: each of its commands is a module beside this one, by its name."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

import tosajax
from tosajax.cli import check, compare, dump, explain, info, rewrite, rounding, run, sweep

_COMMANDS = (info, check, explain, run, compare, dump, rewrite, rounding, sweep)

# What bad input leads to; RuntimeError where another program crashes on it.
_TROUBLE = (ValueError, TypeError, OSError, RuntimeError, MemoryError, ImportError)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    # As typed, for pages that say how they were made.
    arguments.line = shlex.join(["tosajax", *(sys.argv[1:] if argv is None else argv)])
    try:
        return arguments.command(arguments)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output left; let Python's own flush at exit go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return arguments.trouble
    except tosajax.TosaError as error:
        if arguments.debug:
            raise
        first, *more = error.report.errors
        rest = f" (and {len(more)} more: see `tosajax check`)" if more else ""
        return _fail(f"{arguments.model}: {first}{rest}", arguments.trouble)
    except _TROUBLE as error:
        if arguments.debug:
            raise
        return _fail(_one_line(error, arguments.model), arguments.trouble)


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


def _one_line(error: BaseException, model: str) -> str:
    text = str(error).strip().splitlines()
    message = text[0] if text else type(error).__name__
    return message if model in message else f"{model}: {message}"
