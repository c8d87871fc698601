"""Layers in floats, against float64 and Arm's reference model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Graph, Tensor, UnsupportedError, reference_model, rewrite
from tosajax.runtime.dump import dump
from tosajax.spec import NanMode, RoundingMode


def real_conv(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """3x3, in float64."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    total = np.zeros((*x.shape[:3], len(weight)))
    for h in range(3):
        for w in range(3):
            part = padded[:, h : h + x.shape[1], w : w + x.shape[2]]
            total += part @ weight[:, h, w].astype(np.float64).T
    return total + bias


def constant(graph: Graph, name: str) -> np.ndarray:
    values = graph.tensors[name].values
    assert values is not None
    return values


def operands(graph: Graph, name: str) -> list[np.ndarray]:
    (node,) = [n for n in graph.nodes if name in n.outputs]
    return [constant(graph, n).astype(np.float64) for n in node.inputs[1:]]


def real_layers(graph: Graph, x: np.ndarray, stop: str) -> np.ndarray:
    """`two_layers` in float64 without rounding, up to a tensor."""
    weight, bias, zp, _ = operands(graph, "acc1")
    acc = real_conv(x - zp, weight, bias)
    m, s, _, zp = operands(graph, "act1")
    act = np.clip(np.clip(acc * m * 2.0**-s + zp, -128, 127), 5, 100)
    if stop == "relu1":
        return act
    weight, bias, zp, _ = operands(graph, "acc2")
    acc = real_conv(act - zp, weight, bias)
    m, s, _, zp = operands(graph, "out")
    return np.clip(acc * m * 2.0**-s + zp, -128, 127)


def check_rounded(found: np.ndarray, exact: np.ndarray) -> None:
    """Each is the nearest integer; FP32 may decide ties otherwise."""
    assert np.abs(found - exact).max() <= 0.5 + 2e-4
    assert np.abs(found - np.rint(exact)).sum() <= 1


@pytest.mark.parametrize("where", ["acc1", "first"])
def test_one_layer_is_rounded_once(where):
    graph, x = small.two_layers(), small.images(8)
    floats = rewrite.to_float(graph, where)
    tosajax.validate(floats).raise_errors()
    found = dump(floats, x)
    check_rounded(found["relu1"], real_layers(graph, x, "relu1"))
    assert {"acc1", "act1"}.isdisjoint(found)
    assert Counter(n.op for n in floats.nodes)["CAST"] == 2
    (last,) = [n for n in floats.nodes if "relu1" in n.outputs]
    assert (last.op, last.location) == ("CAST", small.LOCATIONS[0])
    assert Counter(n.op for n in floats.nodes)["RESCALE"] == 1  # of the second layer


def test_layers_that_follow_are_not_rounded_between():
    graph, x = small.two_layers(), small.images(8)
    floats = rewrite.to_float(graph)
    tosajax.validate(floats).raise_errors()
    assert set(tosajax.validate(floats).needs or ()) <= {"PRO-INT", "PRO-FP"}
    found = dump(floats, x)["out"]
    exact = real_layers(graph, x, "out")
    check_rounded(found, exact)
    assert (dump(graph, x)["out"] != found).any()  # what rounding does
    assert Counter(n.op for n in floats.nodes)["CAST"] == 2


def test_saturation_stays():
    """Networks clip by the range of a type: a ReLU is a zero point of -128."""
    b = Builder()
    x = b.input("x", DType.INT8, (1, 256))
    wide = small.rescale(b, x, (1 << 30,), (28,), DType.INT8, name="wide", output_zp=-100)
    graph = b.graph([small.rescale(b, wide, (1 << 30,), (33,), DType.INT8, name="out")])
    values = np.arange(-128, 128, dtype=np.int8)[None]
    (found,) = tosajax.compile(rewrite.to_float(graph))(values)
    exact = np.clip(4.0 * values - 100, -128, 127) / 8
    np.testing.assert_array_equal(np.asarray(found), np.rint(exact))


def test_on_arms_model_and_in_a_file(tmp_path):
    graph, x = rewrite.to_float(small.two_layers()), small.images(4)
    tosajax.save(graph, tmp_path / "float.tosa")
    again = tosajax.load(tmp_path / "float.tosa")
    (found,) = tosajax.compile(again, batch=4)(x)
    want = reference_model.run(again, x[:, None])["out"]
    np.testing.assert_array_equal(np.asarray(found)[:, None], want)


def test_an_accumulator_that_others_read_too():
    b = Builder()
    x = b.input("x", DType.INT8, small.SHAPE)
    acc = small.conv(b, x, 2, np.random.default_rng(0), name="acc", input_zp=0)
    y = small.rescale(b, acc, (1 << 30,), (38,), DType.INT8, name="y")
    z = b.op(
        "ARITHMETIC_RIGHT_SHIFT", acc, b.const(np.full((1, 1, 1, 1), 3), DType.INT32), round=True
    )
    graph = b.graph([y, z])
    floats = rewrite.to_float(graph, "acc")
    tosajax.validate(floats).raise_errors()
    # The RESCALE is not alone in reading it, so it stays, and the sum is rounded to int32.
    assert Counter(n.op for n in floats.nodes)["RESCALE"] == 1
    image = small.images(1)
    for found, want in zip(
        tosajax.compile(floats)(image), tosajax.compile(graph)(image), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(want))


Make = Callable[[Builder, Tensor], Tensor]


def _zeros(b: Builder, count: int = 1) -> list[Tensor]:
    return [b.const([3], DType.INT8), *(b.const([-2], DType.INT8) for _ in range(count - 1))]


def _convolution(op: str, weight: tuple[int, ...], **attributes: Any) -> Make:
    def make(b: Builder, x: Tensor) -> Tensor:
        if op == "CONV3D":
            x = b.op("RESHAPE", x, b.const_shape((1, 1, 4, 4, 2)))
        values = np.random.default_rng(1).integers(-127, 128, weight)
        w, bias = b.const(values, DType.INT8), b.const([7], DType.INT32)
        return b.op(op, x, w, bias, *_zeros(b, 2), acc_type=DType.INT32, **attributes)

    return make


def _wide(b: Builder, x: Tensor) -> Tensor:
    return small.rescale(b, x, (1 << 30,), (26,), DType.INT32, name="wide", input_zp=3)


OPERATORS: dict[str, Make] = {
    "CONV3D": _convolution(
        "CONV3D", (2, 1, 2, 2, 2), pad=(0, 0, 0, 1, 1, 0), stride=(1, 1, 1), dilation=(1, 1, 1)
    ),
    "DEPTHWISE_CONV2D": _convolution(
        "DEPTHWISE_CONV2D", (2, 2, 2, 3), pad=(0, 1, 0, 1), stride=(1, 1), dilation=(1, 1)
    ),
    "TRANSPOSE_CONV2D": _convolution(
        "TRANSPOSE_CONV2D", (3, 2, 2, 2), out_pad=(0, 0, 0, 0), stride=(2, 2)
    ),
    "MATMUL": lambda b, x: b.op(
        "MATMUL", b.op("RESHAPE", x, b.const_shape((1, 8, 4))),
        b.op("RESHAPE", x, b.const_shape((1, 4, 8))), *_zeros(b, 2),
    ),
    "MATMUL_T": lambda b, x: b.op(
        "MATMUL_T", b.op("RESHAPE", x, b.const_shape((2, 4, 4))),
        b.const(np.arange(-6, 6).reshape(1, 3, 4), DType.INT8), *_zeros(b, 2),
    ),
    "ADD": lambda b, x: b.op("ADD", _wide(b, x), b.const(np.full((1, 1, 1, 2), 9), DType.INT32)),
    "SUB": lambda b, x: b.op("SUB", b.const(np.full((1, 1, 1, 2), 9), DType.INT32), _wide(b, x)),
    "MUL": lambda b, x: b.op("MUL", _wide(b, x), _same(b, x), b.const([2], DType.INT8)),
    "AVG_POOL2D": lambda b, x: b.op(
        "AVG_POOL2D", x, *_zeros(b, 2), kernel=(2, 3), stride=(1, 1), pad=(1, 1, 1, 1),
        acc_type=DType.INT32,
    ),
    "MAX_POOL2D": lambda b, x: b.op(
        "MAX_POOL2D", x, kernel=(2, 3), stride=(1, 1), pad=(0, 0, 1, 1), nan_mode=NanMode.PROPAGATE
    ),
    "REDUCE_SUM": lambda b, x: b.op("REDUCE_SUM", _wide(b, x), axis=2),
    "REDUCE_MAX": lambda b, x: b.op("REDUCE_MAX", x, axis=3, nan_mode=NanMode.PROPAGATE),
    "REDUCE_MIN": lambda b, x: b.op("REDUCE_MIN", x, axis=1, nan_mode=NanMode.PROPAGATE),
    "CLAMP": lambda b, x: b.op(
        "CLAMP", x, min_val=np.int8(-5), max_val=np.int8(9), nan_mode=NanMode.PROPAGATE
    ),
    "RESCALE": lambda b, x: small.rescale(
        b, x, (1 << 30, 3 << 29), (32, 31), DType.INT8, input_zp=3, output_zp=-2
    ),
    "CONCAT": lambda b, x: b.op("CONCAT", x, x, axis=1),
    "PAD": lambda b, x: b.op(
        "PAD", x, b.const_shape((0, 0, 1, 0, 0, 2, 0, 0)), b.const([3], DType.INT8)
    ),
    "REVERSE": lambda b, x: b.op("REVERSE", x, axis=1),
    "SLICE": lambda b, x: b.op(
        "SLICE", x, b.const_shape((0, 1, 1, 0)), b.const_shape((1, 2, 3, 2))
    ),
    "TILE": lambda b, x: b.op("TILE", x, b.const_shape((1, 2, 1, 1))),
    "TRANSPOSE": lambda b, x: b.op("TRANSPOSE", x, perms=(0, 3, 1, 2)),
    "IDENTITY": lambda b, x: b.op("IDENTITY", x),
}  # fmt: skip


def _same(b: Builder, x: Tensor) -> Tensor:
    return small.rescale(b, x, (1 << 30,), (29,), DType.INT32, name="other", input_zp=-1)


@pytest.mark.parametrize("op", OPERATORS)
def test_operators(op):
    """Each alone: the floats are whole numbers or rounded once, as the integers are."""
    b = Builder()
    x = b.input("x", DType.INT8, small.SHAPE)
    graph = b.graph([OPERATORS[op](b, x)])
    floats = rewrite.to_float(graph, f"^{graph.outputs[0]}$")
    tosajax.validate(floats).raise_errors()
    casts = Counter(n.op for n in floats.nodes)["CAST"]
    assert casts >= 2
    image = small.images(1)
    (found,), (want,) = tosajax.compile(floats)(image), tosajax.compile(graph)(image)
    apart = np.abs(np.asarray(found).astype(int) - np.asarray(want).astype(int))
    # Halves go up in integers, and to even ones in floats.
    assert apart.max() <= (op in ("AVG_POOL2D", "RESCALE", "MUL"))
    assert apart.mean() <= 0.2
    if op in ("CONV3D", "AVG_POOL2D", "MUL", "PAD"):
        arms = reference_model.run(floats, image)[floats.outputs[0]]
        np.testing.assert_array_equal(np.asarray(found), arms)


def test_a_region_of_int48(data):
    """int48 sums become floats inside a region, and cannot at its ends."""
    folder = data / "et_digits_cnn_a16w8"
    graph = tosajax.load(folder / "model.tosa")
    floats = rewrite.to_float(graph, "c2")
    tosajax.validate(floats).raise_errors()
    kinds = Counter((n.op, floats.tensors[n.inputs[0]].dtype) for n in floats.nodes if n.inputs)
    assert kinds["CONV2D", DType.FP32] == 1
    wide = next(
        n
        for n in graph.nodes
        if n.inputs and n.op == "RESCALE" and graph.tensors[n.inputs[0]].dtype is DType.INT48
    )
    with pytest.raises(UnsupportedError, match=r"RESCALE .* cannot be computed in floats"):
        rewrite.to_float(graph, f"^{wide.outputs[0]}$")


def test_what_stays():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4))
    graph = b.graph([b.op("TABLE", x, b.const(np.arange(-128, 128), DType.INT8), name="y")])
    with pytest.raises(UnsupportedError, match="TABLE 'y' cannot be computed in floats"):
        rewrite.to_float(graph)
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4))
    y = b.op(
        "RESCALE", x, b.const([1 << 30], DType.INT32), b.const([30], DType.INT8),
        b.const([0], DType.INT8), b.const([0], DType.INT8), dtype=DType.INT8, scale32=True,
        rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=False,
        input_unsigned=True, output_unsigned=False,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="RESCALE"):
        rewrite.to_float(b.graph([y]))
    b = Builder()
    x = b.input("x", DType.FP32, (1, 4))
    with pytest.raises(UnsupportedError, match="ADD"):
        rewrite.to_float(b.graph([b.op("ADD", x, x)]))
