"""Rules of "Elementwise Binary Operators"."""

from __future__ import annotations

import numpy as np

from tosajax.dtypes import DType
from tosajax.io.pre_1_0.step import Step


def logical_left_shift(step: Step) -> None:
    """Notes a difference: before 1.0, every type could be shifted by up to 31 bits."""
    dtype = step.dtype(step.input(0))
    widest = dtype.bits - 1
    if dtype is not DType.INT32 and not _at_most(step, step.input(1), widest):
        step.note("kept", f"shifts of {dtype.name} by more than {widest} bits are undefined")
    step.keep()


logical_right_shift = logical_left_shift


def mul(step: Step) -> None:
    """Upgrades MUL: the shift becomes an input, for every type."""
    shift = step.operand("shift", 2, DType.INT8)
    step.emit("MUL", (step.input(0), step.input(1), shift))


def pow(step: Step) -> None:
    """Notes a difference: before 1.0, negative bases had integer powers, and 0 ** 0 was NaN."""
    differs = "powers of a negative base, and those of 0 by 0 or less, are undefined"
    step.note("kept", differs)
    step.keep()


def table(step: Step) -> None:
    """Upgrades TABLE: the table becomes an input, of the tensor's type."""
    x = step.input(0)
    step.emit("TABLE", (x, step.operand("table", 1, step.dtype(x))))


def _at_most(step: Step, name: str, most: int) -> bool:
    """Whether a tensor is a constant with all values at most `most`."""
    values = step.work.known.get(name)
    return values is not None and bool(np.all(values <= most))
