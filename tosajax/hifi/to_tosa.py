"""TOSA graphs of the kernels whose integers TOSA's operators compute exactly.

A function here has the name and the parameters of one in `tosajax.hifi.kernels`. It adds nodes to
a Builder: what a kernel reads when it runs is a Tensor, weights, biases and parameters are values,
which become constants. `to_graph` makes the graph of one kernel; several make a network:

b = Builder()
x = b.input("x", DType.INT8, (64,))
y = fully_connected(b, weight, x, bias, quant=quant)
graph = b.graph([activation_min_max(b, y, 0, 90, precision="8_8")])

Scales become RESCALE, with DOUBLE_ROUND where a result is shifted to the right. RESCALE takes no
shift to the left beyond 29, and leaves open what becomes of values outside
[-2**(30 - shift), 2**(30 - shift)), which the library shifts with saturation; parameters made from
the ranges of tensors, as TFLite's are, meet none.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.hifi import kernels
from tosajax.hifi.kernels import Quant
from tosajax.hifi.kernels._geometry import Geometry, geometry_of
from tosajax.report import UnsupportedError
from tosajax.spec import RoundingMode

# The least shift of RESCALE, whose multipliers are in Q31 as the library's.
_LEAST_SHIFT = 2
_HALF_Q31 = 1 << 30
# The bits that Q6.25 has beyond Q16.15.
_RELU_SHIFT = 25 - 15


def to_graph(function: Callable[..., Tensor], *operands: Any, **parameters: Any) -> Graph:
    """The graph of one kernel.

    Args:
      function: one of this module.
      operands: what it takes after the Builder. Each jax.ShapeDtypeStruct becomes an input of the
        graph, named as the argument.
      parameters: further keywords.

    Returns:
      A graph of one output.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    b = Builder()
    names = list(inspect.signature(function).parameters)[1:]
    tensors = [
        b.input(name, DType[x.dtype.name.upper()], x.shape)
        if isinstance(x, jax.ShapeDtypeStruct)
        else x
        for name, x in zip(names, operands, strict=False)
    ]
    return b.graph([function(b, *tensors, **parameters)])


def fully_connected(
    b: Builder, weight: np.ndarray, inp: Tensor, bias: np.ndarray, *, quant: Quant
) -> Tensor:
    """xa_nn_fully_connected_sym8sxasym8s_asym8s, by CONV2D and RESCALE.

    Args:
      b: what nodes are added to.
      weight: int8, [out_depth, weight_depth].
      inp: INT8, [weight_depth].
      bias: int32, [out_depth].
      quant: as for the kernel; out_shift is at most 29.

    Returns:
      INT8, [out_depth].

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    precision = "sym8sxasym8s_asym8s"
    _check(kernels.fully_connected, weight, inp, bias, precision=precision, quant=quant)
    return _reshape(b, _rows(b, weight, inp, bias, quant), (weight.shape[0],))


def matmul(
    b: Builder, mat1: np.ndarray, mat2: Tensor, bias: np.ndarray | None = None, *, quant: Quant
) -> Tensor:
    """xa_nn_matmul_per_chan_sym8sxasym8s_asym8s, by CONV2D and RESCALE.

    Args:
      b: what nodes are added to.
      mat1: int8, [rows, cols].
      mat2: INT8, [cols, vec_count].
      bias: int32, [rows], or none.
      quant: as for the kernel; out_shift is at most 29.

    Returns:
      INT8, [rows, vec_count].

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    precision = "per_chan_sym8sxasym8s_asym8s"
    _check(kernels.matmul, mat1, mat2, bias, precision=precision, quant=quant)
    vectors = b.op("TRANSPOSE", mat2, perms=(1, 0))
    bias = np.zeros(1, np.int32) if bias is None else bias
    columns = _rows(b, mat1, vectors, bias, quant)
    columns = _reshape(b, columns, (_shape(vectors)[0], mat1.shape[0]))
    return b.op("TRANSPOSE", columns, perms=(1, 0))


def conv2d_std(
    b: Builder,
    inp: Tensor,
    ker: np.ndarray,
    bias: np.ndarray,
    *,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    quant: Quant,
    out_format: str = "DWH",
) -> Tensor:
    """xa_nn_conv2d_std_per_chan_sym8sxasym8s, by CONV2D and RESCALE.

    Args:
      b: what nodes are added to.
      inp: INT8, [height, width, channels].
      ker: int8, [out_channels, kernel_height, kernel_width, channels].
      bias: int32, [out_channels].
      strides: y, x; elements.
      padding: top, left; elements.
      out_size: height and width of the output.
      quant: as for the kernel; out_shift is at most 29.
      out_format: of the output.

    Returns:
      INT8, [out_height, out_width, out_channels], or as `out_format` says.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    window = {"strides": strides, "padding": padding, "out_size": out_size}
    common = {"precision": "per_chan_sym8sxasym8s", "quant": quant, "out_format": out_format}
    _check(kernels.conv2d_std, inp, ker, bias, **window, **common)
    geometry = geometry_of(_shape(inp)[:2], ker.shape[1:3], **window)
    out = _convolve(b, "CONV2D", _image(b, inp), ker, bias, quant, geometry)
    return _to_format(b, out, out_format)


def conv2d_depthwise(
    b: Builder,
    inp: Tensor,
    ker: np.ndarray,
    bias: np.ndarray,
    *,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    quant: Quant,
    inp_format: str = "DWH",
) -> Tensor:
    """xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s, by DEPTHWISE_CONV2D and RESCALE.

    Args:
      b: what nodes are added to.
      inp: INT8, [height, width, channels], or [channels, height, width] as WHD.
      ker: int8, [kernel_height, kernel_width, channels * M], or
        [channels * M, kernel_height, kernel_width] as WHD.
      bias: int32, [channels * M].
      strides: y, x; elements, at most kernel_height and kernel_width.
      padding: top, left; elements.
      out_size: height and width of the output.
      quant: as for the kernel; out_shift is at most 29.
      inp_format: of the input and the kernel.

    Returns:
      INT8, [out_height, out_width, channels * M].

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    window = {"strides": strides, "padding": padding, "out_size": out_size}
    common = {"precision": "per_chan_sym8sxasym8s", "quant": quant, "inp_format": inp_format}
    _check(kernels.conv2d_depthwise, inp, ker, bias, **window, **common)
    if inp_format == "WHD":
        inp, ker = b.op("TRANSPOSE", inp, perms=(1, 2, 0)), ker.transpose(1, 2, 0)
    height, width, channels = _shape(inp)
    geometry = geometry_of((height, width), ker.shape[:2], **window)
    weight = ker.reshape(*ker.shape[:2], channels, -1)
    out = _convolve(b, "DEPTHWISE_CONV2D", _image(b, inp), weight, bias, quant, geometry)
    return _to_format(b, out, "DWH")


def conv2d_pointwise(
    b: Builder,
    inp: Tensor,
    ker: np.ndarray,
    bias: np.ndarray,
    *,
    quant: Quant,
    out_format: str = "WHD",
) -> Tensor:
    """xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s, by CONV2D and RESCALE.

    Args:
      b: what nodes are added to.
      inp: INT8, [height, width, channels].
      ker: int8, [out_channels, channels].
      bias: int32, [out_channels].
      quant: as for the kernel; out_shift is at most 29.
      out_format: of the output.

    Returns:
      INT8, [out_channels, height, width], or as `out_format` says.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    common = {"precision": "per_chan_sym8sxasym8s", "quant": quant, "out_format": out_format}
    _check(kernels.conv2d_pointwise, inp, ker, bias, **common)
    geometry = Geometry((1, 1), (0, 0, 0, 0))
    weight = ker[:, None, None]
    out = _convolve(b, "CONV2D", _image(b, inp), weight, bias, quant, geometry)
    return _to_format(b, out, out_format)


def maxpool(
    b: Builder,
    inp: Tensor,
    *,
    precision: str = "8",
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    data_format: str = "DWH",
) -> Tensor:
    """xa_nn_maxpool_8 and _16, by MAX_POOL2D.

    Args:
      b: what nodes are added to.
      inp: INT8 or INT16, as `precision` says; [height, width, channels], or as `data_format` says.
      precision: "8" or "16".
      kernel: height and width of the window.
      strides: y, x; elements.
      padding: top, left; elements. There, and at the bottom and the right, less than `kernel`.
      out_size: height and width of the output.
      data_format: of the image and of the output.

    Returns:
      The type of `inp`, [out_height, out_width, channels], or as `data_format` says.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    _check_has_form("maxpool", precision, ("8", "16"))
    window = {"strides": strides, "padding": padding, "out_size": out_size}
    common = {"precision": precision, "data_format": data_format}
    _check(kernels.maxpool, inp, kernel=kernel, **window, **common)
    # Planes are images of one channel.
    image = _image(b, inp) if data_format == "DWH" else _reshape(b, inp, (*_shape(inp), 1))
    geometry = geometry_of(_shape(image)[1:3], kernel, **window)
    pad = geometry.pad
    if max(pad[:2]) >= kernel[0] or max(pad[2:]) >= kernel[1]:
        raise UnsupportedError(f"maxpool {precision}: a window is outside the image")
    cropped, pad = _crop(b, image, pad)
    out = b.op("MAX_POOL2D", cropped, kernel=tuple(kernel), stride=geometry.strides, pad=pad)
    shape = _shape(out)
    return _reshape(b, out, shape[1:] if data_format == "DWH" else shape[:3])


def elm_quantize(
    b: Builder,
    inp: Tensor,
    *,
    inp_zero_bias: int,
    out_zero_bias: int,
    out_shift: int,
    out_multiplier: int,
) -> Tensor:
    """xa_nn_elm_quantize_asym16s_asym8s, by RESCALE.

    Args:
      b: what nodes are added to.
      inp: INT16, any shape.
      inp_zero_bias: the zero point of the input; CAST and SUB take it off where it is not 0.
      out_zero_bias: the zero point of the output.
      out_shift: bits in [-31, 29], positive to the left.
      out_multiplier: Q31, above 0.

    Returns:
      INT8, the shape of `inp`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    out = {"out_shift": out_shift, "out_multiplier": out_multiplier}
    zero_biases = {"inp_zero_bias": inp_zero_bias, "out_zero_bias": out_zero_bias}
    _check(kernels.elm_quantize, inp, **out, **zero_biases)
    if inp_zero_bias:
        # Inputs of RESCALE that are signed and of 16 bits have no zero point.
        wide = b.op("CAST", inp, dtype=DType.INT32)
        inp = b.op("SUB", wide, _filled(b, inp_zero_bias, wide))
    return _rescale(b, inp, out_multiplier, out_shift, DType.INT8, output_zp=out_zero_bias)


def elm_add(
    b: Builder,
    inp1: Tensor,
    inp2: Tensor,
    *,
    out_zero_bias: int,
    out_shift: int,
    out_multiplier: int,
    out_activation_min: int,
    out_activation_max: int,
    inp1_zero_bias: int,
    inp1_shift: int,
    inp1_multiplier: int,
    inp2_zero_bias: int,
    inp2_shift: int,
    inp2_multiplier: int,
    left_shift: int,
) -> Tensor:
    """xa_nn_elm_add_asym8sxasym8s_asym8s, by RESCALE, ADD and CLAMP.

    Args:
      b: what nodes are added to.
      inp1: INT8, any shape.
      inp2: INT8, the shape of `inp1`.
      out_zero_bias: the zero point of the output.
      out_shift: bits in [-31, 29], positive to the left.
      out_multiplier: Q31, above 0.
      out_activation_min: the least result.
      out_activation_max: the greatest result, above the least.
      inp1_zero_bias: minus a zero point.
      inp1_shift: as out_shift, of the first input.
      inp1_multiplier: as out_multiplier, of the first input.
      inp2_zero_bias: as inp1_zero_bias.
      inp2_shift: as inp1_shift.
      inp2_multiplier: as inp1_multiplier.
      left_shift: of both inputs before they are scaled; bits, at most 21. TFLite's is 20.

    Returns:
      INT8, the shape of `inp1`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    out = {"out_zero_bias": out_zero_bias, "out_shift": out_shift, "out_multiplier": out_multiplier}
    bounds = out_activation_min, out_activation_max
    _check(
        kernels.elm_add,
        inp1,
        inp2,
        **out,
        out_activation_min=out_activation_min,
        out_activation_max=out_activation_max,
        inp1_zero_bias=inp1_zero_bias,
        inp1_shift=inp1_shift,
        inp1_multiplier=inp1_multiplier,
        inp2_zero_bias=inp2_zero_bias,
        inp2_shift=inp2_shift,
        inp2_multiplier=inp2_multiplier,
        left_shift=left_shift,
    )
    if left_shift > 21:
        # Values have 9 bits, which RESCALE takes by shifts of 9 and more.
        raise UnsupportedError(f"elm_add: left_shift is {left_shift}, expected at most 21")
    scaled = []
    for inp, zero_bias, multiplier, shift in (
        (inp1, inp1_zero_bias, inp1_multiplier, inp1_shift),
        (inp2, inp2_zero_bias, inp2_multiplier, inp2_shift),
    ):
        # Apart, as the rounding to come is at a bit of the shifted value.
        shifted = _centred(b, inp, zero_bias, left_shift)
        scaled.append(_rescale(b, shifted, multiplier, shift, DType.INT32))
    return _finish_elementwise(b, b.op("ADD", *scaled), out, bounds)


def elm_mul(
    b: Builder,
    inp1: Tensor,
    inp2: Tensor,
    *,
    out_zero_bias: int,
    out_shift: int,
    out_multiplier: int,
    out_activation_min: int,
    out_activation_max: int,
    inp1_zero_bias: int,
    inp2_zero_bias: int,
) -> Tensor:
    """xa_nn_elm_mul_asym8sxasym8s_asym8s, by RESCALE, MUL and CLAMP.

    Args:
      b: what nodes are added to.
      inp1: INT8, any shape.
      inp2: INT8, the shape of `inp1`.
      out_zero_bias: the zero point of the output.
      out_shift: bits in [-31, 29], positive to the left.
      out_multiplier: Q31, above 0.
      out_activation_min: the least result.
      out_activation_max: the greatest result, above the least.
      inp1_zero_bias: minus a zero point.
      inp2_zero_bias: as inp1_zero_bias.

    Returns:
      INT8, the shape of `inp1`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    out = {"out_zero_bias": out_zero_bias, "out_shift": out_shift, "out_multiplier": out_multiplier}
    bounds = out_activation_min, out_activation_max
    _check(
        kernels.elm_mul,
        inp1,
        inp2,
        **out,
        out_activation_min=out_activation_min,
        out_activation_max=out_activation_max,
        inp1_zero_bias=inp1_zero_bias,
        inp2_zero_bias=inp2_zero_bias,
    )
    first, second = _centred(b, inp1, inp1_zero_bias), _centred(b, inp2, inp2_zero_bias)
    return _finish_elementwise(b, _multiply(b, first, second), out, bounds)


def relu(
    b: Builder,
    x: Tensor,
    threshold: int | None = None,
    *,
    kind: str = "relu",
    precision: str = "32_32",
) -> Tensor:
    """xa_nn_vec_relu_32_32, _16_16 and _8_8, relu1, relu6 and relu_std, by CLAMP.

    TOSA has no CLAMP of INT32; there ARITHMETIC_RIGHT_SHIFT, MINIMUM and MAXIMUM compute it.

    Args:
      b: what nodes are added to.
      x: INT32 in Q6.25, INT16 or INT8, as `precision` says; any shape.
      threshold: of "relu" only, in the format of the result.
      kind: "relu", "relu1", "relu6" or "relu_std".
      precision: "32_32", "16_16" or "8_8", so far as the library has it for `kind`.

    Returns:
      The shape of `x`: INT32 in Q16.15, else the type of `x`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    _check_has_form(kind, precision, ("32_32", "16_16", "8_8"))
    _check(kernels.relu, x, threshold=threshold, kind=kind, precision=precision)
    if kind in ("relu1", "relu6"):
        threshold = int(kind[-1]) << 15
    limit = x.dtype.maximum if threshold is None else max(int(threshold), 0)
    if precision != "32_32":
        return _clamp(b, x, 0, limit)
    shift = _filled(b, _RELU_SHIFT, x)
    shifted = b.op("ARITHMETIC_RIGHT_SHIFT", x, shift, round=False)
    return b.op("MAXIMUM", b.op("MINIMUM", shifted, _filled(b, limit, x)), _filled(b, 0, x))


def activation_min_max(
    b: Builder,
    x: Tensor,
    activation_min: int,
    activation_max: int,
    *,
    precision: str = "16_16",
) -> Tensor:
    """xa_nn_vec_activation_min_max_16_16 and _8_8, by CLAMP.

    Args:
      b: what nodes are added to.
      x: INT16 or INT8, as `precision` says; any shape.
      activation_min: in the range of `x`.
      activation_max: likewise, not below activation_min.
      precision: "16_16" or "8_8".

    Returns:
      The type and shape of `x`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      UnsupportedError: one that TOSA has no form for.
    """
    _check_has_form("activation_min_max", precision, ("16_16", "8_8"))
    bounds = {"activation_min": activation_min, "activation_max": activation_max}
    _check(kernels.activation_min_max, x, **bounds, precision=precision)
    return _clamp(b, x, activation_min, activation_max)


def interpolation_q15(b: Builder, ifact: Tensor, inp1: Tensor, inp2: Tensor) -> Tensor:
    """xa_nn_vec_interpolation_q15, by MUL and ARITHMETIC_RIGHT_SHIFT, which rounds down.

    Args:
      b: what nodes are added to.
      ifact: INT16 in Q15, [num_elements], a multiple of 4.
      inp1: INT16, the shape of `ifact`.
      inp2: INT16, the shape of `ifact`.

    Returns:
      INT16, the shape of `ifact`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
    """
    _check(kernels.interpolation_q15, ifact, inp1, inp2)
    factor, first, second = (b.op("CAST", x, dtype=DType.INT32) for x in (ifact, inp1, inp2))
    one, bits = _filled(b, 0x7FFF, factor), _filled(b, 15, factor)
    rest = b.op("MINIMUM", b.op("SUB", one, factor), one)
    products = (_multiply(b, factor, first), _multiply(b, rest, second))
    terms = (b.op("ARITHMETIC_RIGHT_SHIFT", x, bits, round=False) for x in products)
    return _rescale(b, b.op("ADD", *terms), _HALF_Q31, 1, DType.INT16)


def _check(kernel: Callable[..., Any], /, *operands: Any, **parameters: Any) -> None:
    """Has a kernel check its operands and parameters, without computing anything."""
    abstract = [None if x is None else _abstract(x) for x in operands]
    jax.eval_shape(functools.partial(kernel, **parameters), *abstract)


def _abstract(x: Tensor | np.ndarray) -> jax.ShapeDtypeStruct:
    dtype = x.dtype.storage if isinstance(x, Tensor) else x.dtype
    return jax.ShapeDtypeStruct(x.shape or (), dtype)


def _check_has_form(name: str, precision: str, known: Sequence[str]) -> None:
    if precision not in known:
        wanted = ", ".join(known)
        raise UnsupportedError(f"{name}: precision is {precision!r}, expected one of {wanted}")


def _shape(x: Tensor) -> tuple[int, ...]:
    if x.shape is None:
        raise ValueError(f"{x} has no shape")
    return x.shape


def _rows(b: Builder, matrix: np.ndarray, x: Tensor, bias: np.ndarray, quant: Quant) -> Tensor:
    """Products of a matrix [N, K] and rows [M, K], or a vector; INT8 [1, M, 1, N]."""
    columns = matrix.shape[1]
    image = _reshape(b, x, (1, math.prod(_shape(x)) // columns, 1, columns))
    geometry = Geometry((1, 1), (0, 0, 0, 0))
    return _convolve(b, "CONV2D", image, matrix[:, None, None], bias, quant, geometry)


def _convolve(
    b: Builder,
    op: str,
    image: Tensor,
    weight: np.ndarray,
    bias: np.ndarray,
    quant: Quant,
    geometry: Geometry,
) -> Tensor:
    """A convolution of an image [1, H, W, C] by int8 weights, scaled to INT8."""
    image, pad = _crop(b, image, geometry.pad)
    acc = b.op(
        op,
        image,
        b.const(weight, DType.INT8),
        b.const(bias, DType.INT32),
        b.const([-int(quant.input_zero_bias)], DType.INT8),
        b.const([0], DType.INT8),
        pad=pad,
        stride=geometry.strides,
        dilation=(1, 1),
        acc_type=DType.INT32,
    )
    scale = quant.out_multiplier, quant.out_shift
    return _rescale(b, acc, *scale, DType.INT8, output_zp=quant.out_zero_bias)


def _crop(b: Builder, image: Tensor, pad: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """An image without the rows and the columns that no window reads, and the padding left."""
    top, bottom, left, right = pad
    n, height, width, channels = _shape(image)
    size = n, height + min(bottom, 0), width + min(right, 0), channels
    if min(size) < 1:
        raise UnsupportedError(f"no window reads the image {list(_shape(image))}")
    if size != _shape(image):
        image = b.op("SLICE", image, b.const_shape((0, 0, 0, 0)), b.const_shape(size))
    return image, (top, max(bottom, 0), left, max(right, 0))


def _rescale(
    b: Builder,
    x: Tensor,
    multiplier: Any,
    shift: Any,
    dtype: DType,
    *,
    input_zp: int = 0,
    output_zp: Any = 0,
) -> Tensor:
    """(x - input_zp) * multiplier / 2**31 * 2**shift + output_zp; one scale, or one by channel."""
    multiplier, shift = np.broadcast_arrays(np.asarray(multiplier), np.asarray(shift))
    amount = 31 - shift.astype(np.int32).reshape(-1)
    if amount.min() < _LEAST_SHIFT:
        limit = 31 - _LEAST_SHIFT
        raise UnsupportedError(f"a shift is {shift.max()}, expected at most {limit} by RESCALE")
    # Up to 31 bits nothing is rounded twice, and no extension is needed.
    twice = amount.max() > 31
    return b.op(
        "RESCALE",
        x,
        b.const(multiplier.reshape(-1), DType.INT32),
        b.const(amount, DType.INT8),
        b.const([input_zp], x.dtype),
        b.const([int(output_zp)], dtype),
        dtype=dtype,
        scale32=True,
        rounding_mode=RoundingMode.DOUBLE_ROUND if twice else RoundingMode.SINGLE_ROUND,
        per_channel=shift.ndim > 0,
        input_unsigned=False,
        output_unsigned=False,
    )


def _centred(b: Builder, x: Tensor, zero_bias: int, left_shift: int = 0) -> Tensor:
    """(x + zero_bias) * 2**left_shift of INT8, as INT32."""
    return _rescale(b, x, _HALF_Q31, 1 + left_shift, DType.INT32, input_zp=-int(zero_bias))


def _finish_elementwise(
    b: Builder, x: Tensor, out: dict[str, int], bounds: tuple[int, int]
) -> Tensor:
    multiplier, shift = out["out_multiplier"], out["out_shift"]
    scaled = _rescale(b, x, multiplier, shift, DType.INT8, output_zp=out["out_zero_bias"])
    return _clamp(b, scaled, *bounds)


def _multiply(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.op("MUL", x, y, b.const([0], DType.INT8))


def _clamp(b: Builder, x: Tensor, low: int, high: int) -> Tensor:
    return b.op("CLAMP", x, min_val=low, max_val=high)


def _filled(b: Builder, value: int, like: Tensor) -> Tensor:
    """A constant of the type and the rank of a tensor, that broadcasts with it."""
    return b.const(np.full((1,) * len(_shape(like)), value), like.dtype)


def _image(b: Builder, x: Tensor) -> Tensor:
    return _reshape(b, x, (1, *_shape(x)))


def _to_format(b: Builder, image: Tensor, out_format: str) -> Tensor:
    """The cube of an image [1, H, W, C]."""
    cube = _reshape(b, image, _shape(image)[1:])
    return cube if out_format == "DWH" else b.op("TRANSPOSE", cube, perms=(2, 0, 1))


def _reshape(b: Builder, x: Tensor, shape: Sequence[int]) -> Tensor:
    return b.op("RESHAPE", x, b.const_shape(shape))
