"""Measures one network file, in a process of its own; or its first result alone.

    python -m benchmarks.zoo.worker FILE ROW_FILE INPUTS_FILE [--batches N ...] [--threads N]
    python -m benchmarks.zoo.worker FILE ROW_FILE INPUTS_FILE --first {tosajax,peer}

The row is JSON; an error is part of it. The first form writes the inputs of one example, which the
second reads, so that a peer converts nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tosajax
from benchmarks import timing
from benchmarks.zoo import files
from benchmarks.zoo.peers import PEERS
from tosajax import Graph, reference_model
from tosajax.graph.summary import summarize

OURS = "tosajax"


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("row", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first", choices=[OURS, "peer"])
    options = parser.parse_args(arguments)
    row: dict[str, Any] = {}
    try:
        if options.first:
            _first(options)
        else:
            for part in _parts(options):
                row |= part
                options.row.write_text(json.dumps(row))
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    options.row.write_text(json.dumps(row))


def _first(options: argparse.Namespace) -> None:
    """One result, after which the process ends; its whole time counts."""
    with np.load(options.inputs) as arrays:
        inputs = [arrays[name] for name in arrays.files]
    if options.first == OURS:
        jax.block_until_ready(tosajax.compile(files.load(options.file))(*inputs))
    else:
        PEERS[options.file.suffix](options.file, inputs, options.threads)()


def _parts(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields the row, part by part."""
    graph = files.load(options.file)
    np.savez(options.inputs, *files.examples(graph, 1))
    yield {"macs": summarize(graph).macs, "is_float": files.is_float(graph)}
    run = tosajax.compile(graph)
    nodes = run.cost().nodes
    products = [node for node in nodes if node.macs]
    native = [node for node in products if node.route.startswith("native")]
    yield {"products": len(products), "native": len(native)}
    yield _agreement(graph, run, options.file)
    effort = timing.QUICK if options.quick else timing.FULL
    for count in options.batches:
        yield {f"batch {count}": _timed(graph, options, count, effort)}


def _agreement(graph: Graph, run: tosajax.Executable, path: Path) -> dict[str, Any]:
    """The integers that differ from Arm's model, or how far floats are from the peer's."""
    inputs = files.examples(graph, 1)
    ours = [np.asarray(y) for y in run(*inputs)]
    if all(tensor.dtype.is_integer for tensor in graph.output_tensors):
        theirs = reference_model.run(graph, *inputs)
        pairs = list(zip(ours, (theirs[name] for name in graph.outputs), strict=True))
        return {
            "elements": sum(a.size for a, _ in pairs),
            "mismatches": sum(int(np.count_nonzero(a != b)) for a, b in pairs),
        }
    if path.suffix not in PEERS:
        return {}
    theirs = PEERS[path.suffix](path, inputs, 1)()
    return {"error of outputs": [_error(a, b) for a, b in zip(ours, theirs, strict=True)]}


def _error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The root mean square of the difference, over that of the peer's values."""
    a, b = (np.asarray(y, np.float64).ravel() for y in (ours, theirs))
    scale = float(np.sqrt(np.mean(b**2)))
    return float(np.sqrt(np.mean((a - b) ** 2))) / (scale or 1.0)


def _timed(
    graph: Graph, options: argparse.Namespace, count: int, effort: timing.Effort
) -> dict[str, Any]:
    """Seconds of a call for so many examples, and the ratio of the peer's, in turns."""
    inputs = files.examples(graph, count)
    placed = [jax.device_put(x) for x in inputs]
    compiled = tosajax.compile(graph, batch=count)
    runs = {OURS: lambda: jax.block_until_ready(compiled(*placed))}
    if options.file.suffix in PEERS:
        runs["peer"] = PEERS[options.file.suffix](options.file, inputs, options.threads)
    for run in runs.values():
        run()
    samples = timing.measure(runs, effort)
    return {name: dict(timing.summary(each, samples[OURS])) for name, each in samples.items()}


if __name__ == "__main__":
    sys.exit(main())
