"""`tosajax dump`: writes every tensor of a graph to one file."""

from __future__ import annotations

import argparse

from tosajax.cli._common import (
    add_batch,
    add_clip,
    add_input,
    add_scales,
    add_tensors,
    arrays,
    load,
    progress,
)

HELP = "write the values of every tensor to an .npz file"
EXAMPLES = ("dump model.tosa --input x.npy --output all.npz",)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_input(parser, required=True)
    parser.add_argument("-o", "--output", required=True, metavar="ALL.npz", help="file to write")
    add_tensors(parser)
    add_batch(parser)
    add_scales(parser)
    add_clip(parser)


def run(arguments: argparse.Namespace) -> int:
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
        clip=arguments.clip,
        progress=progress,
    )
    examples = next(iter(shapes.values()))[0]
    print(f"{arguments.output}: {len(shapes)} tensors of {examples} examples")
    return 0
