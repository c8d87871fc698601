"""Binding of open dimensions, in tensors and in constant shapes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, TosaError


def open_graph() -> tosajax.Graph:
    """Flattens, slices and shifts images of any number, as converters write it."""
    b = Builder()
    x = b.input("x", DType.INT32, (-1, 2, 3))
    flat = b.op("RESHAPE", x, b.const_shape([-1, 6], name="dims"), shape=(-1, 6), name="flat")
    start, size = b.const_shape([0, 1]), b.const_shape([-1, 4], name="size")
    part = b.op("SLICE", flat, start, size, shape=(-1, 4), name="part")
    one = b.const(np.ones((1, 1)), DType.INT32)
    return b.graph(outputs=[b.op("ADD", part, one, shape=(-1, 4), name="y")])


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_batch_reaches_every_tensor_and_constant_shape(batch):
    graph = open_graph()
    assert graph.is_dynamic
    bound = tosajax.bind(graph, batch=batch)
    assert not bound.is_dynamic
    assert bound.tensors["flat"].shape == (batch, 6)
    assert bound.tensors["y"].shape == (batch, 4)
    assert tosajax.validate(bound).findings == ()
    x = np.arange(batch * 6, dtype=np.int32).reshape(batch, 2, 3)
    (y,) = tosajax.compile(bound)(x)
    np.testing.assert_array_equal(y, x.reshape(batch, 6)[:, 1:5] + 1)


def test_one_constant_shape_may_serve_nodes_of_different_sizes():
    b = Builder()
    x = b.input("x", DType.INT8, (-1, 4))
    y = b.input("y", DType.INT8, (3, 8))
    dims = b.const_shape([-1, 2])
    outs = [
        b.op("RESHAPE", x, dims, shape=(-1, 2)),
        b.op("RESHAPE", y, dims, shape=(-1, 2)),
    ]
    bound = tosajax.bind(b.graph(outputs=outs), batch=5)
    assert [t.shape for t in bound.output_tensors] == [(10, 2), (12, 2)]
    assert tosajax.validate(bound).findings == ()


def test_a_constant_shape_that_is_known_stays():
    b = Builder()
    b.input("x", DType.INT8, (-1, 6))
    dims = b.const_shape((2, 3), name="dims")
    y = b.op("RESHAPE", b.input("y", DType.INT8, (6,)), dims)
    bound = tosajax.bind(b.graph(outputs=[y]), batch=5)
    assert [node.op for node in bound.nodes] == ["CONST_SHAPE", "RESHAPE"]


def test_an_open_size_ends_with_its_dimension():
    b = Builder()
    x = b.input("x", DType.INT8, (-1, 6))
    y = b.op("SLICE", x, b.const_shape([2, 1]), b.const_shape([-1, -1]), shape=(-1, -1))
    bound = tosajax.bind(b.graph(outputs=[y]), batch=5)
    assert [t.shape for t in bound.output_tensors] == [(3, 5)]
    assert tosajax.validate(bound).findings == ()


def test_a_graph_without_open_dimensions_is_unchanged():
    bound = tosajax.bind(open_graph(), batch=3)
    assert tosajax.bind(bound, batch=9) is bound


def test_binding_by_whole_shapes():
    b = Builder()
    x = b.input("x", DType.FP32, (-1, -1, 3))
    graph = b.graph(outputs=[b.op("EXP", x, shape=(-1, -1, 3))])
    bound = tosajax.bind(graph, shapes={"x": (2, 5, 3)})
    assert bound.output_tensors[0].shape == (2, 5, 3)
    with pytest.raises(ValueError, match=r"'x' is FP32\[\?,\?,3\].*shapes="):
        tosajax.bind(graph, batch=2)
    with pytest.raises(ValueError, match=r"cannot have shape \(2, 5, 4\)"):
        tosajax.bind(graph, shapes={"x": (2, 5, 4)})


def test_unranked_tensors_get_their_shape():
    graph = open_graph()
    loose = dataclasses.replace(graph.tensors["part"], shape=None)
    graph = dataclasses.replace(graph, tensors={**graph.tensors, "part": loose})
    assert tosajax.bind(graph, batch=2).tensors["part"].shape == (2, 4)


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"inputs": ("x",)}, "reshape.inputs"),
        ({"inputs": ("x", "lost")}, "graph.undefined"),
        ({"inputs": ("x", "x")}, "reshape.types"),
        ({"inputs": ("dims", "dims")}, "reshape.types"),
        ({"outputs": ()}, "graph.undefined"),
        ({"outputs": ("lost",)}, "graph.undefined"),
        ({"op": "NOISE"}, "graph.operator"),
        ({"attributes": {"more": 1}}, "reshape.attributes"),
    ],
    ids=str,
)
def test_illegal_open_graphs_are_refused_by_rule(change, label):
    graph = open_graph()
    position = next(i for i, n in enumerate(graph.nodes) if n.op == "RESHAPE")
    nodes = list(graph.nodes)
    nodes[position] = dataclasses.replace(nodes[position], **change)
    graph = dataclasses.replace(graph, nodes=tuple(nodes))
    for use in (
        lambda: tosajax.bind(graph, batch=2),
        lambda: tosajax.compile(graph, batch=2),
        lambda: tosajax.compile(graph),
    ):
        with pytest.raises(TosaError, match=label.replace(".", r"\.")):
            use()


def test_shape_rule_that_cannot_be_followed():
    b = Builder()
    x = b.input("x", DType.INT8, (-1, 3))
    start, size = b.const_shape([0]), b.const_shape([1, -1])
    graph = b.graph(outputs=[b.op("SLICE", x, start, size, shape=(1, -1), name="part")])
    with pytest.raises(TosaError, match=r"SLICE 'part': start has 1 elements, .*slice\.e1"):
        tosajax.bind(graph, batch=2)


def test_batch_below_one():
    with pytest.raises(ValueError, match="batch is 0"):
        tosajax.bind(open_graph(), batch=0)


def test_shapes_that_do_not_fit_name_the_node():
    b = Builder()
    x = b.input("x", DType.INT32, (-1, 3))
    y = b.input("y", DType.INT32, (4, 3))
    graph = b.graph(outputs=[b.op("ADD", x, y, shape=(-1, 3), name="sum")])
    assert tosajax.bind(graph, batch=1).output_tensors[0].shape == (4, 3)
    with pytest.raises(TosaError, match="'sum'"):
        tosajax.validate(tosajax.bind(graph, batch=2)).raise_errors()


def test_size_that_does_not_divide_is_an_error_of_the_node():
    b = Builder()
    x = b.input("x", DType.INT8, (-1, 3))
    graph = b.graph(outputs=[b.op("RESHAPE", x, b.const_shape([-1, 2]), shape=(-1, 2), name="r")])
    with pytest.raises(TosaError, match="RESHAPE 'r'"):
        tosajax.compile(graph, batch=3)
    assert tosajax.compile(graph, batch=2).graph.output_tensors[0].shape == (3, 2)
