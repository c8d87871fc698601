"""Merges two successive products by constants into one."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.from_jax.written import Written
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.edit import Draft


class _Factor(NamedTuple):
    """A MUL of x by a constant; name is None if the constant is not in the graph yet."""

    x: str
    name: str | None
    values: np.ndarray
    shift: str


def with_single_factors(written: Written) -> Written:
    """The graph with a float32 MUL by a constant merged into a MUL that is its only reader.

    The result is rounded once instead of twice. A mean, which JAX writes as a sum divided by the
    count, becomes a plain AVG_POOL2D, as the factors cancel.
    """
    graph = written.graph
    readers = Counter(name for node in graph.nodes for name in node.inputs) + Counter(graph.outputs)
    factors: dict[str, _Factor] = {}
    same: dict[str, str] = {}  # product by 1 -> its operand
    draft = Draft(graph)
    for node in graph.ordered_nodes():
        node = dataclasses.replace(node, inputs=tuple(same.get(n, n) for n in node.inputs))
        factor = _factor(node, graph.tensors)
        before = None if factor is None else factors.get(factor.x)
        if factor is not None and before is not None and readers[factor.x] == 1:
            factor = _joined(before, factor) or factor
        if factor is None:
            draft.nodes.append(node)
        elif _is_nothing(graph, node, factor):
            same[node.outputs[0]] = factor.x
        else:
            factors[node.outputs[0]] = factor
            draft.nodes.append(_multiplied(draft, node, factor))
    return Written(draft.finished(), written.origins)


def _factor(node: Node, tensors: Mapping[str, Tensor]) -> _Factor | None:
    if node.op != "MUL" or tensors[node.outputs[0]].dtype is not DType.FP32:
        return None
    for x, name in (node.inputs[:2], node.inputs[1::-1]):
        values = tensors[name].values
        if values is not None and tensors[x].values is None:
            return _Factor(x, name, values, node.inputs[2])
    return None


def _joined(first: _Factor, second: _Factor) -> _Factor | None:
    """The merged factor; None if it overflows, is subnormal or 0, or has more elements."""
    with np.errstate(over="ignore", under="ignore"):
        product = (first.values * second.values).astype(np.float32)
    size = np.abs(product)
    is_normal = np.isfinite(size) & (size >= np.finfo(np.float32).tiny)
    if not is_normal.all() or product.size > max(first.values.size, second.values.size):
        return None
    return _Factor(first.x, None, product, first.shift)


def _is_nothing(graph: Graph, node: Node, factor: _Factor) -> bool:
    """Whether a product equals its operand x and is not an output of the graph."""
    (output,) = node.outputs
    shapes = [graph.tensors[name].shape for name in (factor.x, output)]
    return (
        shapes[0] == shapes[1] and bool((factor.values == 1).all()) and output not in graph.outputs
    )


def _multiplied(draft: Draft, node: Node, factor: _Factor) -> Node:
    """The MUL by a factor; adds the factor's constant to the draft if it is new."""
    name = factor.name
    if name is None:
        name = draft.const(f"{node.outputs[0]}/factor", factor.values, DType.FP32)
    return dataclasses.replace(node, inputs=(factor.x, name, factor.shift))
