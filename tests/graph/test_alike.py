"""`difference`: graphs that are the same but for names, and those that are not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tosajax import Builder, DType, Graph, Node, Tensor, spec
from tosajax.graph.alike import difference


def example(prefix: str = "", *, swap: bool = False, **changes: Any) -> Graph:
    """(x - y) + (x - 1), then clamped; with `swap` its first two nodes change places."""
    change = {"operands": ("x", "y"), "one": 1.0, "high": 2.0, "op": "ADD", "outputs": 1, **changes}
    b = Builder(f"{prefix}graph")
    ends = {name: b.input(f"{prefix}{name}", DType.FP32, (2, 3)) for name in ("x", "y")}
    one = b.const([[change["one"]]], DType.FP32, name=f"{prefix}one")
    sides = [tuple(ends[name] for name in change["operands"]), (ends["x"], one)]
    order = (1, 0) if swap else (0, 1)
    made = {at: b.op("SUB", *sides[at], name=f"{prefix}side{at}") for at in order}
    total = b.op(change["op"], made[0], made[1], name=f"{prefix}total")
    bounds: dict[str, Any] = {"min_val": np.float32(0), "max_val": np.float32(change["high"])}
    return b.graph([b.op("CLAMP", total, **bounds, name=f"{prefix}out")] * change["outputs"])


def test_names_and_the_order_of_nodes_do_not_count():
    assert difference(example(), example("other/")) is None
    assert difference(example(), example(swap=True)) is None
    moved = [dataclasses.replace(n, location="layer.py:3") for n in example().nodes]
    assert difference(example(), dataclasses.replace(example(), nodes=tuple(moved))) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"one": -1.0}, "the values of 'one' and 'one' differ"),
        ({"one": np.nan}, "the values of 'one'"),
        ({"high": 3.0}, "CLAMP 'out': max_val is 2.0, and 3.0"),
        ({"op": "SUB"}, "operators: 1 ADD more in the first, 1 SUB in the second"),
        ({"operands": ("y", "x")}, "'x' is 'x' and 'y'"),
        ({"operands": ("x", "x")}, "'y' is 'y' and 'x'"),
        ({"outputs": 2}, "1 outputs, and 2"),
    ],
    ids=str,
)
def test_what_is_not_the_same_is_named(changes: dict[str, Any], words: str):
    found = difference(example(), example(**changes))
    assert found is not None
    assert words in found


def test_defaults_may_be_left_out():
    graph = example()
    clamp = graph.nodes[-1]
    given = {**clamp.attributes, "nan_mode": spec.NanMode.PROPAGATE}
    others = [{**given, "nan_mode": mode} for mode in spec.NanMode]
    graphs = [
        dataclasses.replace(
            graph, nodes=(*graph.nodes[:-1], dataclasses.replace(clamp, attributes=attributes))
        )
        for attributes in others
    ]
    assert [difference(graph, other) is None for other in graphs] == [True, False]


def test_bits_of_constants_count():
    assert difference(example(one=np.nan), example(one=np.nan)) is None
    assert difference(example(one=0.0), example(one=-0.0)) is not None


def test_types_count():
    other = example()
    tensors = {**other.tensors, "total": Tensor("total", DType.FP32, (3, 2))}
    found = difference(example(), dataclasses.replace(other, tensors=tensors))
    assert found == "'total' is FP32[2,3], and 'total' is FP32[3,2] in the second"


def test_equal_constants_may_be_one():
    graphs = []
    for count in (1, 2):
        b = Builder("g")
        x = b.input("x", DType.INT32, (4,))
        ones = [b.const([1], DType.INT32) for _ in range(count)]
        graphs.append(b.graph([b.op("ADD", b.op("ADD", x, ones[0]), ones[-1])]))
    assert difference(*graphs) is None
    assert difference(*graphs[::-1]) is None


def test_two_tensors_are_not_one():
    """x + y, and x + x of a graph with an input more."""
    graphs = []
    for second in ("x", "y"):
        b = Builder("g")
        ends = {n: b.op("ABS", b.input(n, DType.INT32, (4,))) for n in ("x", "y")}
        graphs.append(b.graph([b.op("ADD", ends["x"], ends[second])]))
    assert difference(graphs[0], graphs[1]) is not None
    assert difference(graphs[1], graphs[0]) is not None


def branching(low: float) -> Graph:
    def branch(name: str, value: float) -> Graph:
        b = Builder(name)
        x = b.input("x", DType.FP32, (2,))
        return b.graph([b.op("ADD", x, b.const([value], DType.FP32))])

    b = Builder("main")
    condition, x = b.input("condition", DType.BOOL, ()), b.input("x", DType.FP32, (2,))
    parts = {"then": branch("then", 1.0), "else": branch("else", low)}
    names = {"then_graph": "then", "else_graph": "else"}
    node = Node("COND_IF", (condition.name, x.name), ("y",), names)
    graph = b.graph([x])
    tensors = {**graph.tensors, "y": Tensor("y", DType.FP32, (2,))}
    return dataclasses.replace(
        graph, nodes=(*graph.nodes, node), tensors=tensors, outputs=("y",), subgraphs=parts
    )


def test_subgraphs_count():
    assert difference(branching(2.0), branching(2.0)) is None
    found = difference(branching(2.0), branching(3.0))
    assert found is not None
    assert found.startswith("COND_IF 'y', else_graph: the values of")


def test_a_deep_graph_takes_no_recursion():
    b = Builder("deep")
    x = b.input("x", DType.INT32, (4,))
    y = x
    for _ in range(3000):
        y = b.op("ADD", y, y)
    assert difference(b.graph([y]), b.graph([y])) is None
