"""Networks with their inputs and Arm's outputs, and the comparison with ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tosajax
from tosajax import Graph
from tosajax.dtypes import DType

# In units of the last place of the largest output. Both networks add up the rounding of all their
# layers; single operators have bounds of their own.
FLOAT_LIMIT = 64.0


@dataclasses.dataclass(frozen=True)
class Network:
    """A model file; `inputs` and `expected` hold one example on each row of the first axis."""

    name: str
    model: Path
    inputs: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]

    @property
    def count(self) -> int:
        return len(self.inputs[0])


def find(folder: Path) -> list[Network]:
    """All networks below a folder: <name>/model.tosa with .npy files, or x.tosa with x.npz."""
    return sorted((*_folders(folder), *_archives(folder)), key=lambda n: n.name)


def typed(arrays: tuple[np.ndarray, ...], tensors: tuple[tosajax.Tensor, ...]) -> list[np.ndarray]:
    """Arrays in the storage types of tensors; bf16 comes as uint16 bit patterns."""
    return [
        a.view(t.dtype.storage) if t.dtype is DType.BF16 else a
        for a, t in zip(arrays, tensors, strict=True)
    ]


def run_each(network: Network, graph: Graph) -> list[np.ndarray]:
    """The outputs of every example, each run by itself."""
    inputs = typed(network.inputs, graph.input_tensors)
    run = tosajax.compile(graph)
    rows = [run(*(a[i] for a in inputs)) for i in range(network.count)]
    return [np.stack([np.asarray(y) for y in column]) for column in zip(*rows, strict=True)]


def run_batch(network: Network, graph: Graph, batch: int) -> list[np.ndarray]:
    """The outputs of `batch` examples in one call; the network's examples repeat."""
    pick = np.arange(batch) % network.count
    inputs = [
        a[pick].reshape(batch, *t.shape[1:]) if t.shape and t.shape[0] == 1 else a[0]
        for a, t in zip(
            typed(network.inputs, graph.input_tensors), graph.input_tensors, strict=True
        )
    ]
    outputs = tosajax.compile(graph, batch=batch)(*inputs)
    return [
        np.asarray(y).reshape(batch, *(t.shape or ()))
        for y, t in zip(outputs, graph.output_tensors, strict=True)
    ]


def carries_batch(graph: Graph) -> bool:
    return any(t.shape and t.shape[0] == 1 for t in graph.input_tensors)


def ulps(result: np.ndarray, expected: np.ndarray) -> float:
    """The largest error in units of the last place of the largest expected value."""
    precision = {"float32": 23, "float16": 10, "bfloat16": 7}[expected.dtype.name]
    wide, want = result.astype(np.float64), expected.astype(np.float64)
    peak = np.abs(want).max()
    unit = 2.0 ** (np.floor(np.log2(peak)) - precision) if peak else 1.0
    return float(np.abs(wide - want).max() / unit)


def _folders(root: Path) -> Iterator[Network]:
    for model in root.glob("*/model.tosa"):
        inputs, expected = (
            tuple(np.load(p) for p in sorted(model.parent.glob(pattern)))
            for pattern in ("inputs_*.npy", "expected_ref_*.npy")
        )
        yield Network(model.parent.name, model, inputs, expected)


def _archives(root: Path) -> Iterator[Network]:
    for archive in root.glob("*/*.npz"):
        model = archive.with_suffix(".tosa")
        if model.exists():
            arrays = dict(np.load(archive))
            inputs, expected = (
                tuple(arrays[k][None] for k in sorted(arrays) if k.startswith(prefix))
                for prefix in ("input_", "expected_ref_")
            )
            yield Network(f"{archive.parent.name}/{archive.stem}", model, inputs, expected)
