"""Tracks how constants that JAX computed depend on the elements of the function's parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from tosajax.from_jax.values import (
    Affine,
    Move,
    Origin,
    Reshaped,
    Reversed,
    Sliced,
    Transposed,
    Value,
)

Shape = tuple[int, ...]


def origin_of(primitive: str, inputs: Sequence[Value]) -> Origin | None:
    """The origin of the result of an equation on constants; None if it depends on no parameter.

    Sums and products of a parameter and numbers that do not depend on it can be inverted. If
    several parameters are combined, as in beta - mean * gain, the origin is the parameter with the
    fewest Affine moves.

    Args:
      primitive: the name of JAX's primitive.
      inputs: the operands of the equation, all known.
    """
    origins = [value.origin for value in inputs if value.origin is not None]
    if not origins:
        return None
    numbers = frozenset[int]().union(*(origin.numbers for origin in origins))
    moved = []
    for at, value in enumerate(inputs):
        affine = _affine(primitive, inputs, at)
        if value.origin is not None and value.origin.moves is not None and affine is not None:
            moved.append(value.origin.moved(*affine))
    moved = moved or [origins[0].changed()]
    return min(moved, key=_computations).with_others(numbers)


def _computations(origin: Origin) -> int:
    return sum(isinstance(move, Affine) for move in origin.moves or ())


def _affine(primitive: str, inputs: Sequence[Value], at: int) -> tuple[Affine, ...] | None:
    """The affine moves from input `at` to the result, the rest being numbers; None if none."""
    value = inputs[at]
    if not all(jnp.issubdtype(each.dtype, jnp.floating) for each in inputs):
        return None
    if primitive == "convert_element_type":
        return ()
    if primitive == "neg":
        return (_times(-1),)
    if primitive not in _OF_TWO:
        return None
    (other,) = (each for place, each in enumerate(inputs) if place != at)
    of_other = frozenset() if other.origin is None else other.origin.numbers
    if value.origin is None or value.origin.number in of_other:
        return None
    by = np.asarray(other.held).astype(np.float64)
    if primitive == "add":
        return (_plus(by),)
    if primitive == "sub":
        return (_plus(-by),) if at == 0 else (_times(-1), _plus(by))
    if primitive == "mul":
        return (_times(by),)
    with np.errstate(divide="ignore"):
        return (_times(1 / by),) if at == 0 else None


_OF_TWO = ("add", "sub", "mul", "div")


def _times(factor: np.ndarray | float) -> Affine:
    return Affine(np.asarray(factor, np.float64), np.zeros(()))


def _plus(offset: np.ndarray) -> Affine:
    return Affine(np.ones(()), offset)


class Elements(NamedTuple):
    """A constant as parameter[places] * factor + offset; the arrays have the constant's shape.

    Args:
      places: indices of elements of the flattened parameter.
      factor: float64, the factor of each element.
      offset: float64, the offset added to each product.
    """

    places: np.ndarray
    factor: np.ndarray
    offset: np.ndarray

    def of(self, parameter: np.ndarray) -> np.ndarray:
        """The elements of the constant, computed from a flattened parameter."""
        return parameter[self.places] * self.factor + self.offset


def elements(moves: Sequence[Move], before: Shape, after: Shape) -> Elements | None:
    """The dependence of a constant's elements on its parameter.

    Args:
      moves: the moves of the constant's origin.
      before: the shape of the parameter.
      after: the shape of the constant.

    Returns:
      The Elements, or None if the moves do not lead to the shape.
    """
    places = np.arange(math.prod(before)).reshape(before)
    result = Elements(places, *(np.broadcast_to(x, before) for x in (1.0, 0.0)))
    try:
        for move in moves:
            result = _moved(result, move)
        return Elements(*(np.broadcast_to(array, after) for array in result))
    except ValueError:
        return None


def _moved(old: Elements, move: Move) -> Elements:
    if isinstance(move, Affine):
        factor, offset = old.factor * move.factor, old.offset * move.factor + move.offset
        return Elements(*np.broadcast_arrays(old.places, factor, offset))
    return Elements(*(_moved_array(array, move) for array in old))


def _moved_array(array: np.ndarray, move: Move) -> np.ndarray:
    if isinstance(move, Transposed):
        return np.transpose(array, move.perms)
    if isinstance(move, Reversed):
        return np.flip(array, move.axes)
    if isinstance(move, Sliced):
        limits = zip(move.start, move.limit, move.strides, strict=True)
        return np.broadcast_to(array, move.before)[tuple(slice(*ends) for ends in limits)]
    assert isinstance(move, Reshaped)
    if array.size == 1:  # One number, repeated: it stays one.
        return array.reshape((1,) * len(move.after))
    if array.size != math.prod(move.after):
        array = np.broadcast_to(array, move.before)
    return array.reshape(move.after)
