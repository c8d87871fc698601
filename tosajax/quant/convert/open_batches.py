"""Graphs of any batch: a model is of one example, and its frozen graph of any batch again."""

from __future__ import annotations

from tosajax.from_jax import dynamic
from tosajax.graph import DYNAMIC, Graph
from tosajax.passes.binding import bind
from tosajax.quant.convert.graphs import as_converted, converted
from tosajax.quant.convert.operands import rounded_operands, with_rounded_operands
from tosajax.quant.graphs.simplify import simplify
from tosajax.quant.model.plan import Plan
from tosajax.report import UnsupportedError

# A size that few other dimensions have a multiple of by chance.
_SIZE = dynamic.SIZES[-1]


def for_one_example(graph: Graph) -> Graph:
    """A graph of any batch, for one example; any other graph as it is."""
    shapes = [tensor.shape or () for tensor in graph.input_tensors]
    is_batch = any(shapes) and all(DYNAMIC not in shape[1:] for shape in shapes)
    return bind(graph, batch=1) if graph.is_dynamic and is_batch else graph


def for_any_batch(first: Graph, plan: Plan, source: Graph) -> Graph:
    """The graph of a model, for any batch.

    Args:
      first: the graph for one example.
      plan: the model's plan.
      source: the float graph, of any batch.

    Raises:
      UnsupportedError: more than its sizes depends on the batch.
    """
    simple, options = simplify(bind(source, batch=_SIZE)), plan.options
    if operands := rounded_operands(simple, options.rules):
        second, _ = with_rounded_operands(simple, operands)
    else:
        second, _ = converted(as_converted(simple, options), plan.norms, options)
    try:
        return dynamic.merged(first, second)
    except UnsupportedError as error:
        instead = "prepare(tosajax.bind(graph, batch=1)) freezes one of that batch"
        raise UnsupportedError(f"freeze of a graph of any batch: {error}; {instead}") from None
