"""Rules of CAST and RESCALE: every label, both sides of every bound."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax.spec import RoundingMode

ZERO = np.zeros(1, np.int64)
INT32 = np.array([1 << 30], np.int32)
INT16 = np.array([1 << 14], np.int16)
LEGAL = {
    "CAST": {"input": (2, 3), "output": (2, 3)},
    "RESCALE": {
        "types": "8-bit to 8-bit",
        "input": (2, 3),
        "multiplier": INT32,
        "shift": np.full(1, 30),
        "input_zp": ZERO,
        "output_zp": ZERO,
        "scale32": True,
        "rounding_mode": RoundingMode.SINGLE_ROUND,
        "per_channel": False,
        "input_unsigned": False,
        "output_unsigned": False,
        "output": (2, 3),
    },
}
SCALE16 = {"scale32": False, "multiplier": INT16}
PER_CHANNEL = {"per_channel": True, "multiplier": INT32.repeat(3), "shift": np.full(3, 30)}
UNSIGNED_IN = {"input_unsigned": True}
UNSIGNED_OUT = {"output_unsigned": True}
# 0xFFFF and 0x8000 in an int16.
UINT16_MAX, UINT16_HALF = ZERO - 1, ZERO - (1 << 15)
BOUNDARY = [
    ("RESCALE", change)
    for change in (
        {"input_zp": ZERO - 128, "output_zp": ZERO + 127},
        UNSIGNED_IN | {"input_zp": ZERO - 1},
        UNSIGNED_OUT | {"output_zp": ZERO - 1},
        UNSIGNED_IN | {"types": "16-bit to 16-bit"},
        UNSIGNED_IN | {"types": "16-bit to 16-bit", "input_zp": UINT16_HALF},
        UNSIGNED_IN | {"types": "16-bit to 16-bit", "input_zp": (1,)},
        UNSIGNED_OUT | {"types": "16-bit to 16-bit"},
        UNSIGNED_OUT | {"types": "16-bit to 16-bit", "output_zp": UINT16_HALF},
        SCALE16 | {"types": "48-bit to 32-bit"},
        SCALE16,
        {"rounding_mode": RoundingMode.DOUBLE_ROUND},
        SCALE16 | {"rounding_mode": RoundingMode.INEXACT_ROUND},
        PER_CHANNEL,
        {"input": (), "output": ()},
        {"input": (1,), "output": (1,), "per_channel": True},
    )
]


ILLEGAL = [
    *(
        (
            "rescale.e1",
            {"types": f"{bits}-bit to 8-bit", "input_zp": ZERO + value},
            f"input_zp is {value}, expected 0 for INT{bits}",
        )
        for bits, value in ((16, 1), (16, -32768), (32, 1), (32, -1))
    ),
    (
        "rescale.e1",
        SCALE16 | {"types": "48-bit to 8-bit", "input_zp": ZERO + (1 << 40)},
        f"input_zp is {1 << 40}, expected 0 for INT48",
    ),
    *(
        (
            "rescale.e2",
            {"types": f"8-bit to {bits}-bit", "output_zp": ZERO + value},
            f"output_zp is {value}, expected 0 for INT{bits}",
        )
        for bits, value in ((16, 1), (16, -32768), (32, 1), (32, -1))
    ),
    *(
        (
            "rescale.e3",
            UNSIGNED_IN | {"types": "16-bit to 8-bit", "input_zp": zero_point},
            f"input_zp is {value}, expected 0 or 32768 for uint16",
        )
        for zero_point, value in ((ZERO + 1, 1), (UINT16_MAX, 65535), (UINT16_HALF + 1, 32769))
    ),
    *(
        (
            "rescale.e4",
            UNSIGNED_OUT | {"types": "8-bit to 16-bit", "output_zp": zero_point},
            f"output_zp is {value}, expected 0 or 32768 for uint16",
        )
        for zero_point, value in ((ZERO + 1, 1), (UINT16_MAX, 65535), (ZERO + 32767, 32767))
    ),
    (
        "rescale.e5",
        {"types": "48-bit to 8-bit"},
        "scale32 is true, expected false for INT48 input",
    ),
    (
        "rescale.e6",
        SCALE16 | {"rounding_mode": RoundingMode.DOUBLE_ROUND},
        "rounding_mode is DOUBLE_ROUND, expected another without scale32",
    ),
    (
        "rescale.e7",
        UNSIGNED_IN | UNSIGNED_OUT,
        "input_unsigned and output_unsigned are true, expected one at most",
    ),
    (
        "rescale.e8",
        UNSIGNED_IN | {"types": "8-bit to 32-bit"},
        "input_unsigned is true, expected false for INT32 output",
    ),
    (
        "rescale.e9",
        UNSIGNED_OUT | {"types": "32-bit to 8-bit"},
        "output_unsigned is true, expected false for INT32 input",
    ),
    (
        "rescale.e10",
        SCALE16 | UNSIGNED_OUT | {"types": "48-bit to 8-bit"},
        "output_unsigned is true, expected false for INT48 input",
    ),
    (
        "rescale.e11",
        SCALE16 | UNSIGNED_IN | {"types": "48-bit to 8-bit"},
        "input_unsigned is true, expected false for INT48 input",
    ),
    (
        "rescale.e12",
        UNSIGNED_IN | {"types": "32-bit to 8-bit"},
        "input_unsigned is true, expected false for INT32 input",
    ),
    (
        "rescale.e13",
        UNSIGNED_OUT | {"types": "8-bit to 32-bit"},
        "output_unsigned is true, expected false for INT32 output",
    ),
    (
        "rescale.e14",
        {"per_channel": True, "input": (), "output": ()},
        "per_channel is true for input of rank 0, expected rank 1 or more",
    ),
    (
        "rescale.arguments",
        {"multiplier": INT16},
        "multiplier is INT16, expected INT32 as scale32 is true",
    ),
    (
        "rescale.arguments",
        {"scale32": False},
        "multiplier is INT32, expected INT16 as scale32 is false",
    ),
]
LENGTHS = [({}, 2, 1), (PER_CHANNEL, 2, 3), (PER_CHANNEL, 4, 3), (PER_CHANNEL, 1, 3)]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


@pytest.mark.parametrize(("label", "change", "message"), ILLEGAL, ids=[c[0] for c in ILLEGAL])
def test_illegal(findings, label, change, message):
    op = label.split(".")[0].upper()
    assert findings(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize(("change", "found", "wanted"), LENGTHS)
def test_rescale_lengths(findings, change, found, wanted):
    lists = {"multiplier": INT32.repeat(found), "shift": np.full(found, 30)}
    assert findings("RESCALE", LEGAL["RESCALE"] | change | lists) == [
        ("rescale.arguments", f"{name} has {found} elements, expected {wanted}") for name in lists
    ]


@pytest.mark.parametrize("op", LEGAL)
@pytest.mark.parametrize("shape", [(), (4,), (1, 2, 3, 4)], ids=str)
def test_shape(derived, op, shape):
    assert derived(op, LEGAL[op] | {"input": shape}) == shape
