"""Outputs that were stored: arrays, .npy files, or .npz files with tensors by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from tosajax.arguments.arrays import load_array, open_arrays
from tosajax.compare.measure import Side
from tosajax.compare.scales import Integers, scales_in
from tosajax.dtypes import DType, to_storage
from tosajax.graph import Graph, Tensor
from tosajax.graph.locations import tensors_at
from tosajax.runtime.dataset import holds

PathLike = str | os.PathLike[str]
Stored = Mapping[str, np.ndarray] | PathLike | Sequence[PathLike]


class _Array(Protocol):
    """An array that is read from its start to its end."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, count: int) -> np.ndarray:
        """The next `count` of its first axis."""
        ...


class OfStored:
    """Stored tensors of a graph, for as many examples as are to be compared.

    Args:
      stored: tensors by name, or by the name that their location holds; or the path of an .npz
        file of such; or paths of .npy files, for the outputs in order.
      graph: of one example.
      names: tensors of it.
      count: examples that the arrays hold, on their first axis; each may be as in the graph, or
        without its first dimension of 1.

    Raises:
      ValueError: there is no array for any tensor, or an output's has another shape or type.
    """

    def __init__(self, stored: Stored, graph: Graph, names: Sequence[str], count: int) -> None:
        arrays = _named(stored, graph)
        self._arrays: dict[str, _Array] = {}
        self._count = count
        self.tensors: dict[str, Tensor] = {}
        self.inputs = graph.input_tensors
        self.integers = Integers(graph)
        self.scales = scales_in(graph.quantization)
        located = tensors_at(graph)
        for key, array in arrays.items():
            own = [key] if key in graph.tensors else located.get(key, [])
            for name in reversed(own):
                dtype = self._fitting(array, graph.tensors[name])
                if name in names and dtype is not None:
                    self._arrays[name] = array
                    self.tensors[name] = Tensor(name, dtype, graph.tensors[name].shape)
                    break
        if not self.tensors:
            raise ValueError(_nothing(arrays, graph, count))

    def side(self, name: str, scale: tuple[float, int] | None) -> Side:
        """How to compare the tensor; see `Program.side`."""
        return self.integers.side(self.tensors[name], name, scale)

    def __call__(self, rows: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        size = len(rows[0]) if rows else 1
        return {name: self._next(name, array, size) for name, array in self._arrays.items()}

    def _next(self, name: str, array: _Array, size: int) -> np.ndarray:
        tensor = self.tensors[name]
        values = array.read(size * (array.shape[0] // self._count))
        if holds(values.dtype, tensor.dtype):
            values = values.view(tensor.dtype.storage)
        return to_storage(values, tensor.dtype).reshape(size, *(tensor.shape or ()))

    def _fitting(self, array: _Array, tensor: Tensor) -> DType | None:
        """The element type to compare as, or None where the array is none of the tensor."""
        shape = tensor.shape or ()
        forms = [(self._count, *shape)]
        if shape:
            forms.append((self._count * shape[0], *shape[1:]))
        if array.shape not in forms:
            return None
        if holds(array.dtype, tensor.dtype):
            return tensor.dtype
        if array.dtype.kind == "f":
            return DType.FP16 if array.dtype.itemsize == 2 else DType.FP32
        # The type that PyTorch and NumPy give integers of any range.
        return tensor.dtype if array.dtype == np.int64 and tensor.dtype.is_integer else None


def _nothing(arrays: Mapping[str, _Array], graph: Graph, count: int) -> str:
    found = ", ".join(f"{k} {a.dtype} {a.shape}" for k, a in list(arrays.items())[:3])
    wanted = ", ".join(f"{t.name} {t}" for t in graph.output_tensors[:3])
    return f"the stored arrays ({found}) are none of the graph's for {count} examples ({wanted})"


def _named(stored: Stored, graph: Graph) -> dict[str, _Array]:
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
