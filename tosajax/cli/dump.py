"""`tosajax dump`: every tensor of a graph, into one file."""

from __future__ import annotations

import argparse
from typing import Any

from tosajax.cli._common import (
    add_batch,
    add_command,
    add_input,
    add_scales,
    arrays,
    load,
    progress,
    regex,
)


def add(commands: Any) -> None:
    """Adds the command."""
    parser = add_command(commands, "dump", _dump, "write what every tensor holds to an .npz file")
    add_input(parser, required=True)
    parser.add_argument("-o", "--output", required=True, metavar="ALL.npz", help="where it goes")
    parser.add_argument(
        "--tensors", type=regex, metavar="REGEX", help="only names that contain this"
    )
    add_batch(parser)
    add_scales(parser)


def _dump(arguments: argparse.Namespace) -> int:
    if not arguments.output.endswith(".npz"):
        raise ValueError(f"--output is {arguments.output}, expected a name that ends in .npz")
    from tosajax.runtime.dump import dump_npz

    graph = load(arguments)
    shapes = dump_npz(
        arguments.output,
        graph,
        *arrays(arguments.input),
        tensors=arguments.tensors,
        batch=arguments.batch,
        progress=progress,
    )
    examples = next(iter(shapes.values()))[0]
    print(f"{arguments.output}: {len(shapes)} tensors of {examples} examples")
    return 0
