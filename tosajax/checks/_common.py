"""Rules that several operators share.

Each `*_errors` function yields a problem for each violation. Rule labels omit the operator, which
the call adds. An output whose shape is still None breaks no rule. Level limits are numbered l1, l2,
... in the order in which the operator lists them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tosajax.checks.call import Call, Problem
from tosajax.spec import Level

Shapes = tuple[tuple[int, ...], ...]

# Axes of the output's spatial dimensions, from the end, as 2D operators have no OD.
_OUTPUT = {"OD": -4, "OH": -3, "OW": -2}


def list_value(c: Call, name: str) -> tuple[int, ...]:
    """The elements of a shape_t input.

    Raises:
      ValueError: the elements are known only when the graph runs.
    """
    value = getattr(c, name)
    if not isinstance(value, tuple):
        raise ValueError(f"{name} is not known before the graph runs")
    return value


def lists_known(c: Call, *names: str) -> bool:
    """Whether the elements of shape_t inputs are known before the graph runs."""
    return all(isinstance(getattr(c, name), tuple) for name in names)


def output_errors(c: Call, rule: str, wanted: tuple[int, ...]) -> Iterator[Problem]:
    """Checks that the output has the shape `wanted`."""
    if c.output.shape not in (None, wanted):
        yield c.problem(rule, f"output has shape {c.output.shape}, expected {wanted}")


def rank_errors(c: Call, rule: str) -> Iterator[Problem]:
    """Checks that the output has the rank of input1."""
    if c.output.shape is None:
        return
    rank, wanted = len(c.output.shape), len(c.input1.shape)
    if rank != wanted:
        yield c.problem(rule, f"output has rank {rank}, expected {wanted}, the rank of input1")


def size_errors(c: Call, rule: str) -> Iterator[Problem]:
    """Checks that the output has as many elements as input1."""
    if c.output.shape is None:
        return
    size, wanted = math.prod(c.output.shape), math.prod(c.input1.shape)
    if size != wanted:
        yield c.problem(rule, f"output has {size} elements, expected {wanted}, those of input1")


def length_errors(c: Call, rule: str, name: str, wanted: int) -> Iterator[Problem]:
    """Checks that a list argument has `wanted` elements."""
    length = len(getattr(c, name))
    if length != wanted:
        yield c.problem(rule, f"{name} has {length} elements, expected {wanted}")


def minimum_errors(c: Call, rule: str, name: str, minimum: int) -> Iterator[Problem]:
    """Checks that every element of a list argument is at least `minimum`."""
    numbers = getattr(c, name)
    if min(numbers, default=minimum) < minimum:
        yield c.problem(rule, f"{name} is {numbers}, expected values of at least {minimum}")


def axis_errors(c: Call, rule: str, rank: int) -> Iterator[Problem]:
    """Checks that the axis is in [0, rank)."""
    if not 0 <= c.axis < rank:
        yield c.problem(rule, f"axis is {c.axis}, expected 0 to {rank - 1} for rank {rank}")


def input_shape(c: Call) -> Shapes:
    """The output shape: the shape of `input`."""
    return (c.input.shape,)


def input1_shape(c: Call) -> Shapes:
    """The output shape: the shape of `input1`."""
    return (c.input1.shape,)


def constant_shape(c: Call) -> Shapes:
    """The output shape of a constant: the shape of its values.

    Raises:
      ValueError: the output has no values.
    """
    if not c.known("output"):
        raise ValueError("output has no values")
    return (c.output.values.shape,)


def broadcast_shape(c: Call) -> Shapes:
    """The shape that all operands broadcast to: equal ranks, dimensions equal or 1.

    Raises:
      ValueError: the operands do not broadcast.
    """
    # Operands with numeric dimensions, such as MUL's shift [1], do not broadcast.
    names = [a.name for a in c.operator.inputs if a.dims is None]
    shape = getattr(c, names[0]).shape
    for name in names[1:]:
        other = getattr(c, name).shape
        if len(other) != len(shape):
            raise ValueError(f"{name} has rank {len(other)}, expected {len(shape)}")
        if any(a != b and 1 not in (a, b) for a, b in zip(shape, other, strict=True)):
            raise ValueError(f"{name} has shape {other}, expected one that broadcasts with {shape}")
        shape = tuple(b if a == 1 else a for a, b in zip(shape, other, strict=True))
    return (shape,)


def broadcast_errors(c: Call) -> Iterator[Problem]:
    """Checks that the operands broadcast, and that the output has the broadcast shape."""
    try:
        (wanted,) = broadcast_shape(c)
    except ValueError as error:
        yield c.problem("e1", str(error))
    else:
        yield from output_errors(c, "e1", wanted)


def window_size(span: int, stride: int) -> int:
    """The number of positions of a window that moves over `span` elements in steps of `stride`.

    Raises:
      ValueError: the stride is not positive.
    """
    if stride < 1:
        raise ValueError(f"stride is {stride}, expected at least 1")
    return span // stride + 1


def window_errors(
    c: Call, rule: str, name: str, span: int, step: str, stride: int
) -> Iterator[Problem]:
    """Checks that `stride` divides `span`, and that the output has one element per position.

    Args:
      c: the call.
      rule: the rule's label.
      name: the output's dimension: OD, OH or OW.
      span: elements from the first window position to the last.
      step: the stride's name in the specification.
      stride: elements, at least 1.
    """
    wanted = span // stride + 1
    size = wanted if c.output.shape is None else c.output.shape[_OUTPUT[name]]
    if span < 0:
        yield c.problem(rule, f"output has {name} {size}, the input is too small by {-span} for 1")
    elif span % stride:
        yield c.problem(rule, f"{step} is {stride}, expected a divisor of {span} to fill {name}")
    elif size != wanted:
        yield c.problem(rule, f"output has {name} {size}, expected {wanted}")


def limits(c: Call, level: Level, *limited: tuple[str, int, str]) -> Iterator[Problem]:
    """Checks that each value of `limited`, (name, value, field of `level`), is within its limit."""
    for number, (name, size, bound) in enumerate(limited, 1):
        most = getattr(level, bound)
        if size > most:
            yield c.problem(f"l{number}", f"{name} is {size}, expected at most {most} ({bound})")


def list_limits(c: Call, level: Level) -> Iterator[Problem]:
    """Checks that lists of input and output tensors are no longer than the level allows."""
    lists = ("input_list", "output_list")
    return limits(
        c,
        level,
        *((f"{name}'s length", len(getattr(c, name)), "MAX_TENSOR_LIST_SIZE") for name in lists),
    )
