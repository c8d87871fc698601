"""Recorded calls of every operator and type row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, JaxprEqn
from oracle.device import to_device
from oracle.legal_graphs import OPERATORS, legal_graph
from oracle.operands import SMALL, draw_operands
from oracle.transforms import assert_identical

from tosajax import Graph, ops, spec
from tosajax.graph import arguments
from tosajax.ops.recording import operator_p, recording
from tosajax.spec import Form, Kind

COMPUTING = [operator for operator in OPERATORS if operator.inputs]
ROWS = [(operator, row) for operator in COMPUTING for row in operator.types]


def each_row() -> pytest.MarkDecorator:
    """Every type row; those after an operator's first are left to slow runs."""
    return pytest.mark.parametrize(
        ("operator", "row"),
        [
            pytest.param(
                operator, row, id=f"{operator.name}-{row.mode}",
                marks=() if row is operator.types[0] else pytest.mark.slow,
            )
            for operator, row in ROWS
        ],
    )  # fmt: skip


def record(function: Callable[..., Any], *operands: Any) -> ClosedJaxpr:
    with recording():
        return jax.make_jaxpr(function)(*operands)


def recorded(jaxpr: ClosedJaxpr) -> list[JaxprEqn]:
    return [eqn for eqn in jaxpr.eqns if eqn.primitive is operator_p]


def names(jaxpr: ClosedJaxpr) -> list[str]:
    return [eqn.params["op"] for eqn in recorded(jaxpr)]


def told(eqn: JaxprEqn) -> dict[str, Any]:
    """The arguments of a recorded call, with a number for each array."""
    return eqn.params["call"].arguments(range(len(eqn.invars)))


class OneCall:
    """The call of a function that a graph of one node stands for.

    Attributes:
      operands: the arrays among its arguments.
    """

    def __init__(self, operator: spec.Operator, graph: Graph, values: dict[str, np.ndarray]):
        node = graph.nodes[-1]
        found = arguments(operator, node.inputs, Kind.INPUT)
        self.function = getattr(ops, operator.name.lower())
        self.attributes = dict(node.attributes)
        if operator.needs_out_type:
            self.attributes["out_type"] = graph.output_tensors[0].dtype
        self.operands: list[jax.Array] = []
        self.inputs: list[Any] = []  # The places of operands, and shapes.
        for argument in operator.inputs:
            names = found[argument.name]
            if argument.form is Form.SHAPE:
                shape = graph.tensors[names].values
                assert shape is not None
                self.inputs.append(tuple(shape.tolist()))
            elif argument.form is Form.TENSOR_LIST:
                self.inputs.append([self._place(values[name]) for name in names])
            else:
                self.inputs.append(self._place(values[names]))

    def _place(self, value: np.ndarray) -> int:
        self.operands.append(to_device(value))
        return len(self.operands) - 1

    def __call__(self, *operands: jax.Array) -> Any:
        def at(places: Any) -> Any:
            if isinstance(places, list):
                return [operands[place] for place in places]
            return places if isinstance(places, tuple) else operands[places]

        return self.function(*map(at, self.inputs), **self.attributes)


def one_call(operator: spec.Operator, row: spec.TypeRow) -> tuple[OneCall, list[jax.Array]]:
    """A call, and for each operand two values, stacked."""
    graph = legal_graph(operator, row, **SMALL.get(operator.name, {}))
    stacked = draw_operands(operator, graph, np.random.default_rng(len(row.mode)))
    first = {name: values[0] for name, values in stacked.items()}
    call = OneCall(operator, graph, first)
    order = [name for name in graph.nodes[-1].inputs if name in stacked]
    return call, [to_device(stacked[name]) for name in order]


def assert_same(results: Any, expected: Any) -> None:
    found, wanted = jax.tree.leaves(results), jax.tree.leaves(expected)
    for one, other in zip(found, wanted, strict=True):
        assert_identical(one, other)
