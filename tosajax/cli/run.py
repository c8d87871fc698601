"""`tosajax run`: runs a graph on a data set."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tosajax.atomic import check_folder, replacing
from tosajax.cli._common import (
    add_batch,
    add_clip,
    add_input,
    add_scales,
    arrays,
    load,
    progress,
)

if TYPE_CHECKING:
    import numpy as np

    from tosajax.graph import Graph


HELP = "run a graph over a data set"
EXAMPLES = (
    "run model.tosa --input x.npy --output y.npy",
    "run model.tosa --input real.npy --input-quant 0.1,0 --output y.csv",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_input(parser, required=True)
    parser.add_argument(
        "-o", "--output", required=True, action="append", metavar="Y.npy",
        help="file to write, .npy, or .csv with a row for each example; once for each output, in "
        "the graph's order",
    )  # fmt: skip
    parser.add_argument(
        "--real", action="store_true",
        help="write integer outputs as the real numbers they stand for (float32)",
    )  # fmt: skip
    add_batch(parser)
    add_scales(parser)
    add_clip(parser)


def run(arguments: argparse.Namespace) -> int:
    from tosajax.runtime import dataset

    for path in arguments.output:
        _check_path(path)
    graph = load(arguments)
    _check_counts(graph, arguments)
    inputs = arrays(arguments.input)
    start = time.perf_counter()
    results = dataset.run(
        graph,
        *inputs,
        batch=arguments.batch,
        real=arguments.real,
        clip=arguments.clip,
        progress=progress,
    )
    seconds = time.perf_counter() - start
    for path, result in zip(arguments.output, results, strict=True):
        _write(path, result)
    count = len(inputs[0])
    rate = count / seconds
    print(f"{count} examples in {seconds:.2f} s ({rate:,.0f}/s, compilation included)")
    for path, result in zip(arguments.output, results, strict=True):
        print(f"{path}: {result.dtype} {result.shape}")
    return 0


def _check_counts(graph: Graph, arguments: argparse.Namespace) -> None:
    """Checks the numbers of files before any work is done."""
    for option, files, wanted in (
        ("--input", arguments.input, graph.inputs),
        ("--output", arguments.output, graph.outputs),
    ):
        if len(files) != len(wanted):
            names = ", ".join(wanted)
            raise ValueError(f"{len(files)} {option}, the graph has {len(wanted)} ({names})")


def _check_path(path: str) -> None:
    """Checks the format and the folder of a file."""
    check_folder(path)
    is_file = Path(path).is_file() or not Path(path).exists()  # and not a device or a pipe
    if is_file and Path(path).suffix not in (".npy", ".csv"):
        raise ValueError(f"--output is {path}, expected a name that ends in .npy or .csv")


def _write(path: str, result: np.ndarray) -> None:
    """Writes an array atomically; in CSV, the first axis is the rows."""
    import numpy as np

    if Path(path).suffix != ".csv":
        with replacing(path) as file:
            np.save(file, result, allow_pickle=False)
        return
    with replacing(path, "w") as file:
        for example in result.astype(np.int8) if result.dtype == bool else result:
            file.write(",".join(map(str, example.reshape(-1))) + "\n")
