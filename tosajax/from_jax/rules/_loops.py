"""Writes WHILE_LOOP, whose graphs can only read their inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value, of_tensor
from tosajax.graph import Tensor

# The condition or the body of a loop: takes a step, the loop-invariant values, and the state.
Part = Callable[[Step, Sequence[Value], Sequence[Value]], Sequence[Value]]


def while_loop(
    step: Step,
    fixed: Sequence[Value],
    state: Sequence[Value],
    *,
    condition: Part,
    body: Part,
    turns: str,
) -> list[Value]:
    """Writes a loop and returns the state after it.

    Args:
      step: the step of the loop.
      fixed: loop-invariant values that condition and body read; constants stay constants.
      state: the state before the first iteration.
      condition: returns one bool, whether there is another iteration.
      body: returns the state after an iteration.
      turns: the number of iterations in words, for the error on a target without loops.

    Raises:
      UnsupportedError: the target does not have WHILE_LOOP.
    """
    if not step.scope.has_control_flow:
        raise no_loop(step, turns)
    places, distinct = _distinct(fixed)
    values = [*distinct, *(of_tensor(step.tensor(value)) for value in state)]

    def parts(inner_values: Sequence[Value]) -> tuple[list[Value], Sequence[Value]]:
        return [inner_values[place] for place in places], inner_values[len(distinct) :]

    def write_condition(inner: Step, inner_values: Sequence[Value]) -> Sequence[Value]:
        return condition(inner, *parts(inner_values))

    def write_body(inner: Step, inner_values: Sequence[Value]) -> Sequence[Value]:
        same = [
            of_tensor(v.held) for v in inner_values[: len(distinct)] if isinstance(v.held, Tensor)
        ]
        return [*same, *body(inner, *parts(inner_values))]

    graphs = {
        "cond_graph": step.subgraph(f"{step.primitive}_cond", values, write_condition),
        "body_graph": step.subgraph(f"{step.primitive}_body", values, write_body),
    }
    tensors = [value.held for value in values if isinstance(value.held, Tensor)]
    dtypes = [tensor.dtype for tensor in tensors]
    outputs = step.scope.node("WHILE_LOOP", tensors, graphs, step.place, step.primitive, dtypes)
    return [of_tensor(tensor) for tensor in outputs[len(outputs) - len(state) :]]


def no_loop(step: Step, turns: str) -> Exception:
    """The error to raise if the target does not allow WHILE_LOOP."""
    target, most = step.scope.options.target, step.scope.options.max_unroll
    wanted = f"at most max_unroll, {most}, as a constant"
    if "EXT-CONTROLFLOW" not in target.extensions:
        lacks = f"{target} lacks EXT-CONTROLFLOW, as do Vela and VGF"
    else:
        lacks = f"{target} nests no more than {target.limits.MAX_NESTING} graphs (MAX_NESTING)"
    return step.unsupported(f"a loop of {turns}", wanted, f"{lacks}, so loops are unrolled")


def _distinct(values: Sequence[Value]) -> tuple[list[int], list[Value]]:
    """For each value its index among the distinct values, and the distinct values."""

    def key(value: Value) -> Hashable:
        return (value.held.name, value.shape) if isinstance(value.held, Tensor) else value

    distinct = {key(value): value for value in values}
    return [[*distinct].index(key(value)) for value in values], [*distinct.values()]
