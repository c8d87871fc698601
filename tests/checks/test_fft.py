"""Rules of FFT2D and RFFT2D: every label, both sides of every bound."""

from __future__ import annotations

import numpy as np
import pytest

LEGAL = {
    "FFT2D": {
        "input_real": (3, 4, 8),
        "input_imag": (3, 4, 8),
        "inverse": False,
        "output_real": (3, 4, 8),
        "output_imag": (3, 4, 8),
    },
    "RFFT2D": {
        "input_real": (3, 4, 8),
        "output_real": (3, 4, 5),
        "output_imag": (3, 4, 5),
    },
}


def _planes(op, n, height, width):
    """The arguments for one size of plane."""
    columns = width // 2 + 1 if op == "RFFT2D" else width
    return {
        name: (n, height, columns if name.startswith("output") else width)
        for name in LEGAL[op]
        if name != "inverse"
    }


BOUNDARY = [
    *((op, _planes(op, 1, *size)) for op in LEGAL for size in ((1, 1), (2, 1), (1, 2), (64, 1))),
    ("FFT2D", {"inverse": True, "local_bound": True}),
    ("RFFT2D", {"local_bound": True}),
]
ILLEGAL = [
    *(
        (f"{op.lower()}.{rule}", _planes(op, 1, *size), f"input_real has {message}")
        for op in LEGAL
        for rule, size, message in (
            ("e1", (3, 8), "H 3, expected a power of two"),
            ("e1", (12, 1), "H 12, expected a power of two"),
            ("e2", (4, 6), "W 6, expected a power of two"),
            ("e2", (1, 7), "W 7, expected a power of two"),
        )
    ),
    (
        "rfft2d.arguments",
        {"output_real": (3, 4, 8)},
        "output_real has shape (3, 4, 8), expected (3, 4, 5)",
    ),
    (
        "rfft2d.arguments",
        {"output_imag": (3, 4, 4)},
        "output_imag has shape (3, 4, 4), expected (3, 4, 5)",
    ),
]
ABOVE = [
    (
        f"{op.lower()}.{rule}",
        _planes(op, 1, *size),
        f"{name} is {max(size)}, expected at most 8192 (MAX_KERNEL)",
    )
    for op in LEGAL
    for rule, name, size in (("l1", "H", (16384, 2)), ("l2", "W", (2, 16384)))
]
WITHIN = [(op, _planes(op, 1, 8192, 8192)) for op in LEGAL]
# Dimensions of one name.
MISMATCHED = [
    ("FFT2D", {"input_imag": (2, 4, 8)}, "FP32[2,4,8]: N is 2, expected 3 as in input_real"),
    ("FFT2D", {"input_imag": (3, 4, 4)}, "FP32[3,4,4]: W is 4, expected 8 as in input_real"),
    ("FFT2D", {"output_real": (3, 8, 8)}, "FP32[3,8,8]: H is 8, expected 4 as in input_real"),
    ("FFT2D", {"output_imag": (3, 4, 5)}, "FP32[3,4,5]: W is 5, expected 8 as in input_real"),
    ("RFFT2D", {"output_real": (2, 4, 5)}, "FP32[2,4,5]: N is 2, expected 3 as in input_real"),
    ("RFFT2D", {"output_imag": (3, 8, 5)}, "FP32[3,8,5]: H is 8, expected 4 as in input_real"),
]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


@pytest.mark.parametrize(("label", "change", "message"), ILLEGAL, ids=[c[0] for c in ILLEGAL])
def test_illegal(findings, label, change, message):
    op = label.split(".")[0].upper()
    assert findings(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize(("op", "change", "message"), MISMATCHED)
def test_dimensions_of_one_name(findings, op, change, message):
    ((label, found),) = findings(op, LEGAL[op] | change)
    assert label == f"{op.lower()}.shape"
    assert found.endswith(message)


@pytest.mark.parametrize(("label", "change", "message"), ABOVE, ids=[c[0] for c in ABOVE])
def test_level(exceeded, label, change, message):
    op = label.split(".")[0].upper()
    assert exceeded(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize(("op", "change"), WITHIN)
def test_level_boundary(exceeded, findings, op, change):
    assert exceeded(op, LEGAL[op] | change) == []
    assert findings(op, LEGAL[op] | change) == []


def test_shape(derived):
    for n, height, width in ((1, 1, 1), (2, 1, 2), (1, 8, 16), (3, 16, 4)):
        planes = np.zeros((n, height, width))
        for op, wanted in (("FFT2D", np.fft.fft2(planes)), ("RFFT2D", np.fft.rfft2(planes))):
            assert derived(op, LEGAL[op] | _planes(op, n, height, width)) == wanted.shape
