"""Outputs that were stored: arrays, .npy files, or .npz files with tensors by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from tosajax.arguments.arrays import load_array, open_arrays
from tosajax.compare.program import Program
from tosajax.compare.scales import scales_in
from tosajax.dtypes import DType, to_storage
from tosajax.graph import Graph, Tensor
from tosajax.graph.locations import tensors_at
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.lowering.inputs import holds

PathLike = str | os.PathLike[str]
Stored = Mapping[str, np.ndarray] | PathLike | Sequence[PathLike]


class _Array(Protocol):
    """An array, read from its start to its end."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, count: int) -> np.ndarray:
        """The next `count` rows."""
        ...


def of_stored(stored: Stored, graph: Graph, names: Sequence[str], count: int) -> Program:
    """Stored tensors of a graph, for as many examples as there are to compare.

    Args:
      stored: tensors by name, or by the name that their location holds; or the path of an .npz
        file of such tensors; or paths of .npy files, for the outputs in order.
      graph: of one example.
      names: tensors of it.
      count: examples that the arrays hold, on their first axis; each may have the graph's shape,
        or lack its first dimension of 1.

    Raises:
      ValueError: there is no array for any tensor, or an output's has another shape or type.
    """
    arrays = _arrays(stored, graph)
    tensors: dict[str, Tensor] = {}
    found: dict[str, _Array] = {}
    located, unsigned = tensors_at(graph), unsigned_tensors(graph)
    for key, array in arrays.items():
        for name in [key] if key in graph.tensors else reversed(located.get(key, [])):
            dtype = _fitting(array, graph.tensors[name], count, is_unsigned=name in unsigned)
            if name in names and dtype is not None:
                found[name] = array
                tensors[name] = Tensor(name, dtype, graph.tensors[name].shape)
                break
    if not tensors:
        raise ValueError(_nothing(arrays, graph, count))

    def run(rows: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        size = len(rows[0]) if rows else 1
        return {n: _next(array, tensors[n], size, count) for n, array in found.items()}

    return Program(graph, tensors, run, scales_in(graph.quantization))


def _next(array: _Array, tensor: Tensor, size: int, count: int) -> np.ndarray:
    """The next `size` of `count` examples."""
    values = array.read(size * (array.shape[0] // count))
    if holds(values.dtype, tensor.dtype, is_unsigned=True, in_files=True):  # as `_fitting` found
        values = values.view(tensor.dtype.storage)
    return to_storage(values, tensor.dtype).reshape(size, *(tensor.shape or ()))


def _fitting(array: _Array, tensor: Tensor, count: int, *, is_unsigned: bool) -> DType | None:
    """The element type to compare as, or None where the array is not one of the tensor."""
    shape = tensor.shape or ()
    forms = [(count, *shape)]
    if shape:
        forms.append((count * shape[0], *shape[1:]))
    if array.shape not in forms:
        return None
    if holds(array.dtype, tensor.dtype, is_unsigned=is_unsigned, in_files=True):
        return tensor.dtype
    if array.dtype.kind == "f":
        return DType.FP16 if array.dtype.itemsize == 2 else DType.FP32
    # PyTorch and NumPy give integers this type, whatever their range.
    return tensor.dtype if array.dtype == np.int64 and tensor.dtype.is_integer else None


def _nothing(arrays: Mapping[str, _Array], graph: Graph, count: int) -> str:
    found = ", ".join(f"{k} {a.dtype} {a.shape}" for k, a in list(arrays.items())[:3])
    wanted = ", ".join(f"{t.name} {t}" for t in graph.output_tensors[:3])
    return f"no stored array ({found}) fits the graph's for {count} examples ({wanted})"


def _arrays(stored: Stored, graph: Graph) -> dict[str, _Array]:
    if isinstance(stored, Mapping):
        return {name: _InMemory(np.asarray(x)) for name, x in stored.items()}
    paths = [stored] if isinstance(stored, str | os.PathLike) else list(stored)
    if len(paths) == 1 and Path(paths[0]).suffix == ".npz":
        return dict(open_arrays(paths[0]))
    if len(paths) != len(graph.outputs):
        names = ", ".join(graph.outputs)
        raise ValueError(f"{len(paths)} .npy files, the graph has {len(graph.outputs)} ({names})")
    arrays = [load_array(path, mapped=True) for path in paths]
    return {name: _InMemory(x) for name, x in zip(graph.outputs, arrays, strict=True)}


class _InMemory:
    """An array in memory, or mapped to it."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self._read = array, 0
        self.shape, self.dtype = array.shape, array.dtype

    def read(self, count: int) -> np.ndarray:
        self._read += count
        return np.ascontiguousarray(self._array[self._read - count : self._read])
