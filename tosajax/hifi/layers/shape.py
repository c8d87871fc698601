"""Shapes of arrays in memory (xa_nnlib_shape_t, guide 2.1)."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple


class ShapeType(enum.IntEnum):
    """What a shape is of; a cube by the order of its axes, innermost first."""

    UNKNOWN = 0
    VECTOR = 1
    MATRIX = 2
    CUBE_DWH = 3
    CUBE_WHD = 4


class Vector(NamedTuple):
    """The dimensions of a vector, in elements."""

    length: int


class Matrix(NamedTuple):
    """The dimensions of a matrix, and from one row to the next, in elements."""

    rows: int
    row_offset: int
    cols: int


class Cube(NamedTuple):
    """The dimensions of a cube, and from one element to the next of each axis, in elements."""

    height: int
    height_offset: int
    width: int
    width_offset: int
    depth: int
    depth_offset: int


_DIMENSIONS: dict[int, type] = {
    ShapeType.UNKNOWN: type(None),
    ShapeType.VECTOR: Vector,
    ShapeType.MATRIX: Matrix,
    ShapeType.CUBE_DWH: Cube,
    ShapeType.CUBE_WHD: Cube,
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """A shape, by default an unknown one.

    Args:
      shape_type: a `ShapeType`.
      dim: the dimensions: a Vector, Matrix or Cube by the type, None where that is unknown.
      n_shapes: how many there are.
      shape_offset: elements from one to the next, -1 of a single one.

    Raises:
      ValueError: a type that there is not.
      TypeError: dimensions of another type.
    """

    shape_type: int = ShapeType.UNKNOWN
    dim: Any = None
    n_shapes: int = 1
    shape_offset: int = -1

    def __post_init__(self) -> None:
        wanted = _DIMENSIONS[ShapeType(self.shape_type)]
        if not isinstance(self.dim, wanted):
            name, found = ShapeType(self.shape_type).name, type(self.dim).__name__
            raise TypeError(f"dim of {name} is {found}, expected {wanted.__name__}")


UNKNOWN = Shape()


def vector(length: int) -> Shape:
    """The shape of a vector."""
    return Shape(ShapeType.VECTOR, Vector(length))


def matrix(rows: int, cols: int) -> Shape:
    """The shape of a matrix without gaps."""
    return Shape(ShapeType.MATRIX, Matrix(rows, cols, cols))


def cube_dwh(
    height: int,
    width: int,
    depth: int,
    *,
    width_offset: int | None = None,
    height_offset: int | None = None,
) -> Shape:
    """The shape of a cube [height, width, depth], without gaps where no offset says otherwise."""
    width_offset = depth if width_offset is None else width_offset
    height_offset = width * width_offset if height_offset is None else height_offset
    return Shape(
        ShapeType.CUBE_DWH, Cube(height, height_offset, width, width_offset, depth, depth_offset=1)
    )


def cube_whd(height: int, width: int, depth: int, *, height_offset: int | None = None) -> Shape:
    """The shape of a cube [depth, height, width], without gaps where no offset says otherwise."""
    height_offset = width if height_offset is None else height_offset
    return Shape(
        ShapeType.CUBE_WHD,
        Cube(height, height_offset, width, 1, depth, depth_offset=height * height_offset),
    )
