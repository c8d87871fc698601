"""Prints how every network at hand compares with Arm's reference model.

    python tests/support/corpus_report.py [FOLDER ...]

Without folders: tests/data, and the corpus of third-party networks, if it lies beside the
repository. Columns:

- integer outputs must equal the reference; floats show their largest error in units of the last
  place (ulp) of the largest output, and the largest error of a single operator as a share of its
  bound in the specification.
- batch: 1, 7 and 64 examples in one call must have the bits of examples run one by one, integers
  and floats.

Exits 1 when a network fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import network_bounds
import networks
import numpy as np
from paths import CORPUS, DATA

import tosajax

_BATCHES = (1, 7, 64)
_FOLDERS = (DATA, CORPUS)


def main(arguments: list[str]) -> int:
    """Prints the table; returns the exit status."""
    folders = [Path(a) for a in arguments] or [f for f in _FOLDERS if f.is_dir()]
    print(f"{'network':<34}{'against reference':<24}{'operators':<18}batch 1, 7, 64")
    failed = 0
    for folder in folders:
        for network in networks.find(folder):
            good, columns = _row(network)
            failed += not good
            against, bound, batch = columns
            print(f"{network.name:<34}{against:<24}{bound:<18}{batch}", flush=True)
    print("all good" if not failed else f"{failed} networks fail")
    return 1 if failed else 0


def _row(network: networks.Network) -> tuple[bool, tuple[str, str, str]]:
    try:
        graph = tosajax.load(network.model)
    except tosajax.UnsupportedError as error:
        operator = str(error).partition("operator ")[2].split(" ")[0]
        return True, ("refused", "", f"{operator} is not of TOSA 1.0")
    tosajax.validate(graph).raise_errors()
    results = networks.run_each(network, graph)
    expected = networks.typed(network.expected, graph.output_tensors)
    compared = list(_compare(results, expected))
    share = _worst_share(network, graph)
    same_batches, batches = _batches(network, graph, results)
    good = all(ok for ok, _ in compared) and share <= 1 and same_batches
    bound = f"{share:.0%} of bound" if share else "exact"
    return good, (", ".join(text for _, text in compared), bound, batches)


def _compare(results: list[np.ndarray], expected: list[np.ndarray]) -> Iterator[tuple[bool, str]]:
    for result, want in zip(results, expected, strict=True):
        if _is_exact(want):
            wrong = int((result != want).sum())
            yield wrong == 0, f"{wrong} of {want.size} differ" if wrong else "equal"
        else:
            error = networks.ulps(result, want)
            yield error <= networks.FLOAT_LIMIT, f"{error:.2f} ulp"


def _worst_share(network: networks.Network, graph: tosajax.Graph) -> float:
    inputs = networks.typed(network.inputs, graph.input_tensors)
    return network_bounds.worst(graph, [a[0] for a in inputs])[0]


def _batches(
    network: networks.Network, graph: tosajax.Graph, results: list[np.ndarray]
) -> tuple[bool, str]:
    if not networks.carries_batch(graph):
        return True, "has none"
    for batch in _BATCHES:
        pick = np.arange(batch) % network.count
        for joined, alone in zip(networks.run_batch(network, graph, batch), results, strict=True):
            if joined.tobytes() != alone[pick].tobytes():
                return False, f"differ at {batch}"
    return True, "same bits"


def _is_exact(array: np.ndarray) -> bool:
    return array.dtype == np.bool_ or np.issubdtype(array.dtype, np.integer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
