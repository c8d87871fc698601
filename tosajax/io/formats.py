"""The table of file formats, with functions that detect, read and write each.

Readers and writers of MLIR, SPIR-V and VGF are imported on first use, because some need optional
packages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tosajax.graph import Graph
from tosajax.io import detect, tosa_file
from tosajax.report import FormatError, UnsupportedError


class Asked(NamedTuple):
    """The options of `load`.

    Args:
      function: the name of a function or graph in the file; None for the only one, or `main`.
      constants: the external constants of a SPIR-V module, by id.
      batch: the size of an open first dimension of inputs, for formats whose converter wants it.
      shapes: shapes of inputs that have open dimensions, by name, for the same formats.
      as_floats: whether quantized files become graphs of their real numbers, for the same formats.
    """

    function: str | None = None
    constants: Mapping[int, np.ndarray] | None = None
    batch: int | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    as_floats: bool = False


class Content(NamedTuple):
    """A file's bytes, and the external constants it refers to, by id."""

    data: bytes
    outside: Mapping[int, np.ndarray] = MappingProxyType({})


class Format(NamedTuple):
    """One file format.

    Args:
      name: the name in `Graph.source`.
      suffix: the suffix of the format's files.
      is_here: function that tells whether content, or its beginning, is in the format.
      read: function that reads a graph from content.
      write: function that writes a graph as content; None for a format that is only read.
      has_outside: whether a file beside it has external constants; see `outside`.
    """

    name: str
    suffix: str
    is_here: Callable[[memoryview], bool]
    read: Callable[[memoryview, Asked], Graph]
    write: Callable[[Graph], Content] | None = None
    has_outside: bool = False

    def written(self, graph: Graph) -> Content:
        """A graph as content.

        Raises:
          UnsupportedError: the format is only read, or cannot express the graph.
        """
        if self.write is None:
            raise UnsupportedError(f"tosajax does not write a {self.name}")
        return self.write(graph)


def _read_flatbuffer(data: memoryview, asked: Asked) -> Graph:
    return _only(tosa_file.read_flatbuffer(data), asked)


def _write_flatbuffer(graph: Graph) -> Content:
    return Content(tosa_file.to_flatbuffer(graph))


def _read_json(data: memoryview, asked: Asked) -> Graph:
    return _only(tosa_file.read_json(data), asked)


def _write_json(graph: Graph) -> Content:
    return Content(tosa_file.to_json(graph))


def _read_mlir(data: memoryview, asked: Asked) -> Graph:
    from tosajax.io import mlir

    return mlir.read_text(bytes(data), asked.function)


def _write_mlir(graph: Graph) -> Content:
    from tosajax.io import mlir

    return Content(mlir.to_text(graph).encode())


def _read_bytecode(data: memoryview, asked: Asked) -> Graph:
    from tosajax.io import mlir

    return mlir.read_bytecode(bytes(data), asked.function)


def _write_bytecode(graph: Graph) -> Content:
    from tosajax.io import mlir

    return Content(mlir.to_bytecode(graph))


def _read_spirv(data: memoryview, asked: Asked) -> Graph:
    from tosajax.io import spirv

    return spirv.read(data, asked.constants, asked.function)


def _write_spirv(graph: Graph) -> Content:
    from tosajax.io import spirv

    return Content(*spirv.to_bytes(graph))


def _read_vgf(data: memoryview, asked: Asked) -> Graph:
    from tosajax.io import vgf

    return _only(vgf.read(data), asked)


def _write_vgf(graph: Graph) -> Content:
    from tosajax.io import vgf

    return Content(vgf.to_bytes(graph))


def _read_tflite(data: memoryview, asked: Asked) -> Graph:
    from tosajax.io import tflite

    graph = tflite.read(data, asked.batch, asked.shapes, as_floats=asked.as_floats)
    return _only(graph, asked)


def _read_onnx(data: memoryview, asked: Asked) -> Graph:
    from tosajax.io import onnx

    return _only(onnx.read(data, asked.batch, asked.shapes), asked)


def _only(graph: Graph, asked: Asked) -> Graph:
    """Returns the graph of a file with one graph.

    Raises:
      ValueError: the caller asked for a graph of another name.
    """
    if asked.function not in (None, graph.name):
        raise ValueError(
            f"function {asked.function!r} of a {graph.source.format}, which has one graph, "
            f"{graph.name!r}"
        )
    return graph


# In the order in which formats are detected.
FORMATS = (
    Format("TOSA flatbuffer", ".tosa", detect.is_flatbuffer, _read_flatbuffer, _write_flatbuffer),
    Format("MLIR bytecode", ".mlirbc", detect.is_bytecode, _read_bytecode, _write_bytecode),
    Format("SPIR-V", ".spv", detect.is_spirv, _read_spirv, _write_spirv, has_outside=True),
    Format("VGF", ".vgf", detect.is_vgf, _read_vgf, _write_vgf),
    Format("TOSA JSON", ".json", detect.is_json, _read_json, _write_json),
    Format("MLIR text", ".mlir", detect.is_mlir, _read_mlir, _write_mlir),
    Format("TFLite flatbuffer", ".tflite", detect.is_tflite, _read_tflite),
    Format("ONNX model", ".onnx", detect.is_onnx, _read_onnx),
)
WRITTEN = tuple(form for form in FORMATS if form.write is not None)


def of_content(data: memoryview) -> Format:
    """Detects the format of content, or of its beginning.

    Raises:
      FormatError: the format is unknown.
    """
    for form in FORMATS:
        if form.is_here(data):
            return form
    wanted = ", ".join(form.name for form in FORMATS)
    content, helps = detect.describe(data)
    more = f"; {helps}" if helps else ""
    raise FormatError(f"the content looks like {content}, expected one of {wanted}{more}")


def of_suffix(suffix: str) -> Format | None:
    """The format of files with a suffix; None if the suffix is unknown."""
    return next((form for form in FORMATS if form.suffix == suffix), None)
