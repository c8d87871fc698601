"""calibrate: parameters from a float graph and examples."""

from __future__ import annotations

import dataclasses
import functools
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
from tosajax.quant.observers import Histogram, check_percentile, percentile_qparams, tail
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
    return settle(model, observe(model, batches, values=values))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Observed:
    """What observers have seen of a float graph: other ranges of it need no examples.

    Args:
      values: constants of the float graph by name.
      states: of the observer of each activation.
    """

    values: dict[str, jax.Array]
    states: dict[str, Any]

    def __repr__(self) -> str:
        return f"Observed({len(self.values)} constants, {len(self.states)} activations)"


def observe(
    model: QModel, batches: Iterable[Batch], *, values: dict[str, Any] | None = None
) -> Observed:
    """Runs examples in floats; see `calibrate`."""
    values = {**initial_values(model), **(values or {})}
    return Observed(values, _states(model, {"values": values, "qparams": {}}, batches))


def settle(model: QModel, observed: Observed, *, percentile: float | None = None) -> Params:
    """The parameters for what observers have seen; see `calibrate`.

    Args:
      model: from `prepare`.
      observed: from `observe`.
      percentile: of the activations, in (50, 100]; one program serves all of them. The
        specification's own range by default.

    Raises:
      ValueError: the percentile is out of range, or an activation has an observer without a
        histogram (`percentile`, `mse` and `entropy` have one).
    """
    share = None
    if percentile is not None:
        check_percentile(percentile)
        share = jnp.float32(tail(percentile))
        _check_histograms(model, observed)
    found = _settled(model, observed, share)
    qparams = {name: found[name] for name in model.specs}
    return sample_tables(model, {"values": observed.values, "qparams": qparams, "tables": {}})


@functools.partial(jax.jit, static_argnums=0)
def _settled(model: QModel, observed: Observed, share: jax.Array | None) -> dict[str, QParams]:
    found = {n: weight_qparams(model, n, observed.values[n]) for n in model.weights}
    for name, state in observed.states.items():
        spec = model.specs[name]
        bits = jnp.asarray(spec.bits, jnp.float32)
        if share is None:
            ends = _observed(spec, bits, state)
        else:
            ends = percentile_qparams(share, state, _grid(spec, bits), spec.symmetric)
        found[name] = _qparams(spec, bits, *ends)
    return found


def _check_histograms(model: QModel, observed: Observed) -> None:
    for name, state in observed.states.items():
        if not isinstance(state, Histogram):
            raise ValueError(f"{name!r} has an observer without a histogram: no percentile of it")


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


def _states(model: QModel, params: Params, batches: Iterable[Batch]) -> dict[str, Any]:
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

    return states


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
