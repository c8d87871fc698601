"""calibrate: parameters from a float graph and examples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.dtypes import DType
from tosajax.grad.qtensor import QTensor
from tosajax.quant.convert.converter import TABLE_SIZE
from tosajax.quant.float8 import Value
from tosajax.quant.model import QModel
from tosajax.quant.qparams import Grid, QParams, dequantize, float8_limit
from tosajax.quant.recipes import Bias, Params, Weight
from tosajax.quant.regions import evaluate
from tosajax.quant.spec import QSpec

Batch = Any


def calibrate(
    model: QModel, batches: Iterable[Batch], *, values: dict[str, Any] | None = None
) -> Params:
    """Finds scales and zero points: those of weights from them, others by running examples.

    Args:
      model: from `prepare`.
      batches: examples; each an input as for `QModel.apply`, or a tuple of inputs.
      values: constants of the float graph by name, where they have been trained since.

    Returns:
      Parameters for `QModel.apply`.

    Raises:
      ValueError: there are no examples.
    """
    assert model.float_graph is not None
    values = {**initial_values(model), **(values or {})}
    found = jax.jit(lambda v: {n: weight_qparams(model, n, v[n]) for n in model.weights})(values)
    found |= _activation_qparams(model, {"values": values, "qparams": {}}, batches)
    qparams = {name: found[name] for name in model.specs}
    return sample_tables(model, {"values": values, "qparams": qparams, "tables": {}})


def as_inputs(batch: Batch) -> tuple[Any, ...]:
    """A batch as the inputs of `QModel.apply`."""
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


def initial_values(model: QModel) -> dict[str, jax.Array]:
    """The constants of the float graph that the integer graph has in other form."""
    assert model.float_graph is not None
    tensors = model.float_graph.tensors
    names = [r.tensor for r in model.recipes.values() if isinstance(r, Weight | Bias | Value)]
    return {name: jnp.asarray(tensors[name].values) for name in dict.fromkeys(names)}


def weight_qparams(
    model: QModel, name: str, values: jax.Array, bits: jax.Array | None = None
) -> QParams:
    """The scale of a constant, by channel where its specification asks for that.

    Args:
      model: from `prepare`.
      name: of the constant.
      values: float32.
      bits: other bits than those of the specification.

    Raises:
      ValueError: other bits of FP8.
    """
    spec, axes = model.specs[name], model.channel_axes.get(name, ())
    if spec.is_float8 and bits is not None:
        raise ValueError(f"{name!r} is FP8, which has no bits to choose from")
    width = jnp.asarray(spec.bits, jnp.float32) if bits is None else bits
    shape = [n if axis in axes else 1 for axis, n in enumerate(values.shape)]
    channels = jnp.moveaxis(values, axes, range(len(axes)))
    channels = channels.reshape(math.prod(shape), -1)

    def observe(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _observed(spec, width, spec.observer.update(spec.observer.init(), x))

    scale, zero_point = jax.vmap(observe)(channels)
    return _qparams(spec, width, scale.reshape(shape), zero_point[0])


def _activation_qparams(
    model: QModel, params: Params, batches: Iterable[Batch]
) -> dict[str, QParams]:
    # Every tensor that is observed, and whose range that is for.
    sources = [(s, n) for n in model.activations for s in (n, *model.observed.get(n, ()))]
    observed = model.with_outputs(*(source for source, _ in sources))
    observers = {name: model.specs[name].observer for name in model.activations}

    @jax.jit
    def update(states: dict[str, Any], values: Any, *inputs: jax.Array) -> dict[str, Any]:
        known = {"values": values, "qparams": {}}
        outputs = observed.apply(known, *inputs, mode="float")
        states = dict(states)
        for (_, name), y in zip(sources, outputs, strict=True):
            states[name] = observers[name].update(states[name], y)
        return states

    states, count = {name: observer.init() for name, observer in observers.items()}, 0
    for batch in batches:
        states = update(states, params["values"], *as_inputs(batch))
        count += 1
    if not count:
        raise ValueError("no examples to calibrate with")

    def settle(states: dict[str, Any]) -> dict[str, QParams]:
        found = {}
        for name, state in states.items():
            spec = model.specs[name]
            bits = jnp.asarray(spec.bits, jnp.float32)
            found[name] = _qparams(spec, bits, *_observed(spec, bits, state))
        return found

    return jax.jit(settle)(states)


def _observed(spec: QSpec, bits: jax.Array, state: Any) -> tuple[jax.Array, jax.Array]:
    return spec.observer.qparams(state, _grid(spec, bits), spec.symmetric)


def _grid(spec: QSpec, bits: jax.Array) -> Grid:
    """What the ends of a range are divided by."""
    assert isinstance(spec.dtype, DType)
    if spec.is_float8:
        limit = jnp.float32(float8_limit(spec.dtype))
        return Grid(-limit, limit)
    one = jnp.ones((), jnp.float32)
    return _qparams(spec, bits, one, one).grid


def _qparams(spec: QSpec, bits: jax.Array, scale: jax.Array, zero_point: jax.Array) -> QParams:
    assert isinstance(spec.dtype, DType)
    return QParams(
        scale,
        zero_point,
        bits,
        dtype=spec.dtype,
        symmetric=spec.symmetric,
        narrow_range=spec.narrow_range,
    )


def sample_tables(model: QModel, params: Params) -> Params:
    """The parameters with the samples of every function anew, after scales have been changed.

    A function is sampled at the real values of all integers of its input (of every 128th of
    INT16), in float32. Where it is not finite, the samples are the ends of float32, or 0 for NaN.
    """
    tables = {}
    for name, function in model.tables.items():
        owner = model.owners[function.source]
        dtype = params["qparams"][owner].dtype
        count = TABLE_SIZE[dtype]
        step = 1 if dtype is DType.INT8 else 128
        grid = jnp.arange(count, dtype=jnp.int32) * step + dtype.minimum
        points = dequantize(QTensor.of(grid), params["qparams"][owner])
        tables[name] = jnp.asarray(np.nan_to_num(evaluate(function, np.asarray(points))))
    return {**params, "tables": tables}
