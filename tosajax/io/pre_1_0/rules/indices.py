"""Rule of "Tensor Operators", ARGMAX."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import Step


def argmax(step: Step) -> None:
    """Before 1.0, comparisons with NaN went on to the last element."""
    if step.dtype(step.input(0)).is_float:
        step.note("kept", "where there are NaNs, the result is the first, not the last element")
    step.keep()
