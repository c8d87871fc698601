"""estimate_norms: the statistics of batch norms, after quantization."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp

from tosajax.quant.calibration import examples
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.norms import Norm, Norms, with_statistics
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import Mode
from tosajax.quant.qmodel import QModel, prepared
from tosajax.quant.ranges.channels import on_last_axis


def estimate_norms(
    model: QModel,
    params: Params,
    batches: Iterable[Batch],
    *,
    mode: Mode = "exact",
    allow_nan: bool = False,
) -> Params:
    """Finds the statistics of batch norms again, from the integers: quantization moved them.

    Each batch is normalized by its own statistics, as in training; the result is their mean over
    all batches. Needs `batch_norms` in `prepare`.

    Args:
      model: the model, from `prepare`.
      params: the parameters, from `calibrate`, trained or not.
      batches: examples, as for `calibrate`; large ones, as each is normalized by itself.
      mode: the mode, as for `QModel.apply`.
      allow_nan: takes examples with NaN or infinities.

    Returns:
      The parameters with these statistics.

    Raises:
      TypeError: an argument, or an example, is of another type.
      ValueError: the model keeps no batch norms; the parameters are of another model; or there are
        no examples, or one is NaN or infinite.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, x = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1], [1, 2], [0, 3]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[x], batch_norms=".")
      >>> params = quant.estimate_norms(model, quant.calibrate(model, [x]), [x])
      >>> [norm.mean.shape for norm in params["norms"].values()]
      [(2,)]
    """
    model = prepared(model)
    batches = examples(model, params, batches, allow_nan=allow_nan)

    @jax.jit
    def statistics(params: Params, *inputs: jax.Array) -> Norms:
        return model.apply_batch(params, *inputs, mode=mode)[1]

    norms_by_batch = [statistics(params, *batch) for batch in batches]
    counts = jnp.asarray([batch[0].shape[0] for batch in batches], jnp.float32)
    shares = (counts / counts.sum()).reshape(-1, 1)
    norms = {
        name: _joint_norm([each[name] for each in norms_by_batch], shares)
        for name in model.plan.norms
    }
    return with_statistics(params, norms, momentum=0)


def _joint_norm(norms: Sequence[Norm], shares: jax.Array) -> Norm:
    """The norm with the statistics of several batches together, of these shares of all values."""
    means = jnp.stack([norm.mean for norm in norms])
    mean = (means * shares).sum(0)
    distances = jnp.square(means - on_last_axis(mean, 2))
    squares = jnp.square(jnp.stack([norm.deviation for norm in norms]))
    deviation = jnp.sqrt(((squares + distances) * shares).sum(0))
    return dataclasses.replace(norms[0], mean=mean, deviation=deviation)
