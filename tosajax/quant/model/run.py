"""Runs of a model: its integer graph, its float graph, and each operator by itself."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.grad.qtensor import QTensor, tie
from tosajax.graph import Graph, Tensor
from tosajax.lowering.run import Amend
from tosajax.quant.graphs.blocks import inner_tensors
from tosajax.quant.graphs.recording import Record, no_records, recorded, times_inside
from tosajax.quant.model import arguments, on_host
from tosajax.quant.model.arguments import Input
from tosajax.quant.model.batches import on_batch, on_examples
from tosajax.quant.model.norms import BatchNorms, Norms, shifted
from tosajax.quant.model.params import (
    held_biases,
    recipe_constants,
    with_channels,
    without_fixed_gradients,
)
from tosajax.quant.model.plan import Plan
from tosajax.quant.model.programs import (
    float_program,
    integer_program,
    jitted,
    once,
    sources,
    step_program,
)
from tosajax.quant.model.recipes import Bias, Params, ZeroPoint, corrected
from tosajax.quant.model.room import fitted, fitted_qparams
from tosajax.quant.qparams import QParams, dequantize, fake_quant, quantize
from tosajax.quant.ranges.channels import along, on_last_axis
from tosajax.quant.ranges.mask_ranges import saturated

if TYPE_CHECKING:
    from tosajax.quant.qmodel import PreparedModel, QModel

# The arithmetic of a model: integers as `freeze` ships them, the float graph with values rounded to
# their scales, or the float graph.
Mode = Literal["exact", "fake_quant", "float"]
# (name of a tensor, its value) -> the value to read.
Rounded = Callable[[str, Any], Any]


def is_exact(plan: Plan, mode: Mode) -> bool:
    """Whether a mode runs the graph that `freeze` gives; else it runs the float graph.

    Raises:
      ValueError: the mode is unknown.
    """
    if mode not in ("exact", "fake_quant", "float"):
        raise ValueError(f"mode {mode!r}, expected 'exact', 'fake_quant' or 'float'")
    return mode == "exact" or (mode == "fake_quant" and not plan.is_integer)


# Programs of `QModel.apply` and `QModel.apply_batch`.


def exact(model: QModel, params: Params, *inputs: jax.Array | QTensor) -> tuple[jax.Array, ...]:
    """The real outputs of the integer graph."""
    params = without_fixed_gradients(model.plan, params)
    return real_outputs(model.plan, model.graph, params, integers(model, params, *inputs))


def floats(
    model: PreparedModel, params: Params, *inputs: jax.Array | QTensor, mode: Mode
) -> tuple[jax.Array, ...]:
    """The outputs of the float graph, in "fake_quant" of rounded tensors."""
    params = without_fixed_gradients(model.plan, params)
    run = floats_of_example(model, params, mode)
    outputs = on_batch(run, model.float_graph.input_tensors, inputs)
    return real_outputs(model.plan, model.float_graph, params, outputs)


def exact_batch(
    model: QModel, params: Params, *inputs: jax.Array | QTensor
) -> tuple[tuple[jax.Array, ...], Norms]:
    """The outputs of `exact`, and the batch norms with the statistics of this batch."""
    params = held_biases(model.plan, without_fixed_gradients(model.plan, params))
    run = functools.partial(run_integers_of_batch, model, params)
    integers = input_integers(model, params, *inputs)
    outputs, norms = _with_norms(run, params, model.graph, integers)
    return real_outputs(model.plan, model.graph, params, outputs), norms


def floats_batch(
    model: PreparedModel, params: Params, *inputs: jax.Array | QTensor, mode: Mode
) -> tuple[tuple[jax.Array, ...], Norms]:
    """The outputs of `floats`, and the batch norms with the statistics of this batch."""
    params = held_biases(model.plan, without_fixed_gradients(model.plan, params))
    run = floats_of_example(model, params, mode)
    outputs, norms = _with_norms(run, params, model.float_graph, inputs)
    return real_outputs(model.plan, model.float_graph, params, outputs), norms


def _with_norms(
    run: Callable[..., tuple[Any, ...]], params: Params, graph: Graph, inputs: Sequence[Any]
) -> tuple[tuple[Any, ...], Norms]:
    """The outputs of a run of one example, for all of a batch, and the norms that it finds."""

    def of_example(*inputs: Any) -> tuple[tuple[Any, ...], Norms]:
        norms = BatchNorms(params["norms"])
        return run(*inputs, norms=norms), norms.norms

    return on_examples(of_example, graph.input_tensors, inputs)


# The integer graph.


def input_arrays(model: QModel, inputs: Sequence[Input]) -> tuple[jax.Array | QTensor, ...]:
    """The inputs of the integer graph as JAX arrays, to be passed to `jax.jit`."""
    tensors = model.graph.input_tensors
    arguments.check_inputs(tensors, inputs)
    return tuple(input_array(model, t, x) for t, x in zip(tensors, inputs, strict=True))


def input_array(model: QModel, tensor: Tensor, x: Input) -> jax.Array | QTensor:
    """An input of the integer graph as a JAX array."""
    return arguments.model_input(tensor, x, is_quantized=tensor.name in model.owners)


def input_integers(
    model: QModel, params: Params, *inputs: Input
) -> tuple[jax.Array | QTensor, ...]:
    """The inputs of `QModel.apply` as the integer graph takes them: QTensors, bool as it is."""
    tensors = model.graph.input_tensors
    arguments.check_inputs(tensors, inputs)
    return tuple(stored_input(model, params, t, x) for t, x in zip(tensors, inputs, strict=True))


def stored_input(model: QModel, params: Params, tensor: Tensor, x: Input) -> jax.Array | QTensor:
    """An input as the integer graph takes it."""
    x = input_array(model, tensor, x)
    if isinstance(x, QTensor):
        return x
    if tensor.name in model.owners:
        owner = model.owners[tensor.name]
        return quantize(x, params["qparams"][owner], model.specs[owner].estimator)
    # Without the barrier XLA joins the product that computes x to the products that read it.
    return lax.optimization_barrier(x)


def integers(model: QModel, params: Params, *inputs: Input) -> tuple[jax.Array | QTensor, ...]:
    """The outputs of the integer graph; integers and FP8 as QTensors.

    Args:
      model: the model.
      params: the parameters, from `without_fixed_gradients`.
      inputs: examples, as for `QModel.apply`.
    """
    run = functools.partial(run_integers, model, integer_constants(model, params))
    return on_batch(run, model.graph.input_tensors, input_integers(model, params, *inputs))


def integer_constants(model: QModel, params: Params) -> dict[str, jax.Array | QTensor]:
    """All constants of the integer graph by name."""
    return {
        **integer_program(model).constants,
        **recipe_constants(model.plan, fitted(model.plan, params)),
    }


def computed_constants(model: QModel, params: Params) -> dict[str, Any]:
    """The constants of the integer graph that depend on parameters, computed on the host.

    As an argument of a program they spare it the recipes: it compiles faster, and serves all
    parameters. `with_computed` completes them.
    """
    return on_host.on_device(on_host.evaluate(jitted(model, _varying_constants), params))


def _varying_constants(model: QModel, params: Params) -> dict[str, Any]:
    constants = recipe_constants(model.plan, fitted(model.plan, params))
    return {name: constants[name] for name in constants.keys() - _zeros(model, params).keys()}


def _zeros(model: QModel, params: Params) -> dict[str, QTensor]:
    """The zero points of symmetric tensors, whose kernels see that they are 0."""
    recipes = model.plan.recipes.items()
    points = {name: recipe for name, recipe in recipes if isinstance(recipe, ZeroPoint)}
    qparams = params["qparams"] if points else {}
    return {n: recipe(params) for n, recipe in points.items() if qparams[recipe.tensor].symmetric}


def with_computed(
    model: QModel, params: Params, computed: Mapping[str, Any]
) -> dict[str, jax.Array | QTensor]:
    """All constants of the integer graph by name, of which some have been computed."""
    return {**integer_program(model).constants, **_zeros(model, params), **computed}


def exact_of_constants(
    model: QModel, params: Params, computed: Mapping[str, Any], *inputs: jax.Array | QTensor
) -> tuple[jax.Array, ...]:
    """The outputs of `exact`, given `computed_constants`."""
    run = functools.partial(run_integers, model, with_computed(model, params, computed))
    integers = on_batch(run, model.graph.input_tensors, input_integers(model, params, *inputs))
    return real_outputs(model.plan, model.graph, params, integers)


def run_integers(
    model: QModel,
    constants: Mapping[str, Any],
    *inputs: jax.Array | QTensor,
    amend: Amend | None = None,
) -> tuple[jax.Array | QTensor, ...]:
    """Runs the integer graph on one example, or on the graph's own batch.

    Args:
      model: the model.
      constants: the constants from `integer_constants`.
      inputs: the inputs from `input_integers`.
      amend: (name of a tensor, its value) -> the values to read, by name; by default that value.
    """
    return integer_program(model).run(dict(constants), {}, *inputs, amend=amend)[2]


def run_integers_of_batch(
    model: QModel, params: Params, *inputs: jax.Array | QTensor, norms: BatchNorms
) -> tuple[jax.Array | QTensor, ...]:
    """Runs the integer graph on one example of a batch, by whose statistics it normalizes.

    Args:
      model: the model.
      params: the parameters, from `without_fixed_gradients`.
      inputs: the inputs from `input_integers`.
      norms: the batch norms whose statistics are computed.
    """
    # Convolutions run without their batch norm, which needs their sums.
    plan, program = model.plan, integer_program(model)
    alone = fitted(plan, params, has_norms=False)
    plain = {output: _bias_alone(plan, output) for output in plan.norms}
    constants: dict[str, Any] = {**program.constants, **recipe_constants(plan, alone)}
    constants |= {f"{output}/bias": bias(alone) for output, bias in plain.items()}

    def amend(name: str, value: Any) -> dict[str, Any]:
        output = name.removesuffix("/acc")
        if output == name or output not in plan.norms:
            return {name: value}
        unit, weight = plain[output].scale(alone), plan.norms[output].weight
        norm = norms.of(output, tie(value) * on_last_axis(unit, len(value.shape)))
        normed = {**params, "norms": {output: norm}}
        qparams = fitted_qparams(plan, normed, weight)
        normed["qparams"] = {**alone["qparams"], weight: qparams}
        changed: Any = {name: plan.recipes[name](normed) for name in plan.norm_constants[output]}
        label = f"{output}/bias"
        # Of a channel in another scale, only the bias is left.
        is_left = plain[output].scale(normed) == unit
        return {**changed, name: shifted(value, changed[label], constants[label], is_left)}

    return program.run(constants, {}, *inputs, amend=amend)[2]


def _bias_alone(plan: Plan, output: str) -> Bias:
    """The recipe of the bias of a convolution without its batch norm."""
    recipe = plan.recipes[f"{output}/bias"]
    assert isinstance(recipe, Bias)
    return dataclasses.replace(recipe, norm=None)


def real_outputs(
    plan: Plan, graph: Graph, params: Params, outputs: Sequence[Any]
) -> tuple[jax.Array, ...]:
    """The real values of the outputs of either graph."""
    return tuple(real(plan, params, n, y) for n, y in zip(graph.outputs, outputs, strict=True))


def real(plan: Plan, params: Params, name: str, value: jax.Array | QTensor) -> jax.Array:
    """The real values of a tensor of the integer graph, given its integers as a QTensor."""
    if not isinstance(value, QTensor):
        return value
    if name in plan.owners:
        own = params["qparams"][plan.owners[name]]
        own = with_channels(plan, params, name, own, rank=len(value.shape))
        return dequantize(value, own)
    unit = QParams(jnp.float32(1), jnp.float32(0), jnp.float32(8), symmetric=True)
    return dequantize(value, unit)


# The float graph.


def run_floats(
    model: PreparedModel,
    params: Params,
    *inputs: Any,
    rounded: Rounded | None = None,
    norms: BatchNorms | None = None,
    records: Mapping[str, Record] | None = None,
) -> tuple[Any, ...]:
    """Runs the float graph on one example, or on the graph's own batch.

    Args:
      model: the model.
      params: the parameters, from `without_fixed_gradients`.
      inputs: float32, in the graph's shapes.
      rounded: gives the value that is read in the place of a quantized constant, an input or the
        output of a node, as `fake_quantized` does; by default the value itself.
      norms: the batch norms whose statistics are computed; by default the parameters have them.
      records: the records that values are added to. They follow the outputs in the result.
    """
    folded = params.get("norms", {}) if norms is None else {}
    constants = float_constants(model, params, folded, rounded=rounded)
    program = float_program(model).run

    def amend(name: str, value: Any) -> dict[str, Any]:
        if norms is not None and name in model.plan.norms:
            value = norms.of(name, value)(value)
        return {name: value if rounded is None else rounded(name, value)}

    if records is None:
        return program(constants, {}, *inputs, amend=amend)[2]
    state, _, outputs = program(constants, records, *inputs, amend=amend, watch=recorded)
    return *outputs, state


def floats_of_example(
    model: PreparedModel, params: Params, mode: Mode
) -> Callable[..., tuple[Any, ...]]:
    """`run_floats` in a mode, in "fake_quant" with rounded tensors."""
    return functools.partial(run_floats, model, params, rounded=_rounding(model, params, mode))


def float_constants(
    model: PreparedModel, params: Params, norms: Norms, *, rounded: Rounded | None = None
) -> dict[str, Any]:
    """The constants of the float graph by name, these batch norms folded."""
    constants: dict[str, Any] = {**float_program(model).constants, **params["values"]}
    if rounded is not None:
        constants |= {name: corrected(params, name) for name in params.get("corrections", ())}
        constants |= {name: rounded(name, constants[name]) for name in model.weights}
    for name, (weight, bias, axes) in model.plan.norms.items():
        if name in norms:
            shape = along(axes, constants[weight].shape)
            constants[weight] = constants[weight] * norms[name].factor.reshape(shape)
            constants[bias] = norms[name](constants[bias])
    return constants


def rounded_weights(model: PreparedModel, params: Params) -> Params:
    """The parameters with weights of the real values of their integers.

    The float graph then has the noise that weights alone make.
    """
    constants = {name: corrected(params, name) for name in model.weights}
    rounded = {n: fake_quantized(model, params, n, value) for n, value in constants.items()}
    return {**params, "values": {**params["values"], **rounded}}


def _rounding(model: PreparedModel, params: Params, mode: Mode) -> Rounded | None:
    """Rounds the tensors of the float graph in a mode; None where it leaves them as they are."""
    return None if mode == "float" else functools.partial(fake_quantized, model, params)


def fake_quantized(model: PreparedModel, params: Params, name: str, value: Any) -> Any:
    """A tensor of the float graph, rounded to the real values of its integers.

    Tensors without a scale stay as they are.
    """
    owner = name if name in model.specs else _given_owners(model).get(name)
    if owner is None:
        return value
    qparams = fitted_qparams(model.plan, params, owner)
    if model.plan.scaled[owner].mask_axis is not None:
        value = saturated(value, qparams)
    qparams = with_channels(model.plan, params, owner, qparams, rank=value.ndim)
    return fake_quant(value, qparams, model.specs[owner].estimator)


@once
def _given_owners(model: PreparedModel) -> dict[str, str]:
    """The owners of tensors inside loops and branches, and of those that become states."""
    inner = inner_tensors(model.float_graph)
    owners = {name: owner for name, owner in model.owners.items() if name in inner}
    return {**owners, **model.plan.ties}


def float_values(
    model: PreparedModel, params: Params, names: Sequence[str], *inputs: Input
) -> tuple[dict[str, jax.Array], dict[str, Record]]:
    """Tensors of the float graph, in the main graph and inside loops and branches.

    Args:
      model: the model.
      params: "values", and "norms" where there are any.
      names: the names of the tensors.
      inputs: examples, as for `QModel.apply`.

    Returns:
      Values by name, and records by name, with axes of a batch in front.
    """
    inside = inner_tensors(model.float_graph)
    inner = {name: inside[name] for name in names if name in inside}
    outer = [name for name in names if name not in inner]
    watched = model.with_outputs(*outer)
    if not inner:
        return dict(zip(outer, watched.apply(params, *inputs, mode="float"), strict=True)), {}
    model.check(params, "float")
    graph, plan = watched.float_graph, model.plan
    records = no_records(
        inner.values(), times_inside(graph, plan.turns, plan.options.max_trip_count)
    )
    run = functools.partial(
        run_floats, watched, without_fixed_gradients(plan, params), records=records
    )
    inputs = tuple(arguments.real_inputs(graph.input_tensors, inputs))
    *values, filled = on_batch(run, graph.input_tensors, inputs)
    return dict(zip(outer, real_outputs(plan, graph, params, values), strict=True)), filled


# Each operator by itself.


def local(model: PreparedModel, params: Params, *inputs: Input) -> dict[str, jax.Array]:
    """The float graph on the real values of the integer graph, step by step.

    Each quantized tensor is computed in floats from the integer graph's values of the tensors
    before it, and so differs from its own integers by the error of one operator.

    Returns:
      These float32 values by name.
    """
    names, graph = sources(model), model.float_graph
    values: list[jax.Array | QTensor] = [*model.with_outputs(*names).apply(params, *inputs)]
    for at, (tensor, x) in enumerate(zip(graph.input_tensors, inputs, strict=True)):
        if tensor.name not in model.owners:
            values[at] = arguments.integer_input(tensor, x)  # indices, for instance
    constants = float_constants(model, params, params.get("norms", {}))

    def run(*values: jax.Array) -> tuple[jax.Array, ...]:
        return step_program(model)(constants, {}, *values)[2]

    tensors = [graph.tensors[name] for name in names]
    return dict(zip(names, on_batch(run, tensors, values), strict=True))
