"""The memory arguments of C functions: NumPy arrays, None for NULL, and pointers to structures.

The address of an array is the address of its elements. All other objects count as aligned, unless a
`Pointer` states a different address.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tosajax.hifi.errors import ErrorCode

# An argument that points to elements.
Memory: TypeAlias = np.ndarray | None
# The alignment in bytes that the library requires of memory, and of structures.
BUFFER = 8
STRUCT = 4
_ADDRESS = 16


@dataclasses.dataclass
class Pointer:
    """A C pointer to a structure; functions write to `target`.

    Args:
      target: a Shape, a configuration, a structure of pointers, or None before it is written.
      address: the structure's address; only its alignment has an effect.
    """

    target: Any = None
    address: int = _ADDRESS


class Layout(NamedTuple):
    """The layout of an array in memory whose rows may be padded.

    Args:
      shape: the array's shape.
      axes: the number of last axes that form a row.
      stride: elements from one row to the next.
    """

    shape: tuple[int, ...]
    axes: int
    stride: int

    @property
    def rows(self) -> int:
        return math.prod(self.shape[: -self.axes])

    @property
    def columns(self) -> int:
        return math.prod(self.shape[-self.axes :])

    def pack(self, array: Any) -> np.ndarray:
        """Copies the array to new memory, [rows, stride], with zeros as padding."""
        rows = np.asarray(array).reshape(self.rows, self.columns)
        return np.pad(rows, [(0, 0), (0, self.stride - self.columns)])

    def unpack(self, name: str, memory: Memory, dtype: type) -> np.ndarray:
        """Reads the array from memory, without its padding; errors as in `elements`."""
        why = ""
        if self.stride != self.columns:
            why = f"rows of {self.columns} elements are padded to {self.stride}"
        padded = elements(name, memory, dtype, self.rows * self.stride, why)
        return padded.reshape(self.rows, self.stride)[:, : self.columns].reshape(self.shape)


def address_of(x: object) -> int:
    """The address of an object; 0 for NULL."""
    if x is None:
        return 0
    return x.ctypes.data if isinstance(x, np.ndarray) else getattr(x, "address", _ADDRESS)


def check_pointers(*pointers: tuple[object, int]) -> ErrorCode:
    """Checks pairs of a pointer and its alignment, first for NULL, then for alignment."""
    addresses = [(address_of(x), alignment) for x, alignment in pointers]
    if any(address == 0 for address, _ in addresses):
        return ErrorCode.FATAL_MEM_ALLOC
    if any(address % alignment for address, alignment in addresses):
        return ErrorCode.FATAL_MEM_ALIGN
    return ErrorCode.NO_ERROR


def target_of(x: Any) -> Any:
    """The target of a Pointer; other objects are returned unchanged."""
    return x.target if isinstance(x, Pointer) else x


def pointer(name: str, x: object) -> Pointer:
    """Checks that an argument is a Pointer, to which a function can write; returns it.

    Raises:
      TypeError: the argument is not a Pointer.
    """
    if not isinstance(x, Pointer):
        raise TypeError(f"{name} is {_kind_of(x)}, expected a Pointer to write through")
    return x


def check_memory(name: str, memory: object) -> None:
    """Raises TypeError unless `memory` is NULL or a NumPy array."""
    if memory is not None and not isinstance(memory, np.ndarray):
        raise TypeError(f"{name} is {_kind_of(memory)}, expected a NumPy array")


def elements(
    name: str, memory: object, dtype: np.dtype | type, count: int, why: str = ""
) -> np.ndarray:
    """The first `count` elements of memory, as a flat view.

    Args:
      name: the argument's name.
      memory: a NumPy array.
      dtype: the element type.
      count: the number of elements that the C function accesses.
      why: the reason if `count` exceeds the array's size, such as padding, for the error.

    Raises:
      TypeError: the memory is not an array of this type.
      ValueError: the memory is not contiguous, or has too few elements.
    """
    if not isinstance(memory, np.ndarray) or memory.dtype != dtype:
        wanted = f"a NumPy array of {np.dtype(dtype)}"
        raise TypeError(f"{name} is {_kind_of(memory)}, expected {wanted}")
    if memory.size < count or not memory.flags.c_contiguous:
        described = f"{name} of shape {list(memory.shape)}"
        reason = f": {why}" if why else ""
        raise ValueError(f"{described} does not hold {count} elements without gaps{reason}")
    return memory.reshape(-1)[:count]


def _kind_of(x: object) -> str:
    return str(x.dtype) if isinstance(x, np.ndarray) else type(x).__name__
