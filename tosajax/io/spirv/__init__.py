"""SPIR-V modules of graphs: the instruction set TOSA.001000.1 in SPV_ARM_graph.

A module declares types and constants, and graphs whose instructions are TOSA's operators. Large
constants lie outside of it: it has a number for each, and whoever runs it supplies the data.
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

    Integers of 64 bits become int48, the only such type of TOSA. Constants that a user of the
    module may choose have their default values. A tensor of which only the rank is known has open
    dimensions.

    Args:
      data: the module, of either byte order.
      constants: the data of constants outside, by number, in the storage of their types (see
        `DType.storage`); bf16 and fp8 may also be unsigned integers, their bits.
      graph: the name of an entry point; by default the only one, or `main`.

    Raises:
      FormatError: the module is not well formed, or a constant is missing or does not fit.
      UnsupportedError: it has something that TOSA 1.0 does not have, or several graphs of which
        none is `main`.
      ValueError: it has no graph of that name.
    """
    found = read_graph(Module(data, given(constants)), graph)
    return renamed(found.graph, found.wishes)


def to_bytes(graph: Graph) -> tuple[bytes, dict[int, np.ndarray]]:
    """A graph as a module of SPIR-V 1.6, little endian.

    Results of IDENTITY become what they are equal to, and equal constants one: `read` gives a graph
    without them. Names and locations are kept. Constants with equal elements, and lists of up to 16
    elements, are in the module; others are outside of it.

    Args:
      graph: any graph of the operators and types that the instruction set has; it is not validated.

    Returns:
      The module, and the data of constants outside by number.

    Raises:
      UnsupportedError: the instruction set lacks an operator (control flow, variables, CUSTOM) or a
        type (int4, rank 0, dimensions of which only some are open), or an operand that has to be
        constant is not.
      ValueError: the graph is not well formed.
      TosaError: its nodes form a cycle.
    """
    return write_graph(graph)
