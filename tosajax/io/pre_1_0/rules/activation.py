"""Rules of "Activation Functions"."""

from __future__ import annotations

from typing import Any

import numpy as np

from tosajax.dtypes import DType
from tosajax.io.pre_1_0.step import Step, member
from tosajax.report import FormatError
from tosajax.spec import NanMode


def clamp(step: Step) -> None:
    """Upgrades CLAMP: one pair of bounds, of the tensor's type, replaces two."""
    x = step.input(0)
    dtype = step.dtype(x)
    if dtype.is_float:
        low, high = (_float_bound(step.get(name), dtype) for name in ("min_fp", "max_fp"))
    else:
        low = _integer_bound("min_int", step.get("min_int"), dtype)
        high = _integer_bound("max_int", step.get("max_int"), dtype)
    nan_mode = member("nan_mode", NanMode, step.get("nan_mode", "PROPAGATE"))
    step.emit("CLAMP", step.node.inputs, min_val=low, max_val=high, nan_mode=nan_mode)


def _float_bound(bound: float, dtype: DType) -> Any:
    with np.errstate(over="ignore"):
        return np.asarray(bound, np.float32).astype(dtype.storage)[()]


def _integer_bound(name: str, bound: int, dtype: DType) -> Any:
    """Clips a bound to the range of the type; a bound outside it has no effect.

    Raises:
      FormatError: no value of the type satisfies the bound.
    """
    lowest, highest = dtype.limits()
    if bound > highest if name == "min_int" else bound < lowest:
        raise FormatError(f"{name} is {bound}, expected one in [{lowest}, {highest}]")
    return dtype.storage.type(min(max(bound, lowest), highest))
