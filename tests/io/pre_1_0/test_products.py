"""Upgrades of convolutions, FULLY_CONNECTED, MATMUL and pools."""

from __future__ import annotations

import dataclasses
from typing import Any

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
from tosajax import DType, FormatError, Source, UnsupportedError
from tosajax.io.pre_1_0.model import OldNode, OldTensor
from tosajax.io.pre_1_0.upgrade import upgrade
from tosajax.spec import NanMode

# Convolutions.


@pytest.mark.parametrize(
    ("row", "acc_type"),
    [
        ("INT8 INT8 INT32", DType.INT32),
        ("INT8 INT4 INT32", DType.INT32),
        ("INT16 INT8 INT48", DType.INT48),
        ("FP16 FP16 FP16", DType.FP16),
        ("FP32 FP32 FP32", DType.FP32),
    ],
)
@pytest.mark.parametrize("op", ["CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D"])
def test_convolution(op, row, acc_type):
    types = row.split()
    old = changed(legal(op, types), local_bound=True)
    graph = upgraded(old)
    node, stated = only_node(graph), old.nodes[-1].attributes
    zero = [stated.get("input_zp", 0), stated.get("weight_zp", 0)]
    found = [constant(graph, name) for name in node.inputs[3:]]
    assert found == [(DType[t], [z]) for t, z in zip(types, zero, strict=False)]
    kept = ("pad", "out_pad", "stride", "dilation")
    assert node.attributes == {
        **{name: value for name, value in stated.items() if name in kept},
        "acc_type": acc_type,
        "local_bound": True,
    }
    assert node.op == op


def test_accumulator_of_the_early_dialect():
    old = changed(legal("CONV2D", ("FP16",) * 3), acc_type="FP32")
    assert only_node(upgraded(old)).attributes["acc_type"] is DType.FP32
    refused(changed(old, acc_type="FP64"), FormatError, "acc_type is 'FP64', expected one of INT32")


HALVES = [
    (op, half, "FP32")
    for op in ("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "FULLY_CONNECTED")
    for half in ("FP16", "BF16")
]
PRODUCTS = [*HALVES, *((op, "FP16", "FP16") for op, *_ in HALVES[::2])]
PRODUCTS += [(op, "FP32", "FP32") for op, *_ in HALVES[::2]]


@pytest.mark.parametrize(("op", "half", "out"), HALVES)
def test_convolution_of_halves_in_fp32(op, half, out):
    graph = upgraded(legal(op, (half, half, out)))
    casts = [n for n in nodes_of(graph) if n.op == "CAST"]
    (node,) = [n for n in nodes_of(graph) if "CONV" in n.op]
    assert node.inputs[:2] == tuple(n.outputs[0] for n in casts)
    assert node.attributes["acc_type"] is DType.FP32
    assert {graph.tensors[n].dtype for n in (*node.inputs, *node.outputs)} == {DType.FP32}
    (note,) = [n for n in notes(graph) if "CAST" in n.done]
    assert note.differs


@pytest.mark.parametrize(("op", "half", "out"), PRODUCTS)
def test_sums_of_products_of_floats(op, half, out):
    """All sums are exact: those of integers, in quarters."""
    old = legal(op, (half, half, out))
    (x,) = (values_of(half, old.tensors[n].shape or ()) for n in old.inputs)
    tensors = {}
    for name, tensor in old.tensors.items():
        values = None if tensor.values is None else tensor.values.astype(np.float64)
        if values is not None:
            values = values * (4 if name == "bias" else 2)
        tensors[name] = dataclasses.replace(tensor, dtype="INT48", values=values)
    twin = dataclasses.replace(old, tensors=tensors)
    (wanted,) = old_semantics.evaluate(twin, x.astype(np.float64) * 2)
    found = result(upgraded(old), x)
    assert found.dtype == DType[out].storage
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64) / 4)


def test_output_shape_of_a_transposed_convolution():
    old = legal("TRANSPOSE_CONV2D", ("INT8", "INT8", "INT32"))
    for stated in ((), None, (-1, 3, -1, 3), (-1, -1, -1, -1)):
        upgraded(changed(old, output_shape=stated))
    for wrong in ((2, 3, 6, 3), (1, 4, 6, 3), (1, 3, 5, 3), (1, 3, 6, 2)):
        match = rf"output_shape is \({', '.join(map(str, wrong))}\), expected \(1, 3, 6, 3\)"
        refused(changed(old, output_shape=wrong), FormatError, match)
    refused(changed(old, output_shape=(1, 2)), FormatError, r"output_shape is \(1, 2\), with")
    refused(changed(old, stride=(1,)), FormatError, r"output_shape is .* and \(1,\)")


def test_output_shape_with_all_pads():
    """2 rows in steps of 3 and a kernel of 2, 3 columns in steps of 4 and a kernel of 3."""
    old = legal("TRANSPOSE_CONV2D", ("INT8", "INT8", "INT32"))
    padded = changed(old, out_pad=(5, 3, 2, 1), stride=(3, 4), output_shape=(1, 13, 14, 3))
    upgrade(padded, Source())
    refused(changed(padded, output_shape=(1, 12, 14, 3)), FormatError, r"expected \(1, 13, 14, 3\)")


@pytest.mark.parametrize(
    ("shape", "good", "bad", "wanted"),
    [
        ((-1, -1, 3, 2), (9, 9, 6, 3), (9, 9, 7, 3), r"\(-1, -1, 6, 3\)"),
        ((1, 2, -1, 2), (1, 3, 9, 3), (1, 4, 9, 3), r"\(1, 3, -1, 3\)"),
        ((-1, 2, 3, 2), (9, 3, 6, 3), (9, 3, 6, 2), r"\(-1, 3, 6, 3\)"),
    ],
)
def test_output_shape_with_open_dimensions(shape, good, bad, wanted):
    old = legal("TRANSPOSE_CONV2D", ("INT8", "INT8", "INT32"))
    tensors = {**old.tensors, "x0": OldTensor("x0", "INT8", shape)}
    loose = dataclasses.replace(old, tensors=tensors)
    upgrade(changed(loose, output_shape=good), Source())
    refused(changed(loose, output_shape=bad), FormatError, f"expected {wanted}")


def test_weights_of_fully_connected_are_reshaped_here():
    old = legal("FULLY_CONNECTED", ("INT8", "INT8", "INT32"))
    graph = upgraded(old)
    assert ops_of(graph) == ["RESHAPE", "CONV2D", "RESHAPE"]
    node = nodes_of(graph)[1]
    weight = graph.tensors[node.inputs[1]]
    assert weight.shape == (4, 1, 1, 5)
    np.testing.assert_array_equal(
        np.asarray(weight.values).reshape(4, 5), np.asarray(old.tensors["weight"].values)
    )
    assert "weight" not in graph.tensors
    lists = [node.attributes[name] for name in ("pad", "stride", "dilation")]
    assert lists == [(0, 0, 0, 0), (1, 1), (1, 1)]
    assert [(n.place, n.differs) for n in notes(graph)] == [("FULLY_CONNECTED 'y3'", "")]


def test_weights_of_fully_connected_may_be_computed():
    b = Old()
    inputs = b.input("INT8", (3, 5)), b.input("INT8", (4, 5)), b.input("INT32", (1,))
    zero_points: dict[str, Any] = {"input_zp": -128, "weight_zp": 127}
    old = b.graph(b.op("FULLY_CONNECTED", inputs, "INT32", (3, 4), **zero_points))
    graph = upgraded(old)
    assert ops_of(graph) == ["RESHAPE", "RESHAPE", "CONV2D", "RESHAPE"]
    given = [values_of(old.tensors[n].dtype, old.tensors[n].shape or ()) for n in old.inputs]
    given[2][:] = -7
    (wanted,) = old_semantics.evaluate(old, *given)
    np.testing.assert_array_equal(result(graph, *given), wanted.astype(np.int64))


def test_fully_connected_of_any_batch():
    b = Old()
    weight, bias = b.const("INT8", values_of("INT8", (4, 5))), b.const("INT32", [1, 2, 3, 4])
    x = b.input("INT8", (-1, 5))
    graph = upgrade(b.graph(b.op("FULLY_CONNECTED", [x, weight, bias], "INT32", (-1, 4))), Source())
    bound = tosajax.bind(graph, batch=3)
    assert tosajax.validate(bound).findings == ()
    assert bound.output_tensors[0].shape == (3, 4)


def test_fully_connected_of_other_ranks():
    b = Old()
    inputs = b.input("INT8", (1, 3, 5)), b.input("INT8", (4, 5)), b.input("INT32", (4,))
    old = b.graph(b.op("FULLY_CONNECTED", inputs, "INT32", (1, 3, 4)))
    refused(old, FormatError, r"shapes \(1, 3, 5\) and \(4, 5\), expected rank 2")


def test_int48_of_fully_connected_goes_to_rescale():
    old = legal("FULLY_CONNECTED", ("INT16", "INT8", "INT48"))
    graph = upgraded(old)
    assert ops_of(graph) == ["RESHAPE", "CONV2D", "RESCALE", "RESHAPE"]
    (note,) = notes(graph)
    assert note.done == "CONV2D of 1x1, the RESCALE after it between RESHAPEs"


def test_int48_of_fully_connected_goes_to_an_unsigned_rescale():
    old = legal("FULLY_CONNECTED", ("INT16", "INT8", "INT48"))
    name = old.outputs[0]
    tensors = {**old.tensors, name: dataclasses.replace(old.tensors[name], dtype="UINT8")}
    old = changed(dataclasses.replace(old, tensors=tensors), output_zp=7)
    x = values_of("INT16", (3, 5))
    (wanted,) = old_semantics.evaluate(old, x)
    found = result(upgraded(old), x)
    np.testing.assert_array_equal(found.view(np.uint8), wanted.astype(np.int64))


def test_int48_of_fully_connected_goes_nowhere_else():
    old = legal("FULLY_CONNECTED", ("INT16", "INT8", "INT48"))
    name = old.nodes[-1].inputs[0]
    refused(
        dataclasses.replace(old, outputs=(name,)),
        UnsupportedError,
        f"{name!r} is INT48 of rank 2.* only RESCALE can read it, not an input or output",
    )
    nodes = (*old.nodes, OldNode("IDENTITY", (name,), ("z",)))
    tensors = {**old.tensors, "z": OldTensor("z", "INT48", (3, 4))}
    refused(
        dataclasses.replace(old, nodes=nodes, tensors=tensors, outputs=("z",)),
        UnsupportedError,
        f"IDENTITY 'z': {name!r} is INT48 of rank 2.* not IDENTITY",
    )


# Pools and products.


@pytest.mark.parametrize(
    ("dtype", "stated", "wanted"),
    [
        ("INT8", "INT32", DType.INT32),
        ("INT8", None, DType.INT32),
        ("INT16", None, DType.INT32),
        ("BF16", None, DType.FP32),
        ("FP32", None, DType.FP32),
        ("FP16", "FP16", DType.FP16),
        ("FP16", "FP32", DType.FP32),
    ],
)
def test_accumulator_of_a_pool(dtype, stated, wanted):
    old = changed(legal("AVG_POOL2D", (dtype, "INT32")), accum_dtype=stated)
    assert only_node(upgraded(old)).attributes["acc_type"] is wanted


def test_accumulator_of_a_pool_that_is_open():
    old = legal("AVG_POOL2D", ("FP16", "FP16"))
    refused(changed(old, accum_dtype=None), FormatError, "accum_dtype is missing, expected FP16 or")
    refused(changed(old, accum_dtype="BOOL"), FormatError, "accum_dtype is 'BOOL', expected one of")
    early = changed(old, accum_dtype=None, acc_type="FP32")
    assert only_node(upgraded(early)).attributes["acc_type"] is DType.FP32


def test_zero_points_of_a_pool():
    graph = upgraded(legal("AVG_POOL2D", ("INT8", "INT32")))
    found = [constant(graph, name) for name in only_node(graph).inputs[1:]]
    assert found == [(DType.INT8, [-3]), (DType.INT8, [7])]


@pytest.mark.parametrize("op", ["MAX_POOL2D", "ARGMAX", "REDUCE_MAX", "MAXIMUM"])
def test_nan_mode_of_the_early_dialect(op):
    old = changed(legal(op, ("FP32", "INT32") if op == "ARGMAX" else ("FP32",)), nan_mode="IGNORE")
    assert only_node(upgraded(old)).attributes["nan_mode"] is NanMode.IGNORE
    old = changed(old, nan_mode=None)
    assert only_node(upgraded(old)).attributes["nan_mode"] is NanMode.PROPAGATE


def test_what_a_max_pool_does_not_have_is_left_out():
    old = changed(legal("MAX_POOL2D", ("INT8",)), input_zp=3, output_zp=4, accum_dtype="INT32")
    assert set(only_node(upgraded(old)).attributes) == {"kernel", "stride", "pad", "nan_mode"}


def test_zero_points_of_matmul_and_negate():
    graph = upgraded(legal("MATMUL", ("INT8", "INT32")))
    found = [constant(graph, name) for name in only_node(graph).inputs[2:]]
    assert found == [(DType.INT8, [-128]), (DType.INT8, [127])]
    graph = upgraded(legal("NEGATE", ("INT8",)))
    found = [constant(graph, name) for name in only_node(graph).inputs[1:]]
    assert found == [(DType.INT8, [127]), (DType.INT8, [-128])]


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("NEGATE", "input1_zp"),
        ("MATMUL", "b_zp"),
        ("CONV2D", "weight_zp"),
        ("AVG_POOL2D", "input_zp"),
    ],
)
def test_zero_point_that_does_not_fit(op, name):
    old = changed(legal(op, TYPES[op][0]), **{name: 200})
    refused(old, FormatError, rf"{name}: values in \[200, 200\] do not fit INT8")
