"""Lowering: a graph becomes one pure function of parameters, variables and inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import jax
import numpy as np
from jax import lax

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.graph import Graph, Node, Tensor, declared_variables
from tosajax.graph.edit import unused
from tosajax.lowering.chains import inputs_inside, outputs_of
from tosajax.lowering.control_flow import FlagNames, cond_if_step, while_loop_step
from tosajax.lowering.fusions import obstacle
from tosajax.lowering.inputs import checked_inputs, forms_of
from tosajax.lowering.kernel_plan import KernelPlan, plan_of, without_kernels
from tosajax.lowering.kernels import Kernel, chain_step, kernel_of, kernel_step, native_set
from tosajax.lowering.operators import custom_step, operator_step
from tosajax.lowering.run import (
    Amend,
    Context,
    CustomOps,
    GraphFunction,
    Params,
    Run,
    Step,
    Traced,
    Watch,
    name_in,
)
from tosajax.lowering.uses import Uses, uses_of
from tosajax.lowering.variable_steps import read_step, write_step
from tosajax.lowering.variables import State
from tosajax.native import waiting_threads
from tosajax.ops.routes.platform import ANY, Platform, tracing_for
from tosajax.ops.routes.route import not_native
from tosajax.report import UnsupportedError
from tosajax.validation import validate


def lower(
    graph: Graph, *, custom_ops: CustomOps | None = None, report_unpredictable: bool = False
) -> tuple[Callable[..., Any], Params]:
    """Turns a graph into `fn(params, *inputs) -> outputs`.

    A graph with variables becomes `fn(params, state, *inputs) -> (state, outputs)`. The state is a
    dictionary of `Variable` by name; the first one is `tosajax.initial_state(graph)`. Variables of
    other graphs in it are returned unchanged.

    Args:
      graph: legal, every dimension known.
      custom_ops: for each (domain_name, operator_name) of a CUSTOM node, a function of its inputs
        that takes the keyword `implementation_attrs` and returns one array or a tuple of them.
      report_unpredictable: whether to return, as the last result, a flag for each node and each
        REQUIRE rule that it may break at run time: {("ADD 'sum'", "add.r1"): bool scalar}. If a
        flag is true, the specification does not define the outputs. The flag of a zero point that
        is not a constant ("matmul.e1") means that the graph is illegal with these inputs.

    Returns:
      fn: a pure function, for jit, vmap and differentiation. Inputs and outputs are in the graph's
        order, each in `dtype.storage` and of its exact shape.
      params: the values of every CONST, by tensor name. Names of a subgraph's constants begin with
        its name and a slash.

    Raises:
      TosaError: the graph is illegal.
      UnsupportedError: a CUSTOM is not in custom_ops, or the value of a variable is undefined; or,
        when fn runs, control flow nests too deeply for Python's recursion limit.
      TypeError, ValueError: when fn is called or traced, an argument is of another type or shape.

    Example:
      >>> import jax
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.FP32, (4,))
      >>> fn, params = tosajax.lower(b.graph([b.op("MUL", x, x, b.const([0], tosajax.DType.INT8))]))
      >>> jax.grad(lambda x: fn(params, x)[0].sum())(jax.numpy.arange(4.0)).tolist()
      [0.0, 2.0, 4.0, 6.0]
    """
    validate(graph).raise_errors()  # also refuses an argument that is not a Graph
    program, params = build(graph, custom_ops=custom_ops, report_unpredictable=report_unpredictable)
    forms = forms_of(params)

    def fn(params: Params, state: State, *inputs: jax.Array) -> tuple[Any, ...]:
        arrays = checked_inputs(graph, forms, params, state, inputs)
        state, flags, outputs = program(params, state, *arrays)
        return (state, outputs, flags) if report_unpredictable else (state, outputs)

    def fn_without_state(params: Params, *inputs: jax.Array) -> Any:
        arrays = checked_inputs(graph, forms, params, {}, inputs)
        _, flags, outputs = program(params, {}, *arrays)
        return (outputs, flags) if report_unpredictable else outputs

    return (fn if declared_variables(graph) else fn_without_state), params


def build(
    graph: Graph,
    *,
    custom_ops: CustomOps | None = None,
    report_unpredictable: bool = False,
    prepare: bool = False,
    platform: Platform = ANY,
    kernels: Any = ops,
    traced: Traced | None = None,
    turns: Mapping[str, int] | None = None,
    native: bool | None = False,
) -> tuple[GraphFunction, Params]:
    """The function of a legal graph; it always takes and returns state and flags.

    Args:
      graph: legal, every dimension known.
      custom_ops: see `lower`.
      report_unpredictable: see `lower`.
      prepare: whether the program is compiled once, with `compiled.compiler_options`, and not
        differentiated. Operators then read constant weights, zero points and shifts from the graph
        instead of the parameters, to prepare them; and bfloat16 is moved as integers.
      platform: the only platform of the program, if it is known.
      kernels: an object with a function for each operator, by its name in lower case; it may have
        more functions for results with a single reader, such as "rescale_before_clamp".
      traced: attributes whose values are in the parameters.
      turns: the number of turns of WHILE_LOOPs, by their first output, for kernels that use it.
      native: whether native kernels compute the nodes that they can, several at once; `amend` and
        `watch` do not get the tensors between these nodes. None: the processor decides.

    Returns:
      program: (params, state, *inputs, amend=None, watch=None) -> (state, flags, outputs).
        `amend` gets the name and the value of each input and of each node's output, and returns
        values by name, which later nodes read: for this tensor, and for constants. `watch` also
        gets the state, and returns the next state. Tensors of subgraphs are named like constants
        of subgraphs in the parameters.
      params: as from `lower`.
    """
    variables = declared_variables(graph)
    context = Context(
        custom_ops or {},
        report_unpredictable,
        prepare,
        kernels,
        traced or {},
        variables,
        {},
        turns or {},
        native,
    )
    block = _block(graph, "", context)

    def program(
        params: Params,
        state: State,
        *inputs: jax.Array,
        amend: Amend | None = None,
        watch: Watch | None = None,
    ):
        try:
            with tracing_for(platform):
                return block(params, state, *inputs, amend=amend, watch=watch)
        except RecursionError:
            limit = f"Python's recursion limit ({sys.getrecursionlimit()})"
            message = f"graph {graph.name!r} nests control flow too deeply for {limit}"
            raise UnsupportedError(message) from None

    return program, context.params


def scope_name(node: Node) -> str:
    """The scope name of a node's instructions in XLA's programs and profiles."""
    text = node.title.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 200 else f"{text[:100]}...{text[-97:]}"


def _scope(node: Node, tensors: Mapping[str, Tensor], *, native: bool) -> str:
    """The scope name of a node, with the reason if no native kernel computes its products."""
    reason = obstacle(node, tensors) if native else ""
    return f"{scope_name(node)}/{not_native(reason)}" if reason else scope_name(node)


def to_device(values: Any, dtype: DType) -> Any:
    """Copies a value in NumPy arrays to JAX arrays; int48 is not narrowed."""
    if dtype is DType.INT48:
        return _x64.from_numpy(values)
    # jnp.asarray compiles a program for each shape. jax.device_put may share memory with the NumPy
    # array, hence the copy.
    return dtype.join(jax.device_put(np.array(array)) for array in dtype.arrays(values))


def _block(graph: Graph, prefix: str, context: Context) -> GraphFunction:
    blocks = {
        name: _block(part, f"{prefix}{name}/", context) for name, part in graph.subgraphs.items()
    }
    constants = _constants(graph, prefix, context.params)
    uses = uses_of(graph, report_unpredictable=context.report_unpredictable)
    plan, kernels = _planned(graph, uses, context)
    fenced = _fenced_tensors(graph, uses)
    single: list[_Named] = []
    for place, part in enumerate(plan.parts):
        if isinstance(part, Node):
            step = _step(part, graph, prefix, blocks, context, uses.only)
            scope = _scope(part, graph.tensors, native=context.native is not False)
        else:
            step = kernel_step(kernels[place], graph.tensors, context.traced)
            scope = scope_name(part.main)
        single.append(_fenced(step, scope, outputs_of(part), fenced))
    together = [
        _chained(call, plan, kernels, graph, context, fenced) if len(call) > 1 else single[call[0]]
        for call in plan.calls
    ]
    waits = plan.has_kernels and plan.leaves_little

    def run_graph(
        params: Params,
        state: State,
        *inputs: jax.Array,
        amend: Amend | None = None,
        watch: Watch | None = None,
    ):
        values = {name: params[key] for name, key in constants.items()}
        values.update(zip(graph.inputs, inputs, strict=True))
        run = Run(params, state, values, {}, amend, watch)
        run.report_tensors(graph.inputs, prefix)
        # `amend` and `watch` need the tensors inside a chain.
        steps = together if amend is None and watch is None else single
        with waiting_threads(waits):
            for step, names in steps:
                step(run)
                run.report_tensors(names, prefix)
        return run.state, run.flags, tuple(run.read(graph.outputs))

    return run_graph


def _planned(graph: Graph, uses: Uses, context: Context) -> tuple[KernelPlan, dict[int, Kernel]]:
    """The plan of a graph, and the kernels of its fusions, by their index among the parts."""
    if context.native is not False:
        plan = plan_of(uses, graph.tensors, context.traced)
        isa = native_set(context.native) if plan.has_kernels else None
        if isa is not None:
            return plan, {
                place: kernel_of(part, graph.tensors, isa)
                for place, part in enumerate(plan.parts)
                if not isinstance(part, Node)
            }
    return without_kernels(uses, graph.tensors), {}


def _fenced_tensors(graph: Graph, uses: Uses) -> set[str]:
    """The tensors that need a barrier; see `_fenced`."""

    def feeds_clamp(name: str) -> bool:
        return name in uses.only and uses.only[name].op == "CLAMP"

    return {
        name
        for name, tensor in graph.tensors.items()
        if uses.counts[name] > 1 or (tensor.dtype.is_float and not feeds_clamp(name))
    }


def _constants(graph: Graph, prefix: str, params: Params) -> dict[str, str]:
    """Adds a graph's constants to the parameters, and returns their keys by tensor name."""
    keys: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.outputs if node.op == "CONST" else ():
            # A tensor's own name may contain a slash.
            key = unused(name_in(prefix, name), params)
            tensor = graph.tensors[name]
            assert tensor.values is not None
            keys[name] = key
            params[key] = to_device(tensor.values, tensor.dtype)
    return keys


# A step, and its tensors that other steps may read.
_Named = tuple[Step, Sequence[str]]


def _chained(
    call: range,
    plan: KernelPlan,
    kernels: Mapping[int, Kernel],
    graph: Graph,
    context: Context,
    fenced: Set[str],
) -> _Named:
    """The step of a chain of kernels."""
    others = (part for place, part in enumerate(plan.parts) if place not in call)
    read = {name for part in others for name in inputs_inside(part)} | {*graph.outputs}
    inside = [(place, plan.parts[place]) for place in call]
    wanted = [name for _, part in inside for name in outputs_of(part) if name in read]
    chain = [part if isinstance(part, Node) else kernels[place] for place, part in inside]
    named = (part for part in chain if isinstance(part, Kernel))
    scope = "/".join(f"{scope_name(k.fusion.main)}/{k.route.scope}" for k in named)
    step = chain_step(chain, wanted, graph.tensors, context.traced)
    return _fenced(step, scope, wanted, fenced)


def _fenced(step: Step, scope: str, names: Sequence[str], fenced: Set[str]) -> _Named:
    """A step with a scope name, and with optimization barriers on some of its tensors.

    Without barriers XLA recomputes a tensor, with its operands, for each node that reads it. It
    also fuses a float product into the following sum, whose rounding then depends on the batch. A
    CLAMP does not round.
    """
    behind = [name for name in names if name in fenced]

    def run_step(run: Run) -> None:
        with jax.named_scope(scope):
            step(run)
        for name in behind:
            run.values[name] = lax.optimization_barrier(run.values[name])

    return run_step, names


def _step(
    node: Node,
    graph: Graph,
    prefix: str,
    blocks: Mapping[str, GraphFunction],
    context: Context,
    only: Mapping[str, Node],
) -> Step:
    """The step of a node; `only` maps a tensor to its only reader."""
    match node.op:
        case "COND_IF":
            return cond_if_step(node, blocks, FlagNames(context))
        case "WHILE_LOOP":
            turns = context.turns.get(name_in(prefix, node.outputs[0])) if node.outputs else None
            return while_loop_step(node, blocks, context, turns)
        case "VARIABLE_READ":
            return read_step(node, graph.tensors[node.outputs[0]], context)
        case "VARIABLE_WRITE":
            return write_step(node, graph.tensors[node.inputs[0]], context)
        case "CUSTOM":
            return custom_step(node, graph, context)
        case _:
            reader = only.get(node.outputs[0])
            return operator_step(node, graph.tensors, context, reader and reader.op)
