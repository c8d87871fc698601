"""Convolutions (guide 3.2).

No pointer may be NULL. They are aligned to 8 bytes in fixed point and for floats, those of
depthwise, of quantized and of pointwise 8x8 functions to elements; p_scratch to 8 bytes in all.
In memory kernels have gaps: the channels of conv2d_std are padded to a multiple of 4 by inputs of
16 bits and of 2 for floats, the rows of conv1d_std to one of 4 and of 2 for floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tosajax.hifi.capi._function import Prototype
from tosajax.hifi.capi._plan import Plan, check_pointer, operand
from tosajax.hifi.capi._sums import SCALE, SCALES, SHIFTS, numbers_of
from tosajax.hifi.kernels import scratch
from tosajax.hifi.kernels._check import check
from tosajax.hifi.kernels._geometry import FORMATS
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


def _conv2d_std(a: Any, precision: str) -> Plan:
    types = PRECISIONS[precision]
    check_pointer("p_scratch", a.p_scratch, _SCRATCH_ALIGNMENT)
    image, channels = (a.input_height, a.input_width, a.input_channels), a.out_channels
    stored = _round_up(a.input_channels, _multiple(types, eight_bits=1))
    rows, columns = a.kernel_height, a.kernel_width
    strides = rows * columns * stored, columns * stored, stored, 1
    count = channels * strides[0]
    aligned = {"alignment": _alignment(types)}
    kernel = channels, rows, columns, a.input_channels
    out_format = _format(a, "out_data_format")
    out = _cube(out_format, a.out_height, a.out_width, channels)
    return Plan(
        {
            "inp": operand(a, "p_inp", types.input, image, **aligned),
            "ker": operand(
                a, "p_ker", types.weight, kernel, strides=strides, count=count, **aligned
            ),
            "bias": operand(a, "p_bias", types.bias, (channels,), **aligned),
        },
        [operand(a, "p_out", types.out, out, **aligned)],
        numbers_of(a, types, channels),
        _window(a) | {"out_format": out_format},
    )


def _conv1d_std(a: Any, precision: str) -> Plan:
    types = PRECISIONS[precision]
    check_pointer("p_scratch", a.p_scratch, _SCRATCH_ALIGNMENT)
    image, channels = (a.input_height, a.input_width, a.input_channels), a.out_channels
    stored = _round_up(a.input_width * a.input_channels, _multiple(types, eight_bits=4))
    strides = a.kernel_height * stored, stored, a.input_channels, 1
    count = channels * strides[0]
    aligned = {"alignment": _alignment(types)}
    kernel = channels, a.kernel_height, a.input_width, a.input_channels
    out_format = _format(a, "out_data_format")
    return Plan(
        {
            "inp": operand(a, "p_inp", types.input, image, **aligned),
            "ker": operand(
                a, "p_ker", types.weight, kernel, strides=strides, count=count, **aligned
            ),
            "bias": operand(a, "p_bias", types.bias, (channels,), **aligned),
        },
        [operand(a, "p_out", types.out, _cube(out_format, a.out_height, channels), **aligned)],
        numbers_of(a, types, channels),
        {
            "stride": a.y_stride,
            "padding": a.y_padding,
            "out_height": a.out_height,
            "out_format": out_format,
        },
    )


def _conv2d_depthwise(a: Any, precision: str) -> Plan:
    types = PRECISIONS[precision]
    check_pointer("p_scratch", a.p_scratch, _SCRATCH_ALIGNMENT)
    check(a.out_data_format == 0, "", "out_data_format", a.out_data_format, "0")
    multiplier = a.channels_multiplier
    check(multiplier >= 1, "", "channels_multiplier", multiplier, "at least 1")
    inp_format, channels = _format(a, "inp_data_format"), a.input_channels * multiplier
    image = _cube(inp_format, a.input_height, a.input_width, a.input_channels)
    kernel = _cube(inp_format, a.kernel_height, a.kernel_width, channels)
    return Plan(
        {
            "inp": operand(a, "p_inp", types.input, image),
            "ker": operand(a, "p_ker", types.weight, kernel),
            "bias": operand(a, "p_bias", types.bias, (channels,)),
        },
        [operand(a, "p_out", types.out, (a.out_height, a.out_width, channels))],
        numbers_of(a, types, channels),
        _window(a) | {"inp_format": inp_format},
    )


def _conv2d_pointwise(a: Any, precision: str) -> Plan:
    types = PRECISIONS[precision]
    aligned = {"alignment": 0 if precision == "8x8" else _alignment(types)}
    out_format, channels = _format(a, "out_data_format"), a.out_channels
    image = a.input_height, a.input_width, a.input_channels
    out = _cube(out_format, a.input_height, a.input_width, channels)
    return Plan(
        {
            "inp": operand(a, "p_inp", types.input, image, **aligned),
            "ker": operand(a, "p_ker", types.weight, (channels, a.input_channels), **aligned),
            "bias": operand(a, "p_bias", types.bias, (channels,), **aligned),
        },
        [operand(a, "p_out", types.out, out, **aligned)],
        numbers_of(a, types, channels),
        {"out_format": out_format},
    )


def _window(a: Any) -> dict[str, Any]:
    return {
        "strides": (a.y_stride, a.x_stride),
        "padding": (a.y_padding, a.x_padding),
        "out_size": (a.out_height, a.out_width),
    }


def _format(a: Any, argument: str) -> str:
    found = getattr(a, argument)
    check(found in (0, 1), "", argument, found, "0 or 1")
    return FORMATS[found]


def _cube(data_format: str, *shape: int) -> Sequence[int]:
    """A shape whose channels are last, as DWH has them, or first."""
    return shape if data_format == "DWH" else (shape[-1], *shape[:-1])


def _alignment(types: Precision) -> int:
    return 0 if types.is_quantized else 8


def _multiple(types: Precision, *, eight_bits: int) -> int:
    """What lengths of kernels are padded to: `eight_bits` for inputs and kernels of 8 bits."""
    if types.is_float:
        return 2
    return eight_bits if types.input().itemsize == 1 else 4


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def sized(getsize: Callable[..., int]) -> Callable[[Any, str], int]:
    """The body of a function that returns a size."""
    return lambda a, _: getsize(**vars(a))


_FIXED, _ASYM8U, _PER_CHAN = CONV2D[:3], CONV2D[4:5], CONV2D[5:]

PROTOTYPES = (
    Prototype(
        "xa_nn_conv2d_std_getsize",
        "input_height input_channels kernel_height kernel_width y_stride y_padding out_height "
        "input_precision",
        sized(scratch.conv2d_std_getsize),
    ),
    *(
        Prototype(
            "xa_nn_conv2d_std_{}",
            f"{_CONV2D} {rest} out_data_format p_scratch",
            _conv2d_std,
            precisions,
        )
        for rest, precisions in (
            ("bias_shift acc_shift", _FIXED),
            ("", ("f32",)),
            (f"{_BIASES} {SCALE}", _ASYM8U),
            (f"input_zero_bias {SCALES}", _PER_CHAN),
        )
    ),
    Prototype(
        "xa_nn_conv1d_std_getsize",
        "kernel_height input_width input_channels input_precision",
        sized(scratch.conv1d_std_getsize),
    ),
    *(
        Prototype(
            "xa_nn_conv1d_std_{}",
            f"{_CONV1D} {rest} out_data_format p_scratch",
            _conv1d_std,
            precisions,
        )
        for rest, precisions in (("bias_shift acc_shift", CONV1D[:3]), ("", ("f32",)))
    ),
    Prototype(
        "xa_nn_conv2d_depthwise_getsize",
        f"{_IMAGE} kernel_height kernel_width channels_multiplier x_stride y_stride x_padding "
        "y_padding output_height output_width circ_buf_precision inp_data_format",
        sized(scratch.conv2d_depthwise_getsize),
    ),
    *(
        Prototype(
            "xa_nn_conv2d_depthwise_{}",
            f"{_DEPTHWISE} {rest} inp_data_format out_data_format p_scratch",
            _conv2d_depthwise,
            precisions,
        )
        for rest, precisions in (
            (SHIFTS, _FIXED),
            ("", ("f32",)),
            (f"{_BIASES} {SCALE}", _ASYM8U),
            (f"input_zero_bias {SCALES}", _PER_CHAN),
        )
    ),
    *(
        Prototype(
            "xa_nn_conv2d_pointwise_{}",
            f"{_POINTWISE} {rest} out_data_format",
            _conv2d_pointwise,
            precisions,
        )
        for rest, precisions in (
            (SHIFTS, _FIXED),
            ("", ("f32",)),
            (f"{_BIASES} {SCALE}", _ASYM8U),
            (f"input_zero_bias {SCALES}", _PER_CHAN),
        )
    ),
)
