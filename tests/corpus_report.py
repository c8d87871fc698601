"""Prints how every network at hand compares with Arm's reference model.

    python tests/corpus_report.py [FOLDER ...]

Without folders: tests/data, and the corpus of third-party networks where it lies beside the
repository. Integers must be equal; floats show their largest error in units of the last place of
the largest output. "batch" runs 1, 7 and 64 examples in one call and compares bits with the
examples run one by one. Exits 1 when a network fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import networks
import numpy as np

import tosajax

BATCHES = (1, 7, 64)
# Whole float networks add up the rounding of all their layers, ours and the reference's.
FLOAT_LIMIT = 64.0
_REPOSITORY = Path(__file__).resolve().parents[1]
_FOLDERS = (_REPOSITORY / "tests" / "data", _REPOSITORY.parent / "shared" / "corpus")


def main(arguments: list[str]) -> int:
    """Prints the table; returns the exit status."""
    folders = [Path(a) for a in arguments] or [f for f in _FOLDERS if f.is_dir()]
    print(f"{'network':<34}{'outputs against reference':<34}{'batch 1, 7, 64':<16}")
    failed = 0
    for folder in folders:
        for network in networks.find(folder):
            good, columns = _row(network)
            failed += not good
            print(f"{network.name:<34}{columns[0]:<34}{columns[1]:<16}", flush=True)
    print("all good" if not failed else f"{failed} networks fail")
    return 1 if failed else 0


def _row(network: networks.Network) -> tuple[bool, tuple[str, str]]:
    try:
        graph = tosajax.load(network.model)
    except tosajax.UnsupportedError as error:
        operator = str(error).partition("operator ")[2].split(" ")[0]
        return True, (f"refused: {operator} is not of TOSA 1.0", "")
    tosajax.validate(graph).raise_errors()
    results = networks.run_each(network, graph)
    expected = networks.typed(network.expected, graph.output_tensors)
    compared = list(_compare(results, expected))
    same = _same_in_batches(network, graph, results)
    good = all(ok for ok, _ in compared) and same in ("same bits", "no batch")
    return good, (", ".join(text for _, text in compared), same)


def _compare(results: list[np.ndarray], expected: list[np.ndarray]) -> Iterator[tuple[bool, str]]:
    for result, want in zip(results, expected, strict=True):
        if np.issubdtype(want.dtype, np.integer) or want.dtype == np.bool_:
            wrong = int((result != want).sum())
            yield wrong == 0, f"{wrong} of {want.size} differ" if wrong else "equal"
        else:
            error = networks.ulps(result, want)
            yield error <= FLOAT_LIMIT, f"{error:.2f} ulp"


def _same_in_batches(
    network: networks.Network, graph: tosajax.Graph, results: list[np.ndarray]
) -> str:
    if not networks.carries_batch(graph):
        return "no batch"
    for batch in BATCHES:
        pick = np.arange(batch) % network.count
        for joined, alone in zip(networks.run_batch(network, graph, batch), results, strict=True):
            if joined.tobytes() != alone[pick].tobytes():
                return f"differs at {batch}"
    return "same bits"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
