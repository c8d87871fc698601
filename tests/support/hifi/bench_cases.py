"""Runs of HiFi's test benches: their options, their inputs, and the results of the kernels."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from hifi.prototypes import TYPES
from tosajax.fixedpoint import _x64
from tosajax.hifi import kernels
from tosajax.hifi.kernels import Quant, SigmoidQuant, SoftmaxQuant, activations, conv, pool

CODES = {"8": 8, "16": 16, "32": 32, "64": 64, "f32": -1, "asym8u": -3, "asym8s": -4, "sym8s": -5}


def raw(*arrays):
    return b"".join(x.astype(x.dtype.newbyteorder("<")).tobytes() for x in arrays)


def values(rng, dtype, *shape):
    """Random elements of all magnitudes, the least and the largest among them."""
    if dtype is np.float32:
        return (rng.uniform(-4, 4, shape) * 2.0 ** rng.integers(-6, 1, shape)).astype(dtype)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    x = x >> rng.integers(0, info.bits - 1, shape).astype(dtype)
    x.flat[:2] = info.min, info.max
    return x


class Case(NamedTuple):
    """A run of a test bench, and its outputs.

    Args:
      name: of the library's function.
      bench: the test bench.
      options: all but those of files.
      draw: makes the arrays of a frame, in the order of the file.
      expect: computes the output for them.
      out: the type of the output.
      files: of inputs; several have one of the arrays each.
    """

    name: str
    bench: str
    options: dict[str, Any]
    draw: Any
    expect: Any
    out: Any
    files: tuple[str, ...] = ("inp",)


QUANT = {"out_multiplier": 1518500250, "out_shift": -6, "out_zero_bias": 3}
# By precision: shifts by which results neither all saturate nor all vanish.
SHIFTS = {
    "16x16_16": (-17, 12),
    "16x16_32": (-3, 12),
    "16x16_64": (-3, 12),
    "8x16_16": (-10, 6),
    "8x16_32": (5, 6),
    "8x16_64": (-3, 6),
    "8x8_8": (-9, 5),
    "8x8_16": (-1, 5),
    "8x8_32": (3, 5),
}


def shifts_of(precision):
    acc, bias = SHIFTS[precision]
    return {"acc_shift": acc, "bias_shift": bias}


def split(precision):
    """The words of weight x input _ output."""
    weight, _, rest = precision.partition("x")
    return weight, *rest.split("_")


def bias_word(inp):
    return "32" if inp in ("asym8u", "asym8s") else inp


def draw_bias(rng, dtype, *shape):
    x = values(rng, dtype, *shape)
    return x >> 16 if dtype is np.int32 else x


def matxvec_case(precision, kind="dual", activation="bypass", bias=None):
    weight, inp, out = split(precision) if precision != "f32" else ("f32",) * 3
    bias = bias or bias_word(inp)
    rows, cols1, cols2, count = 5, 8, 6, 3
    is_dual, is_fused = kind == "dual", activation in ("tanh", "sigmoid")
    options = {
        "rows": rows,
        "cols1": cols1,
        "cols2": cols2,
        "row_stride1": 12,
        "row_stride2": 7,
        "membank_padding": len(precision) % 2,
        "batch": int(kind == "batch"),
        "fc": int(kind == "fc"),
        "vec_count": count,
        "activation": activation,
        **{
            f"{key}_precision": CODES[word]
            for key, word in (("mat", weight), ("inp", inp), ("out", out), ("bias", bias))
        },
    }
    keywords: dict[str, Any] = {}
    if inp.startswith("asym"):
        is_unsigned = inp == "asym8u"
        biases = (-7, -130, -101, -200) if is_unsigned else (-7, -8, 101, -99)
        names = ("mat1_zero_bias", "mat2_zero_bias", "vec1_zero_bias", "vec2_zero_bias")
        shift = -9 if is_unsigned else -7
        options |= dict(zip(names, biases, strict=True)) | {**QUANT, "out_shift": shift}
        mat1, mat2, vec1, vec2 = biases
        mat1, mat2 = (mat1, mat2) if is_unsigned else (0, 0)
        # One product has no second biases.
        second = (vec2, mat2) if is_dual else (0, 0)
        keywords = {"quant": Quant(vec1, mat1, QUANT["out_multiplier"], shift, 3, *second)}
    elif inp != "f32":
        # Of functions with an activation the sum is Q6.25.
        shifts = shifts_of(precision)
        if is_fused:
            wide = {"64": -31, "32": -14}
            shifts = {"acc_shift": 10 if inp == "8" else 2, "bias_shift": wide.get(bias, 3)}
        if activation == "softmax":
            shifts["acc_shift"] = -8
        options, keywords = options | shifts, shifts

    def draw(rng):
        vectors = (count, cols1) if kind == "batch" else (cols1,)
        yield values(rng, TYPES[weight], rows, cols1)
        yield values(rng, TYPES[inp], *vectors)
        if is_dual:
            yield values(rng, TYPES[weight], rows, cols2)
            yield values(rng, TYPES[inp], cols2)
        yield draw_bias(rng, TYPES[bias], rows)

    stem = {"dual": "matXvec", "batch": "matXvec_batch", "fc": "fully_connected"}[kind]
    name = f"xa_nn_{stem}_{precision}" + (f"_{activation}" if is_fused else "")

    def expect(*arrays):
        result = called(name, *arrays, **keywords)
        if activation in ("relu", "softmax"):
            then = activation.replace("relu", "relu_std")
            result = called(f"xa_nn_vec_{then}_{out}_{out}", result)
        return result

    return Case(name, "matXvec", options, draw, expect, TYPES[out])


def conv_case(kernel, precision, inp_format=1, out_format=0, bench="conv"):
    words = {"f32": ("f32", "f32"), "per_chan_sym8sxasym8s": ("sym8s", "asym8s")}
    weight, inp = words.get(precision) or tuple(precision.split("x"))
    bias = bias_word(inp)
    is_depth, is_1d = kernel == "conv2d_depth", kernel == "conv1d_std"
    channels = 4 if is_depth or bench == "cnn" else 3
    multiplier, outputs = 2 if is_depth else 1, 5
    options = {
        "input_height": 7,
        "input_width": 6,
        "input_channels": channels,
        "kernel_height": 3,
        "kernel_width": 2,
        "out_channels": outputs,
        "channels_multiplier": multiplier,
        "x_stride": 2,
        "y_stride": 3,
        "x_padding": 1,
        "y_padding": 2,
        "out_height": 3,
        "out_width": 4,
        "out_data_format": out_format,
        "kernel_name": kernel,
        **{
            f"{key}_precision": CODES[word]
            for key, word in (("kernel", weight), ("inp", inp), ("out", inp), ("bias", bias))
        },
    }
    keywords: dict[str, Any] = {}
    if bias == "32":
        inp_bias = -101 if inp == "asym8u" else 77
        options |= {"input_zero_bias": inp_bias, "kernel_zero_bias": -130, **QUANT}
        multiplier_of, shift, zero = QUANT.values()
        keywords["quant"] = Quant(
            inp_bias, -130 if inp == "asym8u" else 0, multiplier_of, shift, zero
        )
    elif inp != "f32":
        keywords = shifts_of({"16": f"{weight}x16_16", "8": "8x8_8"}[inp])
        options |= keywords
    if bench == "conv":
        options["inp_data_format"] = inp_format
    else:
        inp_format = int(is_depth)
    window = {"strides": (3, 2), "padding": (2, 1), "out_size": (3, 4)}
    formats = ("DWH", "WHD")

    def draw(rng):
        image, ker = (7, 6, channels), (3, 2, channels * multiplier)
        if is_depth and inp_format:
            image, ker = (x[-1:] + x[:-1] for x in (image, ker))
        yield values(rng, TYPES[inp], *image)
        if is_depth:
            yield values(rng, TYPES[weight], *ker)
            yield draw_bias(rng, TYPES[bias], channels * multiplier)
            yield values(rng, TYPES[weight], outputs, channels * multiplier)
        else:
            yield values(rng, TYPES[weight], outputs, 3, 6 if is_1d else 2, channels)
        yield draw_bias(rng, TYPES[bias], outputs)

    def expect(*arrays):
        one = {"stride": 3, "padding": 2, "out_height": 3} if is_1d else window
        more = (
            {"inp_format": formats[inp_format]} if is_depth else {"out_format": formats[out_format]}
        )
        stem = "xa_nn_conv2d_depthwise" if is_depth else f"xa_nn_{kernel}"
        result = called(f"{stem}_{precision}", *arrays[:3], **one, **more, **keywords)
        if not is_depth:
            return result
        # But for 8 bits the pointwise function has channels first only.
        is_first = out_format or inp in ("16", "f32") or bench == "cnn"
        name = f"xa_nn_conv2d_pointwise_{precision}"
        return called(name, result, *arrays[3:], out_format=formats[is_first], **keywords)

    name = f"{bench}_{kernel}_{precision}_{inp_format}{out_format}"
    return Case(name, bench, options, draw, expect, TYPES[inp])


def activation_case(kind, precision, length=64, **options):
    inp, out = precision.split("_")
    keywords: dict[str, Any] = {}
    if kind == "sigmoid" and inp == "asym8u":
        quant = SigmoidQuant(100, 90, 1518500250, 22)
        names = ("zero_point", "input_range_radius", "input_multiplier", "input_left_shift")
        options, keywords = {**dict(zip(names, quant, strict=True))}, {"quant": quant}
    if kind == "softmax" and inp.startswith("asym"):
        quant = SoftmaxQuant(diffmin=-40, input_left_shift=22, input_multiplier=1518500250)
        options, keywords = quant._asdict(), {"quant": quant}
    for option in ("relu_threshold", "activation_min", "activation_max"):
        if option in options:
            keywords[option.removeprefix("relu_")] = options[option]
    name = f"xa_nn_vec_{kind}_{precision}"
    dtype = TYPES[inp]

    def draw(rng):
        x = values(rng, dtype, length)
        if dtype().itemsize == 1:
            # At diffmin, and beyond it.
            x[2:4] = np.iinfo(dtype).max - np.array([40, 41])
        yield x

    def expect(x):
        return called(name, x, **keywords)

    given = {"num_elements": length, "activation": kind, **options}
    given |= {"inp_precision": CODES[inp], "out_precision": CODES[out]}
    return Case(name, "activations", given, draw, expect, TYPES[out])


def pool_case(kind, precision, data_format):
    window = {"kernel": (3, 2), "strides": (2, 3), "padding": (2, 1), "out_size": (4, 3)}
    options = {
        "input_height": 6,
        "input_width": 7,
        "input_channels": 3,
        "kernel_name": kind,
        "kernel_height": 3,
        "kernel_width": 2,
        "y_stride": 2,
        "x_stride": 3,
        "y_padding": 2,
        "x_padding": 1,
        "out_height": 4,
        "out_width": 3,
        "inp_data_format": data_format,
        "out_data_format": data_format,
        "inp_precision": CODES[precision],
        "out_precision": CODES[precision],
    }

    def draw(rng):
        yield values(rng, TYPES[precision], *((3, 6, 7) if data_format else (6, 7, 3)))

    def expect(x):
        formats = ("DWH", "WHD")
        function = f"xa_nn_{kind}_{precision}"
        return called(function, x, **window, data_format=formats[data_format])

    name = f"xa_nn_{kind}_{precision}_{data_format}"
    return Case(name, "pool", options, draw, expect, TYPES[precision])


SCALES = {
    "out_zero_bias": 5,
    "out_shift": -15,
    "out_multiplier": 1518500250,
    "out_activation_min": 2,
    "out_activation_max": 120,
    "inp1_zero_bias": -100,
    "inp1_shift": -1,
    "inp1_multiplier": 1618500250,
    "inp2_zero_bias": -30,
    "inp2_shift": 1,
    "inp2_multiplier": 1718500250,
    "left_shift": 15,
}


def option_of(argument):
    return (
        argument.replace("out_", "output_")
        .replace("inp", "input")
        .replace("_shift", "_left_shift" if argument != "left_shift" else "_shift")
    )


def basic_case(kind, precision, **changed):
    name, word = f"{kind}_{precision}", precision.split("_")[-1].split("x")[0]
    inp = precision.split("x")[0].split("_")[0]
    is_dot = kind == "dot_prod"
    numbers = {**SCALES, **changed}
    options = {option_of(key): value for key, value in numbers.items()} if inp != "f32" else {}
    options |= {"kernel_name": kind, "io_length": 40, "vec_count": 3}
    options |= {"inp_precision": CODES[inp], "out_precision": CODES[word]}

    def draw(rng):
        for _ in range(1 if kind == "elm_floor" else 2):
            x = values(rng, TYPES[inp], *((3, 40) if is_dot else (40,)))
            if is_dot and inp == "16":
                # The sum is beyond int32.
                x[1] = 32767
            yield x

    def expect(*arrays):
        if kind in ("elm_add", "elm_mul") and inp == "f32":
            return np.add(*arrays) if kind == "elm_add" else np.multiply(*arrays)
        function, keywords = getattr(kernels, kind), {}
        if is_dot and inp == "16":
            scale = (numbers[f"out_{x}"] for x in ("multiplier", "shift", "zero_bias"))
            keywords = {"quant": Quant(0, 0, *scale)}
        elif not is_dot and kind != "elm_floor":
            keywords = {k: x for k, x in numbers.items() if kind == "elm_add" or "inp" not in k}
            keywords |= {k: numbers[k] for k in ("inp1_zero_bias", "inp2_zero_bias")}
            if kind == "elm_mul":
                del keywords["left_shift"]
        return called(function, *arrays, precision=precision, **keywords)

    files = ("inp1",) if kind == "elm_floor" else ("inp1", "inp2")
    return Case(name, "basic", options, draw, expect, TYPES[word], files)


def called(function, *arrays, **keywords):
    """The result of a kernel, or of a name of the library."""
    # JAX would narrow int64 silently.
    arrays = [_x64.from_numpy(x) if x.dtype == np.int64 else x for x in arrays]
    return np.asarray(compiled(function, **keywords)(*arrays))


@functools.cache
def compiled(function, *static, **keywords):
    if isinstance(function, str):
        function = kernels.library_function(function)
    return jax.jit(functools.partial(function, *static, **keywords))


CONV2D, CONV1D = conv.CONV2D, conv.CONV1D
CASES = [
    *(matxvec_case(precision) for precision in SHIFTS),
    matxvec_case("f32xf32_f32"),
    matxvec_case("asym8uxasym8u_asym8u"),
    matxvec_case("sym8sxasym8s_asym8s"),
    matxvec_case("16x16_16", activation="tanh"),
    matxvec_case("8x16_16", activation="tanh", bias="64"),
    matxvec_case("8x8_8", activation="tanh", bias="32"),
    matxvec_case("f32xf32_f32", activation="sigmoid"),
    matxvec_case("8x8_8", activation="sigmoid"),
    matxvec_case("16x16_32", activation="softmax"),
    matxvec_case("8x16_32", activation="relu"),
    matxvec_case("f32xf32_f32", activation="relu"),
    *(matxvec_case(x, "batch") for x in ("16x16_64", "8x8_32", "f32xf32_f32")),
    *(matxvec_case(x, "fc") for x in ("16x16_16", "f32", "sym8sxasym8s_asym8s")),
    *(conv_case("conv2d_std", x, out_format=i % 2) for i, x in enumerate(CONV2D)),
    *(conv_case("conv1d_std", x, out_format=i % 2) for i, x in enumerate(CONV1D[1:])),
    conv_case("conv2d_depth", "8x16", 1, 1),
    conv_case("conv2d_depth", "8x8", 1, 1),
    conv_case("conv2d_depth", "f32", 1, 0),
    conv_case("conv2d_depth", "asym8uxasym8u", 0, 0),
    conv_case("conv2d_std", "8x16", out_format=1, bench="cnn"),
    conv_case("conv2d_std", "f32", bench="cnn"),
    conv_case("conv1d_std", "8x8", out_format=1, bench="cnn"),
    conv_case("conv2d_depth", "16x16", bench="cnn"),
    *(activation_case("sigmoid", x) for x in activations.SIGMOID),
    *(activation_case("tanh", x) for x in activations.TANH),
    *(activation_case("softmax", x) for x in activations.SOFTMAX),
    activation_case("relu", "32_32", relu_threshold=40000),
    activation_case("relu", "f32_f32", relu_threshold=1.5),
    activation_case("relu", "16_16", relu_threshold=100),
    activation_case("relu", "8_8", relu_threshold=100),
    *(
        activation_case(kind, x)
        for kind in ("relu_std", "relu1", "relu6")
        for x in activations.RELU[kind]
    ),
    activation_case("activation_min_max", "f32_f32", activation_min=-0.5, activation_max=0.25),
    *(
        activation_case("activation_min_max", x, activation_min=3, activation_max=100)
        for x in activations.ACTIVATION_MIN_MAX[1:]
    ),
    *(pool_case("avgpool", x, i % 2) for i, x in enumerate(pool.POOL)),
    *(pool_case("maxpool", x, i // 2) for i, x in enumerate(pool.POOL)),
    basic_case("elm_add", "f32xf32_f32"),
    basic_case("elm_mul", "f32xf32_f32"),
    basic_case("elm_add", "asym8sxasym8s_asym8s"),
    basic_case("elm_mul", "asym8sxasym8s_asym8s", out_shift=-6),
    basic_case("elm_add", "asym8uxasym8u_asym8u"),
    basic_case("elm_mul", "asym8uxasym8u_asym8u", out_shift=-6),
    basic_case("elm_floor", "f32_f32"),
    basic_case("dot_prod", "f32xf32_f32"),
    basic_case("dot_prod", "16x16_asym8s", out_shift=-25),
]
SLOW_CASES = [
    matxvec_case("16x16_16", activation="sigmoid", bias="64"),
    matxvec_case("f32xf32_f32", activation="softmax"),
    conv_case("conv1d_std", "16x16", out_format=1),
    conv_case("conv2d_depth", "16x16"),
    conv_case("conv2d_depth", "8x8", 0, 0),
    conv_case("conv2d_depth", "per_chan_sym8sxasym8s", 0, 0),
    matxvec_case("16x16_16", activation="tanh", bias="64"),
    matxvec_case("8x8_8", activation="tanh"),
    matxvec_case("f32xf32_f32", activation="tanh"),
    matxvec_case("16x16_16", activation="sigmoid"),
    matxvec_case("8x16_16", activation="sigmoid"),
    matxvec_case("8x8_8", activation="sigmoid", bias="32"),
    matxvec_case("16x16_16", activation="relu"),
    matxvec_case("8x8_8", activation="relu"),
    matxvec_case("8x16_64", "batch"),
    *(matxvec_case(x, "fc") for x in ("8x16_16", "8x8_8", "asym8uxasym8u_asym8u")),
    *(conv_case("conv2d_std", x, bench="cnn") for x in ("16x16", "8x8")),
    *(conv_case("conv1d_std", x, bench="cnn") for x in ("16x16", "8x16", "f32")),
    *(conv_case("conv2d_depth", x, bench="cnn") for x in ("8x16", "8x8", "f32")),
    *(pool_case("avgpool", x, 1 - i % 2) for i, x in enumerate(pool.POOL)),
    *(pool_case("maxpool", x, 1 - i // 2) for i, x in enumerate(pool.POOL)),
]


def parameters(cases, *marks):
    return [pytest.param(x, id=f"{i}-{x.bench}-{x.name}", marks=marks) for i, x in enumerate(cases)]


FAST = parameters(CASES)
SLOW = parameters(SLOW_CASES, pytest.mark.slow)


def write_inputs(bench, case, frames):
    """Writes the files of inputs; returns their options."""
    if len(case.files) == 1:
        parts = [[x for frame in frames for x in frame]]
    else:
        parts = zip(*frames, strict=True)
    return {
        f"read_{file}_file_name": bench.write(f"{file}.bin", *arrays)
        for file, arrays in zip(case.files, parts, strict=True)
    }
