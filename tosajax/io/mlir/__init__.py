"""Reads and writes the TOSA dialect of MLIR: text in all versions and forms, and bytecode."""

from __future__ import annotations

from tosajax.graph import Graph, Source
from tosajax.io.mlir import bytecode, module, writer

__all__ = ["read_bytecode", "read_text", "to_bytecode", "to_text"]


def read_text(text: str | bytes, function: str | None = None) -> Graph:
    """Reads a function of MLIR text as a graph.

    Tensors have the names of values, `conv1` for `%conv1` and `7` for `%7`. Constants keep their
    bits. Quantized, signed and unsigned integers become signless; `Source.rewrites` lists them, and
    `Graph.quantization` has their scales.

    Args:
      text: MLIR text in the generic form or a custom form of the dialect.
      function: the function's name; by default the only one, or `main`.

    Raises:
      FormatError: the text is not well-formed MLIR, or the dialect does not have an operation.
      UnsupportedError: the text has something that TOSA 1.0 does not have.
      ImportError: xDSL is not installed.
      ValueError: the function does not exist.
    """
    return module.read(text, function, Source("MLIR text"))


def to_text(graph: Graph) -> str:
    """Writes a graph as MLIR text, in the generic form that all tools read.

    `read_text` returns an equal graph, except for its quantization and for tensors that no node
    reads or writes. Locations store names that are illegal in MLIR, and names of subgraphs.

    Raises:
      ValueError: MLIR cannot express the graph.
    """
    return writer.to_text(graph)


def read_bytecode(data: bytes, function: str | None = None) -> Graph:
    """Reads a function of MLIR bytecode as a graph.

    Bytecode of the dialect of TOSA 1.0, from LLVM 21 and newer, is converted by tosa-opt.

    Args:
      data: the content of a file.
      function: the function's name; by default the only one, or `main`.

    Raises:
      FormatError: the bytecode is not well formed.
      UnsupportedError: the bytecode has an unknown dialect, ambiguous properties, or something that
        TOSA 1.0 does not have.
      ImportError: xDSL is not installed, or, for the dialect of TOSA 1.0, tosa-tools.
      ValueError: the function does not exist.
    """
    header = bytecode.header(data)
    source = Source("MLIR bytecode", str(header.version), header.producer)
    return module.read(bytecode.as_text(data), function, source)


def to_bytecode(graph: Graph) -> bytes:
    """Writes a graph as MLIR bytecode, with tosa-opt.

    Raises:
      ImportError: tosa-tools is not installed.
      ValueError: MLIR cannot express the graph, or tosa-opt refuses it.
    """
    return bytecode.of_text(writer.to_text(graph, keep_names=True))
