"""Convolutions (guide 3.2).

No pointer may be NULL. p_scratch is aligned to 8 bytes. All other pointers are aligned to 8 bytes
for fixed point and floats, and to elements in depthwise, quantized and pointwise 8x8 functions.
Kernels are padded in memory: the channels of conv2d_std to a multiple of 4 for 16-bit inputs and of
2 for floats, the rows of conv1d_std to a multiple of 4, and of 2 for floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tosajax.hifi.capi._function import Arguments, Prototype, size_prototype
from tosajax.hifi.capi._plan import Operand, Plan, check_pointer, operand
from tosajax.hifi.capi._sums import SCALE, SCALES, SHIFTS, numbers_of
from tosajax.hifi.kernels import scratch
from tosajax.hifi.kernels._check import check
from tosajax.hifi.kernels._geometry import FORMATS
from tosajax.hifi.kernels._padding import padded
from tosajax.hifi.kernels._precision import PRECISIONS, Precision
from tosajax.hifi.kernels.conv import CONV1D, CONV2D

_SCRATCH_ALIGNMENT = 8
_WINDOW = "x_stride y_stride x_padding y_padding out_height out_width"
_IMAGE = "input_height input_width input_channels"
_CONV2D = f"p_out p_inp p_ker p_bias {_IMAGE} kernel_height kernel_width out_channels {_WINDOW}"
_CONV1D = (
    f"p_out p_inp p_ker p_bias {_IMAGE} kernel_height out_channels y_stride y_padding out_height"
)
_DEPTHWISE = (
    f"p_out p_ker p_inp p_bias {_IMAGE} kernel_height kernel_width channels_multiplier {_WINDOW}"
)
_POINTWISE = f"p_out p_ker p_inp p_bias {_IMAGE} out_channels"
_BIASES = "input_zero_bias kernel_zero_bias"


def _conv2d_std(a: Arguments, precision: str) -> Plan:
    check_pointer("p_scratch", a.p_scratch, _SCRATCH_ALIGNMENT)
    types, depth = PRECISIONS[precision], a.input_channels
    is_byte = types.input().itemsize == 1
    stored = depth if is_byte else padded(depth, is_float=types.is_float)
    row = a.kernel_width * stored
    padding = _padding("the channels of a pixel", depth, stored)
    kernel = a.kernel_height, a.kernel_width, depth
    out_format = _format(a, "out_data_format")
    out = _cube(out_format, a.out_height, a.out_width, a.out_channels)
    static = _window(a) | {"out_format": out_format}
    strides = a.kernel_height * row, row, stored, 1
    return _standard(a, types, kernel, strides, out, static, padding)


def _conv1d_std(a: Arguments, precision: str) -> Plan:
    check_pointer("p_scratch", a.p_scratch, _SCRATCH_ALIGNMENT)
    types = PRECISIONS[precision]
    length = a.input_width * a.input_channels
    row = padded(length, is_float=types.is_float)
    kernel = a.kernel_height, a.input_width, a.input_channels
    strides = a.kernel_height * row, row, a.input_channels, 1
    out_format = _format(a, "out_data_format")
    static = {
        "stride": a.y_stride,
        "padding": a.y_padding,
        "out_height": a.out_height,
        "out_format": out_format,
    }
    out = _cube(out_format, a.out_height, a.out_channels)
    padding = _padding("the elements of a row", length, row)
    return _standard(a, types, kernel, strides, out, static, padding)


def _padding(dimension: str, count: int, stored: int) -> str:
    """Describes the padding of a kernel in memory, for errors; "" without padding."""
    return f"{dimension}, {count}, are padded to {stored}" if stored != count else ""


def _standard(
    a: Arguments,
    types: Precision,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    out: Sequence[int],
    static: Mapping[str, Any],
    padding: str,
) -> Plan:
    """The plan of a convolution whose kernels are padded in memory, including the last one."""
    alignment, channels = _alignment(types), a.out_channels
    ker = operand(
        a, "p_ker", types.weight, (channels, *kernel), strides=strides,
        count=channels * strides[0], alignment=alignment, padding=padding,
    )  # fmt: skip
    image = a.input_height, a.input_width, a.input_channels
    return _plan(a, types, image, ker, channels, out, static, alignment)


def _conv2d_depthwise(a: Arguments, precision: str) -> Plan:
    types = PRECISIONS[precision]
    check_pointer("p_scratch", a.p_scratch, _SCRATCH_ALIGNMENT)
    check(a.out_data_format == 0, "", "out_data_format", a.out_data_format, "0")
    multiplier = a.channels_multiplier
    check(multiplier >= 1, "", "channels_multiplier", multiplier, "at least 1")
    inp_format, channels = _format(a, "inp_data_format"), a.input_channels * multiplier
    image = _cube(inp_format, a.input_height, a.input_width, a.input_channels)
    kernel = _cube(inp_format, a.kernel_height, a.kernel_width, channels)
    ker, out = operand(a, "p_ker", types.weight, kernel), (a.out_height, a.out_width, channels)
    static = _window(a) | {"inp_format": inp_format}
    return _plan(a, types, image, ker, channels, out, static, 0)


def _conv2d_pointwise(a: Arguments, precision: str) -> Plan:
    types, channels = PRECISIONS[precision], a.out_channels
    alignment = 0 if precision == "8x8" else _alignment(types)
    out_format = _format(a, "out_data_format")
    image = a.input_height, a.input_width, a.input_channels
    kernel = channels, a.input_channels
    ker = operand(a, "p_ker", types.weight, kernel, alignment=alignment)
    out = _cube(out_format, a.input_height, a.input_width, channels)
    return _plan(a, types, image, ker, channels, out, {"out_format": out_format}, alignment)


def _plan(
    a: Arguments,
    types: Precision,
    image: Sequence[int],
    ker: Operand,
    channels: int,
    out: Sequence[int],
    static: Mapping[str, Any],
    alignment: int,
) -> Plan:
    return Plan(
        {
            "inp": operand(a, "p_inp", types.input, image, alignment=alignment),
            "ker": ker,
            "bias": operand(a, "p_bias", types.bias, (channels,), alignment=alignment),
        },
        [operand(a, "p_out", types.out, out, alignment=alignment)],
        numbers_of(a, types, channels),
        static,
    )


def _window(a: Arguments) -> dict[str, Any]:
    return {
        "strides": (a.y_stride, a.x_stride),
        "padding": (a.y_padding, a.x_padding),
        "out_size": (a.out_height, a.out_width),
    }


def _format(a: Arguments, argument: str) -> str:
    number = getattr(a, argument)
    check(number in (0, 1), "", argument, number, "0 or 1")
    return FORMATS[number]


def _cube(data_format: str, *shape: int) -> Sequence[int]:
    """Orders a shape: channels last for DWH, first for WHD."""
    return shape if data_format == "DWH" else (shape[-1], *shape[:-1])


def _alignment(types: Precision) -> int:
    return 0 if types.is_quantized else 8


def _prototypes(
    name: str,
    arguments: str,
    formats: str,
    body: Callable[[Arguments, str], Plan],
    shifts: str = SHIFTS,
) -> Iterator[Prototype]:
    """Yields the prototypes of all precisions; numbers follow `arguments`, then `formats`."""
    for numbers, precisions in (
        (shifts, CONV2D[:3]),
        ("", CONV2D[3:4]),
        (f"{_BIASES} {SCALE}", CONV2D[4:5]),
        (f"input_zero_bias {SCALES}", CONV2D[5:]),
    ):
        yield Prototype(f"xa_nn_{name}_{{}}", f"{arguments} {numbers} {formats}", body, precisions)


_REVERSED = "bias_shift acc_shift"

PROTOTYPES = (
    size_prototype("xa_nn_conv2d_std_getsize", scratch.conv2d_std_getsize),
    *_prototypes("conv2d_std", _CONV2D, "out_data_format p_scratch", _conv2d_std, _REVERSED),
    size_prototype("xa_nn_conv1d_std_getsize", scratch.conv1d_std_getsize),
    *(
        Prototype(
            "xa_nn_conv1d_std_{}",
            f"{_CONV1D} {numbers} out_data_format p_scratch",
            _conv1d_std,
            precisions,
        )
        for numbers, precisions in ((_REVERSED, CONV1D[:3]), ("", CONV1D[3:]))
    ),
    size_prototype("xa_nn_conv2d_depthwise_getsize", scratch.conv2d_depthwise_getsize),
    *_prototypes(
        "conv2d_depthwise",
        _DEPTHWISE,
        "inp_data_format out_data_format p_scratch",
        _conv2d_depthwise,
    ),
    *_prototypes("conv2d_pointwise", _POINTWISE, "out_data_format", _conv2d_pointwise),
)
