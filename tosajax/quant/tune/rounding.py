"""learned_rounding: rounds weights up or down, for the outputs of the integer graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from tosajax.progress import Progress
from tosajax.quant.calibration import examples
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.recipes import Params, Weight, corrected, with_corrections
from tosajax.quant.model.room import fitted, fitted_qparams
from tosajax.quant.qmodel import QModel, prepared
from tosajax.quant.qparams import dequantize
from tosajax.quant.storages.division import divide
from tosajax.quant.training.losses import squared_difference
from tosajax.quant.training.steps import import_optax

if TYPE_CHECKING:
    import optax


def learned_rounding(
    model: QModel,
    params: Params,
    batches: Iterable[Batch],
    *,
    steps: int = 400,
    optimizer: optax.GradientTransformation | None = None,
    allow_nan: bool = False,
    progress: bool = False,
) -> Params:
    """Chooses for each weight the integer below or above, without labels.

    Minimizes the squared difference between the outputs of the integer graph and of the float
    graph; after "Up or Down? Adaptive Rounding for Post-Training Quantization" (Nagel et al.,
    2020), but through the whole graph and its integers. Needs `pip install 'tosajax[train]'`.

    Args:
      model: the model, from `prepare`.
      params: the parameters, from `calibrate`.
      batches: examples, as for `calibrate`; used in turn.
      steps: the steps of the optimizer, one batch each.
      optimizer: an optimizer of optax; Adam with a rate that falls from 0.01 to 0 by default.
      allow_nan: takes examples with NaN or infinities.
      progress: show a bar of steps, with the rate, on a terminal; step one compiles.

    Returns:
      The parameters with "corrections" of weights, which round to the chosen integers; the float
      graph keeps its own.

    Raises:
      ImportError: optax is not installed.
      TypeError: an argument, or an example, is of another type.
      ValueError: there are no examples, or one is NaN or infinite; the model has no float graph;
        or the parameters are of another model.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> params = quant.learned_rounding(model, params, [example], steps=2)
      >>> [name in params["corrections"] for name in model.weights]
      [True]
    """
    optax = import_optax()
    model = prepared(model)
    batches = examples(model, params, batches, allow_nan=allow_nan)
    default: Any = optax.adam(optax.cosine_decay_schedule(1e-2, steps))
    chosen = default if optimizer is None else optimizer
    floats = jax.jit(lambda p, *x: model.apply(p, *x, mode="float"))
    wanted = [floats(params, *batch) for batch in batches]
    rounding = {name: nearest(model, params, name) for name in model.weights}

    def loss(rounding: dict[str, jax.Array], params: Params, inputs: Any, wanted: Any):
        outputs = model.apply({**params, "rounding": rounding}, *inputs)
        return squared_difference(outputs, None, wanted)

    @jax.jit
    def step(rounding: Any, state: Any, params: Params, inputs: Any, wanted: Any):
        gradient = jax.grad(loss)(rounding, params, inputs, wanted)
        with jax.numpy_dtype_promotion("standard"):  # optax relies on it
            updates, state = chosen.update(gradient, state, rounding)
        return optax.apply_updates(rounding, updates), state

    state = chosen.init(rounding)
    with Progress(steps, progress, unit="step") as bar:
        bar.step("compiling")
        for number in range(steps):
            at = number % len(batches)
            rounding, state = step(rounding, state, params, batches[at], wanted[at])
            bar.step("learning")
            bar.update()
    return with_rounding(model, params, rounding)


def nearest(model: QModel, params: Params, name: str) -> jax.Array:
    """The rounding whose soft step is the distance of a weight above the integer below."""
    scaled = divide(corrected(params, name), fitted_qparams(model.plan, params, name).scale)
    return jax.scipy.special.logit((scaled - jnp.floor(scaled) + 0.1) / 1.2)


def with_rounding(model: QModel, params: Params, rounding: dict[str, jax.Array]) -> Params:
    """The parameters with corrections to the integers chosen, so that weights round to them."""
    chosen = {**fitted(model.plan, params), "rounding": rounding}
    qparams = chosen["qparams"]
    values = {name: dequantize(Weight(name)(chosen), qparams[name]) for name in rounding}
    return with_corrections(params, values)
