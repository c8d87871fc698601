"""The verdict of a check: on each element, and on the whole result."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The verdict on a result, and its worst element; true if the result complies.

    Args:
      passed: whether the result complies.
      rule: the accuracy rule's name.
      index: the index of the element with the largest error relative to its bound, a wrong element
        if there are any; None if every element is right but a sum of errors is not.
      found: the element, or the sum.
      wanted: the expected value.
      bound: the bound of the error; None if the rule has no numeric bound.
      message: the outcome in words.
    """

    passed: bool
    rule: str
    index: tuple[int, ...] | None
    found: float | int
    wanted: float | int
    bound: float | None
    message: str

    def __bool__(self) -> bool:
        return self.passed


class Judgement(NamedTuple):
    """The verdict on each element, as arrays of the result's shape.

    Args:
      rule: the accuracy rule's name.
      right: bool, whether the element complies.
      found: the result.
      wanted: the reference.
      bound: the bounds of the errors; None if the rule has no numeric bound.
    """

    rule: str
    right: np.ndarray
    found: np.ndarray
    wanted: np.ndarray
    bound: np.ndarray | None = None


def outcome(op: str, judgement: Judgement) -> Outcome:
    """Makes the outcome of a judgement: the worst element and a message about it."""
    rule, right, result, wanted, bound = judgement
    wrong = int(right.size - right.sum())
    index = _worst(judgement)
    at = tuple(int(i) for i in index)
    limit = None if bound is None else float(bound[at])
    values = result[at].item(), wanted[at].item()
    within = "" if limit is None else f" within {limit:.9g}"
    text = f"{op}: element {list(at)} is {values[0]!r}, expected {values[1]!r}{within}"
    if wrong:
        text += f", and {wrong} of {right.size} elements are wrong"
    return Outcome(not wrong, rule, at, *values, limit, f"{text} [{rule}]")


def _worst(judgement: Judgement) -> tuple[np.intp, ...]:
    _, right, result, wanted, bound = judgement
    with np.errstate(all="ignore"):
        error = np.abs(result.astype(np.float64) - wanted.astype(np.float64))
        ratio = error if bound is None else error / bound
    # NaN ratios: both values are infinite, one of them is NaN, or error and bound are both 0.
    ratio = np.where(np.isnan(ratio), np.where(right, 0.0, np.inf), ratio)
    candidates = right if right.all() else ~right
    return np.unravel_index(np.argmax(np.where(candidates, ratio, -1.0)), right.shape)
