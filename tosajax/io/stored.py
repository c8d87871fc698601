"""Scales in FlatBuffers models of other tools, for the graphs that are converted from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tosajax.dtypes import DType
from tosajax.graph import Quantization, Tensor
from tosajax.io.schema import Field, Scalar, Table, Type

SKIPPED = Scalar.UINT32  # the offset to a field that is not read

Fields = Mapping[str, Any]  # a table of a file, as `flatbuffer.decode` returns it


class Stored(NamedTuple):
    """A model's integer type.

    Args:
      dtype: the graph's type of the same width.
      is_unsigned: whether the model's integers are unsigned.
    """

    dtype: DType
    is_unsigned: bool = False

    def quantization(
        self,
        tensor: Tensor,
        scales: Sequence[float],
        zero_points: Sequence[int],
        axes: Sequence[int] = (),
        *,
        unsigned: bool,
    ) -> Quantization | None:
        """The quantization of the graph's tensor; None if it cannot be the model's tensor.

        Args:
          tensor: the graph's tensor.
          scales: the scales of the model's tensor.
          zero_points: the zero points of the model's tensor, one or as many as scales.
          axes: the axes that several scales run along.
          unsigned: whether the graph reads the tensor as unsigned. Converters turn unsigned
            integers into signed ones, except in inputs and outputs of the graph.

        Raises:
          ValueError: the numbers contradict each other; see `Quantization`.
        """
        moved = 1 << (self.dtype.bits - 1) if self.is_unsigned and not unsigned else 0
        own = Quantization(tuple(scales), tuple(z - moved for z in zero_points), tuple(axes))
        return own if self.dtype is tensor.dtype and own.fits(tensor) else None


def table(kind: str, /, **fields: Type) -> Table:
    """A FlatBuffers table whose numbers default to 0."""
    defaults = {name: 0 if isinstance(form, Scalar) else None for name, form in fields.items()}
    return Table(kind, tuple(Field(n, form, defaults[n]) for n, form in fields.items()))


def same_size(tensor: Tensor, shape: Sequence[int]) -> bool:
    """Whether the shapes are equal, except for dimensions that are open in the graph."""
    own = tensor.shape
    return own is None or (
        len(own) == len(shape) and all(n in (-1, m) for n, m in zip(own, shape, strict=True))
    )
