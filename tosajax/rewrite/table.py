"""Reduces the resolution of TABLE."""

from __future__ import annotations

import dataclasses

import numpy as np

from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft, rewritten


def table_resolution(graph: Graph, bits: int, where: str | None = None) -> Graph:
    """The graph whose TABLEs have 2**bits segments, linear between their end points.

    An int8 table has 2**8 entries, an int16 table 2**9 segments. Entries inside a segment are
    interpolated and rounded half up; the last entry of the table stays.

    Args:
      graph: a legal graph; tables are constants.
      bits: the width of the segment index, at least 1; a table with at most 2**bits segments stays
        as it is.
      where: a regular expression, found in the nodes' outputs or locations; None for all.

    Raises:
      ValueError: bits is below 1, no TABLE matches, or no matching one has a constant table.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import rewrite
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1,))
      >>> squares = np.square(np.arange(-128, 128)) // 256
      >>> table = b.const(squares, tosajax.DType.INT8, name="table")
      >>> graph = rewrite.table_resolution(b.graph([b.op("TABLE", x, table)]), 2)
      >>> (table,) = [t.values for t in graph.tensors.values() if t.values is not None]
      >>> table[:64:16].tolist()
      [64, 52, 40, 28]
    """
    if bits < 1:
        raise ValueError(f"a table of {bits} bits, expected at least 1")

    def change(draft: Draft, node: Node) -> list[Node] | None:
        if node.op != "TABLE":
            return None
        name, table = node.inputs
        tensor = draft.tensors[table]
        if tensor.values is None:
            raise ValueError(f"table {table!r} is not a constant")
        coarse = draft.const(f"{table}/{bits}", _coarse(tensor.values, bits), tensor.dtype)
        return [dataclasses.replace(node, inputs=(name, coarse))]

    return rewritten(graph, where, "TABLE", change)


def _coarse(table: np.ndarray, bits: int) -> np.ndarray:
    last = len(table) - 1  # 255 or 512
    step = 1 << max(0, last.bit_length() - bits - (len(table) % 2))
    start = np.arange(len(table)) // step * step
    end = np.minimum(start + step, last)
    width = np.maximum(end - start, 1)
    wide = table.astype(np.int32)
    offset = np.arange(len(table)) - start
    rise = (wide[end] - wide[start]) * offset
    return (wide[start] + (2 * rise + width) // (2 * width)).astype(table.dtype)
