"""mixed_precision: bits of weights and activations together, within a cost."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tosajax import html, spec
from tosajax.arguments.types import check_type
from tosajax.dtypes import DType
from tosajax.progress import Progress
from tosajax.quant.calibration import weight_qparams
from tosajax.quant.graphs.blocks import all_nodes, all_tensors
from tosajax.quant.model.arguments import Examples
from tosajax.quant.model.batches import real_batch
from tosajax.quant.model.recipes import Params, corrected
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.qparams import QParams
from tosajax.quant.spec import QSpec, Rule, rule
from tosajax.quant.training.losses import of_outputs
from tosajax.quant.tune.bits import of_same_range, pareto, spread_out
from tosajax.quant.tune.islands import exact_pattern, weights_beside, with_rules
from tosajax.quant.tune.sensitivities import Loss, from_float

# Of a tensor and its bits.
Cost = Callable[[str, int], float]


@dataclasses.dataclass(frozen=True)
class BitChoice:
    """Bits of tensors.

    Args:
      bits: the bits, by tensor.
      cost: the sum over all tensors.
      loss: the loss with fake quantization.

    Example:
      >>> from tosajax import quant
      >>> quant.BitChoice({"conv1": 4, "conv2": 8}, cost=1200.0, loss=0.1).bits["conv1"]
      4
    """

    bits: Mapping[str, int]
    cost: float
    loss: float

    def __repr__(self) -> str:
        return f"BitChoice(cost {self.cost:,.0f}, loss {self.loss:.4g})"


@dataclasses.dataclass(frozen=True, repr=False)
class MixedPrecision:
    """The result of `mixed_precision`.

    Args:
      model: the model, with the types of the choice.
      params: the model's parameters.
      choice: the chosen bits of each tensor, with their cost and loss.
      loss: the loss of this model, on its integers.
      front: the choices tried that no other beats in both cost and loss, cheapest first.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> print(quant.mixed_precision(model, params, example, budget=32))
      MixedPrecision(tensors 1 of 8 bits, cost 32, loss 0.0002437)
                  cost         loss
                    16       0.0564
                    32    0.0002437 <
    """

    model: QModel
    params: Params
    choice: BitChoice
    loss: float
    front: tuple[BitChoice, ...]

    def __repr__(self) -> str:
        return (
            f"MixedPrecision({', '.join(f'{label} {value}' for label, value in self._summary())})"
        )

    def __str__(self) -> str:
        """The result, and the front."""
        lines = [f"{'cost':>16} {'loss':>12}"]
        for choice in self.front:
            mark = " <" if choice is self.choice else ""
            lines.append(f"{choice.cost:16,.0f} {choice.loss:12.4g}{mark}")
        return "\n".join([repr(self), *lines])

    def _repr_html_(self) -> str:
        rows = [[f"{choice.cost:,.0f}", choice.loss] for choice in self.front]
        return html.box("MixedPrecision", self._summary(), ("cost", "loss"), rows, noun="choice")

    def _summary(self) -> list[tuple[str, str]]:
        counts: dict[int, int] = {}
        for bits in self.choice.bits.values():
            counts[bits] = counts.get(bits, 0) + 1
        widths = html.listed([f"{counts[bits]} of {bits} bits" for bits in sorted(counts)])
        return [
            ("tensors", widths),
            ("cost", f"{self.choice.cost:,.0f}"),
            ("loss", f"{self.loss:.4g}"),
        ]


def storage_cost(model: QModel) -> Cost:
    """The bits that a tensor takes in memory: of a weight once, of an activation for one example.

    TOSA stores 4 bits or fewer in INT4 where a convolution of INT4 weights reads them; all else
    takes whole bytes.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> cost = quant.storage_cost(model)
      >>> [cost(name, bits) for name in model.weights for bits in (4, 8)]
      [16.0, 32.0]
    """
    model = prepared(model, "storage_cost of a model without a float graph")
    sizes = {n: math.prod(t.shape or ()) for n, t in all_tensors(model.graph).items()}
    narrow = _int4_weights(model)

    def cost(name: str, bits: int) -> float:
        container = 4 if bits <= 4 and name in narrow else 8 if bits <= 8 else 16
        return float(sizes[model.plan.stored[name]] * container)

    return cost


def mixed_precision(
    model: QModel,
    params: Params,
    *inputs: Examples,
    budget: float,
    weight_bits: Sequence[int] = (4, 8),
    activation_bits: Sequence[int] = (8, 16),
    cost: Cost | None = None,
    loss: Loss | None = None,
    points: int = 24,
    allow_nan: bool = False,
    progress: bool = False,
) -> MixedPrecision:
    """Chooses the bits of each weight and each activation, for the least loss within a cost.

    One program with fake quantization measures the loss for each number of bits of one tensor, all
    others as they are. Of the choices that are best by the sum of these losses, some are tried as a
    whole; the best within the budget is made, and measured on integers.

    Args:
      model: the model, from `prepare`, of integers.
      params: the model's parameters, trained or not.
      inputs: examples, as for `QModel.apply`; or batches, as for `calibrate`.
      budget: the largest cost of all tensors together.
      weight_bits: the bits to choose from, 2 to 8.
      activation_bits: the bits to choose from, 2 to 16: up to 8 in INT8, else in INT16. Inputs and
        outputs of the graph keep theirs.
      cost: the cost of a tensor with that many bits; by default `storage_cost(model)`.
      loss: the loss of the outputs of `QModel.apply`. By default the mean squared difference from
        the outputs of the float graph.
      points: choices that are tried as a whole.
      allow_nan: takes examples with NaN or infinities.
      progress: show a bar of tensors on a terminal.

    Returns:
      A model with the types that the bits need, and its parameters. A weight of 4 bits beside an
      activation of INT16 is INT8, as TOSA has no convolution of these.

    Raises:
      TypeError: an argument is of another type.
      ValueError: the model is of FP8 or from `lift`; the parameters are of another model; bits are
        out of range; an example is NaN or infinite; or the cheapest choice costs more than the
        budget.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> mixed = quant.mixed_precision(model, params, example, budget=60)
      >>> mixed.choice.cost <= 60
      True
    """
    message = "mixed_precision of a model that is not of integers from a float graph"
    model = prepared(model, message, of_integers=True)
    model.check(params)
    choices = {
        **dict.fromkeys(model.weights, _checked_bits("weight_bits", weight_bits, 8)),
        **dict.fromkeys(
            _inner_activations(model), _checked_bits("activation_bits", activation_bits, 16)
        ),
    }
    inputs = real_batch(model.float_graph.input_tensors, inputs, allow_nan=allow_nan)
    loss = from_float(model, params, inputs) if loss is None else of_outputs(loss)
    cost = storage_cost(model) if cost is None else cost
    wide, own = with_rules(model, params, _byte_rules(model))
    simulated = _simulation(wide, own, inputs, loss, choices)
    with Progress(len(choices), progress, unit="tensor") as bar:
        bar.step("compiling")
        scores = _scores(simulated, choices, bar)
        tried = []
        for bits in spread_out(pareto(scores, cost), points):
            bar.step(f"choice {len(tried) + 1}")
            total = sum(cost(name, count) for name, count in bits.items())
            tried.append(BitChoice(bits, total, simulated(bits)))
        front = _pareto_front(tried)
        within = [choice for choice in front if choice.cost <= budget * (1 + 1e-9)]
        if not within:
            raise ValueError(f"budget {budget}: the cheapest choice costs {front[0].cost}")
        bar.step("exact")
        chosen, chosen_params = with_rules(model, params, _rules(model, within[-1].bits))
        exact = float(
            jax.jit(lambda p, *x: loss(chosen.apply(p, *x)).mean())(chosen_params, *inputs)
        )
    return MixedPrecision(chosen, chosen_params, within[-1], exact, front)


def _checked_bits(name: str, bits: Sequence[int], most: int) -> tuple[int, ...]:
    check_type(name, bits, list | tuple, "a list of numbers of bits")
    for count in bits:
        if not 2 <= count <= most:
            raise ValueError(f"{name} has {count}, expected 2 to {most}")
    if not bits:
        raise ValueError(f"{name} is empty, expected numbers of bits")
    return tuple(sorted(set(bits)))


def _inner_activations(model: QModel) -> list[str]:
    """The activations but the inputs and outputs of the graph."""
    ends = {model.owners.get(name) for name in (*model.graph.inputs, *model.graph.outputs)}
    return [name for name in model.activations if name not in ends]


def _int4_weights(model: PreparedModel) -> set[str]:
    """The weights that only convolutions with a type of INT4 weights read."""
    readers: dict[str, list[str]] = {}
    for node in all_nodes(model.float_graph):
        for name in node.inputs:
            readers.setdefault(name, []).append(node.op)
    return {
        name
        for name in model.weights
        if all(_has_int4(op) for op in readers[model.plan.stored[name]])
    }


def _has_int4(op: str) -> bool:
    """Whether an operator multiplies INT8 by INT4."""
    operator = spec.OPERATORS[op]
    return operator.is_product and any(DType.INT4 in row.types.values() for row in operator.types)


def _byte_rules(model: QModel) -> list[Rule]:
    """INT8 in place of INT4, with the bits that it had."""
    specs = {name: model.specs[name] for name in model.weights}
    return [
        rule(exact_pattern(name), weight=dataclasses.replace(own, dtype=DType.INT8))
        for name, own in specs.items()
        if own.dtype is DType.INT4
    ]


_Simulated = Callable[[Mapping[str, int]], float]


def _simulation(
    model: QModel, params: Params, inputs: tuple[Any, ...], loss: Loss, names: Iterable[str]
) -> _Simulated:
    """The loss with fake quantization of tensors with other bits; the rest as they are."""
    names = tuple(names)
    own_bits = {name: params["qparams"][name].bits for name in names}

    @jax.jit
    def run(bits: dict[str, jax.Array], params: Params, *inputs: Any) -> jax.Array:
        qparams = dict(params["qparams"])
        for name in names:
            qparams[name] = _of_bits(model, params, name, bits[name])
        outputs = model.apply({**params, "qparams": qparams}, *inputs, mode="fake_quant")
        return loss(outputs).mean()

    def simulated(bits: Mapping[str, int]) -> float:
        chosen = {name: jnp.float32(count) for name, count in bits.items()}
        return float(run({**own_bits, **chosen}, params, *inputs))

    return simulated


def _of_bits(model: QModel, params: Params, name: str, bits: jax.Array) -> QParams:
    """The QParams of a tensor with other bits; with its own bits, its own."""
    own = params["qparams"][name]
    if name in model.weights:
        changed = weight_qparams(model, name, corrected(params, name), bits)
    else:
        # Fake quantization asks for no type with so many bits and a zero point.
        own = dataclasses.replace(own, dtype=DType.INT16)
        changed = of_same_range(own, bits)
    return jax.tree.map(functools.partial(jnp.where, bits == own.bits), own, changed)


def _scores(
    simulated: _Simulated, choices: Mapping[str, Sequence[int]], bar: Progress
) -> dict[str, dict[int, float]]:
    """For each tensor and its bits, the growth of the loss."""
    before, scores = simulated({}), {}
    for name, widths in choices.items():
        scores[name] = {bits: simulated({name: bits}) - before for bits in widths}
        bar.step("trying")
        bar.update()
    return scores


def _pareto_front(tried: Sequence[BitChoice]) -> tuple[BitChoice, ...]:
    """The choices that none beats in both cost and loss, cheapest first."""
    front: list[BitChoice] = []
    for choice in sorted(tried, key=lambda choice: (choice.cost, choice.loss)):
        if not front or choice.loss < front[-1].loss:
            front.append(choice)
    return tuple(front)


def _rules(model: PreparedModel, bits: Mapping[str, int]) -> list[Rule]:
    """The rules that give tensors these bits, in the types that TOSA has for them."""
    wide = {name for name, count in bits.items() if count > 8}
    narrow = _int4_weights(model).difference(weights_beside(model, wide))
    rules = []
    for name, count in bits.items():
        own = model.specs[name]
        if name in model.weights:
            dtype = DType.INT4 if count <= 4 and name in narrow else DType.INT8
            wanted = dataclasses.replace(own, dtype=dtype, bits=count)
            rules.append(rule(exact_pattern(name), weight=wanted))
        elif count > 8:
            rules.append(rule(exact_pattern(name), act=QSpec("i16", bits=count)))
        elif own.dtype is DType.INT8:
            rules.append(rule(exact_pattern(name), act=dataclasses.replace(own, bits=count)))
        else:
            rules.append(rule(exact_pattern(name), act=QSpec("i8", bits=count, symmetric=False)))
    return rules
