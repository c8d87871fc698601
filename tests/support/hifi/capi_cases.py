"""A case of each C function of a kernel: arguments, and the result.

Results are those of the oracle or, for activations, pools and elementwise functions, of the
kernels.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from oracle import hifi_oracle
from oracle.hifi_oracle import draw, draw_quant, integers

from hifi.memory import check_out, memory, out_memory, view
from hifi.prototypes import EXPECTED, TYPES
from tosajax.hifi import capi, kernels
from tosajax.hifi.kernels import Quant, SigmoidQuant, SoftmaxQuant
from tosajax.hifi.kernels._precision import PRECISIONS

SCRATCH = np.zeros(64, np.int8)


class Case(NamedTuple):
    """A call but for p_out, and its result.

    Args:
      values: the arguments by name, and more.
      out: the result.
      strides: of p_out, where it has gaps.
    """

    values: dict[str, Any]
    out: np.ndarray
    strides: tuple[int, ...] | None = None


class Name(NamedTuple):
    """A name in parts, such as matXvec_fused, 8x8_8, tanh."""

    family: str
    precision: str
    kind: str = ""

    @property
    def types(self):
        return PRECISIONS[self.precision]

    @property
    def is_quantized(self):
        return "sym8" in self.precision

    @property
    def first_type(self):
        return TYPES[self.precision.split("_")[0].split("x")[0]]


def parts(name):
    row = kernels.NAMES[name]
    kind = row.fixed.get("function") or row.fixed.get("kind", "")
    return Name(row.function.__name__, row.fixed.get("precision", ""), kind)


@functools.cache
def case_of(name):
    """A case of a function, which tests leave as it is."""
    return drawn_case(name, 5)


def drawn_case(name, seed, *options):
    found = parts(name)
    make = _CASES.get(found.family, elementwise_case)
    return make(np.random.default_rng(seed), found, *options)


def arguments_of(name, case, **changed):
    """The arguments in the order of C, p_out first, and the memory that p_out is in."""
    if "batch" in name:
        rows = [out_memory(row, case.strides) for row in case.out]
        whole, p_out = [row for row, _ in rows], [place for _, place in rows]
    else:
        whole, p_out = out_memory(case.out, case.strides)
    values = {"p_out": p_out, **case.values, **changed}
    if "interpolation" in name and not changed:
        # Which the function writes to.
        values["p_inp1"] = values["p_inp1"].copy()
    return [values[argument] for argument in EXPECTED[name].arguments], whole


def call(name, case, **changed):
    """The code of a call, and the memory of p_out after it."""
    arguments, whole = arguments_of(name, case, **changed)
    return getattr(capi, name)(*arguments), whole


def check_call(name, case, **changed):
    """Asserts that a call returns 0 and writes its result, and nothing else."""
    code, whole = call(name, case, **changed)
    assert code == 0
    check_out(case.out, case.strides, whole)


def quant_of(rng, name, channels=()):
    """A Quant, and its arguments in C besides zero biases of operands; (None, {}) for others."""
    if not name.is_quantized:
        return None, {}
    dtype = name.types.input
    inp, weight, multiplier, shift, zero = draw_quant(rng, dtype, channels)
    # Other than 0, so that tests notice a missing one; within the range of either type.
    inp, weight = inp or -3, (weight or -5) if dtype is np.uint8 else 0
    if channels:
        return Quant(inp, weight, multiplier, shift, zero), {
            "p_out_multiplier": memory(multiplier, spare=1),
            "p_out_shift": memory(shift, spare=1),
            "out_zero_bias": zero,
        }
    multiplier, shift = int(rng.integers(2**30, 2**31)), -9
    scale = {"out_multiplier": multiplier, "out_shift": shift, "out_zero_bias": zero}
    return Quant(inp, weight, multiplier, shift, zero), scale


def zero_biases(quant):
    return (0, 0) if quant is None else (quant.input_zero_bias, quant.weight_zero_bias)


def finished(name, sums, bias, quant):
    """Sums [..., N] as outputs, and the shifts among the arguments."""
    types = name.types
    if types.is_float:
        return np.asarray(sums + bias, np.float32), {}
    if types.is_quantized:
        return hifi_oracle.quantized(sums, bias, quant, types.out), {}
    shifts = {"acc_shift": -9, "bias_shift": 3}
    return hifi_oracle.fixed(sums, bias, **shifts, dtype=types.out), shifts


def exact(x, name):
    """Operands of the oracle: Python integers, or float64."""
    return x.astype(np.float64) if name.types.is_float else integers(x)


def bias_of(rng, name, count):
    if name.types.is_quantized:
        return rng.integers(-(2**12), 2**12, count).astype(np.int32)
    return draw(rng, name.types.bias, (count,))


# Products of matrices.


def matXvec_case(rng, name):
    rows, cols1, cols2, stride1, stride2 = 5, 6, 3, 9, 4
    types = name.types
    mat1, vec1 = draw(rng, types.weight, (rows, cols1)), draw(rng, types.input, (cols1,))
    mat2, vec2 = draw(rng, types.weight, (rows, cols2)), draw(rng, types.input, (cols2,))
    bias = bias_of(rng, name, rows)
    quant, scale = quant_of(rng, name)
    inp, weight = zero_biases(quant)
    second = (inp - 1 if inp > -100 else inp + 1, weight and -7) if name.is_quantized else (0, 0)
    sums = (exact(mat1, name) + weight).dot(exact(vec1, name) + inp)
    sums = sums + (exact(mat2, name) + second[1]).dot(exact(vec2, name) + second[0])
    out, shifts = finished(name, sums, bias, quant)
    values = {
        "p_mat1": memory(mat1, (stride1, 1)),
        "p_mat2": memory(mat2, (stride2, 1), spare=1),
        "p_vec1": memory(vec1, spare=3),
        "p_vec2": memory(vec2),
        "p_bias": memory(bias),
        "rows": rows,
        "cols1": cols1,
        "cols2": cols2,
        "row_stride1": stride1,
        "row_stride2": stride2,
        "vec1_zero_bias": inp,
        "vec2_zero_bias": second[0],
        "mat1_zero_bias": weight,
        "mat2_zero_bias": second[1],
    }
    return Case({**values, **scale, **shifts}, out)


@functools.cache
def activation(function, precision):
    return jax.jit(functools.partial(getattr(kernels, function), precision=precision))


def fused_case(rng, name, bias=None, bias_precision=99):
    """A bias of the type of the vectors, unless bias_precision is that of a wide one."""
    inner, case = name.precision, matXvec_case(rng, name)
    if name.types.is_float:
        out = activation(name.kind, "f32_f32")(case.out)
        return Case({**case.values, "p_scratch": np.zeros(5, np.float32)}, np.asarray(out))
    v = case.values
    bias = v["p_bias"] if bias is None else bias
    # Most sums become something between -4 and 4 in Q6.25.
    acc_shift, bias_shift = {"16x16": (-6, 14), "8x16": (2, 7), "8x8": (10, 5)}[inner.split("_")[0]]
    shifts = {"acc_shift": acc_shift, "bias_shift": bias_shift}
    rows, cols1, cols2 = v["rows"], v["cols1"], v["cols2"]
    sums = hifi_oracle.dot(view(v["p_mat1"], (rows, cols1), (9, 1)), v["p_vec1"][:cols1])
    sums = sums + hifi_oracle.dot(view(v["p_mat2"], (rows, cols2), (4, 1)), v["p_vec2"])
    total = hifi_oracle.fixed(sums, bias, acc_shift, bias_shift, np.int32)
    out = np.asarray(activation(name.kind, f"32_{inner.split('_')[1]}")(total))
    more = {"bias_precision": bias_precision, "p_scratch": np.zeros(5, np.int32)}
    return Case({**v, **shifts, **more, "p_bias": bias}, out)


def matXvec_batch_case(rng, name):
    rows, count, types = 5, 3, name.types
    # Multiples of 2 for floats, of 4 for integers.
    cols, stride = (6, 10) if types.is_float else (8, 12)
    mat, bias = draw(rng, types.weight, (rows, cols)), bias_of(rng, name, rows)
    vectors = draw(rng, types.input, (count, cols))
    sums = exact(vectors, name).dot(exact(mat, name).T)
    out, shifts = finished(name, sums, bias, None)
    values = {
        "p_mat1": memory(mat, (stride, 1)),
        "p_vec1": [memory(vector, spare=2) for vector in vectors],
        "p_bias": memory(bias),
        "rows": rows,
        "cols1": cols,
        "row_stride1": stride,
        "vec_count": count,
    }
    return Case({**values, **shifts}, out)


def matmul_case(rng, name):
    rows, cols, stride, count = 5, 6, 7, 3
    types = name.types
    mat1, mat2 = draw(rng, types.weight, (rows, cols)), draw(rng, types.input, (cols, count))
    bias = bias_of(rng, name, rows)
    quant, scale = quant_of(rng, name, per_channel_of(name, rows))
    inp, weight = zero_biases(quant)
    sums = (exact(mat1, name) + weight).dot(exact(mat2, name) + inp)
    out, shifts = finished(name, sums.T, bias, quant)
    values = {
        "p_mat1": memory(mat1, (stride, 1)),
        "p_mat2": memory(mat2, (1, 8)),
        "p_bias": memory(bias),
        "rows": rows,
        "cols": cols,
        "row_stride": stride,
        "vec_count": count,
        "vec_offset": 8,
        "out_offset": 2,
        "out_stride": 11,
        "vec1_zero_bias": inp,
        "mat1_zero_bias": weight,
    }
    return Case({**values, **scale, **shifts}, out.T, (11, 2))


def matXvec_out_stride_case(rng, name):
    v = matXvec_case(rng, name).values
    mat, vec = view(v["p_mat1"], (5, 6), (9, 1)), v["p_vec1"][:6]
    sums = hifi_oracle.dot(mat, vec, 0, v["vec1_zero_bias"])
    quant = Quant(0, 0, v["out_multiplier"], v["out_shift"], 0)
    out = hifi_oracle.quantized(sums, v["p_bias"], quant, np.int16)
    return Case({**v, "out_stride": 3}, out, (3,))


def fully_connected_case(rng, name):
    types, (quant, scale) = name.types, quant_of(rng, name)
    weight, inp = draw(rng, types.weight, (5, 8)), draw(rng, types.input, (8,))
    bias, (inp_bias, weight_bias) = bias_of(rng, name, 5), zero_biases(quant)
    sums = (exact(weight, name) + weight_bias).dot(exact(inp, name) + inp_bias)
    out, shifts = finished(name, sums, bias, quant)
    values = {
        "p_weight": memory(weight, spare=1),
        "p_inp": memory(inp),
        "p_bias": memory(bias),
        "weight_depth": 8,
        "out_depth": 5,
        "input_zero_bias": inp_bias,
        "weight_zero_bias": weight_bias,
    }
    return Case({**values, **scale, **shifts}, out)


def dot_prod_case(rng, name):
    is_float = name.precision.startswith("f32")
    dtype = np.float32 if is_float else np.int16
    inp1, inp2 = draw(rng, dtype, (3, 7)), draw(rng, dtype, (3, 7))
    values = {"p_inp1": memory(inp1, spare=1), "p_inp2": memory(inp2), "vec_length": 7}
    if is_float:
        out = (inp1.astype(np.float64) * inp2).sum(1).astype(np.float32)
        return Case({**values, "num_vecs": 3}, out)
    bias = rng.integers(-(2**28), 2**28, 3).astype(np.int32)
    sums = (integers(inp1) * integers(inp2)).sum(1)
    sums = hifi_oracle.add_saturating(sums, bias)
    quant = Quant(0, 0, 1717986918, -23, 4)
    out = hifi_oracle.quantized(sums, np.zeros(3, np.int32), quant, np.int8)
    scale = {"out_multiplier": 1717986918, "out_shift": -23, "out_zero_bias": 4}
    return Case({**values, **scale, "bias_ptr": bias, "vec_count": 3}, out)


# Images.

WINDOW = {
    "input_height": 5,
    "input_width": 6,
    "kernel_height": 3,
    "kernel_width": 2,
    "y_stride": 3,
    "x_stride": 2,
    "y_padding": 2,
    "x_padding": 1,
    "out_height": 3,
    "out_width": 4,
}


def convolve(name, inp, ker, quant, v, function):
    strides, padding = (v["y_stride"], v["x_stride"]), (v["y_padding"], v["x_padding"])
    out_size = v["out_height"], v["out_width"]
    if name.types.is_float:
        # Exact: a small multiple of 2**-30 in all.
        inp, ker = (np.round(x.astype(np.float64) * 2**15).astype(np.int64) for x in (inp, ker))
    sums = function(inp, ker, strides, padding, out_size, *zero_biases(quant))
    return sums.astype(np.float64) * 2.0**-30 if name.types.is_float else sums


def coarse(rng, dtype, shape):
    """Random values; floats are multiples of 2**-15."""
    x = draw(rng, dtype, shape)
    return np.round(x * np.float32(2**15)) / np.float32(2**15) if dtype is np.float32 else x


def channels_first(out):
    return np.moveaxis(out, -1, 0).copy()


def per_channel_of(name, channels):
    return (channels,) if name.precision.startswith("per_chan") else ()


def image_case(rng, name, kernel_shape, function, v, out_format):
    """A convolution: arguments but for p_ker, the image, the kernel and the result."""
    types, channels = name.types, kernel_shape[-1 if function is hifi_oracle.depthwise else 0]
    inp = coarse(rng, types.input, [v[f"input_{x}"] for x in ("height", "width", "channels")])
    ker, bias = coarse(rng, types.weight, kernel_shape), bias_of(rng, name, channels)
    quant, scale = quant_of(rng, name, per_channel_of(name, channels))
    out, shifts = finished(name, convolve(name, inp, ker, quant, v, function), bias, quant)
    biases = dict(zip(("input_zero_bias", "kernel_zero_bias"), zero_biases(quant), strict=True))
    values = {**v, **biases, **scale, **shifts, "p_bias": memory(bias), "p_scratch": SCRATCH}
    return values, inp, ker, channels_first(out) if out_format else out


def conv2d_std_case(rng, name, out_format=1):
    channels, depth = 3, 5
    stored = {np.int16: 8, np.float32: 6}.get(name.types.input, depth)
    v = {**WINDOW, "input_channels": depth, "out_channels": channels}
    shape = channels, 3, 2, depth
    values, inp, ker, out = image_case(rng, name, shape, hifi_oracle.conv2d, v, out_format)
    strides = 6 * stored, 2 * stored, stored, 1
    values |= {
        "p_inp": memory(inp, spare=1),
        "p_ker": memory(ker, strides, spare=stored - depth),
        "out_data_format": out_format,
    }
    return Case(values, out)


def conv1d_std_case(rng, name, out_format=1):
    channels, depth, width = 3, 3, 3
    stored = 10 if name.types.is_float else 12
    v = {**WINDOW, "input_width": 1, "input_channels": 9, "x_padding": 0, "out_width": 1}
    shape = channels, 3, 1, 9
    values, inp, ker, out = image_case(rng, name, shape, hifi_oracle.conv2d, v, out_format)
    values |= {
        "input_width": width,
        "input_channels": depth,
        "out_channels": channels,
        "p_inp": memory(inp),
        "p_ker": memory(ker[:, :, 0], (3 * stored, stored, 1), spare=stored - 9),
        "out_data_format": out_format,
    }
    return Case(values, out[..., 0] if out_format else out[:, 0])


def conv2d_depthwise_case(rng, name, inp_format=1):
    depth, multiplier = 3, 2
    v = {**WINDOW, "input_channels": depth, "channels_multiplier": multiplier}
    shape = 3, 2, depth * multiplier
    values, inp, ker, out = image_case(rng, name, shape, hifi_oracle.depthwise, v, 0)
    values |= {
        "p_inp": memory(channels_first(inp) if inp_format else inp),
        "p_ker": memory(channels_first(ker) if inp_format else ker, spare=1),
        "inp_data_format": inp_format,
        "out_data_format": 0,
    }
    return Case(values, out)


def conv2d_pointwise_case(rng, name, out_format=1):
    channels, depth = 3, 4
    v = {**WINDOW, "input_channels": depth, "out_channels": channels}
    v |= {"y_stride": 1, "x_stride": 1, "y_padding": 0, "x_padding": 0}
    v |= {"out_height": 5, "out_width": 6}
    shape = channels, 1, 1, depth
    values, inp, ker, out = image_case(rng, name, shape, hifi_oracle.conv2d, v, out_format)
    values |= {"p_inp": memory(inp), "p_ker": memory(ker), "out_data_format": out_format}
    return Case(values, out)


def pool_case(rng, name, data_format=1):
    x = draw(rng, TYPES[name.precision], (5, 6, 3))
    window = {"kernel": (3, 2), "strides": (3, 2), "padding": (2, 1), "out_size": (3, 4)}
    out = np.asarray(compiled(name.family, precision=name.precision, **window)((x,), {}))
    x, out = (channels_first(y) if data_format else y for y in (x, out))
    formats = {"inp_data_format": data_format, "out_data_format": data_format}
    values = {**WINDOW, **formats, "input_channels": 3, "p_inp": memory(x, spare=1)}
    return Case({**values, "p_scratch": SCRATCH}, out)


# Functions of vectors.

SCALE = {"out_zero_bias": 5, "out_shift": -3, "out_multiplier": 1717986918}
LIMITS = {"out_activation_min": -90, "out_activation_max": 80}
INPUTS = {"inp1_zero_bias": 11, "inp2_zero_bias": -12}
SCALES = {
    "inp1_shift": -1,
    "inp1_multiplier": 1518500250,
    "inp2_shift": -2,
    "inp2_multiplier": 1932735283,
    "left_shift": 2,
}
# Numbers that C functions and kernels take by the same names.
NUMBERS = {
    "relu": {"threshold": 9},
    "activation_min_max": {"activation_min": 2, "activation_max": 50},
    "elm_quantize": {"inp_zero_bias": -300, **SCALE},
    "elm_add": {**SCALE, **LIMITS, **INPUTS, **SCALES},
    "elm_mul": {**SCALE, **LIMITS, **INPUTS},
}
SIGMOID = {
    "zero_point": 100,
    "input_range_radius": 90,
    "input_multiplier": 1717986918,
    "input_left_shift": 23,
}
SOFTMAX = {"diffmin": -99, "input_left_shift": 21, "input_multiplier": 1717986918}


@functools.cache
def compiled(function, **static):
    """A kernel, compiled; numbers are keywords in a dict."""
    kernel = functools.partial(getattr(kernels, function), **static)
    return jax.jit(lambda arrays, numbers: kernel(*arrays, **numbers))


def result_of(name, arrays, numbers):
    """The result of the kernel of a name."""
    row = kernels.NAMES[name]
    return np.asarray(compiled(row.function.__name__, **row.fixed)(arrays, numbers))


def activation_case(rng, name):
    x = draw(rng, name.first_type, (13,))
    if x.dtype == np.int32:
        x = x >> rng.integers(0, 12, 13).astype(np.int32)
    arguments = keywords = NUMBERS.get(name.family, {}) if name.kind in ("", "relu") else {}
    if name.family == "sigmoid" and name.is_quantized:
        arguments, keywords = SIGMOID, {"quant": SigmoidQuant(*SIGMOID.values())}
    if name.family == "softmax" and name.is_quantized:
        arguments = {**SOFTMAX, "p_scratch": SCRATCH}
        keywords = {"quant": SoftmaxQuant(*SOFTMAX.values())}
    fixed = {"precision": name.precision} | ({"kind": name.kind} if name.kind else {})
    out = np.asarray(compiled(name.family, **fixed)((x,), keywords))
    return Case({"p_vec": memory(x, spare=2), "vec_length": 13, **arguments}, out)


def interpolation_case(rng, _):
    ifact, inp1, inp2 = (draw(rng, np.int16, (12,)) for _ in range(3))
    ifact = ifact & np.int16(0x7FFF)
    total = (integers(ifact) * integers(inp1) >> 15) + ((32767 - integers(ifact)) * inp2 >> 15)
    out = hifi_oracle.saturate(total, np.int16)
    values = {"p_ifact": ifact, "p_inp1": memory(inp1, spare=4), "p_inp2": inp2, "num_elements": 12}
    return Case(values, out.astype(np.int16))


def elementwise_case(rng, name):
    inputs = ("inp1", "inp2") if name.family in ("elm_add", "elm_mul") else ("inp",)
    numbers = NUMBERS.get(name.family, {})
    arrays = [draw(rng, name.first_type, (13,)) for _ in inputs]
    out = np.asarray(compiled(name.family, precision=name.precision)(arrays, numbers))
    pointers = {f"p_{key}": memory(x, spare=1) for key, x in zip(inputs, arrays, strict=True)}
    return Case({**pointers, **numbers, "num_elm": 13}, out)


# By the kernels that compute the functions.
_CASES = {
    "matXvec": matXvec_case,
    "matXvec_fused": fused_case,
    "matXvec_batch": matXvec_batch_case,
    "matmul": matmul_case,
    "matXvec_out_stride": matXvec_out_stride_case,
    "conv2d_std": conv2d_std_case,
    "conv1d_std": conv1d_std_case,
    "conv2d_depthwise": conv2d_depthwise_case,
    "conv2d_pointwise": conv2d_pointwise_case,
    "fully_connected": fully_connected_case,
    "avgpool": pool_case,
    "maxpool": pool_case,
    **dict.fromkeys(("sigmoid", "tanh", "relu", "softmax", "activation_min_max"), activation_case),
    "interpolation_q15": interpolation_case,
    "dot_prod": dot_prod_case,
}
