"""Reads graphs of TOSA before 1.0: files of 0.60, 0.80 and 0.90, and MLIR dialects up to LLVM 20.

Each reader makes an `OldGraph` (`pre_1_0.model`); `upgrade.upgrade` converts it to a graph of TOSA
1.0.1, with one rule for each operator that has changed (`pre_1_0.rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tosajax.graph import Graph

__all__ = ["read_flatbuffer", "read_json"]

# The modules are imported on first use, because most files are of 1.0.


def read_flatbuffer(data: memoryview) -> Graph:
    """Reads the graph of a flatbuffer of a version before 1.0.

    Args:
      data: the bytes of the whole file.

    Raises:
      FormatError: the file is not well formed.
      UnsupportedError: the version is unknown, or TOSA 1.0 cannot express the graph.
    """
    from tosajax.io.pre_1_0 import files

    return files.read_flatbuffer(data)


def read_json(raw: Mapping[str, Any]) -> Graph:
    """Reads the graph of a JSON file of a version before 1.0.

    Args:
      raw: the result of `tosajax.io.json_form.parse`.

    Raises:
      FormatError, UnsupportedError: see `read_flatbuffer`.
    """
    from tosajax.io.pre_1_0 import files

    return files.read_json(raw)
