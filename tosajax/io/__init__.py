"""Reads and writes graphs in the formats of `tosajax.io.formats`."""

from __future__ import annotations

import dataclasses
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

import numpy as np

from tosajax.arguments.types import check_type
from tosajax.atomic import check_folder, replacing
from tosajax.graph import Graph
from tosajax.io import outside, sidecar, tosa_file
from tosajax.io.formats import WRITTEN, Asked, Format, of_content, of_suffix
from tosajax.report import FormatError, UnsupportedError

__all__ = ["check_path", "load", "save", "to_bytes"]

_T = TypeVar("_T")
_START = 2**16  # leading bytes from which the format is detected
_MOST_READ = 2**31  # largest file read into memory, in bytes: the limit of flatbuffers


def load(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    function: str | None = None,
    constants: Mapping[int, np.ndarray] | None = None,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    as_floats: bool = False,
) -> Graph:
    """Reads a graph from a file, with the scales file beside it (see `save`), or from bytes.

    The format is detected from the content. Graphs of TOSA versions before 1.0 are upgraded to
    1.0.1; `Graph.source.rewrites` lists the changes, and where results may differ.

    Args:
      source: a path, or the content of a file.
      function: the name of a function in an MLIR module, or of a graph in a SPIR-V module; by
        default the only one, or `main`.
      constants: the constants of a SPIR-V module, by id; by default read from the file beside it.
      batch: the size of an open first dimension of the inputs of a TFLite or ONNX file, which a
        converter may have to know. Graphs of other formats stay open; see `tosajax.bind`.
      shapes: complete shapes of inputs of these files, by name.
      as_floats: whether a quantized file of TFLite becomes the graph of the real numbers that its
        integers stand for, with their rounding, which `quant.prepare` makes integers of again. A
        model of ONNX is such a graph in any case.

    Raises:
      FormatError: the content is not a well-formed file of these formats, or does not match the
        files beside it.
      UnsupportedError: the version is not supported, or the file uses something that TOSA 1.0 does
        not have.
      ImportError: the format needs a package that is not installed; the message names it.
      ValueError: the function does not exist, or as_floats is asked of a file of TOSA.
      OSError: the file cannot be read.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> data = tosajax.io.to_bytes(b.graph([b.op("REVERSE", x, axis=1, name="y")]))
      >>> tosajax.io.load(data)
      Graph('main', (x: INT8[1,3]) -> (y: INT8[1,3]), 1 node)
    """
    asked = Asked(function, constants, batch, shapes, as_floats)
    if isinstance(source, bytes | bytearray | memoryview):
        data = memoryview(source).cast("B")
        form = of_content(data)
        _check_as_floats(form, asked)
        return form.read(data, asked)
    check_type("source", source, (str, os.PathLike), "a path or the bytes of a file")
    path = Path(source)
    try:
        with open(path, "rb") as file:
            content, form = _content(file)
        _check_as_floats(form, asked)
        if form.has_outside and constants is None:
            asked = asked._replace(constants=outside.read(path, content))
        graph = form.read(content, asked)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{os.fspath(source)}: {error}") from None
    scales = sidecar.read(graph, path, content)
    return dataclasses.replace(graph, quantization=scales) if scales else graph


def _check_as_floats(form: Format, asked: Asked) -> None:
    if asked.as_floats and form.write is not None:
        wanted = "expected a TFLite flatbuffer or an ONNX model"
        raise ValueError(f"as_floats is asked of a {form.name}, {wanted}")


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Writes a graph to a file, atomically.

    TOSA's own files have version 1.0.0, or 1.1.0-draft if the graph needs TOSA 1.1.

    The formats cannot store `Graph.quantization`, which goes into a file beside it,
    `model.tosa.quant.json`; SPIR-V cannot store large constants, which go into `model.spv.npz`.
    `load` reads all of them.

    Args:
      graph: any graph of TOSA 1.0 operators; it is not validated.
      path: its suffix chooses the format: .tosa for a flatbuffer, .json for JSON, .mlir for MLIR
        text, .mlirbc for MLIR bytecode, .spv for SPIR-V, .vgf for VGF.

    Raises:
      ValueError: the suffix is unknown, or the graph has something that a file cannot store.
      UnsupportedError: the format cannot express an operator or type of the graph.
      ImportError: the format needs a package that is not installed; the message names it.
      OSError: the file cannot be written.

    Example:
      >>> import pathlib
      >>> import tempfile
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     tosajax.save(graph, pathlib.Path(folder) / "reverse.tosa")
      ...     loaded = tosajax.load(pathlib.Path(folder) / "reverse.tosa")
      >>> loaded == graph, loaded.source.format
      (True, 'TOSA flatbuffer')
    """
    check_type("graph", graph, Graph, "a Graph, as from tosajax.load")
    check_type("path", path, (str, os.PathLike), "a path")
    path = Path(path)
    form = check_path(path)
    content, constants = _of_text(form.written, graph)
    if form.has_outside:
        outside.write(constants, path, content)
    with replacing(path) as file:
        file.write(content)
    sidecar.write(graph, path, content)


def check_path(path: str | os.PathLike[str]) -> Format:
    """The format that `save` writes to a path.

    Raises:
      ValueError: the path's suffix is unknown, or that of a format that is only read.
      FileNotFoundError: the file's folder does not exist.

    Example:
      >>> from tosajax import io
      >>> io.check_path("model.mlir").suffix
      '.mlir'
    """
    form = of_suffix(Path(path).suffix)
    wanted = ", ".join(form.suffix for form in WRITTEN)
    if form is None:
        raise ValueError(f"{path}: suffix is {Path(path).suffix!r}, expected one of {wanted}")
    if form.write is None:
        only = f"suffix is {form.suffix!r}, which tosajax only reads"
        raise ValueError(f"{path}: {only}, expected one of {wanted}")
    check_folder(path)
    return form


def to_bytes(graph: Graph) -> bytes:
    """Returns a graph as the content of a TOSA flatbuffer; see `save`.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> data = tosajax.io.to_bytes(b.graph([b.op("REVERSE", x, axis=1, name="y")]))
      >>> tosajax.load(data)
      Graph('main', (x: INT8[1,3]) -> (y: INT8[1,3]), 1 node)
    """
    return _of_text(tosa_file.to_flatbuffer, graph)


def _of_text(write: Callable[[Graph], _T], graph: Graph) -> _T:
    """Returns `write(graph)`.

    Raises:
      ValueError: a string of the graph is not valid Unicode.
    """
    try:
        return write(graph)
    except UnicodeEncodeError as error:
        message = f"{error.object[:80]!r} has half of a surrogate pair"
        raise ValueError(f"{message}, and files have texts of Unicode") from None


def _content(file: IO[bytes]) -> tuple[memoryview, Format]:
    """Reads the content of a file, and detects its format."""
    start = file.read(_START)
    form = of_content(memoryview(start))
    if os.fstat(file.fileno()).st_size <= _MOST_READ:
        return memoryview(start + file.read()), form
    if form.name != "TOSA flatbuffer":
        raise UnsupportedError(f"the {form.name} is larger than 2 GB")
    # Most of so large a file is data after the flatbuffer; mapping it reads only the parts in use.
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), form


def __dir__() -> list[str]:
    return __all__
