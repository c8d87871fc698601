"""Rule of "Tensor Operators", pooling."""

from __future__ import annotations

from typing import Any

from tosajax.dtypes import DType
from tosajax.io.pre_1_0.step import Step, member
from tosajax.report import FormatError
from tosajax.spec import AccType


def avg_pool2d(step: Step) -> None:
    """Upgrades AVG_POOL2D: zero points become inputs."""
    x = step.input(0)
    zero_points = step.zero_point("input_zp", x), step.zero_point("output_zp", step.output)
    attributes: dict[str, Any] = {n: step.integers(n) for n in ("kernel", "stride", "pad")}
    step.emit("AVG_POOL2D", (x, *zero_points), **attributes, acc_type=_acc_type(step, x))


def _acc_type(step: Step, x: str) -> DType:
    """The accumulator type; the input type determines it, except for FP16."""
    stated = step.get("accum_dtype", step.get("acc_type", None))
    if stated is not None:
        return member("accum_dtype", AccType, stated).dtype
    dtype = step.dtype(x)
    if dtype is DType.FP16:
        raise FormatError("accum_dtype is missing, expected FP16 or FP32")
    return DType.INT32 if dtype.is_integer else DType.FP32
