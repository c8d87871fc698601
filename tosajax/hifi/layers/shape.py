"""Shapes of arrays in memory (xa_nnlib_shape_t, guide 2.1)."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

from tosajax.hifi.kernels._check import integer


class ShapeType(enum.IntEnum):
    """The kinds of shapes; the names of cubes list their axes, innermost first.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.vector(3).shape_type
      <ShapeType.VECTOR: 1>
    """

    UNKNOWN = 0
    VECTOR = 1
    MATRIX = 2
    CUBE_DWH = 3
    CUBE_WHD = 4


class Vector(NamedTuple):
    """The dimensions of a vector, in elements.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.vector(3).dim
      Vector(length=3)
    """

    length: int


class Matrix(NamedTuple):
    """The dimensions and the row stride of a matrix, in elements.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.matrix(2, 3).dim
      Matrix(rows=2, row_offset=3, cols=3)
    """

    rows: int
    row_offset: int
    cols: int


class Cube(NamedTuple):
    """The dimensions and strides of a cube, in elements.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.cube_dwh(2, 3, 4).dim
      Cube(height=2, height_offset=12, width=3, width_offset=4, depth=4, depth_offset=1)
    """

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
    """The shape of one or more arrays; unknown by default.

    Args:
      shape_type: a `ShapeType`.
      dim: the dimensions: a Vector, Matrix or Cube by the type, None for an unknown shape.
      n_shapes: the number of arrays.
      shape_offset: elements from one array to the next; -1 for a single array.

    Raises:
      ValueError: `shape_type` is unknown.
      TypeError: `dim` has the wrong type, or a number is not an integer.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.Shape(layers.ShapeType.VECTOR, layers.Vector(3)) == layers.vector(3)
      True
    """

    shape_type: int = ShapeType.UNKNOWN
    dim: Any = None
    n_shapes: int = 1
    shape_offset: int = -1

    def __post_init__(self) -> None:
        for name in ("shape_type", "n_shapes", "shape_offset"):
            object.__setattr__(self, name, integer("Shape", name, getattr(self, name)))
        wanted = _DIMENSIONS[ShapeType(self.shape_type)]
        if not isinstance(self.dim, wanted):
            name, kind = ShapeType(self.shape_type).name, type(self.dim).__name__
            raise TypeError(f"dim of {name} is {kind}, expected {wanted.__name__}")
        if self.dim is not None:
            function, dim = type(self.dim).__name__, self.dim._asdict()
            whole = wanted(*(integer(function, name, value) for name, value in dim.items()))
            object.__setattr__(self, "dim", whole)


UNKNOWN = Shape()


def vector(length: int) -> Shape:
    """Makes the shape of a vector.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.vector(3).dim.length
      3
    """
    return Shape(ShapeType.VECTOR, Vector(length))


def matrix(rows: int, cols: int) -> Shape:
    """Makes the shape of a contiguous matrix.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.matrix(2, 3).dim.row_offset
      3
    """
    return Shape(ShapeType.MATRIX, Matrix(rows, cols, cols))


def cube_dwh(
    height: int,
    width: int,
    depth: int,
    *,
    width_offset: int | None = None,
    height_offset: int | None = None,
) -> Shape:
    """Makes the shape of a cube [height, width, depth]; contiguous if offsets are None.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.cube_dwh(2, 3, 4).dim.width_offset
      4
    """
    width, depth = integer("cube_dwh", "width", width), integer("cube_dwh", "depth", depth)
    width_offset = depth if width_offset is None else width_offset
    if height_offset is None:
        height_offset = width * integer("cube_dwh", "width_offset", width_offset)
    return Shape(
        ShapeType.CUBE_DWH, Cube(height, height_offset, width, width_offset, depth, depth_offset=1)
    )


def cube_whd(height: int, width: int, depth: int, *, height_offset: int | None = None) -> Shape:
    """Makes the shape of a cube [depth, height, width]; contiguous if height_offset is None.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.cube_whd(2, 3, 4).dim.height_offset
      3
    """
    height = integer("cube_whd", "height", height)
    row = width if height_offset is None else height_offset
    plane = height * integer("cube_whd", "width" if height_offset is None else "height_offset", row)
    return Shape(ShapeType.CUBE_WHD, Cube(height, row, width, 1, depth, depth_offset=plane))
