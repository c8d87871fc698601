"""Converts a call of a C function to a call of a kernel: operands in memory, and numbers.

Arguments that the library rejects are detected before memory is read, so that they give -1 and not
a Python error.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from tosajax.fixedpoint import _x64
from tosajax.hifi import kernels
from tosajax.hifi.capi.memory import address_of, check_memory, elements
from tosajax.hifi.kernels._check import check

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Operand:
    """An array in memory that a kernel reads or writes.

    Args:
      argument: the name of the pointer argument in C.
      memory: a NumPy array, or None for NULL; with by_row a list or tuple of them.
      dtype: the element type.
      shape: elements along each axis.
      strides: the stride of each axis in elements; None for a contiguous array.
      count: the number of elements that memory must have, if more than the array spans.
      padding: a description of the padding in memory, for errors; "" without padding.
      alignment: the required alignment of the address in bytes; 0 for the size of an element.
      is_checked: whether the library checks the pointer.
      by_row: whether `memory` is an array of pointers, one for each index of the first axis.
    """

    argument: str
    memory: object
    dtype: type
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    count: int = 0
    padding: str = ""
    alignment: int = 0
    is_checked: bool = True
    by_row: bool = False

    def check(self) -> None:
        """Raises NNLibParamError for pointers that the library rejects, and lengths below 1."""
        if self.is_checked:
            is_list = self.by_row and self.memory is not None
            for pointer in self._pointers() if is_list else [self.memory]:
                alignment = self.alignment or np.dtype(self.dtype).itemsize
                check_pointer(self.argument, pointer, alignment)
        holds = all(length >= 1 for length in self.shape)
        check(holds, "", f"the shape of {self.argument}", self.shape, "at least 1 for each length")

    def views(self) -> list[np.ndarray]:
        """The array as a view of its memory; with by_row one view for each row.

        Raises:
          TypeError: the memory is not an array of this type.
          ValueError: the memory has too few elements, or is not contiguous.
        """
        if not self.by_row:
            return [self._view(self.memory, self.shape)]
        if len(self._pointers()) < self.shape[0]:
            count = f"{len(self._pointers())} pointers"
            raise ValueError(f"{self.argument} has {count}, expected {self.shape[0]}")
        return [self._view(row, self.shape[1:]) for row in self._pointers()]

    def writable_views(self) -> list[np.ndarray]:
        """Returns `views`, after checking that they are writable; ValueError if not."""
        views = self.views()
        if not all(view.flags.writeable for view in views):
            raise ValueError(f"{self.argument} is read-only memory")
        return views

    def read(self) -> np.ndarray:
        """The array as a view of its memory; with by_row a copy of the rows."""
        views = self.views()
        return np.stack(views) if self.by_row else views[0]

    def _pointers(self) -> Sequence[object]:
        """The used pointers of an array of pointers; () without by_row."""
        if not self.by_row or self.memory is None:
            return ()
        if not isinstance(self.memory, list | tuple):
            kind = type(self.memory).__name__
            raise TypeError(f"{self.argument} is {kind}, expected a list of pointers")
        return self.memory[: max(self.shape[0], 0)]

    def _view(self, memory: object, shape: tuple[int, ...]) -> np.ndarray:
        strides = _packed(shape) if self.strides is None else self.strides
        reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
        if min(reach) < 0:
            raise ValueError(f"{self.argument}: strides {strides} lead to before its memory")
        why = self.padding
        if not why and strides != _packed(shape):
            why = f"shape {list(shape)} has strides {list(strides)}"
        count = max(sum(reach) + 1, self.count)
        flat = elements(self.argument, memory, self.dtype, count, why)
        in_bytes = [stride * flat.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(flat, shape, in_bytes)


class Plan(NamedTuple):
    """A call of a kernel on memory.

    Args:
      arrays: the input operands, by the kernel's argument names.
      out: the operands to which the result is written.
      numbers: the kernel's traced keywords, which may vary without recompilation; within a Quant,
        an Operand is an array with one number for each channel.
      static: the kernel's static keywords.
    """

    arrays: Mapping[str, Operand]
    out: Sequence[Operand]
    numbers: Mapping[str, Any] = _NONE
    static: Mapping[str, Any] = _NONE


def operand(a: object, argument: str, dtype: type, shape: Sequence[int], **more: Any) -> Operand:
    """Makes the operand of the pointer `argument` of a call."""
    return Operand(argument, getattr(a, argument), dtype, tuple(shape), **more)


def given(**operands: Operand) -> dict[str, Operand]:
    """Returns the operands that are not NULL."""
    return {name: operand for name, operand in operands.items() if operand.memory is not None}


def check_pointer(argument: str, memory: object, alignment: int) -> None:
    """Checks a pointer: NNLibParamError if NULL or misaligned, TypeError if not memory."""
    check_memory(argument, memory)
    address = address_of(memory)
    check(address != 0, "", argument, "NULL", "a pointer")
    offset = f"{address % alignment} bytes off"
    check(address % alignment == 0, "", argument, offset, f"aligned to {alignment} bytes")


def run(name: str, plan: Plan) -> None:
    """Runs the kernel of a library function, and writes its result.

    Raises:
      NNLibParamError: the library rejects an argument.
      TypeError: memory has the wrong type.
      ValueError: memory is too small.
    """
    by_channel = [x for x in jax.tree.leaves(dict(plan.numbers)) if isinstance(x, Operand)]
    for operand in (*plan.arrays.values(), *by_channel, *plan.out):
        operand.check()
    numbers = jax.tree.map(_read_operand, dict(plan.numbers))
    static = tuple(plan.static.items())
    shapes = tuple((key, x.shape, x.dtype) for key, x in plan.arrays.items())
    _check_parameters(name, shapes, tuple(jax.tree.map(_hashable, numbers).items()), static)
    arrays = {key: _on_device(x.read()) for key, x in plan.arrays.items()}
    targets = [x.writable_views() for x in plan.out]
    result = np.asarray(_compiled(name, static)(arrays, numbers))
    for views in targets:
        parts = [result] if len(views) == 1 else result
        for view, part in zip(views, parts, strict=True):
            view[...] = part.reshape(view.shape)


@functools.lru_cache(maxsize=4096)
def _check_parameters(
    name: str,
    shapes: tuple[tuple[str, tuple[int, ...], type], ...],
    numbers: tuple[tuple[str, Any], ...],
    static: tuple[tuple[str, Any], ...],
) -> None:
    """Makes the kernel check its parameters, which it does only for untraced ones."""
    arrays = {key: _like(shape, dtype) for key, shape, dtype in shapes}
    keywords = dict(numbers) | dict(static)
    jax.eval_shape(lambda arrays: kernels.library_function(name)(**arrays, **keywords), arrays)


@functools.cache
def _compiled(name: str, static: tuple[tuple[str, Any], ...]) -> Callable[..., jax.Array]:
    kernel = functools.partial(kernels.library_function(name), **dict(static))
    return jax.jit(lambda arrays, numbers: kernel(**arrays, **numbers))


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _read_operand(x: Any) -> Any:
    return x.read() if isinstance(x, Operand) else x


def _hashable(x: Any) -> Any:
    return tuple(x.tolist()) if isinstance(x, np.ndarray) else x


def _on_device(x: np.ndarray) -> Any:
    # JAX would narrow int64 silently.
    return _x64.from_numpy(x) if x.dtype == np.int64 else x


def _like(shape: tuple[int, ...], dtype: type) -> Any:
    if dtype is np.int64:
        return _x64.from_numpy(np.zeros(shape, np.int64))
    return jax.ShapeDtypeStruct(shape, dtype)
