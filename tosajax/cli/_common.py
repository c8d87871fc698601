"""What several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def add_command(
    commands: Any,
    name: str,
    function: Callable[[argparse.Namespace], int],
    text: str,
    *,
    trouble: int = 1,
) -> argparse.ArgumentParser:
    """A parser with what all commands have.

    Args:
      commands: of the parser above.
      name: of the command.
      function: runs it, and returns the exit status.
      text: what it does.
      trouble: the exit status of an error; 2 where 1 is an answer.
    """
    parser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("model", help="a .tosa file or its JSON form")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(command=function, trouble=trouble)
    return parser


def add_batch(parser: argparse.ArgumentParser) -> None:
    """The option of how many examples run at a time."""
    parser.add_argument("--batch", type=positive, default=32, help="examples in one call (32)")


def add_input(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The option of input files."""
    parser.add_argument(
        "--input", required=required, action="append", metavar="X.npy",
        help="examples stacked on the first axis; once for each input, in the graph's order",
    )  # fmt: skip


def add_random(parser: argparse.ArgumentParser) -> None:
    """The options of random inputs, where none are given."""
    parser.add_argument(
        "--random", type=positive, default=16, metavar="N",
        help="without --input: how many random examples (16)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of random examples (0)")


def arrays(paths: Sequence[str] | None) -> list[np.ndarray]:
    """What .npy files hold, mapped to memory; none where no path is given."""
    return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths or ()]


def positive(text: str) -> int:
    """A whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def bytes_in_words(count: int) -> str:
    """A size in bytes, KiB, MiB or GiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def progress(steps: Iterable[Any], total: int) -> Iterable[Any]:
    """A progress bar on a terminal, where the `cli` extra is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return steps
    return tqdm(steps, total=total, unit="batch", disable=None, leave=False)
