"""Fully connected layers (guide 3.5.1).

Pointers are aligned to 8 bytes for fixed point, otherwise to elements. No pointer may be NULL.
"""

from __future__ import annotations

from tosajax.hifi.capi._function import Arguments, Prototype
from tosajax.hifi.capi._plan import Plan, operand
from tosajax.hifi.capi._sums import SCALE, SHIFTS, numbers_of
from tosajax.hifi.kernels._precision import PRECISIONS
from tosajax.hifi.kernels.dense import FULLY_CONNECTED

_LAYER = "p_out p_weight p_inp p_bias weight_depth out_depth"


def _fully_connected(a: Arguments, precision: str) -> Plan:
    types = PRECISIONS[precision]
    more = {"alignment": 0 if types.is_quantized or types.is_float else 8}
    return Plan(
        {
            "weight": operand(a, "p_weight", types.weight, (a.out_depth, a.weight_depth), **more),
            "inp": operand(a, "p_inp", types.input, (a.weight_depth,), **more),
            "bias": operand(a, "p_bias", types.bias, (a.out_depth,), **more),
        },
        [operand(a, "p_out", types.out, (a.out_depth,), **more)],
        numbers_of(a, types, a.out_depth, weight="weight"),
    )


PROTOTYPES = tuple(
    Prototype("xa_nn_fully_connected_{}", f"{_LAYER} {numbers}", _fully_connected, precisions)
    for numbers, precisions in (
        (SHIFTS, FULLY_CONNECTED[:3]),
        ("", FULLY_CONNECTED[3:4]),
        (f"input_zero_bias weight_zero_bias {SCALE}", FULLY_CONNECTED[4:5]),
        (f"input_zero_bias {SCALE}", FULLY_CONNECTED[5:]),
    )
)
