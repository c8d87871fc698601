"""Rules that fold operators that compute shapes; all shapes are constants in the result.

In 0.80, ADD, CONCAT and others took tensors of shapes; 0.90 has separate operators for shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np

from tosajax.graph import DYNAMIC
from tosajax.io.pre_1_0.step import Step
from tosajax.report import FormatError, UnsupportedError

# The most elements of a shape.
_LONGEST = 64
_RENAMED = {"INTDIV": "DIV"}


def rule_name(op: str) -> str:
    """The name of the rule for an operator with a shape as output."""
    own = op == "DIM" or op.endswith("_SHAPE")
    return (op if own else f"{_RENAMED.get(op, op)}_SHAPE").lower()


def const_shape(step: Step) -> None:
    """Drops CONST_SHAPE, whose values are already known."""


def dim(step: Step) -> None:
    """Folds DIM, the size of a dimension."""
    shape, axis = step.shape(step.input(0)), step.get("axis")
    if not 0 <= axis < len(shape):
        raise FormatError(f"axis is {axis}, expected 0 to {len(shape) - 1}")
    if shape[axis] == DYNAMIC:
        raise UnsupportedError(f"{step.input(0)!r} has shape {shape}, of which {axis} is not known")
    _know(step, [shape[axis]], ())


def add_shape(step: Step) -> None:
    _fold(step, operator.add)


def sub_shape(step: Step) -> None:
    _fold(step, operator.sub)


def mul_shape(step: Step) -> None:
    _fold(step, operator.mul)


def div_shape(step: Step) -> None:
    """Folds DIV_SHAPE, rounding toward zero."""
    _fold(step, _quotient)


def concat_shape(step: Step) -> None:
    step.input(0)
    values = [int(n) for name in step.node.inputs for n in np.ravel(step.known(name))]
    _know(step, values, (len(values),))


def reverse_shape(step: Step) -> None:
    values = step.known(step.input(0))
    _know(step, values.ravel().tolist()[::-1], values.shape)


def _fold(step: Step, function: Callable[[int, int], int]) -> None:
    a, b = (step.known(step.input(position)) for position in (0, 1))
    if a.shape != b.shape:
        raise FormatError(f"shapes have shapes {a.shape} and {b.shape}, expected equal ones")
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    _know(step, [function(x, y) for x, y in pairs], a.shape)


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise UnsupportedError("a shape is divided by 0, which is undefined")
    return abs(a) // abs(b) * (1 if a * b >= 0 else -1)


def _know(step: Step, values: Sequence[int], shape: tuple[int, ...]) -> None:
    """Records the values of the output.

    Raises:
      UnsupportedError: there are too many values, or a value does not fit 64 bits.
    """
    if len(values) > _LONGEST:
        raise UnsupportedError(f"{len(values)} elements, expected at most {_LONGEST} of a shape")
    for value in values:
        if not -1 << 63 <= value < 1 << 63:
            raise UnsupportedError(f"{step.output!r} has {value}, beyond 64 bits")
    step.work.known[step.output] = np.asarray(values, np.int64).reshape(shape)
