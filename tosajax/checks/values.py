"""Rules on the elements of tensor arguments, for constants and for values of a run.

A rule on one argument is written once, with the functions of an array module `xp`: NumPy judges
constants and arrays at hand, `jax.numpy` the values of a traced function. A rule on what several
arguments give, such as their sum, is on exact numbers for constants, in NumPy's int64. Traced
functions have no such type: `checks.require` finds there that int32 was too narrow.
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
      rule: its label without the operator, "r1".
      name: of the argument.
      is_broken: of (values, xp), the elements that break it; booleans.
      wanted: the legal values in words.
      bits: type in which messages show the values, where it is not their own.
    """

    rule: str
    name: str
    is_broken: Callable[[Any, Any], Any]
    wanted: str
    bits: np.dtype | None = None

    def message(self, values: np.ndarray) -> str | None:
        """The first value that breaks the rule, and what was wanted; None where none does."""
        broken = np.asarray(self.is_broken(values, np))
        if not broken.any():
            return None
        at = tuple(int(i) for i in np.argwhere(broken)[0])
        found = (values if self.bits is None else values.view(self.bits))[at]
        place = f" at {list(at)}" if values.size > 1 else ""
        return f"{self.name} is {found}{place}, expected {self.wanted}"


def constant_problems(c: Call, rules: Iterable[ValueRule]) -> Iterator[Problem]:
    """The rules that constants of a call break."""
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
    """The rules that values derived from constants of a call break.

    Args:
      c: the call.
      names: of the arguments that they are derived from; nothing is known unless all are constants.
      derive: gives rules, and the values that they are on, from the values of the arguments.
    """
    values = [getattr(c, name).values for name in names]
    if any(value is None for value in values):
        return
    try:
        derived = list(derive(*values))
    except ValueError:
        return  # the shapes do not fit each other, which is an error of another rule
    for rule, found in derived:
        message = rule.message(found)
        if message is not None:
            yield c.problem(rule.rule, message)


def exact(values: np.ndarray, *, unsigned: bool = False) -> np.ndarray:
    """Integers in int64, their bits read as signed or unsigned."""
    return (values.view(f"u{values.dtype}") if unsigned else values).astype(np.int64)


def fits_int32(rule: str, name: str) -> ValueRule:
    """An exact result fits int32."""
    return in_range(rule, name, DType.INT32.minimum, DType.INT32.maximum)


def shifted(products: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Exact products / 2**shift in int64, rounding half up; `shift` is at least 1."""
    # Half a unit is added in the last place that is kept, as it might not fit beside a product.
    return ((products >> (shift - 1)) + 1) >> 1


def in_range(rule: str, name: str, low: int, high: int) -> ValueRule:
    """Values are from `low` to `high`."""
    wanted = f"{low} to {high}" if low < high else f"{low}"
    return ValueRule(rule, name, lambda x, xp: (x < low) | (x > high), wanted)


def zero_point(c: Call, rule: str, name: str, *, unsigned: bool = False) -> Iterator[ValueRule]:
    """The rule of a zero point, where its type has one."""
    known = zero_point_rule(rule, name, getattr(c, name).dtype, unsigned=unsigned)
    if known is not None:
        yield known


def zero_point_rule(
    rule: str, name: str, dtype: DType, *, unsigned: bool = False
) -> ValueRule | None:
    """The rule of a zero point of this type; None where any value is legal.

    One other than 0 needs int8; a float may be -0, and a uint16 the middle of its range.
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
    # By its bits: XLA may take a subnormal for 0 where it compares floats.
    return (values.view(f"int{8 * values.dtype.itemsize}") << 1) != 0
