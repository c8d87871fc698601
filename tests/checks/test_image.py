"""Rules of RESIZE: every label, both sides of every bound, the shape by counting samples."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax.spec import ResizeMode

LEGAL = {
    "RESIZE": {
        "types": "signed 8, bilinear",
        "input": (1, 5, 7, 2),
        "scale": [4, 2, 6, 3],
        "offset": [-1, 2],
        "border": [1, -1],
        "mode": ResizeMode.BILINEAR,
        "output": (1, 10, 12, 2),
    }
}
NEAREST = {"types": "signed 8, nearest", "mode": ResizeMode.NEAREST_NEIGHBOR}


def spread(scale_n, scale_d, size, offset, border):
    """A change of both dimensions alike, with the output that follows for it."""
    samples = ((size - 1) * scale_n - offset + border) // scale_d + 1
    return {
        "input": (1, size, size, 1),
        "scale": [scale_n, scale_d] * 2,
        "offset": [offset] * 2,
        "border": [border] * 2,
        "output": (1, samples, samples, 1),
    }


BOUNDARY = [
    ("RESIZE", change)
    for change in (
        NEAREST,
        {"types": "fp32", "mode": ResizeMode.NEAREST_NEIGHBOR},
        {"types": "fp32", "mode": ResizeMode.BILINEAR},
        {"types": "signed 16, bilinear"},
        spread(1, 1, 1, 0, 0),
        spread(1, 15, 31, 0, 0),
        spread(4, 63, 64, 0, 0),
        spread(2048, 2048, 3, 0, 0),
        spread(256, 2049, 2050, 0, 0),
        spread(4, 1, 3, -4, 3),
        spread(4, 1, 20, 63, -1),
        spread(4, 1, 20, 4, -64),
        {"input": (1, 16383, 1, 1), "output": (1, 16383, 1, 1)}
        | {"scale": [1, 1, 1, 1], "offset": [0, 0], "border": [0, 0]},
        {"input": (1, 1, 16383, 1), "output": (1, 1, 16383, 1)}
        | {"scale": [1, 1, 1, 1], "offset": [0, 0], "border": [0, 0]},
    )
]
HUGE = {"scale": [1, 1, 1, 1], "offset": [0, 0], "border": [0, 0]}
ILLEGAL = [
    (
        "resize.arguments",
        {"mode": ResizeMode.NEAREST_NEIGHBOR},
        "output is INT32, expected INT8 in mode NEAREST_NEIGHBOR",
    ),
    (
        "resize.arguments",
        NEAREST | {"mode": ResizeMode.BILINEAR},
        "output is INT8, expected INT32 in mode BILINEAR",
    ),
    ("resize.arguments", {"scale": [4, 2, 6]}, "scale has 3 elements, expected 4"),
    ("resize.arguments", {"offset": [1]}, "offset has 1 elements, expected 2"),
    ("resize.arguments", {"border": [1, 1, 1]}, "border has 3 elements, expected 2"),
    (
        "resize.e1",
        HUGE
        | {"input": (1, 16384, 1, 1), "border": [-1, 0], "output": (1, 16383, 1, 1)}
        | {"scale": [1, 1, 1, 1]},
        "input is 16384 x 1, expected less than 16384 in both",
    ),
    (
        "resize.e1",
        HUGE | {"input": (1, 1, 16384, 1), "border": [0, -1], "output": (1, 1, 16383, 1)},
        "input is 1 x 16384, expected less than 16384 in both",
    ),
    (
        "resize.e1",
        HUGE | {"input": (1, 16383, 1, 1), "offset": [-1, 0], "output": (1, 16384, 1, 1)},
        "output is 16384 x 1, expected less than 16384 in both",
    ),
    (
        "resize.e1",
        HUGE | {"input": (1, 1, 16383, 1), "offset": [0, -1], "output": (1, 1, 16384, 1)},
        "output is 1 x 16384, expected less than 16384 in both",
    ),
    *(
        ("resize.e2", {"scale": scale}, f"scale is {tuple(scale)}, expected values of at least 1")
        for scale in ([0, 2, 6, 3], [4, 0, 6, 3], [4, 2, 0, 3], [4, 2, 6, 0], [4, 2, 6, -3])
    ),
    *(
        (
            "resize.e3",
            spread(4, 1, 1, 0, 0) | {"scale": scale},
            f"scale is {tuple(scale)}, expected numerators of at most 2048",
        )
        for scale in ([2049, 16, 4, 1], [4, 1, 2049, 16])
    ),
    *(
        (
            "resize.e4",
            spread(4, 1, 1, 0, 0) | {"scale": scale},
            f"scale is {tuple(scale)}, expected denominators below 16 times the numerator",
        )
        for scale in ([4, 64, 4, 1], [4, 1, 1, 16])
    ),
    ("resize.e5", {"offset": [-5, 2]}, "offset_y is -5, expected -4 to 63"),
    ("resize.e5", {"offset": [64, 2]}, "offset_y is 64, expected -4 to 63"),
    ("resize.e6", {"offset": [-1, -7]}, "offset_x is -7, expected -6 to 95"),
    ("resize.e6", {"offset": [-1, 96]}, "offset_x is 96, expected -6 to 95"),
    ("resize.e7", {"border": [-65, -1]}, "border_y is -65, expected -64 to 3"),
    ("resize.e7", {"border": [4, -1]}, "border_y is 4, expected -64 to 3"),
    ("resize.e8", {"border": [1, -97]}, "border_x is -97, expected -96 to 5"),
    ("resize.e8", {"border": [1, 6]}, "border_x is 6, expected -96 to 5"),
    ("resize.e9", {"output": (1, 9, 12, 2)}, "output has OH 9, expected 10"),
    ("resize.e9", {"output": (1, 11, 12, 2)}, "output has OH 11, expected 10"),
    ("resize.e9", {"border": [0, -1]}, "scale_y_d is 2, expected a divisor of 17 to fill OH"),
    (
        "resize.e9",
        {"offset": [17, 2], "border": [-1, -1]},
        "output has OH 10, the input is too small by 2 for 1",
    ),
    ("resize.e10", {"output": (1, 10, 11, 2)}, "output has OW 11, expected 12"),
    ("resize.e10", {"border": [1, 0]}, "scale_x_d is 3, expected a divisor of 34 to fill OW"),
]
ABOVE = [
    (
        "resize.l1",
        {"scale": [257, 1, 256, 1]},
        "scale_y_n / scale_y_d is 257, expected at most 256 (MAX_SCALE)",
    ),
    (
        "resize.l2",
        {"scale": [512, 2, 514, 2]},
        "scale_x_n / scale_x_d is 257, expected at most 256 (MAX_SCALE)",
    ),
]
# The ratio is the quotient of integers: 513 / 2 is 256.
WITHIN = [("RESIZE", {"scale": [256, 1, 513, 2]}), ("RESIZE", {"scale": [4, 0, 4, 1]})]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


@pytest.mark.parametrize(("label", "change", "message"), ILLEGAL, ids=[c[0] for c in ILLEGAL])
def test_illegal(findings, label, change, message):
    op = label.split(".")[0].upper()
    assert findings(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize(("label", "change", "message"), ABOVE, ids=[c[0] for c in ABOVE])
def test_level(exceeded, label, change, message):
    op = label.split(".")[0].upper()
    assert exceeded(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize(("op", "change"), WITHIN)
def test_level_boundary(exceeded, op, change):
    assert exceeded(op, LEGAL[op] | change) == []


def samples(size, scale_n, scale_d, offset, border):
    """Counts the samples up to the last input position and the border beyond it."""
    count = 0
    while count * scale_d + offset <= (size - 1) * scale_n + border:
        count += 1
    return count


def test_shape(derived):
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, height, width, channels = rng.integers(1, 6, 4).tolist()
        scale_n, scale_d = rng.integers(1, 9, (2, 2)).tolist()
        offset = [int(rng.integers(-s, s)) for s in scale_n]
        border = [int(rng.integers(-s, s)) for s in scale_n]
        wanted = [
            samples(size, scale_n[i], scale_d[i], offset[i], border[i])
            for i, size in enumerate((height, width))
        ]
        change = {
            "input": (n, height, width, channels),
            "scale": [scale_n[0], scale_d[0], scale_n[1], scale_d[1]],
            "offset": offset,
            "border": border,
        }
        if min(wanted) > 0:
            found = derived("RESIZE", LEGAL["RESIZE"] | change)
            assert found == (n, *wanted, channels)
