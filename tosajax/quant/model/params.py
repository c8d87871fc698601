"""Parameters of a model: whether they fit, which of them train, and the constants they make."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.grad.qtensor import QTensor
from tosajax.quant.model import arguments
from tosajax.quant.model.norms import held_statistics
from tosajax.quant.model.plan import Plan
from tosajax.quant.model.recipes import (
    Multiplier,
    Params,
    Recipe,
    Shift,
    channel_factors,
    scaling,
)
from tosajax.quant.qparams import QParams
from tosajax.quant.ranges.channels import on_last_axis
from tosajax.quant.storages.division import divide


def check(plan: Plan, params: Params) -> None:
    """Raises where parameters from `calibrate` cannot make integers: see `QModel.check`."""
    arguments.check_params(params, plan.groups)
    arguments.check_scales(params["qparams"], plan.specs)
    if plan.norms:
        arguments.check_norms(params["norms"], plan.norms)


def check_values(plan: Plan, params: Params) -> None:
    """Raises where parameters lack a constant of the float graph."""
    arguments.check_params(params, {"values": plan.trained})


def check_tables(plan: Plan, params: Params) -> None:
    """Raises where a function was sampled in another scale than its input has."""
    arguments.check_sampled(params["qparams"], params["sampled"], plan.sampled)


def without_fixed_gradients(plan: Plan, params: Params) -> Params:
    """The parameters, without gradients to those that do not train.

    Bits train only if they are learned. The scale that a function was sampled in does not, as
    its TABLE would no longer be of that function.
    """
    if "qparams" not in params:
        return params
    if "norms" in params:
        norms = {name: held_statistics(norm) for name, norm in params["norms"].items()}
        params = {**params, "norms": norms}
    qparams = dict(params["qparams"])
    for name, spec in plan.specs.items():
        own = qparams[name]
        if name in plan.sampled:
            qparams[name] = jax.tree.map(lax.stop_gradient, own)
        elif not spec.learned_bits:
            qparams[name] = dataclasses.replace(own, bits=lax.stop_gradient(own.bits))
    return {**params, "qparams": qparams}


def no_factors(plan: Plan) -> dict[str, jax.Array]:
    """Factors of channels that change nothing."""
    return {name: jnp.ones(count) for name, count in plan.factors.items()}


def with_channels(plan: Plan, params: Params, name: str, own: QParams, *, rank: int = 1) -> QParams:
    """The QParams of an activation, with the scale of each channel where these have their own.

    Args:
      plan: the model's plan.
      params: the parameters.
      name: the activation that has the scale.
      own: its QParams.
      rank: of the values to quantize, with the channels on the last axis.
    """
    if name not in plan.factors:
        return own
    factors = on_last_axis(channel_factors(params, name), rank)
    return dataclasses.replace(own, scale=divide(own.scale, factors))


def held_biases(plan: Plan, params: Params) -> Params:
    """The parameters, without gradients to biases that the mean of a batch takes away again.

    They are 0, but rounding leaves small numbers, which optimizers that divide by their size would
    turn into full steps.
    """
    values = params["values"]
    biases = {conv.bias: lax.stop_gradient(values[conv.bias]) for conv in plan.norms.values()}
    return {**params, "values": {**values, **biases}}


def recipe_constants(plan: Plan, params: Params) -> dict[str, jax.Array | QTensor]:
    """Every constant with a recipe, and every CLAMP bound that depends on parameters, by name.

    Args:
      plan: the model's plan.
      params: the parameters, with the scales that integers have (`fitted`).
    """
    # A multiplier and its shift are parts of one quotient.
    scaled = functools.cache(functools.partial(scaling, params))

    def make(recipe: Recipe) -> Any:
        if isinstance(recipe, Multiplier | Shift):
            pair = scaled(recipe.scale, scale32=recipe.scale32)
            return pair[isinstance(recipe, Shift)]
        return recipe(params)

    constants = {name: make(recipe) for name, recipe in plan.recipes.items()}
    for name, keys in plan.bound_keys.items():
        for end, bound in zip(("min_val", "max_val"), plan.bounds[name], strict=True):
            constants[keys[end]] = bound(params)
    return constants
