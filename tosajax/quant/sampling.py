"""sample_tables: the functions of TABLEs, sampled in the scales of their inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.grad.qtensor import QTensor
from tosajax.quant.convert.converter import TABLE_STEP, table_size
from tosajax.quant.graphs.regions import Function, evaluate
from tosajax.quant.model.plan import Octaves
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import QModel
from tosajax.quant.qparams import QParams, dequantize, spread


def sample_tables(model: QModel, params: Params, sources: Iterable[str] | None = None) -> Params:
    """The parameters with functions sampled again, after scales have changed.

    A function is sampled at the real values of all integers of its input, of INT16 at 513 points
    over its range, and from INT8 to INT16 at all integers less a zero point; one that is steep
    near 0, as 1/x, at 513 points by octaves of INT16 and of sums; in float32. Where it is not
    finite, the samples are the ends of float32, or 0 for NaN. Entries that were trained are
    made anew. Parameters may be traced, but samples have no gradient.

    Args:
      model: the model, from `prepare`.
      params: the parameters, with their scales, zero points and bits.
      sources: only the functions that read tensors with the scales of these; all by default.

    Returns:
      The parameters with new "tables", and with the scales that they are of as "sampled".

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-4, 4]])
      >>> model = quant.prepare(lambda x: jnp.tanh(x), example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> tables = quant.sample_tables(model, params)["tables"]
      >>> [entries.shape for entries in tables.values()]
      [(256,)]
    """
    chosen = frozenset(model.plan.sampled if sources is None else sources)
    # One program, so that the same scales always give the same samples.
    tables = jitted(model, _sampled_tables, chosen=chosen)(params["qparams"])
    owners = {owner for name in tables for owner in model.plan.sampled_in(name)}
    # Copies: a step to which parameters are donated takes no array twice.
    sampled = {owner: jax.tree.map(jnp.copy, params["qparams"][owner]) for owner in owners}
    return {
        **params,
        "tables": {**params.get("tables", {}), **tables},
        "sampled": {**params.get("sampled", {}), **sampled},
    }


def _sampled_tables(
    model: QModel, qparams: Mapping[str, QParams], *, chosen: frozenset[str]
) -> dict[str, jax.Array]:
    """The samples of the functions that read tensors with the scales of chosen ones."""
    tables = dict[str, jax.Array]()
    for name, function in model.plan.functions.items():
        owners = model.plan.sampled_in(name)
        if chosen.isdisjoint(owners):
            continue
        if name in model.plan.octaves:
            unit = model.plan.octaves[name].unit({"qparams": qparams})
            tables[name] = _samples_by_octaves(function, model.plan.octaves[name], unit)
        else:
            is_wide = model.specs[model.owners[name]].dtype is DType.INT16
            tables[name] = _samples(function, qparams[owners[0]], is_wide=is_wide)
    return tables


def _samples(function: Function, qparams: QParams, *, is_wide: bool) -> jax.Array:
    dtype = qparams.storage.dtype
    if dtype is DType.INT8 and is_wide:
        dtype, qparams = DType.INT16, dataclasses.replace(qparams, symmetric=True)
        grid = jnp.arange(table_size(dtype), dtype=jnp.int32) + dtype.minimum // TABLE_STEP
        points = lax.stop_gradient(dequantize(QTensor.of(grid), qparams))
        return jnp.nan_to_num(evaluate(function, points))
    step = 1 if dtype is DType.INT8 else TABLE_STEP
    grid = jnp.arange(table_size(dtype), dtype=jnp.int32) * step + dtype.minimum
    points = lax.stop_gradient(dequantize(QTensor.of(grid), qparams))
    if dtype is DType.INT16:
        points = points / spread(qparams)
    return jnp.nan_to_num(evaluate(function, points))


def _samples_by_octaves(function: Function, octaves: Octaves, unit: jax.Array) -> jax.Array:
    """Samples between which lines are as far above a function as below it."""
    # Twice as many points, for the middles of the lines.
    indices = np.arange(2 * table_size(DType.INT16) - 1) * (TABLE_STEP // 2)
    points = lax.stop_gradient(unit).reshape(()) * jnp.asarray(
        octaves.integers(indices), jnp.float32
    )
    values = jnp.nan_to_num(evaluate(function, points))
    entries, middles = values[::2], values[1::2]
    above = (entries[:-1] + entries[1:]) / 2 - middles
    return entries - (jnp.append(above, above[-1]) + jnp.append(above[0], above)) / 4
