"""Value: an array of the traced function, as a tensor of the graph or as a constant."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import ml_dtypes
import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Tensor

# The element types of arrays that TOSA has. JAX has a type of its own for int4. An int64 array is
# an int48 tensor, which only operators of tosajax make.
TOSA_TYPES: dict[np.dtype, DType] = {
    np.dtype(ml_dtypes.int4) if dtype is DType.INT4 else dtype.storage: dtype
    for dtype in DType
    if dtype is not DType.SHAPE
}
ARRAY_TYPES = {dtype: held for held, dtype in TOSA_TYPES.items()}


@dataclasses.dataclass(frozen=True)
class Origin:
    """The parameter that a constant was made from.

    Args:
      path: of the parameter in the user's pytree, "params/Dense_0/kernel".
      number: of the parameter among those of the function; the arrays that it has closed over
        come after them. Two with one path differ in it.
      moves: what has been done to it, as far as it can be undone. None where it cannot.
      others: the numbers of other parameters that the elements depend on.
    """

    path: str
    number: int = 0
    moves: tuple[Move, ...] | None = ()
    others: frozenset[int] = frozenset()

    def moved(self, *moves: Move) -> Origin:
        kept = None if self.moves is None else (*self.moves, *moves)
        return dataclasses.replace(self, moves=kept)

    def changed(self) -> Origin:
        return dataclasses.replace(self, moves=None)

    def with_others(self, numbers: frozenset[int]) -> Origin:
        return dataclasses.replace(self, others=(self.others | numbers) - {self.number})

    @property
    def numbers(self) -> frozenset[int]:
        """Of all parameters that the elements depend on."""
        return self.others | {self.number}


@dataclasses.dataclass(frozen=True)
class Reshaped:
    """Elements kept in their order, from one shape to another."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Transposed:
    """Axes permuted."""

    perms: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Reversed:
    """Elements backwards along axes."""

    axes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Sliced:
    """Elements of a shape from `start` on, below `limit`, in steps."""

    before: tuple[int, ...]
    start: tuple[int, ...]
    limit: tuple[int, ...]
    strides: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Affine:
    """Each element times a factor, plus an offset; numbers that broadcast with the elements."""

    factor: np.ndarray
    offset: np.ndarray


Move = Reshaped | Transposed | Reversed | Sliced | Affine


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """An array of the traced function.

    Args:
      shape: of the array.
      dtype: of the array; a key type of JAX for constants alone.
      held: what there is of it, of the same rank: a tensor, or the elements of a constant. Its
        dimensions are those of `shape`, or 1 where the array repeats along an axis. So arrays are
        repeated where an operator needs it, and elementwise operators do not.
      origin: of a constant, where it was made from a parameter.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    held: Tensor | np.ndarray | jax.Array
    origin: Origin | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is a constant."""
        return not isinstance(self.held, Tensor)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def held_shape(self) -> tuple[int, ...]:
        return tuple(self.held.shape or ())

    @property
    def elements(self) -> np.ndarray:
        """All elements of a constant."""
        assert not isinstance(self.held, Tensor)
        return np.broadcast_to(np.asarray(self.held), self.shape)

    @property
    def scalar(self) -> Any:
        """The one number that all elements of a constant are; None where they differ."""
        if self.is_known and math.prod(self.held_shape) == 1:
            return np.asarray(self.held).reshape(())[()]
        return None


def known(array: Any, origin: Origin | None = None) -> Value:
    """A constant."""
    held = array if isinstance(array, jax.Array) else np.asarray(array)
    return Value(tuple(held.shape), held.dtype, held, origin)


def of_tensor(tensor: Tensor, shape: tuple[int, ...] | None = None) -> Value:
    """The value of a tensor, repeated to a shape."""
    dims = tuple(tensor.shape or ())
    return Value(dims if shape is None else shape, ARRAY_TYPES[tensor.dtype], tensor)
