"""freeze: the graph of a model with its constants, to save and to ship."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.grad.qtensor import payload
from tosajax.graph import Graph, Node, Quantization, Tensor
from tosajax.passes.binding import bind
from tosajax.quant.graphs.blocks import all_nodes, in_parts
from tosajax.quant.model import arguments, on_host
from tosajax.quant.model.params import with_channels
from tosajax.quant.model.plan import Plan
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Bias, Factor, Multiplier, Params, Recipe, Scale
from tosajax.quant.model.room import fitted
from tosajax.quant.qparams import MAX_SHIFT, MIN_SHIFT, QParams, quantize
from tosajax.quant.ranges.channels import along
from tosajax.quant.ranges.relevance import LogitTerm
from tosajax.quant.storages import zero_point_integer
from tosajax.rewrite.variables import states_to_variables
from tosajax.validation import validate

if TYPE_CHECKING:
    from tosajax.quant.qmodel import QModel

# Of scales in FP32, so that neither they nor their reciprocals are subnormal.
_SMALLEST, _LARGEST = 2.0**-126, 2.0**126
_FEW_STEPS = 8  # that an operand of a CONCAT should have


def freeze(model: QModel, params: Params) -> Graph:
    """The integer graph with these parameters; see `QModel.freeze`."""
    model.check(params)
    arguments.check_no_nan(params)
    made, used = on_host.evaluate(jitted(model, _constants_and_params), params)
    constants = {name: np.asarray(payload(value)) for name, value in made.items()}
    check_factors(constants, model.plan.recipes)
    check_biases(constants, model.plan.recipes, used)
    check_rescales(model.graph, constants, model.plan.recipes, used)
    frozen = with_constants(model.frozen_form, constants, model.plan)
    warn_of_sums(frozen)
    warn_of_joined(frozen)
    scales = end_quantization(frozen) | _quantization(model, used)
    return dataclasses.replace(frozen, quantization=scales)


def with_variables(plan: Plan, params: Params, frozen: Graph) -> Graph:
    """A frozen graph with its variables in place of the states that stand for them.

    Raises:
      UnsupportedError: TOSA has no variable of a state's type.
    """
    variables = [state for state in plan.options.states if state.is_variable]
    if not variables:
        return frozen
    initial = {state.input: state.initial for state in variables if state.initial is not None}
    for name in (state.input for state in variables if state.input in plan.owners):
        real = initial.get(name, np.zeros(frozen.tensors[name].shape or (), np.float32))
        qparams = params["qparams"][plan.owners[name]]
        initial[name] = np.asarray(payload(quantize(jnp.float32(real), qparams)))
    return states_to_variables(frozen, {s.input: s.output for s in variables}, initial)


def _constants_and_params(model: QModel, params: Params) -> tuple[dict[str, Any], Params]:
    """The constants of the graph, and the parameters with the scales that its integers have."""
    return model.constants(params), fitted(model.plan, params)


def quantization(model: QModel, params: Params) -> dict[str, Quantization]:
    """Scales, zero points and ranges of a model's integers; see `QModel.quantization`."""
    return _quantization(model, on_host.evaluate(jitted(model, _fitted), params))


def _fitted(model: QModel, params: Params) -> Params:
    return fitted(model.plan, params)


def _quantization(model: QModel, params: Params) -> dict[str, Quantization]:
    """The quantization by parameters with the scales that integers have."""
    qparams = dict(params.get("qparams", {}))
    for name, (weight, _, axes) in model.plan.norms.items():
        own, factor = qparams[weight], params["norms"][name].factor
        shape = along(axes, params["values"][weight].shape)
        qparams[weight] = dataclasses.replace(own, scale=own.scale * factor.reshape(shape))
    for name in model.plan.factors:
        qparams[name] = with_channels(model.plan, params, name, qparams[name])
    return quantizations(model.plan, qparams, model.graph)


def with_constants(graph: Graph, constants: Mapping[str, np.ndarray], plan: Plan) -> Graph:
    """The graph with its constants and CLAMP bounds.

    CLAMPs and spreads of bits that do nothing are left out.

    Args:
      graph: the graph of integers.
      constants: values of constants by name, and of bounds by key.
      plan: the model's plan.

    Raises:
      TosaError: the graph is illegal.
    """
    frozen = in_parts(graph, lambda part: _with_constants(part, constants, plan))
    validate(bind(frozen, batch=1)).raise_errors()
    return frozen


def _with_constants(graph: Graph, constants: Mapping[str, np.ndarray], plan: Plan) -> Graph:
    """The graph with its constants and CLAMP bounds, without the graphs inside it."""
    graph = _without_idle_spreads(graph, constants, plan.recipes)
    tensors = {
        name: dataclasses.replace(t, values=constants[name].reshape(t.shape or ()))
        if name in constants
        else t
        for name, t in graph.tensors.items()
    }
    bounded = [_with_bounds(node, constants, plan.bound_keys) for node in graph.nodes]
    idle = {n.inputs[0]: n.outputs[0] for n in bounded if n.op == "CLAMP" and _is_idle(n, graph)}
    readers = [name for node in bounded for name in node.inputs] + list(graph.outputs)
    # The input of an idle CLAMP takes the name of its output, which users know.
    renamed = {a: b for a, b in idle.items() if readers.count(a) == 1 and a not in graph.inputs}
    gone = set(renamed.values())

    def new_name(name: str) -> str:
        while name in renamed:
            name = renamed[name]
        return name

    nodes = [
        dataclasses.replace(node, outputs=tuple(map(new_name, node.outputs)))
        for node in bounded
        if not (node.op == "CLAMP" and node.outputs[0] in gone)
    ]
    remaining = {name: tensor for name, tensor in tensors.items() if name not in renamed}
    return dataclasses.replace(graph, tensors=remaining, nodes=tuple(nodes))


def quantizations(
    plan: Plan, qparams: Mapping[str, QParams], graph: Graph
) -> dict[str, Quantization]:
    """Scales, zero points and ranges of a model's integers, by tensor name.

    Args:
      plan: the model's plan.
      qparams: the QParams, by owner.
      graph: the graph of integers.
    """
    result: dict[str, Quantization] = {}
    axes = {conv.weight: conv.channel_axes for conv in plan.norms.values()}
    axes |= {name: (len(graph.tensors[name].shape or ()) - 1,) for name in plan.factors}
    for name, owner in plan.owners.items():
        tensor, own = graph.tensors.get(name), qparams[owner]
        if tensor is None or not own.storage.is_integer:
            continue
        low, high = (int(end) for end in own.grid)
        is_whole = low <= tensor.dtype.minimum and high >= tensor.dtype.maximum
        result[name] = Quantization(
            scale=tuple(np.ravel(np.asarray(own.scale))),
            zero_point=(int(zero_point_integer(own).q),),
            axes=axes.get(owner, plan.scaled[owner].channel_axes) if own.scale.size > 1 else (),
            bounds=None if is_whole else (low, high),
            is_mask=name in graph.inputs and isinstance(plan.scaled[owner].relevance, LogitTerm),
        )
    return result


def end_quantization(graph: Graph) -> dict[str, Quantization]:
    """The scales and zero points that a graph has for its inputs and outputs."""
    ends = {*graph.inputs, *graph.outputs}
    return {name: quantization for name, quantization in graph.quantization.items() if name in ends}


def _with_bounds(
    node: Node, constants: Mapping[str, np.ndarray], bound_keys: Mapping[str, Mapping[str, str]]
) -> Node:
    keys = bound_keys.get(node.outputs[0], {}) if node.op == "CLAMP" else {}
    ends = {end: constants[key][()] for end, key in keys.items()}
    return dataclasses.replace(node, attributes={**node.attributes, **ends}) if ends else node


def _without_idle_spreads(
    graph: Graph, constants: Mapping[str, np.ndarray], recipes: Mapping[str, Recipe]
) -> Graph:
    """The graph whose TABLEs read an input that has all bits of its type as it is."""
    idle = []
    for node in graph.nodes:
        recipe = recipes.get(node.inputs[1]) if node.op == "RESCALE" else None
        if isinstance(recipe, Multiplier) and recipe.scale.spread is not None:
            multiplier, shift = (int(constants[name][0]) for name in node.inputs[1:3])
            if multiplier == 1 << shift:
                idle.append(node)
    sources = {node.outputs[0]: node.inputs[0] for node in idle}
    # Nothing else reads the constants of a spread.
    gone = {name for node in idle for name in (*node.inputs[1:], *node.outputs)}
    nodes = tuple(
        dataclasses.replace(node, inputs=tuple(sources.get(name, name) for name in node.inputs))
        for node in graph.nodes
        if gone.isdisjoint(node.outputs)
    )
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in gone}
    return dataclasses.replace(graph, tensors=tensors, nodes=nodes)


def _is_idle(node: Node, graph: Graph) -> bool:
    dtype = graph.tensors[node.inputs[0]].dtype
    if not dtype.is_integer:
        return False
    low, high = node.attributes["min_val"], node.attributes["max_val"]
    return int(low) <= dtype.minimum and int(high) >= dtype.maximum


def check_factors(constants: Mapping[str, np.ndarray], recipes: Mapping[str, Recipe]) -> None:
    """Raises ValueError where float32 has no scale for a MUL, or no reciprocal of it."""
    for name, recipe in recipes.items():
        if isinstance(recipe, Factor):
            factors = np.asarray(constants[name])
            if not ((factors >= _SMALLEST) & (factors <= _LARGEST)).all():
                raise ValueError(
                    f"{recipe.tensor!r}: a scale cannot be expressed, expected all in "
                    "[2**-126, 2**126]"
                )


def check_biases(
    constants: Mapping[str, np.ndarray], recipes: Mapping[str, Recipe], params: Params
) -> None:
    """Raises ValueError where a bias is beyond the limit of its accumulator.

    The scale of a constant grows until its biases fit (`room`); the scale of two computed tensors
    does not. A mask, which takes its sums beyond the range of the output, may saturate.
    """
    for name, recipe in recipes.items():
        if not isinstance(recipe, Bias):
            continue
        largest = (
            np.abs(constants[name].astype(np.float64)).reshape(-1, constants[name].shape[-1]).max(0)
        )
        beyond = np.flatnonzero(largest >= np.float32(recipe.limit))
        if beyond.size and not _all_saturate(recipe, recipes, params):
            raise ValueError(
                f"bias {recipe.tensor!r} of {name!r}, channel {beyond[0]}: it is beyond "
                f"{recipe.dtype.name} in units of {' times '.join(map(repr, recipe.scale.over))}, "
                f"expected less than {recipe.limit:.4g} of them, or larger scales of these"
            )


def _all_saturate(bias: Bias, recipes: Mapping[str, Recipe], params: Params) -> bool:
    """Whether sums with the largest bias are all beyond the range of their output."""
    products = 2.0 ** (bias.dtype.bits - 1) - bias.limit
    for recipe in recipes.values():
        if isinstance(recipe, Multiplier) and recipe.scale.over == bias.scale.over:
            assert isinstance(recipe.scale.under, str)
            steps = 2.0 ** params["qparams"][recipe.scale.under].storage.dtype.bits
            if ((bias.limit - products) * np.asarray(recipe.scale(params)) < steps).any():
                return False
    return True


def warn_of_sums(graph: Graph) -> None:
    """Warns where sums of products by constants may be beyond their accumulator.

    Only products of tens of thousands of elements each have so large sums, of unlikely inputs.
    """
    for part in graph.walk():
        for node in part.nodes:
            tensors = [part.tensors[name] for name in node.inputs]
            is_product = spec.OPERATORS[node.op].is_product and tensors[0].dtype.is_integer
            if not is_product or any(tensor.values is None for tensor in tensors[1:]):
                continue
            limit = part.tensors[node.outputs[0]].dtype.maximum
            if (largest := _largest_sum(node, tensors, limit)) > limit:
                warnings.warn(
                    f"{node.title}: sums of its products may be as large as {largest}, expected "
                    f"at most {limit}: inputs that exceed it wrap, and `check_bit_exact` on such "
                    "inputs names the node; weights of fewer bits have room",
                    stacklevel=4,
                )


def _largest_sum(node: Node, tensors: Sequence[Tensor], limit: int) -> int:
    """The largest magnitude of a product's sums with its bias, or 0 where it is in no danger."""
    weights, dtype = np.asarray(tensors[1].values), tensors[0].dtype
    axes = spec.OPERATORS[node.op].channel_axes.outputs
    others = tuple(axis for axis in range(weights.ndim) if axis not in axes)
    # MATMUL has its bias in an ADD, and zero points in the places of others.
    *_, zero_point, weight_zero_point = (np.asarray(t.values).reshape(-1) for t in tensors)
    reach = max(dtype.maximum - int(zero_point[0]), int(zero_point[0]) - dtype.minimum)
    bias = 0 if node.op == "MATMUL" else np.abs(np.asarray(tensors[2].values, np.int64)).reshape(-1)
    count = math.prod(weights.shape[axis] for axis in others)
    if count * reach * 255 + int(np.max(bias)) <= limit:
        return 0
    sizes = np.abs(weights.astype(np.int64) - int(weight_zero_point[0]))
    return int((sizes.sum(others).reshape(-1) * reach + bias).max())


def warn_of_joined(graph: Graph) -> None:
    """Warns where the scale of a CONCAT leaves an operand few steps, as others are far larger."""
    for part in graph.walk():
        producers = {name: node for node in part.nodes for name in node.outputs}
        for node in part.nodes:
            operands = node.inputs if node.op == "CONCAT" else ()
            rescales = [producers[name] for name in operands if name in producers]
            most = 2 ** part.tensors[node.outputs[0]].dtype.bits if rescales else 0
            for rescale in rescales:
                steps = _steps_after(part, rescale)
                if steps is not None and steps < _FEW_STEPS:
                    warnings.warn(
                        f"{node.title}: its scale leaves {rescale.inputs[0]!r} {steps:.2g} of "
                        f"{most} steps, expected at least {_FEW_STEPS}, as others are far larger: "
                        "return the operands by themselves, or give it INT16, by a "
                        "quant.rule(..., act=quant.QSpec('i16'))",
                        stacklevel=4,
                    )


def _steps_after(graph: Graph, rescale: Node) -> float | None:
    """The steps of a RESCALE's result that all integers of its input make; None of a sum."""
    if rescale.op != "RESCALE":
        return None
    x, multiplier, shift = (graph.tensors[name] for name in rescale.inputs[:3])
    if x.dtype is DType.INT32 or multiplier.values is None or shift.values is None:
        return None
    scale = np.asarray(multiplier.values, np.float64) / 2.0 ** np.asarray(shift.values)
    return float(2.0**x.dtype.bits * scale.max())


def check_rescales(
    graph: Graph, constants: Mapping[str, np.ndarray], recipes: Mapping[str, Recipe], params: Params
) -> None:
    """Raises ValueError where a RESCALE cannot express its scale, with the scales it is made of."""
    for node in all_nodes(graph):
        if node.op != "RESCALE":
            continue
        multiplier, shift = (constants.get(name) for name in node.inputs[1:3])
        if multiplier is None or shift is None:
            continue
        largest = 31 if multiplier.dtype == np.int32 else 15
        wrong = (multiplier <= 0) | (shift < MIN_SHIFT) | (shift > MAX_SHIFT)
        if wrong.any():
            recipe = recipes[node.inputs[1]]
            is_made = isinstance(recipe, Multiplier)  # and not a constant that is trained
            scale = _scale_description(recipe.scale, params, wrong) if is_made else ""
            raise ValueError(
                f"{node.title}: a scale cannot be expressed{scale}, expected all in "
                f"[2**-62, 2**{largest - 2})"
            )


def _scale_description(scale: Scale, params: Params, wrong: np.ndarray) -> str:
    """The first wrong scale, and the scales it is a product and a quotient of."""
    channel = int(wrong.reshape(-1).argmax())
    place = f" of channel {channel}" if wrong.size > 1 else ""

    def value(term: Scale) -> float:
        scales = np.asarray(term(params)).reshape(-1)
        return float(scales[min(channel, scales.size - 1)])

    norm = None if scale.norm is None else params["norms"][scale.norm]
    terms = [*scale.over, *([] if scale.under is None else [scale.under])]
    parts = [
        f"{' or '.join(map(repr, (t,) if isinstance(t, str) else t))}: {value(Scale((t,))):.3g}"
        for t in terms
    ]
    if norm is not None:
        own = float(np.asarray(norm.factor).reshape(-1)[channel])
        parts.append(f"batch norm of {scale.norm!r}: {own:.3g}")
    for name in filter(None, (scale.channels, scale.of_channels and scale.of_channels[0])):
        own = np.asarray(params["factors"][name])
        parts.append(f"channel factors of {name!r}: {own.min():.3g} to {own.max():.3g}")
    return f", {value(scale):.3g}{place} (scales {', '.join(parts)})" if parts else ""
