"""The texts and numbers of Executable.cost and explain."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from programs import below, doubled, loop

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.runtime.cost import _slow_kernels, peak_bytes

CPU = pytest.mark.skipif(jax.default_backend() != "cpu", reason="looks for XLA:CPU's kernels")


def chain() -> Graph:
    """Tensors of 16, 64, 64 and 8 bytes: those of 64 are alive together."""
    b = Builder()
    x = b.input("x", DType.INT32, (4,))
    wide = b.op("TILE", x, b.const_shape((4,)))
    same = b.op("ABS", wide)
    return b.graph([b.op("SLICE", same, b.const_shape((0,)), b.const_shape((2,)))])


def test_peak_bytes():
    assert peak_bytes(chain()) == 128
    b = Builder()
    x = b.input("x", DType.INT8, (10,))
    y = b.op("IDENTITY", b.op("IDENTITY", x))
    assert peak_bytes(b.graph([y])) == 20
    b = Builder()
    x = b.input("x", DType.INT32, (10,))
    y = b.op("ABS", b.op("ABS", x))
    assert peak_bytes(b.graph([y])) == 80
    assert peak_bytes(b.graph([b.op("ADD", x, y)])) == 120  # x stays alive
    b = Builder()
    x = b.input("x", DType.INT8, (10,))
    first = b.op("ABS", b.op("CAST", x, dtype=DType.INT32))
    rest = b.op("ABS", b.op("ABS", first))
    assert peak_bytes(b.graph([first, rest])) == 120  # an output stays alive


def test_shapes_are_not_counted():
    tile, *_ = tosajax.compile(chain()).cost().nodes
    assert (tile.title.split(" ")[0], tile.bytes) == ("TILE", 16 + 64)


def test_cost_of_a_network(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    cost = tosajax.compile(graph, batch=8).cost()
    heavy = [n for n in cost.nodes if n.macs]
    assert {n.title.split(" ")[0] for n in heavy} >= {"CONV2D"}
    assert cost.macs == sum(n.macs for n in heavy) > 0
    assert all(n.route and n.reason for n in heavy)
    assert cost.warnings == ()
    first = next(n for n in heavy if n.title.startswith("CONV2D"))
    node = next(n for n in graph.nodes if n.title == first.title)
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs)]
    assert first.bytes == sum(math.prod(t.shape or ()) * t.dtype.storage.itemsize for t in tensors)


def test_explain_is_a_table(data):
    run = tosajax.compile(tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa"), batch=8)
    lines = [line for line in run.explain().splitlines() if not line.startswith("not native: ")]
    head, *rows, total, last = lines
    assert head.split() == ["node", "output", "MACs", "bytes", "route", "why"]
    assert total.startswith("all nodes")
    assert len(rows) == sum(n.macs > 0 for n in run.cost().nodes)
    assert "bytes of tensors at a time" in last


@CPU
def test_a_node_without_a_fast_kernel_is_named():
    """A float convolution in a loop is the one case that users can cause."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 12, 12, 16))
    weight = b.const(np.ones((16, 3, 3, 16)), DType.FP32)
    zero = b.const([0], DType.FP32)
    y = b.op(
        "CONV2D", x, weight, b.const(np.zeros(16), DType.FP32), zero, zero, name="inner",
        pad=(1, 1, 1, 1), stride=(1, 1), dilation=(1, 1), acc_type=DType.FP32,
    )  # fmt: skip
    graph = b.graph([y])
    assert tosajax.compile(graph, batch=8).cost().warnings == ()
    assert tosajax.compile(graph, batch=8, micro_batch=2).cost().warnings == ()
    options = {"micro_batch": 2, "devices": jax.devices()[:1], "native": False}
    run = tosajax.compile(graph, batch=8, **options)
    (warning,) = run.cost().warnings
    assert warning == "CONV2D 'inner': XLA has no fast kernel for this convolution"
    assert f"warning: {warning}" in run.explain()


def test_kernels_in_the_text_of_a_program():
    a, b, c = (
        f"metadata={{op_name=\"jit(function)/vmap(MATMUL '{n}')/route dot; one tap/dot_general\"}}"
        for n in "abc"
    )
    program = "\n".join(
        [
            "%fast (p: s8[2,2]) -> s32[2,2] {",
            f"  ROOT %dot.1 = s32[2,2]{{1,0}} dot(%p, %p), {a}",
            "}",
            "ENTRY %main (p: s8[2,2]) -> s32[2,2] {",
            '  %y = s32[2,2]{1,0} fusion(%p), calls=%fast, config={"kind":"__ynn_fusion"}',
            f"  %dot.2 = s32[2,2]{{1,0}} dot(%y, %y), {b}",
            f"  %dot.3 = f32[2,2]{{1,0}} dot(%y, %y), {c}",
            "}",
        ]
    )
    assert _slow_kernels(program) == {"MATMUL 'b'": "dot"}


@pytest.mark.parametrize(
    "name",
    ["a/b (c)", 'say "x"', "it's", 'it\'s "x"', "route x; y", "MATMUL 'z'", "back\\", "ä\n" * 150],
)
def test_names_of_any_form(name):
    b = Builder()
    x = b.input("x", DType.INT8, (2, 8, 8))
    zero = b.const([0], DType.INT8)
    run = tosajax.compile(b.graph([b.op("MATMUL", x, x, zero, zero, name=name)]), native=False)
    (node,) = (n for n in run.cost().nodes if n.macs)
    assert (node.route, node.reason) == ("dot", "int8")


def test_graphs_in_graphs():
    cost = tosajax.compile(loop(below(5), doubled())).cost()
    assert [n.title.split(" ")[0] for n in cost.nodes] == ["WHILE_LOOP", "GREATER", "ADD", "ADD"]


def test_a_route_is_that_of_the_innermost_node():
    b = Builder("squared")
    i, x = b.input("i", DType.INT32, (1,)), b.input("x", DType.FP32, (1, 8, 8))
    zero = b.const([0], DType.FP32)
    body = b.graph([b.op("ADD", i, b.const([1], DType.INT32)), b.op("MATMUL", x, x, zero, zero)])
    b = Builder("few")
    i, _ = b.input("i", DType.INT32, (1,)), b.input("x", DType.FP32, (1, 8, 8))
    few = b.graph([b.op("GREATER", b.const([3], DType.INT32), i)])
    nodes = tosajax.compile(loop(few, body)).cost().nodes
    routes = {n.title.split(" ")[0]: n.route for n in nodes}
    assert (routes["WHILE_LOOP"], routes["MATMUL"]) == ("", "float dot")


def test_open_dimensions():
    b = Builder()
    run = tosajax.compile(b.graph([b.op("ABS", b.input("x", DType.INT32, (-1,)))]))
    with pytest.raises(ValueError, match="input 'x' has open dimensions"):
        run.cost()
