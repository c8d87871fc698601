"""Gradients through exact integer graphs.

An integer tensor is a `QTensor`: the integers that ship, and float32 values that carry gradients.
Operators compute the same integers as `tosajax.ops`; their gradients are the gradients of the same
arithmetic on real numbers, in which an estimator replaces rounding and saturation.
`tosajax.differentiable` turns a graph into a function.
"""

from __future__ import annotations

from tosajax.grad.estimators import (
    Estimator,
    clipped_ste,
    ewgs,
    noise,
    pwl,
    round_window,
    soft_round,
    ste,
    zero,
)
from tosajax.grad.kernels import gradient_rules
from tosajax.grad.qtensor import QTensor, tie

__all__ = [
    "Estimator",
    "QTensor",
    "clipped_ste",
    "ewgs",
    "gradient_rules",
    "noise",
    "pwl",
    "round_window",
    "soft_round",
    "ste",
    "tie",
    "zero",
]


def __dir__() -> list[str]:
    return __all__
