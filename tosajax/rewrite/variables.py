"""Variables as inputs and outputs, so that a graph is a pure function; and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.edit import Draft, unused
from tosajax.report import UnsupportedError

_TYPES = [
    dtype
    for row in spec.OPERATORS["VARIABLE"].types
    if isinstance(dtype := row.types["in_t"], DType)
]


class WithoutVariables(NamedTuple):
    """A graph whose variables are inputs and outputs.

    Args:
      graph: its inputs are those of the other graph, then one for each variable; its outputs those
        of the other, then the value of each variable after the run.
      states: the output with the next value of each such input.
      initial: the initial values of these inputs, where the variables have some.

    Example:
      >>> import tosajax
      >>> from tosajax import rewrite
      >>> b = tosajax.Builder()
      >>> b.variable("count", tosajax.DType.INT32, (1,), initial_value=[3])
      >>> count = b.read("count", tosajax.DType.INT32, (1,))
      >>> rewrite.variables_to_states(b.graph([count])).initial
      {'count': array([3], dtype=int32)}
    """

    graph: Graph
    states: dict[str, str]
    initial: dict[str, np.ndarray]


def variables_to_states(graph: Graph) -> WithoutVariables:
    """The graph with an input and an output in place of each variable.

    VARIABLE_READ is IDENTITY of the input, or of what the last VARIABLE_WRITE before it writes.

    Args:
      graph: a legal graph.

    Raises:
      UnsupportedError: a variable is accessed inside of a loop or a branch.

    Example:
      >>> import tosajax
      >>> from tosajax import rewrite
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT32, (1,))
      >>> b.variable("count", tosajax.DType.INT32, (1,))
      >>> total = b.op("ADD", x, b.read("count", tosajax.DType.INT32, (1,)), name="total")
      >>> b.write("count", total)
      >>> pure, states, _ = rewrite.variables_to_states(b.graph([total]))
      >>> pure.inputs, pure.outputs
      (('x', 'count'), ('total', 'count/next'))
      >>> states
      {'count': 'count/next'}
    """
    _check_outer(graph)
    draft = Draft(graph)
    declared = [t for t in graph.tensors.values() if t.variable is not None]
    inputs = {t.variable: draft.tensor(str(t.variable), t.dtype, t.shape) for t in declared}
    current = dict(inputs)
    for node in graph.ordered_nodes():
        if node.op == "VARIABLE_READ":
            source = current[node.attributes["name"]]
            draft.nodes.append(Node("IDENTITY", (source,), node.outputs, location=node.location))
        elif node.op == "VARIABLE_WRITE":
            (current[node.attributes["name"]],) = node.inputs
        elif node.op != "VARIABLE":
            draft.nodes.append(node)
    outputs = {t.variable: draft.tensor(f"{t.variable}/next", t.dtype, t.shape) for t in declared}
    for name, output in outputs.items():
        draft.nodes.append(Node("IDENTITY", (current[name],), (output,)))
    stateless = dataclasses.replace(
        graph,
        inputs=(*graph.inputs, *inputs.values()),
        outputs=(*graph.outputs, *outputs.values()),
        tensors={n: t for n, t in draft.tensors.items() if t.variable is None},
        nodes=tuple(draft.nodes),
    )
    states = {inputs[name]: output for name, output in outputs.items()}
    initial = {inputs[t.variable]: np.asarray(t.values) for t in declared if t.values is not None}
    return WithoutVariables(stateless, states, initial)


def states_to_variables(
    graph: Graph,
    states: Mapping[str, str],
    initial: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """The graph with a variable in place of each input and output of a state.

    Args:
      graph: a legal graph.
      states: the output with the next value of each input that becomes a variable of its name.
      initial: initial values of the variables, as they are stored.

    Raises:
      UnsupportedError: TOSA has no variable of a state's type.
      ValueError: a name is of no input or output.

    Example:
      >>> import tosajax
      >>> from tosajax import rewrite
      >>> b = tosajax.Builder()
      >>> x, h = (b.input(name, tosajax.DType.FP32, (1,)) for name in "xh")
      >>> graph = b.graph([b.op("ADD", x, h, name="y")])
      >>> rewrite.states_to_variables(graph, {"h": "y"})
      Graph('main', (x: FP32[1]) -> (), 4 nodes)
    """
    for kind, names, own in (
        ("an input", states.keys(), graph.inputs),
        ("an output", states.values(), graph.outputs),
    ):
        for name in names:
            if name not in own:
                raise ValueError(
                    f"states has {name!r}, which is not {kind} of graph {graph.name!r}"
                )
    tensors, before = dict(graph.tensors), []
    for state in states:
        own, values = tensors[state], (initial or {}).get(state)
        if own.dtype not in _TYPES:
            raise UnsupportedError(
                f"state {state!r} is {own.dtype.name}, and variables are "
                f"{', '.join(dtype.name for dtype in _TYPES)}"
            )
        name = unused(f"{state}/variable", tensors)
        tensors[name] = Tensor(name, own.dtype, own.shape, values, state)
        attributes = {"name": state, "var_shape": own.shape, "type": spec.VarType.of(own.dtype)}
        before.append(Node("VARIABLE", (), (name,), attributes))
        before.append(Node("VARIABLE_READ", (), (state,), {"name": state}))
    after = [Node("VARIABLE_WRITE", (states[s],), (), {"name": s}) for s in states]
    following = set(states.values())
    return dataclasses.replace(
        graph,
        inputs=tuple(name for name in graph.inputs if name not in states),
        outputs=tuple(name for name in graph.outputs if name not in following),
        tensors=tensors,
        nodes=(*before, *graph.ordered_nodes(), *after),
    )


def _check_outer(graph: Graph) -> None:
    for part in graph.walk():
        for node in part.nodes if part is not graph else ():
            if node.op.startswith("VARIABLE"):
                raise UnsupportedError(
                    f"{node.title}: a variable inside of a loop or a branch, expected all in the "
                    "main graph"
                )
