"""Reads and writes TOSA's own files: flatbuffers (.tosa) and their JSON form, of any version.

Versions before 1.0 have the same file identifier, but a different schema.
"""

from __future__ import annotations

from typing import Any

from tosajax.graph import Graph, Source
from tosajax.io import flatbuffer, json_form, pre_1_0, schema
from tosajax.io.interchange import read_graph, write_graph
from tosajax.io.versions import check_features, check_version, is_before_1_0, producer
from tosajax.report import FormatError, UnsupportedError


def read_flatbuffer(data: memoryview) -> Graph:
    """Reads the graph of a flatbuffer, and data after the flatbuffer in the same file.

    Raises:
      FormatError, UnsupportedError: see `tosajax.load`.
    """
    if is_before_1_0(flatbuffer.decode(data, schema.GRAPH, ("version",))):
        return pre_1_0.read_flatbuffer(data)
    return _graph(flatbuffer.decode, data, data, "TOSA flatbuffer")


def read_json(data: memoryview) -> Graph:
    """Reads the graph of a JSON text.

    Raises:
      FormatError, UnsupportedError: see `tosajax.load`.
    """
    raw = json_form.parse(bytes(data))
    if is_before_1_0(json_form.decode(raw, schema.GRAPH, ("version",))):
        return pre_1_0.read_json(raw)
    return _graph(json_form.decode, raw, memoryview(b""), "TOSA JSON")


def to_flatbuffer(graph: Graph) -> bytes:
    """Writes a graph as a flatbuffer of version 1.0.0, or 1.1.0-draft if it needs 1.1.

    Raises:
      ValueError, UnsupportedError: see `tosajax.save`.
    """
    content = flatbuffer.encode(write_graph(graph), schema.GRAPH, schema.IDENTIFIER)
    _check(flatbuffer.decode, memoryview(content))
    return content


def to_json(graph: Graph) -> bytes:
    """Writes a graph as JSON of version 1.0.0, or 1.1.0-draft if it needs 1.1.

    Raises:
      ValueError: see `tosajax.save`.
    """
    raw = json_form.plain(write_graph(graph), schema.GRAPH)
    _check(json_form.decode, raw)
    return json_form.dumps(raw).encode()


def _check(decode: Any, content: Any) -> None:
    """Checks that tosajax can read the content of a file before writing it.

    Raises:
      ValueError: the content cannot be read.
    """
    try:
        _graph(decode, content, memoryview(b""), "")
    except (FormatError, UnsupportedError) as error:
        raise ValueError(f"no file can hold the graph: {error}") from None


def _graph(decode: Any, content: Any, file: memoryview, form: str) -> Graph:
    """Decodes a graph; checks the version first, because the schema depends on it."""
    version = check_version(decode(content, schema.GRAPH, ("version",)))
    check_features(decode(content, schema.GRAPH, ("compatibility",)))
    root = decode(content, schema.GRAPH)
    return read_graph(root, file, Source(form, version, producer(root)))
