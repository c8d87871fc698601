"""The same function in FP32: constants folded, scales of channels merged, idle nodes dropped."""

from __future__ import annotations

import dataclasses
from typing import Any

import networks
import numpy as np
import pytest
from oracle import conv_oracle, elementwise_oracle
from paths import CORPUS, DATA
from programs import accumulator

import tosajax
from tosajax import Builder, DType, Graph, Tensor, TosaError, UnsupportedError
from tosajax.graph import DYNAMIC
from tosajax.quant.graphs.simplify import simplify
from tosajax.spec import NanMode

# In units of the last place of the largest output: folded weights are rounded once more, in each
# layer.
FOLDED_LIMIT = 16.0
NETWORKS = {n.name: n for n in (*networks.find(CORPUS), *networks.find(DATA))}
DRAFT = "et_digits_vit_mxfp8_e4m3"
SHORT = [DType.FP16, DType.BF16]


def simplified(graph: Graph) -> Graph:
    """The result of `simplify`, after the checks that hold for every graph."""
    found = simplify(graph)
    assert tosajax.validate(found).findings == ()
    assert (found.inputs, found.outputs) == (graph.inputs, graph.outputs)
    for name in (*graph.inputs, *graph.outputs):
        assert found.tensors[name].shape == graph.tensors[name].shape
    assert not {t.dtype for t in found.tensors.values() if t.dtype.is_float} - {DType.FP32}
    named = {n for node in found.nodes for n in (*node.inputs, *node.outputs)}
    assert found.tensors.keys() == {*named, *found.inputs, *found.outputs}
    return found


def operators(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op not in ("CONST", "CONST_SHAPE")]


def run(graph: Graph, *inputs: np.ndarray) -> list[np.ndarray]:
    function, params = tosajax.lower(graph)
    return [np.asarray(y) for y in function(params, *inputs)]


def values(graph: Graph, name: str) -> np.ndarray:
    found = graph.tensors[name].values
    assert found is not None
    return found


def eighths(*shape: int, seed: int = 0) -> np.ndarray:
    """Float32 values of few bits, so that no small sum or product of them is rounded."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.integers(-16, 17, shape) / 8).astype(np.float32)


def zero_points(b: Builder, dtype: DType = DType.FP32) -> tuple[Tensor, Tensor]:
    return b.const([0], dtype), b.const([0], dtype)


def constant(b: Builder, array: Any, dtype: DType = DType.FP32, name: str | None = None) -> Tensor:
    return b.const(np.asarray(array), dtype, name=name)


def multiply(b: Builder, x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    return b.op("MUL", x, y, b.const([0], DType.INT8), name=name)


# Whole networks.


@pytest.mark.parametrize("name", sorted(set(NETWORKS) - {DRAFT}))
def test_networks_have_the_same_outputs(name):
    """Floats agree within the rounding of their type; integer networks stay legal graphs."""
    whole = NETWORKS[name]
    network = dataclasses.replace(whole, inputs=tuple(a[:3] for a in whole.inputs))
    graph = tosajax.load(network.model)
    found = simplified(graph)
    if not any(tensor.dtype.is_float for tensor in graph.tensors.values()):
        return
    given = [
        a.astype(np.float32) if t.dtype.is_float else a
        for a, t in zip(
            networks.typed(network.inputs, graph.input_tensors), graph.input_tensors, strict=True
        )
    ]
    function = tosajax.compile(found)
    expected = networks.run_each(network, graph)
    for i in range(network.count):
        for result, want in zip(function(*(a[i] for a in given)), expected, strict=True):
            assert networks.ulps(np.asarray(result), want[i]) <= FOLDED_LIMIT


def test_batch_norms_of_a_network_are_those_that_its_converter_folded():
    """The same network, in bf16 with batch norms and in fp32 with folded ones.

    A weight is the product of four that were rounded to bf16, by up to 2**-8 each.
    """
    short, wide = (
        simplified(tosajax.load(DATA / f"et_digits_cnn_{kind}" / "model.tosa"))
        for kind in ("bf16", "fp32")
    )
    assert operators(short) == operators(wide)
    for mine, theirs in zip(_convolutions(short), _convolutions(wide), strict=True):
        for found, want in zip(mine, theirs, strict=True):
            assert np.abs(found - want).max() <= 2.0**-6 * np.abs(want).max()


def _convolutions(graph: Graph) -> list[list[np.ndarray]]:
    nodes = [n for n in graph.ordered_nodes() if "CONV" in n.op]
    return [[values(graph, name) for name in n.inputs[1:3]] for n in nodes]


def test_constants_of_a_network_are_computed():
    graph = tosajax.load(DATA / "et_digits_cnn_bf16" / "model.tosa")
    assert operators(graph).count("RESHAPE") == 17
    assert operators(simplified(graph)).count("RESHAPE") == 1


# Floats.


@pytest.mark.parametrize("dtype", [*SHORT, DType.FP8E4M3])
def test_values_are_widened_exactly(dtype):
    """0.3 is rounded to the short type first."""
    b = Builder()
    x = b.input("x", dtype, (2, 2))
    y = b.op("CONCAT", x, constant(b, [[0.3, -0.0]], dtype), axis=0, name="y")
    graph = simplified(b.graph([y]))
    given = np.array([[1, 2], [3, 4]], np.float32)
    want = np.array([0.3, -0.0], dtype.storage).astype(np.float32)
    (result,) = run(graph, given)
    assert result.tobytes() == np.vstack([given, want]).astype(np.float32).tobytes()


@pytest.mark.parametrize("dtype", [*SHORT, DType.FP32])
@pytest.mark.parametrize("nan_mode", list(NanMode))
def test_clamp_keeps_its_bounds_and_its_nan_mode(dtype, nan_mode):
    b = Builder()
    x = b.input("x", dtype, (3,))
    largest = dtype.storage.type(1e4)
    y = b.op("CLAMP", x, min_val=0.3, max_val=largest, nan_mode=nan_mode)
    graph = simplified(b.graph([y]))
    (node,) = (n for n in graph.nodes if n.op == "CLAMP")
    low, high = node.attributes["min_val"], node.attributes["max_val"]
    assert (low, high) == (np.float32(dtype.storage.type(0.3)), np.float32(largest))
    assert {type(low), type(high)} == {np.float32}
    assert node.attributes["nan_mode"] is nan_mode


def test_accumulators_and_other_attributes():
    b = Builder()
    x = b.input("x", DType.FP16, (1, 4, 4, 2))
    weight, bias = constant(b, eighths(3, 1, 1, 2), DType.FP16), constant(b, [1], DType.FP16)
    y = b.op(
        "CONV2D", x, weight, bias, *zero_points(b, DType.FP16), pad=(0, 0, 0, 0), stride=(1, 1),
        dilation=(1, 1), acc_type=DType.FP16, local_bound=True,
    )  # fmt: skip
    window = {"kernel": (2, 2), "stride": (2, 2), "pad": (0, 0, 0, 0)}
    y = b.op("AVG_POOL2D", y, *zero_points(b, DType.FP16), **window, acc_type=DType.FP16)
    y = b.op("MAX_POOL2D", y, kernel=(2, 2), stride=(1, 1), pad=(0, 0, 0, 0), nan_mode=NanMode(2))
    graph = simplified(b.graph([y]))
    conv, mean, most = (n.attributes for n in graph.nodes if not n.op.startswith("CONST"))
    assert (conv["acc_type"], mean["acc_type"]) == (DType.FP32, DType.FP32)
    assert conv["local_bound"] is True
    assert most["nan_mode"] is NanMode.IGNORE


@pytest.mark.parametrize("dtype", SHORT)
def test_casts_between_floats_are_dropped(dtype):
    b = Builder()
    x = b.input("x", DType.FP32, (3,))
    y = b.op("EXP", b.op("CAST", x, dtype=dtype))
    z = b.op("CAST", b.op("CAST", y, dtype=DType.FP32), dtype=DType.INT32, name="z")
    assert operators(simplified(b.graph([z]))) == ["EXP", "CAST"]


def test_casts_from_integers_become_casts_to_fp32():
    b = Builder()
    y = b.op("CAST", b.input("x", DType.INT8, (3,)), dtype=DType.FP16, name="y")
    (result,) = run(simplified(b.graph([y])), np.array([-128, 0, 127], np.int8))
    np.testing.assert_array_equal(result, np.array([-128, 0, 127], np.float32))


def test_an_input_that_is_cast_to_an_output():
    b = Builder()
    x = b.input("x", DType.FP16, (3,))
    graph = simplified(b.graph([b.op("CAST", x, dtype=DType.FP32, name="y")]))
    assert operators(graph) == ["IDENTITY"]


def test_integers_stay():
    b = Builder()
    table = constant(b, eighths(1, 5, 2), DType.BF16)
    indices = b.input("indices", DType.INT32, (1, 3))
    flags = b.input("flags", DType.BOOL, (1, 3, 1))
    rows = b.op("GATHER", table, indices)
    y = b.op("SELECT", flags, rows, constant(b, [[[2]]], DType.BF16), name="y")
    graph = simplified(b.graph([y]))
    assert [t.dtype for t in graph.input_tensors] == [DType.INT32, DType.BOOL]
    (result,) = run(graph, np.array([[4, 0, 1]], np.int32), np.array([[[True], [False], [True]]]))
    assert result.shape == (1, 3, 2)
    np.testing.assert_array_equal(result[0, 1], [2, 2])
    np.testing.assert_array_equal(result[0, ::2], eighths(1, 5, 2)[0, [4, 1]])


# Constants.


def test_constants_are_computed():
    """Scales as a converter spells them: 1 / sqrt(variance) * gamma, moved to the channels."""
    variance, gamma = 1 + np.abs(eighths(3)), eighths(3, seed=1)
    b = Builder()
    x = b.input("x", DType.FP32, (1, 2, 3))
    root = b.op("RSQRT", constant(b, variance, DType.FP16))
    scale = multiply(b, b.op("CAST", root, dtype=DType.FP32), constant(b, gamma))
    scale = b.op("RECIPROCAL", b.op("RESHAPE", scale, b.const_shape((3, 1, 1))))
    y = b.op("POW", x, b.op("TRANSPOSE", scale, perms=(1, 2, 0)), name="y")
    graph = simplified(b.graph([y]))
    assert operators(graph) == ["POW"]
    (name,) = (n for n in graph.nodes[-1].inputs if n != "x")
    want = 1 / (elementwise_oracle.rsqrt(variance.astype(np.float64)) * gamma)
    np.testing.assert_allclose(values(graph, name)[0, 0], want, rtol=2.0**-21)


def test_large_constants_and_integers_are_computed():
    b = Builder()
    x = b.input("x", DType.INT32, (1, 2**17))
    many = b.op("TILE", constant(b, [[3, 4]], DType.INT32), b.const_shape((1, 2**16)))
    graph = simplified(b.graph([b.op("ADD", x, b.op("BITWISE_NOT", many), name="y")]))
    assert operators(graph) == ["ADD"]
    (result,) = run(graph, np.zeros((1, 2**17), np.int32))
    np.testing.assert_array_equal(result[0], np.tile([-4, -5], 2**16))


def test_constant_outputs():
    b = Builder()
    y = b.op("EXP", constant(b, [0.0, 1.0]), name="y")
    copy = b.op("IDENTITY", y, name="copy")
    graph = simplified(b.graph([y, copy]))
    assert operators(graph) == []
    for result in run(graph):
        np.testing.assert_allclose(result, np.exp([0.0, 1.0]), rtol=2.0**-22)


def test_what_nobody_reads_is_dropped():
    b = Builder()
    x = b.input("x", DType.FP32, (3,))
    b.op("EXP", b.op("LOG", x))
    b.input("unused", DType.FP32, (2,))
    graph = simplified(b.graph([b.op("ABS", x, name="y")]))
    assert operators(graph) == ["ABS"]
    assert graph.inputs == ("x", "unused")


def test_graphs_that_nobody_refers_to_are_dropped():
    b = Builder()
    b.subgraph(accumulator())
    graph = simplified(b.graph([b.op("ABS", b.input("x", DType.FP32, (2,)))]))
    assert graph.subgraphs == {}


# Scales and offsets of channels.

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "CONV2D": (
        (2, 5, 5, 3), (4, 3, 2, 3),
        {"pad": (1, 1, 0, 1), "stride": (2, 1), "dilation": (1, 2)},
    ),
    "CONV3D": (
        (1, 3, 4, 3, 2), (4, 2, 2, 1, 2),
        {"pad": (0, 0, 1, 0, 0, 1), "stride": (1, 1, 1), "dilation": (1, 1, 1)},
    ),
    "DEPTHWISE_CONV2D": (
        (2, 5, 5, 2), (3, 3, 2, 2),
        {"pad": (1, 1, 1, 1), "stride": (2, 2), "dilation": (1, 1)},
    ),
    "TRANSPOSE_CONV2D": (
        (1, 3, 3, 3), (4, 2, 3, 3),
        {"out_pad": (1, 0, -1, 2), "stride": (2, 1)},
    ),
}  # fmt: skip
ORACLES = {
    "CONV2D": conv_oracle.conv,
    "CONV3D": conv_oracle.conv,
    "DEPTHWISE_CONV2D": conv_oracle.depthwise,
    "TRANSPOSE_CONV2D": conv_oracle.transpose,
}
CHANNELS = 4


def convolve(b: Builder, op: str, *, bias: int = CHANNELS, dtype: DType = DType.FP32) -> Tensor:
    """A convolution "conv" of the input "x", with the constants "weight" and "bias"."""
    shape, kernel, attributes = CONVOLUTIONS[op]
    return b.op(
        op,
        b.input("x", dtype, shape),
        constant(b, eighths(*kernel), dtype, "weight"),
        constant(b, eighths(bias), dtype, "bias"),
        *zero_points(b, dtype),
        **attributes,
        acc_type=DType.FP32,
        name="conv",
    )


def convolved(op: str, x: np.ndarray, bias: int = CHANNELS) -> np.ndarray:
    """The convolution in float64."""
    _, kernel, attributes = CONVOLUTIONS[op]
    wide = [a.astype(np.float64) for a in (x, eighths(*kernel), eighths(bias))]
    return ORACLES[op](*wide, **attributes)


def by_channel(rank: int, *, seed: int) -> np.ndarray:
    return eighths(*(1 for _ in range(rank - 1)), CHANNELS, seed=seed)


@pytest.mark.parametrize("bias", [1, CHANNELS])
@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_batch_norms_go_into_convolutions(op, bias):
    """The values have so few bits that nothing is rounded on any way."""
    b = Builder()
    y = convolve(b, op, bias=bias)
    rank = len(y.shape or ())
    mean, root, gamma, beta = (by_channel(rank, seed=n) for n in range(1, 5))
    y = b.op("SUB", y, constant(b, mean))
    y = multiply(b, y, constant(b, root))
    y = multiply(b, constant(b, gamma), y)
    y = b.op("ADD", constant(b, beta), y, name="normed")
    y = b.op("CLAMP", y, min_val=np.float32(0), max_val=np.float32(6), name="y")
    graph = b.graph([y])
    found = simplified(graph)
    assert operators(found) == [op, "CLAMP"]
    node, clamp = (n for n in found.ordered_nodes() if not n.op.startswith("CONST"))
    assert (node.outputs, clamp.inputs) == (("normed",), ("normed",))
    assert node.inputs[:3] == ("x", "weight", "bias")
    assert found.tensors["bias"].shape == (CHANNELS,)
    x = eighths(*CONVOLUTIONS[op][0], seed=9)
    want = np.clip(((convolved(op, x, bias) - mean) * root) * gamma + beta, 0, 6)
    for each in (graph, found):
        np.testing.assert_array_equal(run(each, x)[0], want)
    assert (want > 0).any()
    assert (want < 6).any()


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 1, CHANNELS), (1, 3, 1, CHANNELS)])
@pytest.mark.parametrize(
    ("op", "swapped", "expected"),
    [
        ("ADD", False, np.add),
        ("ADD", True, np.add),
        ("SUB", False, np.subtract),
        ("SUB", True, lambda x, c: c - x),
        ("MUL", False, np.multiply),
        ("MUL", True, np.multiply),
    ],
)
def test_each_step_by_constants(op, swapped, expected, shape):
    """Of one value, of one for each channel, and repeated along an axis."""
    array = np.broadcast_to(eighths(*shape[3:], seed=3), shape)
    b = Builder()
    conv = convolve(b, "CONV2D")
    pair = (constant(b, array), conv) if swapped else (conv, constant(b, array))
    y = multiply(b, *pair, name="y") if op == "MUL" else b.op(op, *pair, name="y")
    graph = simplified(b.graph([y]))
    assert operators(graph) == ["CONV2D"]
    x = eighths(*CONVOLUTIONS["CONV2D"][0], seed=9)
    np.testing.assert_array_equal(run(graph, x)[0], expected(convolved("CONV2D", x), array))


def test_a_batch_norm_is_rounded_once():
    rng = np.random.default_rng(7)
    weight, bias, *rest = (rng.normal(size=64).astype(np.float32) for _ in range(6))
    b = Builder()
    x = b.input("x", DType.FP32, (1, 1, 1, 1))
    y = b.op(
        "CONV2D", x, constant(b, weight.reshape(64, 1, 1, 1), name="weight"),
        constant(b, bias, name="bias"), *zero_points(b), pad=(0, 0, 0, 0), stride=(1, 1),
        dilation=(1, 1), acc_type=DType.FP32,
    )  # fmt: skip
    mean, root, gamma, beta = (constant(b, a.reshape(1, 1, 1, 64)) for a in rest)
    y = multiply(b, multiply(b, b.op("SUB", y, mean), root), gamma)
    graph = simplified(b.graph([b.op("ADD", y, beta, name="y")]))
    w, c, m, r, g, o = (a.astype(np.float64) for a in (weight, bias, *rest))
    np.testing.assert_array_equal(values(graph, "weight").ravel(), (w * (r * g)).astype(np.float32))
    want = (c - m) * r * g + o
    # Half a unit in the last place, and the error of float64 where the sum cancels.
    error = np.abs(values(graph, "bias") - want)
    assert np.all(error <= 0.5 * np.spacing(np.abs(want).astype(np.float32)) + 2.0**-48)
    step_by_step = ((bias - rest[0]) * rest[1]) * rest[2] + rest[3]
    assert (values(graph, "bias") != step_by_step).any()


@pytest.mark.parametrize("dtype", SHORT)
def test_batch_norms_of_short_floats(dtype):
    b = Builder()
    y = b.op("ADD", convolve(b, "CONV2D", dtype=dtype), constant(b, by_channel(4, seed=1), dtype))
    assert operators(simplified(b.graph([y]))) == ["CONV2D"]


def test_convolutions_that_share_constants():
    """One is scaled; the other needs the weights as they were, and the graph puts out the bias."""
    b = Builder()
    conv = convolve(b, "CONV2D")
    attributes: dict[str, Any] = {**CONVOLUTIONS["CONV2D"][2], "acc_type": DType.FP32}
    x, weight, bias = (b.graph([]).tensors[n] for n in ("x", "weight", "bias"))
    other = b.op("CONV2D", x, weight, constant(b, [0]), *zero_points(b), **attributes, name="other")
    y = b.op("SUB", constant(b, np.full((1, 1, 1, 1), 2)), conv, name="y")
    taken = b.input("bias_y", DType.FP32, (1,))
    graph = b.graph([y, other, bias, taken])
    found = simplified(graph)
    assert operators(found) == ["CONV2D", "CONV2D"]
    given = eighths(*CONVOLUTIONS["CONV2D"][0], seed=9), np.ones(1, np.float32)
    for result, want in zip(run(found, *given), run(graph, *given), strict=True):
        np.testing.assert_array_equal(result, want)


def scaled(b: Builder, x: Tensor, name: str = "y") -> Tensor:
    return multiply(b, x, constant(b, by_channel(4, seed=1)), name)


def another_reader(b: Builder, conv: Tensor) -> list[Tensor]:
    return [scaled(b, conv), b.op("EXP", conv)]


def an_output(b: Builder, conv: Tensor) -> list[Tensor]:
    return [scaled(b, conv), conv]


def a_square(b: Builder, conv: Tensor) -> list[Tensor]:
    return [multiply(b, conv, conv)]


def values_along_a_row(b: Builder, conv: Tensor) -> list[Tensor]:
    return [b.op("ADD", conv, constant(b, eighths(1, 1, 4, 1)))]


def no_constant(b: Builder, conv: Tensor) -> list[Tensor]:
    return [b.op("ADD", conv, b.input("z", DType.FP32, (1, 1, 1, 1)))]


def an_open_shift(b: Builder, conv: Tensor) -> list[Tensor]:
    shift = b.input("shift", DType.INT8, (1,))
    return [b.op("MUL", conv, constant(b, by_channel(4, seed=1)), shift)]


def an_overflow(b: Builder, conv: Tensor) -> list[Tensor]:
    return [multiply(b, conv, constant(b, np.full((1, 1, 1, 1), 3e38)))]


def an_overflow_of_weights(b: Builder, conv: Tensor) -> list[Tensor]:
    moved = b.op("SUB", conv, constant(b, eighths(CHANNELS).reshape(1, 1, 1, -1)))
    return [multiply(b, moved, constant(b, np.full((1, 1, 1, 1), 3e38)))]


def an_infinity(b: Builder, conv: Tensor) -> list[Tensor]:
    return [b.op("ADD", conv, constant(b, np.full((1, 1, 1, 1), np.inf)))]


def another_operator(b: Builder, conv: Tensor) -> list[Tensor]:
    return [b.op("MAXIMUM", conv, constant(b, by_channel(4, seed=1)))]


@pytest.mark.parametrize(
    "readers",
    [
        another_reader, an_output, a_square, values_along_a_row, no_constant, an_open_shift,
        an_overflow, an_overflow_of_weights, an_infinity, another_operator,
    ],
)  # fmt: skip
def test_convolutions_that_stay(readers):
    b = Builder()
    outputs = readers(b, convolve(b, "CONV2D"))
    graph = b.graph(outputs)
    found = simplify(graph)
    assert operators(found) == operators(graph)
    np.testing.assert_array_equal(values(found, "weight"), values(graph, "weight"))


@pytest.mark.parametrize("shape", [(1, 1, 1, 4), (1, 3, 1, 1)])
def test_a_constant_that_widens_the_result_stays(shape):
    b = Builder()
    x = b.input("x", DType.FP32, (1, 1, 1, 1))
    one = constant(b, np.ones((1, 1, 1, 1)))
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    y = b.op("CONV2D", x, one, constant(b, [1]), *zero_points(b), **window)
    graph = simplified(b.graph([b.op("ADD", y, constant(b, np.ones(shape)))]))
    assert operators(graph) == ["CONV2D", "ADD"]


@pytest.mark.parametrize("open_name", ["weight", "bias"])
def test_a_convolution_of_open_weights_stays(open_name):
    b = Builder()
    shape, kernel, attributes = CONVOLUTIONS["CONV2D"]
    given = {
        name: b.input(name, DType.FP32, dims)
        if name == open_name
        else constant(b, eighths(*dims), name=name)
        for name, dims in (("weight", kernel), ("bias", (CHANNELS,)))
    }
    x = b.input("x", DType.FP32, shape)
    window = {**attributes, "acc_type": DType.FP32}
    conv = b.op("CONV2D", x, given["weight"], given["bias"], *zero_points(b), **window)
    assert operators(simplified(b.graph([scaled(b, conv)]))) == ["CONV2D", "MUL"]


def test_a_convolution_of_integers_stays():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 2, 2, 1))
    weight = b.const(np.ones((1, 1, 1, 1)), DType.INT8)
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.INT32}
    zeros = zero_points(b, DType.INT8)
    y = b.op("CONV2D", x, weight, b.const([1], DType.INT32), *zeros, **window)
    y = b.op("ADD", y, b.const(np.full((1, 1, 1, 1), 5), DType.INT32), name="y")
    assert operators(simplified(b.graph([y]))) == ["CONV2D", "ADD"]


def test_a_chain_ends_at_an_output():
    b = Builder()
    middle = scaled(b, convolve(b, "CONV2D"), "middle")
    y = b.op("ADD", middle, constant(b, by_channel(4, seed=2)), name="y")
    graph = b.graph([middle, y])
    found = simplified(graph)
    assert operators(found) == ["CONV2D", "ADD"]
    x = eighths(*CONVOLUTIONS["CONV2D"][0], seed=9)
    for result, want in zip(run(found, x), run(graph, x), strict=True):
        np.testing.assert_array_equal(result, want)


def test_a_chain_goes_through_what_changes_nothing():
    b = Builder()
    y = scaled(b, b.op("IDENTITY", convolve(b, "CONV2D")), "middle")
    shape = y.shape or ()
    flat = b.op("RESHAPE", y, b.const_shape((int(np.prod(shape)),)))
    y = b.op("ADD", b.op("RESHAPE", flat, b.const_shape(shape)), constant(b, by_channel(4, seed=2)))
    assert operators(simplified(b.graph([b.op("IDENTITY", y, name="y")]))) == ["CONV2D"]


# Nodes that change nothing.

IDENTITIES = {
    "identity": lambda b, x: b.op("IDENTITY", x),
    "reshape": lambda b, x: b.op("RESHAPE", x, b.const_shape((2, 1, 2))),
    "transpose": lambda b, x: b.op("TRANSPOSE", x, perms=(0, 1, 2)),
    "slice": lambda b, x: b.op("SLICE", x, b.const_shape((0, 0, 0)), b.const_shape((2, 1, 2))),
    "pad": lambda b, x: b.op("PAD", x, b.const_shape((0,) * 6), constant(b, [5])),
    "tile": lambda b, x: b.op("TILE", x, b.const_shape((1, 1, 1))),
    "concat": lambda b, x: b.op("CONCAT", x, axis=1),
    "mul": lambda b, x: multiply(b, x, constant(b, np.ones((2, 1, 1)))),
    "mul-swapped": lambda b, x: multiply(b, constant(b, [[[1]]]), x),
    "add": lambda b, x: b.op("ADD", x, constant(b, [[[0]]])),
    "add-swapped": lambda b, x: b.op("ADD", constant(b, [[[0, 0]]]), x),
    "sub": lambda b, x: b.op("SUB", x, constant(b, [[[0]]])),
}


@pytest.mark.parametrize("kind", IDENTITIES)
def test_identities_are_dropped(kind):
    """Before, between and behind operators, where an output takes the other's name."""
    b = Builder()
    change = IDENTITIES[kind]
    x = b.input("x", DType.FP32, (2, 1, 2))
    y = b.op("EXP", change(b, x))
    y = b.op("ABS", change(b, change(b, y)))
    graph = b.graph([change(b, y)])
    found = simplified(graph)
    assert operators(found) == ["EXP", "ABS"]
    given = eighths(2, 1, 2)
    np.testing.assert_array_equal(run(found, given)[0], run(graph, given)[0])


CHANGES = {
    "transpose": lambda b, x: b.op("TRANSPOSE", x, perms=(2, 1, 0)),
    "reshape": lambda b, x: b.op("RESHAPE", x, b.const_shape((2, 2, 1))),
    "slice": lambda b, x: b.op("SLICE", x, b.const_shape((1, 0, 0)), b.const_shape((1, 1, 2))),
    "pad": lambda b, x: b.op("PAD", x, b.const_shape((0, 0, 0, 1, 0, 0)), constant(b, [5])),
    "tile": lambda b, x: b.op("TILE", x, b.const_shape((1, 2, 1))),
    "concat": lambda b, x: b.op("CONCAT", x, x, axis=1),
    "mul-wider": lambda b, x: multiply(b, x, constant(b, np.ones((1, 2, 1)))),
    "mul-2": lambda b, x: multiply(b, x, constant(b, [[[1, 2]]])),
    "add-wider": lambda b, x: b.op("ADD", x, constant(b, np.zeros((1, 2, 1)))),
    "add-1": lambda b, x: b.op("ADD", x, constant(b, [[[0, 1]]])),
    "sub-from-0": lambda b, x: b.op("SUB", constant(b, [[[0]]]), x),
    "reverse": lambda b, x: b.op("REVERSE", x, axis=0),
    "int8": lambda b, x: b.op(
        "CAST",
        multiply(b, b.op("CAST", x, dtype=DType.INT8), constant(b, [[[1]]], DType.INT8)),
        dtype=DType.FP32,
    ),
    "int32-halved": lambda b, x: b.op(
        "CAST",
        b.op(
            "MUL",
            b.op("CAST", x, dtype=DType.INT32),
            constant(b, [[[1]]], DType.INT32),
            b.const([1], DType.INT8),
        ),
        dtype=DType.FP32,
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_changes_stay(kind):
    b = Builder()
    graph = b.graph([CHANGES[kind](b, b.input("x", DType.FP32, (2, 1, 2)))])
    found = simplified(graph)
    assert operators(found) == operators(graph)
    given = 8 * eighths(2, 1, 2)
    np.testing.assert_array_equal(run(found, given)[0], run(graph, given)[0])


@pytest.mark.parametrize(("perms", "left"), [((1, 0, 2, 3), 0), ((0, 1, 3, 2), 1)])
def test_transposes_of_axes_of_size_1_change_nothing(perms, left):
    b = Builder()
    x = b.input("x", DType.FP32, (1, 1, 3, 3))
    y = b.op("EXP", b.op("TRANSPOSE", x, perms=perms))
    assert operators(simplified(b.graph([y]))) == ["TRANSPOSE"] * left + ["EXP"]


def test_reshapes_are_merged():
    b = Builder()
    y = b.input("x", DType.FP32, (4, 6))
    for dims in ((24,), (2, 12), (3, 8)):
        y = b.op("RESHAPE", y, b.const_shape(dims))
    graph = simplified(b.graph([y]))
    assert operators(graph) == ["RESHAPE"]
    (result,) = run(graph, eighths(4, 6))
    np.testing.assert_array_equal(result, eighths(4, 6).reshape(3, 8))


def test_reshapes_that_are_read_stay():
    b = Builder()
    x = b.input("x", DType.FP32, (4, 6))
    flat = b.op("RESHAPE", x, b.const_shape((24,)), name="flat")
    back = b.op("ABS", b.op("RESHAPE", flat, b.const_shape((4, 6))), name="back")
    graph = simplified(b.graph([flat, back]))
    assert operators(graph) == ["RESHAPE", "ABS"]
    assert next(n.inputs for n in graph.nodes if n.op == "ABS") == ("x",)


# Names.


def test_outputs_keep_their_names():
    """A copy gives its name to the tensor that it copies, for all readers."""
    b = Builder()
    x = b.input("x", DType.FP32, (2,))
    inner = b.op("EXP", x, name="inner")
    copy = b.op("IDENTITY", inner, name="copy")
    graph = simplified(b.graph([copy, b.op("ADD", copy, inner, name="sum")]))
    assert [(n.op, n.inputs, n.outputs) for n in graph.nodes] == [
        ("EXP", ("x",), ("copy",)),
        ("ADD", ("copy", "copy"), ("sum",)),
    ]


def test_two_copies_of_one_tensor():
    b = Builder()
    inner = b.op("EXP", b.input("x", DType.FP32, (2,)), name="inner")
    copies = [b.op("IDENTITY", inner, name=name) for name in ("first", "second")]
    graph = simplified(b.graph(copies))
    assert [(n.op, n.inputs, n.outputs) for n in graph.nodes] == [
        ("EXP", ("x",), ("first",)),
        ("IDENTITY", ("first",), ("second",)),
    ]


def test_copies_of_inputs_and_outputs_stay():
    b = Builder()
    x = b.input("x", DType.FP32, (2,))
    inner = b.op("EXP", x, name="inner")
    of_output = b.op("IDENTITY", inner, name="of_output")
    of_input = b.op("IDENTITY", x, name="of_input")
    again = b.op("IDENTITY", of_input, name="again")
    graph = simplified(b.graph([inner, of_output, of_input, again, x, inner]))
    assert {n.outputs[0]: n.inputs[0] for n in graph.nodes if n.op == "IDENTITY"} == {
        "of_output": "inner",
        "of_input": "x",
        "again": "x",
    }


def test_locations_stay():
    b = Builder()
    x = b.input("x", DType.FP32, (2,))
    y = b.op("EXP", b.op("IDENTITY", x), location="layer 1")
    copy = b.op("IDENTITY", x, location="layer 2")
    assert [n.location for n in simplified(b.graph([y, copy])).nodes] == ["layer 1", "layer 2"]


# Refused graphs.


def fourier(op: str) -> Graph:
    b = Builder()
    real, imag = (b.input(name, DType.FP32, (1, 4, 4)) for name in ("real", "imag"))
    if op == "RFFT2D":
        return b.graph(b.ops(op, real))
    return b.graph(b.ops(op, real, imag, inverse=False))


def custom() -> Graph:
    b = Builder()
    x = b.input("x", DType.FP32, (2,))
    names = {"operator_name": "twice", "domain_name": "mine", "implementation_attrs": ""}
    return b.graph([b.op("CUSTOM", x, shape=(2,), dtype=DType.FP32, **names)])


@pytest.mark.parametrize(
    ("graph", "node"),
    [
        (accumulator([0, 0, 0]), "VARIABLE"),
        (fourier("FFT2D"), "FFT2D"),
        (fourier("RFFT2D"), "RFFT2D"),
        (custom(), "CUSTOM"),
    ],
    ids=["variable", "fft2d", "rfft2d", "custom"],
)
def test_refused_operators_are_named(graph, node):
    with pytest.raises(UnsupportedError, match=node):
        simplify(graph)


def test_open_dimensions_are_refused():
    b = Builder()
    x = b.input("x", DType.FP32, (DYNAMIC, 2))
    with pytest.raises(UnsupportedError, match=r"open dimensions.*tosajax\.bind"):
        simplify(b.graph([b.op("EXP", x, shape=(DYNAMIC, 2))]))


def test_illegal_graphs_are_refused():
    b = Builder()
    x = b.input("x", DType.FP32, (3,))
    with pytest.raises(TosaError, match="shape"):
        simplify(b.graph([b.op("EXP", x, shape=(4,))]))
