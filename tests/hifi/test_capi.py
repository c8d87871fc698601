"""The C signatures of the kernels: names, order of arguments, memory, and what gives -1.

Results are those of the oracle or, for activations and pools, of the kernels.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import re
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from oracle import hifi_oracle
from oracle.hifi_oracle import draw, draw_quant, integers

from tosajax.hifi import NNLibParamError, capi, kernels
from tosajax.hifi.capi import _plan
from tosajax.hifi.kernels import Quant, SigmoidQuant, SoftmaxQuant
from tosajax.hifi.kernels._precision import PRECISIONS

# The prototypes of the guide, with its errata: section, name, precisions, arguments.
PROTOTYPES = """
3.1.1 matXvec_{}
  16x16_16 16x16_32 16x16_64 8x16_16 8x16_32 8x16_64 8x8_8 8x8_16 8x8_32
  p_out p_mat1 p_mat2 p_vec1 p_vec2 p_bias rows cols1 cols2 row_stride1 row_stride2 acc_shift bias_shift
3.1.1 matXvec_{}
  f32xf32_f32
  p_out p_mat1 p_mat2 p_vec1 p_vec2 p_bias rows cols1 cols2 row_stride1 row_stride2
3.1.1 matXvec_{}
  asym8uxasym8u_asym8u
  p_out p_mat1 p_mat2 p_vec1 p_vec2 p_bias rows cols1 cols2 row_stride1 row_stride2 mat1_zero_bias mat2_zero_bias vec1_zero_bias vec2_zero_bias out_multiplier out_shift out_zero_bias
3.1.1 matXvec_{}
  sym8sxasym8s_asym8s
  p_out p_mat1 p_mat2 p_vec1 p_vec2 p_bias rows cols1 cols2 row_stride1 row_stride2 vec1_zero_bias vec2_zero_bias out_multiplier out_shift out_zero_bias
3.1.2 matXvec_{}
  16x16_16_tanh 16x16_16_sigmoid 8x16_16_tanh 8x16_16_sigmoid 8x8_8_tanh 8x8_8_sigmoid
  p_out p_mat1 p_mat2 p_vec1 p_vec2 p_bias rows cols1 cols2 row_stride1 row_stride2 acc_shift bias_shift bias_precision p_scratch
3.1.2 matXvec_{}
  f32xf32_f32_tanh f32xf32_f32_sigmoid
  p_out p_mat1 p_mat2 p_vec1 p_vec2 p_bias rows cols1 cols2 row_stride1 row_stride2 p_scratch
3.1.3 matXvec_batch_{}
  16x16_64 8x16_64 8x8_32
  p_out p_mat1 p_vec1 p_bias rows cols1 row_stride1 acc_shift bias_shift vec_count
3.1.3 matXvec_batch_{}
  f32xf32_f32
  p_out p_mat1 p_vec1 p_bias rows cols1 row_stride1 vec_count
3.1.4 matmul_{}
  8x8_8
  p_out p_mat1 p_mat2 p_bias rows cols row_stride acc_shift bias_shift vec_count vec_offset out_offset out_stride
3.1.4 matmul_{}
  asym8uxasym8u_asym8u
  p_out p_mat1 p_mat2 p_bias rows cols row_stride vec_count vec_offset out_offset out_stride mat1_zero_bias vec1_zero_bias out_multiplier out_shift out_zero_bias
3.1.4 matmul_{}
  per_chan_sym8sxasym8s_asym8s
  p_out p_mat1 p_mat2 p_bias rows cols row_stride vec_count vec_offset out_offset out_stride vec1_zero_bias p_out_multiplier p_out_shift out_zero_bias
3.1.5 matXvec_out_stride_{}
  sym8sxasym8s_16
  p_out p_mat1 p_vec1 p_bias rows cols1 row_stride1 out_stride vec1_zero_bias out_multiplier out_shift
3.2.1 conv2d_std_{}
  getsize
  input_height input_channels kernel_height kernel_width y_stride y_padding out_height input_precision
3.2.1 conv2d_std_{}
  16x16 8x16 8x8
  p_out p_inp p_ker p_bias input_height input_width input_channels kernel_height kernel_width out_channels x_stride y_stride x_padding y_padding out_height out_width bias_shift acc_shift out_data_format p_scratch
3.2.1 conv2d_std_{}
  f32
  p_out p_inp p_ker p_bias input_height input_width input_channels kernel_height kernel_width out_channels x_stride y_stride x_padding y_padding out_height out_width out_data_format p_scratch
3.2.1 conv2d_std_{}
  asym8uxasym8u
  p_out p_inp p_ker p_bias input_height input_width input_channels kernel_height kernel_width out_channels x_stride y_stride x_padding y_padding out_height out_width input_zero_bias kernel_zero_bias out_multiplier out_shift out_zero_bias out_data_format p_scratch
3.2.1 conv2d_std_{}
  per_chan_sym8sxasym8s
  p_out p_inp p_ker p_bias input_height input_width input_channels kernel_height kernel_width out_channels x_stride y_stride x_padding y_padding out_height out_width input_zero_bias p_out_multiplier p_out_shift out_zero_bias out_data_format p_scratch
3.2.2 conv1d_std_{}
  getsize
  kernel_height input_width input_channels input_precision
3.2.2 conv1d_std_{}
  16x16 8x16 8x8
  p_out p_inp p_ker p_bias input_height input_width input_channels kernel_height out_channels y_stride y_padding out_height bias_shift acc_shift out_data_format p_scratch
3.2.2 conv1d_std_{}
  f32
  p_out p_inp p_ker p_bias input_height input_width input_channels kernel_height out_channels y_stride y_padding out_height out_data_format p_scratch
3.2.3.1 conv2d_depthwise_{}
  getsize
  input_height input_width input_channels kernel_height kernel_width channels_multiplier x_stride y_stride x_padding y_padding output_height output_width circ_buf_precision inp_data_format
3.2.3.1 conv2d_depthwise_{}
  16x16 8x16 8x8
  p_out p_ker p_inp p_bias input_height input_width input_channels kernel_height kernel_width channels_multiplier x_stride y_stride x_padding y_padding out_height out_width acc_shift bias_shift inp_data_format out_data_format p_scratch
3.2.3.1 conv2d_depthwise_{}
  f32
  p_out p_ker p_inp p_bias input_height input_width input_channels kernel_height kernel_width channels_multiplier x_stride y_stride x_padding y_padding out_height out_width inp_data_format out_data_format p_scratch
3.2.3.1 conv2d_depthwise_{}
  asym8uxasym8u
  p_out p_ker p_inp p_bias input_height input_width input_channels kernel_height kernel_width channels_multiplier x_stride y_stride x_padding y_padding out_height out_width input_zero_bias kernel_zero_bias out_multiplier out_shift out_zero_bias inp_data_format out_data_format p_scratch
3.2.3.1 conv2d_depthwise_{}
  per_chan_sym8sxasym8s
  p_out p_ker p_inp p_bias input_height input_width input_channels kernel_height kernel_width channels_multiplier x_stride y_stride x_padding y_padding out_height out_width input_zero_bias p_out_multiplier p_out_shift out_zero_bias inp_data_format out_data_format p_scratch
3.2.3.2 conv2d_pointwise_{}
  16x16 8x16 8x8
  p_out p_ker p_inp p_bias input_height input_width input_channels out_channels acc_shift bias_shift out_data_format
3.2.3.2 conv2d_pointwise_{}
  f32
  p_out p_ker p_inp p_bias input_height input_width input_channels out_channels out_data_format
3.2.3.2 conv2d_pointwise_{}
  asym8uxasym8u
  p_out p_ker p_inp p_bias input_height input_width input_channels out_channels input_zero_bias kernel_zero_bias out_multiplier out_shift out_zero_bias out_data_format
3.2.3.2 conv2d_pointwise_{}
  per_chan_sym8sxasym8s
  p_out p_ker p_inp p_bias input_height input_width input_channels out_channels input_zero_bias p_out_multiplier p_out_shift out_zero_bias out_data_format
3.3.1 vec_sigmoid_{}
  32_32 32_16 32_8 f32_f32
  p_out p_vec vec_length
3.3.1 vec_sigmoid_{}
  asym8u_asym8u
  p_out p_vec zero_point input_range_radius input_multiplier input_left_shift vec_length
3.3.2 vec_tanh_{}
  32_32 32_16 32_8 f32_f32
  p_out p_vec vec_length
3.3.3 vec_relu_{}
  32_32 f32_f32 16_16 8_8
  p_out p_vec threshold vec_length
3.3.3 vec_{}
  relu1_32_32 relu1_f32_f32 relu6_32_32 relu6_f32_f32 relu_std_32_32 relu_std_f32_f32 relu_std_16_16 relu_std_8_8
  p_out p_vec vec_length
3.3.4 vec_softmax_{}
  32_32 f32_f32
  p_out p_vec vec_length
3.3.4 vec_softmax_{}
  asym8u_asym8u asym8s_asym8s asym8s_16
  p_out p_vec diffmin input_left_shift input_multiplier vec_length p_scratch
3.3.5 vec_activation_min_max_{}
  f32_f32 asym8u_asym8u 16_16 8_8
  p_out p_vec activation_min activation_max vec_length
3.4.1 avgpool_{}
  getsize
  input_channels inp_precision out_precision input_height input_width kernel_height kernel_width x_stride y_stride x_padding y_padding out_height out_width inp_data_format out_data_format
3.4.1 avgpool_{}
  8 16 f32 asym8u
  p_out p_inp input_height input_width input_channels kernel_height kernel_width x_stride y_stride x_padding y_padding out_height out_width inp_data_format out_data_format p_scratch
3.4.2 maxpool_{}
  getsize
  input_channels inp_precision out_precision input_height input_width kernel_height kernel_width x_stride y_stride x_padding y_padding out_height out_width inp_data_format out_data_format
3.4.2 maxpool_{}
  8 16 f32 asym8u
  p_out p_inp input_height input_width input_channels kernel_height kernel_width x_stride y_stride x_padding y_padding out_height out_width inp_data_format out_data_format p_scratch
3.5.1 fully_connected_{}
  16x16_16 8x16_16 8x8_8
  p_out p_weight p_inp p_bias weight_depth out_depth acc_shift bias_shift
3.5.1 fully_connected_{}
  f32
  p_out p_weight p_inp p_bias weight_depth out_depth
3.5.1 fully_connected_{}
  asym8uxasym8u_asym8u
  p_out p_weight p_inp p_bias weight_depth out_depth input_zero_bias weight_zero_bias out_multiplier out_shift out_zero_bias
3.5.1 fully_connected_{}
  sym8sxasym8s_asym8s
  p_out p_weight p_inp p_bias weight_depth out_depth input_zero_bias out_multiplier out_shift out_zero_bias
3.6.1 vec_{}
  interpolation_q15
  p_out p_ifact p_inp1 p_inp2 num_elements
3.6.2 dot_prod_{}
  f32xf32_f32
  p_out p_inp1 p_inp2 vec_length num_vecs
3.6.2 dot_prod_{}
  16x16_asym8s
  p_out p_inp1 p_inp2 bias_ptr vec_length out_multiplier out_shift out_zero_bias vec_count
3.6.3 elm_quantize_{}
  asym16s_asym8s
  p_out p_inp inp_zero_bias out_zero_bias out_shift out_multiplier num_elm
3.6.4 elm_floor_{}
  f32_f32
  p_out p_inp num_elm
3.6.4 elm_add_{}
  asym8sxasym8s_asym8s
  p_out out_zero_bias out_shift out_multiplier out_activation_min out_activation_max p_inp1 inp1_zero_bias inp1_shift inp1_multiplier p_inp2 inp2_zero_bias inp2_shift inp2_multiplier left_shift num_elm
3.6.4 elm_mul_{}
  asym8sxasym8s_asym8s
  p_out out_zero_bias out_shift out_multiplier out_activation_min out_activation_max p_inp1 inp1_zero_bias p_inp2 inp2_zero_bias num_elm
"""  # noqa: E501


def parse():
    lines = [line.split() for line in PROTOTYPES.strip().splitlines()]
    for (section, name), precisions, arguments in zip(*(iter(lines),) * 3, strict=True):
        for precision in precisions:
            yield f"xa_nn_{name.format(precision)}", (section, arguments)


EXPECTED = dict(parse())
NAMES = [name for name in EXPECTED if not name.endswith("getsize")]
SENTINEL = 77
GUARD = 64  # elements; a multiple of every alignment


# Cases: arguments of each function, and what it has to write.


class Case(NamedTuple):
    values: dict[str, Any]
    out: np.ndarray
    strides: tuple[int, ...] | None = None


class Name(NamedTuple):
    """A name in parts: matXvec, 8x8_8, tanh."""

    family: str
    precision: str
    function: str = ""

    @property
    def types(self):
        return PRECISIONS[self.precision]

    @property
    def is_quantized(self):
        return "sym8" in self.precision


FAMILIES = (
    "matXvec_out_stride",
    "matXvec_batch",
    "matXvec",
    "matmul",
    "conv2d_std",
    "conv1d_std",
    "conv2d_depthwise",
    "conv2d_pointwise",
    "fully_connected",
    "avgpool",
    "maxpool",
    "dot_prod",
    *(f"elm_{kind}" for kind in ("quantize", "floor", "add", "mul")),
    "vec_interpolation",
    "vec_activation_min_max",
    *(f"vec_{kind}" for kind in ("sigmoid", "tanh", "softmax", "relu_std", "relu1", "relu6")),
    "vec_relu",
)


def parts(name):
    short = name.removeprefix("xa_nn_")
    family = next(family for family in FAMILIES if short.startswith(family))
    precision = short.removeprefix(f"{family}_")
    for function in ("tanh", "sigmoid"):
        if precision.endswith(f"_{function}"):
            return Name("fused", precision.removesuffix(f"_{function}"), function)
    return Name(family, precision)


def packed(shape):
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))


def view(flat, shape, strides):
    in_bytes = [stride * flat.itemsize for stride in strides or packed(shape)]
    return np.lib.stride_tricks.as_strided(flat, shape, in_bytes)


def reach(shape, strides):
    steps = zip(shape, strides or packed(shape), strict=True)
    return 1 + sum((length - 1) * step for length, step in steps)


def memory(array, strides=None, spare=0):
    """An array in memory of its own, with something else in the gaps and behind it."""
    count = reach(array.shape, strides) + spare
    flat = np.full(count, 99, array.dtype)
    view(flat, array.shape, strides)[...] = array
    return flat


def out_memory(out, strides):
    """Memory of sentinels, and where p_out points to in it."""
    whole = np.full(reach(out.shape, strides) + 2 * GUARD, SENTINEL, out.dtype)
    return whole, whole[GUARD:]


def quant_of(rng, name, channels=()):
    """A Quant, and its arguments in C, but for the names of zero biases."""
    dtype = name.types.input
    inp, weight, multiplier, shift, zero = draw_quant(rng, dtype, channels)
    # Not 0, so that what is left out is noticed; within the range of either type.
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


def finished(rng, name, sums, bias, quant, shifts=(-9, 3)):
    """Sums [..., N] as outputs, and the shifts among the arguments."""
    types = name.types
    if types.is_float:
        return (np.asarray(sums + bias, np.float32)), {}
    if types.is_quantized:
        return hifi_oracle.quantized(sums, bias, quant, types.out), {}
    acc_shift, bias_shift = shifts
    out = hifi_oracle.fixed(sums, bias, acc_shift, bias_shift, types.out)
    return out, {"acc_shift": acc_shift, "bias_shift": bias_shift}


def exact(x, name):
    """Operands of the oracle: Python integers, or float64."""
    return x.astype(np.float64) if name.types.is_float else integers(x)


def bias_of(rng, name, count):
    types = name.types
    if types.is_quantized:
        return rng.integers(-(2**12), 2**12, count).astype(np.int32)
    return draw(rng, types.bias, (count,))


def zero_biases(name, quant):
    return (quant.input_zero_bias, quant.weight_zero_bias) if name.is_quantized else (0, 0)


def matXvec_case(rng, name):
    rows, cols1, cols2, stride1, stride2 = 5, 6, 3, 9, 4
    types = name.types
    mat1, vec1 = draw(rng, types.weight, (rows, cols1)), draw(rng, types.input, (cols1,))
    mat2, vec2 = draw(rng, types.weight, (rows, cols2)), draw(rng, types.input, (cols2,))
    bias = bias_of(rng, name, rows)
    quant, scale = quant_of(rng, name) if name.is_quantized else (None, {})
    inp, weight = zero_biases(name, quant)
    second = (inp - 1 if inp > -100 else inp + 1, weight and -7) if name.is_quantized else (0, 0)
    sums = (exact(mat1, name) + weight).dot(exact(vec1, name) + inp)
    sums = sums + (exact(mat2, name) + second[1]).dot(exact(vec2, name) + second[0])
    out, shifts = finished(rng, name, sums, bias, quant)
    biases = {
        "vec1_zero_bias": inp,
        "vec2_zero_bias": second[0],
        "mat1_zero_bias": weight,
        "mat2_zero_bias": second[1],
    }
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
        **(biases if name.is_quantized else {}),
        **scale,
        **shifts,
    }
    return Case(values, out)


@functools.cache
def activation(function, precision):
    return jax.jit(functools.partial(getattr(kernels, function), precision=precision))


def fused_case(rng, name, bias=None, bias_precision=99):
    """The bias of the type of the vectors, whatever bias_precision says but for the wide ones."""
    inner, case = name.precision, matXvec_case(rng, Name("matXvec", name.precision))
    if name.types.is_float:
        out = activation(name.function, "f32_f32")(case.out)
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
    bits = inner.split("_")[1]
    out = np.asarray(activation(name.function, f"32_{bits}")(total))
    more = {"bias_precision": bias_precision, "p_scratch": np.zeros(5, np.int32)}
    return Case({**v, **shifts, **more, "p_bias": bias}, out)


def matXvec_batch_case(rng, name):
    rows, count, types = 5, 3, name.types
    # Multiples of 2 for floats, of 4 for integers.
    cols, stride = (6, 10) if types.is_float else (8, 12)
    mat, bias = draw(rng, types.weight, (rows, cols)), bias_of(rng, name, rows)
    vectors = draw(rng, types.input, (count, cols))
    sums = exact(vectors, name).dot(exact(mat, name).T)
    out, shifts = finished(rng, name, sums, bias, None)
    values = {
        "p_mat1": memory(mat, (stride, 1)),
        "p_vec1": [memory(vector, spare=2) for vector in vectors],
        "p_bias": memory(bias),
        "rows": rows,
        "cols1": cols,
        "row_stride1": stride,
        "vec_count": count,
        **shifts,
    }
    return Case(values, out)


def matmul_case(rng, name):
    rows, cols, stride, count = 5, 6, 7, 3
    types = name.types
    mat1, mat2 = draw(rng, types.weight, (rows, cols)), draw(rng, types.input, (cols, count))
    bias = bias_of(rng, name, rows)
    per_channel = (rows,) if name.precision.startswith("per_chan") else ()
    quant, scale = quant_of(rng, name, per_channel) if name.is_quantized else (None, {})
    inp, weight = zero_biases(name, quant)
    sums = (exact(mat1, name) + weight).dot(exact(mat2, name) + inp)
    out, shifts = finished(rng, name, sums.T, bias, quant)
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
        **scale,
        **shifts,
    }
    return Case(values, out.T, (11, 2))


def matXvec_out_stride_case(rng, name):
    case = matXvec_case(rng, name)
    v = case.values
    mat, vec = view(v["p_mat1"], (5, 6), (9, 1)), v["p_vec1"][:6]
    sums = hifi_oracle.dot(mat, vec, 0, v["vec1_zero_bias"])
    quant = Quant(0, 0, v["out_multiplier"], v["out_shift"], 0)
    out = hifi_oracle.quantized(sums, v["p_bias"], quant, np.int16)
    return Case({**v, "out_stride": 3}, out, (3,))


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
SCRATCH = np.zeros(64, np.int8)


def convolve(name, inp, ker, quant, v, function):
    inp_bias, ker_bias = zero_biases(name, quant)
    strides, padding = (v["y_stride"], v["x_stride"]), (v["y_padding"], v["x_padding"])
    out_size = v["out_height"], v["out_width"]
    if name.types.is_float:
        # Exact: a small multiple of 2**-30 in all.
        inp, ker = (np.round(x.astype(np.float64) * 2**15).astype(np.int64) for x in (inp, ker))
    sums = function(inp, ker, strides, padding, out_size, inp_bias, ker_bias)
    return sums.astype(np.float64) * 2.0**-30 if name.types.is_float else sums


def coarse(rng, name, dtype, shape):
    """Random values; floats are multiples of 2**-15."""
    x = draw(rng, dtype, shape)
    return np.round(x * np.float32(2**15)) / np.float32(2**15) if dtype is np.float32 else x


def channels_first(out):
    return np.moveaxis(out, -1, 0).copy()


def image_case(rng, name, kernel_shape, function, v, channels, out_format, scale_by=()):
    """A convolution: arguments but for p_ker, the kernel and the result."""
    types = name.types
    inp = coarse(rng, name, types.input, [v[f"input_{x}"] for x in ("height", "width", "channels")])
    ker = coarse(rng, name, types.weight, kernel_shape)
    bias = bias_of(rng, name, channels)
    quant, scale = quant_of(rng, name, scale_by) if name.is_quantized else (None, {})
    sums = convolve(name, inp, ker, quant, v, function)
    out, shifts = finished(rng, name, sums, bias, quant)
    inp_bias, ker_bias = zero_biases(name, quant)
    biases = {"input_zero_bias": inp_bias, "kernel_zero_bias": ker_bias}
    values = {**v, **biases, **scale, **shifts, "p_bias": memory(bias), "p_scratch": SCRATCH}
    return values, inp, ker, channels_first(out) if out_format else out


def per_channel_of(name, channels):
    return (channels,) if name.precision.startswith("per_chan") else ()


def conv2d_std_case(rng, name, out_format=1):
    types, channels, depth = name.types, 3, 5
    stored = {np.int16: 8, np.float32: 6}.get(types.input, depth)
    v = {**WINDOW, "input_channels": depth, "out_channels": channels}
    shape, scale = (channels, 3, 2, depth), per_channel_of(name, channels)
    conv2d = hifi_oracle.conv2d
    values, inp, ker, out = image_case(rng, name, shape, conv2d, v, channels, out_format, scale)
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
    conv2d = hifi_oracle.conv2d
    values, inp, ker, out = image_case(rng, name, shape, conv2d, v, channels, out_format)
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
    channels = depth * multiplier
    v = {**WINDOW, "input_channels": depth, "channels_multiplier": multiplier}
    shape, scale = (3, 2, channels), per_channel_of(name, channels)
    depthwise = hifi_oracle.depthwise
    values, inp, ker, out = image_case(rng, name, shape, depthwise, v, channels, 0, scale)
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
    shape, scale = (channels, 1, 1, depth), per_channel_of(name, channels)
    conv2d = hifi_oracle.conv2d
    values, inp, ker, out = image_case(rng, name, shape, conv2d, v, channels, out_format, scale)
    values |= {"p_inp": memory(inp), "p_ker": memory(ker), "out_data_format": out_format}
    return Case(values, out)


def fully_connected_case(rng, name):
    case = matXvec_case(rng, name._replace(precision=name.precision.replace("f32", "f32xf32_f32")))
    v = case.values
    name = name._replace(precision=name.precision.replace("f32", "f32xf32_f32"))
    weight, inp = draw(rng, name.types.weight, (5, 8)), draw(rng, name.types.input, (8,))
    quant = None
    if name.is_quantized:
        scale = v["out_multiplier"], v["out_shift"], v["out_zero_bias"]
        quant = Quant(v["vec1_zero_bias"], v["mat1_zero_bias"], *scale)
        v |= {"input_zero_bias": quant.input_zero_bias, "weight_zero_bias": quant.weight_zero_bias}
    inp_bias, weight_bias = zero_biases(name, quant)
    sums = (exact(weight, name) + weight_bias).dot(exact(inp, name) + inp_bias)
    out, _ = finished(rng, name, sums, v["p_bias"], quant)
    sizes = {"weight_depth": 8, "out_depth": 5}
    return Case({**v, **sizes, "p_weight": memory(weight, spare=1), "p_inp": memory(inp)}, out)


WORDS = {
    "8": np.int8,
    "16": np.int16,
    "32": np.int32,
    "f32": np.float32,
    "asym8u": np.uint8,
    "asym8s": np.int8,
    "asym16s": np.int16,
}
# As a C caller and the kernels have them.
ACTIVATIONS = {
    "vec_relu": ({"threshold": 9}, {"threshold": 9}),
    "vec_activation_min_max": ({"activation_min": 2, "activation_max": 50},) * 2,
}
SIGMOID = {
    "zero_point": 100,
    "input_range_radius": 90,
    "input_multiplier": 1717986918,
    "input_left_shift": 23,
}
SOFTMAX = {"diffmin": -99, "input_left_shift": 21, "input_multiplier": 1717986918}


@functools.cache
def pure(name, **static):
    """The kernel of a name, compiled; numbers are keywords in a dict."""
    kernel = functools.partial(getattr(kernels, name), **static)
    return jax.jit(lambda arrays, numbers: kernel(*arrays, **numbers))


def activation_case(rng, name, library_name):
    dtype = WORDS[name.precision.split("_")[0]]
    x = draw(rng, dtype, (13,))
    if dtype is np.int32:
        x = x >> rng.integers(0, 12, 13).astype(np.int32)
    arguments, keywords = ACTIVATIONS.get(name.family, ({}, {}))
    if name.precision == "asym8u_asym8u" and name.family == "vec_sigmoid":
        arguments, keywords = SIGMOID, {"quant": SigmoidQuant(*SIGMOID.values())}
    if name.precision.startswith("asym8") and name.family == "vec_softmax":
        arguments = {**SOFTMAX, "p_scratch": SCRATCH}
        keywords = {"quant": SoftmaxQuant(*SOFTMAX.values())}
    out = np.asarray(pure(library_name)((x,), keywords))
    return Case({"p_vec": memory(x, spare=2), "vec_length": 13, **arguments}, out)


def pool_case(rng, name, library_name, data_format=1):
    depth = 3
    x = draw(rng, WORDS[name.precision], (5, 6, depth))
    out = pure(
        library_name,
        kernel=(3, 2),
        strides=(3, 2),
        padding=(2, 1),
        out_size=(3, 4),
    )((x,), {})
    x, out = (channels_first(y) if data_format else y for y in (x, np.asarray(out)))
    formats = {"inp_data_format": data_format, "out_data_format": data_format}
    values = {**WINDOW, **formats, "input_channels": depth, "p_inp": memory(x, spare=1)}
    return Case({**values, "p_scratch": SCRATCH}, np.asarray(out))


def interpolation_case(rng, name):
    ifact, inp1, inp2 = (draw(rng, np.int16, (12,)) for _ in range(3))
    ifact = ifact & np.int16(0x7FFF)
    total = (integers(ifact) * integers(inp1) >> 15) + ((32767 - integers(ifact)) * inp2 >> 15)
    out = hifi_oracle.by_element(lambda x: hifi_oracle.saturate(x, np.int16), total)
    values = {"p_ifact": ifact, "p_inp1": memory(inp1, spare=4), "p_inp2": inp2, "num_elements": 12}
    return Case(values, out.astype(np.int16))


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
    sums = hifi_oracle.by_element(lambda x: hifi_oracle.saturate(x, np.int32), sums)
    sums = hifi_oracle.by_element(lambda x: hifi_oracle.saturate(x, np.int32), sums + bias)
    quant = Quant(0, 0, 1717986918, -23, 4)
    out = hifi_oracle.quantized(sums, np.zeros(3, np.int32), quant, np.int8)
    scale = {"out_multiplier": 1717986918, "out_shift": -23, "out_zero_bias": 4}
    return Case({**values, **scale, "bias_ptr": bias, "vec_count": 3}, out)


SCALE = {"out_zero_bias": 5, "out_shift": -3, "out_multiplier": 1717986918}
ACTIVATION = {"out_activation_min": -90, "out_activation_max": 80}
INPUTS = {"inp1_zero_bias": 11, "inp2_zero_bias": -12}
SCALES = {
    "inp1_shift": -1,
    "inp1_multiplier": 1518500250,
    "inp2_shift": -2,
    "inp2_multiplier": 1932735283,
    "left_shift": 2,
}


def elementwise_case(rng, name, library_name):
    match name.family:
        case "elm_quantize":
            inputs, numbers = ("inp",), {"inp_zero_bias": -300, **SCALE}
        case "elm_floor":
            inputs, numbers = ("inp",), {}
        case "elm_add":
            inputs, numbers = ("inp1", "inp2"), {**SCALE, **ACTIVATION, **INPUTS, **SCALES}
        case _:
            inputs, numbers = ("inp1", "inp2"), {**SCALE, **ACTIVATION, **INPUTS}
    dtype = WORDS[name.precision.split("_")[0].split("x")[0]]
    arrays = [draw(rng, dtype, (13,)) for _ in inputs]
    out = pure(library_name)(arrays, numbers)
    pointers = {f"p_{key}": memory(x, spare=1) for key, x in zip(inputs, arrays, strict=True)}
    return Case({**pointers, **numbers, "num_elm": 13}, np.asarray(out))


CASES = {
    "matXvec": matXvec_case,
    "fused": fused_case,
    "matXvec_batch": matXvec_batch_case,
    "matmul": matmul_case,
    "matXvec_out_stride": matXvec_out_stride_case,
    "conv2d_std": conv2d_std_case,
    "conv1d_std": conv1d_std_case,
    "conv2d_depthwise": conv2d_depthwise_case,
    "conv2d_pointwise": conv2d_pointwise_case,
    "fully_connected": fully_connected_case,
    "vec_interpolation": interpolation_case,
    "dot_prod": dot_prod_case,
}


@functools.cache
def case_of(name):
    """A case of each function, which tests leave as it is."""
    rng, found = np.random.default_rng(5), parts(name)
    if found.family in CASES:
        return CASES[found.family](rng, found)
    of_kernel = {"avgpool": pool_case, "maxpool": pool_case}
    by_kernel = activation_case if found.family.startswith("vec_") else elementwise_case
    return of_kernel.get(found.family, by_kernel)(rng, found, name)


def arguments_of(name, case, **changed):
    """The arguments in the order of C, p_out being first, and the memory that p_out is in."""
    values = {**case.values, **changed}
    if "batch" in name:
        rows = [out_memory(row, case.strides) for row in case.out]
        whole, p_out = [row for row, _ in rows], [at for _, at in rows]
    else:
        whole, p_out = out_memory(case.out, case.strides)
    values = {"p_out": p_out, **values}
    if "interpolation" in name:
        values["p_inp1"] = values["p_inp1"] if changed else values["p_inp1"].copy()
    return [values[argument] for argument in EXPECTED[name][1]], whole


def check_out(case, whole):
    """p_out holds the result, and all around it what was there."""
    outs = case.out if isinstance(whole, list) else [case.out]
    for out, found in zip(outs, whole if isinstance(whole, list) else [whole], strict=True):
        result = view(found[GUARD:], out.shape, case.strides).copy()
        if out.dtype == np.float32:
            np.testing.assert_allclose(result, out, rtol=2e-6, atol=2e-6)
        else:
            np.testing.assert_array_equal(result, out)
        view(found[GUARD:], out.shape, case.strides)[...] = SENTINEL
        assert (found == SENTINEL).all()


def check_untouched(whole):
    assert all(
        (found == SENTINEL).all() for found in (whole if isinstance(whole, list) else [whole])
    )


def call(name, case, **changed):
    """The code of a call, and the memory of p_out after it."""
    arguments, whole = arguments_of(name, case, **changed)
    return getattr(capi, name)(*arguments), whole


# Names and signatures.


def test_all_names_are_there():
    assert len(EXPECTED) == 106
    assert EXPECTED.keys() == kernels.NAMES.keys()
    assert set(EXPECTED) <= set(dir(capi))
    for name in ("matXvec", "xa_nn_matXvec_4x4_4"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(capi, name)
    with pytest.raises(KeyError):
        capi.strict("xa_nn_matXvec_4x4_4")


@pytest.mark.parametrize("name", EXPECTED)
def test_signature(name):
    section, arguments = EXPECTED[name]
    for function in (getattr(capi, name), capi.strict(name)):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == arguments
        assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
        assert function.__name__ == function.__qualname__ == name
        assert f"{name} of the library (guide {section}): " in str(function.__doc__)


# Results.


@pytest.mark.parametrize("name", NAMES)
def test_call(name):
    case = case_of(name)
    code, whole = call(name, case)
    assert code == 0
    check_out(case, whole)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMES
        if parts(name).family in ("conv2d_std", "conv1d_std", "conv2d_depthwise")
    ],
)
def test_channels_last(name):
    found = parts(name)
    case = CASES[found.family](np.random.default_rng(6), found, 0)
    code, whole = call(name, case)
    assert code == 0
    check_out(case, whole)


@pytest.mark.parametrize("precision", ["8x8", "asym8uxasym8u", "per_chan_sym8sxasym8s"])
def test_channels_last_pointwise(precision):
    name = f"xa_nn_conv2d_pointwise_{precision}"
    case = conv2d_pointwise_case(np.random.default_rng(6), parts(name), 0)
    code, whole = call(name, case)
    assert code == 0
    check_out(case, whole)


@pytest.mark.parametrize("name", ["xa_nn_avgpool_8", "xa_nn_maxpool_8"])
def test_channels_last_pool(name):
    case = pool_case(np.random.default_rng(6), parts(name), name, 0)
    code, whole = call(name, case)
    assert code == 0
    check_out(case, whole)


@pytest.mark.parametrize(
    ("name", "wide", "bias_precision"),
    [
        ("xa_nn_matXvec_16x16_16_tanh", np.int64, 64),
        ("xa_nn_matXvec_8x16_16_sigmoid", np.int64, 64),
        ("xa_nn_matXvec_8x8_8_tanh", np.int32, 32),
        # What the switch of the library does not know.
        ("xa_nn_matXvec_16x16_16_tanh", np.int16, 32),
        ("xa_nn_matXvec_8x8_8_tanh", np.int8, 64),
        ("xa_nn_matXvec_8x8_8_tanh", np.int8, -1),
    ],
)
def test_bias_precision(name, wide, bias_precision):
    size = {np.int64: 2**40, np.int32: 2**30}.get(wide, 100)
    bias = np.array([size, -size, 3, size >> 16, -7], wide)
    case = fused_case(np.random.default_rng(8), parts(name), bias, bias_precision)
    code, whole = call(name, case)
    assert code == 0
    check_out(case, whole)
    other = np.int16 if wide is np.int8 else np.int8
    with pytest.raises(TypeError, match="p_bias is int"):
        call(name, case, p_bias=bias.astype(other))


@pytest.mark.parametrize("name", NAMES)
def test_by_keywords_and_again(name):
    case = case_of(name)
    arguments, whole = arguments_of(name, case)
    named = dict(zip(EXPECTED[name][1], arguments, strict=True))
    assert capi.strict(name)(**named) == 0
    check_out(case, whole)


def test_memory_of_any_shape():
    case = case_of("xa_nn_matXvec_16x16_16")
    mat1 = np.zeros((5, 9), np.int16)
    mat1.reshape(-1)[: case.values["p_mat1"].size] = case.values["p_mat1"]
    code, whole = call("xa_nn_matXvec_16x16_16", case, p_mat1=mat1)
    assert code == 0
    check_out(case, whole)


def test_calls_of_other_numbers_do_not_compile_again():
    x, out = np.arange(-3, 4, dtype=np.int16), np.zeros(7, np.int16)
    assert capi.xa_nn_vec_relu_16_16(out, x, 9, 7) == 0
    compiled = _plan._compiled("xa_nn_vec_relu_16_16", ())
    count = compiled._cache_size()  # type: ignore[attr-defined]
    for threshold in range(4):
        assert capi.xa_nn_vec_relu_16_16(out, x, threshold, 7) == 0
        np.testing.assert_array_equal(out, np.clip(x, 0, threshold))
    assert compiled._cache_size() == count  # type: ignore[attr-defined]


def test_interpolation_writes_its_first_input():
    name = "xa_nn_vec_interpolation_q15"
    case = case_of(name)
    inp1 = case.values["p_inp1"].copy()
    code, whole = call(name, case, p_inp1=inp1)
    assert code == 0
    np.testing.assert_array_equal(inp1[:12], case.out)
    np.testing.assert_array_equal(inp1[12:], case.values["p_inp1"][12:])
    check_out(case, whole)


def test_output_over_an_input():
    x = np.arange(-6, 6, dtype=np.float32) / np.float32(4)
    expected = np.floor(x)
    assert capi.xa_nn_elm_floor_f32_f32(x, x, 12) == 0
    np.testing.assert_array_equal(x, expected)


# One product, or two; no bias.

SINGLE = [
    "xa_nn_matXvec_16x16_16",
    "xa_nn_matXvec_8x8_8",
    "xa_nn_matXvec_f32xf32_f32",
    "xa_nn_matXvec_sym8sxasym8s_asym8s",
    "xa_nn_matXvec_asym8uxasym8u_asym8u",
    "xa_nn_matXvec_16x16_16_tanh",
]


def single(name, **changed):
    """A call with a second product of zeros' worth: what one product gives."""
    case = case_of(name)
    code, whole = call(name, case, **changed)
    assert code == 0
    return (whole if isinstance(whole, np.ndarray) else whole[0]).copy()


@pytest.mark.parametrize("name", SINGLE)
def test_a_second_product_takes_both_pointers(name):
    case = case_of(name)
    one = single(name, p_mat2=None, p_vec2=None)
    both = single(name)
    assert (one != both).any()
    np.testing.assert_array_equal(single(name, p_mat2=None), one)
    if "asym8u" in name:
        assert call(name, case, p_vec2=None)[0] == -1
    else:
        np.testing.assert_array_equal(single(name, p_vec2=None), one)
    # Of what is not there nothing else matters.
    odd = {"cols2": -4, "row_stride2": -5}
    if parts(name).is_quantized:
        odd |= {"vec2_zero_bias": 999}
        odd |= {"mat2_zero_bias": 999} if "asym8u" in name else {}
    np.testing.assert_array_equal(single(name, p_mat2=None, p_vec2=None, **odd), one)
    np.testing.assert_array_equal(single(name, p_mat2=None, p_vec2="nothing", **odd), one)


@pytest.mark.parametrize(
    "name",
    [
        "xa_nn_matXvec_f32xf32_f32",
        "xa_nn_matXvec_sym8sxasym8s_asym8s",
        "xa_nn_matXvec_asym8uxasym8u_asym8u",
        "xa_nn_matmul_asym8uxasym8u_asym8u",
        "xa_nn_matmul_per_chan_sym8sxasym8s_asym8s",
        "xa_nn_matXvec_out_stride_sym8sxasym8s_16",
        "xa_nn_dot_prod_16x16_asym8s",
    ],
)
def test_no_bias_is_one_of_zeros(name):
    pointer = "bias_ptr" if "dot_prod" in name else "p_bias"
    bias = case_of(name).values[pointer]
    without = single(name, **{pointer: None})
    np.testing.assert_array_equal(without, single(name, **{pointer: np.zeros_like(bias)}))
    assert (without != single(name)).any()


# What gives -1: pointers.

# Bytes, 0 for the size of an element; None for pointers that are not checked.
BY_ELEMENT, NOT_AT_ALL = 0, None


def alignment_of(name, pointer):
    """The alignment of a pointer, by the rules of HIFI 5 for each family."""
    found = parts(name)
    if pointer == "p_scratch":
        return {"fused": 4}.get(found.family, 8 if "conv" in name else 1)
    if pointer in ("p_out_multiplier", "p_out_shift"):
        return 4
    if found.precision in ("32_32", "32_16", "32_8"):
        return NOT_AT_ALL
    if found.family in ("conv2d_std", "conv1d_std"):
        return BY_ELEMENT if found.is_quantized else 8
    if found.family == "conv2d_pointwise":
        return BY_ELEMENT if found.is_quantized or found.precision == "8x8" else 8
    if found.family == "fully_connected":
        return BY_ELEMENT if found.is_quantized or found.precision == "f32" else 8
    return 8 if found.family in ("matXvec_batch", "vec_interpolation") else BY_ELEMENT


def may_be_null(name, pointer):
    if pointer in ("p_mat2", "p_vec2"):
        return "asym8u" not in name or pointer == "p_mat2" if "matXvec" in name else False
    if pointer == "bias_ptr":
        return True
    return pointer == "p_bias" and (
        ("matXvec" in name or "matmul" in name)
        and ("sym8" in name or name.endswith("matXvec_f32xf32_f32"))
    )


def off(array, by):
    """A copy of an array at an address that is `by` bytes from a multiple of 64."""
    room = np.empty(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + by
    found = room[start : start + array.nbytes].view(array.dtype)
    found[...] = array.reshape(-1)
    return found


def pointers_of(name):
    return [x for x in EXPECTED[name][1] if x.startswith("p_") or x == "bias_ptr"]


def checked_pointers_of(name):
    return [x for x in pointers_of(name) if alignment_of(name, x) is not NOT_AT_ALL]


# What functions return for what they reject.
INVALID = dict.fromkeys(NAMES, -1)
OF_32_32 = ["sigmoid", "tanh", "softmax", "relu1", "relu6", "relu_std", "relu"]
INVALID |= {f"xa_nn_vec_{kind}_32_32": 0 for kind in OF_32_32}
INVALID |= {f"xa_nn_vec_{kind}_{n}_{n}": 0 for kind in ("relu", "relu_std") for n in (16, 8)}


@pytest.mark.parametrize("name", NAMES)
def test_null(name):
    for pointer in checked_pointers_of(name):
        if may_be_null(name, pointer):
            continue
        code, whole = call(name, case_of(name), **{pointer: None})
        assert (pointer, code) == (pointer, INVALID[name])
        check_untouched(whole)


@pytest.mark.parametrize("name", NAMES)
def test_alignment(name):
    case = case_of(name)
    for pointer in checked_pointers_of(name):
        arguments, whole = arguments_of(name, case)
        position = EXPECTED[name][1].index(pointer)
        given = arguments[position]
        sample = given[-1] if isinstance(given, list) else given
        alignment = alignment_of(name, pointer) or sample.itemsize
        for by in sorted({alignment // 2, alignment, 64} - {0}):
            moved = off(sample, by)
            arguments[position] = [*given[:-1], moved] if isinstance(given, list) else moved
            code = getattr(capi, name)(*arguments)
            assert (pointer, code) == (pointer, 0 if by >= alignment else INVALID[name])
            if by < alignment:
                check_untouched(whole)


@pytest.mark.parametrize("name", [name for name in NAMES if "batch" in name])
def test_null_among_pointers(name):
    case = case_of(name)
    p_vec1 = case.values["p_vec1"]
    assert call(name, case, p_vec1=[*p_vec1[:2], None])[0] == -1
    code, whole = call(name, case, p_out=[None] * 3)
    assert code == -1
    check_untouched(whole)
    # Pointers behind the last are not looked at.
    assert call(name, case, p_vec1=[*p_vec1, None])[0] == 0
    with pytest.raises(ValueError, match="p_vec1 has 2 pointers, expected 3"):
        call(name, case, p_vec1=p_vec1[:2])
    with pytest.raises(TypeError, match="p_vec1 is ndarray, expected a list of pointers"):
        call(name, case, p_vec1=np.stack([x[:8] for x in p_vec1]))


# What gives -1: numbers.

SHIFT = (-32, 32)
ASYM8U, ASYM8S = (-256, 1), (-128, 129)
BYTE = {"asym8u": (-1, 256), "asym8s": (-129, 128)}
SIZES = (0, -1)


def outside(name):
    """Values that the library rejects, for each argument."""
    found = parts(name)
    precision, arguments = found.precision, EXPECTED[name][1]
    limits: dict[str, tuple[int, ...]] = dict.fromkeys(("acc_shift", "bias_shift"), SHIFT)
    signed = "asym8s" in precision
    zero_bias = ASYM8S if signed else ASYM8U
    limits |= dict.fromkeys(("vec1_zero_bias", "vec2_zero_bias", "input_zero_bias"), zero_bias)
    limits |= dict.fromkeys(("inp1_zero_bias", "inp2_zero_bias"), ASYM8S)
    weights = ("mat1_zero_bias", "mat2_zero_bias", "weight_zero_bias", "kernel_zero_bias")
    limits |= dict.fromkeys(weights, ASYM8U)
    limits |= {"inp_zero_bias": (-32769, 32768)}
    limits |= dict.fromkeys([f"{x}_multiplier" for x in ("out", "inp1", "inp2")], (0, -1))
    limits |= {"input_multiplier": (-1,), "zero_point": (-1, 256), "input_range_radius": (-1, 256)}
    limits |= dict.fromkeys([f"{x}_shift" for x in ("out", "inp1", "inp2", "input_left")], SHIFT)
    limits |= {"left_shift": (-1, 32), "out_zero_bias": BYTE["asym8s" if signed else "asym8u"]}
    limits |= {"out_activation_min": (-129, 80), "out_activation_max": (-90, 128)}
    sizes = "rows cols1 cols2 cols vec_count num_vecs vec_length num_elm num_elements"
    sizes += " input_height input_width input_channels kernel_height kernel_width out_channels"
    sizes += " channels_multiplier out_height out_width weight_depth out_depth x_stride y_stride"
    limits |= dict.fromkeys(sizes.split(), SIZES)
    limits |= {"row_stride1": (5,), "row_stride2": (2,), "row_stride": (5,)}
    limits |= dict.fromkeys(("vec_offset", "out_offset"), (0,))
    limits |= dict.fromkeys(("x_padding", "y_padding"), (-1,))
    limits |= {"inp_data_format": (-1, 2), "out_data_format": (-1, 2), "num_elements": (0, -4, 6)}
    limits |= {"activation_max": (1,), "activation_min": (51,)}
    if found.family == "matmul":
        limits |= {"out_stride": (0,)}
    else:
        limits |= {"out_stride": ()}
    if found.family == "matXvec_batch":
        is_float = precision.startswith("f32")
        limits |= {"row_stride1": (4, 11 if is_float else 14), "cols1": (0, 5 if is_float else 6)}
    if found.family == "fully_connected" and not found.is_quantized:
        limits |= {"weight_depth": (0, -4, 7)}
    if found.family in ("conv2d_std", "conv1d_std", "conv2d_depthwise", "avgpool"):
        limits |= {"kernel_height": (0, -1, 6), "kernel_width": (0, -1, 7)}
    is_fixed = precision in ("16x16", "8x16", "8x8")
    if (found.family == "conv2d_std" and is_fixed) or found.family == "conv2d_depthwise":
        limits |= {"x_stride": (0, -1, 3)}
    if found.family in ("conv1d_std", "conv2d_depthwise"):
        limits |= {"y_stride": (0, -1, 4)}
    if found.family == "conv2d_depthwise":
        limits |= {"out_data_format": (-1, 1, 2)}
    if found.family == "conv2d_pointwise" and not (precision == "8x8" or found.is_quantized):
        limits |= {"out_data_format": (-1, 0, 2), "input_channels": (0, 3)}
    if found.family in ("avgpool", "maxpool"):
        limits |= {"out_data_format": (-1, 0, 2), "inp_data_format": (-1, 0, 2)}
    return [(arg, value) for arg in arguments for value in limits.get(arg, ())]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_outside_their_range(name):
    case = case_of(name)
    for argument, value in outside(name):
        code, whole = call(name, case, **{argument: value})
        assert (argument, value, code) == (argument, value, INVALID[name])
        check_untouched(whole)


def test_every_number_has_a_range():
    free = {"diffmin", "bias_precision", "threshold", "out_stride"}
    for name in NAMES:
        tested = {argument for argument, _ in outside(name)} | free
        numbers = {a for a in EXPECTED[name][1] if not a.startswith("p_") and a != "bias_ptr"}
        assert numbers <= tested


# What the library does not check, and what is no -1 but an error of Python.


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_32_32")])
def test_functions_of_32_32_return_0(name):
    function, x = getattr(capi, name), np.arange(-4, 4, dtype=np.int32) << 24
    more = (9,) if name == "xa_nn_vec_relu_32_32" else ()
    whole, p_out = out_memory(x, None)
    for length in (0, -1, -(2**31)):
        assert function(None, None, *more, length) == 0
        assert function(p_out, x, *more, length) == 0
    check_untouched(whole)
    with pytest.raises(TypeError, match="p_vec is NoneType, expected a NumPy array of int32"):
        function(p_out, None, *more, 8)
    with pytest.raises(TypeError, match="p_out is NoneType, expected a NumPy array of int32"):
        function(None, x, *more, 8)
    expected = np.asarray(pure(name)((x,), {"threshold": 9} if more else {}))
    assert function(p_out, off(x, 2), *more, 8) == 0
    check_out(Case({}, expected), whole)


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
@pytest.mark.parametrize("bits", [16, 8])
def test_sigmoid_and_tanh_look_at_the_length_alone(kind, bits):
    function = getattr(capi, f"xa_nn_vec_{kind}_32_{bits}")
    x, out = np.zeros(4, np.int32), np.zeros(4, f"int{bits}")
    assert function(None, None, 0) == -1
    assert function(out, x, -1) == -1
    assert function(out, off(x, 1), 4) == 0
    with pytest.raises(TypeError, match="p_vec is NoneType"):
        function(out, None, 4)
    with pytest.raises(TypeError, match="p_out is NoneType"):
        function(None, x, 4)


@pytest.mark.parametrize("name", ["xa_nn_maxpool_8", "xa_nn_maxpool_f32"])
def test_windows_of_maxpool_may_be_larger_than_the_image(name):
    assert call(name, case_of(name), kernel_height=6, kernel_width=7)[0] == 0


def test_windows_of_integers_have_at_most_256_rows():
    def code(name, dtype, length):
        inp, out = np.ones(257, dtype), np.ones(1, dtype)
        window = {**WINDOW, "input_height": 257, "input_width": 1, "input_channels": 1}
        window |= {"kernel_height": length, "kernel_width": 1, "out_height": 1, "out_width": 1}
        values = {**window, "p_out": out, "p_inp": inp, "p_scratch": SCRATCH}
        values |= {"inp_data_format": 0, "out_data_format": 0}
        return getattr(capi, name)(*(values[argument] for argument in EXPECTED[name][1]))

    assert code("xa_nn_avgpool_16", np.int16, 257) == -1
    assert code("xa_nn_avgpool_16", np.int16, 256) == 0
    assert code("xa_nn_avgpool_f32", np.float32, 257) == 0


@pytest.mark.parametrize("precision", ["f32", "asym8uxasym8u", "per_chan_sym8sxasym8s"])
def test_strides_wider_than_kernels(precision):
    name = f"xa_nn_conv2d_std_{precision}"
    assert call(name, case_of(name), x_stride=3)[0] == 0


@pytest.mark.parametrize("name", ["xa_nn_conv2d_std_8x8", "xa_nn_matXvec_16x16_16_tanh"])
def test_scratch_memory_is_left_alone(name):
    scratch = np.full(3, SENTINEL, np.int64)
    assert call(name, case_of(name), p_scratch=scratch)[0] == 0
    assert (scratch == SENTINEL).all()


def test_softmax_has_no_size_of_scratch_memory():
    name = "xa_nn_vec_softmax_asym8s_16"
    assert call(name, case_of(name), p_scratch=off(np.zeros(1, np.int8), 1))[0] == 0


def test_channels_whose_weights_are_all_0():
    name = "xa_nn_conv2d_std_per_chan_sym8sxasym8s"
    multipliers = np.array([0, 2**30, 0], np.int32)
    assert call(name, case_of(name), p_out_multiplier=multipliers)[0] == 0
    multipliers[1] = -1
    assert call(name, case_of(name), p_out_multiplier=multipliers)[0] == -1
    for shift in (-32, 32):
        assert call(name, case_of(name), p_out_shift=np.array([0, 0, shift], np.int32))[0] == -1


@pytest.mark.parametrize("name", NAMES)
def test_memory_of_another_kind(name):
    case = case_of(name)
    for pointer in set(pointers_of(name)) - {"p_scratch"}:
        arguments, whole = arguments_of(name, case)
        position = EXPECTED[name][1].index(pointer)
        given = arguments[position]
        sample = given[-1] if isinstance(given, list) else given
        other = np.zeros(sample.size, np.uint8 if sample.dtype == np.int8 else np.int8)
        gaps = np.zeros(2 * sample.size, sample.dtype)[::2]
        wrong = [
            (other, TypeError, f"{pointer} is u?int8, expected a NumPy array of {sample.dtype}"),
            (sample[:0].copy(), ValueError, rf"{pointer} of shape \[0\] does not hold \d+ "),
            (gaps, ValueError, f"{pointer} of shape"),
        ]
        for memory, error, message in wrong:
            arguments[position] = [*given[:-1], memory] if isinstance(given, list) else memory
            with pytest.raises(error, match=message):
                getattr(capi, name)(*arguments)
        check_untouched(whole)


def enough(name, pointer, count):
    """Asserts that a call needs `count` elements behind a pointer, and no more."""
    case = case_of(name)
    found = np.zeros(count, case.values[pointer].dtype)
    assert call(name, case, **{pointer: found})[0] == 0
    with pytest.raises(ValueError, match=f"{pointer} of shape .* does not hold {count} elements"):
        call(name, case, **{pointer: found[:-1].copy()})


@pytest.mark.parametrize(
    ("name", "pointer", "count"),
    [
        ("xa_nn_matXvec_16x16_16", "p_mat1", 4 * 9 + 6),
        ("xa_nn_matXvec_16x16_16", "p_mat2", 4 * 4 + 3),
        ("xa_nn_matmul_8x8_8", "p_mat2", 2 * 8 + 6),
        ("xa_nn_conv2d_std_16x16", "p_ker", 3 * 3 * 2 * 8),
        ("xa_nn_conv2d_std_8x16", "p_ker", 3 * 3 * 2 * 8),
        ("xa_nn_conv2d_std_8x8", "p_ker", 3 * 3 * 2 * 5),
        ("xa_nn_conv2d_std_f32", "p_ker", 3 * 3 * 2 * 6),
        ("xa_nn_conv2d_std_per_chan_sym8sxasym8s", "p_ker", 3 * 3 * 2 * 5),
        ("xa_nn_conv1d_std_8x8", "p_ker", 3 * 3 * 12),
        ("xa_nn_conv1d_std_f32", "p_ker", 3 * 3 * 10),
        ("xa_nn_conv2d_depthwise_16x16", "p_ker", 3 * 2 * 6),
        ("xa_nn_conv2d_depthwise_16x16", "p_inp", 5 * 6 * 3),
        ("xa_nn_conv2d_pointwise_8x16", "p_ker", 3 * 4),
        ("xa_nn_avgpool_8", "p_inp", 5 * 6 * 3),
    ],
)
def test_sizes_of_memory(name, pointer, count):
    enough(name, pointer, count)


@pytest.mark.parametrize("argument", ["vec_offset", "out_offset", "out_stride"])
def test_strides_that_lead_before_memory(argument):
    name = "xa_nn_matmul_8x8_8"
    pointer = "p_mat2" if argument == "vec_offset" else "p_out"
    with pytest.raises(ValueError, match=f"{pointer}: strides .* lead to before its memory"):
        call(name, case_of(name), **{argument: -1})


def test_read_only_memory():
    name = "xa_nn_vec_interpolation_q15"
    inp1 = np.zeros(12, np.int16)
    inp1.flags.writeable = False
    case = case_of(name)
    arguments, whole = arguments_of(name, case, p_inp1=inp1)
    with pytest.raises(ValueError, match="p_inp1 is read-only memory"):
        capi.xa_nn_vec_interpolation_q15(*arguments)
    check_untouched(whole)
    # What is only read may be.
    ifact = case.values["p_ifact"].copy()
    ifact.flags.writeable = False
    assert call(name, case, p_ifact=ifact)[0] == 0


def test_codes_before_errors():
    """What the library rejects it rejects before it looks at memory."""
    name = "xa_nn_conv2d_std_per_chan_sym8sxasym8s"
    nothing = np.zeros(0, np.int8)
    few = {"p_inp": nothing, "p_ker": nothing}
    assert call(name, case_of(name), **few, input_height=2)[0] == -1
    assert call(name, case_of(name), **few, input_zero_bias=129)[0] == -1


def test_numbers_of_other_types():
    name = "xa_nn_matXvec_16x16_16"
    case = case_of(name)
    assert call(name, case, rows=np.int64(5), acc_shift=np.int8(-9))[0] == 0
    for value, found in ((1.5, "1.5"), ("1", "'1'"), (None, "None"), (True, "True")):
        with pytest.raises(TypeError, match=f"{name}: acc_shift is {found}, expected an integer"):
            call(name, case, acc_shift=value)
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(ValueError, match=f"bias_shift is {value}, expected a WORD32"):
            call(name, case, bias_shift=value)
    assert call(name, case, bias_shift=2**31 - 1)[0] == -1


@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_other_types(name):
    """Each is an error that names the function or the array, and the argument; nothing is run."""
    arguments, _ = arguments_of(name, case_of(name))
    for at, argument in enumerate(EXPECTED[name][1]):
        pointer = argument.startswith("p_") or argument.endswith("_ptr")
        limits = ("threshold", "activation_min", "activation_max")
        takes_floats = "f32" in name and argument in limits
        for wrong in (["text"], "text", 1.5 if pointer else 1j, *([] if takes_floats else [1.5])):
            values = [*arguments[:at], wrong, *arguments[at + 1 :]]
            with pytest.raises((TypeError, ValueError), match=rf"{argument} .*, expected "):
                getattr(capi, name)(*values)


def test_functions_survive_pickling():
    for name in NAMES:
        assert pickle.loads(pickle.dumps(getattr(capi, name))) is getattr(capi, name)


def test_numbers_of_float_functions():
    x, out = np.array([-1, 0.25, 3], np.float32), np.zeros(3, np.float32)
    assert capi.xa_nn_vec_relu_f32_f32(out, x, np.float32(0.5), 3) == 0
    np.testing.assert_array_equal(out, [0, 0.25, 0.5])
    assert capi.xa_nn_vec_activation_min_max_f32_f32(out, x, -0.5, 1, 3) == 0
    np.testing.assert_array_equal(out, [-0.5, 0.25, 1])
    for value in ("0.5", None, 1j):
        with pytest.raises(TypeError, match=f"threshold is {re.escape(repr(value))}, expected a n"):
            capi.xa_nn_vec_relu_f32_f32(out, x, value, 3)
    with pytest.raises(TypeError, match=r"threshold is 0\.5, expected an integer"):
        capi.xa_nn_vec_relu_32_32(None, None, 0.5, 3)


@pytest.mark.parametrize(("bits", "threshold"), [(16, 2**15), (16, -(2**15) - 1), (8, 128)])
def test_thresholds_of_the_type_of_the_vector(bits, threshold):
    function = getattr(capi, f"xa_nn_vec_relu_{bits}_{bits}")
    x = np.zeros(4, f"int{bits}")
    with pytest.raises(ValueError, match=f"threshold is {threshold}, which is not of int{bits}"):
        function(x, x, threshold, 4)
    for value in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max):
        assert function(x, x, int(value), 4) == 0


def test_wrong_arguments():
    with pytest.raises(TypeError, match="missing a required argument: 'vec_length'"):
        capi.xa_nn_vec_tanh_32_16(None, None)
    with pytest.raises(TypeError, match="too many positional arguments"):
        capi.xa_nn_vec_tanh_32_16(None, None, 1, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'length'"):
        capi.xa_nn_vec_tanh_32_16(None, None, 1, length=2)


# Why, and sizes.


def test_strict_says_why():
    function = capi.strict("xa_nn_vec_relu_16_16")
    x = np.zeros(4, np.int16)
    assert function(x, x, 9, 4) == 0
    with pytest.raises(NNLibParamError, match="p_vec is NULL, expected a pointer"):
        function(x, None, 9, 4)
    with pytest.raises(NNLibParamError, match="p_out is 1 bytes off, expected aligned to 2 bytes"):
        function(off(x, 1), x, 9, 4)
    with pytest.raises(NNLibParamError, match=r"shape of p_vec is \(0,\), expected at least 1"):
        function(x, x, 9, 0)
    name = "xa_nn_matXvec_16x16_16"
    arguments, _ = arguments_of(name, case_of(name), acc_shift=32)
    with pytest.raises(NNLibParamError, match=r"matXvec 16x16_16: acc_shift is \[32\]"):
        capi.strict(name)(*arguments)


SIZES_OF = {
    "xa_nn_conv2d_std_getsize": (9, 8, 3, 4, 2, 1, 5, 16),
    "xa_nn_conv2d_depthwise_getsize": (9, 8, 4, 3, 4, 2, 1, 2, 1, 1, 5, 6, 16, 0),
    "xa_nn_avgpool_getsize": (8, 16, 16, 9, 8, 3, 4, 1, 2, 1, 1, 5, 6, 1, 1),
    "xa_nn_maxpool_getsize": (8, 16, 16, 9, 8, 3, 4, 1, 2, 1, 1, 5, 6, 1, 1),
    "xa_nn_conv1d_std_getsize": (3, 5, 3, 16),
}


@pytest.mark.parametrize("name", SIZES_OF)
def test_sizes(name):
    arguments, function = SIZES_OF[name], getattr(capi, name)
    assert function(*arguments) == getattr(kernels, name)(*arguments) > 0
    named = dict(zip(EXPECTED[name][1], arguments, strict=True))
    assert function(**named) == function(*arguments)
    for argument in EXPECTED[name][1]:
        if argument.endswith(("precision", "format")):
            assert function(**{**named, argument: 99}) == -1
    with pytest.raises(NNLibParamError, match="precision is 99"):
        capi.strict(name)(**{**named, next(a for a in named if a.endswith("precision")): 99})


def test_size_of_conv1d():
    assert capi.xa_nn_conv1d_std_getsize(3, 5, 3, 16) == 19 + 3 * 16 * 2 + 16
    assert capi.xa_nn_conv1d_std_getsize(2, 5, 1, -1) == 19 + 2 * 6 * 4 + 16
