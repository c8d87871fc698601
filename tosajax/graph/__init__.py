"""Graphs as frozen data, and analyses of them."""

from __future__ import annotations

from tosajax.graph.model import (
    DYNAMIC,
    Agreement,
    Graph,
    Node,
    Quantization,
    Rewrite,
    Source,
    Tensor,
    arguments,
    declared_variables,
    shape_fits,
)

__all__ = [
    "DYNAMIC",
    "Agreement",
    "Graph",
    "Node",
    "Quantization",
    "Rewrite",
    "Source",
    "Tensor",
    "arguments",
    "declared_variables",
    "shape_fits",
]


def __dir__() -> list[str]:
    return __all__
