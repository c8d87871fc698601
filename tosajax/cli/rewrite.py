"""`tosajax rewrite`: writes a changed graph, to measure the cost of a choice."""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import tosajax
from tosajax import html
from tosajax.cli._common import add_scales, load, positive, regex

if TYPE_CHECKING:
    from tosajax.graph import Graph, Node, Tensor

HELP = "write a graph with other rounding, scales, bits or tables, or with layers in floats"
EXAMPLES = (
    "rewrite model.tosa --rounding double --output double.tosa",
    "rewrite model.tosa --weight-bits 4 --where conv -o fewer.tosa",
)
_CHOSEN = ("rounding", "scale", "table_bits", "weight_bits", "bits")  # apply to nodes of --where
ROUNDINGS = ("single", "double", "inexact")  # as in `rewrite.rounding`, which help does not import


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
    if arguments.where and arguments.float and not any(getattr(arguments, n) for n in _CHOSEN):
        raise ValueError("--float has a REGEX of its own: --where is for the other options")
    before = load(arguments)
    after = _rewritten(before, arguments)
    if after is before:
        raise ValueError("nothing to rewrite: give --rounding, --scale, --bits or another option")
    tosajax.validate(after).raise_errors()
    tosajax.save(after, arguments.output)
    changes = ", ".join(_changes(before, after))
    if not changes:
        warnings.warn("the graph was like this before: nothing has changed", stacklevel=1)
    print(f"{arguments.output}: {len(after.nodes)} nodes{', ' if changes else ''}{changes}")
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


def _changes(before: Graph, after: Graph) -> Iterator[str]:
    """Lines about new, changed and removed nodes, by kind, and about changed constants."""
    old, new = _by_output(before), _by_output(after)
    both = old.keys() & new.keys()
    kinds = {
        "new": [new[key] for key in new.keys() - old.keys()],
        "changed": [new[key] for key in both if old[key] != new[key]],
        "gone": [old[key] for key in old.keys() - new.keys()],
    }
    for kind, nodes in kinds.items():
        counts = Counter(node.op for node, _ in nodes if node.inputs)
        yield from (f"{count} {op} {kind}" for op, count in sorted(counts.items()))
    constants = sorted(node.outputs[0] for node, _ in kinds["changed"] if not node.inputs)
    if constants:
        yield f"other values of {html.listed(constants)}"


def _by_output(graph: Graph) -> dict[tuple[str, str, str], tuple[Node, list[Tensor]]]:
    """Nodes with their outputs, by graph, operator and first output."""
    return {
        (part.name, node.op, node.outputs[0]): (node, [part.tensors[name] for name in node.outputs])
        for part in graph.walk()
        for node in part.nodes
        if node.outputs
    }
