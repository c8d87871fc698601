"""`tosajax rounding`: which rounding of RESCALE makes a graph equal which runtime."""

from __future__ import annotations

import argparse
from typing import Any

from tosajax.cli._common import (
    add_batch,
    add_command,
    add_input,
    add_random,
    add_scales,
    arrays,
    load,
    progress,
)
from tosajax.cli._references import HELP, reference


def add(commands: Any) -> None:
    """Adds the command."""
    text = "try single and double rounding against runtimes, and say which are equal"
    parser = add_command(commands, "rounding", _rounding, text)
    parser.add_argument(
        "--against", required=True, action="append", metavar="[NAME=]WHAT",
        help=f"{HELP}; those of one name belong together",
    )  # fmt: skip
    add_input(parser, required=False)
    add_random(parser)
    add_batch(parser)
    add_scales(parser)


def _rounding(arguments: argparse.Namespace) -> int:
    from tosajax.compare import which_rounding

    named: dict[str, list[str]] = {}
    for text in arguments.against:
        name, equals, what = text.partition("=")
        named.setdefault(name, []).append(what if equals else text)
    table = which_rounding(
        load(arguments),
        {name: reference(texts) for name, texts in named.items()},
        *arrays(arguments.input),
        batch=arguments.batch,
        examples=arguments.random,
        seed=arguments.seed,
        progress=progress,
    )
    print(table)
    return 0
