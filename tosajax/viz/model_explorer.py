"""Data that Google's Model Explorer shows on the graph of a model: a number for each node.

The file holds "custom node data" for a single graph. The viewer applies it to the graph that it
shows when the file is opened, and finds the node of a result by its key:

- in a .tosa file, shown by Arm's adapter (tosa-adapter-model-explorer), operator k of the region
  "main" is node "main/op<k>". Constants count; VARIABLE, which files hold as a tensor, does not;
- in a .tflite file, a key is the name of a tensor that the node computes. A graph that was
  converted from the file with debug information has the names in its locations, in which the last
  tensor is the TFLite operator's own;
- in an .mlir file, keys are the same names, if the viewer is set to name tensors by their
  locations; nodes have no other names there.

The viewer ignores results that match no node, so one file serves all three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tosajax.graph import Graph
from tosajax.graph.locations import tensors_at

if TYPE_CHECKING:
    from tosajax.compare import Comparison, Row

# Columns in which more is better, and columns in which less is better.
_GAINS = ("sqnr", "cosine")
_LOSSES = (
    "share", "mismatches", "max_error", "max_ulp", "mean_abs_error", "clipped_a", "clipped_b",
)  # fmt: skip
# Light to dark orange: the lightness differs for any colour vision.
_FINE, _BAD = "#fff4e5", "#b34700"


def node_data(
    comparison: Comparison, column: str = "sqnr", graph: Graph | None = None
) -> dict[str, Any]:
    """A number of a comparison for each node, for Model Explorer.

    Colours range from light for the best to dark for the worst number. Infinities, which JSON
    lacks, are strings in the colour of their end of the range; tensors without a number are left
    out. For a node with several outputs, the worst number counts.

    Args:
      comparison: the comparison to show.
      column: "sqnr", "cosine", "share" of elements that differ, "mismatches", "max_error",
        "max_ulp", "mean_abs_error", "clipped_a" or "clipped_b", as in `Measured`; the prefix
        "local_" selects the number of the layer by itself.
      graph: the graph a as read from its file, which has the nodes of .tosa files and the names of
        .tflite files; without it, results are keyed by the names and locations of a's tensors.

    Returns:
      Values for JSON: results by key, and their colour gradient.

    Raises:
      KeyError: there is no such column.

    Example:
      >>> import tosajax
      >>> from tosajax import compare, viz
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> viz.node_data(compare.compare(graph, graph), "max_error", graph)["results"]
      {'main/op0': {'value': 0}}
    """
    name = column.removeprefix("local_")
    if name not in (*_GAINS, *_LOSSES):
        raise KeyError(f"no column {column!r}, expected one of {', '.join((*_GAINS, *_LOSSES))}")
    low, high, worst = (_BAD, _FINE, min) if name in _GAINS else (_FINE, _BAD, max)
    values = {
        row.tensor: value
        for row in comparison.rows
        if (value := _finite_value(row, name, local=name != column)) is not None
    }
    results: dict[str, Any] = {}
    for key, tensors in _keys(comparison.rows, graph).items():
        if numbers := [values[tensor] for tensor in tensors if tensor in values]:
            results[key] = _result(worst(numbers), low, high)
    gradient = [{"stop": 0, "bgColor": low}, {"stop": 1, "bgColor": high}]
    return {"results": results, "gradient": gradient}


def _finite_value(row: Row, name: str, *, local: bool) -> float | None:
    measured = row.local if local else row.total
    value = None if measured is None else getattr(measured, name)
    return None if value is None or math.isnan(value) else value


def _result(value: float, low: str, high: str) -> dict[str, Any]:
    if math.isfinite(value):
        return {"value": value}
    return {"value": str(value), "bgColor": high if value > 0 else low}


def _keys(rows: Sequence[Row], graph: Graph | None) -> dict[str, Sequence[str]]:
    """The tensors of each key."""
    if graph is None:
        located = {row.location: [row.tensor] for row in rows if row.location}
        return {**located, **{row.tensor: [row.tensor] for row in rows}}
    compared = {row.tensor for row in rows}
    operators = [node for node in graph.nodes if node.op != "VARIABLE"]
    keys: dict[str, Sequence[str]] = {
        f"{graph.name}/op{at}": node.outputs for at, node in enumerate(operators)
    }
    for name, tensors in tensors_at(graph).items():
        keys[name] = [tensor for tensor in tensors if tensor in compared][-1:]
    return keys
