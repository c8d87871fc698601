"""Rule of "Reduction Operators"."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.io.pre_1_0.step import Step


def reduce_sum(step: Step) -> None:
    """Notes a difference: BF16 has a wider accumulator in 1.0."""
    if step.dtype(step.input(0)) is DType.BF16:
        step.note("kept", "it adds up in FP32, not in BF16, and rounds once")
    step.keep()
