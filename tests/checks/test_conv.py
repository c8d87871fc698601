"""Rules of convolutions: every label, both sides of every bound, shapes by counting."""

from __future__ import annotations

import numpy as np
import pytest

ZERO = np.zeros(1)
FILTER = {
    "types": "signed 8x8 with int32 accumulate",
    "bias": (6,),
    "input_zp": ZERO,
    "weight_zp": ZERO,
}
PLANE = FILTER | {
    "input": (1, 9, 12, 3),
    "pad": (1, 3, 2, 2),
    "stride": (2, 3),
    "dilation": (3, 2),
    "output": (1, 4, 4, 6),
}
LEGAL = {
    "CONV2D": PLANE | {"weight": (6, 3, 4, 3)},
    "CONV3D": FILTER
    | {
        "input": (1, 5, 9, 12, 3),
        "weight": (6, 2, 3, 4, 3),
        "pad": (0, 1, 1, 3, 2, 2),
        "stride": (1, 2, 3),
        "dilation": (2, 3, 2),
        "output": (1, 4, 4, 4, 6),
    },
    "DEPTHWISE_CONV2D": PLANE | {"weight": (3, 4, 3, 2)},
    "TRANSPOSE_CONV2D": FILTER
    | {
        "input": (1, 3, 4, 3),
        "weight": (6, 3, 4, 3),
        "out_pad": (1, -2, 2, -3),
        "stride": (2, 3),
        "output": (1, 6, 12, 6),
    },
}


def with_depth(change):
    """The same change for CONV3D, whose lists and shapes have one more dimension in front."""
    depth = {"pad": (0, 1), "stride": (1,), "dilation": (2,)}
    changed = {name: depth.get(name, ()) + value for name, value in change.items() if name in depth}
    for name, size in (("input", 5), ("output", 4), ("weight", 2)):
        if name in change:
            changed[name] = (change[name][0], size, *change[name][1:])
    return {name: value for name, value in change.items() if name not in changed} | changed


EDGES = [
    {"bias": (1,)},
    {"pad": (0, 0, 2, 2), "input": (1, 9, 12, 3), "output": (1, 2, 4, 6)},
    {"pad": (1, 3, 0, 0), "input": (1, 9, 13, 3), "output": (1, 4, 3, 6)},
    {"stride": (1, 3), "output": (1, 7, 4, 6)},
    {"stride": (2, 1), "output": (1, 4, 10, 6)},
    {"dilation": (1, 2), "output": (1, 6, 4, 6)},
    {"dilation": (3, 1), "output": (1, 4, 5, 6)},
    # One position of a filter that is as large as the padded input.
    {"pad": (0, 0, 0, 0), "input": (1, 7, 7, 3), "output": (1, 1, 1, 6)},
]
BOUNDARY = [
    *((op, {"input_zp": ZERO - 128, "weight_zp": ZERO + 127}) for op in LEGAL),
    *((op, change) for op in ("CONV2D", "DEPTHWISE_CONV2D") for change in EDGES),
    *(("CONV3D", with_depth(change)) for change in EDGES),
    ("CONV3D", {"stride": (3, 2, 3), "output": (1, 2, 4, 4, 6)}),
    ("CONV3D", {"dilation": (1, 3, 2), "output": (1, 5, 4, 4, 6)}),
    ("TRANSPOSE_CONV2D", {"bias": (1,)}),
    ("TRANSPOSE_CONV2D", {"out_pad": (-2, -2, 2, -3), "output": (1, 3, 12, 6)}),
    ("TRANSPOSE_CONV2D", {"out_pad": (1, -2, -3, -3), "output": (1, 6, 7, 6)}),
    ("TRANSPOSE_CONV2D", {"stride": (1, 3), "output": (1, 4, 12, 6)}),
    ("TRANSPOSE_CONV2D", {"stride": (2, 1), "output": (1, 6, 6, 6)}),
    # OC and 1 are the same where there is one channel.
    ("CONV2D", {"weight": (1, 3, 4, 3), "bias": (1,), "output": (1, 4, 4, 1)}),
]


def zero_point_cases(op):
    return [
        (
            f"{op}.e1",
            {"types": "signed 16x8 with int48 accumulate", "input_zp": ZERO + 1},
            "input_zp is 1, expected 0 for INT16",
        ),
        (
            f"{op}.e1",
            {"types": "fp8e4m3 with fp16 accumulate", "input_zp": ZERO + 2},
            "input_zp is 2, expected 0 for FP8E4M3",
        ),
        (
            f"{op}.e2",
            {"types": "signed 8x4 with int32 accumulate", "weight_zp": ZERO - 1},
            "weight_zp is -1, expected 0 for INT4",
        ),
        (
            f"{op}.e2",
            {"types": "bf16 with fp32 accumulate", "weight_zp": ZERO + 1},
            "weight_zp is 1, expected 0 for BF16",
        ),
    ]


def plane_cases(op):
    return [
        *zero_point_cases(op),
        *(
            (f"{op}.e3", {"pad": pad}, f"pad is {pad}, expected values of at least 0")
            for pad in ((-1, 3, 2, 2), (1, -1, 2, 2), (1, 3, -1, 2), (1, 3, 2, -1))
        ),
        (f"{op}.e4", {"stride": (0, 3)}, "stride is (0, 3), expected values of at least 1"),
        (f"{op}.e4", {"stride": (2, 0)}, "stride is (2, 0), expected values of at least 1"),
        (f"{op}.e5", {"dilation": (0, 2)}, "dilation is (0, 2), expected values of at least 1"),
        (f"{op}.e5", {"dilation": (3, -2)}, "dilation is (3, -2), expected values of at least 1"),
        (f"{op}.e6", {"output": (1, 5, 4, 6)}, "output has OH 5, expected 4"),
        (f"{op}.e6", {"output": (1, 3, 4, 6)}, "output has OH 3, expected 4"),
        (
            f"{op}.e6",
            {"pad": (1, 4, 2, 2)},
            "stride_y is 2, expected a divisor of 7 to fill OH",
        ),
        (
            f"{op}.e6",
            {"input": (1, 1, 12, 3), "output": (1, 1, 4, 6)},
            "output has OH 1, the input is too small by 2 for 1",
        ),
        (f"{op}.e7", {"output": (1, 4, 3, 6)}, "output has OW 3, expected 4"),
        (f"{op}.e7", {"output": (1, 4, 5, 6)}, "output has OW 5, expected 4"),
        (
            f"{op}.e7",
            {"pad": (1, 3, 2, 1)},
            "stride_x is 3, expected a divisor of 8 to fill OW",
        ),
        (f"{op}.e8", {"bias": (5,)}, "bias has 5 channels, expected 1 or 6"),
        (f"{op}.e8", {"bias": (2,)}, "bias has 2 channels, expected 1 or 6"),
    ]


ILLEGAL = [
    *plane_cases("conv2d"),
    *plane_cases("depthwise_conv2d"),
    (
        "depthwise_conv2d.arguments",
        {"output": (1, 4, 4, 5)},
        "output has 5 channels, expected 6, C * M",
    ),
    *zero_point_cases("conv3d"),
    *(
        ("conv3d.e3", {"pad": pad}, f"pad is {pad}, expected values of at least 0")
        for pad in (
            (-1, 1, 1, 3, 2, 2),
            (0, -1, 1, 3, 2, 2),
            (0, 1, -1, 3, 2, 2),
            (0, 1, 1, -1, 2, 2),
            (0, 1, 1, 3, -1, 2),
            (0, 1, 1, 3, 2, -1),
        )
    ),
    *(
        ("conv3d.e4", {"stride": stride}, f"stride is {stride}, expected values of at least 1")
        for stride in ((0, 2, 3), (1, 0, 3), (1, 2, 0))
    ),
    *(
        ("conv3d.e5", {"dilation": wrong}, f"dilation is {wrong}, expected values of at least 1")
        for wrong in ((0, 3, 2), (2, 0, 2), (2, 3, 0))
    ),
    ("conv3d.e6", {"output": (1, 5, 4, 4, 6)}, "output has OD 5, expected 4"),
    (
        "conv3d.e6",
        {"stride": (2, 2, 3)},
        "stride_d is 2, expected a divisor of 3 to fill OD",
    ),
    ("conv3d.e7", {"output": (1, 4, 5, 4, 6)}, "output has OH 5, expected 4"),
    (
        "conv3d.e7",
        {"pad": (0, 1, 1, 4, 2, 2)},
        "stride_y is 2, expected a divisor of 7 to fill OH",
    ),
    ("conv3d.e8", {"output": (1, 4, 4, 5, 6)}, "output has OW 5, expected 4"),
    (
        "conv3d.e8",
        {"pad": (0, 1, 1, 3, 2, 3)},
        "stride_x is 3, expected a divisor of 10 to fill OW",
    ),
    ("conv3d.e9", {"bias": (5,)}, "bias has 5 channels, expected 1 or 6"),
    *zero_point_cases("transpose_conv2d"),
    (
        "transpose_conv2d.e3",
        {"out_pad": (-3, 2, 2, -3)},
        "out_pad is -3 top and 2 bottom, expected more than -3, minus KH",
    ),
    (
        "transpose_conv2d.e3",
        {"out_pad": (2, -3, 2, -3)},
        "out_pad is 2 top and -3 bottom, expected more than -3, minus KH",
    ),
    (
        "transpose_conv2d.e4",
        {"out_pad": (1, -2, -4, 3)},
        "out_pad is -4 left and 3 right, expected more than -4, minus KW",
    ),
    (
        "transpose_conv2d.e4",
        {"out_pad": (1, -2, 3, -4)},
        "out_pad is 3 left and -4 right, expected more than -4, minus KW",
    ),
    ("transpose_conv2d.e5", {"stride": (0, 3)}, "stride is (0, 3), expected values of at least 1"),
    ("transpose_conv2d.e5", {"stride": (2, 0)}, "stride is (2, 0), expected values of at least 1"),
    ("transpose_conv2d.e6", {"output": (1, 7, 12, 6)}, "output has OH 7, expected 6"),
    ("transpose_conv2d.e7", {"output": (1, 6, 11, 6)}, "output has OW 11, expected 12"),
    ("transpose_conv2d.e8", {"bias": (3,)}, "bias has 3 channels, expected 1 or 6"),
]


def above(op, number, name, change, found=8193, bound="MAX_KERNEL"):
    return f"{op}.l{number}", change, f"{name} is {found}, expected at most 8192 ({bound})"


def one_above(length, position, rest=8192):
    return tuple(8193 if i == position else rest for i in range(length))


ABOVE = [
    *(
        case
        for op in ("conv2d", "depthwise_conv2d")
        for case in (
            above(op, 1, "dilation_y * KH", {"dilation": (2731, 2048)}),
            above(op, 2, "dilation_x * KW", {"dilation": (2730, 2049)}, 8196),
            above(op, 3, "pad_top", {"pad": one_above(4, 0)}),
            above(op, 4, "pad_bottom", {"pad": one_above(4, 1)}),
            above(op, 5, "pad_left", {"pad": one_above(4, 2)}),
            above(op, 6, "pad_right", {"pad": one_above(4, 3)}),
            above(op, 7, "stride_y", {"stride": one_above(2, 0)}, bound="MAX_STRIDE"),
            above(op, 8, "stride_x", {"stride": one_above(2, 1)}, bound="MAX_STRIDE"),
        )
    ),
    above("conv3d", 1, "dilation_d * KD", {"dilation": (4097, 2730, 2048)}, 8194),
    above("conv3d", 2, "dilation_y * KH", {"dilation": (4096, 2731, 2048)}),
    above("conv3d", 3, "dilation_x * KW", {"dilation": (4096, 2730, 2049)}, 8196),
    above("conv3d", 4, "pad_d0", {"pad": one_above(6, 0)}),
    above("conv3d", 5, "pad_d1", {"pad": one_above(6, 1)}),
    above("conv3d", 6, "pad_top", {"pad": one_above(6, 2)}),
    above("conv3d", 7, "pad_bottom", {"pad": one_above(6, 3)}),
    above("conv3d", 8, "pad_left", {"pad": one_above(6, 4)}),
    above("conv3d", 9, "pad_right", {"pad": one_above(6, 5)}),
    above("conv3d", 10, "stride_y", {"stride": one_above(3, 1)}, bound="MAX_STRIDE"),
    above("conv3d", 11, "stride_x", {"stride": one_above(3, 2)}, bound="MAX_STRIDE"),
    above("conv3d", 12, "stride_d", {"stride": one_above(3, 0)}, bound="MAX_STRIDE"),
    above("transpose_conv2d", 1, "weight's KH", {"weight": (6, 8193, 8192, 3)}),
    above("transpose_conv2d", 2, "weight's KW", {"weight": (6, 8192, 8193, 3)}),
    above("transpose_conv2d", 3, "out_pad_top", {"out_pad": one_above(4, 0)}),
    above("transpose_conv2d", 4, "out_pad_bottom", {"out_pad": one_above(4, 1)}),
    above("transpose_conv2d", 5, "out_pad_left", {"out_pad": one_above(4, 2)}),
    above("transpose_conv2d", 6, "out_pad_right", {"out_pad": one_above(4, 3)}),
    above("transpose_conv2d", 7, "stride_y", {"stride": one_above(2, 0)}, bound="MAX_STRIDE"),
    above("transpose_conv2d", 8, "stride_x", {"stride": one_above(2, 1)}, bound="MAX_STRIDE"),
]
MOST = {"pad": (8192,) * 4, "stride": (8192,) * 2}
WITHIN = [
    ("CONV2D", MOST | {"weight": (6, 8192, 2, 3), "dilation": (1, 4096)}),
    ("DEPTHWISE_CONV2D", MOST | {"weight": (8192, 2, 3, 2), "dilation": (1, 4096)}),
    (
        "CONV3D",
        {
            "weight": (6, 8192, 2, 1, 3),
            "dilation": (1, 4096, 8192),
            "pad": (8192,) * 6,
            "stride": (8192,) * 3,
        },
    ),
    (
        "TRANSPOSE_CONV2D",
        {"weight": (6, 8192, 8192, 3), "out_pad": (8192,) * 4, "stride": (8192,) * 2},
    ),
]


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


def positions(size, before, after, kernel, dilation, stride):
    """Counts the positions at which all taps of a filter lie in the padded input."""
    padded = range(-before, size + after)
    starts = range(-before, size + after, stride)
    return sum(all(start + k * dilation in padded for k in range(kernel)) for start in starts)


@pytest.mark.parametrize("op", ["CONV2D", "CONV3D", "DEPTHWISE_CONV2D"])
def test_shape(derived, op):
    rng = np.random.default_rng(0)
    rank = 3 if op == "CONV3D" else 2
    for _ in range(200):
        n, channels, multiplier = rng.integers(1, 4, 3).tolist()
        kernel, dilation, stride = rng.integers(1, 4, (3, rank)).tolist()
        before, after = rng.integers(0, 4, (2, rank)).tolist()
        sizes = [
            int(rng.integers((k - 1) * d + 1, 12)) for k, d in zip(kernel, dilation, strict=True)
        ]
        wanted = [
            positions(sizes[i], before[i], after[i], kernel[i], dilation[i], stride[i])
            for i in range(rank)
        ]
        depthwise = op == "DEPTHWISE_CONV2D"
        change = {
            "input": (n, *sizes, channels),
            "weight": (*kernel, channels, multiplier)
            if depthwise
            else (multiplier, *kernel, channels),
            "pad": tuple(p for pair in zip(before, after, strict=True) for p in pair),
            "stride": tuple(stride),
            "dilation": tuple(dilation),
        }
        outputs = channels * multiplier if depthwise else multiplier
        assert derived(op, LEGAL[op] | change) == (n, *wanted, outputs)


def test_transpose_conv2d_shape(derived):
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, channels, outputs, height, width = rng.integers(1, 5, 5).tolist()
        kernel, stride = rng.integers(1, 5, (2, 2)).tolist()
        pads = [rng.integers(1 - k, 4, 2).tolist() for k in kernel]
        wanted = []
        for size, k, step, pad in zip((height, width), kernel, stride, pads, strict=True):
            touched = [position * step + tap for position in range(size) for tap in range(k)]
            wanted.append(max(touched) + 1 + sum(pad))
        change = {
            "input": (n, height, width, channels),
            "weight": (outputs, *kernel, channels),
            "out_pad": (*pads[0], *pads[1]),
            "stride": tuple(stride),
        }
        found = derived("TRANSPOSE_CONV2D", LEGAL["TRANSPOSE_CONV2D"] | change)
        assert found == (n, *wanted, outputs)
