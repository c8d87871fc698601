"""Value: an array of the traced function, held as a tensor of the graph or as a constant."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import ml_dtypes
import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Tensor

# Array dtype -> TOSA element type. JAX has its own dtype for int4. An int64 array is an int48
# tensor, which only operators of tosajax compute.
TOSA_TYPES: dict[np.dtype, DType] = {
    np.dtype(ml_dtypes.int4) if dtype is DType.INT4 else dtype.storage: dtype
    for dtype in DType
    if dtype is not DType.SHAPE and dtype.block is None
}
ARRAY_TYPES = {dtype: held for held, dtype in TOSA_TYPES.items()}


@dataclasses.dataclass(frozen=True)
class Origin:
    """The parameter that a constant was computed from.

    Args:
      path: the path of the parameter in the user's pytree, "params/Dense_0/kernel".
      number: the index of the parameter among the function's parameters, followed by the arrays it
        closes over. It distinguishes parameters of equal paths.
      moves: the invertible operations from the parameter to the constant; None if one of them is
        not invertible.
      others: the numbers of all further parameters that the elements depend on.
    """

    path: str
    number: int = 0
    moves: tuple[Move, ...] | None = ()
    others: frozenset[int] = frozenset()

    def moved(self, *moves: Move) -> Origin:
        all_moves = None if self.moves is None else (*self.moves, *moves)
        return dataclasses.replace(self, moves=all_moves)

    def changed(self) -> Origin:
        return dataclasses.replace(self, moves=None)

    def with_others(self, numbers: frozenset[int]) -> Origin:
        return dataclasses.replace(self, others=(self.others | numbers) - {self.number})

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all parameters that the elements depend on."""
        return self.others | {self.number}


@dataclasses.dataclass(frozen=True)
class Reshaped:
    """A reshape, row-major."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Transposed:
    """A transposition: axis i of the result is axis perms[i]."""

    perms: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Reversed:
    """A reversal of elements along axes."""

    axes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Sliced:
    """A strided slice of an array of shape `before`, from `start` to `limit` (exclusive)."""

    before: tuple[int, ...]
    start: tuple[int, ...]
    limit: tuple[int, ...]
    strides: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Affine:
    """Each element times a factor, plus an offset; both broadcast with the elements."""

    factor: np.ndarray
    offset: np.ndarray


Move = Reshaped | Transposed | Reversed | Sliced | Affine


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """An array of the traced function.

    Args:
      shape: the shape of the array.
      dtype: the dtype of the array; JAX's random key types only for constants.
      held: the data: a tensor of the graph, or the elements of a constant. It has the rank of the
        array, and size 1 along axes along which the array repeats (broadcast axes), so that arrays
        are expanded only for operators that need it; elementwise operators do not.
      origin: the origin of a constant that was computed from a parameter.
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
        """The number, if the value is a constant that holds a single one, else None."""
        if self.is_known and math.prod(self.held_shape) == 1:
            return np.asarray(self.held).reshape(())[()]
        return None


def known(array: Any, origin: Origin | None = None) -> Value:
    """The value of a constant array."""
    held = array if isinstance(array, jax.Array) else np.asarray(array)
    return Value(tuple(held.shape), held.dtype, held, origin)


def of_tensor(tensor: Tensor, shape: tuple[int, ...] | None = None) -> Value:
    """The value of a tensor, broadcast to a shape."""
    dims = tuple(tensor.shape or ())
    return Value(dims if shape is None else shape, ARRAY_TYPES[tensor.dtype], tensor)
