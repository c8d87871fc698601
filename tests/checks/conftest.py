"""One-node graphs, and what validation says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tosajax import spec
from tosajax.builder import Builder
from tosajax.checks import RULES, Call
from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.validate import validate

Arguments = Mapping[str, Any]
Found = list[tuple[str, str]]


@pytest.fixture(scope="session")
def graph_of() -> Callable[[str, Arguments], Graph]:
    """Builds a graph of one operator from its arguments.

    A tensor is a tuple, its shape, for an input of the graph or an array for a constant; a
    shape_t input is a list; a tensor list is a list of tuples. "types" names a type row by its
    mode and stands for acc_type too; without it the first row is taken. Without an output shape
    the graph is good for deriving one.
    """
    return _graph


@pytest.fixture(scope="session")
def call_of() -> Callable[[str, Arguments], Call]:
    """The node of such a graph, as rules see it."""
    return _call


@pytest.fixture(scope="session")
def findings() -> Callable[[str, Arguments], Found]:
    """(label, message) of everything that validation finds in such a graph, at level 8K."""
    return lambda op, arguments: [
        (f.label, f.message) for f in validate(_graph(op, arguments)).findings
    ]


@pytest.fixture(scope="session")
def derived() -> Callable[[str, Arguments], tuple[int, ...]]:
    """The shape that follows from the arguments, for all outputs the same."""

    def derive(op: str, arguments: Arguments) -> tuple[int, ...]:
        rule = RULES[op].shape
        assert rule is not None
        shape, *others = rule(_call(op, arguments))
        assert all(other == shape for other in others)
        assert all(type(dim) is int for dim in shape)
        return shape

    return derive


@pytest.fixture(scope="session")
def exceeded() -> Callable[[str, Arguments], Found]:
    """(label, message) of the limits of level 8K that such a graph exceeds, legal or not."""

    def find(op: str, arguments: Arguments) -> Found:
        rule = RULES[op].levels
        assert rule is not None
        return [(p.label, p.message) for p in rule(_call(op, arguments), spec.LEVELS["8K"])]

    return find


def _graph(op: str, arguments: Arguments) -> Graph:
    operator = spec.OPERATORS[op]
    row = _row(operator, arguments)
    b = Builder()
    inputs: list[Tensor] = []
    for argument in operator.inputs:
        value = arguments[argument.name]
        if argument.form is spec.Form.TENSOR_LIST:
            dtype = _dtype(argument, row)
            inputs += [b.input(f"{argument.name}_{i}", dtype, s) for i, s in enumerate(value)]
        elif argument.form is spec.Form.SHAPE:
            inputs.append(b.const_shape(value))
        elif isinstance(value, tuple):
            inputs.append(b.input(argument.name, _dtype(argument, row), value))
        else:
            inputs.append(b.const(value, _dtype(argument, row, value)))
    attributes = {a.name: arguments[a.name] for a in operator.attributes if a.name in arguments}
    if "acc_type" in (a.name for a in operator.attributes):
        attributes["acc_type"] = row.types["acc_t"]
    results = b.ops(
        op,
        *inputs,
        shapes=[arguments.get(output.name, ()) for output in operator.outputs],
        dtypes=[_dtype(output, row) for output in operator.outputs],
        **attributes,
    )
    return b.graph(outputs=results)


def _call(op: str, arguments: Arguments) -> Call:
    graph = _graph(op, arguments)
    return Call(graph.nodes[-1], graph.tensors)


def _row(operator: spec.Operator, arguments: Arguments) -> spec.TypeRow:
    rows = {row.mode: row for row in operator.types}
    return rows[arguments["types"]] if "types" in arguments else operator.types[0]


def _dtype(argument: spec.Argument, row: spec.TypeRow, values: Any = None) -> DType:
    """The row's type, or that of the values where the row leaves it open."""
    found = (
        argument.dtype if isinstance(argument.dtype, DType) else row.types.get(str(argument.dtype))
    )
    return found if isinstance(found, DType) else DType[np.asarray(values).dtype.name.upper()]
