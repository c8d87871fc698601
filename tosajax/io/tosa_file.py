"""TOSA's own files: flatbuffers (.tosa) and their JSON form, of any version.

Versions before 1.0 have the same mark, and other tables.
"""

from __future__ import annotations

from typing import Any

from tosajax.graph import Graph, Source
from tosajax.io import flatbuffer, json_form, pre_1_0, schema
from tosajax.io.interchange import read_graph, write_graph
from tosajax.io.versions import check_features, check_version, is_before_1_0, producer


def read_flatbuffer(data: memoryview) -> Graph:
    """The graph of a flatbuffer; data beyond it may be in the same file.

    Raises:
      FormatError, UnsupportedError: as `tosajax.load`.
    """
    if is_before_1_0(flatbuffer.decode(data, schema.GRAPH, ("version",))):
        return pre_1_0.read_flatbuffer(data)
    return _graph(flatbuffer.decode, data, data, "TOSA flatbuffer")


def read_json(data: memoryview) -> Graph:
    """The graph of a JSON text.

    Raises:
      FormatError, UnsupportedError: as `tosajax.load`.
    """
    raw = json_form.parse(bytes(data))
    if is_before_1_0(json_form.decode(raw, schema.GRAPH, ("version",))):
        return pre_1_0.read_json(raw)
    return _graph(json_form.decode, raw, memoryview(b""), "TOSA JSON")


def to_flatbuffer(graph: Graph) -> bytes:
    """A graph as a flatbuffer of version 1.0.0."""
    return flatbuffer.encode(write_graph(graph), schema.GRAPH, schema.IDENTIFIER)


def to_json(graph: Graph) -> bytes:
    """A graph as JSON of version 1.0.0."""
    return json_form.encode(write_graph(graph), schema.GRAPH).encode()


def _graph(decode: Any, content: Any, file: memoryview, form: str) -> Graph:
    """Checks the version before it decodes the rest: other versions have other layouts."""
    version = check_version(decode(content, schema.GRAPH, ("version",)))
    check_features(decode(content, schema.GRAPH, ("compatibility",)))
    root = decode(content, schema.GRAPH)
    return read_graph(root, file, Source(form, version, producer(root)))
