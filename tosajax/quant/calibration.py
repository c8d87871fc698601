"""calibrate: finds parameters from a float graph and examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sized
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tosajax.arguments.names import near
from tosajax.arguments.nan import first_nan
from tosajax.arguments.types import check_type
from tosajax.grad.qtensor import QTensor
from tosajax.progress import Progress
from tosajax.quant.graphs.blocks import all_tensors
from tosajax.quant.limiting import limited_qparams
from tosajax.quant.model import on_host
from tosajax.quant.model.arguments import (
    Batch,
    Numbers,
    as_inputs,
    check_batches,
    real_examples,
)
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.room import with_room
from tosajax.quant.observing import Observed, observed_batches, observer_of
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.qparams import QParams
from tosajax.quant.ranges.channels import along
from tosajax.quant.ranges.mask_ranges import Masked, widened
from tosajax.quant.ranges.observers import (
    NOTHING,
    Histogram,
    check_percentile,
    percentile_qparams,
    tail,
)
from tosajax.quant.ranges.on_grid import qparams_of_ends, scales_of_integers
from tosajax.quant.sampling import sample_tables
from tosajax.quant.spec import QSpec
from tosajax.quant.storages import Grid


def calibrate(
    model: QModel,
    batches: Iterable[Batch],
    *,
    values: Mapping[str, Numbers] | None = None,
    allow_nan: bool = False,
    progress: bool = False,
) -> Params:
    """Finds scales and zero points: of weights from their values, of others by running examples.

    Ranges hold the values that matter. They leave out examples, at most a quarter of eight or more,
    beside whose outputs (beyond [-1, 1], of 8 bits) nothing would be left of the others, with a
    warning; where batches are an iterator, there is the warning alone.

    Activations that only depthwise convolutions read have a scale for each channel, by all batches
    or the first of an iterator.

    Masks (-inf, or magnitudes from 1e9 on, in constants of SELECT and ADD) are in no range, and
    their integers are an end of it. The range of logits holds those down to ln(512 n) below the
    greatest of their row of n elements (ln(131072 n) in INT16), so that a softmax leaves out the
    others; that of a term of theirs as much as moves them there; that of an inverse norm no rows of
    zeros. What functions alone read (a sigmoid, a GELU) has the range in which these change.

    Args:
      model: the model, from `prepare`.
      batches: examples; each an input as for `QModel.apply`, or a tuple of inputs.
      values: constants of the float graph by name, if they have been trained since.
      allow_nan: takes examples with NaN or infinities, and tensors that become NaN; ranges ignore
        these values.
      progress: show a bar of batches, with the rate, on a terminal; batch one compiles.

    Returns:
      Parameters for `QModel.apply`.

    Raises:
      TypeError: an argument, or an example, is of another type.
      ValueError: there are no examples; or one is NaN or infinite, or has another shape; or a
        tensor becomes NaN throughout, or a value is.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w = np.float32([[1, -2], [3, 4]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[np.zeros((1, 2), np.float32)])
      >>> params = quant.calibrate(model, [np.float32([[-1, 1]]), np.float32([[0, 2]])])
      >>> graph = model.freeze(params)
      >>> [tensor.dtype.name for tensor in graph.input_tensors + graph.output_tensors]
      ['INT8', 'INT8']
    """
    observed = observe(model, batches, values=values, allow_nan=allow_nan, progress=progress)
    return settle(model, observed)


def examples(
    model: PreparedModel, params: Params, batches: Iterable[Batch], *, allow_nan: bool
) -> list[tuple[jax.Array | QTensor, ...]]:
    """Batches as inputs of the float graph, of a model with its parameters.

    Raises:
      TypeError: the batches, or an example, are of another type.
      ValueError: the parameters are of another model; or there are no examples, or one is NaN or
        infinite.
    """
    model.check(params)
    return real_batches(model, batches, allow_nan=allow_nan)


def real_batches(
    model: PreparedModel, batches: Iterable[Batch], *, allow_nan: bool
) -> list[tuple[jax.Array | QTensor, ...]]:
    """Batches as inputs of the float graph; errors as of `examples`."""
    check_batches(batches)
    tensors = model.float_graph.input_tensors
    real = [
        real_examples(tensors, as_inputs(batch), allow_nan=allow_nan, where=f"batch {number}: ")
        for number, batch in enumerate(batches)
    ]
    if not real:
        raise ValueError("no examples to learn from")
    return real


def observe(
    model: QModel,
    batches: Iterable[Batch],
    *,
    values: Mapping[str, Numbers] | None = None,
    allow_nan: bool = False,
    progress: bool = False,
) -> Observed:
    """Runs examples in floats; see `calibrate`.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> observed = quant.observe(model, [example])
      >>> params = quant.settle(model, observed)  # as quant.calibrate(model, [example])
      >>> sorted(params["qparams"])
      ['output', 'x']
    """
    model = require_float_graph(model)
    constants = known_values(model, values)
    check_batches(batches)
    total = len(batches) if isinstance(batches, Sized) else None
    with Progress(total, progress, unit="batch") as bar:
        return observed_batches(model, constants, batches, bar, allow_nan=allow_nan)


def settle(model: QModel, observed: Observed, *, percentile: float | None = None) -> Params:
    """The parameters from the states of observers; see `calibrate`.

    Args:
      model: the model, from `prepare`.
      observed: the states of observers, from `observe`.
      percentile: the percentile of the activations, in (50, 100]; one program serves all of them.
        The specification's own range by default.

    Raises:
      ValueError: the percentile is out of range, or an activation has an observer without a
        histogram (`percentile`, `mse` and `entropy` have one).

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> rules = [quant.rule(".*", act=quant.QSpec(observer=quant.percentile(100)))]
      >>> example = np.linspace(-1, 1, 1000, dtype=np.float32)
      >>> model = quant.prepare(lambda x: x + x, rules, example_args=[example])
      >>> observed = quant.observe(model, [example])
      >>> narrow, wide = (quant.settle(model, observed, percentile=p) for p in (90, 100))
      >>> bool(narrow["qparams"]["x"].scale < wide["qparams"]["x"].scale)
      True
    """
    share = None
    if percentile is not None:
        check_percentile(percentile)
        share = jnp.float32(tail(percentile))
        _check_histograms(model, observed)
    others = on_host.evaluate(jitted(model, _observed_params), observed, share)
    others = on_host.on_device(others)
    return sample_tables(model, {"values": observed.values, **others})


def _observed_params(model: QModel, observed: Observed, share: jax.Array | None) -> Params:
    """The parameters without values and tables."""
    qparams = _observed_qparams(model, observed, share)
    params = {"values": observed.values, "qparams": {name: qparams[name] for name in model.specs}}
    if observed.factors:
        params["factors"] = observed.factors
    if observed.moments:
        params["norms"] = {name: moments.norm() for name, moments in observed.moments.items()}
    return {key: x for key, x in with_room(model.plan, params).items() if key != "values"}


def _observed_qparams(
    model: QModel, observed: Observed, share: jax.Array | None
) -> dict[str, QParams]:
    qparams = {n: weight_qparams(model, n, observed.values[n]) for n in model.weights}
    for name, state in observed.states.items():
        spec = model.specs[name]
        bits = jnp.asarray(spec.bits, jnp.float32)
        grid = _grid(spec, bits)
        if share is None or spec.observer.is_fixed:
            ends = observer_of(model, name).qparams(state, grid, spec.symmetric)
        else:
            ends = _percentile_scale(share, state, grid, spec.symmetric)
        qparams[name] = _qparams(spec, bits, *ends)
    return {**qparams, **limited_qparams(model, qparams)}


def _percentile_scale(
    share: jax.Array, state: Any, grid: Grid, symmetric: bool
) -> tuple[jax.Array, jax.Array]:
    if not isinstance(state, Masked):
        return percentile_qparams(share, state, grid, symmetric)
    qparams = percentile_qparams(share, state.state, grid, symmetric)
    return widened(qparams, state.ends, grid, symmetric)


def _check_histograms(model: QModel, observed: Observed) -> None:
    for name, state in observed.states.items():
        own = state.state if isinstance(state, Masked) else state
        if model.specs[name].observer.is_fixed:
            continue
        if not isinstance(own, Histogram):
            raise ValueError(f"{name!r} has an observer without a histogram: no percentile of it")


def initial_values(model: QModel) -> dict[str, jax.Array]:
    """The values of the float graph's constants that parameters hold.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w = np.float32([[1, -2], [3, 4]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[np.zeros((1, 2), np.float32)])
      >>> [value.shape for value in quant.initial_values(model).values()]
      [(2, 1, 1, 2), (2,)]
    """
    model = require_float_graph(model)
    tensors = all_tensors(model.float_graph)
    return {name: jnp.asarray(tensors[name].values, jnp.float32) for name in model.plan.trained}


def require_float_graph(model: QModel) -> PreparedModel:
    """The model, which must have a float graph with values to begin from."""
    message = "a model without a float graph has parameters already, from `lift`"
    return prepared(model, message)


def known_values(
    model: PreparedModel, values: Mapping[str, Numbers] | None
) -> dict[str, jax.Array]:
    """The values of the float graph's constants, given ones in their place.

    Raises:
      TypeError: the values are of another type.
      ValueError: a value has no tensor, or another shape, or is NaN.
    """
    result = initial_values(model)
    if values is None:
        return result
    check_type("values", values, Mapping, "a dictionary of arrays by tensor name")
    constants = {n: t for n, t in all_tensors(model.float_graph).items() if t.values is not None}
    for name, value in values.items():
        if name not in constants:
            raise ValueError(
                f"values has {name!r}, which is not a constant of the model{near(name, constants)}"
            )
        tensor = constants[name]
        # On the host, where no 64-bit type is lost on the way.
        own = value if isinstance(value, jax.Array) else np.asarray(value)
        if own.shape != tensor.shape:
            raise ValueError(f"values[{name!r}] has shape {own.shape}, expected {tensor.shape}")
        if not isinstance(own, Tracer) and (index := first_nan(own)) is not None:
            raise ValueError(f"values[{name!r}] is NaN at {index}, expected numbers")
        result[name] = jnp.asarray(own.astype(tensor.dtype.storage))
    return result


def weight_qparams(
    model: QModel, name: str, values: jax.Array, bits: jax.Array | None = None
) -> QParams:
    """The scale of a constant, by channel where its specification asks for that.

    Args:
      model: the model, from `prepare`.
      name: the constant's name.
      values: float32.
      bits: replaces the bits of the specification.
    """
    spec, axes = model.specs[name], model.plan.scaled[name].channel_axes
    width = jnp.asarray(spec.bits, jnp.float32) if bits is None else bits
    shape = along(axes, values.shape)
    channels = jnp.moveaxis(values, axes, range(len(axes)))
    channels = channels.reshape(math.prod(shape), -1)

    def observe(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _observed_scale(spec, width, spec.observer.update(spec.observer.init(), x))

    scale, zero_point = jax.vmap(observe)(channels)
    integers = model.plan.scaled[name].integers
    if integers is not None and bits is None and spec.symmetric:
        scale = scales_of_integers(channels, integers, scale)
    elif integers is not None and bits is None:
        scale, zero_point = qparams_of_ends(channels, integers, scale, zero_point)
    # Channels of 0 alone have no scale: they get one that suits the others.
    is_used = (jnp.abs(channels) >= NOTHING).any(1)
    scale = jnp.where(is_used | ~is_used.any(), scale, jnp.where(is_used, scale, 0).max())
    return _qparams(spec, width, scale.reshape(shape), zero_point[0])


def _observed_scale(spec: QSpec, bits: jax.Array, state: Any) -> tuple[jax.Array, jax.Array]:
    return spec.observer.qparams(state, _grid(spec, bits), spec.symmetric)


def _grid(spec: QSpec, bits: jax.Array) -> Grid:
    """The stored values that the ends of a range become."""
    return spec.storage.grid(bits, narrow_range=spec.narrow_range)


def _qparams(spec: QSpec, bits: jax.Array, scale: jax.Array, zero_point: jax.Array) -> QParams:
    assert not isinstance(spec.dtype, str)
    return QParams(
        scale,
        zero_point,
        bits,
        dtype=spec.dtype,
        symmetric=spec.symmetric,
        narrow_range=spec.narrow_range,
    )
