"""`tosajax rounding`: finds the rounding of RESCALE with which a graph equals a runtime."""

from __future__ import annotations

import argparse

from tosajax.cli import _references
from tosajax.cli._common import (
    add_batch,
    add_clip,
    add_input,
    add_random,
    add_scales,
    arrays,
    load,
    progress,
)

HELP = "try single and double rounding against runtimes, and show which are equal"
EXAMPLES = ("rounding model.tosa --against other.tosa --input x.npy",)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--against", required=True, action="append", metavar="[NAME=]WHAT",
        help=f"{_references.HELP}; files of one NAME belong together",
    )  # fmt: skip
    add_input(parser, required=False)
    add_random(parser)
    add_batch(parser)
    add_scales(parser)
    add_clip(parser)


def run(arguments: argparse.Namespace) -> int:
    from tosajax.compare import which_rounding

    named: dict[str, list[str]] = {}
    for text in arguments.against:
        name, equals, reference = text.partition("=")
        named.setdefault(name, []).append(reference if equals else text)
    table = which_rounding(
        load(arguments),
        {name: _references.reference(texts) for name, texts in named.items()},
        *arrays(arguments.input),
        batch=arguments.batch,
        examples=arguments.random,
        seed=arguments.seed,
        clip=arguments.clip,
        progress=progress,
    )
    print(table)
    return 0
