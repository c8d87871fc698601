"""Passes that rewrite an exported graph in fewer nodes, as one would write it by hand."""

from __future__ import annotations

from tosajax import spec
from tosajax.from_jax.tidy.biases import with_biases
from tosajax.from_jax.tidy.clamps import with_single_clamps
from tosajax.from_jax.tidy.factors import with_single_factors
from tosajax.from_jax.tidy.padding import with_padding
from tosajax.from_jax.tidy.views import with_few_moves
from tosajax.from_jax.written import Written
from tosajax.graph import Graph
from tosajax.passes.folding import fold

__all__ = ["tidied"]


def tidied(written: Written) -> Written:
    """The graph in fewer nodes, with the same inputs and outputs.

    Cancels moves, turns ADDs into biases and PADs into padding, and merges CLAMPs and factors.

    Args:
      written: a legal graph, every dimension known.
    """
    candidates = [
        _without_dead(with_padding(with_biases(each)))
        for each in (written, with_few_moves(written))
    ]
    shorter = min(candidates, key=lambda each: _node_count(each.graph))
    return _without_dead(with_single_factors(with_single_clamps(shorter)))


def _without_dead(written: Written) -> Written:
    return Written(fold(written.graph), written.origins)


def _node_count(graph: Graph) -> int:
    return sum(node.op not in spec.CONSTANT_OPERATORS for node in graph.nodes)
