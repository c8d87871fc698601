"""`tosajax rewrite`: another graph, to see the cost of a choice."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import tosajax
from tosajax.cli._common import add_scales, load, positive, regex

if TYPE_CHECKING:
    from tosajax.graph import Graph

HELP = "write a graph with other rounding, scales, bits or tables, or with layers in floats"
ROUNDINGS = ("single", "double", "inexact")  # of `rewrite.rounding`, which help does not import


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", required=True, metavar="OUT.tosa", help="file to write")
    parser.add_argument("--rounding", choices=ROUNDINGS, help="rounding of RESCALE")
    parser.add_argument("--scale", type=int, choices=(16, 32), help="bits of RESCALE's multipliers")
    parser.add_argument("--table-bits", type=positive, metavar="N", help="2**N steps in each TABLE")
    parser.add_argument("--bits", type=positive, metavar="N", help="bits of activations")
    parser.add_argument("--weight-bits", type=positive, metavar="N", help="bits of weights")
    parser.add_argument("--float", type=regex, metavar="REGEX", help="layers to compute in floats")
    parser.add_argument(
        "--where", type=regex, metavar="REGEX",
        help="only nodes whose output or location contains this",
    )  # fmt: skip
    add_scales(parser)


def run(arguments: argparse.Namespace) -> int:
    from tosajax import io

    io.check_path(arguments.output)
    before = load(arguments)
    after = _rewritten(before, arguments)
    if after is before:
        raise ValueError("nothing to rewrite: give --rounding, --scale, --bits or another option")
    tosajax.validate(after).raise_errors()
    tosajax.save(after, arguments.output)
    kept = {node for part in before.walk() for node in part.nodes}
    new = sum(node not in kept for part in after.walk() for node in part.nodes if node.inputs)
    print(f"{arguments.output}: {new} of {len(after.nodes)} nodes are new")
    return 0


def _rewritten(graph: Graph, arguments: argparse.Namespace) -> Graph:
    from tosajax import rewrite

    where = arguments.where
    if arguments.rounding:
        graph = rewrite.rounding(graph, arguments.rounding, where)
    if arguments.scale:
        graph = rewrite.scale(graph, arguments.scale, where)
    if arguments.table_bits:
        graph = rewrite.table_resolution(graph, arguments.table_bits, where)
    if arguments.weight_bits:
        graph = rewrite.bits(graph, arguments.weight_bits, where, "weights")
    if arguments.bits:
        graph = rewrite.bits(graph, arguments.bits, where)
    if arguments.float is not None:
        graph = rewrite.to_float(graph, arguments.float)
    return graph
