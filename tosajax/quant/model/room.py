"""Room in accumulators: the least scales of constants that products read.

A bias is in units of input times weight. A channel whose weights are near 0 has so small a unit
that its bias is beyond the accumulator, or that RESCALE cannot express it. The scale of its weights
is then the least one with which the bias and the products fit, whatever the parameters hold, in
training and in files alike: weights of such a channel are too small to use more integers.

Each operation is correctly rounded, as scales have the same bits in every program.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.grad.qtensor import follow
from tosajax.quant.model.plan import Plan, Reader
from tosajax.quant.model.recipes import Bias, Params, Scale, Terms, corrected
from tosajax.quant.qparams import MAX_SHIFT, QParams
from tosajax.quant.ranges.channels import along
from tosajax.quant.ranges.observers import NOTHING
from tosajax.quant.storages.division import divide

# A bias takes less than its limit, by more than its unit is rounded.
_SHARE = 1 - 2.0**-10
# Of what scales are divided by, and of scales: normal numbers, and their products.
_SMALLEST, _LARGEST = 2.0**-126, 2.0**100
# Of a RESCALE, above the least that it expresses.
_LEAST_RATIO = 2.0 ** (1 - MAX_SHIFT)
# Weights round to 0 in a scale that is so many times the largest.
_VANISHING = 4.0


def fitted(plan: Plan, params: Params, *, has_norms: bool = True) -> Params:
    """The parameters with the scales that integers have; see `fitted_qparams`."""
    if "qparams" not in params:
        return params
    qparams = {
        name: fitted_qparams(plan, params, name, has_norms=has_norms) for name in plan.readers
    }
    return {**params, "qparams": {**params["qparams"], **qparams}}


def fitted_qparams(plan: Plan, params: Params, name: str, *, has_norms: bool = True) -> QParams:
    """The QParams of a tensor with the scale that its integers have.

    A channel whose weights are all 0 has the scale of the finest bias.

    Args:
      plan: the model's plan.
      params: the model's parameters.
      name: the name of a tensor with QParams, which change only for constants that products read.
      has_norms: batch norms are part of biases. One that leaves no room for a bias beside its
        convolution takes all of the channel: its weights become 0.

    Returns:
      QParams with the gradient of the scale; by channel where a batch norm follows.
    """
    own = params["qparams"][name]
    if name not in plan.readers:
        return own
    sizes = _magnitudes(plan, params, name)
    least, bias = _least_scales(plan, params, name, sizes.shape)
    own_scale = lax.stop_gradient(own.scale)
    scale = jnp.where((sizes < NOTHING) & (bias > 0), least, jnp.maximum(own_scale, least))
    if has_norms and (readers := [r for r in plan.readers[name] if _norm_name(r) is not None]):
        with_norm = _scale_for_readers(readers, params, name, sizes.shape)
        vanishing = jnp.maximum(with_norm, _VANISHING * sizes)
        scale = jnp.where(with_norm > scale, vanishing, scale)
    return dataclasses.replace(own, scale=follow(scale, jnp.broadcast_to(own.scale, scale.shape)))


def with_room(plan: Plan, params: Params, names: Collection[str] | None = None) -> Params:
    """The parameters with scales to train: such with which biases fit, without batch norms.

    Far below them, steps of training would change nothing for long.

    Args:
      plan: the model's plan.
      params: the model's parameters.
      names: the names of constants; others keep their scale. By default all change.
    """
    qparams = dict(params["qparams"])
    for name in plan.readers if names is None else plan.readers.keys() & set(names):
        own = qparams[name]
        least, _ = _least_scales(plan, params, name, _magnitudes(plan, params, name).shape)
        if least.shape == own.scale.shape:
            qparams[name] = dataclasses.replace(own, scale=jnp.maximum(own.scale, least))
    return {**params, "qparams": qparams}


def least_scale(plan: Plan, params: Params, name: str) -> tuple[jax.Array, jax.Array]:
    """The least scale of each channel of a constant, and whether it has other weights than 0."""
    sizes = _magnitudes(plan, params, name)
    return _least_scales(plan, params, name, sizes.shape)[0], sizes >= NOTHING


def _magnitudes(plan: Plan, params: Params, name: str) -> jax.Array:
    """The largest magnitude in each channel of a constant, in the shape of its scales."""
    values = lax.stop_gradient(corrected(params, name))
    axes = {axis for c in plan.norms.values() if c.weight == name for axis in c.channel_axes}
    axes = axes or plan.scaled[name].channel_axes
    others = tuple(axis for axis in range(values.ndim) if axis not in axes)
    return jnp.abs(values).max(others).reshape(along(axes, values.shape))


def _least_scales(
    plan: Plan, params: Params, name: str, shape: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """The least scale, without batch norms; and the least one for biases alone, 0 without any."""
    readers = [_without_norm(reader) for reader in plan.readers[name]]
    biases = [reader for reader in readers if isinstance(reader, Bias)]
    return _scale_for_readers(readers, params, name, shape), _scale_for_readers(
        biases, params, name, shape
    )


def _scale_for_readers(
    readers: Sequence[Reader], params: Params, name: str, shape: tuple[int, ...]
) -> jax.Array:
    """The least scale with which biases are within their limits, and that RESCALEs express."""
    units: dict[Scale, list[jax.Array]] = {}
    for reader in readers:
        rest = dataclasses.replace(_without_term(reader.scale, name), under=None)
        units.setdefault(rest, []).append(_least_unit(reader, params))
    least = jnp.zeros(shape, jnp.float32)
    for rest, of_readers in units.items():
        factors = Terms(lax.stop_gradient(rest.terms(params).factors), None).quotient()
        unit = functools.reduce(jnp.maximum, of_readers)
        scale = jnp.minimum(divide(unit, jnp.maximum(factors, _SMALLEST)), _LARGEST)
        least = jnp.maximum(least, _by_channel(scale, shape))
    return least


def _least_unit(reader: Reader, params: Params) -> jax.Array:
    """The least unit of an accumulator, by channel or one: the product of the scales over it."""
    if isinstance(reader, Bias):
        values = jnp.abs(lax.stop_gradient(reader.real_values(params)))
        largest = values.reshape(-1, values.shape[-1]).max(0)
        unit = largest * jnp.float32(1 / (reader.limit * _SHARE))
        divisor = reader.scale.terms(params).divisor
        return unit if divisor is None else unit * lax.stop_gradient(divisor)
    divisor = reader.scale.terms(params).divisor
    ratio = jnp.full((1,), _LEAST_RATIO, jnp.float32)
    return ratio if divisor is None else ratio * lax.stop_gradient(divisor)


def _without_term(scale: Scale, name: str) -> Scale:
    """A product of scales without the scale of a tensor."""
    over = tuple(term for term in scale.over if term != name)
    return dataclasses.replace(scale, over=over)


def _norm_name(reader: Reader) -> str | None:
    return reader.norm if isinstance(reader, Bias) else reader.scale.norm


def _without_norm(reader: Reader) -> Reader:
    if isinstance(reader, Bias):
        return dataclasses.replace(reader, norm=None)
    return dataclasses.replace(reader, scale=dataclasses.replace(reader.scale, norm=None))


def _by_channel(values: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """One value, or one a channel, in the shape of scales."""
    count = math.prod(shape)
    values = values.max(keepdims=True) if count == 1 else jnp.broadcast_to(values, (count,))
    return values.reshape(shape)
