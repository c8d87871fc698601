"""Training of scales: steps in proportion to them, and scales that stay positive."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from tosajax.quant.arguments import check_params
from tosajax.quant.qparams import QParams
from tosajax.quant.recipes import Params


def relative_steps(updates: Params, params: Params) -> Params:
    """An optimizer's updates as shares of scales and bits, and none of what has no gradient.

    Scales differ by orders of magnitude, and a step that suits a weight would make them negative;
    relative ones stay positive as long as a step is below 1. Bits would hardly move. For optimizers
    like Adam, whose updates do not depend on the size of gradients. Corrections and the scales that
    tables were sampled in have no gradient, but weight decay would shrink them.

    Args:
      updates: of the structure of params, to be added to them.
      params: before the update.
    """

    def steps(update: QParams, qparams: QParams) -> QParams:
        scale, bits = update.scale * qparams.scale, update.bits * qparams.bits
        return dataclasses.replace(update, scale=scale, bits=bits)

    qparams = jax.tree.map(steps, updates["qparams"], params["qparams"], is_leaf=_is_qparams)
    still = {group: updates[group] for group in ("corrections", "sampled") if group in updates}
    still = jax.tree.map(jnp.zeros_like, still)
    return {**updates, **still, "qparams": {**qparams, **still.get("sampled", {})}}


def project(params: Params, before: Params, *, least: float = 0.5) -> Params:
    """Parameters after a step, with scales kept positive.

    A plain gradient step may take a scale to 0 or below, which `freeze` refuses. Apply this after
    each step: `params = project(optax.apply_updates(params, updates), params)`. NaN stays NaN,
    which `freeze` also refuses.

    Args:
      params: after the step.
      before: of the same structure, with positive scales.
      least: the smallest share of a scale that a step may leave of it, in (0, 1].

    Returns:
      The parameters; each scale is at least `least` times the scale before.

    Raises:
      ValueError: `least` is out of range, or there are no scales (of a lifted model, whose
        changes of scales may have either sign).
    """
    if not 0 < least <= 1:
        raise ValueError(f"least is {least}, expected a number in (0, 1]")
    wanted = {"qparams": params.get("qparams", before.get("qparams", ()))}
    for known in (params, before):
        check_params(known, wanted)

    def bounded(qparams: QParams, known: QParams) -> QParams:
        scale = jnp.maximum(qparams.scale, known.scale * jnp.float32(least))
        return dataclasses.replace(qparams, scale=scale)

    qparams = jax.tree.map(bounded, params["qparams"], before["qparams"], is_leaf=_is_qparams)
    return {**params, "qparams": qparams}


def _is_qparams(x: object) -> bool:
    return isinstance(x, QParams)
