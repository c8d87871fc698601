"""Graphs of TOSA's operators have the bits of the kernels that they stand for."""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.hifi_oracle import draw, draw_quant

import tosajax
from tosajax import Builder, DType, UnsupportedError
from tosajax.hifi import NNLibParamError, kernels, to_tosa
from tosajax.hifi.kernels import Quant, SoftmaxQuant
from tosajax.spec import RoundingMode

SYM8S = "sym8sxasym8s_asym8s"
PER_CHAN = "per_chan_sym8sxasym8s"
# Height, width, channels, kernel, strides, padding, size of the output.
PLAIN = (5, 4, 3), (3, 2), (1, 1), (0, 0), (3, 3)
PADDED = (5, 4, 3), (3, 2), (2, 1), (2, 1), (4, 5)
CROPPED = (6, 7, 2), (2, 3), (2, 2), (1, 0), (2, 2)
WINDOWS = {"plain": PLAIN, "padded": PADDED, "cropped": CROPPED}
FORMATS = ["DWH", "WHD"]
# Multiplier and shift: ends, halves of which each odd number is a tie, and no shift at all.
SCALES = [
    (2**30, -31),
    (2**30, -1),
    (2**30, 0),
    (1518500250, -7),
    (1518500251, -11),
    (2**31 - 1, 0),
    (2**30, 3),
    (1, 2),
]


@pytest.fixture
def rng():
    return np.random.default_rng(53)


def one_scale(rng) -> list[Quant]:
    """A scale for all channels, of SCALES and drawn."""
    fixed = [Quant(5, 0, multiplier, shift, -3) for multiplier, shift in SCALES]
    return [*fixed, *(Quant(*draw_quant(rng, np.int8)) for _ in range(3))]


def channel_scales(rng, channels) -> list[Quant]:
    """Scales of channels, of SCALES in turn and drawn."""
    multipliers, shifts = np.resize(np.array(SCALES, np.int32), (channels, 2)).T
    return [
        Quant(128, 0, multipliers, shifts, -3),
        Quant(-127, 0, multipliers[::-1], shifts[::-1], 127),
        Quant(*draw_quant(rng, np.int8, (channels,))),
    ]


def bias_of(rng, channels):
    size = 2 ** rng.choice([0, 10, 17, 25], channels)
    return rng.integers(-size, size, channels, endpoint=True).astype(np.int32)


def specs(*arrays):
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def run(graph, *inputs):
    """The outputs of a legal graph, all of them defined."""
    assert tosajax.validate(graph).findings == ()
    fn, params = tosajax.lower(graph, report_unpredictable=True)
    (result,), flags = jax.jit(fn)(params, *inputs)
    assert not any(flags.values()), flags
    return result


def inputs_first(inputs, values):
    return *inputs, *values


def check(function, kernel, inputs, *values, order=inputs_first, **p):
    """Equality of a kernel and of its graph, by the same parameters."""
    graph = to_tosa.to_graph(function, *order(specs(*inputs), values), **p)
    result = run(graph, *map(jnp.asarray, inputs))
    numbers = {name for name, value in p.items() if isinstance(value, int | np.ndarray | Quant)}
    words = tuple((name, value) for name, value in p.items() if name not in numbers)
    jitted = jitted_kernel(kernel, order, words)
    expected = jitted(inputs, values, {name: p[name] for name in numbers})
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    return expected


@functools.cache
def jitted_kernel(kernel, order, words):
    """Compiled once for all numbers of the same shapes."""
    return jax.jit(
        lambda inputs, values, numbers: kernel(*order(inputs, values), **numbers, **dict(words))
    )


def weight_first(inputs, values):
    return values[0], *inputs, *values[1:]


# Sums of products.


def test_fully_connected(rng):
    weight, bias = draw(rng, np.int8, (5, 12)), bias_of(rng, 5)
    results = [
        check(
            to_tosa.fully_connected,
            kernels.fully_connected,
            [draw(rng, np.int8, (12,))],
            weight,
            bias,
            order=weight_first,
            precision=SYM8S,
            quant=quant,
        )
        for quant in one_scale(rng)[::2]
    ]
    assert np.unique(results).size > 6


@pytest.mark.parametrize("has_bias", [True, False])
def test_matmul(has_bias, rng):
    weight, bias = draw(rng, np.int8, (5, 12)), bias_of(rng, 5) if has_bias else None
    for quant in [*one_scale(rng)[1::3], *channel_scales(rng, 5)]:
        check(
            to_tosa.matmul,
            kernels.matmul,
            [draw(rng, np.int8, (12, 3))],
            weight,
            bias,
            order=weight_first,
            precision="per_chan_sym8sxasym8s_asym8s",
            quant=quant,
        )


def convolve(name, rng, window, ker_shape, quant, transposed=False, **more):
    """Equality of a convolution of a window and of its graph; `transposed` inputs are WHD."""
    shape, _, strides, padding, out_size = WINDOWS[window]
    order = (2, 0, 1) if transposed else (0, 1, 2)
    ker = draw(rng, np.int8, ker_shape)
    check(
        getattr(to_tosa, name),
        getattr(kernels, name),
        [draw(rng, np.int8, shape).transpose(order)],
        ker.transpose(order) if transposed else ker,
        bias_of(rng, quant.out_multiplier.size),
        precision=PER_CHAN,
        strides=strides,
        padding=padding,
        out_size=out_size,
        quant=quant,
        **more,
    )


@pytest.mark.parametrize("out_format", FORMATS)
@pytest.mark.parametrize("window", WINDOWS)
def test_conv2d_std(window, out_format, rng):
    (*_, channels), kernel, *_ = WINDOWS[window]
    for quant in channel_scales(rng, 8):
        convolve("conv2d_std", rng, window, (8, *kernel, channels), quant, out_format=out_format)


@pytest.mark.parametrize("inp_format", FORMATS)
@pytest.mark.parametrize("window", WINDOWS)
def test_conv2d_depthwise(window, inp_format, rng):
    (*_, channels), kernel, *_ = WINDOWS[window]
    transposed = inp_format == "WHD"
    for quant in channel_scales(rng, channels * 4):
        shape = (*kernel, channels * 4)
        convolve("conv2d_depthwise", rng, window, shape, quant, transposed, inp_format=inp_format)


@pytest.mark.parametrize("out_format", FORMATS)
def test_conv2d_pointwise(out_format, rng):
    ker = draw(rng, np.int8, (8, 6))
    for quant in channel_scales(rng, 8):
        check(
            to_tosa.conv2d_pointwise,
            kernels.conv2d_pointwise,
            [draw(rng, np.int8, (3, 5, 6))],
            ker,
            bias_of(rng, 8),
            precision=PER_CHAN,
            quant=quant,
            out_format=out_format,
        )


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("precision", ["8", "16"])
@pytest.mark.parametrize("window", WINDOWS)
def test_maxpool(window, precision, data_format, rng):
    shape, kernel, strides, padding, out_size = WINDOWS[window]
    image = draw(rng, np.int8 if precision == "8" else np.int16, shape)
    image = image if data_format == "DWH" else image.transpose(2, 0, 1)
    parameters: dict[str, Any] = {
        "kernel": kernel,
        "strides": strides,
        "padding": padding,
        "out_size": out_size,
        "data_format": data_format,
    }
    graph = to_tosa.to_graph(to_tosa.maxpool, *specs(image), precision=precision, **parameters)
    result = run(graph, jnp.asarray(image))
    expected: Any = kernels.maxpool(jnp.asarray(image), precision=precision, **parameters)
    assert result.dtype == image.dtype
    np.testing.assert_array_equal(result, expected)


# Element by element.


def all_int8_pairs():
    first, second = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    return first.astype(np.int8), second.astype(np.int8)


ADDS = {
    # Zero biases, scales of both inputs and of the output, zero point, bounds, left shift.
    "tflite": ((-3, 7), ((1637894423, -1), (2**30, 0)), (1217359430, -18), 11, (-128, 127), 20),
    "ends": ((-127, 128), ((2**31 - 1, 0), (2**30, -31)), (2**30, -19), -128, (-60, 61), 20),
    "ties": ((0, 0), ((2**30, -20), (2**30, -20)), (2**30, 1), 0, (-128, 127), 20),
    "odd": ((1, -1), ((2**30, -1), (1500000001, -2)), (2**30, -20), 127, (-128, 126), 21),
    "unshifted": ((128, -127), ((2**30, 1), (2**30, -1)), (2**30, 2), 3, (0, 1), 0),
}


@pytest.mark.parametrize("case", ADDS)
def test_elm_add(case):
    zero_biases, scales, out, zero_point, bounds, left_shift = ADDS[case]
    check(
        to_tosa.elm_add,
        kernels.elm_add,
        all_int8_pairs(),
        **{f"inp{i}_zero_bias": zero_bias for i, zero_bias in enumerate(zero_biases, 1)},
        **{f"inp{i}_multiplier": multiplier for i, (multiplier, _) in enumerate(scales, 1)},
        **{f"inp{i}_shift": shift for i, (_, shift) in enumerate(scales, 1)},
        out_multiplier=out[0],
        out_shift=out[1],
        out_zero_bias=zero_point,
        out_activation_min=bounds[0],
        out_activation_max=bounds[1],
        left_shift=left_shift,
    )


@pytest.mark.parametrize(("multiplier", "shift"), SCALES)
def test_elm_mul(multiplier, shift):
    check(
        to_tosa.elm_mul,
        kernels.elm_mul,
        all_int8_pairs(),
        inp1_zero_bias=-127,
        inp2_zero_bias=128,
        out_multiplier=multiplier,
        out_shift=shift,
        out_zero_bias=-5,
        out_activation_min=-128,
        out_activation_max=100,
    )


@pytest.mark.parametrize("inp_zero_bias", [0, -32768, 32767])
@pytest.mark.parametrize(("multiplier", "shift"), [*SCALES, (1 << 30, 13)])
def test_elm_quantize(multiplier, shift, inp_zero_bias):
    check(
        to_tosa.elm_quantize,
        kernels.elm_quantize,
        [np.arange(-(2**15), 2**15).astype(np.int16)],
        inp_zero_bias=inp_zero_bias,
        out_multiplier=multiplier,
        out_shift=shift,
        out_zero_bias=17,
    )


def vector(rng, dtype):
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, -1025, -1024, -1, 0, 1, 1023, 1024, info.max - 1, info.max]
    return np.concatenate([np.clip(edges, info.min, info.max).astype(dtype), draw(rng, dtype, 53)])


TYPES = {"32_32": np.int32, "16_16": np.int16, "8_8": np.int8}


@pytest.mark.parametrize(
    ("kind", "precision", "thresholds"),
    [
        ("relu", "32_32", [-(2**31), -1, 0, 1, 6 << 15, 2**31 - 1]),
        ("relu", "16_16", [-(2**15), -1, 0, 1, 1000, 2**15 - 1]),
        ("relu", "8_8", [-128, -1, 0, 1, 100, 127]),
        ("relu1", "32_32", [None]),
        ("relu6", "32_32", [None]),
        ("relu_std", "32_32", [None]),
        ("relu_std", "16_16", [None]),
        ("relu_std", "8_8", [None]),
    ],
)
def test_relu(kind, precision, thresholds, rng):
    x = vector(rng, TYPES[precision])
    for threshold in thresholds:
        keywords: dict[str, Any] = {"kind": kind, "precision": precision, "threshold": threshold}
        result = run(to_tosa.to_graph(to_tosa.relu, *specs(x), **keywords), jnp.asarray(x))
        np.testing.assert_array_equal(result, kernels.relu(jnp.asarray(x), **keywords))


@pytest.mark.parametrize("precision", ["16_16", "8_8"])
def test_activation_min_max(precision, rng):
    x = vector(rng, TYPES[precision])
    low, high = int(np.iinfo(x.dtype).min), int(np.iinfo(x.dtype).max)
    for bounds in [(low, high), (-7, 90), (0, 0), (low, low), (high, high)]:
        graph = to_tosa.to_graph(
            to_tosa.activation_min_max, *specs(x), *bounds, precision=precision
        )
        result = run(graph, jnp.asarray(x))
        expected = kernels.activation_min_max(jnp.asarray(x), *bounds, precision=precision)
        np.testing.assert_array_equal(result, expected)


def test_interpolation_q15(rng):
    ends = np.array([-(2**15), -1, 0, 1, 2**15 - 1], np.int16)
    operands = np.stack(np.meshgrid(ends, ends, ends)).reshape(3, -1)
    operands = np.concatenate([operands, draw(rng, np.int16, (3, 75))], axis=1)
    check(to_tosa.interpolation_q15, kernels.interpolation_q15, list(operands))


# Calls that TOSA cannot express, and calls that the library rejects.

VECTOR = jax.ShapeDtypeStruct((4,), np.int8)
IMAGE = jax.ShapeDtypeStruct((3, 3, 1), np.int8)
ONES = np.ones((1, 4), np.int8)
NO_BIAS = np.zeros(1, np.int32)


def scaled(shift, multiplier=2**30) -> Quant:
    return Quant(0, 0, multiplier, shift, 0)


def add(**other):
    names = (f"{n}_{field}" for n in ("out", "inp1", "inp2") for field in ("zero_bias", "shift"))
    parameters = dict.fromkeys(names, 0) | {
        "out_multiplier": 2**30,
        "inp1_multiplier": 2**30,
        "inp2_multiplier": 2**30,
        "out_activation_min": -128,
        "out_activation_max": 127,
        "left_shift": 20,
    }
    return to_tosa.to_graph(to_tosa.elm_add, VECTOR, VECTOR, **parameters | other)


@pytest.mark.parametrize("shift", [30, 31])
def test_shifts_beyond_those_of_rescale(shift):
    with pytest.raises(UnsupportedError, match=f"a shift is {shift}, expected at most 29"):
        to_tosa.to_graph(to_tosa.fully_connected, ONES, VECTOR, NO_BIAS, quant=scaled(shift))


def test_farthest_shift():
    quant = scaled(29, multiplier=1)
    graph = to_tosa.to_graph(to_tosa.fully_connected, ONES, VECTOR, NO_BIAS, quant=quant)
    (zero,) = run(graph, jnp.zeros(4, jnp.int8))
    assert zero == 0


def test_left_shift_beyond_rescale():
    assert tosajax.validate(add(left_shift=21)).findings == ()
    with pytest.raises(UnsupportedError, match="left_shift is 22, expected at most 21"):
        add(left_shift=22)


def far(name, operands, **more):
    return functools.partial(
        to_tosa.to_graph,
        getattr(to_tosa, name),
        IMAGE,
        *operands,
        padding=(4, 0),
        out_size=(2, 3),
        **more,
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            far("conv2d_std", (ONES[:, :1, None, None], NO_BIAS), quant=scaled(0)),
            "no window reads the image",
        ),
        (far("maxpool", (), kernel=(1, 1)), "a window is outside the image"),
    ],
)
def test_windows_outside(build, message):
    with pytest.raises(UnsupportedError, match=message):
        build()


@pytest.mark.parametrize(
    ("function", "operands", "precision"),
    [
        (to_tosa.relu, (VECTOR,), "f32_f32"),
        (to_tosa.activation_min_max, (VECTOR, 0, 1), "asym8u_asym8u"),
    ],
)
def test_precisions_without_a_form(function, operands, precision):
    with pytest.raises(UnsupportedError, match=f"precision is '{precision}', expected one of"):
        to_tosa.to_graph(function, *operands, precision=precision)


@pytest.mark.parametrize(
    ("argument", "build"),
    [
        ("out_shift", lambda: add(out_shift=32)),
        ("inp2_zero_bias", lambda: add(inp2_zero_bias=-128)),
        (
            "out_multiplier",
            lambda: to_tosa.to_graph(
                to_tosa.fully_connected, ONES, VECTOR, NO_BIAS, quant=scaled(0, 0)
            ),
        ),
        (
            "x_stride",
            lambda: to_tosa.to_graph(
                to_tosa.conv2d_depthwise,
                IMAGE,
                np.ones((1, 1, 1), np.int8),
                NO_BIAS,
                strides=(1, 2),
                out_size=(1, 1),
                quant=scaled(0),
            ),
        ),
        (
            "activation_max",
            lambda: to_tosa.to_graph(to_tosa.activation_min_max, VECTOR, 1, 0, precision="8_8"),
        ),
        ("threshold", lambda: to_tosa.to_graph(to_tosa.relu, VECTOR, 128, precision="8_8")),
    ],
)
def test_what_the_library_rejects(argument, build):
    with pytest.raises(NNLibParamError) as raised:
        build()
    assert raised.value.argument == argument


# Graphs.


@pytest.mark.parametrize(
    ("shift", "mode", "needs"),
    [(-1, RoundingMode.DOUBLE_ROUND, True), (0, RoundingMode.SINGLE_ROUND, False)],
)
def test_rounding_and_the_extension_that_it_needs(shift, mode, needs):
    quant = scaled(shift)
    graph = to_tosa.to_graph(to_tosa.fully_connected, ONES, VECTOR, NO_BIAS, quant=quant)
    (rescale,) = (node for node in graph.nodes if node.op == "RESCALE")
    assert rescale.attributes["rounding_mode"] == mode
    found = tosajax.validate(graph).needs
    assert found is not None
    assert ("EXT-DOUBLEROUND" in found) == needs


def test_inputs_are_named_as_the_arguments():
    quant = scaled(0)
    graph = to_tosa.to_graph(to_tosa.fully_connected, ONES, VECTOR, NO_BIAS, quant=quant)
    assert graph.inputs == ("inp",)
    assert add().inputs == ("inp1", "inp2")


def network(rng, quant) -> tuple[tosajax.Graph, Any]:
    """A convolution, MAX_POOL2D and a fully connected layer in one graph, and as kernels."""
    ker, bias = draw(rng, np.int8, (4, 3, 3, 2)), bias_of(rng, 4)
    weight, bias2 = draw(rng, np.int8, (5, 36)), bias_of(rng, 5)
    window: dict[str, Any] = {"padding": (1, 1), "out_size": (6, 6)}
    pool: dict[str, Any] = {"kernel": (2, 2), "strides": (2, 2), "out_size": (3, 3)}
    b = Builder()
    x = b.input("x", DType.INT8, (6, 6, 2))
    y = to_tosa.conv2d_std(b, x, ker, bias, quant=quant, **window)
    y = b.op("RESHAPE", to_tosa.maxpool(b, y, **pool), b.const_shape((36,)))
    graph = b.graph([to_tosa.fully_connected(b, weight, y, bias2, quant=quant)])

    def compute(x):
        y = kernels.conv2d_std(x, ker, bias, precision=PER_CHAN, quant=quant, **window)
        y = kernels.maxpool(y, **pool).reshape(36)
        return kernels.fully_connected(weight, y, bias2, precision=SYM8S, quant=quant)

    return graph, compute


def test_network_survives_a_file(rng, tmp_path):
    graph, compute = network(rng, Quant(3, 0, 1717986918, -8, -9))
    tosajax.save(graph, tmp_path / "network.tosa")
    loaded = tosajax.load(tmp_path / "network.tosa")
    assert [node.op for node in loaded.nodes] == [node.op for node in graph.nodes]
    x = jnp.asarray(draw(rng, np.int8, (6, 6, 2)))
    np.testing.assert_array_equal(run(loaded, x), jax.jit(compute)(x))


def quantized_softmax(x, *, implementation_attrs):
    quant = SoftmaxQuant(**json.loads(implementation_attrs))
    return kernels.softmax(x, precision="asym8s_asym8s", quant=quant)


def test_kernel_as_a_custom_operator(rng, tmp_path):
    """Softmax has no exact form in TOSA; in a graph it is a CUSTOM, whose body is the kernel."""
    weight, bias = draw(rng, np.int8, (7, 12)), bias_of(rng, 7)
    quant = Quant(3, 0, 1717986918, -8, -9)
    softmax = SoftmaxQuant(diffmin=-124, input_left_shift=23, input_multiplier=1342177280)
    b = Builder()
    x = b.input("x", DType.INT8, (12,))
    y = b.op(
        "CUSTOM",
        to_tosa.fully_connected(b, weight, x, bias, quant=quant),
        shape=(7,),
        dtype=DType.INT8,
        operator_name="xa_nn_vec_softmax_asym8s_asym8s",
        domain_name="hifi",
        implementation_attrs=json.dumps(softmax._asdict()),
    )
    tosajax.save(b.graph([y]), tmp_path / "custom.tosa")
    graph = tosajax.load(tmp_path / "custom.tosa")
    body = {("hifi", "xa_nn_vec_softmax_asym8s_asym8s"): quantized_softmax}
    fn, params = tosajax.lower(graph, custom_ops=body)
    inputs = jnp.asarray(draw(rng, np.int8, (8, 12)))
    (result,) = jax.jit(jax.vmap(fn, in_axes=(None, 0)))(params, inputs)

    def compute(x):
        y = kernels.fully_connected(weight, x, bias, precision=SYM8S, quant=quant)
        return kernels.softmax(y, precision="asym8s_asym8s", quant=softmax)

    expected = jax.jit(jax.vmap(compute))(inputs)
    assert np.unique(expected).size > 10
    np.testing.assert_array_equal(result, expected)
