"""Rules of pooling: every label, both sides of every bound, the shape by counting windows."""

from __future__ import annotations

import numpy as np
import pytest

ZERO = np.zeros(1)
WINDOW = {
    "types": "signed 8",
    "input": (1, 9, 12, 2),
    "kernel": (3, 4),
    "stride": (2, 3),
    "pad": (1, 1, 2, 2),
    "output": (1, 5, 5, 2),
}
LEGAL = {
    "AVG_POOL2D": WINDOW
    | {"types": "signed 8 with int32 accumulate", "input_zp": ZERO, "output_zp": ZERO},
    "MAX_POOL2D": WINDOW,
}
BOUNDARY = [
    ("AVG_POOL2D", {"input_zp": ZERO - 128, "output_zp": ZERO + 127}),
    *(
        (op, change)
        for op in LEGAL
        for change in (
            {"kernel": (1, 4), "pad": (0, 0, 2, 2)},
            {"kernel": (3, 1), "pad": (1, 1, 0, 0), "output": (1, 5, 4, 2), "stride": (2, 3)}
            | {"input": (1, 9, 10, 2)},
            {"stride": (1, 3), "output": (1, 9, 5, 2)},
            {"stride": (2, 1), "output": (1, 5, 13, 2)},
            {"pad": (0, 0, 2, 2), "output": (1, 4, 5, 2)},
            {"pad": (1, 1, 0, 2), "input": (1, 9, 14, 2)},
            {"pad": (2, 2, 2, 2), "output": (1, 6, 5, 2)},
            {"pad": (1, 1, 3, 3), "input": (1, 9, 10, 2)},
            # One window that is as large as the input.
            {"kernel": (9, 12), "pad": (0, 0, 0, 0), "output": (1, 1, 1, 2)},
        )
    ),
]


def window_cases(op, first):
    kernel, stride, pad, pad_x, pad_y, rows, columns = (f"{op}.e{first + i}" for i in range(7))
    x, y = (
        "pad is {} left and {} right, expected less than kernel_x 4",
        "pad is {} top and {} bottom",
    )
    y += ", expected less than kernel_y 3"
    return [
        (kernel, {"kernel": (0, 4)}, "kernel is (0, 4), expected values of at least 1"),
        (kernel, {"kernel": (3, 0)}, "kernel is (3, 0), expected values of at least 1"),
        (stride, {"stride": (0, 3)}, "stride is (0, 3), expected values of at least 1"),
        (stride, {"stride": (2, -1)}, "stride is (2, -1), expected values of at least 1"),
        *(
            (pad, {"pad": wrong}, f"pad is {wrong}, expected values of at least 0")
            for wrong in ((-1, 1, 2, 2), (1, -1, 2, 2), (1, 1, -1, 2), (1, 1, 2, -1))
        ),
        (pad_x, {"pad": (1, 1, 4, 2), "input": (1, 9, 10, 2)}, x.format(4, 2)),
        (pad_x, {"pad": (1, 1, 2, 4), "input": (1, 9, 10, 2)}, x.format(2, 4)),
        (pad_y, {"pad": (3, 1, 2, 2), "output": (1, 6, 5, 2)}, y.format(3, 1)),
        (pad_y, {"pad": (1, 3, 2, 2), "output": (1, 6, 5, 2)}, y.format(1, 3)),
        (rows, {"output": (1, 4, 5, 2)}, "output has OH 4, expected 5"),
        (rows, {"output": (1, 6, 5, 2)}, "output has OH 6, expected 5"),
        (
            rows,
            {"pad": (1, 0, 2, 2), "output": (1, 4, 5, 2)},
            "stride_y is 2, expected a divisor of 7 to fill OH",
        ),
        (
            rows,
            {"pad": (0, 0, 2, 2), "input": (1, 1, 12, 2), "output": (1, 1, 5, 2)},
            "output has OH 1, the input is too small by 2 for 1",
        ),
        (columns, {"output": (1, 5, 4, 2)}, "output has OW 4, expected 5"),
        (columns, {"output": (1, 5, 6, 2)}, "output has OW 6, expected 5"),
        (
            columns,
            {"pad": (1, 1, 2, 0), "output": (1, 5, 4, 2)},
            "stride_x is 3, expected a divisor of 10 to fill OW",
        ),
    ]


ILLEGAL = [
    (
        "avg_pool2d.e1",
        {"types": "signed 16 with int32 accumulate", "input_zp": ZERO + 1},
        "input_zp is 1, expected 0 for INT16",
    ),
    (
        "avg_pool2d.e2",
        {"types": "fp32 with fp32 accumulate", "output_zp": ZERO - 0.5},
        "output_zp is -0.5, expected 0 for FP32",
    ),
    *window_cases("avg_pool2d", 3),
    *window_cases("max_pool2d", 1),
]
ABOVE = [
    (f"{op}.l{number}", change, f"{name} is 8193, expected at most 8192 ({bound})")
    for op in ("avg_pool2d", "max_pool2d")
    for number, name, bound, change in (
        (1, "kernel_y", "MAX_KERNEL", {"kernel": (8193, 8192)}),
        (2, "kernel_x", "MAX_KERNEL", {"kernel": (8192, 8193)}),
        (3, "stride_y", "MAX_STRIDE", {"stride": (8193, 8192)}),
        (4, "stride_x", "MAX_STRIDE", {"stride": (8192, 8193)}),
        (5, "pad_top", "MAX_KERNEL", {"pad": (8193, 8192, 8192, 8192)}),
        (6, "pad_bottom", "MAX_KERNEL", {"pad": (8192, 8193, 8192, 8192)}),
        (7, "pad_left", "MAX_KERNEL", {"pad": (8192, 8192, 8193, 8192)}),
        (8, "pad_right", "MAX_KERNEL", {"pad": (8192, 8192, 8192, 8193)}),
    )
]
WITHIN = [(op, {"kernel": (8192,) * 2, "stride": (8192,) * 2, "pad": (8192,) * 4}) for op in LEGAL]


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


def positions(size, before, after, kernel, stride):
    """Counts the windows that lie in the padded input."""
    starts = range(-before, size + after, stride)
    return sum(start + kernel <= size + after for start in starts)


@pytest.mark.parametrize("op", LEGAL)
def test_shape(derived, op):
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, channels = rng.integers(1, 4, 2).tolist()
        kernel, stride = rng.integers(1, 5, (2, 2)).tolist()
        top, bottom = rng.integers(0, kernel[0], 2).tolist()
        left, right = rng.integers(0, kernel[1], 2).tolist()
        height, width = (rng.integers(k, k + 9) for k in kernel)
        change = {
            "input": (n, int(height), int(width), channels),
            "kernel": tuple(kernel),
            "stride": tuple(stride),
            "pad": (top, bottom, left, right),
        }
        rows = positions(height, top, bottom, kernel[0], stride[0])
        columns = positions(width, left, right, kernel[1], stride[1])
        assert derived(op, LEGAL[op] | change) == (n, rows, columns, channels)
