"""Upgrades of elementwise operators, data layout and RESIZE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from old_graphs import TYPES, Old, legal
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

from tosajax import DType, FormatError, Source, UnsupportedError
from tosajax.io.pre_1_0.upgrade import upgrade
from tosajax.spec import NanMode, ResizeMode

# Activation functions.


@pytest.mark.parametrize(
    ("dtype", "low", "high", "wanted"),
    [
        ("INT8", -5, 100, (-5, 100)),
        ("INT8", -(1 << 31), (1 << 31) - 1, (-128, 127)),
        ("INT8", -128, -128, (-128, -128)),
        ("INT8", 127, 127, (127, 127)),
        ("INT16", -(1 << 63), 1 << 40, (-32768, 32767)),
        ("INT16", -32768, 300, (-32768, 300)),
    ],
)
def test_clamp_of_integers(dtype, low, high, wanted):
    b = Old()
    x = b.input(dtype, (3,))
    old = b.graph(b.op("CLAMP", [x], dtype, (3,), min_int=low, max_int=high))
    attributes = only_node(upgraded(old)).attributes
    found = attributes["min_val"], attributes["max_val"]
    assert found == wanted
    assert {type(bound) for bound in found} == {DType[dtype].storage.type}
    assert attributes["nan_mode"] is NanMode.PROPAGATE


@pytest.mark.parametrize(
    ("low", "high", "match"),
    [
        (128, 200, r"min_int is 128, expected one in \[-128, 127\]"),
        (-200, -129, r"max_int is -129, expected one in \[-128, 127\]"),
    ],
)
def test_clamp_beyond_the_type(low, high, match):
    b = Old()
    old = b.graph(b.op("CLAMP", [b.input("INT8", (3,))], "INT8", (3,), min_int=low, max_int=high))
    refused(old, FormatError, match)


@pytest.mark.parametrize("dtype", ["FP16", "BF16", "FP32"])
def test_clamp_of_floats(dtype):
    b = Old()
    bounds: dict[str, Any] = {
        "min_fp": float(np.float32(-6.1)),
        "max_fp": float(np.finfo(np.float32).max),
    }
    old = b.graph(b.op("CLAMP", [b.input(dtype, (3,))], dtype, (3,), **bounds))
    attributes = only_node(upgraded(old)).attributes
    storage = DType[dtype].storage
    assert attributes["min_val"] == np.asarray(-6.1, np.float32).astype(storage)
    assert attributes["max_val"] == (np.inf if dtype != "FP32" else np.finfo(np.float32).max)
    assert attributes["min_val"].dtype == attributes["max_val"].dtype == storage


def test_clamp_of_the_early_dialect():
    old = changed(legal("CLAMP", ("FP32",)), nan_mode="IGNORE")
    assert only_node(upgraded(old)).attributes["nan_mode"] is NanMode.IGNORE
    refused(changed(old, nan_mode="MAYBE"), FormatError, "nan_mode is 'MAYBE', expected one of PRO")


# Elementwise operators.


@pytest.mark.parametrize("op", ["LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"])
@pytest.mark.parametrize(
    ("dtype", "amount", "told"),
    [
        ("INT8", 7, False),
        ("INT8", 8, True),
        ("INT8", None, True),
        ("INT16", 15, False),
        ("INT16", 16, True),
        ("INT16", None, True),
        ("INT32", None, False),
    ],
)
def test_shifts_wider_than_the_type(op, dtype, amount, told):
    b = Old()
    x = b.input(dtype, (2,))
    by = b.input(dtype, (2,)) if amount is None else b.const(dtype, [0, amount])
    graph = b.graph(b.op(op, [x, by], dtype, (2,)))
    found = notes(upgraded(graph, unpredictable=told and amount is not None))
    assert bool(found) == told
    bits = DType[dtype].bits - 1
    assert all(note.differs.endswith(f"by more than {bits} bits are undefined") for note in found)


def test_shift_of_mul():
    graph = upgraded(legal("MUL", ("INT32", "INT32")))
    assert constant(graph, only_node(graph).inputs[2]) == (DType.INT8, [5])
    graph = upgraded(legal("MUL", ("FP32", "FP32")))
    assert constant(graph, only_node(graph).inputs[2]) == (DType.INT8, [0])
    wide = changed(legal("MUL", ("INT32", "INT32")), shift=128)
    refused(wide, FormatError, r"shift: values in \[128, 128\] do not fit INT8")


@pytest.mark.parametrize("kind", ["constant", "input"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_shift_of_mul_as_a_tensor(kind, shape):
    b = Old()
    x = b.input("INT32", (3,))
    value = np.full(shape, 5, np.int8)
    shift = b.const("INT8", value) if kind == "constant" else b.input("INT8", shape)
    graph = upgraded(b.graph(b.op("MUL", [x, x, shift], "INT32", (3,))))
    inputs = [np.asarray([-3, 100, 65536], np.int32)] + [value] * (kind == "input")
    np.testing.assert_array_equal(result(graph, *inputs), [0, 313, 1 << 27])
    reshapes = [] if kind == "constant" or shape else ["RESHAPE"]
    assert ops_of(graph) == [*reshapes, "MUL"]


@pytest.mark.parametrize(("dtype", "out"), TYPES["TABLE"])
def test_table(dtype, out):
    old = legal("TABLE", (dtype, out))
    graph = upgraded(old)
    wanted = list(old.nodes[-1].attributes["table"])
    assert constant(graph, only_node(graph).inputs[1]) == (DType[dtype], wanted)


def test_table_of_int8_with_numbers_beyond():
    old = changed(legal("TABLE", ("INT8", "INT8")), table=(128,) * 256)
    refused(old, FormatError, r"table: values in \[128, 128\] do not fit INT8")


def test_table_as_a_tensor():
    b = Old()
    x, table = b.input("INT8", (3,)), b.input("INT8", (256,), "table")
    graph = upgraded(b.graph(b.op("TABLE", [x, table], "INT8", (3,))))
    assert only_node(graph).inputs == (x, "table")


# Data layout and images.


def test_padding():
    graph = upgraded(legal("PAD", ("INT16",)))
    _, padding, number = only_node(graph).inputs
    assert constant(graph, padding) == (DType.SHAPE, [0, 1, 2, 0])
    assert constant(graph, number) == (DType.INT16, [1])


@pytest.mark.parametrize(
    ("dtype", "wanted"), [("BOOL", True), ("INT8", 1), ("FP16", 2.5), ("BF16", 2.5), ("FP32", 2.5)]
)
def test_number_to_pad_with(dtype, wanted):
    graph = upgraded(legal("PAD", (dtype,)))
    found = constant(graph, only_node(graph).inputs[2])
    assert found == (DType[dtype], [wanted])


@pytest.mark.parametrize(
    ("dtype", "number", "wanted"),
    [
        ("BOOL", 5, True),
        ("INT8", -128, -128),
        ("INT16", -1, -1),
        ("UINT8", 0, 0),
        ("UINT8", 127, 127),
        ("UINT8", 128, -128),
        ("UINT8", 255, -1),
        ("UINT16", 65535, -1),
    ],
)
def test_integer_to_pad_with(dtype, number, wanted):
    b = Old()
    attributes = {"padding": (0, 1), "pad_const_int": number}
    graph = upgraded(b.graph(b.op("PAD", [b.input(dtype, (2,))], dtype, (3,), **attributes)))
    assert constant(graph, only_node(graph).inputs[2])[1] == [wanted]


def test_padding_as_a_tensor_and_a_number():
    b = Old()
    x, padding = b.input("INT8", (2, 3)), b.const("SHAPE", [[0, 1], [2, 0]])
    old = b.graph(b.op("PAD", [x, padding], "INT8", (3, 5), pad_const_int=-7))
    graph = upgraded(old)
    assert constant(graph, only_node(graph).inputs[2]) == (DType.INT8, [-7])


@pytest.mark.parametrize("dtype", ["SHAPE", "INT32"])
def test_padding_as_a_tensor(dtype):
    b = Old()
    x, padding = b.input("INT8", (2, 3)), b.const(dtype, [[0, 1], [2, 0]])
    number = b.const("INT8", np.int8(-9))
    graph = upgraded(b.graph(b.op("PAD", [x, padding, number], "INT8", (3, 5))))
    node = nodes_of(graph)[-1]
    assert constant(graph, node.inputs[1]) == (DType.SHAPE, [0, 1, 2, 0])
    assert constant(graph, node.inputs[2]) == (DType.INT8, [-9])


SHAPED = [
    ("RESHAPE", {"new_shape": (3, 2)}, (3, 2)),
    ("TILE", {"multiples": (2, 1)}, (4, 3)),
    ("SLICE", {"start": (1, 0), "size": (1, 2)}, (1, 2)),
    ("TRANSPOSE", {"perms": (1, 0)}, (3, 2)),
]


@pytest.mark.parametrize(("op", "lists", "shape"), SHAPED, ids=[op for op, *_ in SHAPED])
def test_shapes_as_tensors(op, lists, shape):
    """Constants in the place of attributes, as in the text of 0.80 and in 0.90."""
    graphs = []
    for as_tensors in (False, True):
        b = Old()
        x = b.input("INT8", (2, 3), "x")
        dtype = "INT32" if op == "TRANSPOSE" else "SHAPE"
        more = [b.const(dtype, values) for values in lists.values()] if as_tensors else []
        given = {} if as_tensors else lists
        graphs.append(upgraded(b.graph(b.op(op, [x, *more], "INT8", shape, "y", **given))))
    assert graphs[0] == graphs[1]


def test_shape_that_is_not_constant():
    b = Old()
    x, shape = b.input("INT8", (2, 3)), b.input("INT32", (2,), "shape")
    old = b.graph(b.op("RESHAPE", [x, shape], "INT8", (3, 2)))
    refused(old, UnsupportedError, "RESHAPE 'y2': 'shape' is not a constant, which TOSA 1.0 wants")


def test_list_of_other_things():
    old = changed(legal("RESHAPE", ("INT8",)), new_shape=(1.5, 2))
    refused(old, FormatError, r"new_shape is \(1\.5, 2\), expected integers")


@pytest.mark.parametrize(
    ("shape", "stated", "declared", "wanted"),
    [
        ((2, 3), (-1, 2), (3, 2), [3, 2]),
        ((2, 3), (-1, 2), (-1, 2), [3, 2]),
        ((2, 6), (2, -1, 3), (-1, -1, -1), [2, 2, 3]),
        ((-1, 3), (3, -1), (3, -1), [3, -1]),
        ((-1, 3), (-1, -1), (5, 3), [5, 3]),
        ((-1, 4), (3, -1), (3, -1), [3, -1]),
        ((2, 3), (-1,), (-1,), [6]),
        ((2, 3), (-1, 2), (6,), [3, 2]),
        ((2, 3), (-1, 2), (2, 3), [3, 2]),
    ],
)
def test_open_dimension_of_a_reshape(shape, stated, declared, wanted):
    b = Old()
    x = b.input("INT8", shape)
    graph = upgrade(b.graph(b.op("RESHAPE", [x], "INT8", declared, new_shape=stated)), Source())
    assert constant(graph, only_node(graph).inputs[1]) == (DType.SHAPE, wanted)


def test_reshape_to_rank_0():
    b = Old()
    graph = upgraded(b.graph(b.op("RESHAPE", [b.input("INT8", (1, 1))], "INT8", (), new_shape=())))
    assert constant(graph, only_node(graph).inputs[1]) == (DType.SHAPE, [])


@pytest.mark.parametrize("stated", [(-1, 4), (-1, -1), (-1, 0), (-1, -1, -1)])
def test_open_dimension_that_nothing_gives(stated):
    b = Old()
    old = b.graph(b.op("RESHAPE", [b.input("INT8", (2, 3))], "INT8", (-1, -1), new_shape=stated))
    refused(old, UnsupportedError, "new_shape is .* which leaves the shape open")


def test_resize():
    graph = upgraded(legal("RESIZE", ("INT8", "INT8")))
    node = only_node(graph)
    lists = [constant(graph, name)[1] for name in node.inputs[1:]]
    assert lists == [[4, 2, 4, 2], [-1, -1], [1, 1]]
    assert node.attributes == {"mode": ResizeMode.NEAREST_NEIGHBOR}
    node = only_node(upgraded(legal("RESIZE", ("INT8", "INT32"))))
    assert node.attributes == {"mode": ResizeMode.BILINEAR}
    refused(
        changed(legal("RESIZE", ("INT8", "INT8")), mode="CUBIC"),
        FormatError,
        "mode is 'CUBIC', expected one of NEAREST_NEIGHBOR, BILINEAR",
    )


def test_resize_of_tensors():
    b = Old()
    lists = [b.const("SHAPE", values) for values in ([4, 2, 4, 2], [-1, -1], [1, 1])]
    x = b.input("INT8", (1, 3, 2, 2))
    old = b.graph(b.op("RESIZE", [x, *lists], "INT8", (1, 6, 4, 2), mode="NEAREST"))
    graph = upgraded(old)
    assert [len(constant(graph, name)[1]) for name in only_node(graph).inputs[1:]] == [4, 2, 2]
