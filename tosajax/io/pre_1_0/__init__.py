"""Graphs of TOSA before 1.0: files of 0.60, 0.80 and 0.90, and the MLIR dialect until LLVM 20.

A reader turns its form into an `OldGraph` (`pre_1_0.model`); `upgrade.upgrade` makes a graph of
TOSA 1.0.1 of it, by one rule for each operator that has changed (`pre_1_0.rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tosajax.graph import Graph

__all__ = ["read_flatbuffer", "read_json"]

# The rest is imported as it is needed: most files are of 1.0.


def read_flatbuffer(data: memoryview) -> Graph:
    """The graph of a flatbuffer of a version before 1.0.

    Args:
      data: the whole file, bytes.

    Raises:
      FormatError: the file is not well formed.
      UnsupportedError: it has another version, or something that TOSA 1.0 cannot express.
    """
    from tosajax.io.pre_1_0 import files

    return files.read_flatbuffer(data)


def read_json(raw: Mapping[str, Any]) -> Graph:
    """The graph of the JSON form of such a file.

    Args:
      raw: of `tosajax.io.json_form.parse`.

    Raises:
      FormatError, UnsupportedError: as `read_flatbuffer`.
    """
    from tosajax.io.pre_1_0 import files

    return files.read_json(raw)
