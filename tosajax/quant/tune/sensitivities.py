"""sensitivity: the growth of the loss with fewer bits of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.quant.model.arguments import Examples
from tosajax.quant.model.batches import real_batch
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.room import fitted_qparams
from tosajax.quant.qmodel import QModel, prepared
from tosajax.quant.qparams import fake_quant
from tosajax.quant.training.losses import of_outputs
from tosajax.quant.tune.bits import with_bits

Loss = Callable[[tuple[jax.Array, ...]], jax.Array]
Metric = Literal["loss", "fisher", "hessian"]


def sensitivity(
    model: QModel,
    params: Params,
    *inputs: Examples,
    bits: Sequence[int] = (2, 3, 4, 8),
    loss: Loss | None = None,
    metric: Metric = "loss",
    names: Sequence[str] | None = None,
    allow_nan: bool = False,
) -> dict[str, dict[int, float]]:
    """Measures, or estimates, how much the loss grows with fewer bits of one tensor.

    Args:
      model: the model, from `prepare`, with its parameters.
      inputs: examples, as for `QModel.apply`; or batches, as for `calibrate`.
      bits: the bits to try; a tensor leaves out more bits than its type has.
      loss: the loss of the outputs of `QModel.apply`. For "fisher" it returns one value an example,
        so that labels it closes over have the examples on the first axis. By default the mean
        squared difference from the outputs of the float graph.
      metric: "loss", the loss of the integer graph with one tensor changed, minus the loss
        before: one program for all; "hessian", half of d H d for the change d of the weights and
        the Hessian H of the float graph's loss; "fisher", the same with the squared gradients of
        each example in the place of H.
      names: the weights to try; all by default.
      allow_nan: takes examples with NaN or infinities.

    Returns:
      For each tensor and number of bits, the growth of the loss.

    Raises:
      TypeError: an argument is of another type.
      ValueError: the metric or a tensor is unknown, or "fisher" has no loss; the model has no
        float graph; the parameters are of another model; or an example is NaN or infinite.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> (growth,) = quant.sensitivity(model, params, example, bits=[2, 8]).values()
      >>> growth[2] > growth[8]
      True
    """
    message = "sensitivity of a model without a float graph, expected one of `prepare`"
    model = prepared(model, message)
    model.check(params)
    names = model.weights if names is None else names
    check_type("names", names, list | tuple, "a list of names of tensors")
    for name in names:
        if name not in model.specs:
            raise ValueError(
                f"names has {name!r}, which has no scale of its own{near(name, model.specs)}"
            )
    inputs = real_batch(model.float_graph.input_tensors, inputs, allow_nan=allow_nan)
    if metric not in ("loss", "fisher", "hessian"):
        raise ValueError(f"metric {metric!r}, expected 'loss', 'fisher' or 'hessian'")
    if metric == "fisher" and loss is None:
        raise ValueError("metric 'fisher' needs a loss: that of the float graph has no gradient")
    loss = from_float(model, params, inputs) if loss is None else of_outputs(loss)
    measure = {"loss": _by_loss, "fisher": _by_fisher, "hessian": _by_hessian}[metric]
    growths: dict[str, dict[int, float]] = {}
    grow = measure(model, params, inputs, loss)
    for name in names:
        limit = params["qparams"][name].storage.dtype.bits
        growths[name] = {
            b: float(grow(with_bits(model, params, {name: b}), name)) for b in bits if b <= limit
        }
    return growths


def from_float(model: QModel, params: Params, inputs: tuple[Any, ...]) -> Loss:
    """The mean squared difference from the outputs of the float graph."""
    wanted = model.apply(params, *inputs, mode="float")

    def loss(outputs: tuple[jax.Array, ...]) -> jax.Array:
        errors = [jnp.square(y - w) for y, w in zip(outputs, wanted, strict=True)]
        return jnp.stack([error.mean() for error in errors]).mean()

    return loss


_Grow = Callable[[Params, str], jax.Array]


def _by_loss(model: QModel, params: Params, inputs: tuple[Any, ...], loss: Loss) -> _Grow:
    run = jax.jit(lambda p, *x: loss(model.apply(p, *x)).mean())
    before = run(params, *inputs)
    return lambda changed, name: run(changed, *inputs) - before


def _by_hessian(model: QModel, params: Params, inputs: tuple[Any, ...], loss: Loss) -> _Grow:
    values = params["values"]

    def total(values: dict[str, jax.Array]) -> jax.Array:
        return loss(model.apply({**params, "values": values}, *inputs, mode="float")).mean()

    @jax.jit
    def curved(change: dict[str, jax.Array]) -> jax.Array:
        _, along = jax.jvp(jax.grad(total), (values,), (change,))
        return jnp.stack([jnp.vdot(change[n], along[n]) for n in change]).sum() / 2

    def grow(changed: Params, name: str) -> jax.Array:
        nothing = jax.tree.map(jnp.zeros_like, values)
        return curved({**nothing, name: _rounding_error(model, changed, name)})

    return grow


def _by_fisher(model: QModel, params: Params, inputs: tuple[Any, ...], loss: Loss) -> _Grow:
    values = params["values"]

    def each(values: dict[str, jax.Array]) -> jax.Array:
        return loss(model.apply({**params, "values": values}, *inputs, mode="float"))

    rows = jax.jit(jax.jacrev(each))(values)
    squared = {name: jnp.square(row).mean(0) for name, row in rows.items()}
    return lambda changed, name: (
        jnp.vdot(squared[name], jnp.square(_rounding_error(model, changed, name))) / 2
    )


def _rounding_error(model: QModel, params: Params, name: str) -> jax.Array:
    """The errors of quantized weights."""
    values = params["values"][name]
    return fake_quant(values, fitted_qparams(model.plan, params, name)) - values
