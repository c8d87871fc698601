"""Stored tensors as a Program: arrays, .npy files, or .npz files with tensors by name."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tosajax.arguments.arrays import load_array, open_arrays
from tosajax.block_scaled import arrays_of, on_host
from tosajax.compare.program import Program
from tosajax.compare.scales import scales_in
from tosajax.dtypes import DType, holds_bits, to_storage
from tosajax.graph import Graph, Tensor
from tosajax.graph.locations import tensors_by_names
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.lowering.inputs import holds

PathLike = str | os.PathLike[str]
Stored = Mapping[str, Any] | PathLike | Sequence[PathLike]


class _Array(Protocol):
    """An array that is read sequentially."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, count: int) -> np.ndarray:
        """Reads the next `count` rows."""
        ...


class _Form(NamedTuple):
    """The layout and element type in which an array holds a tensor of each example.

    Args:
      dtype: the element type to compare as.
      moves_channels: whether channels come first in the array (they come last in the tensor).
      is_either: whether the sizes allow both layouts.
    """

    dtype: DType
    moves_channels: bool = False
    is_either: bool = False


# The arrays of a stored tensor: one, or elements and scales.
_Parts = Sequence[_Array]


class _Stored(NamedTuple):
    key: str
    parts: _Parts
    form: _Form


def of_stored(stored: Stored, graph: Graph, names: Sequence[str], count: int) -> Program:
    """The Program of stored tensors of a graph.

    Args:
      stored: tensors by name, or by a name in their location: a TFLite tensor, a node or a module
        of PyTorch, or the location as reports print it; or the path of an .npz file of such
        tensors; or paths of .npy files, for the outputs in order.
      graph: the graph for one example.
      names: tensors of the graph.
      count: the number of examples that the arrays hold, along their first axis. An example has
        the graph's shape, with or without dimensions of 1, or the same with channels first.

    Raises:
      ValueError: no array fits any tensor, or there is not one .npy file for each output.
    """
    arrays = _by_tensor(stored, graph)
    places, unsigned = tensors_by_names(graph), unsigned_tensors(graph)
    matched: dict[str, _Stored] = {}
    rest: list[str] = []
    for key, parts in arrays.items():
        candidates = _candidates(key, graph, places)
        fitting = (
            (name, form)
            for name, is_torch in candidates
            if name in names
            and name not in matched
            and (form := _form(parts, graph.tensors[name], count, name in unsigned, is_torch))
        )
        name, form = next(fitting, ("", None))
        if form is not None:
            matched[name] = _Stored(key, parts, form)
        else:
            why = "has another form" if candidates else "names nothing here"
            rest.append(f"{_described(key, parts)} {why}")
    if not matched:
        raise ValueError(_no_match_message(arrays, graph, count))
    tensors = {n: Tensor(n, own.form.dtype, graph.tensors[n].shape) for n, own in matched.items()}

    def run(rows: Sequence[Any]) -> dict[str, Any]:
        size = rows[0].shape[0] if rows else 1
        return {n: _read_examples(own, tensors[n], size, count) for n, own in matched.items()}

    called = {name: own.key for name, own in matched.items()}
    return Program(
        graph,
        tensors,
        run,
        scales_in(graph),
        called,
        _unused_message(rest),
        _layouts(matched),
    )


def _candidates(
    key: str, graph: Graph, places: Sequence[Mapping[str, list[str]]]
) -> list[tuple[str, bool]]:
    """The tensors that a key may name, most likely first, each with whether PyTorch named it."""
    if key in graph.tensors:
        return [(key, False)]
    by_tflite, *by_torch = (list(reversed(place.get(key, ()))) for place in places)
    return [*((n, False) for n in by_tflite), *((n, True) for own in by_torch for n in own)]


def _unused_message(texts: Sequence[str]) -> str:
    """A message on the first three stored arrays that were not used, and why."""
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return f"not used: {', '.join(texts[:3])}{more}" if texts else ""


def _layouts(matched: Mapping[str, _Stored]) -> str:
    moved = [own.key for own in matched.values() if own.form.moves_channels]
    either = [own.key for own in matched.values() if own.form.is_either]
    if not moved:
        return ""
    text = f"channels first, as in NCHW: {', '.join(moved[:5])}{', ...' if moved[5:] else ''}"
    both = f" (by its sizes {either[0]} may have them last as well)" if either else ""
    return f"{text}{both}"


def _read_examples(stored: _Stored, tensor: Tensor, size: int, count: int) -> Any:
    """Reads the next `size` of `count` examples."""
    arrays = [part.read(size * (part.shape[0] // count)) for part in stored.parts]
    if len(arrays) > 1:
        types = tensor.dtype.parts(tensor.shape or ())
        whole = tensor.dtype.join(x.view(t.dtype) for x, t in zip(arrays, types, strict=True))
        return whole.reshape((size, *(tensor.shape or ())))
    (values,) = arrays
    if holds(values.dtype, tensor.dtype, is_unsigned=True, in_files=True):  # see `_form`
        values = values.view(tensor.dtype.storage)
    shape = tensor.shape or ()
    if stored.form.moves_channels:
        values = np.moveaxis(values.reshape(size, *_channels_first(shape)), 2, -1)
    return to_storage(np.ascontiguousarray(values), tensor.dtype).reshape(size, *shape)


def _form(
    parts: _Parts, tensor: Tensor, count: int, is_unsigned: bool, is_torch: bool
) -> _Form | None:
    """The form in which arrays hold the tensor, or None if they do not fit."""
    dtype = _dtype(parts, tensor, is_unsigned)
    if dtype is None:
        return None
    shape = tensor.shape or ()
    if len(parts) > 1:
        types = zip(parts, tensor.dtype.parts(shape), strict=True)
        return _Form(dtype) if all(_has_shape(x.shape, t.shape, count) for x, t in types) else None
    (array,) = parts
    is_in_order = _has_shape(array.shape, shape, count)
    matters = len(shape) in (4, 5) and shape[-1:] != (1,) and math.prod(shape[1:-1]) > 1
    is_first = matters and _has_shape(array.shape, _channels_first(shape), count)
    if is_first and (is_torch or not is_in_order):
        return _Form(dtype, True, is_in_order)
    return _Form(dtype) if is_in_order else None


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], shape[-1], *shape[1:-1])


def _has_shape(stored: tuple[int, ...], shape: tuple[int, ...], count: int) -> bool:
    """Whether an array has the shape of `count` examples, ignoring dimensions of 1."""
    joined = (count * shape[0], *shape[1:]) if shape else (count,)
    return stored == joined or (
        stored[:1] == (count,) and _without_ones(stored[1:]) == _without_ones(shape)
    )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _dtype(parts: _Parts, tensor: Tensor, is_unsigned: bool) -> DType | None:
    """The element type to compare as, or None if the arrays cannot hold the tensor."""
    array, *scales = parts
    if scales:
        return tensor.dtype if _hold_blocks(parts, tensor) else None
    if holds(array.dtype, tensor.dtype, is_unsigned=is_unsigned, in_files=True):
        return tensor.dtype
    if array.dtype.kind == "f":
        return DType.FP16 if array.dtype.itemsize == 2 else DType.FP32
    # PyTorch and NumPy use int64 for integers of any range.
    return tensor.dtype if array.dtype == np.int64 and tensor.dtype.is_integer else None


def _hold_blocks(parts: _Parts, tensor: Tensor) -> bool:
    if tensor.dtype.block is None:
        return False
    pairs = zip(parts, tensor.dtype.parts(tensor.shape or ()), strict=True)
    return all(x.dtype == t.dtype or holds_bits(x.dtype, t.dtype) for x, t in pairs)


def _described(key: str, parts: _Parts) -> str:
    return f"{key} {parts[0].dtype} {parts[0].shape}"


def _no_match_message(arrays: Mapping[str, _Parts], graph: Graph, count: int) -> str:
    described = ", ".join(_described(*each) for each in list(arrays.items())[:3])
    wanted = ", ".join(f"{t.name} {t}" for t in graph.output_tensors[:3])
    return f"no stored array ({described}) fits the graph's for {count} examples ({wanted})"


def _by_tensor(stored: Stored, graph: Graph) -> dict[str, _Parts]:
    """The arrays of each stored tensor, by its key."""
    if isinstance(stored, Mapping):
        return {key: [*map(_InMemory, arrays_of(on_host(x)))] for key, x in stored.items()}
    arrays = _in_files(stored, graph)
    whole: dict[str, _Parts] = {}
    for tensor in graph.tensors.values():
        names = tensor.dtype.names(tensor.name)
        if len(names) > 1 and arrays.keys() >= {*names}:
            whole[tensor.name] = [arrays.pop(name) for name in names]
    return {**whole, **{key: [array] for key, array in arrays.items()}}


def _in_files(stored: PathLike | Sequence[PathLike], graph: Graph) -> dict[str, _Array]:
    paths = [stored] if isinstance(stored, str | os.PathLike) else list(stored)
    if len(paths) == 1 and Path(paths[0]).suffix == ".npz":
        return dict(open_arrays(paths[0]))
    if len(paths) != len(graph.outputs):
        names = ", ".join(graph.outputs)
        raise ValueError(f"{len(paths)} .npy files, the graph has {len(graph.outputs)} ({names})")
    arrays = [load_array(path, mapped=True) for path in paths]
    return {name: _InMemory(x) for name, x in zip(graph.outputs, arrays, strict=True)}


class _InMemory:
    """Reads an array in memory, or a memory-mapped one, sequentially."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self._read = array, 0
        self.shape, self.dtype = array.shape, array.dtype

    def read(self, count: int) -> np.ndarray:
        self._read += count
        return np.ascontiguousarray(self._array[self._read - count : self._read])
