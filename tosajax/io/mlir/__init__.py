"""Reads and writes the TOSA dialect of MLIR: text, of all its versions and forms, and bytecode."""

from __future__ import annotations

from tosajax.graph import Graph, Source
from tosajax.io.mlir import bytecode, module, writer

__all__ = ["read_bytecode", "read_text", "to_bytecode", "to_text"]


def read_text(text: str | bytes, function: str | None = None) -> Graph:
    """Reads a function of MLIR text as a graph.

    Tensors have the names of values, `conv1` for `%conv1` and `7` for `%7`. Constants keep their
    bits. Quantized, signed and unsigned integers are signless; `Source.rewrites` names them, and
    `Graph.quantization` has their scales.

    Args:
      text: in the generic form or a custom form of the dialect.
      function: its name; the only one, or `main`, by default.

    Raises:
      FormatError: the text is not well-formed MLIR, or an operation is not one of the dialect.
      UnsupportedError: it has something that TOSA 1.0 does not have.
      ImportError: xDSL is not installed.
      ValueError: there is no such function.
    """
    return module.read(text, function, Source("MLIR text"))


def to_text(graph: Graph) -> str:
    """Writes a graph as MLIR text, in the generic form that all tools read.

    `read_text` gives an equal graph, but for its quantization, and for tensors that no node reads
    or writes. Names that MLIR cannot have, and those of subgraphs, are in the locations.

    Raises:
      ValueError: MLIR cannot express something.
    """
    return writer.to_text(graph)


def read_bytecode(data: bytes, function: str | None = None) -> Graph:
    """Reads a function of MLIR bytecode as a graph.

    That of the dialect of TOSA 1.0, of LLVM 21 and newer, is read by way of tosa-opt.

    Args:
      data: the content of a file.
      function: its name; the only one, or `main`, by default.

    Raises:
      FormatError: it is not well-formed bytecode.
      UnsupportedError: it has a dialect that is not known, or something that TOSA 1.0 does not
        have, or properties that may mean two things.
      ImportError: xDSL is not installed, or tosa-tools, for the dialect of TOSA 1.0.
      ValueError: there is no such function.
    """
    header = bytecode.header(data)
    source = Source("MLIR bytecode", str(header.version), header.producer)
    return module.read(bytecode.as_text(data), function, source)


def to_bytecode(graph: Graph) -> bytes:
    """Writes a graph as MLIR bytecode, by way of tosa-opt.

    Raises:
      ImportError: tosa-tools is not installed.
      ValueError: MLIR cannot express something, or tosa-opt refuses the graph.
    """
    return bytecode.of_text(writer.to_text(graph, keep_names=True))
