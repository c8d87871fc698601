"""rescue: the layers to lift to 16 bits, so that a loss is within a budget."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import html
from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.dtypes import DType
from tosajax.progress import Progress
from tosajax.quant.model.arguments import Examples
from tosajax.quant.model.batches import real_batch
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.qparams import QParams
from tosajax.quant.spec import QSpec, Rule, rule
from tosajax.quant.training.losses import of_outputs
from tosajax.quant.tune.bits import of_same_range
from tosajax.quant.tune.islands import exact_pattern, weights_beside, with_rules
from tosajax.quant.tune.sensitivities import Loss, from_float

_WIDE = 16  # bits of a lifted tensor


@dataclasses.dataclass(frozen=True, repr=False)
class Rescue:
    """The result of `rescue`.

    Args:
      model: the model, with the lifted tensors in INT16.
      params: the model's parameters.
      lifted: the tensors, those that help most by themselves first.
      candidates: how many tensors could have been lifted.
      before: the loss of the model that was given.
      after: the loss of `model`, on its integers.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> print(quant.rescue(model, params, example, budget=1.0))
      Rescue(lifted 0 of 0 tensors, loss 0.0002437 to 0.0002437)
    """

    model: QModel
    params: Params
    lifted: tuple[str, ...]
    candidates: int
    before: float
    after: float

    def __repr__(self) -> str:
        return f"Rescue({', '.join(f'{label} {value}' for label, value in self._summary())})"

    def __str__(self) -> str:
        """The result, and each lifted tensor."""
        return "\n".join([repr(self), *(f"  {name}" for name in self.lifted)])

    def _repr_html_(self) -> str:
        rows = [[name] for name in self.lifted]
        return html.box("Rescue", self._summary(), ("tensor",), rows, noun="tensor", named_by=0)

    def _summary(self) -> list[tuple[str, str]]:
        lifted = f"{len(self.lifted)} of {self.candidates} tensors"
        return [("lifted", lifted), ("loss", f"{self.before:.4g} to {self.after:.4g}")]


def rescue(
    model: QModel,
    params: Params,
    *inputs: Examples,
    budget: float,
    loss: Loss | None = None,
    names: Sequence[str] | None = None,
    allow_nan: bool = False,
    progress: bool = False,
) -> Rescue:
    """Lifts few activations to INT16, so that the loss of the integer graph is within a budget.

    One program with fake quantization finds how much each tensor helps by itself, how many of the
    best are enough, and which of these can be left out again. The model that ships is then made,
    and its loss measured on integers; where that is above the budget, more are lifted.

    Args:
      model: the model, from `prepare`, of integers, with activations of INT8.
      params: the model's parameters, trained or not.
      inputs: examples, as for `QModel.apply`; or batches, as for `calibrate`.
      budget: the largest loss.
      loss: the loss of the outputs of `QModel.apply`. By default the mean squared difference from
        the outputs of the float graph.
      names: the tensors that may be lifted; by default all of INT8 but the inputs and outputs of
        the graph, whose types stay.
      allow_nan: takes examples with NaN or infinities.
      progress: show a bar of tensors on a terminal.

    Returns:
      A model and its parameters. INT4 weights beside lifted tensors become INT8 with the bits that
      they had, as TOSA has no convolution of INT16 and INT4.

    Raises:
      TypeError: an argument is of another type.
      ValueError: the model is of FP8 or from `lift`; the parameters are of another model; a name
        is not of an INT8 activation; or an example is NaN or infinite.

    Warns:
      UserWarning: the loss is above the budget with any tensors lifted; the result has the least
        loss that was found.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: (x @ w) @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> rescued = quant.rescue(model, params, example, budget=1.0)  # INT8 is within
      >>> rescued.lifted, rescued.candidates, rescued.after <= 1.0
      ((), 1, True)
    """
    message = "rescue of a model that is not of integers from a float graph"
    model = prepared(model, message, of_integers=True)
    model.check(params)
    names = lift_candidates(model, names)
    inputs = real_batch(model.float_graph.input_tensors, inputs, allow_nan=allow_nan)
    loss = from_float(model, params, inputs) if loss is None else of_outputs(loss)
    measure = functools.partial(_exact_loss, inputs=inputs, loss=loss)
    before = measure(model, params)
    if before <= budget:
        return Rescue(model, params, (), len(names), before, before)
    with Progress(len(names), progress, unit="tensor") as bar:
        bar.step("compiling")
        outputs, score = lifted_outputs(model, params, names), jax.jit(lambda y: loss(y).mean())

        def simulated(places: Sequence[int]) -> float:
            return float(score(outputs(places, *inputs)))

        order = _order_by_gain(simulated, len(names), bar)
        chosen = _smallest_set(simulated, order, budget)
        return _verified(model, params, names, order, chosen, before, budget, measure, bar)


def lift_candidates(model: QModel, names: Sequence[str] | None) -> list[str]:
    """The INT8 activations with these names; by default all but the inputs and outputs."""
    narrow = [n for n in model.activations if model.specs[n].dtype is DType.INT8]
    if names is None:
        ends = {model.owners.get(name) for name in (*model.graph.inputs, *model.graph.outputs)}
        return [name for name in narrow if name not in ends]
    check_type("names", names, list | tuple, "a list of names of tensors")
    for name in names:
        if name not in narrow:
            raise ValueError(
                f"names has {name!r}, which is not an INT8 activation with a scale of its own"
                f"{near(name, narrow)}"
            )
    return list(dict.fromkeys(names))


def _exact_loss(model: QModel, params: Params, *, inputs: tuple[Any, ...], loss: Loss) -> float:
    """The loss on integers."""
    return float(jax.jit(lambda p, *x: loss(model.apply(p, *x)).mean())(params, *inputs))


_Simulated = Callable[[Sequence[int]], float]


def lifted_outputs(
    model: QModel,
    params: Params,
    names: Sequence[str],
    ranges: Mapping[str, QParams] = MappingProxyType({}),
) -> Callable[..., tuple[jax.Array, ...]]:
    """The outputs by fake quantization where the tensors at some places of `names` are lifted.

    Args:
      model: the model.
      params: its parameters.
      names: tensors of 8 bits.
      ranges: of tensors that have another one where they are lifted.

    Returns:
      A function of the places and of the inputs.
    """

    @jax.jit
    def run(lifts: jax.Array, params: Params, inputs: Sequence[Any]) -> tuple[jax.Array, ...]:
        qparams = dict(params["qparams"])
        for lift, name in zip(lifts, names, strict=True):
            own = dataclasses.replace(qparams[name], dtype=DType.INT16)
            wide = dataclasses.replace(ranges.get(name, own), dtype=DType.INT16)
            wide = of_same_range(wide, jnp.full_like(own.bits, _WIDE))
            choose = functools.partial(jnp.where, lift)
            qparams[name] = jax.tree.map(choose, wide, own)
        return model.apply({**params, "qparams": qparams}, *inputs, mode="fake_quant")

    def simulated(places: Sequence[int], *inputs: Any) -> tuple[jax.Array, ...]:
        lifts = np.zeros(len(names), np.bool_)
        lifts[list(places)] = True
        return run(lifts, params, inputs)

    return simulated


def _order_by_gain(simulated: _Simulated, count: int, bar: Progress) -> list[int]:
    """The places, those first whose tensor leaves the least loss when it alone is lifted."""
    losses = []
    for place in range(count):
        losses.append(simulated([place]))
        bar.step("trying")
        bar.update()
    return sorted(range(count), key=losses.__getitem__)


def _smallest_set(simulated: _Simulated, order: Sequence[int], budget: float) -> list[int]:
    """The shortest start of an order within the budget, without those that it does not need."""
    low, high = 0, len(order)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if simulated(order[:middle]) <= budget else (middle, high)
    chosen = list(order[:high])
    if simulated(chosen) > budget:
        return chosen
    for place in reversed(chosen[:-1]):
        without = [other for other in chosen if other != place]
        if simulated(without) <= budget:
            chosen = without
    return chosen


def _verified(
    model: PreparedModel,
    params: Params,
    names: Sequence[str],
    order: Sequence[int],
    chosen: Sequence[int],
    before: float,
    budget: float,
    measure: Callable[[QModel, Params], float],
    bar: Progress,
) -> Rescue:
    """The model that ships, with more tensors lifted until its integers are within the budget."""
    best = Rescue(model, params, (), len(names), before, before)
    places, more = list(chosen), 1
    while True:
        bar.step(f"{len(places)} lifted")
        lifted = tuple(names[place] for place in order if place in places)
        lifted_model, own = with_rules(model, params, lift_rules(model, lifted))
        after = measure(lifted_model, own)
        best = min(
            Rescue(lifted_model, own, lifted, len(names), before, after),
            best,
            key=lambda each: each.after,
        )
        if after <= budget:
            return best
        rest = [place for place in order if place not in places]
        if not rest:
            warnings.warn(
                f"rescue: the loss is {best.after:.4g} with {len(best.lifted)} of {len(names)} "
                f"tensors lifted to INT16, the least found, above the budget of {budget:.4g}",
                stacklevel=3,
            )
            return best
        places += rest[:more]
        more *= 2


def lift_rules(model: PreparedModel, lifted: Sequence[str]) -> list[Rule]:
    """The rules for INT16 tensors, and for the weights beside them."""
    rules = [rule(exact_pattern(name), act=QSpec("i16")) for name in lifted]
    for name in weights_beside(model, lifted):
        own = model.specs[name]
        if own.dtype is DType.INT4:
            rules.append(
                rule(exact_pattern(name), weight=dataclasses.replace(own, dtype=DType.INT8))
            )
    return rules
