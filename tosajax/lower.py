"""Lowering: a graph becomes one pure function of parameters, variables and inputs."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import ops, spec
from tosajax.checks import RULES
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.graph import Graph, Node, Tensor, arguments, declared_variables
from tosajax.ops._platform import ANY, Platform, tracing_for
from tosajax.report import UnsupportedError
from tosajax.spec import Form, Kind
from tosajax.validate import validate
from tosajax.variables import State, Variable

Params = dict[str, jax.Array]
Flags = dict[tuple[str, str], jax.Array]
CustomOps = Mapping[tuple[str, str], Callable[..., Any]]
# Arguments that operators make more of when they are constants, which then are NumPy arrays.
_PREPARED = frozenset(
    {"weight", "weight_zp", "input_zp", "output_zp", "b", "a_zp", "b_zp", "shift"}
)
# Chapters whose operators only move elements.
MOVING = ("data_layout", "scatter_gather")
# For the output of a node, its attributes that come with the parameters, and their keys.
Traced = Mapping[str, Mapping[str, str]]
Amend = Callable[[Mapping[str, Any], str, Any], Any]
# A graph, ready to run: (params, state, *inputs) -> (state, flags, outputs).
Program = Callable[..., tuple[State, Flags, tuple[jax.Array, ...]]]


def lower(
    graph: Graph, *, custom_ops: CustomOps | None = None, report_unpredictable: bool = False
) -> tuple[Callable[..., Any], Params]:
    """Turns a graph into `fn(params, *inputs) -> outputs`.

    A graph with variables becomes `fn(params, state, *inputs) -> (state, outputs)`: the state is
    a dictionary of `Variable` by name, first `tosajax.initial_state(graph)`. It may hold variables
    of other graphs too, and these come back as they are.

    Args:
      graph: legal, every dimension known.
      custom_ops: for each (domain_name, operator_name) of a CUSTOM node, a function of its inputs
        that takes the keyword `implementation_attrs` and returns one array or a tuple of them.
      report_unpredictable: also return, last, a flag for each node and each REQUIRE rule it may
        break as it runs: {("ADD 'sum'", "add.r1"): bool scalar}. Where one is true, the
        specification says nothing of the outputs.

    Returns:
      fn: pure and traceable: jit, vmap and differentiate it. Inputs and outputs stand in the
        graph's order, each in `dtype.storage` and of its exact shape.
      params: the values of every CONST, by tensor name; those of a subgraph after its name and
        a slash.

    Raises:
      TosaError: the graph is illegal.
      UnsupportedError: a CUSTOM is not in custom_ops, or what a variable holds is undefined; when
        fn runs, also where control flow is nested too deeply for Python's recursion limit.
    """
    validate(graph).raise_errors()  # which also refuses what is not a Graph
    program, params = build(graph, custom_ops=custom_ops, report_unpredictable=report_unpredictable)

    def fn(params: Params, state: State, *inputs: jax.Array) -> tuple[Any, ...]:
        state, flags, outputs = program(params, state, *inputs)
        return (state, outputs, flags) if report_unpredictable else (state, outputs)

    def fn_without_state(params: Params, *inputs: jax.Array) -> Any:
        _, flags, outputs = program(params, {}, *inputs)
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
    amend: Amend | None = None,
) -> tuple[Program, Params]:
    """What `lower` does with a graph that is known to be legal, in one form for all.

    Args:
      graph: as for `lower`; so are custom_ops and report_unpredictable.
      prepare: for a program that is compiled once, with `compiled.compiler_options`, and not
        differentiated. Operators take constant weights, zero points and shifts from the graph,
        not from the parameters, so that they can prepare them; and bfloat16 moves by its bits.
      platform: the only one that the program is for, if that is known.
      kernels: holds a function for each operator, by its name in lower case.
      traced: attributes that come with the parameters.
      amend: given (params, name, value) of each input and each output of a node, returns what
        is read in its place.

    Returns:
      program: (params, state, *inputs) -> (state, flags, outputs).
      params: as from `lower`.
    """
    variables = declared_variables(graph)
    context = _Context(
        custom_ops or {}, report_unpredictable, prepare, kernels, traced or {}, amend, variables, {}
    )
    block = _block(graph, "", context)

    def program(params: Params, state: State, *inputs: jax.Array):
        try:
            with tracing_for(platform):
                return block(params, state, *inputs)
        except RecursionError:
            limit = f"Python's recursion limit ({sys.getrecursionlimit()})"
            message = f"graph {graph.name!r} nests control flow too deeply for {limit}"
            raise UnsupportedError(message) from None

    return program, context.params


def scope_name(node: Node) -> str:
    """What XLA's programs and profiles call the steps of a node."""
    text = node.title.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 200 else f"{text[:100]}...{text[-97:]}"


def to_device(values: np.ndarray, dtype: DType) -> jax.Array:
    """Values in their storage as a JAX array of its own, int48 without narrowing."""
    # jnp.asarray compiles a program for each shape. A JAX array may share memory with the NumPy
    # array that it is put from, hence the copy.
    return _x64.from_numpy(values) if dtype is DType.INT48 else jax.device_put(np.array(values))


class _Context(NamedTuple):
    """What making a step of any node may need, and the parameters found so far."""

    custom_ops: CustomOps
    report_unpredictable: bool
    prepare: bool
    kernels: Any
    traced: Traced
    amend: Amend | None
    variables: Mapping[str, Sequence[Tensor]]
    params: Params


@dataclasses.dataclass
class _Run:
    """One graph as it runs: its tensors, and what it passes on to the next."""

    params: Params
    state: State
    values: dict[str, Any]
    flags: Flags

    def read(self, names: Sequence[str]) -> list[Any]:
        return [self.values[name] for name in names]


# A node, ready to run: reads and writes the tensors and variables of a run.
_Step = Callable[[_Run], None]


def _block(graph: Graph, prefix: str, context: _Context) -> Program:
    blocks = {
        name: _block(part, f"{prefix}{name}/", context) for name, part in graph.subgraphs.items()
    }
    constants = _constants(graph, prefix, context.params)
    nodes = [n for n in graph.ordered_nodes() if n.op not in (*spec.CONSTANT_OPERATORS, "VARIABLE")]
    readers = Counter(name for node in nodes for name in node.inputs)
    if context.report_unpredictable:
        readers.update(name for node in nodes if RULES[node.op].require for name in node.inputs)
    steps = [
        _fenced(_step(node, graph, blocks, context), node, graph.tensors, readers) for node in nodes
    ]
    if context.amend is not None:
        steps = [
            _amended(step, node, context.amend) for step, node in zip(steps, nodes, strict=True)
        ]

    def run_graph(params: Params, state: State, *inputs: jax.Array):
        values = {name: params[key] for name, key in constants.items()}
        values.update(zip(graph.inputs, inputs, strict=True))
        run = _Run(params, state, values, {})
        if context.amend is not None:
            run.values.update({n: context.amend(params, n, values[n]) for n in graph.inputs})
        for step in steps:
            step(run)
        return run.state, run.flags, tuple(run.read(graph.outputs))

    return run_graph


def _constants(graph: Graph, prefix: str, params: Params) -> dict[str, str]:
    """Adds a graph's constants to the parameters; their keys by tensor name."""
    keys: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.outputs if node.op == "CONST" else ():
            key = prefix + name
            while key in params:  # a tensor of another graph, with a slash in its own name
                key += "'"
            tensor = graph.tensors[name]
            assert tensor.values is not None
            keys[name] = key
            params[key] = to_device(tensor.values, tensor.dtype)
    return keys


def _fenced(
    step: _Step, node: Node, tensors: Mapping[str, Tensor], readers: Mapping[str, int]
) -> _Step:
    """Has some outputs computed once, by themselves.

    A tensor that several nodes read is fenced, or XLA would compute it again for each of them,
    with all that it comes from. A float tensor is, so that each operator rounds its own result:
    XLA would fuse a product into the sum that follows, differently for different batches.
    """
    fenced = [n for n in node.outputs if readers[n] > 1 or tensors[n].dtype.is_float]
    scope = scope_name(node)

    def run_step(run: _Run) -> None:
        with jax.named_scope(scope):
            step(run)
        for name in fenced:
            run.values[name] = lax.optimization_barrier(run.values[name])

    return run_step


def _amended(step: _Step, node: Node, amend: Amend) -> _Step:
    def run_step(run: _Run) -> None:
        step(run)
        for name in node.outputs:
            run.values[name] = amend(run.params, name, run.values[name])

    return run_step


def _step(node: Node, graph: Graph, blocks: Mapping[str, Program], context: _Context) -> _Step:
    match node.op:
        case "COND_IF":
            return _cond_if(node, blocks, _FlagNames(context))
        case "WHILE_LOOP":
            return _while_loop(node, blocks, context)
        case "VARIABLE_READ":
            return _variable_read(node, graph.tensors[node.outputs[0]], context)
        case "VARIABLE_WRITE":
            return _variable_write(node, graph.tensors[node.inputs[0]], context)
        case "CUSTOM":
            return _custom(node, graph, context)
        case _:
            return _operator(node, graph.tensors, context)


# Operators that are functions of their inputs.


def _operator(node: Node, tensors: Mapping[str, Tensor], context: _Context) -> _Step:
    operator = spec.OPERATORS[node.op]
    static = dict(node.attributes)
    if operator.needs_out_type:
        static["out_type"] = tensors[node.outputs[0]].dtype
    names: list[str | tuple[str, ...]] = []
    fixed: dict[int, Any] = {}
    found = arguments(operator, node.inputs, Kind.INPUT)
    for position, argument in enumerate(operator.inputs):
        name = found[argument.name]
        if argument.form is Form.SHAPE:
            fixed[position] = _static_shape(node, tensors[name])
        elif context.prepare and argument.name in _PREPARED and _is_constant(tensors, name):
            fixed[position] = tensors[name].values
        else:
            names.append(name)
    kernel = _with_fixed(getattr(context.kernels, node.op.lower()), fixed, static)
    if context.prepare and operator.chapter in MOVING:
        kernel = _by_bits(kernel)
    require = RULES[node.op].require if context.report_unpredictable else None
    broken = _with_fixed(require, fixed, static) if require else None
    traced = context.traced.get(node.outputs[0], {})

    def step(run: _Run) -> None:
        inputs = [run.read(n) if isinstance(n, tuple) else run.values[n] for n in names]
        attributes = {name: run.params[key] for name, key in traced.items()}
        _store(run, node, kernel(*inputs, **attributes))
        if broken is not None:
            label = node.op.lower()
            found = broken(*inputs).items()
            run.flags.update({(node.title, f"{label}.{rule}"): flag for rule, flag in found})

    return step


def _by_bits(kernel: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Moves bfloat16 as integers.

    An element that XLA:CPU reads once and writes more than once is in a register meanwhile, and
    x86 instructions for bfloat16 make zero of a subnormal there, in some shapes and not in others.
    """

    def to_bits(x: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x

    def move(*inputs: Any) -> jax.Array:
        bits = kernel(*jax.tree.map(to_bits, inputs))
        if bits.dtype != jnp.uint16:
            return bits
        # Without the barrier XLA would write bfloat16 in the loop that moves.
        return lax.bitcast_convert_type(lax.optimization_barrier(bits), jnp.bfloat16)

    return move


def _store(run: _Run, node: Node, result: Any) -> None:
    results = result if isinstance(result, tuple) else (result,)
    run.values.update(zip(node.outputs, results, strict=True))


def _static_shape(node: Node, tensor: Tensor) -> tuple[int, ...]:
    if tensor.values is None:
        raise UnsupportedError(f"{node.title}: shape {tensor.name!r} is not constant")
    return tuple(int(v) for v in tensor.values)


def _is_constant(tensors: Mapping[str, Tensor], name: str | tuple[str, ...]) -> bool:
    return isinstance(name, str) and tensors[name].values is not None


def _with_fixed(
    kernel: Callable[..., Any], fixed: Mapping[int, Any], static: Mapping[str, Any]
) -> Callable[..., Any]:
    """Fixes attributes, and some of the positional arguments, by position."""
    if not fixed:
        return functools.partial(kernel, **static)

    def call(*traced: Any, **attributes: Any) -> Any:
        rest = iter(traced)
        count = len(traced) + len(fixed)
        operands = (fixed[i] if i in fixed else next(rest) for i in range(count))
        return kernel(*operands, **{**static, **attributes})

    return call


# Operators of the user.


def _custom(node: Node, graph: Graph, context: _Context) -> _Step:
    domain, name = (node.attributes[key] for key in ("domain_name", "operator_name"))
    function = context.custom_ops.get((domain, name))
    if function is None:
        known = ", ".join(map(str, context.custom_ops)) or "none"
        raise UnsupportedError(
            f"{node.title}: custom_ops has no {(domain, name)}, expected a function of the "
            f"node's inputs (it has {known})"
        )
    attributes = node.attributes["implementation_attrs"]
    wanted = [graph.tensors[n] for n in node.outputs]

    def step(run: _Run) -> None:
        result = function(*run.read(node.inputs), implementation_attrs=attributes)
        results = result if isinstance(result, tuple) else (result,)
        _check_results(node, wanted, results)
        _store(run, node, results)

    return step


def _check_results(node: Node, wanted: Sequence[Tensor], results: Sequence[jax.Array]) -> None:
    found = [(tuple(r.shape), r.dtype) for r in results]
    if found != [(t.shape, t.dtype.storage) for t in wanted]:
        given = ", ".join(f"{r.dtype}[{','.join(map(str, r.shape))}]" for r in results)
        expected = ", ".join(f"{t.name} {t}" for t in wanted)
        raise ValueError(f"{node.title}: the function returned {given}, expected {expected}")


# Control flow. Graphs pass on the state and the flags beside their tensors.


def _cond_if(node: Node, blocks: Mapping[str, Program], flag_names: _FlagNames) -> _Step:
    names = [node.attributes[key] for key in ("then_graph", "else_graph")]

    def step(run: _Run) -> None:
        condition, *inputs = run.read(node.inputs)
        graphs = [functools.partial(blocks[name], run.params) for name in names]
        nothing = flag_names.lowered(graphs, run.state, *inputs)
        then_graph, else_graph = (_with_flags(graph, nothing) for graph in graphs)
        run.state, flags, outputs = ops.cond_if(
            condition, (run.state, *inputs), then_graph=then_graph, else_graph=else_graph
        )
        _store(run, node, outputs)
        _report(run, node, flags)

    return step


def _while_loop(node: Node, blocks: Mapping[str, Program], context: _Context) -> _Step:
    cond_name, body_name = (node.attributes[key] for key in ("cond_graph", "body_graph"))
    flag_names = _FlagNames(context)

    def step(run: _Run) -> None:
        cond_graph, body_graph = (
            functools.partial(blocks[name], run.params) for name in (cond_name, body_name)
        )
        inputs = tuple(run.read(node.inputs))
        nothing = flag_names.lowered((cond_graph, body_graph), run.state, *inputs)

        # cond_graph may write variables and break rules like any other, so it runs where its
        # effects can be passed on: before the loop, and at the end of each turn.
        def judge(state: State, flags: Flags, values: tuple[jax.Array, ...]):
            state, found, (condition,) = cond_graph(state, *values)
            return condition, state, _either(flags, found), values

        def turn(_: jax.Array, state: State, flags: Flags, values: tuple[jax.Array, ...]):
            state, found, values = body_graph(state, *values)
            return judge(state, _either(flags, found), values)

        _, run.state, flags, outputs = context.kernels.while_loop(
            judge(run.state, nothing, inputs),
            cond_graph=lambda condition, *_: condition,
            body_graph=turn,
        )
        _store(run, node, outputs)
        _report(run, node, flags)

    return step


class _FlagNames:
    """The flags that the graphs of a node may raise, found as the node runs for the first time."""

    def __init__(self, context: _Context) -> None:
        self._names: set[tuple[str, str]] | None = None if context.report_unpredictable else set()

    def lowered(self, graphs: Sequence[Callable[..., Any]], *args: Any) -> Flags:
        """All of them, none raised."""
        if self._names is None:
            self._names = {name for graph in graphs for name in jax.eval_shape(graph, *args)[1]}
        return {name: jnp.asarray(False) for name in self._names}


def _with_flags(graph: Callable[..., Any], nothing: Flags) -> Callable[..., Any]:
    def run_graph(state: State, *inputs: jax.Array):
        state, flags, outputs = graph(state, *inputs)
        return state, _either(nothing, flags), outputs

    return run_graph


def _either(flags: Flags, found: Flags) -> Flags:
    return flags | {name: flags[name] | flag for name, flag in found.items()}


def _report(run: _Run, node: Node, flags: Flags) -> None:
    for (inner, rule), flag in flags.items():
        run.flags[f"{node.title} > {inner}", rule] = flag


# Variables.


def _variable_read(node: Node, tensor: Tensor, context: _Context) -> _Step:
    name = _checked_variable(node, tensor, context)

    def step(run: _Run) -> None:
        _store(run, node, run.state[name].value)
        if context.report_unpredictable:
            run.flags[node.title, "variable_read.r2"] = ~run.state[name].written

    return step


def _variable_write(node: Node, tensor: Tensor, context: _Context) -> _Step:
    name = _checked_variable(node, tensor, context)

    def step(run: _Run) -> None:
        (value,) = run.read(node.inputs)
        run.state = {**run.state, name: Variable(value, jnp.asarray(True))}

    return step


def _checked_variable(node: Node, tensor: Tensor, context: _Context) -> str:
    """The variable's name.

    Raises:
      UnsupportedError: it is not declared once, with the shape and type of the tensor.
    """
    name = node.attributes["name"]
    declared = context.variables.get(name, ())
    if [(t.shape, t.dtype) for t in declared] != [(tensor.shape, tensor.dtype)]:
        found = ", ".join(map(str, declared)) or "nothing"
        raise UnsupportedError(
            f"{node.title}: variable {name!r} is declared as {found}, expected once as {tensor}; "
            "the specification leaves the result open"
        )
    return name
