"""The verdict of a check: on each element, and on the whole result."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Whether a result complies, and its worst element; true when it complies.

    Args:
      passed: whether it complies.
      rule: name of the accuracy rule.
      index: of the element whose error is greatest for its bound, a wrong one if there are any;
        None where every element is right but a sum over all of them is not.
      found: the element, or the sum.
      wanted: in its place.
      bound: of its error; None where the rule has no number.
      message: all of this in words.
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
    """The verdict on each element: arrays of the shape of the result.

    Args:
      rule: name of the accuracy rule.
      right: bool.
      found: the result.
      wanted: the reference.
      bound: of the errors; None where the rule has no number.
    """

    rule: str
    right: np.ndarray
    found: np.ndarray
    wanted: np.ndarray
    bound: np.ndarray | None = None


def outcome(op: str, judgement: Judgement) -> Outcome:
    """The worst element, and a message about it."""
    rule, right, found, wanted, bound = judgement
    wrong = int(right.size - right.sum())
    index = _worst(judgement)
    at = tuple(int(i) for i in index)
    limit = None if bound is None else float(bound[at])
    values = found[at].item(), wanted[at].item()
    within = "" if limit is None else f" within {limit:.9g}"
    text = f"{op}: element {list(at)} is {values[0]!r}, expected {values[1]!r}{within}"
    if wrong:
        text += f", and {wrong} of {right.size} elements are wrong"
    return Outcome(not wrong, rule, at, *values, limit, f"{text} [{rule}]")


def _worst(judgement: Judgement) -> tuple[np.intp, ...]:
    _, right, found, wanted, bound = judgement
    with np.errstate(all="ignore"):
        error = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        ratio = error if bound is None else error / bound
    # NaN where both are infinite or the bound is 0, and where only one is NaN.
    ratio = np.where(np.isnan(ratio), np.where(right, 0.0, np.inf), ratio)
    candidates = right if right.all() else ~right
    return np.unravel_index(np.argmax(np.where(candidates, ratio, -1.0)), right.shape)
