"""Memory of C functions: None is NULL, the address of a NumPy array is that of its elements.

All other objects have an aligned address, unless a `Pointer` gives another one.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tosajax.hifi.errors import ErrorCode

# An argument of C that points to elements.
Memory: TypeAlias = np.ndarray | None
# Bytes that the library asks of the addresses of memory, and of structures.
BUFFER = 8
STRUCT = 4
_ADDRESS = 16


@dataclasses.dataclass
class Pointer:
    """A C pointer to a structure; functions write to `target`.

    Args:
      target: a Shape, a configuration, a structure of pointers, or None before it is written.
      address: of the structure; only its alignment has an effect.
    """

    target: Any = None
    address: int = _ADDRESS


class Layout(NamedTuple):
    """An array in memory whose rows may be padded.

    Args:
      shape: of the array.
      axes: how many of the last axes form a row.
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
        """The array in memory of its own, [rows, stride], with zeros between the rows."""
        rows = np.asarray(array).reshape(self.rows, self.columns)
        return np.pad(rows, [(0, 0), (0, self.stride - self.columns)])

    def unpack(self, name: str, memory: Memory, dtype: type) -> np.ndarray:
        """The array without its padding; errors as in `elements`."""
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
    """Checks pointers, each with its alignment: first all for NULL, then all for alignment."""
    addresses = [(address_of(x), alignment) for x, alignment in pointers]
    if any(address == 0 for address, _ in addresses):
        return ErrorCode.FATAL_MEM_ALLOC
    if any(address % alignment for address, alignment in addresses):
        return ErrorCode.FATAL_MEM_ALIGN
    return ErrorCode.NO_ERROR


def target_of(x: Any) -> Any:
    """The target of a Pointer; any other object itself."""
    return x.target if isinstance(x, Pointer) else x


def pointer(name: str, x: object) -> Pointer:
    """The Pointer through which a function writes.

    Raises:
      TypeError: an object of another class.
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
    """The first elements of memory, to be read and written.

    Args:
      name: of the argument.
      memory: a NumPy array.
      dtype: of its elements.
      count: elements that are needed.
      why: more of them than the array has that lies there, for the error.

    Raises:
      TypeError: memory that is not an array of this type.
      ValueError: memory with gaps, or with fewer elements: C would read or write beyond it.
    """
    if not isinstance(memory, np.ndarray) or memory.dtype != dtype:
        wanted = f"a NumPy array of {np.dtype(dtype)}"
        raise TypeError(f"{name} is {_kind_of(memory)}, expected {wanted}")
    if memory.size < count or not memory.flags.c_contiguous:
        found = f"{name} of shape {list(memory.shape)}"
        reason = f": {why}" if why else ""
        raise ValueError(f"{found} does not hold {count} elements without gaps{reason}")
    return memory.reshape(-1)[:count]


def _kind_of(x: object) -> str:
    return str(x.dtype) if isinstance(x, np.ndarray) else type(x).__name__
