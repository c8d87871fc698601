"""What holds for every rule: attributes, names, order, unsigned types, the report."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import old_semantics
import pytest
from old_graphs import TYPES, Old, legal, values_of
from upgraded import (
    changed,
    constant,
    nodes_of,
    notes,
    only_node,
    ops_of,
    refused,
    result,
    upgraded,
)

import tosajax
from tosajax import DType, FormatError, Source, TosaError, UnsupportedError
from tosajax.graph import Rewrite
from tosajax.io.pre_1_0 import rules, schema
from tosajax.io.pre_1_0.model import OldGraph, OldNode, OldTensor
from tosajax.io.pre_1_0.upgrade import upgrade

# All rules.


def test_rules_are_named_after_operators():
    modules = [value for _, value in inspect.getmembers(rules, inspect.ismodule)]
    found = {
        name
        for module in modules
        if module.__name__.startswith(rules.__name__)
        for name, value in inspect.getmembers(module, inspect.isfunction)
        if list(inspect.signature(value).parameters) == ["step"] and not name.startswith("_")
    }
    names = {op.lower() for op in schema.OPERATORS} | {"reverse_shape"}
    assert {"fully_connected", "rescale", "dim", "concat_shape"} <= found <= names


def test_summary():
    rewrites = upgraded(legal("ADD", ("INT32",))).source.rewrites
    assert [r.place for r in rewrites] == ["test 0.80.0"]
    assert not rewrites[0].differs
    for dtype in ("FP16", "BF16", "FP32"):
        rewrites = upgraded(legal("ADD", (dtype,))).source.rewrites
        assert [r.place for r in rewrites] == ["test 0.80.0", "floats"]
        assert rewrites[1].differs


def test_summary_of_shapes():
    rewrites = upgraded(legal("DIM", ("INT8",))).source.rewrites
    assert [r.place for r in rewrites] == ["test 0.80.0", "shapes"]
    assert not rewrites[1].differs


@pytest.mark.parametrize(("op", "names"), [("COND_IF", ["x1", "x2"]), ("WHILE_LOOP", ["x0"])])
def test_ends_of_subgraphs_are_not_told(op, names):
    old = legal(op, ("INT8",))

    def unsigned(graph: OldGraph) -> OldGraph:
        tensors = {
            name: dataclasses.replace(t, dtype="UINT8" if t.dtype == "INT8" else t.dtype)
            for name, t in graph.tensors.items()
        }
        parts = {name: unsigned(part) for name, part in graph.subgraphs.items()}
        return dataclasses.replace(graph, tensors=tensors, subgraphs=parts)

    rewrites = upgraded(unsigned(old)).source.rewrites
    ends = [*(f"input {name!r}" for name in names), f"output {old.outputs[0]!r}"]
    assert [r.place for r in rewrites[1:]] == ends


def test_numbers_of_numpy():
    """As a reader may have them."""
    for op in ("RESCALE", "TRANSPOSE_CONV2D", "AVG_POOL2D", "PAD", "MUL", "SLICE"):
        old = legal(op, TYPES[op][0])
        attributes = {
            name: value if isinstance(value, str) else np.asarray(value)[()]
            for name, value in old.nodes[-1].attributes.items()
        }
        assert upgraded(changed(old, **attributes)) == upgraded(old)
    old = changed(legal("CLAMP", ("FP16",)), min_fp=np.float32(-1.5), max_fp=np.float16(2.25))
    assert upgraded(old) == upgraded(legal("CLAMP", ("FP16",)))


def test_rewrites_follow_those_of_the_reader():
    own = Rewrite("a", "b", "c")
    graph = upgrade(legal("ADD", ("INT32",)), Source("MLIR text", rewrites=(own,)))
    assert graph.source.format == "MLIR text"
    assert graph.source.rewrites[0] == own
    assert graph.source.rewrites[1].place == "MLIR text"


def test_locations_are_kept():
    old = legal("FULLY_CONNECTED", ("FP32",) * 3)
    nodes = tuple(dataclasses.replace(node, location="layer 1") for node in old.nodes)
    graph = upgraded(dataclasses.replace(old, nodes=nodes))
    assert ops_of(graph) == ["RESHAPE", "CONV2D", "RESHAPE"]
    assert {node.location for node in nodes_of(graph)} == {"layer 1"}


def test_nodes_in_any_order():
    old = legal("DIM", ("INT8",))
    graph = upgraded(dataclasses.replace(old, nodes=old.nodes[::-1]))
    assert only_node(graph).op == "RESHAPE"


def test_cycle():
    b = Old()
    x = b.input("INT32", (2,))
    b.nodes.append(OldNode("ADD", (x, "b"), ("a",)))
    b.nodes.append(OldNode("ADD", (x, "a"), ("b",)))
    for name in ("a", "b"):
        b.tensor("INT32", (2,), name)
    refused(b.graph("a"), TosaError, "depends on itself")


def test_names_of_new_tensors_are_not_taken():
    """A tensor, and one that no operator declares, have the names that constants would have."""
    b = Old()
    x = b.input("INT8", (2, 3), "y/padding")
    b.op("PAD", [x], "INT8", (3, 5), "y", padding=(0, 1, 2, 0))
    b.nodes.append(OldNode("IDENTITY", ("y/pad_const",), ("z",)))
    b.tensor("INT8", (1,), "z")
    graph = upgrade(b.graph("y", "z"), Source())
    assert graph.nodes[-2].inputs == ("y/padding", "y/padding'", "y/pad_const'")
    assert tosajax.validate(graph).errors


def test_equal_constants_are_one():
    graph = upgraded(legal("CONV2D", ("FP32",) * 3))
    assert only_node(graph).inputs[3] == only_node(graph).inputs[4]


def test_equal_large_constants_are_two():
    """Comparing them would take as much memory again."""
    b = Old()
    x = b.input("INT8", (2,))
    table = tuple(range(-128, 128))
    tables = [b.op("TABLE", [x], "INT8", (2,), table=table) for _ in range(2)]
    assert ops_of(upgraded(b.graph(*tables))) == ["TABLE", "TABLE"]
    wide = [b.op("TABLE", [b.input("INT16", (2,))], "INT32", (2,), table=(0,) * 513) for _ in "ab"]
    graph = upgraded(b.graph(*tables, *wide))
    found = [node.inputs[1] for node in nodes_of(graph)]
    assert found[0] == found[1]
    assert found[2] != found[3]


def test_constants_that_nothing_reads_are_left_out():
    b = Old()
    x = b.input("INT8", (2, 3))
    perms = b.const("INT32", [1, 0], "perms")
    graph = upgraded(b.graph(b.op("TRANSPOSE", [x, perms], "INT8", (3, 2))))
    assert "perms" not in graph.tensors
    assert only_node(graph).attributes == {"perms": (1, 0)}


@pytest.mark.parametrize("op", ["SPIN", "RESERVED", "UNKNOWN"])
def test_unknown_operator(op):
    b = Old()
    refused(
        b.graph(b.op(op, [b.input("INT8", (2,))], "INT8", (2,))),
        FormatError,
        f"{op} 'y1': the operator is unknown",
    )


def test_operators_of_1_0_are_taken():
    """The dialect had some of them before the rest."""
    b = Old()
    assert only_node(upgraded(b.graph(b.op("SIN", [b.input("FP32", (2,))], "FP32", (2,))))).op == (
        "SIN"
    )


@pytest.mark.parametrize("op", [op for op in TYPES if op != "CONST"])
def test_unknown_attribute(op):
    old = legal(op, TYPES[op][0])
    for name in ("colour", *(("uid", "name") if "VARIABLE" not in op else ())):
        refused(changed(old, **{name: 1}), FormatError, f"attribute '{name}' is unknown, expected")


MISSING = [
    ("ARGMAX", "axis"),
    ("AVG_POOL2D", "kernel"),
    ("CONV2D", "dilation"),
    ("TRANSPOSE_CONV2D", "out_pad"),
    ("FFT2D", "inverse"),
    ("CLAMP", "max_int"),
    ("ARITHMETIC_RIGHT_SHIFT", "round"),
    ("MUL", "shift"),
    ("TABLE", "table"),
    ("REDUCE_MAX", "axis"),
    ("CONCAT", "axis"),
    ("PAD", "padding"),
    ("RESHAPE", "new_shape"),
    ("REVERSE", "axis"),
    ("SLICE", "size"),
    ("TILE", "multiples"),
    ("TRANSPOSE", "perms"),
    ("RESIZE", "offset"),
    ("RESIZE", "mode"),
    ("RESCALE", "multiplier"),
    ("RESCALE", "scale32"),
    ("COND_IF", "else_branch"),
    ("WHILE_LOOP", "body_branch"),
    ("CUSTOM", "domain_name"),
]


@pytest.mark.parametrize(("op", "name"), MISSING)
def test_missing_attribute(op, name):
    old = changed(legal(op, TYPES[op][0]), **{name: None})
    refused(old, FormatError, f"{op} 'y.*': attribute {name} is missing")


@pytest.mark.parametrize(
    ("op", "names"),
    [
        ("AVG_POOL2D", ["input_zp", "output_zp", "accum_dtype"]),
        ("CONV2D", ["input_zp", "weight_zp"]),
        ("TRANSPOSE_CONV2D", ["input_zp", "weight_zp", "output_shape"]),
        ("FULLY_CONNECTED", ["input_zp", "weight_zp"]),
        ("MATMUL", ["a_zp", "b_zp"]),
        ("NEGATE", ["input1_zp", "output_zp"]),
        ("PAD", ["pad_const_int", "pad_const_fp"]),
        ("RESCALE", ["input_zp", "output_zp", "double_round"]),
    ],
)
def test_optional_attributes(op, names):
    old = changed(legal(op, TYPES[op][0]), **dict.fromkeys(names))
    graph = upgraded(old)
    (node,) = [n for n in nodes_of(graph) if n.op in (op, "CONV2D")]
    zeros = [n for n in node.inputs if n.endswith(("zp", "pad_const"))]
    assert zeros
    assert all(constant(graph, name)[1] == [0] for name in zeros)


# Operators whose types the upgrade does not look at.
KEPT = [
    "FFT2D",
    "RFFT2D",
    "MAX_POOL2D",
    "ERF",
    "SIGMOID",
    "TANH",
    "ADD",
    "ARITHMETIC_RIGHT_SHIFT",
    "BITWISE_AND",
    "BITWISE_OR",
    "BITWISE_XOR",
    "INTDIV",
    "LOGICAL_AND",
    "LOGICAL_OR",
    "LOGICAL_XOR",
    "MAXIMUM",
    "MINIMUM",
    "POW",
    "SUB",
    "ABS",
    "BITWISE_NOT",
    "CEIL",
    "CLZ",
    "EXP",
    "FLOOR",
    "LOG",
    "LOGICAL_NOT",
    "RECIPROCAL",
    "RSQRT",
    "SELECT",
    "EQUAL",
    "GREATER",
    "GREATER_EQUAL",
    "REDUCE_ALL",
    "REDUCE_ANY",
    "REDUCE_MAX",
    "REDUCE_MIN",
    "REDUCE_PRODUCT",
    "REVERSE",
    "GATHER",
    "SCATTER",
    "IDENTITY",
    "COND_IF",
]
NO_INPUTS = ("CONST", "CONCAT", "CUSTOM", "WHILE_LOOP")


@pytest.mark.parametrize("op", [op for op in TYPES if "VARIABLE" not in op and op not in NO_INPUTS])
def test_inputs_that_are_missing(op):
    """They are a FormatError where the upgrade needs them, or an error of the graph."""
    old = legal(op, TYPES[op][0])
    *nodes, last = old.nodes
    less = dataclasses.replace(old, nodes=(*nodes, dataclasses.replace(last, inputs=())))
    if op in KEPT:
        errors = tosajax.validate(upgrade(less, Source())).errors
        assert any("0 inputs, expected" in str(error) for error in errors)
    else:
        refused(less, FormatError, "0 inputs, expected at least 1")


@pytest.mark.parametrize("op", [op for op in TYPES if "VARIABLE" not in op and op != "CONST"])
def test_outputs_that_are_missing(op):
    """They are a FormatError where the upgrade needs them, or an error of the graph."""
    old = legal(op, TYPES[op][0])
    *nodes, last = old.nodes
    less = dataclasses.replace(old, nodes=(*nodes, dataclasses.replace(last, outputs=())))
    try:
        graph = upgrade(less, Source())
    except FormatError:
        refused(less, FormatError, "no outputs, expected one")
    else:
        assert tosajax.validate(graph).errors


@pytest.mark.parametrize("op", ["ABS", "NEGATE", "RESCALE"])
def test_output_that_is_not_declared(op):
    old = legal(op, TYPES[op][0])
    tensors = {name: t for name, t in old.tensors.items() if name not in old.outputs}
    less = dataclasses.replace(old, tensors=tensors)
    refused(less, FormatError, "tensor 'y1' is not declared")
    assert tosajax.validate(upgrade(dataclasses.replace(less, nodes=()), Source())).errors


def test_undeclared_tensor():
    b = Old()
    b.nodes.append(OldNode("NEGATE", ("nothing",), (b.tensor("INT8", (2,), "y"),)))
    refused(b.graph(), FormatError, "NEGATE 'y': tensor 'nothing' is not declared")


@pytest.mark.parametrize("dtype", ["FP64", "UNKNOWN", "UINT32"])
def test_unknown_type(dtype):
    b = Old()
    b.tensors["x"] = OldTensor("x", dtype, (2,))
    refused(b.graph("x"), UnsupportedError, f"tensor 'x': TOSA 1.0 has no element type {dtype}")


def test_values_that_do_not_fit():
    b = Old()
    b.tensors["x"] = OldTensor("x", "INT4", (1,), np.asarray([9]))
    refused(b.graph("x"), FormatError, "tensor 'x': values in .* do not fit INT4")


def test_no_rank():
    old = legal("FULLY_CONNECTED", ("FP32",) * 3)
    tensors = {**old.tensors, "x0": OldTensor("x0", "FP32", None)}
    refused(
        dataclasses.replace(old, tensors=tensors), UnsupportedError, "'x0' has no rank, which the"
    )


# Unsigned types.


@pytest.mark.parametrize(
    "op", ["ADD", "CLAMP", "AVG_POOL2D", "CAST", "CONV2D", "FULLY_CONNECTED", "ARGMAX"]
)
def test_only_rescale_computes_with_unsigned_integers(op):
    old = legal(op, TYPES[op][0])
    tensors = {**old.tensors, "x0": dataclasses.replace(old.tensors["x0"], dtype="UINT8")}
    refused(
        dataclasses.replace(old, tensors=tensors),
        UnsupportedError,
        f"{op} 'y.*': a tensor is UINT8, which only RESCALE computes with",
    )


MOVES = [
    "CONCAT",
    "PAD",
    "RESHAPE",
    "REVERSE",
    "SLICE",
    "TILE",
    "TRANSPOSE",
    "GATHER",
    "IDENTITY",
    "SELECT",
]


@pytest.mark.parametrize("dtype", ["UINT8", "UINT16"])
@pytest.mark.parametrize("op", MOVES)
def test_unsigned_integers_are_moved(op, dtype):
    """The bits of the results are those of the same numbers in unsigned arithmetic."""
    signed = dtype[1:]
    old = legal(op, (signed,))
    tensors = {
        name: dataclasses.replace(t, dtype=dtype if t.dtype == signed else t.dtype)
        for name, t in old.tensors.items()
    }
    number = 200 if dtype == "UINT8" else 40000
    attributes = {"pad_const_int": number} if op == "PAD" else {}
    old = changed(dataclasses.replace(old, tensors=tensors), **attributes)
    inputs = [values_of(old.tensors[n].dtype, old.tensors[n].shape or ()) for n in old.inputs]
    (wanted,) = old_semantics.evaluate(old, *inputs)
    graph = upgraded(old)
    given = [x.view(f"i{x.itemsize}") if x.dtype.kind == "u" else x for x in inputs]
    found = result(graph, *given)
    assert found.dtype.name == signed.lower()
    np.testing.assert_array_equal(found.view(f"u{found.itemsize}"), wanted.astype(np.int64))
    told = [r.place for r in graph.source.rewrites if dtype in r.done]
    ends = [n for n in old.inputs if old.tensors[n].dtype == dtype]
    assert told == [*(f"input {n!r}" for n in ends), f"output {old.outputs[0]!r}"]


def test_unsigned_constant():
    b = Old()
    values = np.asarray([0, 127, 128, 255])
    graph = upgraded(b.graph(b.const("UINT8", values, "c")))
    assert constant(graph, "c") == (DType.INT8, [0, 127, -128, -1])


def test_unsigned_padding_beyond_the_type():
    b = Old()
    attributes = {"padding": (0, 1), "pad_const_int": -1}
    old = b.graph(b.op("PAD", [b.input("UINT8", (2,))], "UINT8", (3,), **attributes))
    refused(old, FormatError, r"pad_const_int is -1, expected one in \[0, 255\]")


def test_custom_functions_get_signless_tensors():
    b = Old()
    names = {"operator_name": "spin", "domain_name": "test", "implementation_attrs": b""}
    old = b.graph(b.op("CUSTOM", [b.input("UINT8", (2,))], "UINT16", (2,), **names))
    (note,) = notes(upgraded(old))
    assert "UINT16 and UINT8 are signless" in note.done
    assert note.differs
