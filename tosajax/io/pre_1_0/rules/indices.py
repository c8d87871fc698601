"""Rule of "Tensor Operators", ARGMAX."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import Step


def argmax(step: Step) -> None:
    """Notes a difference for NaN: 1.0 returns the first NaN, before 1.0 it was the last element."""
    if step.dtype(step.input(0)).is_float:
        step.note("kept", "where there are NaNs, the result is the first, not the last element")
    step.keep()
