"""The CNN layer (guide 4.3): a convolution whose configuration has the shapes of all operands."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from tosajax.hifi.errors import ErrorCode, Fault, check_config
from tosajax.hifi.kernels import conv1d_std, conv2d_depthwise, conv2d_pointwise, conv2d_std
from tosajax.hifi.kernels._check import SHIFT, check_array, check_type, integer, integers, pairs
from tosajax.hifi.kernels._padding import padded, round_up
from tosajax.hifi.kernels._precision import PRECISIONS, Array
from tosajax.hifi.kernels._precision import Precision as Types
from tosajax.hifi.layers import shape as shapes
from tosajax.hifi.layers._precision import Precision
from tosajax.hifi.layers._recurrent import keep_integers
from tosajax.hifi.layers.shape import UNKNOWN, Shape, ShapeType
from tosajax.ops.recording import recorded_as, unrecorded

# The precisions in the names of kernels.
_KERNEL_PRECISIONS: dict[int, str] = {
    Precision.P16bx16b: "16x16",
    Precision.P8bx16b: "8x16",
    Precision.P8bx8b: "8x8",
    Precision.F32xF32: "f32",
}
_FORMATS = ("DWH", "WHD")
# The fields of weights for the standard or depthwise convolution, then for the pointwise one.
STAGES = (("kernel", "bias"), ("point_kernel", "point_bias"))
# The guide's defaults.
_CUBE = shapes.cube_dwh(16, 16, 4)
_VECTOR = shapes.vector(4)


class Algo(enum.IntEnum):
    """The algorithms: 1D and 2D standard convolution, and depthwise followed by pointwise.

    Example:
      >>> from tosajax.hifi import layers
      >>> list(layers.Algo.__members__)
      ['CONV1D_STD', 'CONV2D_STD', 'CONV2D_DS']
    """

    CONV1D_STD = 200
    CONV2D_STD = 201
    CONV2D_DS = 203


@dataclasses.dataclass(frozen=True, kw_only=True)
class CNNConfig:
    """The configuration of a CNN layer (xa_nnlib_cnn_init_config_t).

    `conv1d_std_config`, `conv2d_std_config` and `conv2d_ds_config` derive the shapes.

    Args:
      input_shape: contiguous CUBE_DWH, or CUBE_WHD for CONV2D_DS.
      output_height: elements.
      output_width: elements; 1 for CONV1D_STD.
      output_channels: elements.
      output_format: 0 for CUBE_DWH, 1 for CUBE_WHD; 1 for CONV2D_DS.
      kernel_std_shape: one kernel of a standard convolution, CUBE_DWH. Its offsets include the
        padding in memory to a multiple of 4 elements, or of 2 for floats: of the depth for
        CONV2D_STD, of the rows for CONV1D_STD.
      kernel_ds_depth_shape: the depthwise kernels, CUBE_WHD with depth channels * multiplier, and
        rows padded to a multiple of 4.
      kernel_ds_point_shape: the pointwise kernels, MATRIX.
      bias_std_shape: the biases of a standard convolution, VECTOR.
      bias_ds_depth_shape: the biases of the depthwise convolution, VECTOR.
      bias_ds_point_shape: the biases of the pointwise convolution, VECTOR.
      precision: a `Precision`.
      bias_shift: shift of the bias; bits in [-31, 31], positive to the left. Floats ignore it.
      acc_shift: shift of the sum; bits in [-31, 31], positive to the left. Floats ignore it.
      channels_multiplier: depthwise kernels for each channel.
      x_padding: padding on the left; elements.
      y_padding: padding at the top; elements.
      x_stride: elements.
      y_stride: elements.
      algo: an `Algo`.

    Example:
      >>> from tosajax.hifi import layers
      >>> config = layers.conv2d_std_config(
      ...     input_size=(5, 5, 4), kernel_size=(3, 3), output_size=(3, 3), output_channels=4
      ... )
      >>> config.fault() is None, config.x_stride
      (True, 1)
    """

    input_shape: Shape = _CUBE
    output_height: int = 16
    output_width: int = 16
    output_channels: int = 4
    output_format: int = 0
    kernel_std_shape: Shape = _CUBE
    kernel_ds_depth_shape: Shape = UNKNOWN
    kernel_ds_point_shape: Shape = UNKNOWN
    bias_std_shape: Shape = _VECTOR
    bias_ds_depth_shape: Shape = UNKNOWN
    bias_ds_point_shape: Shape = UNKNOWN
    precision: int = Precision.P8bx16b
    bias_shift: int = 7
    acc_shift: int = -7
    channels_multiplier: int = 1
    x_padding: int = 2
    y_padding: int = 2
    x_stride: int = 2
    y_stride: int = 2
    algo: int = Algo.CONV2D_STD

    def __post_init__(self) -> None:
        keep_integers(self)
        for field in dataclasses.fields(self):
            if field.type == "Shape":
                check_type("CNNConfig", field.name, getattr(self, field.name), Shape)

    def fault(self) -> Fault | None:
        """The first fault that the library detects, or None."""
        return next(_faults(self), None)


class CNNWeights(NamedTuple):
    """The kernels and biases of a CNN layer, without padding.

    Args:
      kernel: [output_channels, height, width, channels]; for CONV2D_DS the depthwise kernels,
        [channels * multiplier, height, width].
      bias: [output_channels]; for CONV2D_DS [channels * multiplier]. The type of the input: int16,
        int8 or float32.
      point_kernel: for CONV2D_DS only, [output_channels, channels * multiplier].
      point_bias: for CONV2D_DS only, [output_channels].

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> weights = layers.CNNWeights(np.ones((4, 3, 3, 4), np.int8), np.zeros(4, np.int16))
      >>> weights.kernel.shape, weights.point_kernel
      ((4, 3, 3, 4), None)
    """

    kernel: Array
    bias: Array
    point_kernel: Any = None
    point_bias: Any = None


def conv1d_std_config(
    *,
    input_size: tuple[int, int, int],
    kernel_height: int,
    output_height: int,
    output_channels: int,
    precision: int = Precision.P8bx16b,
    stride: int = 1,
    padding: int = 0,
    acc_shift: int = -7,
    bias_shift: int = 7,
    output_format: int = 0,
) -> CNNConfig:
    """Makes the configuration of a convolution over height.

    Args:
      input_size: height, width, channels; elements.
      kernel_height: elements.
      output_height: elements.
      output_channels: elements.
      precision: a `Precision`.
      stride: stride over height; elements.
      padding: padding at the top; elements.
      acc_shift: bits, positive to the left.
      bias_shift: bits, positive to the left.
      output_format: 0 for channels last, 1 for channels first.

    Example:
      >>> from tosajax.hifi import layers
      >>> config = layers.conv1d_std_config(
      ...     input_size=(8, 4, 4), kernel_height=3, output_height=6, output_channels=4
      ... )
      >>> config.algo.name
      'CONV1D_STD'
    """
    name = "conv1d_std_config"
    size = integers(name, "input_size", input_size, 3)
    kernel_height = integer(name, "kernel_height", kernel_height)
    output_channels = integer(name, "output_channels", output_channels)
    _, width, depth = size
    row = padded(depth * width, is_float=precision == Precision.F32xF32)
    return CNNConfig(
        algo=Algo.CONV1D_STD,
        input_shape=shapes.cube_dwh(*size),
        kernel_std_shape=shapes.cube_dwh(kernel_height, width, depth, height_offset=row),
        bias_std_shape=shapes.vector(output_channels),
        output_height=output_height,
        output_width=1,
        output_channels=output_channels,
        precision=precision,
        y_stride=stride,
        x_stride=1,
        y_padding=padding,
        x_padding=0,
        acc_shift=acc_shift,
        bias_shift=bias_shift,
        output_format=output_format,
    )


def conv2d_std_config(
    *,
    input_size: tuple[int, int, int],
    kernel_size: tuple[int, int],
    output_size: tuple[int, int],
    output_channels: int,
    precision: int = Precision.P8bx16b,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    acc_shift: int = -7,
    bias_shift: int = 7,
    output_format: int = 0,
) -> CNNConfig:
    """Makes the configuration of a convolution over height and width.

    Args:
      input_size: height, width, channels; elements.
      kernel_size: height, width; elements.
      output_size: height, width; elements.
      output_channels: elements.
      precision: a `Precision`.
      strides: y, x; elements.
      padding: top, left; elements.
      acc_shift: bits, positive to the left.
      bias_shift: bits, positive to the left.
      output_format: 0 for channels last, 1 for channels first.

    Example:
      >>> from tosajax.hifi import layers
      >>> config = layers.conv2d_std_config(
      ...     input_size=(5, 5, 4), kernel_size=(3, 3), output_size=(3, 3), output_channels=4
      ... )
      >>> layers.output_shape(config).dim.depth
      4
    """
    name = "conv2d_std_config"
    size = integers(name, "input_size", input_size, 3)
    kernel, window = _window(name, kernel_size, output_size, strides, padding)
    output_channels = integer(name, "output_channels", output_channels)
    depth = size[2]
    pixel = padded(depth, is_float=precision == Precision.F32xF32)
    return CNNConfig(
        algo=Algo.CONV2D_STD,
        input_shape=shapes.cube_dwh(*size),
        kernel_std_shape=shapes.cube_dwh(kernel[0], kernel[1], depth, width_offset=pixel),
        bias_std_shape=shapes.vector(output_channels),
        output_channels=output_channels,
        precision=precision,
        acc_shift=acc_shift,
        bias_shift=bias_shift,
        output_format=output_format,
        **window,
    )


def conv2d_ds_config(
    *,
    input_size: tuple[int, int, int],
    kernel_size: tuple[int, int],
    output_size: tuple[int, int],
    output_channels: int,
    channels_multiplier: int = 1,
    precision: int = Precision.P8bx16b,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    acc_shift: int = -7,
    bias_shift: int = 7,
) -> CNNConfig:
    """Makes the configuration of a depthwise and a pointwise convolution with the same shifts.

    The input is [channels, height, width]. See `conv2d_std_config` for other arguments.

    Args:
      channels_multiplier: depthwise kernels for each channel; channels_multiplier * channels must
        be a multiple of 4.

    Example:
      >>> from tosajax.hifi import layers
      >>> config = layers.conv2d_ds_config(
      ...     input_size=(5, 5, 4), kernel_size=(3, 3), output_size=(3, 3), output_channels=8
      ... )
      >>> config.algo.name
      'CONV2D_DS'
    """
    name = "conv2d_ds_config"
    size = integers(name, "input_size", input_size, 3)
    kernel, window = _window(name, kernel_size, output_size, strides, padding)
    output_channels = integer(name, "output_channels", output_channels)
    between = size[2] * integer(name, "channels_multiplier", channels_multiplier)
    row = round_up(kernel[1], 4)
    return CNNConfig(
        algo=Algo.CONV2D_DS,
        input_shape=shapes.cube_whd(*size),
        kernel_std_shape=UNKNOWN,
        bias_std_shape=UNKNOWN,
        kernel_ds_depth_shape=shapes.cube_whd(kernel[0], kernel[1], between, height_offset=row),
        kernel_ds_point_shape=shapes.matrix(output_channels, between),
        bias_ds_depth_shape=shapes.vector(between),
        bias_ds_point_shape=shapes.vector(output_channels),
        output_channels=output_channels,
        output_format=1,
        channels_multiplier=channels_multiplier,
        precision=precision,
        acc_shift=acc_shift,
        bias_shift=bias_shift,
        **window,
    )


@recorded_as("hifi.layers.cnn_apply", keeps_batches=True)
def cnn_apply(config: CNNConfig, weights: CNNWeights, x: Array) -> jax.Array:
    """Convolves one image (xa_nnlib_cnn_process, guide 4.3).

    The two convolutions of CONV2D_DS have the same shifts; the depthwise sums are rounded and
    saturated to the output type.

    Args:
      config: the configuration; static.
      weights: traced arrays, or constants.
      x: int16, int8 or float32 by the precision: [height, width, channels], or [channels, height,
        width] for CONV2D_DS.

    Returns:
      The type of `x`; [output_height, output_channels] for CONV1D_STD, else [output_height,
      output_width, output_channels]. If output_format is 1, channels are first.

    Raises:
      NNLibConfigError: the library rejects the configuration.
      NNLibParamError: an array has the wrong shape, or the library's kernels reject a size.
      TypeError: an argument has the wrong type.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> config = layers.conv2d_std_config(
      ...     input_size=(5, 5, 4), kernel_size=(3, 3), output_size=(3, 3), output_channels=4
      ... )
      >>> weights = layers.CNNWeights(np.ones((4, 3, 3, 4), np.int8), np.zeros(4, np.int16))
      >>> apply = jax.jit(layers.cnn_apply, static_argnums=0)
      >>> y = apply(config, weights, np.ones((5, 5, 4), np.int16))
      >>> y.dtype, y.shape
      (dtype('int16'), (3, 3, 4))
    """
    check_config("CNN", CNNConfig, config)
    _check_arrays(config, weights, x)
    common: dict[str, Any] = {"precision": _KERNEL_PRECISIONS[config.precision]}
    if config.precision != Precision.F32xF32:
        common |= {"acc_shift": config.acc_shift, "bias_shift": config.bias_shift}
    window: dict[str, Any] = {
        "strides": (config.y_stride, config.x_stride),
        "padding": (config.y_padding, config.x_padding),
        "out_size": (config.output_height, config.output_width),
    }
    out_format = _FORMATS[config.output_format]
    if config.algo == Algo.CONV1D_STD:
        return conv1d_std(
            x,
            weights.kernel,
            weights.bias,
            stride=config.y_stride,
            padding=config.y_padding,
            out_height=config.output_height,
            out_format=out_format,
            **common,
        )
    if config.algo == Algo.CONV2D_STD:
        operands = x, weights.kernel, weights.bias
        return unrecorded(conv2d_std)(*operands, out_format=out_format, **window, **common)
    between = unrecorded(conv2d_depthwise)(
        x, weights.kernel, weights.bias, inp_format="WHD", **window, **common
    )
    operands = between, weights.point_kernel, weights.point_bias
    return unrecorded(conv2d_pointwise)(*operands, out_format="WHD", **common)


def output_shape(config: CNNConfig) -> Shape:
    """The shape of the result of `cnn_apply`.

    Example:
      >>> from tosajax.hifi import layers
      >>> config = layers.conv2d_std_config(
      ...     input_size=(5, 5, 4), kernel_size=(3, 3), output_size=(3, 3), output_channels=4
      ... )
      >>> layers.output_shape(config).dim[::2]  # height, width, depth
      (3, 3, 4)
    """
    check_type("output_shape", "config", config, CNNConfig)
    height, channels = config.output_height, config.output_channels
    if config.algo == Algo.CONV1D_STD:
        size = (channels, height) if config.output_format else (height, channels)
        return shapes.matrix(*size)
    cube = shapes.cube_whd if config.output_format else shapes.cube_dwh
    return cube(height, config.output_width, channels)


def array_shapes(config: CNNConfig) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The shapes of the input and of the kernels; a kernel's first axis has its bias's length."""
    size, outputs = config.input_shape.dim, config.output_channels
    if config.algo == Algo.CONV2D_DS:
        depth, between = config.kernel_ds_depth_shape.dim, _between(config)
        kernels = (between, depth.height, depth.width), (outputs, between)
        return (size.depth, size.height, size.width), kernels
    std = config.kernel_std_shape.dim
    kernel = outputs, std.height, std.width, std.depth
    return (size.height, size.width, size.depth), (kernel,)


def types_of(config: CNNConfig) -> Types:
    """The element types of the arrays."""
    return PRECISIONS[_KERNEL_PRECISIONS[config.precision]]


def _window(
    name: str,
    kernel_size: tuple[int, int],
    output_size: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int],
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The size of a kernel, and the configuration's fields for output, strides and padding."""
    kernel, output, stride, pad = pairs(
        name, kernel_size=kernel_size, output_size=output_size, strides=strides, padding=padding
    )
    return kernel, {
        **dict(zip(("output_height", "output_width"), output, strict=True)),
        **dict(zip(("y_stride", "x_stride"), stride, strict=True)),
        **dict(zip(("y_padding", "x_padding"), pad, strict=True)),
    }


def _check_arrays(config: CNNConfig, weights: CNNWeights, x: Array) -> None:
    """Checks the types and shapes of arrays."""
    check_type("cnn", "weights", weights, CNNWeights)
    types = types_of(config)
    x_shape, kernels = array_shapes(config)
    check_array("cnn", "x", x, types.input, x_shape)
    for (kernel, bias), shape in zip(STAGES, kernels, strict=False):
        check_array("cnn", kernel, getattr(weights, kernel), types.weight, shape)
        check_array("cnn", bias, getattr(weights, bias), types.bias, shape[:1])


def _faults(config: CNNConfig) -> Iterator[Fault]:
    """Yields the faults in the library's order; faults after the first may be meaningless."""
    yield from _fault(config.algo in list(Algo), "ALGO", "algo", config.algo, "an Algo")
    is_known = config.precision in _KERNEL_PRECISIONS
    yield from _fault(is_known, "PRECISION", "precision", config.precision, "a Precision")
    if config.precision != Precision.F32xF32:
        for name in ("bias_shift", "acc_shift"):
            shift = getattr(config, name)
            holds = SHIFT[0] <= shift <= SHIFT[1]
            yield from _fault(holds, name.upper(), name, shift, f"within {list(SHIFT)}")
    for code, names, least in (
        ("STRIDE", ("x_stride", "y_stride"), 1),
        ("PADDING", ("x_padding", "y_padding"), 0),
        ("OUTPUT_SHAPE", ("output_height", "output_width", "output_channels"), 1),
    ):
        for name in names:
            number = getattr(config, name)
            yield from _fault(number >= least, code, name, number, f"at least {least}")
    yield from _ds_faults(config) if config.algo == Algo.CONV2D_DS else _std_faults(config)


def _std_faults(config: CNNConfig) -> Iterator[Fault]:
    yield from _input_faults(config, ShapeType.CUBE_DWH, shapes.cube_dwh)
    yield from _type_fault(config, "kernel_std_shape", "KERNEL_SHAPE", ShapeType.CUBE_DWH)
    yield from _type_fault(config, "bias_std_shape", "BIAS_SHAPE", ShapeType.VECTOR)
    kernel, size = config.kernel_std_shape.dim, config.input_shape.dim
    combination, is_float = "PARAM_COMBINATION", config.precision == Precision.F32xF32
    yield from _equal(combination, "depth of kernel_std_shape", kernel.depth, size.depth)
    length, channels = config.bias_std_shape.dim.length, config.output_channels
    yield from _equal(combination, "length of bias_std_shape", length, channels)
    holds, wanted = config.x_stride <= kernel.width, f"at most the kernel's width, {kernel.width}"
    yield from _fault(holds, "STRIDE", "x_stride", config.x_stride, wanted)
    out_format = config.output_format
    yield from _fault(out_format in (0, 1), "OUTPUT_SHAPE", "output_format", out_format, "0 or 1")
    if config.algo == Algo.CONV1D_STD:
        yield from _equal("OUTPUT_SHAPE", "output_width", config.output_width, 1)
        yield from _equal(combination, "width of kernel_std_shape", kernel.width, size.width)
        row, name = padded(kernel.depth * kernel.width, is_float=is_float), "height_offset"
    else:
        row, name = padded(kernel.depth, is_float=is_float), "width_offset"
    offset = getattr(kernel, name)
    yield from _equal("KERNEL_SHAPE", f"{name} of kernel_std_shape", offset, row)


def _ds_faults(config: CNNConfig) -> Iterator[Fault]:
    yield from _input_faults(config, ShapeType.CUBE_WHD, shapes.cube_whd)
    yield from _type_fault(config, "kernel_ds_depth_shape", "KERNEL_SHAPE", ShapeType.CUBE_WHD)
    yield from _equal("OUTPUT_SHAPE", "output_format", config.output_format, 1)
    yield from _type_fault(config, "bias_ds_depth_shape", "BIAS_SHAPE", ShapeType.VECTOR)
    yield from _type_fault(config, "bias_ds_point_shape", "BIAS_SHAPE", ShapeType.VECTOR)
    yield from _type_fault(config, "kernel_ds_point_shape", "KERNEL_SHAPE", ShapeType.MATRIX)
    between, wanted = _between(config), "a multiple of 4"
    yield from _fault(between % 4 == 0, "INPUT_SHAPE", "channels * multiplier", between, wanted)
    for name, wanted in (
        ("bias_ds_depth_shape", between),
        ("bias_ds_point_shape", config.output_channels),
    ):
        length = getattr(config, name).dim.length
        yield from _equal("PARAM_COMBINATION", f"length of {name}", length, wanted)
    kernel = config.kernel_ds_depth_shape.dim
    holds = config.y_stride <= kernel.height
    wanted = f"at most the kernel's height, {kernel.height}"
    yield from _fault(holds, "STRIDE", "y_stride", config.y_stride, wanted)
    row, offset = round_up(kernel.width, 4), kernel.height_offset
    yield from _equal("KERNEL_SHAPE", "height_offset of kernel_ds_depth_shape", offset, row)


def _input_faults(
    config: CNNConfig, wanted: ShapeType, cube: Callable[[int, int, int], Shape]
) -> Iterator[Fault]:
    yield from _type_fault(config, "input_shape", "INPUT_SHAPE", wanted)
    size = config.input_shape.dim
    packed = cube(size.height, size.width, size.depth).dim
    yield from _fault(size == packed, "INPUT_SHAPE", "input_shape", size, f"{packed}, no gaps")


def _fault(holds: bool, code: str, argument: str, found: object, wanted: str) -> Iterator[Fault]:
    if not holds:
        yield Fault(ErrorCode[f"CNN_CONFIG_FATAL_INVALID_{code}"], argument, found, wanted)


def _equal(code: str, argument: str, found: int, wanted: int) -> Iterator[Fault]:
    yield from _fault(found == wanted, code, argument, found, str(wanted))


def _type_fault(config: CNNConfig, name: str, code: str, wanted: ShapeType) -> Iterator[Fault]:
    shape_type = ShapeType(getattr(config, name).shape_type)
    yield from _fault(shape_type == wanted, code, name, shape_type.name, wanted.name)


def _between(config: CNNConfig) -> int:
    """The channels between the two convolutions of CONV2D_DS."""
    return config.input_shape.dim.depth * config.channels_multiplier
