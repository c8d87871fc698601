"""Models of other tools in FlatBuffers, as far as they tell of a graph that was made of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tosajax.graph import Tensor
from tosajax.io import flatbuffer
from tosajax.io.schema import Field, Scalar, Table
from tosajax.report import FormatError, UnsupportedError

SKIPPED = Scalar.UINT32  # offsets to what is not read


def table(kind: str, /, **fields: Any) -> Table:
    """A table whose numbers are 0 where a file leaves them out."""
    defaults = {name: 0 if isinstance(form, Scalar) else None for name, form in fields.items()}
    return Table(kind, tuple(Field(n, form, defaults[n]) for n, form in fields.items()))


def read(
    path: str | os.PathLike[str], identifier: bytes, what: str, root: Table, field: str
) -> Sequence[Any]:
    """A list in the root table of a file; () where the file leaves it out.

    Raises:
      FormatError: the file has another identifier, or is damaged.
      OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        head = file.read(8)
    if head[4:8] != identifier:
        raise FormatError(f"{path} is not {what}")
    try:
        return flatbuffer.decode(memoryview(Path(path).read_bytes()), root, (field,))[field] or ()
    except (FormatError, UnsupportedError) as error:
        raise FormatError(f"{path}: {error}") from None


def same_size(tensor: Tensor, shape: Sequence[int]) -> bool:
    """Whether the shapes are equal but for open dimensions, which the model has closed."""
    own = tensor.shape
    return own is None or (
        len(own) == len(shape) and all(n in (-1, m) for n, m in zip(own, shape, strict=True))
    )
