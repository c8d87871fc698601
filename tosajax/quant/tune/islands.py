"""with_rules: some layers of a model in other types than they were prepared in."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp

from tosajax.arguments.types import check_type
from tosajax.graph import Node
from tosajax.quant.calibration import weight_qparams
from tosajax.quant.convert.graphs import converted
from tosajax.quant.graphs.blocks import all_nodes
from tosajax.quant.model import on_host
from tosajax.quant.model.params import no_factors
from tosajax.quant.model.recipes import Params, corrected
from tosajax.quant.model.room import with_room
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.qparams import QParams
from tosajax.quant.ranges.observers import scale_and_zero_point
from tosajax.quant.sampling import sample_tables
from tosajax.quant.spec import QSpec, Rule, check_rules


def with_rules(
    model: QModel, params: Params, rules: Sequence[Rule]
) -> tuple[PreparedModel, Params]:
    """The model with more rules, and its parameters, without new examples.

    Scales of tensors whose specification stays are as they were; others cover the range of the
    scale before, and weights their values.

    Args:
      model: the model, from `prepare`, of integers.
      params: the parameters of the model, trained or not.
      rules: these win over the rules of the model.

    Raises:
      TypeError: an argument is of another type.
      UnsupportedError: TOSA has no operator of these types.
      ValueError: the parameters are of another model; the model is of FP8 or from `lift`; the
        pattern of a rule is found in no name; or a rule asks for FP8.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> rules = [quant.rule("output", act=quant.QSpec("i16"))]
      >>> model, params = quant.with_rules(model, params, rules)
      >>> [tensor.dtype.name for tensor in model.graph.output_tensors]
      ['INT16']
    """
    message = "rules for a model that is not of integers from a float graph"
    check_type("model", model, QModel, "a QModel, from `prepare`")
    check_type("rules", rules, list | tuple, "a list of rules, as `rule` makes them")
    for each in rules:
        check_type("an element of rules", each, Rule, "a Rule, as `rule` makes it")
    model = prepared(model, message, of_integers=True)
    for each in rules:
        for asked in (each.weight, each.act):
            if asked is not None and not asked.storage.is_integer:
                raise ValueError(
                    f"rule {each.pattern!r}: {asked.storage.name} beside integers, expected INT4, "
                    "INT8 or INT16"
                )
    model.check(params)
    check_rules(rules, model.float_graph)
    options = dataclasses.replace(model.plan.options, rules=(*model.plan.options.rules, *rules))
    graph, plan = converted(model.float_graph, model.plan.norms, options)
    changed = dataclasses.replace(model, graph=graph, plan=plan)
    if plan.factors:
        params = {**params, "factors": {**no_factors(plan), **params.get("factors", {})}}
    carry = jax.jit(functools.partial(_carried, model, changed))
    qparams = on_host.on_device(on_host.evaluate(carry, params))
    return changed, sample_tables(changed, {**params, "qparams": qparams})


def _carried(model: PreparedModel, changed: QModel, params: Params) -> dict[str, QParams]:
    """The QParams of all tensors of the changed model."""
    qparams = {name: _carried_qparams(model, changed, params, name) for name in changed.specs}
    return with_room(changed.plan, {**params, "qparams": qparams})["qparams"]


def exact_pattern(name: str) -> str:
    """The pattern of a rule that is found in this name alone."""
    return f"^{re.escape(name)}$"


def weights_beside(model: PreparedModel, activations: Collection[str]) -> list[str]:
    """The constants that a node multiplies some activations by."""
    pairs = [node.inputs[:2] for node in all_nodes(model.float_graph) if len(node.inputs) > 1]
    return [w for x, w in pairs if w in model.weights and model.owners.get(x) in activations]


def _carried_qparams(model: PreparedModel, changed: QModel, params: Params, name: str) -> QParams:
    """The QParams of a tensor of the changed model."""
    wanted, owner = changed.specs[name], model.owners.get(name)
    if owner is None and name not in changed.weights:
        return _before_bias(model, params, name, wanted)
    if owner == name and model.specs[name] == wanted and _has_axes(model, changed, name):
        return params["qparams"][name]
    if name in changed.weights:
        return weight_qparams(changed, name, corrected(params, name))
    assert owner is not None
    return _of_range(params["qparams"][owner], wanted)


def _before_bias(model: PreparedModel, params: Params, name: str, wanted: QSpec) -> QParams:
    """QParams of a product whose bias was added in its accumulator, which another type cannot.

    The range is that of the sum less the bias. Products below or above it end in the same CLAMP.
    """
    readers = {x: node for node in all_nodes(model.float_graph) for x in node.inputs}
    bias, node = jnp.zeros(1), readers[name]
    while node.outputs[0] not in model.owners:
        bias = _bias(model, params, node, bias)
        node = readers[node.outputs[0]]
    bias = _bias(model, params, node, bias)
    own = params["qparams"][model.owners[node.outputs[0]]]
    low, high = _ends(own)
    return _of_ends(low - bias.max(), high - bias.min(), wanted)


def _bias(model: PreparedModel, params: Params, node: Node, bias: jax.Array) -> jax.Array:
    """The constant that a node adds; the bias so far, where it adds none."""
    constants = [name for name in node.inputs if name in params["values"]]
    return corrected(params, constants[0]) if node.op == "ADD" and constants else bias


def _has_axes(model: QModel, changed: QModel, name: str) -> bool:
    return model.plan.scaled[name].channel_axes == changed.plan.scaled[name].channel_axes


def _of_range(own: QParams, wanted: QSpec) -> QParams:
    """QParams of a specification for the range of others."""
    return _of_ends(*_ends(own), wanted)


def _ends(own: QParams) -> tuple[jax.Array, jax.Array]:
    """The least and the greatest real number of a range."""
    zero_point = 0.0 if own.symmetric else own.zero_point
    low, high = ((end - zero_point) * own.scale for end in own.grid)
    return low, high


def _of_ends(low: jax.Array, high: jax.Array, wanted: QSpec) -> QParams:
    bits = jnp.asarray(wanted.bits, jnp.float32)
    grid = wanted.storage.grid(bits, narrow_range=wanted.narrow_range)
    scale, zero_point = scale_and_zero_point(low, high, grid, wanted.symmetric)
    assert not isinstance(wanted.dtype, str)
    return QParams(
        scale,
        zero_point,
        bits,
        dtype=wanted.dtype,
        symmetric=wanted.symmetric,
        narrow_range=wanted.narrow_range,
    )
