"""Recipes: how each constant of the integer graph is made from the parameters.

`QModel.constants` calls them in training, and `freeze` once, for the file: integers come from
nowhere else. A training program does not derive them again wherever they are read.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.once import once
from tosajax.grad.qtensor import QTensor, follow
from tosajax.grad.shared import shared
from tosajax.quant.model import on_host
from tosajax.quant.model.norms import Norm
from tosajax.quant.qparams import QParams, dequantize, multiplier_and_shift, quantize, spread
from tosajax.quant.ranges.channels import on_last_axis
from tosajax.quant.storages import zero_point_integer
from tosajax.quant.storages.division import divide, reciprocal

# {"values": {tensor: float32}, "qparams": {tensor: QParams}, "tables": {tensor: float32}}; "norms"
# of convolutions, {tensor: Norm}, where a model keeps some; "factors" of channels, {tensor:
# float32}, where it has some;
# "corrections" of values where there are any, and "rounding" while it is learned; a lifted graph
# has groups of its own.
Params = dict[str, Any]
# A tensor, for its scale; or several, for the largest of their scales.
Term = str | tuple[str, ...]

# The largest float32 that an int32 holds.
_INT32_LIMIT = float(2**31 - 128)


class Recipe(Protocol):
    """Makes one constant of the graph from the parameters."""

    def __call__(self, params: Params) -> QTensor | jax.Array: ...


@runtime_checkable
class Lifted(Protocol):
    """A recipe of `lift`: of the parameter `name` of a group."""

    @property
    def group(self) -> str: ...

    @property
    def name(self) -> str: ...


class Terms(NamedTuple):
    """The numbers of a Scale: the factors and the divisor."""

    factors: list[jax.Array | np.ndarray]
    divisor: jax.Array | None

    def quotient(self) -> jax.Array:
        value = jnp.asarray(self.factors[0])
        for factor in self.factors[1:]:
            value = value * factor
        return value if self.divisor is None else divide(value, self.divisor)


@dataclasses.dataclass(frozen=True)
class Scale:
    """A product of scales and of a constant, over another scale; 1 value or one a channel.

    One product and one division, so that a compiler cannot choose another order.

    Args:
      over, under: the scales of these tensors.
      factor: the constant.
      spread: times the power of 2 by which the integers of this tensor fill their type.
      norm: times the factor of the batch norm of this tensor.
      channels: times the channel factors of this tensor.
      of_channels: over the channel factors of a tensor, of which each is for so many channels.
    """

    over: tuple[Term, ...] = ()
    under: Term | None = None
    factor: float = 1.0
    spread: str | None = None
    norm: str | None = None
    channels: str | None = None
    of_channels: tuple[str, int] | None = None

    def __call__(self, params: Params) -> jax.Array:
        return self.terms(params).quotient()

    def terms(self, params: Params) -> Terms:
        factors: list[jax.Array | np.ndarray] = [np.full((1,), self.factor, np.float32)]
        if self.spread is not None:
            factors.append(spread(params["qparams"][self.spread]))
        factors += [_scale_of(params, term) for term in self.over]
        divisors = [] if self.under is None else [_scale_of(params, self.under)]
        if self.norm is not None:
            norm: Norm = params["norms"][self.norm]
            factors.append(norm.gamma)
            divisors.append(norm.deviation)
        if self.channels is not None:
            factors.append(channel_factors(params, self.channels))
        if self.of_channels is not None:
            tensor, count = self.of_channels
            own = channel_factors(params, tensor)
            divisors.append(jnp.broadcast_to(own[:, None], (own.size, count)).reshape(-1))
        return Terms(factors, functools.reduce(operator.mul, divisors) if divisors else None)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors whose scales are in it, each once."""
        terms = (*self.over, self.under, self.spread)
        names = [(term,) if isinstance(term, str) else term or () for term in terms]
        return tuple(dict.fromkeys(itertools.chain(*names)))

    def times(self, factor: float) -> Scale:
        return dataclasses.replace(self, factor=self.factor * factor)

    def to(self, tensor: Term) -> Scale:
        """The factor from these units to the units of a tensor."""
        return dataclasses.replace(self, under=tensor)


def _scale_of(params: Params, term: Term) -> jax.Array:
    if isinstance(term, str):
        return params["qparams"][term].scale.reshape(-1)
    first, *rest = (params["qparams"][name].scale.reshape(-1) for name in term)
    for scale in rest:
        first = jnp.maximum(first, scale)
    return first


def channel_factors(params: Params, tensor: str) -> jax.Array:
    """The factors that the channels of a tensor are multiplied by before they are rounded."""
    return lax.stop_gradient(params["factors"][tensor])


def corrected(params: Params, tensor: str) -> jax.Array:
    """The values of a constant that its integers stand for.

    They are the values of the float graph plus corrections for quantization, which are kept
    apart, so that integers are compared with the unchanged float graph.
    """
    values = params["values"][tensor]
    correction = params.get("corrections", {}).get(tensor)
    return values if correction is None else values + lax.stop_gradient(correction)


def with_corrections(params: Params, wanted: Mapping[str, jax.Array | np.ndarray]) -> Params:
    """The parameters with corrections, so that integers stand for these values."""
    values = {name: params["values"][name] for name in wanted}
    corrections = on_host.on_device(on_host.evaluate(_differences, dict(wanted), values))
    return {**params, "corrections": {**params.get("corrections", {}), **corrections}}


@jax.jit
def _differences(wanted: dict[str, jax.Array], values: dict[str, jax.Array]) -> Any:
    return jax.tree.map(jnp.subtract, wanted, values)


@dataclasses.dataclass(frozen=True)
class Weight:
    """A constant, quantized; each value up or down by `params["rounding"]`, where it has some.

    It is not `computed_once`: products have their weights in memory anyway.
    """

    tensor: str
    estimator: Estimator = clipped_ste

    def __call__(self, params: Params) -> QTensor:
        values, qparams = corrected(params, self.tensor), params["qparams"][self.tensor]
        rounding = params.get("rounding", {}).get(self.tensor)
        if rounding is None:
            return quantize(values, qparams, self.estimator)
        return rounded_by_step(values, rounding, qparams)


def rounded_by_step(values: jax.Array, rounding: jax.Array, qparams: QParams) -> QTensor:
    """Rounds down where `rounding` is below 0, else up, with the gradient of a soft step."""
    up = (rounding >= 0).astype(jnp.float32)
    hard = _floor_plus(values, up, qparams)
    soft = _floor_plus(values, soft_step(rounding), qparams)
    return QTensor(hard.astype(qparams.storage.dtype.storage), follow(hard, soft))


def _floor_plus(values: jax.Array, step: jax.Array, qparams: QParams) -> jax.Array:
    """The integers below these values, and a part of a step more, within the range."""
    zero_point = zero_point_integer(qparams).q.astype(jnp.float32)
    down = jnp.floor(lax.stop_gradient(divide(values, qparams.scale))) + zero_point
    return jnp.clip(down + step, *lax.stop_gradient(qparams.grid))


def soft_rounding(values: jax.Array, rounding: jax.Array, qparams: QParams) -> jax.Array:
    """Real values between the integers below and above, by the soft step itself."""
    zero_point = zero_point_integer(qparams).q.astype(jnp.float32)
    return (_floor_plus(values, soft_step(rounding), qparams) - zero_point) * qparams.scale


def soft_step(rounding: jax.Array) -> jax.Array:
    """A step from 0 to 1, flat at the ends: AdaRound's rectified sigmoid (Nagel et al., 2020)."""
    return jnp.clip(jax.nn.sigmoid(rounding) * 1.2 - 0.1, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Bias:
    """A bias in units of input times weight, ties to even, saturated.

    Args:
      tensor: the constant; of the channels, unless there is a shape.
      scale: the unit, one or one a channel.
      dtype: INT32 or INT48.
      limit: the largest magnitude, which leaves room in the accumulator for products.
      shape: the shape of the integers, channels last.
      norm: the tensor whose batch norm adds its shift.
    """

    tensor: str
    scale: Scale
    dtype: DType = DType.INT32
    limit: float = _INT32_LIMIT
    shape: tuple[int, ...] | None = None
    norm: str | None = None

    def real_values(self, params: Params) -> jax.Array:
        """The bias as floats, with the shift of the batch norm."""
        values = corrected(params, self.tensor)
        return values if self.norm is None else values + params["norms"][self.norm].shift

    def __call__(self, params: Params) -> QTensor:
        values, terms = self.real_values(params), self.scale.terms(params)
        rank = 1 if self.shape is None else len(self.shape)
        return _in_accumulator_units(values, terms, rank=rank, dtype=self.dtype, limit=self.limit)


@shared
def _in_accumulator_units(
    values: jax.Array, terms: Terms, *, rank: int, dtype: DType, limit: float
) -> QTensor:
    unit = on_last_axis(terms.quotient(), rank)
    return computed_once(to_accumulator(divide(values, unit), dtype, limit))


def to_accumulator(value: jax.Array, dtype: DType, limit: float) -> QTensor:
    """float32, rounded and saturated to INT32 or INT48."""
    rounded = lax.round(lax.stop_gradient(value), lax.RoundingMethod.TO_NEAREST_EVEN)
    integers = jnp.clip(rounded, -limit, limit)
    if dtype is DType.INT48:
        with _x64.scope():
            return QTensor(_x64.widen(integers), value)
    return QTensor(integers.astype(jnp.int32), value)


@dataclasses.dataclass(frozen=True)
class Value:
    """A constant that stays FP32, as it is trained."""

    tensor: str

    def __call__(self, params: Params) -> jax.Array:
        return params["values"][self.tensor]


@dataclasses.dataclass(frozen=True)
class Factor:
    """The scale of a tensor, or its reciprocal, for a MUL."""

    tensor: str
    shape: tuple[int, ...]
    is_reciprocal: bool = False

    def __call__(self, params: Params) -> jax.Array:
        scale = params["qparams"][self.tensor].scale
        return (reciprocal(scale) if self.is_reciprocal else scale).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Multiplier:
    """The multiplier of a RESCALE."""

    scale: Scale
    scale32: bool = True

    def __call__(self, params: Params) -> QTensor:
        return scaling(params, self.scale, scale32=self.scale32)[0]


@dataclasses.dataclass(frozen=True)
class Shift:
    """The shift of a RESCALE."""

    scale: Scale
    scale32: bool = True

    def __call__(self, params: Params) -> QTensor:
        return scaling(params, self.scale, scale32=self.scale32)[1]


def scaling(params: Params, scale: Scale, *, scale32: bool) -> tuple[QTensor, QTensor]:
    """The multiplier and the shift of a RESCALE."""
    return _scaling(scale.terms(params), scale32=scale32)


@shared
def _scaling(terms: Terms, *, scale32: bool) -> tuple[QTensor, QTensor]:
    multiplier, shift = multiplier_and_shift(terms.quotient(), scale32=scale32)
    return multiplier, QTensor.of(shift)


@dataclasses.dataclass(frozen=True)
class ZeroPoint:
    """The zero point of a tensor, as a list of one."""

    tensor: str

    def __call__(self, params: Params) -> QTensor:
        qparams = params["qparams"][self.tensor]
        # Kernels see that a symmetric one is 0.
        zero_point = zero_point_integer(qparams) if qparams.symmetric else _zero_point(qparams)
        return jax.tree.map(lambda x: x.reshape(1), zero_point)


@shared
def _zero_point(qparams: QParams) -> QTensor:
    return computed_once(zero_point_integer(qparams))


@dataclasses.dataclass(frozen=True)
class Number:
    """A real constant in the units of a tensor."""

    tensor: str
    value: float
    shape: tuple[int, ...] = (1,)

    def __call__(self, params: Params) -> QTensor:
        return _number(params["qparams"][self.tensor], self.value, self.shape)


@shared
def _number(qparams: QParams, value: float, shape: tuple[int, ...]) -> QTensor:
    number = quantize(jnp.float32(value), qparams)
    # The scale of a constant has its axes.
    return computed_once(jax.tree.map(lambda x: jnp.broadcast_to(x.reshape(()), shape), number))


@dataclasses.dataclass(frozen=True)
class Bound:
    """An end of the range of a tensor: of its bits, or a real number that lies within."""

    tensor: str
    upper: bool
    value: float | None = None

    def __call__(self, params: Params) -> QTensor:
        qparams = params["qparams"][self.tensor]
        if self.value is not None and abs(self.value) < np.finfo(np.float32).max:
            return _number(qparams, self.value, ())
        return _range_end(qparams, upper=self.upper)


@dataclasses.dataclass(frozen=True)
class End:
    """An end of the range of a tensor, as a constant of this shape."""

    tensor: str
    upper: bool
    shape: tuple[int, ...]

    def __call__(self, params: Params) -> QTensor:
        bound = _range_end(params["qparams"][self.tensor], upper=self.upper)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, self.shape), bound)


@shared
def _range_end(qparams: QParams, *, upper: bool) -> QTensor:
    end = qparams.grid.qmax if upper else qparams.grid.qmin
    return computed_once(QTensor(lax.stop_gradient(end).astype(qparams.storage.dtype.storage), end))


@dataclasses.dataclass(frozen=True)
class Entries:
    """A TABLE: the samples of a function, of INT8 in the units of its output, of INT16 in steps.

    Args:
      tensor: the output.
      owner: the tensor whose scale the output has.
      dtype: the element type of the input of the TABLE.
    """

    tensor: str
    owner: str
    dtype: DType

    def __call__(self, params: Params) -> QTensor:
        samples, qparams = params["tables"][self.tensor], params["qparams"][self.owner]
        if self.dtype is DType.INT8:
            return computed_once(quantize(samples, qparams))
        value = divide(samples, qparams.scale * self.step(qparams.dtype))
        ends = float(self.dtype.minimum), float(self.dtype.maximum)
        rounded = jnp.clip(lax.round(value, lax.RoundingMethod.TO_NEAREST_EVEN), *ends)
        entries = _without_jumps(lax.stop_gradient(rounded))
        return computed_once(QTensor(entries.astype(self.dtype.storage), clipped_ste(value, *ends)))

    def step(self, output: DType) -> float:
        """The unit of INT16 entries, in units of the output: 255 steps of INT8 fit."""
        return 1.0 if output is DType.INT16 else 2.0**-7


def _without_jumps(entries: jax.Array) -> jax.Array:
    """Entries of INT16 with differences in INT16, as TABLE requires: a pole takes two steps.

    Where any difference is larger, all entries are within 32767 of 0, and each is held within
    32767 of the original entry before it, so that the next step is defined as well.
    """
    limit = float(DType.INT16.maximum)
    steps = jnp.diff(entries)
    is_defined = ((steps <= limit) & (steps >= -limit - 1)).all()
    near = jnp.clip(entries, -limit, limit)
    held = jnp.clip(near[1:], near[:-1] - limit, near[:-1] + limit)
    return jnp.where(is_defined, entries, jnp.concatenate([near[:1], held]))


def computed_once(integers: QTensor) -> QTensor:
    """Integers that a training program computes once, however many steps read them."""
    is_narrow = jnp.issubdtype(integers.dtype, jnp.integer) and integers.dtype.itemsize <= 4
    return QTensor(once(integers.q), integers.shadow) if is_narrow else integers


def real(integers: QTensor, tensor: str, params: Params) -> jax.Array:
    """The real values of a tensor's integers."""
    return dequantize(integers, params["qparams"][tensor])
