"""Graphs with subgraphs, for tests of control flow and variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from tosajax import Builder, DType, Graph

INT32, BOOL = DType.INT32, DType.BOOL


def unary(op: str, name: str, dtype: DType = INT32, shape: tuple[int, ...] = (3,)) -> Graph:
    """A graph of one operator of one input."""
    b = Builder(name)
    x = b.input("x", dtype, shape)
    return b.graph([b.op(op, x, name="y")])


def plus(amount: int, name: str, shape: tuple[int, ...] = (3,)) -> Graph:
    """Adds a constant."""
    b = Builder(name)
    x = b.input("x", INT32, shape)
    constant = b.const(np.full(shape, amount), INT32, name="amount")
    return b.graph([b.op("ADD", x, constant, name="y")])


def choice(then_graph: Graph, else_graph: Graph, name: str = "main") -> Graph:
    """(flag, x) -> then_graph(x) or else_graph(x)."""
    b = Builder(name)
    flag = b.input("flag", BOOL, (1,))
    x = b.input("x", then_graph.input_tensors[0].dtype, then_graph.input_tensors[0].shape or ())
    names: dict[str, Any] = {
        "then_graph": b.subgraph(then_graph),
        "else_graph": b.subgraph(else_graph),
    }
    return b.graph([b.op("COND_IF", flag, x, name="chosen", **names)])


def below(limit: int, name: str = "below") -> Graph:
    """(i, x) -> i < limit."""
    b = Builder(name)
    i = b.input("i", INT32, (1,))
    b.input("x", INT32, (3,))
    return b.graph([b.op("GREATER", b.const([limit], INT32), i)])


def doubled(name: str = "doubled") -> Graph:
    """(i, x) -> (i + 1, x + x)."""
    b = Builder(name)
    i, x = b.input("i", INT32, (1,)), b.input("x", INT32, (3,))
    return b.graph([b.op("ADD", i, b.const([1], INT32)), b.op("ADD", x, x)])


def loop(condition: Graph, body: Graph, name: str = "main") -> Graph:
    """(i, x) -> their values when the condition no longer holds."""
    b = Builder(name)
    inputs = [b.input(t.name, t.dtype, t.shape or ()) for t in body.input_tensors]
    names: dict[str, Any] = {"cond_graph": b.subgraph(condition), "body_graph": b.subgraph(body)}
    return b.graph(b.ops("WHILE_LOOP", *inputs, names=[f"out_{t.name}" for t in inputs], **names))


def nested(depth: int) -> Graph:
    """A graph of `depth` nested COND_IFs, each taken while x has a positive element."""
    inner = plus(1, "innermost")
    for level in range(depth):
        b = Builder("main" if level == depth - 1 else f"level_{level}")
        x = b.input("x", INT32, (3,))
        zero = b.const([0, 0, 0], INT32)
        flag = b.op("REDUCE_ANY", b.op("GREATER", x, zero), axis=0)
        other = plus(-1, "other")
        names: dict[str, Any] = {"then_graph": b.subgraph(inner), "else_graph": b.subgraph(other)}
        inner = b.graph([b.op("COND_IF", flag, x, **names)])
    return inner


def accumulator(initial: list[int] | None = None) -> Graph:
    """x -> the sum of all x so far, kept in a variable."""
    b = Builder()
    x = b.input("x", DType.INT8, (3,))
    b.variable("sum", DType.INT8, (3,), initial_value=initial)
    wide = [b.op("CAST", t, dtype=INT32) for t in (b.read("sum", DType.INT8, (3,)), x)]
    new = b.op("CAST", b.op("ADD", *wide), dtype=DType.INT8, name="y")
    b.write("sum", new)
    return b.graph([new])
