"""Steps of training: scales move by shares of themselves, so that they stay positive."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from tosajax.quant.model.arguments import check_params
from tosajax.quant.model.norms import Norm
from tosajax.quant.model.recipes import Params
from tosajax.quant.qparams import QParams

if TYPE_CHECKING:
    import optax

# Groups of parameters that no gradient reaches.
_STILL = ("corrections", "factors", "sampled")
# Groups with numbers that are positive: scales, and factors of batch norms.
_POSITIVE = ("qparams", "norms")
# One step at most doubles a scale, or halves it.
_MOST = math.log(2)


class RelativeState(NamedTuple):
    """The state of `relative`: QParams and Norms at the start, and the optimizer's own state.

    Example:
      >>> import jax.numpy as jnp
      >>> import optax
      >>> from tosajax import quant
      >>> qparams = quant.QParams(jnp.float32(0.5), jnp.float32(0), jnp.float32(8))
      >>> quant.relative(optax.sgd(0.1)).init({"qparams": {"x": qparams}}).start
      {'qparams': {'x': QParams(INT8, scale=0.5, zero_point=0, bits=8)}}
    """

    start: Params
    inner: Any

    def __repr__(self) -> str:
        return f"RelativeState({len(self.start.get('qparams', ()))} scales)"


def relative(optimizer: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """An optimizer that sees scales by their logarithm, and so keeps them positive.

    Scales differ by orders of magnitude: a step that suits a weight would make them negative. Here
    the optimizer trains log(scale / scale at the start), the same of bits and of the factors of
    batch norms, and zero points in units of half of their range. One step at most doubles or halves
    a scale. Weight decay draws all of these to where they were at the start. Corrections,
    statistics, and the scales that tables were sampled in, do not move.

        optimizer = quant.relative(optax.adamw(1e-3))
        state = optimizer.init(params)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)

    Args:
      optimizer: any of optax.

    Returns:
      An optimizer of parameters of `calibrate`. Parameters of `lift` have no scales: for them it is
      the optimizer that was given.

    Raises:
      ImportError: optax is not installed.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> import optax
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> optimizer = quant.relative(optax.sgd(1e6))
      >>> state = optimizer.init(params)
      >>> gradients = jax.tree.map(jnp.ones_like, params)
      >>> updates, state = optimizer.update(gradients, state, params)
      >>> bool(optax.apply_updates(params, updates)["qparams"]["x"].scale > 0)
      True
    """
    optax = import_optax()
    inner = optax.with_extra_args_support(optimizer)

    def init(params: Params) -> RelativeState:
        start = jax.tree.map(jnp.copy, {n: params[n] for n in _POSITIVE if n in params})
        return RelativeState(start, inner.init(_optimizer_view(params, start)))

    def update(
        updates: Params, state: RelativeState, params: Params | None = None, **extra: Any
    ) -> tuple[Params, RelativeState]:
        if params is None:
            raise ValueError("update without params: steps of scales are relative to them")
        gradients = _map_positive(_chain_rule, updates, params)
        logarithms = _optimizer_view(params, state.start)
        steps, own = inner.update(gradients, state.inner, logarithms, **extra)
        steps = without_fixed_steps(_map_positive(_qparams_step, steps, params))
        return steps, RelativeState(state.start, own)

    return optax.GradientTransformationExtraArgs(init, update)


def import_optax() -> Any:
    """The module optax.

    Raises:
      ImportError: it is not installed.
    """
    try:
        import optax
    except ImportError:
        raise ImportError("optax is not installed: pip install 'tosajax[train]'") from None
    return optax


def _map_positive(function: Any, params: Params, others: Params) -> Params:
    """The parameters, each QParams and each Norm by a function of it and of its other."""
    groups = {
        group: jax.tree.map(function, params[group], others[group], is_leaf=_is_positive)
        for group in _POSITIVE
        if group in params
    }
    return {**params, **groups}


def _optimizer_view(params: Params, start: Params) -> Params:
    """The parameters as the optimizer sees them."""
    return _map_positive(_relative_change, params, start)


def _relative_change(qparams: QParams | Norm, start: Any) -> QParams | Norm:
    if isinstance(qparams, Norm):
        return dataclasses.replace(qparams, gamma=jnp.log(qparams.gamma / start.gamma))
    return dataclasses.replace(
        qparams,
        scale=jnp.log(qparams.scale / start.scale),
        zero_point=(qparams.zero_point - start.zero_point) / _half_range(start),
        bits=jnp.log(qparams.bits / start.bits),
    )


def _chain_rule(gradient: QParams | Norm, qparams: Any) -> QParams | Norm:
    """The gradient by the values that the optimizer sees, from the gradient by QParams or Norm."""
    if isinstance(gradient, Norm):
        return dataclasses.replace(gradient, gamma=gradient.gamma * qparams.gamma)
    return dataclasses.replace(
        gradient,
        scale=gradient.scale * qparams.scale,
        zero_point=gradient.zero_point * _half_range(qparams),
        bits=gradient.bits * qparams.bits,
    )


def _qparams_step(step: QParams | Norm, qparams: Any) -> QParams | Norm:
    """The step of the QParams or the Norm, from the step of the values that the optimizer sees."""
    if isinstance(step, Norm):
        still = jnp.zeros_like(step.mean)
        gamma = qparams.gamma * jnp.expm1(jnp.clip(step.gamma, -_MOST, _MOST))
        return Norm(gamma, step.beta, mean=still, deviation=still)
    return dataclasses.replace(
        step,
        scale=qparams.scale * jnp.expm1(jnp.clip(step.scale, -_MOST, _MOST)),
        zero_point=step.zero_point * _half_range(qparams),
        bits=qparams.bits * jnp.expm1(jnp.clip(step.bits, -_MOST, _MOST)),
    )


def _half_range(qparams: QParams) -> jax.Array:
    """Half of the integers of the range."""
    return jnp.exp2(qparams.bits - 1)


def without_fixed_steps(steps: Params) -> Params:
    """The steps, 0 for parameters that no gradient reaches: weight decay would shrink them."""
    if "qparams" not in steps:
        return steps
    still = {group: steps[group] for group in _STILL if group in steps}
    still = jax.tree.map(jnp.zeros_like, still)
    return {**steps, **still, "qparams": {**steps["qparams"], **still.get("sampled", {})}}


def project(params: Params, before: Params, *, least: float = 0.5) -> Params:
    """Parameters after a step, with scales kept positive.

    A plain gradient step may take a scale to 0 or below, which `freeze` refuses. Apply this after
    each step that no optimizer of `relative` makes: `params = project(stepped, params)`. NaN stays
    NaN, which `freeze` also refuses.

    Args:
      params: after the step.
      before: the parameters before the step, of the same structure, with positive scales.
      least: the smallest share of a scale that a step may leave of it, in (0, 1].

    Returns:
      The parameters; each scale, and each factor of a batch norm, is at least `least` times the one
      before. Statistics are those before.

    Raises:
      ValueError: `least` is out of range, or there are no scales (of a lifted model, whose
        changes of scales may have either sign).

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> stepped = jax.tree.map(lambda x: x - 1, params)  # scales below 0
      >>> projected = quant.project(stepped, params)
      >>> bool(projected["qparams"]["x"].scale == params["qparams"]["x"].scale / 2)
      True
    """
    if not 0 < least <= 1:
        raise ValueError(f"least is {least}, expected a number in (0, 1]")
    wanted = {"qparams": params.get("qparams", before.get("qparams", ()))}
    for checked in (params, before):
        check_params(checked, wanted)

    def bounded(qparams: QParams, former: QParams) -> QParams:
        scale = jnp.maximum(qparams.scale, former.scale * jnp.float32(least))
        return dataclasses.replace(qparams, scale=scale)

    qparams = jax.tree.map(bounded, params["qparams"], before["qparams"], is_leaf=_is_qparams)
    if "norms" not in params:
        return {**params, "qparams": qparams}

    def norm_bounded(norm: Norm, former: Norm) -> Norm:
        return dataclasses.replace(
            norm,
            gamma=jnp.maximum(norm.gamma, former.gamma * jnp.float32(least)),
            mean=former.mean,
            deviation=former.deviation,
        )

    old_norms = before["norms"]
    norms = {name: norm_bounded(norm, old_norms[name]) for name, norm in params["norms"].items()}
    return {**params, "qparams": qparams, "norms": norms}


def _is_qparams(x: object) -> bool:
    return isinstance(x, QParams)


def _is_positive(x: object) -> bool:
    return isinstance(x, QParams | Norm)
