"""Rewrites of a graph, to try design choices: pure functions from legal graph to legal graph.

graph = rewrite.rounding(graph, "single")
graph = rewrite.bits(graph, 6, where="conv2")
"""

from __future__ import annotations

from tosajax.rewrite.cutting import cut
from tosajax.rewrite.floats import to_float
from tosajax.rewrite.output_bits import bits
from tosajax.rewrite.rescale import rounding, scale
from tosajax.rewrite.table import table_resolution
from tosajax.rewrite.unsigned_ends import unsigned
from tosajax.rewrite.variables import (
    WithoutVariables,
    states_to_variables,
    variables_to_states,
)

__all__ = [
    "WithoutVariables",
    "bits",
    "cut",
    "rounding",
    "scale",
    "states_to_variables",
    "table_resolution",
    "to_float",
    "unsigned",
    "variables_to_states",
]


def __dir__() -> list[str]:
    return __all__
