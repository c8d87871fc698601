"""Variables as inputs and outputs: the same values call by call, in both directions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph, UnsupportedError, rewrite

FP32 = DType.FP32
ROW = (1, 3)


def two_variables() -> Graph:
    """Reads before, between and after writes; one variable has an initial value."""
    b = Builder()
    x = b.input("x", FP32, ROW)
    b.variable("total", FP32, ROW, initial_value=np.array([[1, 2, 3]], np.float32))
    b.variable("last", FP32, ROW)
    b.write("last", b.op("ADD", x, b.read("last", FP32, ROW)))
    b.write("total", b.op("ADD", b.read("total", FP32, ROW), b.read("last", FP32, ROW)))
    b.write("total", b.op("ADD", b.read("total", FP32, ROW), x, name="again"))
    return b.graph([b.read("total", FP32, ROW), b.read("last", FP32, ROW)])


def inputs(steps: int = 3) -> list[np.ndarray]:
    return [*np.random.default_rng(0).normal(size=(steps, *ROW)).astype(np.float32)]


def outputs_of_calls(graph: Graph) -> list[list[np.ndarray]]:
    executable = tosajax.compile(graph)
    return [[np.asarray(y) for y in executable(x)] for x in inputs()]


def test_the_values_call_by_call():
    graph = two_variables()
    pure, states, initial = rewrite.variables_to_states(graph)
    tosajax.validate(pure).raise_errors()
    assert pure.inputs == ("x", "total", "last")
    assert states == {"total": "total/next", "last": "last/next"}
    assert list(initial) == ["total"]
    assert not [node for node in pure.nodes if node.op.startswith("VARIABLE")]
    carried = {"last": np.zeros(ROW, np.float32), **initial}
    for x, wanted in zip(inputs(), outputs_of_calls(graph), strict=True):
        *outputs, total, last = tosajax.run(pure, x, carried["total"], carried["last"])
        for y, other in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(y, other)
        carried = {"total": np.asarray(total), "last": np.asarray(last)}


def test_back_again():
    graph = two_variables()
    pure, states, initial = rewrite.variables_to_states(graph)
    again = rewrite.states_to_variables(pure, states, initial)
    assert (again.inputs, len(again.outputs)) == (("x",), 2)
    for ys, wanted in zip(outputs_of_calls(again), outputs_of_calls(graph), strict=True):
        for y, other in zip(ys, wanted, strict=True):
            np.testing.assert_array_equal(y, other)


def test_names_that_are_taken():
    b = Builder()
    x = b.input("count", DType.INT32, (1,))
    b.variable("count", DType.INT32, (1,))
    b.write("count", b.op("ADD", x, b.read("count", DType.INT32, (1,)), name="count/next"))
    pure, states, _ = rewrite.variables_to_states(b.graph([x]))
    assert pure.inputs == ("count", "count'")
    assert states == {"count'": "count/next'"}


def test_a_graph_without_variables():
    b = Builder()
    x = b.input("x", FP32, ROW)
    graph = b.graph([b.op("ADD", x, x)])
    pure, states, initial = rewrite.variables_to_states(graph)
    assert tosajax.run(pure, np.ones(ROW, np.float32))[0].tolist() == [[2, 2, 2]]
    assert (states, initial) == ({}, {})


def test_a_variable_inside_of_a_branch_is_refused():
    b = Builder("then")
    x = b.input("x", FP32, ROW)
    b.write("v", x)
    then = b.graph([x])
    b = Builder("else")
    otherwise = b.graph([b.input("x", FP32, ROW)])
    b = Builder()
    c, x = b.input("c", DType.BOOL, (1,)), b.input("x", FP32, ROW)
    b.variable("v", FP32, ROW)
    graphs: Any = {"then_graph": b.subgraph(then), "else_graph": b.subgraph(otherwise)}
    graph = b.graph(b.ops("COND_IF", c, x, names=["y"], **graphs))
    with pytest.raises(UnsupportedError, match=r"VARIABLE_WRITE.*inside of a loop or a branch"):
        rewrite.variables_to_states(graph)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"z": "y"}, "states has 'z', which is not an input of graph 'main'"),
        ({"x": "z"}, "states has 'z', which is not an output of graph 'main'"),
    ],
)
def test_unknown_names(states, message):
    b = Builder()
    x = b.input("x", FP32, ROW)
    graph = b.graph([b.op("ADD", x, x, name="y")])
    with pytest.raises(ValueError, match=message):
        rewrite.states_to_variables(graph, states)


@pytest.mark.parametrize("dtype", [DType.INT16, DType.INT32])
def test_a_type_that_variables_do_not_have(dtype):
    b = Builder()
    x = b.input("x", dtype, ROW)
    graph = b.graph([b.op("IDENTITY", x, name="y")])
    message = f"state 'x' is {dtype.name}, and variables are FP16, FP32, INT8"
    with pytest.raises(UnsupportedError, match=message):
        rewrite.states_to_variables(graph, {"x": "y"})


def test_other_facts_of_the_graph_stay():
    graph = dataclasses.replace(two_variables(), name="net")
    assert rewrite.variables_to_states(graph).graph.name == "net"
