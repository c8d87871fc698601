"""Ranges that follow functions: they hold no more than what changes the functions' outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from tosajax.quant.graphs.regions import evaluate
from tosajax.quant.qmodel import QModel
from tosajax.quant.qparams import QParams, real_ends
from tosajax.quant.ranges.observers import scale_and_zero_point

_POINTS = 2049  # of the range of a tensor, at which functions are looked at
_STILL = 0.25  # steps of a function's output in which its source may be cut off
_NARROW = 0.98  # of the scale: ranges that are cut by less stay


def limited_qparams(model: QModel, qparams: Mapping[str, QParams]) -> dict[str, QParams]:
    """The ranges of tensors that functions alone read, without what changes none of them.

    Beyond the ends of such a range, the functions change by a part of a step of their outputs at
    most.

    Args:
      model: the model, from `prepare`.
      qparams: by owner, with ranges that hold all values.
    """
    return {name: _limited(model, qparams, name) for name in model.plan.limited}


def _limited(model: QModel, qparams: Mapping[str, QParams], name: str) -> QParams:
    own = qparams[name]
    low, high = real_ends(own)
    points = low + (high - low) * jnp.linspace(0, 1, _POINTS, dtype=jnp.float32)
    starts, ends = [], []
    for output in model.plan.limited[name]:
        result = qparams[model.owners[output]]
        values = jnp.nan_to_num(evaluate(model.plan.functions[output], points))
        values, step = jnp.clip(values, *real_ends(result)), result.scale * _STILL
        starts.append(points[_still(values, step)])
        ends.append(points[-1 - _still(values[::-1], step)])
    spec = model.specs[name]
    grid = spec.storage.grid(own.bits, narrow_range=spec.narrow_range)
    range_ends = jnp.stack(starts).min(), jnp.stack(ends).max()
    scale, zero_point = scale_and_zero_point(*range_ends, grid, spec.symmetric)
    is_narrow = (range_ends[0] < range_ends[1]) & (scale < _NARROW * own.scale)
    return dataclasses.replace(
        own,
        scale=jnp.where(is_narrow, scale, own.scale),
        zero_point=jnp.where(is_narrow, zero_point, own.zero_point),
    )


def _still(values: jax.Array, step: jax.Array) -> jax.Array:
    """The index of the last of the first values that all are as near to the first as a step."""
    is_still = jnp.cumprod((jnp.abs(values - values[0]) <= step).astype(jnp.int32))
    return is_still.sum() - 1
