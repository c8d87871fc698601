"""Detects functions in training mode: constant random bits, statistics over the batch.

A graph is a pure function of its inputs, so a dropout mask that is drawn from a constant key is the
same in every run of the graph; and a batch norm in training mode makes the outputs of one example
depend on the rest of the batch. Both are found by analysing the jaxpr, without running it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jax.extend import core

from tosajax.from_jax.callees import callee, closed
from tosajax.from_jax.places import Place, place_of
from tosajax.from_jax.tracing import Traced

# The primitives that draw random bits from a key.
_DRAWS = {"random_bits", "threefry2x32", "rng_bit_generator", "random_gamma"}
# The primitives that compute the divisor of a normalization.
_ROOTS = {"rsqrt", "sqrt", "pow"}
_EVAL = "export it in evaluation mode: model.eval(), train=False, or deterministic=True"


@dataclasses.dataclass(frozen=True)
class _Flow:
    """The dependencies of a value.

    Args:
      axis: the axis of the examples of a batch; None if they are not along one axis.
      is_given: whether the value depends on an argument.
      drawn: the places that draw random bits which depend on no argument.
      mixed: the places that combine examples.
      normalized: the places in `mixed` whose result went into a root, as in a standard deviation.
      is_batch: whether the axis of the examples was the batch axis of a convolution.
    """

    axis: int | None = None
    is_given: bool = False
    drawn: frozenset[Place] = frozenset()
    mixed: frozenset[Place] = frozenset()
    normalized: frozenset[Place] = frozenset()
    is_batch: bool = False

    def joined(self, other: _Flow) -> _Flow:
        """The flow of a value computed from two values; its axis is None."""
        return _Flow(
            None,
            self.is_given or other.is_given,
            self.drawn | other.drawn,
            self.mixed | other.mixed,
            self.normalized | other.normalized,
            self.is_batch or other.is_batch,
        )


_NOTHING = _Flow()


def signs(tracing: Traced, *, is_batch: bool) -> Iterator[str]:
    """Yields a sentence for each sign that the function is in training mode.

    Examples are along the first dimension of the first input, and of all inputs whose first
    dimension has the same size. If that dimension is certainly a batch (`is_batch`, or a
    convolution uses it as its batch), any sum, maximum, product or sort along it combines examples.
    Else it may be a sequence, and only a normalization along it counts.

    Args:
      tracing: the traced function.
      is_batch: whether the user declared the first dimension a batch.
    """
    avals = tracing.jaxpr.in_avals
    inputs = avals[len(tracing.params) :]
    batch = inputs[0].shape[0] if inputs and inputs[0].ndim > 1 else None
    flows = [_NOTHING for _ in tracing.params] + [
        _Flow(0 if a.ndim and a.shape[0] == batch else None, is_given=True) for a in inputs
    ]
    results = _results(tracing.jaxpr, flows, Place())
    drawn = frozenset[Place]().union(*(result.drawn for result in results))
    if drawn:
        yield (
            f"random bits that depend on no argument are constants of the graph, the same in every "
            f"run: {_listed(drawn)}; {_EVAL}, or make the key an argument"
        )
    mixed = {
        name: result.mixed if is_batch or result.is_batch else result.normalized
        for name, result in zip(tracing.outputs, results, strict=True)
        if result.axis is not None
    }
    if places := frozenset[Place]().union(*mixed.values()):
        names = ", ".join(repr(name) for name, of in mixed.items() if of)
        yield (
            f"each example of {names} depends on the others of its batch, which are combined in "
            f"{_listed(places)}; if that is a batch norm, {_EVAL}"
        )


def _listed(places: frozenset[Place]) -> str:
    """The first four places, as text."""
    texts = sorted({_place_text(place) for place in places})
    more = f" and {len(texts) - 4} more" if len(texts) > 4 else ""
    return ", ".join(texts[:4]) + more


def _place_text(place: Place) -> str:
    line = str(place.line) if place.line else ""
    return f"{place.layers} ({line})" if place.layers and line else place.layers or line or "fn"


def _results(jaxpr: core.ClosedJaxpr, flows: Sequence[_Flow], outer: Place) -> list[_Flow]:
    """The flows of a jaxpr's results, given the flows of its arguments."""
    env: dict[Any, _Flow] = dict(zip(jaxpr.jaxpr.invars, flows, strict=True))
    env.update((var, _NOTHING) for var in jaxpr.jaxpr.constvars)

    def read(atom: Any) -> _Flow:
        return _NOTHING if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        env.update(zip(eqn.outvars, _of(eqn, operands, outer), strict=True))
    return [read(atom) for atom in jaxpr.jaxpr.outvars]


def _of(eqn: Any, operands: list[_Flow], outer: Place) -> list[_Flow]:
    name, place = eqn.primitive.name, place_of(eqn).inside(outer)
    inner = callee(name, eqn.params)
    if inner is not None:
        return _results(inner, operands, place)
    match name:
        case "scan":
            return _scan_flows(eqn, operands, place)
        case "while":
            return _while_flows(eqn, operands, place)
        case "cond":
            return _cond_flows(eqn, operands, place)
    return _computed(eqn, operands, place)


def _scan_flows(eqn: Any, operands: list[_Flow], place: Place) -> list[_Flow]:
    consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
    body, xs = closed(eqn.params["jaxpr"]), operands[consts + carry :]
    # An iteration takes a slice along the first axis.
    inside = [dataclasses.replace(x, axis=_without_first_axis(x.axis)) for x in xs]

    def turn(carried: list[_Flow]) -> list[_Flow]:
        return _results(body, [*operands[:consts], *carried, *inside], place)

    carried = _fixed_point(operands[consts : consts + carry], lambda c: turn(c)[:carry])
    outs = turn(carried)[carry:]
    stacked = [dataclasses.replace(y, axis=None if y.axis is None else y.axis + 1) for y in outs]
    return [*carried, *stacked]


def _while_flows(eqn: Any, operands: list[_Flow], place: Place) -> list[_Flow]:
    of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    consts, body = operands[of_cond : of_cond + of_body], closed(eqn.params["body_jaxpr"])
    start = operands[of_cond + of_body :]
    return _fixed_point(start, lambda c: _results(body, [*consts, *c], place))


def _cond_flows(eqn: Any, operands: list[_Flow], place: Place) -> list[_Flow]:
    index, *inputs = operands
    branches = [_results(closed(b), inputs, place) for b in eqn.params["branches"]]
    return [
        dataclasses.replace(functools.reduce(_Flow.joined, of, index), axis=_common_axis(of))
        for of in zip(*branches, strict=True)
    ]


def _fixed_point(flows: Sequence[_Flow], turn: Callable[[list[_Flow]], list[_Flow]]) -> list[_Flow]:
    """The flows of a loop's state after any number of iterations (the fixed point of `turn`)."""
    state = list(flows)
    while True:
        after = [
            dataclasses.replace(a.joined(b), axis=_common_axis((a, b)))
            for a, b in zip(state, turn(state), strict=True)
        ]
        if after == state:
            return state
        state = after


def _computed(eqn: Any, operands: Sequence[_Flow], place: Place) -> list[_Flow]:
    """The flows of the results of a primitive that calls no function."""
    name = eqn.primitive.name
    flow = functools.reduce(_Flow.joined, operands, _NOTHING)
    if name in _DRAWS and not flow.is_given:
        flow = dataclasses.replace(flow, drawn=flow.drawn | {place})
    if name in _ROOTS:
        statistics = (x.mixed for x in operands if x.axis is None)
        flow = dataclasses.replace(flow, normalized=flow.normalized.union(*statistics))
    return [_with_axis(eqn, operands, flow, place, var.aval.shape) for var in eqn.outvars]


def _with_axis(
    eqn: Any, operands: Sequence[_Flow], flow: _Flow, place: Place, shape: Sequence[int]
) -> _Flow:
    """The flow of a result, with the axis of its examples and the places that combine them."""
    combined, axes = False, set[int]()
    is_convolved = eqn.primitive.name == "conv_general_dilated" and operands[0].axis is not None
    for number, (operand, atom) in enumerate(zip(operands, eqn.invars, strict=True)):
        if operand.axis is None:
            continue
        is_combined, axis = _moved(eqn, number, operand.axis, atom.aval.shape, shape)
        combined |= is_combined
        if axis is not None:
            axes.add(axis)
    # With examples along two axes, each element depends on a pair of examples.
    mixed = flow.mixed | {place} if combined or len(axes) > 1 else flow.mixed
    is_batch = flow.is_batch or (is_convolved and bool(axes))
    return dataclasses.replace(flow, axis=min(axes, default=None), mixed=mixed, is_batch=is_batch)


def _moved(
    eqn: Any, number: int, axis: int, before: Sequence[int], after: Sequence[int]
) -> tuple[bool, int | None]:
    """Whether an equation combines the examples of an operand, and their axis in the result.

    Args:
      eqn: the equation.
      number: the index of the operand.
      axis: the axis of the examples in the operand.
      before: the shape of the operand.
      after: the shape of the result.
    """
    name, params = eqn.primitive.name, eqn.params
    if name.startswith(("reduce_", "arg")) and "axes" in params:
        axes = params["axes"]
        # A reduction over all of a single example, such as the peak of a recording.
        is_whole = before[axis] == 1 and len(axes) == len(before)
        if axis in axes:
            return not is_whole, None
        return False, axis - sum(a < axis for a in axes)
    match name:
        case "dot_general":
            return _multiplied(params, number, axis, eqn)
        case "conv_general_dilated":
            numbers = params["dimension_numbers"]
            is_examples = number == 0 and numbers.lhs_spec[0] == axis
            return False, numbers.out_spec[0] if is_examples else None
        case "transpose":
            return False, list(params["permutation"]).index(axis)
        case "broadcast_in_dim":
            return False, params["broadcast_dimensions"][axis]
        case "squeeze":
            axes = params["dimensions"]
            return False, None if axis in axes else axis - sum(a < axis for a in axes)
        case "reshape":
            return False, _reshaped(axis, before, after)
        case "sort":
            return params["dimension"] % len(before) == axis, axis
        case "cumsum" | "cumprod" | "cummax" | "cummin" | "cumlogsumexp":
            return params["axis"] % len(before) == axis, axis
        case "reduce_window_sum" | "reduce_window_max" | "reduce_window_min" | "reduce_window":
            return params["window_dimensions"][axis] > 1, axis
    # Elementwise, or a move along other axes.
    is_kept = len(after) == len(before) and after[axis] == before[axis]
    return False, axis if is_kept else None


def _multiplied(
    params: Mapping[str, Any], number: int, axis: int, eqn: Any
) -> tuple[bool, int | None]:
    """`_moved` for dot_general."""
    contracted, batches = params["dimension_numbers"]
    if axis in contracted[number]:
        return True, None
    if axis in batches[number]:
        return False, list(batches[number]).index(axis)
    taken = {*contracted[number], *batches[number]}
    place = len(batches[0]) + sum(a not in taken for a in range(axis))
    if number == 1:
        place += eqn.invars[0].aval.ndim - len(contracted[0]) - len(batches[0])
    return False, place


def _reshaped(axis: int, before: Sequence[int], after: Sequence[int]) -> int | None:
    """The axis of the result of a reshape that corresponds to an axis of its operand, if any."""
    ahead = math.prod(before[:axis])
    places = [
        at
        for at, size in enumerate(after)
        if size == before[axis] and math.prod(after[:at]) == ahead
    ]
    return places[0] if places else None


def _without_first_axis(axis: int | None) -> int | None:
    """The number of an axis after the first axis is removed; None if it is the first."""
    return None if axis is None or axis == 0 else axis - 1


def _common_axis(flows: Sequence[_Flow]) -> int | None:
    """The axis that all flows share; None if they differ."""
    axes = {flow.axis for flow in flows}
    return axes.pop() if len(axes) == 1 else None
