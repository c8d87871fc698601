"""Contender: Arm's reference model, by the Python binding of tosa-tools.

The binding is as fast as the executable for many images in one call, and faster for one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import tosajax
from benchmarks.peers.quiet import silent
from benchmarks.work import Run, Work


def prepare(work: Work) -> Run:
    """The whole batch in one call; a graph of one example is called for each."""
    import tosa_reference_model

    graph = work.graph if work.is_side_by_side else work.whole_graph
    content = serialized(graph)
    if any(t.dtype is tosajax.DType.INT48 for t in graph.output_tensors):
        raise NotImplementedError("the binding returns no int48")
    kinds = [t.dtype.storage for t in graph.output_tensors]

    def call(inputs: list[np.ndarray]) -> list[np.ndarray]:
        outputs, status = tosa_reference_model.run(content, inputs)
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            raise RuntimeError(f"Arm's model ends with {status}")
        return [_widened(y, kind) for y, kind in zip(outputs, kinds, strict=True)]

    def run() -> tuple[np.ndarray, ...]:
        with silent():
            if not work.is_side_by_side:
                return tuple(call(list(work.inputs)))
            rows = [call([x[i : i + 1] for x in work.inputs]) for i in range(work.batch or 1)]
        return tuple(np.stack(column) for column in zip(*rows, strict=True))

    return run


def serialized(graph: tosajax.Graph) -> bytes:
    """The graph as a .tosa file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.tosa"
        tosajax.save(graph, path)
        return path.read_bytes()


def _widened(output: np.ndarray, kind: np.dtype) -> np.ndarray:
    return output if output.dtype == kind else output.astype(kind)
