"""Measures one network under one scheme, in a process of its own.

    python -m benchmarks.ptq_zoo.worker NETWORK SCHEME ROW_FILE --cache DIR

The file of the row is written after each stage, so that a process that is ended leaves what it has.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tosajax
from benchmarks.ptq_zoo import convert, inputs, metrics, ours, peer
from benchmarks.ptq_zoo.networks import NETWORKS, Network, fetch
from benchmarks.ptq_zoo.row import Row
from benchmarks.ptq_zoo.schemes import PEER, SCHEMES


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the row; an error is part of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("scheme", choices=[*SCHEMES, PEER])
    parser.add_argument("row", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--arm", type=int, default=0)
    parser.add_argument("--every-tensor", action="store_true")
    options = parser.parse_args(arguments)
    row = Row(options.row)
    try:
        _measure(row, options)
    except Exception as error:
        row.end(error, options.cache)
    else:
        row.end()


def _measure(row: Row, options: argparse.Namespace) -> None:
    network, folder = NETWORKS[options.network], options.cache / options.network
    with row.stage("convert"):
        content = fetch(network, options.cache, options.zoo)
        source = convert.source_file(network, content, folder)
    with row.stage("inputs"):
        calibration, judged = np.split(_examples(network, folder, options.cache), 2)
    if options.scheme == PEER:
        target = source.with_name(f"quantized{source.suffix}")
        floats, outputs = peer.measure(row, source, target, calibration, judged)
    else:
        with row.stage("load"):
            graph = tosajax.load(source)
        floats, outputs = ours.measure(
            row,
            graph,
            SCHEMES[options.scheme],
            calibration,
            judged,
            compared=options.arm,
            every_tensor=options.every_tensor,
        )
        with row.stage("source"):
            row.values["conversion"] = metrics.sqnrs(peer.run(source, judged), floats)
    if network.task is not None:
        row.values["task"] = network.task.measure(floats, outputs)


def _examples(network: Network, folder: Path, cache: Path) -> np.ndarray:
    """The inputs of a network, kept beside its files by their kind."""
    path = folder / f"{network.inputs}.npy"
    if not path.exists():
        np.save(path, inputs.make(network, cache))
    return np.load(path)


if __name__ == "__main__":
    sys.exit(main())
