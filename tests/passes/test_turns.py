"""Turns of loops that no input decides on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import recurrent
from programs import below, doubled, loop

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.passes.turns import turns

INT32 = DType.INT32


def counted(limit: int = 5, first: int = 0, step: int = 2, dtype: DType = INT32) -> Graph:
    """Adds a step to a counter while it is below a limit, and x to itself."""
    b = Builder("more")
    i, x = b.input("i", dtype, (1,)), b.input("x", INT32, (3,))
    more = b.graph([b.op("GREATER", b.const([limit], dtype), i)])
    b = Builder("turn")
    i, x = b.input("i", dtype, (1,)), b.input("x", INT32, (3,))
    turn = b.graph([b.op("ADD", i, b.const([step], dtype)), b.op("ADD", x, x)])
    b = Builder()
    x = b.input("x", INT32, (3,))
    return b.graph(recurrent.loop(b, more, turn, [b.const([first], dtype), x], ["i_end", "x_end"]))


@pytest.mark.parametrize(
    ("first", "step", "wanted"), [(0, 2, 3), (0, 1, 5), (4, 1, 1), (5, 1, 0), (-3, 4, 2)]
)
def test_counters(first, step, wanted):
    graph = counted(first=first, step=step)
    assert turns(graph) == {"i_end": wanted}
    (_, x) = tosajax.compile(graph)(np.ones(3, np.int32))
    np.testing.assert_array_equal(x, 2**wanted)


@pytest.mark.parametrize(
    "graph",
    [
        loop(below(5), doubled()),  # the counter is an input
        counted(dtype=DType.FP32),
        counted(step=0),  # without an end
        counted(limit=2**17, step=1),
    ],
    ids=["input", "float", "endless", "too-many"],
)
def test_unknown_turns(graph):
    assert turns(graph) == {}


def test_loops_in_graphs_of_loops_have_a_path():
    inner = dataclasses.replace(counted(), name="inner")
    b = Builder("turn")
    i, x = b.input("i", INT32, (1,)), b.input("x", INT32, (3,))
    more, add = inner.subgraphs.values()
    _, x = recurrent.loop(b, more, add, [b.const([0], INT32), x], ["j", "y"])
    turn = b.graph([b.op("ADD", i, b.const([1], INT32)), x])
    graph = counted(limit=2, step=1)
    graph = dataclasses.replace(graph, subgraphs={**graph.subgraphs, "turn": turn})
    assert turns(graph) == {"i_end": 2, "turn/j": 3}


def test_a_counter_that_another_state_moves():
    """The step of the counter is a state: constant at first, and changed by the loop."""
    states = [("i", INT32, (1,)), ("step", INT32, (1,)), ("x", INT32, (3,))]
    b = Builder("more")
    i, *_ = (b.input(*state) for state in states)
    more = b.graph([b.op("GREATER", b.const([10], INT32), i)])
    b = Builder("turn")
    i, step, x = (b.input(*state) for state in states)
    turn = b.graph([b.op("ADD", i, step), b.op("ADD", step, step), x])
    b = Builder()
    x = b.input(*states[2])
    operands = [b.const([0], INT32), b.const([1], INT32), x]
    graph = b.graph(recurrent.loop(b, more, turn, operands, ["i_end", "step_end", "x_end"]))
    assert turns(graph) == {"i_end": 4}  # 1 + 2 + 4 + 8
