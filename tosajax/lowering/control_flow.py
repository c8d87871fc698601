"""Steps of COND_IF and WHILE_LOOP, which pass state and flags through their graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tosajax import ops
from tosajax.graph import Node
from tosajax.lowering.run import Context, Flags, GraphFunction, Run, Step, store
from tosajax.lowering.variables import State


def cond_if_step(node: Node, blocks: Mapping[str, GraphFunction], flag_names: FlagNames) -> Step:
    names = [node.attributes[key] for key in ("then_graph", "else_graph")]

    def step(run: Run) -> None:
        condition, *inputs = run.read(node.inputs)
        graphs = [_with_params(run, blocks[name]) for name in names]
        nothing = flag_names.lowered(graphs, run.state, *inputs)
        then_graph, else_graph = (_with_flags(graph, nothing) for graph in graphs)
        run.state, flags, outputs = ops.cond_if(
            condition, (run.state, *inputs), then_graph=then_graph, else_graph=else_graph
        )
        store(run, node, outputs)
        _report(run, node, flags)

    return step


def while_loop_step(
    node: Node, blocks: Mapping[str, GraphFunction], context: Context, turns: int | None
) -> Step:
    names = [node.attributes[key] for key in ("cond_graph", "body_graph")]
    flag_names = FlagNames(context)
    options = {} if turns is None else {"turns": turns}

    def step(run: Run) -> None:
        cond_graph, body_graph = (_with_params(run, blocks[name]) for name in names)
        inputs = tuple(run.read(node.inputs))
        nothing = flag_names.lowered((cond_graph, body_graph), run.state, *inputs)

        # cond_graph may write variables and break rules, so it runs where state and flags pass
        # on: before the loop, and at the end of each turn.
        def judge(state: State, flags: Flags, values: tuple[jax.Array, ...]):
            state, new_flags, (condition,) = cond_graph(state, *values)
            return condition, state, _merged_flags(flags, new_flags), values

        def turn(_: jax.Array, state: State, flags: Flags, values: tuple[jax.Array, ...]):
            state, new_flags, values = body_graph(state, *values)
            return judge(state, _merged_flags(flags, new_flags), values)

        _, run.state, flags, outputs = context.kernels.while_loop(
            judge(run.state, nothing, inputs),
            cond_graph=lambda condition, *_: condition,
            body_graph=turn,
            **options,
        )
        store(run, node, outputs)
        _report(run, node, flags)

    return step


class FlagNames:
    """The flags that the subgraphs of a node may raise; found when the node first runs."""

    def __init__(self, context: Context) -> None:
        self._names: set[tuple[str, str]] | None = None if context.report_unpredictable else set()

    def lowered(self, graphs: Sequence[Callable[..., Any]], *args: Any) -> Flags:
        """All flags of the graphs, set to false."""
        if self._names is None:
            self._names = {name for graph in graphs for name in jax.eval_shape(graph, *args)[1]}
        return {name: jnp.asarray(False) for name in self._names}


def _with_params(run: Run, block: GraphFunction) -> GraphFunction:
    return functools.partial(block, run.params, amend=run.amend, watch=run.watch)


def _with_flags(graph: Callable[..., Any], nothing: Flags) -> Callable[..., Any]:
    def run_graph(state: State, *inputs: jax.Array):
        state, flags, outputs = graph(state, *inputs)
        return state, _merged_flags(nothing, flags), outputs

    return run_graph


def _merged_flags(flags: Flags, others: Flags) -> Flags:
    return flags | {name: flags[name] | flag for name, flag in others.items()}


def _report(run: Run, node: Node, flags: Flags) -> None:
    for (inner, rule), flag in flags.items():
        run.flags[f"{node.title} > {inner}", rule] = flag
