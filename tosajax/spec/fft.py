"""Table of the operators of "Tensor Operators", Fourier transforms (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.model import Accuracy, Operator, result, rows, scalar, tensor

_FLOATS = rows(
    "in_out_t",
    ("EXT-FFT", "fp32", "FP32"),
)

FFT2D = Operator(
    "FFT2D",
    chapter="fft",
    section="2.3.6",
    number=6,
    instruction=5,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("input_real", "in_out_t", "[N, H, W]"),
        tensor("input_imag", "in_out_t", "[N, H, W]"),
        scalar("inverse", bool),
        scalar("local_bound", bool, default=False),
        result("output_real", "in_out_t", "[N, H, W]"),
        result("output_imag", "in_out_t", "[N, H, W]"),
    ),
    types=_FLOATS,
)

RFFT2D = Operator(
    "RFFT2D",
    chapter="fft",
    section="2.3.9",
    number=9,
    instruction=8,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("input_real", "in_out_t", "[N, H, W]"),
        scalar("local_bound", bool, default=False),
        result("output_real", "in_out_t", "[N, H, W/2 + 1]"),
        result("output_imag", "in_out_t", "[N, H, W/2 + 1]"),
    ),
    types=_FLOATS,
)

OPERATORS = (
    FFT2D,
    RFFT2D,
)
