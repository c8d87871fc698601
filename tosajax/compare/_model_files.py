"""Reads quantization from FlatBuffers models of other tools, for graphs converted from them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tosajax.dtypes import DType
from tosajax.graph import Quantization, Tensor
from tosajax.io import flatbuffer
from tosajax.io.schema import Field, Scalar, Table, Type
from tosajax.report import FormatError, UnsupportedError

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


def identifier_of(path: str | os.PathLike[str]) -> bytes:
    """The file identifier of a FlatBuffers file: the four bytes at offset 4."""
    with open(path, "rb") as file:
        return file.read(8)[4:]


def read(
    path: str | os.PathLike[str], identifier: bytes, kind: str, root: Table, field: str
) -> Sequence[Fields]:
    """Reads a list in the root table of a file; () if the file does not have it.

    Raises:
      FormatError: the file has another identifier, or is damaged.
      OSError: the file cannot be read.
    """
    if identifier_of(path) != identifier:
        raise FormatError(f"{path} is not {kind}")
    try:
        return flatbuffer.decode(memoryview(Path(path).read_bytes()), root, (field,))[field] or ()
    except (FormatError, UnsupportedError) as error:
        raise FormatError(f"{path}: {error}") from None


def same_size(tensor: Tensor, shape: Sequence[int]) -> bool:
    """Whether the shapes are equal, except for dimensions that are open in the graph."""
    own = tensor.shape
    return own is None or (
        len(own) == len(shape) and all(n in (-1, m) for n, m in zip(own, shape, strict=True))
    )
