"""Rules on the elements of tensor arguments, for constants and for traced values.

A rule on one argument is written once, for an array module `xp`: NumPy for constants and concrete
arrays, `jax.numpy` for traced ones. A rule on a result of several arguments, such as their sum, is
checked exactly, in NumPy's int64, if they are constants. Traced functions have no int64, so
`checks.require` detects the overflow of int32 instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.checks.call import Call, Problem
from tosajax.dtypes import DType


class ValueRule(NamedTuple):
    """A rule on the elements of one tensor argument.

    Args:
      rule: the label without the operator, such as "r1".
      name: the argument's name.
      is_broken: function of (values, xp) that returns a bool array, true where the rule is broken.
      wanted: the legal values in words.
      bits: dtype in which messages show the values, if it differs from their own.
    """

    rule: str
    name: str
    is_broken: Callable[[Any, Any], Any]
    wanted: str
    bits: np.dtype | None = None

    def message(self, values: np.ndarray) -> str | None:
        """Describes the first value that breaks the rule; None if no value does."""
        broken = np.asarray(self.is_broken(values, np))
        if not broken.any():
            return None
        at = tuple(int(i) for i in np.argwhere(broken)[0])
        value = (values if self.bits is None else values.view(self.bits))[at]
        place = f" at {list(at)}" if values.size > 1 else ""
        return f"{self.name} is {value}{place}, expected {self.wanted}"


def constant_problems(c: Call, rules: Iterable[ValueRule]) -> Iterator[Problem]:
    """Yields a problem for each rule that a constant of the call breaks."""
    for rule in rules:
        tensor = getattr(c, rule.name)
        message = None if tensor.values is None else rule.message(tensor.values)
        if message is not None:
            yield c.problem(rule.rule, message)


def derived_problems(
    c: Call,
    names: Sequence[str],
    derive: Callable[..., Iterable[tuple[ValueRule, np.ndarray]]],
) -> Iterator[Problem]:
    """Yields a problem for each rule that values computed from constants of the call break.

    Args:
      c: the call.
      names: the arguments of `derive`; unless all are constants, nothing is yielded.
      derive: function of the arguments' values that returns pairs of a rule and the values to
        check.
    """
    values = [getattr(c, name).values for name in names]
    if any(value is None for value in values):
        return
    try:
        derived = list(derive(*values))
    except ValueError:
        return  # the shapes do not broadcast, which another rule reports
    for rule, numbers in derived:
        message = rule.message(numbers)
        if message is not None:
            yield c.problem(rule.rule, message)


def exact(values: np.ndarray, *, unsigned: bool = False) -> np.ndarray:
    """Converts integers to int64, reading their bits as signed or unsigned."""
    return (values.view(f"u{values.dtype}") if unsigned else values).astype(np.int64)


def fits_int32(rule: str, name: str) -> ValueRule:
    """The rule that an exact result fits int32."""
    return in_range(rule, name, DType.INT32.minimum, DType.INT32.maximum)


def shifted(products: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Computes products / 2**shift in int64, rounding half up; `shift` is at least 1."""
    # Rounds after all but one bit of the shift: adding half a unit to the product might overflow.
    return ((products >> (shift - 1)) + 1) >> 1


def in_range(rule: str, name: str, low: int, high: int) -> ValueRule:
    """The rule that values are in [low, high]."""
    wanted = f"{low} to {high}" if low < high else f"{low}"
    return ValueRule(rule, name, lambda x, xp: (x < low) | (x > high), wanted)


def zero_point(c: Call, rule: str, name: str, *, unsigned: bool = False) -> Iterator[ValueRule]:
    """Yields the rule of a zero point, if its type has one."""
    value_rule = zero_point_rule(rule, name, getattr(c, name).dtype, unsigned=unsigned)
    if value_rule is not None:
        yield value_rule


def zero_point_rule(
    rule: str, name: str, dtype: DType, *, unsigned: bool = False
) -> ValueRule | None:
    """The rule of a zero point of type `dtype`; None if any value is legal.

    int8 allows any value; other types only 0: -0 for floats as well, and 32768 for uint16.
    """
    if unsigned and dtype is DType.INT16:
        wanted, uint16 = "0 or 32768 for uint16", np.dtype(np.uint16)
        return ValueRule(rule, name, _has_bits_below_the_first, wanted, uint16)
    if dtype.is_float:
        return ValueRule(rule, name, _has_bits_below_the_first, f"0 for {dtype.name}")
    if dtype is not DType.INT8:
        return ValueRule(rule, name, lambda x, xp: x != 0, f"0 for {dtype.name}")
    return None


def _has_bits_below_the_first(values: Any, xp: Any) -> Any:
    # Compares bits, because XLA may flush subnormals to 0 in float comparisons.
    return (values.view(f"int{8 * values.dtype.itemsize}") << 1) != 0
