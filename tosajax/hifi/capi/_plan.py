"""How a C function becomes a call of a kernel: operands in memory, and the numbers beside them.

What the library rejects is found before memory is read, so that it is -1 and no Python error.
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
from tosajax.hifi._memory import address_of, check_memory, elements
from tosajax.hifi.kernels._check import check

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Operand:
    """An array in memory, as a kernel reads or writes it.

    Args:
      argument: the pointer to it, by its name in C.
      memory: a NumPy array, or None for NULL; by_row a sequence of them, one for each element of
        the first axis.
      dtype: of its elements.
      shape: elements of each axis.
      strides: elements from one to the next of each axis; none for an array without gaps.
      count: elements that memory has to have, where these are more than those of the array.
      alignment: bytes that the library asks of the address; 0 for the size of an element.
      is_checked: whether the library looks at the pointer at all.
      by_row: whether `memory` is an array of pointers.
    """

    argument: str
    memory: Any
    dtype: type
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    count: int = 0
    alignment: int = 0
    is_checked: bool = True
    by_row: bool = False

    def check(self) -> None:
        """Finds what the library rejects in the pointer, and lengths that no array has."""
        if self.is_checked:
            is_list = self.by_row and self.memory is not None
            for pointer in self._pointers() if is_list else [self.memory]:
                alignment = self.alignment or np.dtype(self.dtype).itemsize
                check_pointer(self.argument, pointer, alignment)
        holds = all(length >= 1 for length in self.shape)
        check(holds, "", f"the shape of {self.argument}", self.shape, "at least 1 for each length")

    def views(self) -> list[np.ndarray]:
        """The array as it lies in memory; by_row, one array for each row.

        Raises:
          TypeError: memory that is not an array of this type.
          ValueError: memory that has fewer elements, or gaps.
        """
        if not self.by_row:
            return [self._view(self.memory, self.shape)]
        if len(self._pointers()) < self.shape[0]:
            found = f"{len(self._pointers())} pointers"
            raise ValueError(f"{self.argument} has {found}, expected {self.shape[0]}")
        return [self._view(row, self.shape[1:]) for row in self._pointers()]

    def writable_views(self) -> list[np.ndarray]:
        """`views`, and ValueError for memory that cannot be written."""
        views = self.views()
        if not all(view.flags.writeable for view in views):
            raise ValueError(f"{self.argument} is read-only memory")
        return views

    def read(self) -> np.ndarray:
        """The array itself."""
        views = self.views()
        return np.stack(views) if self.by_row else views[0]

    def _pointers(self) -> Sequence[Any]:
        """The pointers of an array of pointers, as many as are used."""
        if not self.by_row or self.memory is None:
            return ()
        if not isinstance(self.memory, list | tuple):
            found = type(self.memory).__name__
            raise TypeError(f"{self.argument} is {found}, expected a list of pointers")
        return self.memory[: max(self.shape[0], 0)]

    def _view(self, memory: Any, shape: tuple[int, ...]) -> np.ndarray:
        strides = _packed(shape) if self.strides is None else self.strides
        reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
        if min(reach) < 0:
            raise ValueError(f"{self.argument}: strides {strides} lead to before its memory")
        flat = elements(self.argument, memory, self.dtype, max(sum(reach) + 1, self.count))
        in_bytes = [stride * flat.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(flat, shape, in_bytes)


class Plan(NamedTuple):
    """What a kernel computes from memory.

    Args:
      arrays: operands by the kernel's names for them.
      out: what the result is written to.
      numbers: the kernel's keywords that vary from call to call; within a Quant, operands may
        stand for arrays of one number for each channel.
      static: the kernel's keywords by which it is compiled.
    """

    arrays: Mapping[str, Operand]
    out: Sequence[Operand]
    numbers: Mapping[str, Any] = _NONE
    static: Mapping[str, Any] = _NONE


def operand(a: Any, argument: str, dtype: type, shape: Sequence[int], **more: Any) -> Operand:
    """The operand of a pointer among the arguments of a call."""
    return Operand(argument, getattr(a, argument), dtype, tuple(shape), **more)


def given(**operands: Operand) -> dict[str, Operand]:
    """Those that are not NULL, of operands that may be."""
    return {name: found for name, found in operands.items() if found.memory is not None}


def check_pointer(argument: str, memory: Any, alignment: int) -> None:
    """Refuses NULL, addresses that are not a multiple of `alignment`, and what is not memory."""
    check_memory(argument, memory)
    address = address_of(memory)
    check(address != 0, "", argument, "NULL", "a pointer")
    found = f"{address % alignment} bytes off"
    check(address % alignment == 0, "", argument, found, f"aligned to {alignment} bytes")


def run(name: str, plan: Plan) -> None:
    """Computes what a library function computes, and writes it.

    Raises:
      NNLibParamError: what the library rejects.
      TypeError: memory of another type.
      ValueError: memory that is too small.
    """
    by_channel = [x for x in jax.tree.leaves(dict(plan.numbers)) if isinstance(x, Operand)]
    for found in (*plan.arrays.values(), *by_channel, *plan.out):
        found.check()
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
    """Has the kernel check its parameters, which it does where they are not traced."""
    arrays = {key: _like(shape, dtype) for key, shape, dtype in shapes}
    keywords = dict(numbers) | dict(static)
    jax.eval_shape(lambda arrays: kernels.library_function(name)(**arrays, **keywords), arrays)


@functools.cache
def _compiled(name: str, static: tuple[tuple[str, Any], ...]) -> Callable[..., jax.Array]:
    kernel = functools.partial(kernels.library_function(name), **dict(static))
    return jax.jit(lambda arrays, numbers: kernel(**arrays, **numbers))


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array without gaps."""
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
