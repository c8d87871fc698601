"""Library functions: a function here is named as its family in `tosajax.hifi.kernels`.

Each takes a namespace with the operands of the kernel and its keywords.
"""

from __future__ import annotations

from types import SimpleNamespace as Arguments

import numpy as np

from tosajax.hifi.bench.definitions import activations, arithmetic, images
from tosajax.hifi.bench.definitions.arithmetic import (
    dot,
    fixed,
    quantized,
    wide,
)
from tosajax.hifi.kernels._precision import PRECISIONS
from tosajax.hifi.kernels.activations import FIXED

# Fraction bits of results of Q6.25, and the type whose range they have.
_RESULTS = {"32_32": (15, np.int16), "32_16": (15, np.int16), "32_8": (7, np.int8)}
_BYTES = {"asym8u_asym8u": np.uint8, "asym8s_asym8s": np.int8, "asym8s_16": np.int16}


# Products.


def matXvec(a: Arguments) -> np.ndarray:
    return _finish(a, _products(a))


def matXvec_fused(a: Arguments) -> np.ndarray:
    types = PRECISIONS[a.precision]
    if types.is_float:
        return activations.real(a.function, matXvec(a))
    total = fixed(_products(a), a.bias, a.acc_shift, a.bias_shift, np.int32)
    return _curve(a.function, total, f"32_{np.iinfo(types.out).bits}")


def matXvec_batch(a: Arguments) -> np.ndarray:
    return _finish(a, dot(a.mat1, a.vec1))


def fully_connected(a: Arguments) -> np.ndarray:
    return _finish(a, dot(a.weight, a.inp, *_zero_biases(a)))


def _products(a: Arguments) -> np.ndarray:
    """The sums of one product, or of two."""
    sums = dot(a.mat1, a.vec1, *_zero_biases(a))
    if not hasattr(a, "mat2"):
        return sums
    quant = getattr(a, "quant", None)
    second = (0, 0) if quant is None else (quant.weight2_zero_bias, quant.input2_zero_bias)
    return sums + dot(a.mat2, a.vec2, *second)


def _zero_biases(a: Arguments) -> tuple[int, int]:
    """Those of weights and inputs."""
    quant = getattr(a, "quant", None)
    return (0, 0) if quant is None else (quant.weight_zero_bias, quant.input_zero_bias)


def _finish(a: Arguments, sums: np.ndarray) -> np.ndarray:
    """Sums [..., N] as an output."""
    types = PRECISIONS[a.precision]
    if types.is_quantized:
        return quantized(sums, a.bias, a.quant, types.out)
    if types.is_float:
        return sums + wide(a.bias)
    return fixed(sums, a.bias, a.acc_shift, a.bias_shift, types.out)


# Images.


def conv2d_std(a: Arguments) -> np.ndarray:
    weight, inp = _zero_biases(a)
    sums = images.conv2d(a.inp, a.ker, a.strides, a.padding, a.out_size, inp, weight)
    return _to(a.out_format, _finish(a, sums))


def conv1d_std(a: Arguments) -> np.ndarray:
    image, kernel = (x.reshape(*x.shape[:-2], 1, -1) for x in (a.inp, a.ker))
    window = (a.stride, 1), (a.padding, 0), (a.out_height, 1)
    return _to(a.out_format, _finish(a, images.conv2d(image, kernel, *window)[:, 0]))


def conv2d_depthwise(a: Arguments) -> np.ndarray:
    weight, inp = _zero_biases(a)
    image, kernel = _from(a.inp_format, a.inp), _from(a.inp_format, a.ker)
    window = a.strides, a.padding, a.out_size
    return _finish(a, images.depthwise(image, kernel, *window, inp, weight))


def conv2d_pointwise(a: Arguments) -> np.ndarray:
    return _to(a.out_format, _finish(a, dot(a.ker, a.inp, *_zero_biases(a))))


def avgpool(a: Arguments) -> np.ndarray:
    window = a.kernel, a.strides, a.padding, a.out_size
    return _to(a.data_format, images.avgpool(_from(a.data_format, a.inp), *window))


def maxpool(a: Arguments) -> np.ndarray:
    window = a.kernel, a.strides, a.padding, a.out_size
    return _to(a.data_format, images.maxpool(_from(a.data_format, a.inp), *window))


def _from(data_format: str, image: np.ndarray) -> np.ndarray:
    """An image with its channels last."""
    return image if data_format == "DWH" else np.moveaxis(image, 0, -1)


def _to(data_format: str, image: np.ndarray) -> np.ndarray:
    """An image of which the channels are last."""
    return image if data_format == "DWH" else np.moveaxis(image, -1, 0)


# Activations.


def sigmoid(a: Arguments) -> np.ndarray:
    if hasattr(a, "quant"):
        return activations.sigmoid_asym8u(a.x, *a.quant)
    return _curve("sigmoid", a.x, a.precision)


def tanh(a: Arguments) -> np.ndarray:
    return _curve("tanh", a.x, a.precision)


def softmax(a: Arguments) -> np.ndarray:
    if hasattr(a, "quant"):
        diffmin, shift, multiplier = a.quant
        dtype = _BYTES[a.precision]
        return activations.softmax_quantized(a.x, diffmin, shift, multiplier, dtype)
    if a.precision == "f32_f32":
        return activations.real("softmax", wide(a.x))
    return activations.fixed_softmax(a.x, FIXED)


def relu(a: Arguments) -> np.ndarray:
    is_fixed = a.precision == "32_32"
    value = wide(a.x) >> 10 if is_fixed else wide(a.x)
    if a.kind in ("relu1", "relu6"):
        value = np.minimum(value, int(a.kind[-1]) << (15 if is_fixed else 0))
    elif a.kind == "relu":
        value = np.minimum(value, a.threshold)
    return np.maximum(value, 0)


def activation_min_max(a: Arguments) -> np.ndarray:
    return np.clip(wide(a.x), a.activation_min, a.activation_max)


def _curve(name: str, x: np.ndarray, precision: str) -> np.ndarray:
    """sigmoid or tanh of floats, or of Q6.25."""
    if precision == "f32_f32":
        return activations.real(name, wide(x))
    return getattr(activations, f"fixed_{name}")(x, FIXED, *_RESULTS[precision])


# Elementwise functions and dot products.


def dot_prod(a: Arguments) -> np.ndarray:
    sums = (wide(a.inp1) * wide(a.inp2)).sum(1)
    if a.precision == "f32xf32_f32":
        return sums
    return quantized(arithmetic.add_saturating(sums, getattr(a, "bias", 0)), 0, a.quant, np.int8)


def elm_floor(a: Arguments) -> np.ndarray:
    return np.floor(a.inp)


def elm_add(a: Arguments) -> np.ndarray:
    if a.precision == "f32xf32_f32":
        return wide(a.inp1) + wide(a.inp2)
    return arithmetic.add(a.inp1, a.inp2, vars(a))


def elm_mul(a: Arguments) -> np.ndarray:
    if a.precision == "f32xf32_f32":
        return wide(a.inp1) * wide(a.inp2)
    return arithmetic.multiply(a.inp1, a.inp2, vars(a))
