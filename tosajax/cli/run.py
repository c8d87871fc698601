"""`tosajax run`: a graph over a data set."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import tosajax
from tosajax.atomic import check_folder, replacing
from tosajax.cli._common import add_batch, add_command, add_input, progress
from tosajax.dataset import Dataset
from tosajax.graph import Graph


def add(commands: Any) -> None:
    """Adds the command."""
    parser = add_command(commands, "run", _run, "run a graph over a data set")
    add_input(parser, required=True)
    parser.add_argument(
        "--output", required=True, action="append", metavar="Y.npy",
        help="where results go; once for each output, in the graph's order",
    )  # fmt: skip
    add_batch(parser)


def _run(arguments: argparse.Namespace) -> int:
    graph = tosajax.load(arguments.model)
    _check_paths(graph, arguments)
    arrays = [np.load(path, allow_pickle=False) for path in arguments.input]
    data = Dataset.of(graph, arrays)
    start = time.perf_counter()
    results = data.run(graph, arguments.batch, progress=progress)
    seconds = time.perf_counter() - start
    for path, result in zip(arguments.output, results, strict=True):
        with replacing(path) as file:
            np.save(file, result, allow_pickle=False)
    rate = data.count / seconds
    print(f"{data.count} examples in {seconds:.2f} s ({rate:,.0f}/s, compilation included)")
    for path, result in zip(arguments.output, results, strict=True):
        print(f"{path}: {result.dtype} {result.shape}")
    return 0


def _check_paths(graph: Graph, arguments: argparse.Namespace) -> None:
    """Refuses wrong counts and unwritable places before any work is done."""
    for what, given, wanted in (
        ("--input", arguments.input, graph.inputs),
        ("--output", arguments.output, graph.outputs),
    ):
        if len(given) != len(wanted):
            names = ", ".join(wanted)
            raise ValueError(f"{len(given)} {what}, the graph has {len(wanted)} ({names})")
    for path in arguments.output:
        check_folder(path)
