"""Reads and writes SPIR-V modules: the instruction set TOSA.001000.1 in SPV_ARM_graph.

A module declares types and constants, and graphs whose instructions are TOSA's operators. Large
constants are external: the module has an id for each, and the application supplies the data.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosajax.graph import Graph
from tosajax.io.spirv.constants import given
from tosajax.io.spirv.module import Module
from tosajax.io.spirv.naming import renamed
from tosajax.io.spirv.reading import read_graph
from tosajax.io.spirv.writing import write_graph

__all__ = ["read", "to_bytes"]


def read(
    data: memoryview | bytes,
    constants: Mapping[int, np.ndarray] | None = None,
    graph: str | None = None,
) -> Graph:
    """Reads a graph of a module.

    64-bit integers become int48, the widest integers of TOSA. Specialization constants have their
    default values. If only a tensor's rank is known, its dimensions are open.

    Args:
      data: the module, in either byte order.
      constants: the data of external constants, by id, in the storage of their types (see
        `DType.storage`); bf16 and fp8 may also be given as their bits, in unsigned integers.
      graph: the name of an entry point; by default the only one, or `main`.

    Raises:
      FormatError: the module is not well formed, or a constant is missing or does not fit.
      UnsupportedError: the module has something that TOSA 1.0 does not have, or several graphs, of
        which none is `main`.
      ValueError: the module does not have a graph of this name.
    """
    result = read_graph(Module(data, given(constants)), graph)
    return renamed(result.graph, result.wishes)


def to_bytes(graph: Graph) -> tuple[bytes, dict[int, np.ndarray]]:
    """Writes a graph as a little-endian module of SPIR-V 1.6.

    IDENTITY nodes are removed, and equal constants are merged. Names and locations are kept.
    Constants whose elements are all equal, and lists of up to 16 elements, are in the module; all
    others are external.

    Args:
      graph: any graph of operators and types that the instruction set has; it is not validated.

    Returns:
      The module, and the data of the external constants, by id.

    Raises:
      UnsupportedError: the instruction set lacks an operator (control flow, variables, CUSTOM) or a
        type (int4, rank 0, a mix of open and known dimensions), or an operand that must be constant
        is not.
      ValueError: the graph is not well formed.
      TosaError: the nodes form a cycle.
    """
    return write_graph(graph)
