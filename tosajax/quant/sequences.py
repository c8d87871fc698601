"""Sequences: a model is run step by step, each state in the value that the step before gave it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.grad.qtensor import QTensor
from tosajax.graph import Graph, Tensor
from tosajax.quant.calibration import known_values
from tosajax.quant.model import arguments, run
from tosajax.quant.model.arguments import Batch, Input, Numbers, as_inputs, check_batches
from tosajax.quant.model.batches import as_given, examples_at_once, rows
from tosajax.quant.model.params import without_fixed_gradients
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import Mode
from tosajax.quant.qmodel import PreparedModel, QModel, prepared


def scan(
    model: QModel,
    params: Params,
    *sequences: Input,
    initial: Mapping[str, Numbers] | None = None,
    mode: Mode = "exact",
) -> tuple[jax.Array, ...]:
    """Runs a model with states over sequences, as one program.

    In "exact" the integers of a state go on to the next step as they are. It is a JAX function:
    gradients go through all steps.

    Args:
      model: the model, from `prepare` with `states`.
      params: the parameters, from `calibrate`, trained or not.
      sequences: the inputs that are not states, in the order of the graph; each as for
        `QModel.apply`, with an axis of steps in front.
      initial: the states before the first step by name, real values for one example or for each of
        a batch; by default the initial value of a variable, or 0.
      mode: the mode, as for `QModel.apply`.

    Returns:
      The outputs of all steps, as `QModel.apply` gives them, with an axis of steps in front; states
      too.

    Raises:
      TypeError: an input is of another type.
      ValueError: the model has no states, or no other inputs; sequences are of different lengths;
        or an argument does not fit, as for `QModel.apply`.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from tosajax import quant
      >>> def mean(x, h):
      ...     return {"y": 0.5 * (x + h)}
      >>> args = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)
      >>> model = quant.prepare(mean, example_args=args, states={"h": "y"})
      >>> x = np.ones((4, 1, 1), np.float32)
      >>> params = quant.calibrate(model, quant.rollout(model, [x]))
      >>> (y,) = quant.scan(model, params, x)
      >>> (100 * y).astype(int).ravel().tolist()
      [50, 75, 87, 93]
    """
    model = _with_states(model)
    model.check(params, mode)
    is_exact = run.is_exact(model.plan, mode)
    steps = _steps(model, sequences, initial, is_exact=is_exact)
    outputs = jitted(model, _real_outputs, mode=mode)(params, steps.inputs, steps.states)
    given = functools.partial(as_given, tensors=steps.tensors, inputs=steps.first)
    return jax.vmap(given)(outputs)


def rollout(
    model: QModel,
    sequences: Iterable[Batch],
    *,
    values: Mapping[str, Numbers] | None = None,
    initial: Mapping[str, Numbers] | None = None,
) -> list[tuple[jax.Array, ...]]:
    """Examples of single steps from sequences: the states are those of the float graph.

    Args:
      model: the model, from `prepare` with `states`.
      sequences: each the sequence of the only input that is not a state, or a tuple of those of
        all such inputs, as for `scan`.
      values: constants of the float graph by name, if they have been trained since.
      initial: the states before the first step of each sequence, as for `scan`.

    Returns:
      Batches of the inputs of the graph, for `calibrate` and all that takes examples.

    Raises:
      TypeError, ValueError: as `scan` and `calibrate`; or there are no sequences.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> args = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)
      >>> model = quant.prepare(
      ...     lambda x, h: {"y": 0.5 * (x + h)}, example_args=args, states={"h": "y"}
      ... )
      >>> ((x, h),) = quant.rollout(model, [np.ones((3, 1, 1), np.float32)])
      >>> x.ravel().tolist(), h.ravel().tolist()
      ([1.0, 1.0, 1.0], [0.0, 0.5, 0.75])
    """
    model = _with_states(model)
    check_batches(sequences)
    params = {"values": known_values(model, values)}
    program, batches = jitted(model, _outputs, mode="float"), []
    for sequence in sequences:
        steps = _steps(model, as_inputs(sequence), initial, is_exact=False)
        outputs = dict(zip(model.float_graph.outputs, program(params, *steps[:2]), strict=True))
        states = {
            state: jax.tree.map(_before, steps.states[state], outputs[following])
            for state, following, *_ in model.plan.options.states
        }
        batches += _batches(model.float_graph, {**steps.inputs, **states})
    if not batches:
        raise ValueError("there are no sequences")
    return batches


class _Steps(NamedTuple):
    """Sequences as a program takes them, by input.

    Args:
      inputs: those that are not states [steps, examples, *shape].
      states: the states before the first step [examples, *shape].
      tensors: of the inputs that are not states.
      first: their first step, as the user gave it.
    """

    inputs: dict[str, jax.Array | QTensor]
    states: dict[str, jax.Array | QTensor]
    tensors: list[Tensor]
    first: list[jax.Array | QTensor]


def _steps(
    model: PreparedModel,
    sequences: Sequence[Input],
    initial: Mapping[str, Numbers] | None,
    *,
    is_exact: bool,
) -> _Steps:
    graph = model.graph if is_exact else model.float_graph
    names = {state.input: state.initial for state in model.plan.options.states}
    tensors = [tensor for tensor in graph.input_tensors if tensor.name not in names]
    if not tensors:
        raise ValueError("all inputs of the model are states, expected one with a sequence")
    if is_exact:
        arguments.check_inputs(tensors, sequences)
        arrays = [run.input_array(model, t, x) for t, x in zip(tensors, sequences, strict=True)]
    else:
        arrays = arguments.real_inputs(tensors, sequences)
    _check_lengths(tensors, arrays)
    inputs = jax.vmap(lambda *step: rows(tensors, step))(*arrays)
    count = inputs[0].shape[1]
    check_type("initial", initial, Mapping | None, "a dictionary of arrays by state")
    for name in initial or {}:
        if name not in names:
            raise ValueError(f"initial has {name!r}, which is not a state{near(name, names)}")
    values, tensors_by_name = {**names, **(initial or {})}, model.float_graph.tensors
    states = {name: _initial_state(tensors_by_name[name], values[name], count) for name in names}
    named = {t.name: x for t, x in zip(tensors, inputs, strict=True)}
    return _Steps(named, states, tensors, [jax.tree.map(lambda x: x[0], x) for x in arrays])


def _check_lengths(tensors: Sequence[Tensor], arrays: Sequence[jax.Array | QTensor]) -> None:
    for tensor, x in zip(tensors, arrays, strict=True):
        if len(x.shape) <= len(tensor.shape or ()) or not x.shape[0]:
            raise ValueError(
                f"input {tensor.name!r} has shape {tuple(x.shape)}, expected a sequence of "
                f"{tensor}: an axis of steps in front"
            )
    lengths = {tensor.name: x.shape[0] for tensor, x in zip(tensors, arrays, strict=True)}
    if len({*lengths.values()}) > 1:
        raise ValueError(f"sequences of {lengths} steps, expected one number of them")


def _initial_state(tensor: Tensor, value: Numbers | None, count: int) -> jax.Array | QTensor:
    shape = tuple(tensor.shape or ())
    if value is None:
        value = np.zeros(shape, np.float32 if tensor.dtype.is_float else tensor.dtype.storage)
    (state,) = arguments.real_inputs([tensor], [value])
    (state,) = rows([tensor], [state])
    if state.shape[0] not in (1, count):
        raise ValueError(
            f"initial[{tensor.name!r}] is of {state.shape[0]} examples, expected 1 or {count}"
        )
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *shape)), state)


def _real_outputs(
    model: PreparedModel, params: Params, *arrays: dict[str, jax.Array | QTensor], mode: Mode
) -> tuple[jax.Array, ...]:
    """The real outputs of all steps [steps, examples, *shape]; see `_outputs`."""
    graph = model.graph if run.is_exact(model.plan, mode) else model.float_graph
    return run.real_outputs(model.plan, graph, params, _outputs(model, params, *arrays, mode=mode))


def _outputs(
    model: PreparedModel,
    params: Params,
    inputs: dict[str, jax.Array | QTensor],
    states: dict[str, jax.Array | QTensor],
    *,
    mode: Mode,
) -> tuple[jax.Array | QTensor, ...]:
    """The outputs of all steps [steps, examples, *shape].

    Args:
      model: the model.
      params: its parameters.
      inputs: those that are not states [steps, examples, *shape].
      states: the first states [examples, *shape].
      mode: the mode.
    """
    params = without_fixed_gradients(model.plan, params)
    graph, step = model.float_graph, run.floats_of_example(model, params, mode)
    if run.is_exact(model.plan, mode):
        graph = model.graph
        step = functools.partial(run.run_integers, model, run.integer_constants(model, params))
        stored = functools.partial(run.stored_input, model, params)
        inputs, states = (
            {name: stored(graph.tensors[name], x) for name, x in values.items()}
            for values in (inputs, states)
        )

    def one_step(states: dict[str, Any], inputs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        values = {**inputs, **states}
        outputs = jax.vmap(step)(*(values[name] for name in graph.inputs))
        named = dict(zip(graph.outputs, outputs, strict=True))
        return {state.input: named[state.output] for state in model.plan.options.states}, outputs

    _, outputs = lax.scan(one_step, states, inputs)
    return outputs


def _before(first: jax.Array, following: jax.Array) -> jax.Array:
    """A state before each step, of the first one and of what each step gives."""
    return jnp.concatenate([first[None], following[:-1]])


def _batches(graph: Graph, values: Mapping[str, Any]) -> list[tuple[jax.Array, ...]]:
    """Inputs of all steps as batches, so small that all their tensors fit into memory."""
    inputs = [
        jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), values[name]) for name in graph.inputs
    ]
    most = examples_at_once(graph)
    parts = [slice(start, start + most) for start in range(0, inputs[0].shape[0], most)]
    return [tuple(jax.tree.map(operator.itemgetter(part), x) for x in inputs) for part in parts]


def _with_states(model: QModel) -> PreparedModel:
    model = prepared(model)
    if not model.plan.options.states:
        raise ValueError("the model has no states, expected one of `prepare` with `states`")
    return model
