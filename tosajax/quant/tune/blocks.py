"""Block: a part of a model that is trained to reproduce its float outputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.dtypes import DType
from tosajax.grad.qtensor import QTensor, payload
from tosajax.graph import Tensor
from tosajax.quant.model.recipes import Params, rounded_by_step, soft_rounding, soft_step
from tosajax.quant.model.room import fitted
from tosajax.quant.model.run import (
    fake_quantized,
    integer_constants,
    real_outputs,
    run_floats,
    run_integers,
)
from tosajax.quant.qmodel import PreparedModel, QModel
from tosajax.quant.qparams import QParams, dequantize
from tosajax.quant.sampling import sample_tables
from tosajax.quant.tune.rounding import nearest, with_rounding

if TYPE_CHECKING:
    import optax

# Of the regularizer of AdaRound: none in the first steps, then a power that falls.
_FREE, _FIRST_POWER, _LAST_POWER = 0.2, 20.0, 2.0


class Learning(NamedTuple):
    """How each block learns; see `reconstruct`."""

    steps: int
    drop: float
    regularizer: float
    optimizer: optax.GradientTransformation
    seed: int


class Rows(NamedTuple):
    """The data that a block learns from, of one batch: arrays with an axis of examples in front.

    Args:
      integers: the inputs that the quantized blocks before it give.
      floats: the inputs that the float graph has.
      wanted: the outputs of the float graph.
      weights: the weights of each element of the outputs.
    """

    integers: tuple[jax.Array, ...]
    floats: tuple[jax.Array, ...]
    wanted: tuple[jax.Array, ...]
    weights: tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """A part of a model.

    Args:
      part: the model of it.
      weights: the constants whose rounding it learns.
      scales: the activations whose scales and zero points it learns.
    """

    part: PreparedModel
    weights: tuple[str, ...]
    scales: tuple[str, ...]

    def data(
        self,
        params: Params,
        integers: Mapping[str, jax.Array],
        floats: Mapping[str, jax.Array],
        weights: tuple[jax.Array, ...],
    ) -> Rows:
        """The data that it learns from, from the values of a batch by name."""
        names = self.part.graph.inputs
        stored, real = (tuple(values[name] for name in names) for values in (integers, floats))
        return Rows(stored, real, self.floats(params, *real), weights)

    @functools.cached_property
    def floats(self) -> Callable[..., tuple[jax.Array, ...]]:
        """The outputs in floats, of parameters and the inputs in floats."""
        run = functools.partial(run_floats, self.part)
        return jax.jit(lambda params, *x: jax.vmap(functools.partial(run, params))(*x))

    @functools.cached_property
    def integers(self) -> Callable[..., tuple[tuple[jax.Array, ...], jax.Array]]:
        """The integers of the outputs, and the mean of their weighted squared errors."""
        part = self.part

        @jax.jit
        def run(params: Params, data: Rows) -> tuple[tuple[jax.Array, ...], jax.Array]:
            inputs = map(_operand, part.graph.input_tensors, data.integers)
            constants = integer_constants(part, params)
            outputs = jax.vmap(functools.partial(run_integers, part, constants))(*inputs)
            real = real_outputs(part.plan, part.graph, params, outputs)
            return tuple(map(payload, outputs)), self._error(real, data)

        return run

    def real_inputs(self, params: Params, integers: Sequence[jax.Array]) -> list[jax.Array]:
        """The inputs of an example in floats, of its integers; indices and booleans as they are."""
        tensors = self.part.graph.input_tensors
        return [
            self.part.real(params, tensor.name, _operand(tensor, x))
            if tensor.name in self.part.owners
            else x
            for tensor, x in zip(tensors, integers, strict=True)
        ]

    def learned(
        self, model: QModel, params: Params, data: Sequence[Rows], learning: Learning
    ) -> tuple[Params, list[tuple[jax.Array, ...]]]:
        """The parameters of the whole after this block, and the integers that it then gives."""
        before, error = self._outputs_and_error(params, data)
        if not error > 0:
            return params, before
        trained = self._train(params, data, learning, error)
        changed = _with_scales(model, params, trained["qparams"])
        changed = with_rounding(model, changed, trained["rounding"])
        after, lower = self._outputs_and_error(changed, data)
        return (changed, after) if lower < error else (params, before)

    def _outputs_and_error(
        self, params: Params, data: Sequence[Rows]
    ) -> tuple[list[tuple[jax.Array, ...]], float]:
        results = [self.integers(params, batch) for batch in data]
        errors = jnp.stack([error for _, error in results])
        return [outputs for outputs, _ in results], float(errors.mean())

    def _train(
        self, params: Params, data: Sequence[Rows], learning: Learning, error: float
    ) -> Params:
        optimizer = learning.optimizer
        qparams = {name: jax.tree.map(jnp.copy, params["qparams"][name]) for name in self.scales}
        rounding = {name: nearest(self.part, params, name) for name in self.weights}
        trained: Params = {"qparams": qparams, "rounding": rounding}
        objective = functools.partial(self._objective, learning=learning, error=error)

        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def step(trained: Params, state: Any, params: Params, number: jax.Array, batch: Rows):
            gradient = jax.grad(objective)(trained, params, number, batch)
            with jax.numpy_dtype_promotion("standard"):  # optax relies on it
                updates, state = optimizer.update(gradient, state, trained)
                return jax.tree.map(jnp.add, trained, updates), state

        with jax.numpy_dtype_promotion("standard"):
            state: Any = optimizer.init(trained)
        for number in range(learning.steps):
            batch = data[number % len(data)]
            trained, state = step(trained, state, params, jnp.int32(number), batch)
        return trained

    def _objective(
        self,
        trained: Params,
        params: Params,
        number: jax.Array,
        batch: Rows,
        *,
        learning: Learning,
        error: float,
    ) -> jax.Array:
        """The error, as a share of the error of nearest rounding, and the regularizer."""
        held = {name: _without_bits(qparams) for name, qparams in trained["qparams"].items()}
        qparams = {**params["qparams"], **held}
        params, rounding = {**params, "qparams": qparams}, trained["rounding"]
        key = jax.random.fold_in(jax.random.key(learning.seed), number)
        outputs = self._rounded_outputs(params, rounding, batch, key, learning)
        share = number.astype(jnp.float32) / learning.steps
        penalty = learning.regularizer * _regularizer(rounding, share)
        return self._error(outputs, batch) / error + penalty

    def _rounded_outputs(
        self,
        params: Params,
        rounding: dict[str, jax.Array],
        batch: Rows,
        key: jax.Array,
        learning: Learning,
    ) -> tuple[jax.Array, ...]:
        """The outputs with fake quantization, a share of activations left in floats."""
        part, params = self.part, fitted(self.part.plan, params)
        inputs = part.graph.inputs
        weight = soft_rounding if learning.regularizer else _to_integer
        places = {name: place for place, name in enumerate((*inputs, *part.activations))}

        def run(key: jax.Array, integers: Any, floats: Any) -> tuple[jax.Array, ...]:
            def kept(name: str, rounded: jax.Array, value: jax.Array) -> jax.Array:
                return _dropped(
                    jax.random.fold_in(key, places[name]), learning.drop, rounded, value
                )

            def rounded(name: str, value: Any) -> Any:
                if name in inputs:
                    return value
                if name in rounding:
                    return weight(value, rounding[name], params["qparams"][name])
                quantized = fake_quantized(part, params, name, value)
                return kept(name, quantized, value) if name in places else quantized

            operands = zip(inputs, self.real_inputs(params, integers), floats, strict=True)
            mixed = [kept(n, q, x) if n in part.owners else x for n, q, x in operands]
            return run_floats(part, params, *mixed, rounded=rounded)

        keys = jax.random.split(key, len(batch.wanted[0]))
        return jax.vmap(run)(keys, batch.integers, batch.floats)

    def _error(self, outputs: Sequence[jax.Array], data: Rows) -> jax.Array:
        """The mean over examples of weighted squared errors; indices and booleans do not count."""
        names = self.part.graph.outputs
        each = zip(names, outputs, data.wanted, data.weights, strict=True)
        errors = [
            (jnp.square(y - wanted) * weight).sum()
            for name, y, wanted, weight in each
            if name in self.part.owners
        ]
        return sum(errors, jnp.zeros(())) / len(data.wanted[0])


def _dropped(key: jax.Array, share: float, rounded: jax.Array, value: jax.Array) -> jax.Array:
    """A tensor of which this share is not rounded."""
    if not share:
        return rounded
    # A byte for each element: random numbers are what costs most in small blocks.
    drawn = jax.random.bits(key, value.shape, jnp.uint8)
    return jnp.where(drawn < round(share * 256), value, rounded)


def _regularizer(rounding: dict[str, jax.Array], share: jax.Array) -> jax.Array:
    """The mean distance of soft steps from 0 and 1, from 0 to 1; none at first.

    Args:
      share: the share of all steps that were made.
    """
    remaining = jnp.clip((1 - share) / (1 - _FREE), 0.0, 1.0)
    power = _LAST_POWER + (_FIRST_POWER - _LAST_POWER) * remaining
    parts = [1 - jnp.abs(2 * soft_step(x) - 1) ** power for x in rounding.values()]
    count = max(sum(x.size for x in parts), 1)
    total = jnp.stack([x.sum() for x in parts]).sum() if parts else jnp.zeros(())
    return jnp.where(share < _FREE, 0.0, total / count)


def _with_scales(model: QModel, params: Params, qparams: dict[str, QParams]) -> Params:
    """The parameters with these scales and zero points, tables sampled in them."""
    params = {**params, "qparams": {**params["qparams"], **qparams}}
    sources = [name for name in qparams if name in model.plan.sampled]
    return sample_tables(model, params, sources) if sources else params


def _to_integer(values: jax.Array, rounding: jax.Array, qparams: QParams) -> jax.Array:
    """The real value of the integer that `rounding` chooses, with the gradient of a soft step."""
    return dequantize(rounded_by_step(values, rounding, qparams), qparams)


def _without_bits(qparams: QParams) -> QParams:
    """Without gradients to the bits."""
    return dataclasses.replace(qparams, bits=lax.stop_gradient(qparams.bits))


def _operand(tensor: Tensor, x: jax.Array) -> jax.Array | QTensor:
    """An input of the integer graph."""
    return x if tensor.dtype is DType.BOOL else QTensor.of(x)
