"""Reads lists of FlatBuffers models of other tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tosajax.io import flatbuffer
from tosajax.io.schema import Table
from tosajax.io.stored import Fields
from tosajax.report import FormatError, UnsupportedError


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
