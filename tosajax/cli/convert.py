"""`tosajax convert`: writes a graph in another format."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import tosajax
from tosajax.cli._common import add_scales, load

if TYPE_CHECKING:
    from tosajax.graph import Graph

HELP = "write a graph in another format: .tosa, .json, .mlir, .mlirbc, .spv or .vgf"
EXAMPLES = ("convert model.tosa model.mlir",)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", help="file to write; its suffix chooses the format")
    parser.add_argument("--force", action="store_true", help="also write a graph that is illegal")
    add_scales(parser)


def run(arguments: argparse.Namespace) -> int:
    from tosajax import io

    io.check_path(arguments.output)
    graph = load(arguments)
    if not arguments.force:
        tosajax.validate(graph).raise_errors()
    tosajax.save(graph, arguments.output)
    print(f"{arguments.output}: {len(graph.nodes)} nodes, from {_source(graph)}")
    for rewrite in graph.source.rewrites:
        print(f"  {rewrite}")
    return 0


def _source(graph: Graph) -> str:
    return " ".join(part for part in (graph.source.format, graph.source.version) if part)
