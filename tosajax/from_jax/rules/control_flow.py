"""Loops and branches ("Control Flow Operators", TOSA 1.0.1).

Conditions on constants are resolved during the export.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from tosajax.from_jax.callees import closed
from tosajax.from_jax.evaluation import known_results
from tosajax.from_jax.rules._loops import while_loop
from tosajax.from_jax.rules._scan import scan
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value, of_tensor
from tosajax.graph import Tensor


def cond(step: Step, index: Value, *operands: Value) -> list[Value]:
    """The branch, if the index is constant; else COND_IF, or SELECT if the target lacks it."""
    branches = [closed(branch) for branch in step.params["branches"]]
    if index.is_known:
        return step.jaxs(branches[int(index.scalar)], *operands)  # JAX has clamped the index.
    if not step.scope.has_control_flow:
        step.note("computes all branches and selects the results of one", "")
    reads = zip(*map(_is_read, branches), strict=True)
    read = [v if any(rs) else _placeholder(v) for v, rs in zip(operands, reads, strict=True)]
    return _branched(step, index, 0, branches, read)


def _is_read(branch: core.ClosedJaxpr) -> list[bool]:
    """Whether a branch reads each of its arguments."""
    read = {id(atom) for eqn in branch.jaxpr.eqns for atom in eqn.invars}
    read |= {id(atom) for atom in branch.jaxpr.outvars}
    return [id(var) in read for var in branch.jaxpr.invars]


def _placeholder(value: Value) -> Value:
    """A constant to replace a value that is not read."""
    return Value(value.shape, value.dtype, np.zeros((1,) * value.rank, value.dtype))


def _branched(
    step: Step,
    index: Value,
    first: int,
    branches: Sequence[core.ClosedJaxpr],
    operands: Sequence[Value],
) -> list[Value]:
    """The results of branch `index - first`, by bisection of the branches."""
    if len(branches) == 1:
        return step.jaxs(branches[0], *operands)
    half = len(branches) // 2
    if first == 0 and len(branches) == 2:
        is_later = step.cast(index, np.bool_)
    else:
        is_later = step.op("GREATER", index, step.like(first + half - 1, index))

    def earlier(step: Step, inner_values: Sequence[Value]) -> list[Value]:
        return _branched(step, inner_values[0], first, branches[:half], inner_values[1:])

    def later(step: Step, inner_values: Sequence[Value]) -> list[Value]:
        return _branched(step, inner_values[0], first + half, branches[half:], inner_values[1:])

    values = [index if len(branches) > 2 else _placeholder(index), *operands]
    if not step.scope.has_control_flow:
        pairs = zip(earlier(step, values), later(step, values), strict=True)
        return [step.jax(lax.select_n, is_later, *pair) for pair in pairs]
    graphs = {
        "then_graph": step.subgraph(f"{step.primitive}_then", values, later),
        "else_graph": step.subgraph(f"{step.primitive}_else", values, earlier),
    }
    tensors = [step.tensor(is_later), *(v.held for v in values if isinstance(v.held, Tensor))]
    dtypes = [step.tosa_type(aval.dtype) for aval in step.outs]
    outputs = step.scope.node("COND_IF", tensors, graphs, step.place, step.primitive, dtypes)
    return [of_tensor(tensor) for tensor in outputs]


class While(NamedTuple):
    """The operands of a while loop.

    Args:
      judge: the condition, whether there is another iteration; takes its constants and the state.
      turn: the body, the state after an iteration; takes its constants and the state.
      of_judge: the constants of the condition.
      of_turn: the constants of the body.
      state: the state before the first iteration.
    """

    judge: core.ClosedJaxpr
    turn: core.ClosedJaxpr
    of_judge: Sequence[Value]
    of_turn: Sequence[Value]
    state: Sequence[Value]


def while_(step: Step, *args: Value) -> list[Value]:
    """Unrolled if constants determine that iterations are few, else WHILE_LOOP."""
    judge, turn = (closed(step.params[name]) for name in ("cond_jaxpr", "body_jaxpr"))
    first = step.params["cond_nconsts"]
    second = first + step.params["body_nconsts"]
    parts = While(judge, turn, args[:first], args[first:second], args[second:])
    if judge.out_avals[0].shape:
        parts = _of_batch(parts)
    turns = _turns(parts, step.scope.options.max_unroll)
    return _looped(step, parts) if turns is None else _unrolled(step, parts, turns)


def _of_batch(parts: While) -> While:
    """The loop of a batch, in which an example does not change after its own last iteration."""
    judge, turn = core.jaxpr_as_fun(parts.judge), core.jaxpr_as_fun(parts.turn)
    first, count = len(parts.of_judge), len(parts.state)

    def of_any(*args: jax.Array) -> jax.Array:
        return jnp.any(judge(*args)[0])

    def of_each(*args: jax.Array) -> list[jax.Array]:
        of_judge, of_turn, state = args[:first], args[first:-count], args[-count:]
        (is_next,) = judge(*of_judge, *state)

        def chosen(old: jax.Array, new: jax.Array) -> jax.Array:
            is_new = lax.broadcast_in_dim(is_next, new.shape, range(is_next.ndim))
            return lax.select_n(is_new, old, new)

        return [*map(chosen, state, turn(*of_turn, *state))]

    of_turn = [*parts.of_judge, *parts.of_turn]
    judge_avals, turn_avals = (
        [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in (*constants, *parts.state)]
        for constants in (parts.of_judge, of_turn)
    )
    judged, turned = jax.make_jaxpr(of_any)(*judge_avals), jax.make_jaxpr(of_each)(*turn_avals)
    return While(judged, turned, parts.of_judge, of_turn, parts.state)


def _turns(parts: While, most: int) -> int | None:
    """The number of iterations, if it is at most `most` and only depends on constants, or None."""
    of_judge, of_turn, state = (
        [_elements(value) if value.is_known else None for value in values]
        for values in (parts.of_judge, parts.of_turn, parts.state)
    )
    for turns in range(most + 1):
        (is_next,) = known_results(parts.judge, [*of_judge, *state])
        if is_next is None:
            return None
        if not is_next:
            return turns
        state = known_results(parts.turn, [*of_turn, *state])
    return None


def _elements(value: Value) -> Any:
    """All elements of a constant, which may be random keys of JAX."""
    return value.held if value.held_shape == value.shape else value.elements


def _unrolled(step: Step, parts: While, turns: int) -> list[Value]:
    state = list(parts.state)
    for _ in range(turns):
        state = step.jaxs(parts.turn, *parts.of_turn, *state)
    return state


def _looped(step: Step, parts: While) -> list[Value]:
    first = len(parts.of_judge)

    def condition(step: Step, fixed: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        return step.jaxs(parts.judge, *fixed[:first], *state)

    def body(step: Step, fixed: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        return step.jaxs(parts.turn, *fixed[first:], *state)

    fixed, turns = [*parts.of_judge, *parts.of_turn], "turns that are not constant, or too many"
    return while_loop(step, fixed, parts.state, condition=condition, body=body, turns=turns)


RULES = {"cond": cond, "scan": scan, "while": while_}
