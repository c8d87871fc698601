"""Pooling (guide 3.4). Pointers are aligned to elements; p_scratch is only checked for NULL."""

from __future__ import annotations

from tosajax.hifi.capi._function import Arguments, Prototype, size_prototype
from tosajax.hifi.capi._plan import Plan, check_pointer, operand
from tosajax.hifi.capi._types import TYPES
from tosajax.hifi.kernels import scratch
from tosajax.hifi.kernels._check import check
from tosajax.hifi.kernels._geometry import FORMATS
from tosajax.hifi.kernels.pool import POOL

_WINDOW = "kernel_height kernel_width x_stride y_stride x_padding y_padding out_height out_width"


def _pool(a: Arguments, precision: str) -> Plan:
    check_pointer("p_scratch", a.p_scratch, 1)
    data_format, same = a.inp_data_format, a.out_data_format
    check(data_format in (0, 1), "", "inp_data_format", data_format, "0 or 1")
    check(same == data_format, "", "out_data_format", same, f"that of the input, {data_format}")
    dtype, size = TYPES[precision], (a.input_height, a.input_width)
    out = a.out_height, a.out_width
    return Plan(
        {"inp": operand(a, "p_inp", dtype, _cube(data_format, size, a.input_channels))},
        [operand(a, "p_out", dtype, _cube(data_format, out, a.input_channels))],
        static={
            "kernel": (a.kernel_height, a.kernel_width),
            "strides": (a.y_stride, a.x_stride),
            "padding": (a.y_padding, a.x_padding),
            "out_size": out,
            "data_format": FORMATS[data_format],
        },
    )


def _cube(data_format: int, size: tuple[int, int], channels: int) -> tuple[int, ...]:
    return (channels, *size) if data_format else (*size, channels)


PROTOTYPES = tuple(
    prototype
    for kind in ("avgpool", "maxpool")
    for prototype in (
        size_prototype(f"xa_nn_{kind}_getsize", scratch.pool_getsize),
        Prototype(
            f"xa_nn_{kind}_{{}}",
            f"p_out p_inp input_height input_width input_channels {_WINDOW} "
            "inp_data_format out_data_format p_scratch",
            _pool,
            POOL,
        ),
    )
)
