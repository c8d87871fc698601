"""Reads and writes TOSA interchange files: flatbuffer (.tosa) and JSON (.json)."""

from __future__ import annotations

import dataclasses
import mmap
import os
from pathlib import Path
from typing import IO, Any

from tosajax.arguments.types import check_type
from tosajax.atomic import replacing
from tosajax.graph import Graph, Source
from tosajax.io import detect, flatbuffer, json_form, schema, sidecar
from tosajax.io.interchange import read_graph, write_graph
from tosajax.io.versions import check_features, check_version, producer
from tosajax.report import FormatError, UnsupportedError

__all__ = ["load", "save", "to_bytes"]

_START = 2**16  # bytes that show the format
_MOST_READ = 2**31  # bytes to read of a file as a whole: the limit of flatbuffers


def load(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Graph:
    """Reads a graph from a file, with the scales beside it (see `save`), or from the bytes of one.

    The content shows the format: TOSA flatbuffers and their JSON, of version 1.0 and 1.1 draft.

    Args:
      source: a path, or the content of a file.

    Raises:
      FormatError: the content is not a well-formed file of these formats, or the scales beside it
        do not fit.
      UnsupportedError: it has another version, or uses something that TOSA 1.0 does not have.
      OSError: the file cannot be read.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _read(memoryview(source).cast("B"))
    check_type("source", source, (str, os.PathLike), "a path or the bytes of a file")
    path = Path(source)
    try:
        with open(path, "rb") as file:
            content = _content(file)
        graph = _read(content)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{os.fspath(source)}: {error}") from None
    scales = sidecar.read(graph, path, content)
    return dataclasses.replace(graph, quantization=scales) if scales else graph


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Writes a graph as a file of version 1.0.0, whole or not at all.

    The file has no place for `Graph.quantization`, which goes into one beside it,
    `model.tosa.quant.json`. `load` reads both.

    Args:
      graph: any graph of TOSA 1.0 operators; it is not validated.
      path: ends in .tosa for a flatbuffer, in .json for JSON.

    Raises:
      ValueError: the suffix is another one, or the graph has something a file cannot hold.
      OSError: the file cannot be written.
    """
    check_type("graph", graph, Graph, "a Graph, as from tosajax.load")
    check_type("path", path, (str, os.PathLike), "a path")
    path = Path(path)
    writers = {".tosa": to_bytes, ".json": _to_json}
    if path.suffix not in writers:
        raise ValueError(f"{path}: suffix is {path.suffix!r}, expected .tosa or .json")
    content = writers[path.suffix](graph)
    with replacing(path) as file:
        file.write(content)
    sidecar.write(graph, path, content)


def to_bytes(graph: Graph) -> bytes:
    """A graph as the content of a TOSA flatbuffer of version 1.0.0; see `save`."""
    return flatbuffer.encode(write_graph(graph), schema.GRAPH, schema.IDENTIFIER)


def _to_json(graph: Graph) -> bytes:
    return json_form.encode(write_graph(graph), schema.GRAPH).encode()


def _content(file: IO[bytes]) -> memoryview:
    """The content of a file, or the beginning of one of another format."""
    start = file.read(_START)
    if not detect.is_flatbuffer(memoryview(start)) and not detect.is_json(memoryview(start)):
        return memoryview(start)
    if os.fstat(file.fileno()).st_size <= _MOST_READ:
        return memoryview(start + file.read())
    if detect.is_json(memoryview(start)):
        raise UnsupportedError("the JSON text is larger than 2 GB")
    # Most of a file this large is data beyond the flatbuffer, some of it perhaps of no tensor.
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _read(data: memoryview) -> Graph:
    if detect.is_flatbuffer(data):
        return _graph(flatbuffer.decode, data, data, "TOSA flatbuffer")
    if detect.is_json(data):
        return _graph(json_form.decode, json_form.parse(bytes(data)), memoryview(b""), "TOSA JSON")
    wanted = "a TOSA flatbuffer or its JSON"
    raise FormatError(f"the content looks like {detect.describe(data)}, expected {wanted}")


def _graph(decode: Any, content: Any, file: memoryview, form: str) -> Graph:
    """Checks the version before it decodes the rest: other versions have other layouts."""
    version = check_version(decode(content, schema.GRAPH, ("version",)))
    check_features(decode(content, schema.GRAPH, ("compatibility",)))
    root = decode(content, schema.GRAPH)
    return read_graph(root, file, Source(form, version, producer(root)))
