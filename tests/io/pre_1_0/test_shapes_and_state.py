"""Upgrades of shapes, control flow, CUSTOM and variables."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from old_graphs import Old, legal, values_of
from upgraded import (
    constant,
    nodes_of,
    notes,
    only_node,
    ops_of,
    refused,
    upgraded,
)

import tosajax
from tosajax import DType, FormatError, Source, UnsupportedError, spec
from tosajax.io.pre_1_0.model import OldGraph, OldNode, OldTensor
from tosajax.io.pre_1_0.upgrade import upgrade

# Shapes.


def shape_of(op: str, *operands: Any, dtype: str = "SHAPE") -> list[int]:
    """The shape that an operator makes of constants, as a RESHAPE gets it."""
    b = Old()
    x = b.input("INT8", (2, 3))
    result = np.asarray(operands[0], dtype=object)
    made = b.op(op, [b.const(dtype, o) for o in operands], "SHAPE", result.shape)
    graph = upgrade(b.graph(b.op("RESHAPE", [x, made], "INT8", None)), Source())
    assert ops_of(graph) == ["RESHAPE"]
    return constant(graph, only_node(graph).inputs[1])[1]


@pytest.mark.parametrize(
    ("op", "operands", "wanted"),
    [
        ("ADD", (2, 3), [5]),
        ("SUB", (2, 7), [-5]),
        ("MUL", (2, -3), [-6]),
        ("INTDIV", (7, 2), [3]),
        ("INTDIV", (-7, 2), [-3]),
        ("INTDIV", (7, -2), [-3]),
        ("INTDIV", (-7, -2), [3]),
        ("INTDIV", (0, -2), [0]),
        ("ADD_SHAPE", ([2, 3], [4, 5]), [6, 8]),
        ("SUB_SHAPE", ([2, 3], [4, 1]), [-2, 2]),
        ("MUL_SHAPE", ([2, 3], [4, 5]), [8, 15]),
        ("DIV_SHAPE", ([9, -9], [4, 4]), [2, -2]),
        ("ADD", ((1 << 62) - 1, 1 << 62), [(1 << 63) - 1]),
        ("SUB", (-(1 << 62), 1 << 62), [-(1 << 63)]),
        ("CONCAT", ([2, 3], [4]), [2, 3, 4]),
        ("CONCAT", ([2, 3],), [2, 3]),
        ("CONCAT_SHAPE", ([2], [4], [6]), [2, 4, 6]),
        ("CONCAT", (2, 3, 4), [2, 3, 4]),
        ("REVERSE", ([2, 3],), [3, 2]),
    ],
)
def test_shapes_are_folded(op, operands, wanted):
    assert shape_of(op, *operands) == wanted


@pytest.mark.parametrize(
    ("op", "operands", "error", "match"),
    [
        ("ADD", ((1 << 63) - 1, 1), UnsupportedError, "has 9223372036854775808, beyond 64 bits"),
        ("SUB", (-(1 << 63), 1), UnsupportedError, "has -9223372036854775809, beyond 64 bits"),
        ("MUL", (1 << 40, 1 << 40), UnsupportedError, "beyond 64 bits"),
        ("INTDIV", (1, 0), UnsupportedError, "divided by 0"),
        ("ADD_SHAPE", ([1, 2], [3]), FormatError, r"shapes \(2,\) and \(1,\), expected equal"),
        ("CONCAT", ([1] * 40, [1] * 25), UnsupportedError, "65 elements, expected at most 64"),
        ("MAXIMUM", (1, 2), UnsupportedError, "is a shape, which is not folded here"),
    ],
)
def test_shapes_that_cannot_be_folded(op, operands, error, match):
    with pytest.raises(error, match=match):
        shape_of(op, *operands)


def test_concatenation_of_nothing():
    b = Old()
    refused(
        b.graph(b.op("CONCAT", [], "SHAPE", (0,), axis=0)), FormatError, "0 inputs, expected at"
    )


def test_shape_of_an_input_is_not_known():
    b = Old()
    shape = b.input("SHAPE", (2,), "s")
    old = b.graph(b.op("RESHAPE", [b.input("INT8", (2, 3)), shape], "INT8", (3, 2)))
    refused(old, UnsupportedError, "'s' is not a constant")


@pytest.mark.parametrize("side", ["input", "output"])
def test_shape_at_the_end_of_a_graph(side):
    b = Old()
    if side == "input":
        b.input("SHAPE", (2,), "s")
        old = b.graph()
    else:
        old = b.graph(b.const("SHAPE", [2, 3], "s"))
    refused(old, UnsupportedError, "'s' is a shape, .* to an input or output of the graph")


def test_shape_to_control_flow():
    old = legal("WHILE_LOOP", ("INT8",))
    name = old.inputs[0]
    tensors = {**old.tensors, name: OldTensor(name, "SHAPE", (3,))}
    changed_graph = dataclasses.replace(old, tensors=tensors, inputs=())
    refused(changed_graph, UnsupportedError, "WHILE_LOOP 'y1': 'x0' is a shape, .* to WHILE_LOOP")


def test_shape_to_an_operator_of_tensors():
    b = Old()
    shape = b.const("SHAPE", [2, 3], "s")
    refused(
        b.graph(b.op("CAST", [shape], "INT32", (2,), "y")),
        UnsupportedError,
        "CAST 'y': 's' is a shape, .* it cannot go to CAST",
    )


def test_size_that_is_said_to_be_a_tensor():
    b = Old()
    y = b.op("DIM", [b.input("INT8", (2, 3))], "INT32", (), axis=0)
    assert tosajax.validate(upgrade(b.graph(y), Source())).errors


def test_dim():
    b = Old()
    x = b.input("INT8", (2, -1, 3), "x")
    for axis in (1, 3, -1):
        b.tensors.pop("d", None)
        old = dataclasses.replace(b.graph(), nodes=())
        b.op("DIM", [x], "SHAPE", (), "d", axis=axis)
        old = dataclasses.replace(b.graph(), nodes=b.nodes[-1:])
        if axis == 1:
            refused(
                old, UnsupportedError, r"DIM 'd': 'x' has shape \(2, -1, 3\), of which 1 is not"
            )
        else:
            refused(old, FormatError, f"axis is {axis}, expected 0 to 2")


def test_shapes_grow_no_longer_than_they_may():
    """Each list is twice the one before."""
    b = Old()
    name = b.const("SHAPE", [1, 1])
    for _ in range(60):
        name = b.op("CONCAT", [name, name], "SHAPE", (2,), axis=0)
    refused(b.graph(), UnsupportedError, "128 elements, expected at most 64 of a shape")


# Control flow, CUSTOM and variables.


def test_names_of_graphs():
    graph = upgraded(legal("COND_IF", ("INT8",)))
    attributes = nodes_of(graph)[-1].attributes
    assert attributes == {"then_graph": "first", "else_graph": "second"}
    assert {*graph.subgraphs} == {"first", "second"}
    graph = upgraded(legal("WHILE_LOOP", ("INT8",)))
    attributes = nodes_of(graph)[-1].attributes
    assert attributes == {"cond_graph": "condition", "body_graph": "body"}


def test_subgraphs_are_upgraded():
    old = legal("COND_IF", ("FP32",))
    b = Old("first")
    x, _ = b.input("FP32", (3,), "a"), b.input("FP32", (3,), "b")
    part = b.graph(b.op("POW", [x, x], "FP32", (3,), "power"))
    graph = upgraded(dataclasses.replace(old, subgraphs={**old.subgraphs, "first": part}))
    assert ops_of(graph.subgraphs["first"]) == ["POW"]
    assert [note.place for note in notes(graph)] == ["POW 'power'"]


def test_condition_of_any_rank():
    old = legal("COND_IF", ("INT8",))
    for shape in ((), (1,), (1, 1)):
        tensors = {**old.tensors, "x0": OldTensor("x0", "BOOL", shape)}
        upgraded(dataclasses.replace(old, tensors=tensors))


def test_graphs_nested_deep():
    part = OldGraph((), (), {}, (), {}, "leaf")
    for number in range(256):
        part = OldGraph((), (), {}, (), {part.name: part}, f"g{number}")
    assert len([*upgrade(part, Source()).walk()]) == 257
    part = OldGraph((), (), {}, (), {part.name: part}, "main")
    refused(part, UnsupportedError, "nested more than 256 deep")


def test_custom():
    node = only_node(upgraded(legal("CUSTOM", ("INT8",))))
    assert node.attributes == {
        "operator_name": "spin",
        "domain_name": "test",
        "implementation_attrs": b"\0\1\xff",
    }
    assert len(node.outputs) == 2


def test_variable():
    graph = upgraded(legal("VARIABLE", ("INT8",)))
    declaration, read, write = nodes_of(graph)
    assert declaration.attributes == {
        "name": "var_7",
        "var_shape": (2, 3),
        "type": spec.VarType.INT8,
    }
    tensor = graph.tensors[declaration.outputs[0]]
    assert tensor.variable == "var_7"
    np.testing.assert_array_equal(np.asarray(tensor.values), values_of("INT8", (2, 3)))
    assert read.attributes == write.attributes == {"name": "var_7"}
    fn, params = tosajax.lower(graph)
    x = np.full((2, 3), 9, np.int8)
    state, (old,) = fn(params, tosajax.initial_state(graph), x)
    np.testing.assert_array_equal(np.asarray(old), values_of("INT8", (2, 3)))
    _, (new,) = fn(params, state, x)
    np.testing.assert_array_equal(np.asarray(new), x)


def test_variable_by_name():
    """Without an initial value, and read in a subgraph."""
    old = legal("COND_IF", ("INT8",))
    state = {"name": "state", "var_shape": (3,), "type": "INT8", "initial_value": None}
    declaration = OldNode("VARIABLE", (), (), state)
    write = OldNode("VARIABLE_WRITE", (old.inputs[1],), (), {"name": "state"})
    b = Old("first")
    for name in ("a", "b"):
        b.input("INT8", (3,), name)
    b.nodes.append(OldNode("VARIABLE_READ", (), ("out",), {"name": "state"}))
    part = b.graph(b.tensor("INT8", (3,), "out"))
    graph = upgraded(
        dataclasses.replace(
            old,
            nodes=(declaration, write, *old.nodes),
            subgraphs={**old.subgraphs, "first": part},
        )
    )
    stand_ins = [t for g in graph.walk() for t in g.tensors.values() if t.variable == "state"]
    assert [(t.dtype, t.shape, t.values) for t in stand_ins] == [(DType.INT8, (3,), None)] * 2
    assert tosajax.load(tosajax.io.to_bytes(graph)).tensors.keys() == graph.tensors.keys()


@pytest.mark.parametrize(
    ("attributes", "error", "match"),
    [
        ({"uid": 1, "var_shape": (3,), "type": "INT32"}, UnsupportedError, "is INT32, expected"),
        ({"uid": 1, "var_shape": (3,), "type": "UINT8"}, UnsupportedError, "is UINT8, expected"),
        ({"uid": 1, "type": "INT8"}, FormatError, "variable 'var_1' has no shape"),
        ({"var_shape": (3,), "type": "INT8"}, FormatError, "the variable has no name"),
        ({"name": 5, "var_shape": (3,), "type": "INT8"}, FormatError, "the variable has no name"),
        ({"name": "", "var_shape": (3,), "type": "INT8"}, FormatError, "the variable has no name"),
        (
            {"uid": 1, "var_shape": (1,), "type": "INT8", "initial_value": np.asarray([300])},
            FormatError,
            "initial_value: values in .* do not fit INT8",
        ),
    ],
)
def test_variable_that_1_0_does_not_have(attributes, error, match):
    b = Old()
    b.nodes.append(OldNode("VARIABLE", (), (), attributes))
    refused(b.graph(), error, match)


def test_variable_of_a_name_and_a_number():
    old = legal("VARIABLE", ("INT8",))
    nodes = [
        dataclasses.replace(n, attributes={**n.attributes, "name": "state"}) for n in old.nodes
    ]
    graph = upgraded(dataclasses.replace(old, nodes=tuple(nodes)))
    assert {node.attributes["name"] for node in graph.nodes} == {"state"}


def test_variable_that_a_subgraph_writes():
    old = legal("COND_IF", ("INT8",))
    state = {"name": "state", "var_shape": (3,), "type": "INT8"}
    part = old.subgraphs["first"]
    write = OldNode("VARIABLE_WRITE", (part.inputs[0],), (), {"name": "state"})
    part = dataclasses.replace(part, nodes=(*part.nodes, write))
    nodes = (OldNode("VARIABLE", (), (), state), *old.nodes)
    parts = {**old.subgraphs, "first": part}
    graph = upgraded(dataclasses.replace(old, nodes=nodes, subgraphs=parts))
    again = tosajax.load(tosajax.io.to_bytes(graph))
    assert [n.op for n in again.subgraphs["first"].nodes] == ["IDENTITY", "VARIABLE_WRITE"]


def test_variable_that_nothing_declares():
    b = Old()
    refused(
        b.graph(b.op("VARIABLE_READ", [], "INT8", (3,), "y", uid=3)),
        FormatError,
        "VARIABLE_READ 'y': no VARIABLE declares 'var_3'",
    )


def test_variable_declared_twice():
    old = legal("VARIABLE", ("INT8",))
    graph = upgrade(dataclasses.replace(old, nodes=(old.nodes[0], *old.nodes)), Source())
    assert tosajax.validate(graph).errors


def test_floats_of_bfloat16_are_kept():
    b = Old()
    values = np.asarray([1.5, -0.0, np.inf], ml_dtypes.bfloat16)
    graph = upgraded(b.graph(b.const("BF16", values, "c")))
    found = graph.tensors["c"].values
    assert found is not None
    assert found.tobytes() == values.tobytes()
