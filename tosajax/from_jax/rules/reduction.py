"""Reductions ("Reduction Operators", and ARGMAX, TOSA 1.0.1)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.from_jax.ranks import MAX_RANK
from tosajax.from_jax.rules._monoids import (
    ADD,
    AND,
    MUL,
    OR,
    XOR,
    Combine,
    closed,
    combine_of,
    folded,
    monoid_of,
    widely,
)
from tosajax.from_jax.rules._multiply import convert
from tosajax.from_jax.rules._wide import widened
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value
from tosajax.spec import NanMode


def reduce_sum(step: Step, x: Value) -> Value:
    """REDUCE_SUM; narrow integers wrap at the end; float16 is summed in float32."""
    if x.dtype != np.float16:
        return _reduced(step, "REDUCE_SUM", x)
    step.note("sums float16 in float32", "sums beyond 65504 on the way do not become infinite")
    return widely(step, ADD, lambda v: lax.reduce_sum(v, step.params["axes"]), x)


def reduce_prod(step: Step, x: Value) -> Value:
    """REDUCE_PRODUCT in float32 for floats; repeated MUL of halves for integers."""
    axes = step.params["axes"]
    if not jnp.issubdtype(x.dtype, np.floating):
        return widely(step, MUL, lambda v: _folded(MUL.combine, [v], axes)[0], x)
    if x.dtype == np.float32:
        return _reduced(step, "REDUCE_PRODUCT", x)
    if x.dtype == np.float16:
        step.note("multiplies in float32", "products beyond 65504 on the way are finite")
    return widely(step, MUL, lambda v: lax.reduce_prod(v, axes), x)


def reduce_max(step: Step, x: Value) -> Value:
    """REDUCE_MAX, which propagates NaN; REDUCE_ANY for bool."""
    if x.dtype == np.bool_:
        return _reduced(step, "REDUCE_ANY", x)
    return _reduced(step, "REDUCE_MAX", x, nan_mode=NanMode.PROPAGATE)


def reduce_min(step: Step, x: Value) -> Value:
    """REDUCE_MIN, which propagates NaN; REDUCE_ALL for bool."""
    if x.dtype == np.bool_:
        return _reduced(step, "REDUCE_ALL", x)
    return _reduced(step, "REDUCE_MIN", x, nan_mode=NanMode.PROPAGATE)


def reduce_and(step: Step, x: Value) -> Value:
    """REDUCE_ALL for bool; repeated BITWISE_AND of halves for integers."""
    if x.dtype == np.bool_:
        return _reduced(step, "REDUCE_ALL", x)
    return step.jax(lambda v: _folded(AND.combine, [v], step.params["axes"])[0], x)


def reduce_or(step: Step, x: Value) -> Value:
    """REDUCE_ANY for bool; repeated BITWISE_OR of halves for integers."""
    if x.dtype == np.bool_:
        return _reduced(step, "REDUCE_ANY", x)
    return step.jax(lambda v: _folded(OR.combine, [v], step.params["axes"])[0], x)


def reduce_xor(step: Step, x: Value) -> Value:
    """Repeated LOGICAL_XOR (bool) or BITWISE_XOR (integers) of halves."""
    return step.jax(lambda v: _folded(XOR.combine, [v], step.params["axes"])[0], x)


def reduce(step: Step, *operands: Value) -> list[Value]:
    """The function on halves, repeatedly, for any associative function of one or more arrays."""
    axes, jaxpr = step.params["dimensions"], closed(step.params["jaxpr"])
    count, monoid = len(operands) // 2, monoid_of(jaxpr)
    combine = combine_of(jaxpr) if monoid is None else monoid.combine
    if all(operands[0].shape[axis] == 1 for axis in axes):  # XLA then ignores the initial values.
        pairs = zip(operands[:count], step.outs, strict=True)
        return [step.reshape(x, out.shape) for x, out in pairs]

    def reduced(*operands: jax.Array) -> list[jax.Array]:
        arrays, starts = [*operands[:count]], operands[count:]
        if monoid is None:
            results = _folded(combine, arrays, axes)
        else:  # `lax.reduce` binds the monoid's own primitive, which has a rule.
            neutral = monoid.neutral(np.dtype(arrays[0].dtype))
            results = [lax.reduce(arrays[0], neutral, monoid.function, axes)]
        return combine(
            [jnp.full(y.shape, s) for s, y in zip(starts, results, strict=True)], results
        )

    return step.jaxs(reduced, *operands)


def argmax(step: Step, x: Value) -> Value:
    """ARGMAX; for int32, the first index that equals REDUCE_MAX."""
    return _first(step, x, lambda v: v, lax.reduce_max)


def argmin(step: Step, x: Value) -> Value:
    """ARGMAX of the negative or complement; for int32, the first index that equals REDUCE_MIN."""
    return _first(step, x, _reversed_order, lax.reduce_min)


def _first(
    step: Step, x: Value, turned: Callable[[Any], Any], reduce: Callable[[Any, Any], Any]
) -> Value:
    """ARGMAX of the turned array; for int32, the first index that equals the reduction."""
    (axis,), index = step.params["axes"], step.params["index_dtype"]
    if x.dtype == np.int32:
        return step.jax(lambda v: _first_equal(v, axis, reduce).astype(index), x)
    if x.dtype == np.bool_:
        x = convert(step, x, np.int8)
    y = step.whole(step.jax(turned, x))
    if y.rank > MAX_RANK:
        sizes = math.prod(y.shape[:axis]), y.shape[axis], math.prod(y.shape[axis + 1 :])
        y, axis = step.reshape(y, sizes), 1
    position = step.op("ARGMAX", y, axis=axis, nan_mode=NanMode.PROPAGATE)
    position = step.reshape(position, step.out.shape)
    return convert(step, position, index)


def _reversed_order(x: jax.Array) -> jax.Array:
    """The negative, or for integers the complement (-128 has no negative), to reverse the order."""
    return lax.neg(x) if jnp.issubdtype(x.dtype, np.floating) else lax.bitwise_not(x)


def _first_equal(x: jax.Array, axis: int, reduce: Callable[[Any, Any], Any]) -> jax.Array:
    best = lax.expand_dims(reduce(x, (axis,)), (axis,))
    places = lax.broadcasted_iota(np.int32, x.shape, axis)
    return lax.reduce_min(jnp.where(x == best, places, x.shape[axis]), (axis,))


def _folded(combine: Combine, arrays: list[jax.Array], axes: Sequence[int]) -> list[jax.Array]:
    for axis in axes:
        arrays = folded(combine, arrays, axis)
    return [lax.squeeze(x, axes) for x in arrays]


def _reduced(step: Step, op: str, x: Value, **attributes: Any) -> Value:
    """Writes an operator for each axis, after merging neighbouring axes."""
    axes = step.params["axes"]
    # Broadcast axes that are not reduced stay as they are.
    held = tuple(n if i in axes else x.held_shape[i] for i, n in enumerate(x.shape))
    small = step.whole(dataclasses.replace(x, shape=held))
    (y,) = widened(step, op, small)
    sizes, wanted = _runs(y.shape, [axis for axis in axes if y.shape[axis] > 1])
    while any(wanted):
        at = wanted.index(True)
        shape, axis = sizes, at
        if len(sizes) > MAX_RANK:
            shape, axis = [math.prod(sizes[:at]), sizes[at], math.prod(sizes[at + 1 :])], 1
        y = step.op(op, step.reshape(y, shape), axis=axis, **attributes)
        sizes[at], wanted[at] = 1, False
    y = step.reshape(y, [n for i, n in enumerate(small.shape) if i not in axes])
    return dataclasses.replace(convert(step, y, x.dtype), shape=step.out.shape)


def _runs(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[bool]]:
    """The sizes of merged neighbouring axes, and whether each is to be reduced.

    Axes are not merged if that does not save operators.
    """
    sizes: list[int] = []
    wanted: list[bool] = []
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        if wanted and wanted[-1] == (axis in axes):
            sizes[-1] *= n
        else:
            sizes, wanted = [*sizes, n], [*wanted, axis in axes]
    if sum(wanted) == len(axes) and len(shape) <= MAX_RANK:
        return [*shape], [axis in axes for axis in range(len(shape))]
    return sizes, wanted


RULES = {
    "reduce_sum": reduce_sum,
    "reduce_prod": reduce_prod,
    "reduce_max": reduce_max,
    "reduce_min": reduce_min,
    "reduce_and": reduce_and,
    "reduce_or": reduce_or,
    "reduce_xor": reduce_xor,
    "reduce": reduce,
    "argmax": argmax,
    "argmin": argmin,
}
