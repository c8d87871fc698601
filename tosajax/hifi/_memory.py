"""Memory as C functions see it: None is NULL, a NumPy array is where its elements are.

Everything else is where a compiler would put it, unless a `Pointer` says otherwise.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

_ADDRESS = 16


@dataclasses.dataclass
class Pointer:
    """A C pointer to a structure: what functions write goes to `target`.

    Args:
      target: a Shape, a configuration, a structure of pointers, or None: what is to be written.
      address: of the structure; only its alignment is of effect.
    """

    target: Any = None
    address: int = _ADDRESS


def address_of(x: Any) -> int:
    """Where something is; 0 for NULL."""
    if x is None:
        return 0
    return x.ctypes.data if isinstance(x, np.ndarray) else getattr(x, "address", _ADDRESS)


def target_of(x: Any) -> Any:
    """What a pointer points to, or the structure itself."""
    return x.target if isinstance(x, Pointer) else x


def pointer(name: str, x: Any) -> Pointer:
    """The pointer through which a function writes.

    Raises:
      TypeError: what nothing can be written through.
    """
    if not isinstance(x, Pointer):
        raise TypeError(f"{name} is {_kind_of(x)}, expected a Pointer to write through")
    return x


def check_memory(name: str, memory: Any) -> None:
    """Raises TypeError for what is neither NULL nor a NumPy array."""
    if memory is not None and not isinstance(memory, np.ndarray):
        raise TypeError(f"{name} is {_kind_of(memory)}, expected a NumPy array")


def elements(name: str, memory: Any, dtype: np.dtype | type, count: int) -> np.ndarray:
    """The first elements of memory, to be read and written.

    Raises:
      TypeError: memory that is not an array of this type.
      ValueError: memory that has fewer elements, which C would read or write beyond, or gaps.
    """
    if not isinstance(memory, np.ndarray) or memory.dtype != dtype:
        wanted = f"a NumPy array of {np.dtype(dtype)}"
        raise TypeError(f"{name} is {_kind_of(memory)}, expected {wanted}")
    if memory.size < count or not memory.flags.c_contiguous:
        found = f"{name} of shape {list(memory.shape)}"
        raise ValueError(f"{found} does not hold {count} elements without gaps")
    return memory.reshape(-1)[:count]


def _kind_of(memory: Any) -> str:
    return str(memory.dtype) if isinstance(memory, np.ndarray) else type(memory).__name__
