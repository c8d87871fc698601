"""Cumulative reductions, which TOSA does not have."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from tosajax.from_jax.rules._monoids import ADD, LOGADDEXP, MAX, MIN, MUL, Monoid, widely
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value


def cumsum(step: Step, x: Value) -> Value:
    """ADD of shifted arrays."""
    return _cumulative(step, x, ADD)


def cumprod(step: Step, x: Value) -> Value:
    """MUL of shifted arrays."""
    return _cumulative(step, x, MUL)


def cummax(step: Step, x: Value) -> Value:
    """MAXIMUM of shifted arrays; NaN propagates."""
    return _cumulative(step, x, MAX)


def cummin(step: Step, x: Value) -> Value:
    """MINIMUM of shifted arrays; NaN propagates."""
    return _cumulative(step, x, MIN)


def cumlogsumexp(step: Step, x: Value) -> Value:
    """logaddexp of shifted arrays, which subtracts the larger operand first."""
    return _cumulative(step, x, LOGADDEXP)


def _cumulative(step: Step, x: Value, monoid: Monoid) -> Value:
    """Combines each element with the elements 1, 2, 4, ... before it."""
    axis, is_reverse = step.params["axis"], step.params["reverse"]

    def scanned(v: jax.Array) -> jax.Array:
        shift = 1
        while shift < v.shape[axis]:
            config = [(0, 0, 0)] * v.ndim
            config[axis] = (-shift, shift, 0) if is_reverse else (shift, -shift, 0)
            v = monoid.function(lax.pad(v, monoid.neutral(np.dtype(v.dtype)), config), v)
            shift *= 2
        return v

    return widely(step, monoid, scanned, x)


RULES = {
    "cumsum": cumsum,
    "cumprod": cumprod,
    "cummax": cummax,
    "cummin": cummin,
    "cumlogsumexp": cumlogsumexp,
}
