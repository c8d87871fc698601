"""prepare: from a float graph to a model of integers, or of FP8 operands."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tosajax import spec
from tosajax.arguments.types import check_type
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.graph import Graph, declared_variables
from tosajax.quant.convert.graphs import as_converted, converted
from tosajax.quant.convert.open_batches import for_one_example
from tosajax.quant.convert.operands import rounded_operands, with_rounded_operands
from tosajax.quant.convert.states import check_states
from tosajax.quant.graphs.blocks import all_nodes, all_tensors, graph_keys
from tosajax.quant.graphs.fake_quants import FakeQuant
from tosajax.quant.graphs.functions import Function, function_of
from tosajax.quant.graphs.reading_back import Reader
from tosajax.quant.graphs.simplify import Simple, simplified
from tosajax.quant.model.plan import NormedConv, Options, Plan, State
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.ranges.observers import fixed
from tosajax.quant.ranges.on_grid import ends_around_zero
from tosajax.quant.spec import QSpec, Rule, check_rules, rule
from tosajax.report import UnsupportedError
from tosajax.rewrite.variables import variables_to_states
from tosajax.spec import RoundingMode


def prepare(
    graph: Graph | Callable[..., Any],
    rules: Sequence[Rule] = (),
    *,
    example_args: Sequence[Any] | None = None,
    params: Any | None = None,
    max_unroll: int = 64,
    rounding_mode: RoundingMode = RoundingMode.SINGLE_ROUND,
    estimator: Estimator = clipped_ste,
    overrides: Mapping[str, Estimator] | None = None,
    own_pool_scales: bool = True,
    wide_normalizers: bool = True,
    wide_elementwise: bool = True,
    channel_scales: bool = True,
    batch_norms: bool | str = False,
    max_trip_count: int | None = None,
    states: Mapping[str, str] | None = None,
) -> PreparedModel:
    """Turns floats into a model of integers, to calibrate, to train and to freeze.

    A JAX function becomes a graph first, as by `tosajax.export`. `QModel.pytree` gives its
    parameters back, as they were trained.

    Constants are folded, batch normalization goes into convolutions, a CLAMP into the RESCALE
    before it, and elementwise functions of one tensor (sigmoid, GELU, a square, an inverse square
    root) become a TABLE each.

    Graphs of WHILE_LOOP and COND_IF are converted as well; a tensor x of a graph "body" is "body/x"
    for rules and in parameters. A float state of a loop has the scale of the loop's output in all
    turns; the results of both branches have the scale of the output.

    Fake quantization of a function or graph that was trained with it (rounding to integers times a
    scale, with or without straight-through code) goes: the tensor that it rounds gets its scale,
    zero point and bits, unless rules say otherwise, and so do weights that are integers times a
    scale.

    Rules may give FP8 to all operands of convolutions and MATMUL, as `rule(".*",
    weight=QSpec("fp8e4m3"), act=QSpec("fp8e4m3"))` does. Each then passes through FP8 with a scale
    of its own, and all else is FP32. The two types of FP8 may be mixed.

    Args:
      graph: FP32, FP16 or BF16; legal, every dimension known but the first of inputs. Where that
        is open, the model is of one example, or of a batch of any size as all models are, and
        `freeze` leaves it open. Or a function of arrays, or of pytrees of them, or a module of
        Equinox or Flax (nnx).
      rules: how nodes are quantized; where several match, later rules win. Without
        rules: INT8, weights symmetric and per channel, activations with a zero point and the range
        of 99.995 % of their values; inputs, outputs and what a maximum over many reads with that of
        all.
      example_args: for a function: its inputs, a tuple of arrays or `jax.ShapeDtypeStruct`.
      params: for a function: its first argument, a pytree of the parameters; None if it has none,
        or is a module that holds them.
      max_unroll: for a function: the most turns of a loop that are unrolled.
      rounding_mode: the rounding mode of every RESCALE except of INT48, which allow one only.
      estimator: the surrogate derivative of rounding and saturation; of integers.
      overrides: other estimators, by operator ("RESCALE").
      own_pool_scales: means of AVG_POOL2D are sums that a RESCALE divides, with a scale of their
        own, as means spread less than their elements; by REDUCE_SUM of a whole image, by
        DEPTHWISE_CONV2D of windows. False keeps AVG_POOL2D, which rounds to its input's scale.
      wide_normalizers: INT16 for activations inside of softmaxes and norms that the rules give
        INT8: statistics and what leads to them, up to the inputs and outputs that convolutions,
        MATMUL or other operators read. Convolutions and MATMUL multiply INT8 as before. False
        leaves these tensors to the rules.
      wide_elementwise: INT16 for activations that only elementwise operators read and that the
        rules give INT8: sums of residuals and their terms. Other operators read an INT8 copy,
        "x/copy" of x. In operators of the integer profile alone: not before a TABLE, nor where a
        CLAMP has another bound than 0. False leaves these tensors to the rules.
      channel_scales: a scale per channel for INT8 activations that only depthwise convolutions
        read, by weights that have one too. It costs no operator: the sums of each channel have a
        scale of their own anyway. False gives these tensors one scale.
      batch_norms: which convolutions keep a batch norm in training, a `Norm` of the parameters with
        statistics of its own, which `freeze` folds (`QModel.apply_batch`, `estimate_norms`). True:
        those whose channels the graph scales after them. A regular expression: those that it is
        found in the name of the output or the weight, which may have been folded long before. The
        weight and the bias must be constants that nothing else reads. None inside loops and
        branches.
      max_trip_count: the most turns of each WHILE_LOOP whose inputs decide on their number.
        Gradients, examples of `calibrate` and memory are for so many; a loop that takes more has
        the same outputs, and gradients that are NaN.
      states: for each input that is a state, the output with its next value: {"h": "h_next"}. The
        two have one scale and zero point, so that the integers of an output are the next input as
        they are. Rules may specify a state by either name. `rollout` makes examples of states, and
        `scan` runs sequences. Variables of a graph are states as well, each an input of its name
        and an output "name/next"; `freeze` makes variables of them again.

    Raises:
      TypeError: an argument is of another type.
      TosaError: the graph is illegal.
      UnsupportedError: an operator, or a type among its operands, has no integer form; FP8 is
        asked for beside integers; or a function computes something that TOSA does not have.
      ValueError: an estimator, or batch norms that are kept, beside FP8; a graph without floats,
        which `lift` takes; a loop that needs `max_trip_count`; a rule whose pattern is found in no
        name; no convolution to keep the batch norm of; or a state whose next value is not an
        output of its type and shape, or constant.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w = np.float32([[1, -2], [3, 4]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[np.zeros((1, 2), np.float32)])
      >>> [tensor.dtype.name for tensor in model.graph.output_tensors]
      ['INT8']
    """
    function = None
    if not isinstance(graph, Graph):
        function = function_of(graph, example_args, params, max_unroll)
        graph = function.graph
    elif example_args is not None or params is not None:
        raise TypeError("example_args and params are of functions, and a graph was given")
    _check(graph, rules)
    check_states(states or {}, graph)
    own_states = [State(name, following) for name, following in (states or {}).items()]
    if declared_variables(graph):
        graph, variables, initial = variables_to_states(graph)
        own_states += [State(*names, True, initial.get(names[0])) for names in variables.items()]
    options = Options(
        tuple(rules),
        rounding_mode,
        own_pool_scales,
        wide_normalizers,
        wide_elementwise,
        channel_scales,
        max_trip_count,
        tuple(own_states),
    )
    check_type("batch_norms", batch_norms, bool | str, "True, False or a regular expression")
    check_type("max_trip_count", max_trip_count, int | None, "a number of turns")
    source = graph if graph.is_dynamic else None
    simplification = simplified(for_one_example(graph))
    simple, folded, fake_quants = simplification
    known = [_known(name, own) for name, own in fake_quants.items()]
    known += _known_weights(simple)
    options = dataclasses.replace(options, rules=(*known, *rules))
    copied = as_converted(simple, options)
    check_rules(rules, graph, copied)
    normed = {each.output for each in folded if each.is_scaled}
    norms = _norms(simple, normed, batch_norms) if batch_norms else {}
    _check_control_flow(simple, rules)
    if operands := rounded_operands(simple, rules):
        asked = next(iter(operands.values())).storage.name
        if estimator is not clipped_ste or overrides:
            raise ValueError(f"estimators are of integers, and the rules ask for {asked}")
        if own_states:
            raise ValueError(f"states are of integers, and the rules ask for {asked}")
        if norms:
            raise ValueError(f"batch norms are kept by integers, and the rules ask for {asked}")
        graph, plan = with_rounded_operands(simple, operands)
        plan = dataclasses.replace(plan, options=options)
        reader = _reader(function, simplification, plan)
        return PreparedModel(graph, plan, float_graph=simple, reader=reader, source=source)
    graph, plan = converted(copied, norms, options)
    _check_turns(copied, plan)
    reader = _reader(function, Simple(copied, folded), plan)
    overrides = overrides or {}
    return PreparedModel(
        graph, plan, estimator, overrides, float_graph=copied, reader=reader, source=source
    )


def _reader(function: Function | None, simple: Simple, plan: Plan) -> Reader | None:
    if function is None:
        return None
    tensors = all_tensors(simple.graph)
    return Reader(function, simple.folded, {name: tensors[name] for name in plan.trained})


def _known(name: str, own: FakeQuant) -> Rule:
    """The rule of a tensor that the graph rounds; the user's rules come later."""
    spec = QSpec(
        "i8" if (own.bits or 0) <= 8 else "i16",
        bits=own.bits,
        symmetric=own.zero_point == 0,
        narrow_range=own.is_narrow,
        observer=fixed(own.scale, own.zero_point),
    )
    return rule(f"^{re.escape(name)}$", act=spec)


def _known_weights(graph: Graph) -> list[Rule]:
    """The rules of weights that are integers of 8 bits with a zero point, and not without one."""
    nodes = [
        node
        for node in all_nodes(graph)
        if node.op == "MATMUL" or spec.OPERATORS[node.op].chapter == "conv"
    ]
    tensors = all_tensors(graph)
    weights = {node.inputs[1]: tensors[node.inputs[1]].values for node in nodes}
    asymmetric = QSpec("i8", symmetric=False)
    return [
        rule(f"^{re.escape(name)}$", weight=asymmetric)
        for name, values in weights.items()
        if values is not None and ends_around_zero(values) is not None
    ]


def _check(graph: Graph, rules: Sequence[Rule]) -> None:
    check_type("rules", rules, list | tuple, "a list of rules, as `rule` makes them")
    for each in rules:
        check_type("an element of rules", each, Rule, "a Rule, as `rule` makes it")
    if not any(tensor.dtype.is_float for tensor in graph.tensors.values()):
        raise ValueError(
            f"graph {graph.name!r} has no floats to quantize: it is of integers already; "
            "quant.lift trains such graphs"
        )


def _check_control_flow(graph: Graph, rules: Sequence[Rule]) -> None:
    """Raises UnsupportedError where rules ask for more than integers in loops and branches."""
    asked = [spec for rule in rules for spec in (rule.weight, rule.act) if spec is not None]
    names = [spec.storage.name for spec in asked if not spec.storage.is_integer]
    for node in graph.nodes if names else ():
        if graph_keys(node):
            raise UnsupportedError(f"{node.title}: rules ask for {names[0]}, expected integers")


def _check_turns(graph: Graph, plan: Plan) -> None:
    for node in all_nodes(graph):
        is_known = node.op != "WHILE_LOOP" or node.outputs[0] in plan.turns
        if not is_known and plan.options.max_trip_count is None:
            raise ValueError(
                f"{node.title}: its inputs decide on the number of turns, expected max_trip_count"
            )


def _norms(graph: Graph, normed: Collection[str], asked: bool | str) -> dict[str, NormedConv]:
    """The convolutions that keep a batch norm, by output.

    Args:
      graph: the graph, from `simplify`.
      normed: the outputs of those whose channels the graph scaled.
      asked: the user's `batch_norms`.
    """
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    convolutions = {}
    for node in graph.nodes:
        operator = spec.OPERATORS[node.op]
        if operator.chapter != "conv":
            continue
        (output,), (weight, bias) = node.outputs, node.inputs[1:3]
        if asked is True:
            is_asked = output in normed
        else:
            is_asked = any(re.search(str(asked), name) for name in (output, weight))
        constants = [graph.tensors[name].values is not None for name in (weight, bias)]
        if is_asked and all(constants) and readers[weight] == readers[bias] == 1:
            convolutions[output] = NormedConv(weight, bias, operator.channel_axes.outputs)
    if not convolutions:
        where = "whose channels are scaled" if asked is True else f"with {asked!r} in its name"
        raise ValueError(f"batch_norms {asked!r}: the graph has no convolution {where}")
    return convolutions
