"""Findings about a node with open dimensions that hold for every size of those dimensions.

A comparison with an open dimension may be true or false. The rules run once for each combination of
outcomes; a finding that all runs yield is certain. Combinations that no sizes can produce also run,
so some certain findings are missed, but no false ones are reported.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tosajax.checks import RULES, Call, Surroundings
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Node, Tensor
from tosajax.report import Finding

_MOST_RUNS = 256
_STRICT = (operator.lt, operator.ge)
# The shape_t inputs in which -1 is an open dimension.
_OPEN_LISTS = (("RESHAPE", "shape"), ("SLICE", "size"))


class Outcomes:
    """The outcomes of comparisons in one run: first `given`, then the likely outcome of each."""

    def __init__(self, given: tuple[bool, ...] = ()) -> None:
        self.given = given
        self.taken: list[bool] = []

    def next(self, likely: bool) -> bool:
        at = len(self.taken)
        self.taken.append(self.given[at] if at < len(self.given) else likely)
        return self.taken[-1]


class Size:
    """An open dimension, or the unknown result of arithmetic on open dimensions.

    `least` is 1 for a dimension and None for a result. The likely outcome of == and != is False.
    """

    def __init__(self, outcomes: Outcomes, least: int | None = None) -> None:
        self._outcomes = outcomes
        self._least = least

    def _made(self, *_: Any) -> Size:
        return Size(self._outcomes)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _made
    bit_count = _made
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __abs__ = _made

    def _compared(self, compare: Callable[[Any, Any], bool], other: Any, likely: bool) -> bool:
        if self._least is not None and isinstance(other, int):
            beyond = other - (compare in _STRICT)  # < n and >= n equal <= n - 1 and > n - 1
            if beyond < self._least:
                return compare(self._least, other)
        return self._outcomes.next(likely)

    def __lt__(self, other: Any) -> bool:
        return self._compared(operator.lt, other, False)

    def __ge__(self, other: Any) -> bool:
        return self._compared(operator.ge, other, True)

    def __le__(self, other: Any) -> bool:
        return self._compared(operator.le, other, True)

    def __gt__(self, other: Any) -> bool:
        return self._compared(operator.gt, other, False)

    def __eq__(self, other: object) -> bool:
        return self._compared(operator.eq, other, False)

    def __ne__(self, other: object) -> bool:
        return self._compared(operator.ne, other, False)

    def __bool__(self) -> bool:
        return self._least is not None or self._outcomes.next(False)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "?"


class OpenCall(Call):
    """A call whose constant shapes have a `Size` for each open dimension."""

    def __init__(self, node: Any, tensors: Any, around: Surroundings, outcomes: Outcomes) -> None:
        super().__init__(node, tensors, around)
        for op, name in _OPEN_LISTS:
            if node.op == op and isinstance(self._values[name], tuple):
                dims = self._values[name]
                self._values[name] = tuple(Size(outcomes) if d == DYNAMIC else d for d in dims)


def opened(tensor: Tensor, outcomes: Outcomes) -> Tensor:
    """Returns the tensor with a `Size` for each open dimension."""
    if tensor.shape is None or tensor.dtype is DType.SHAPE or DYNAMIC not in tensor.shape:
        return tensor
    shape = tuple(Size(outcomes, 1) if dim == DYNAMIC else dim for dim in tensor.shape)
    return dataclasses.replace(tensor, shape=shape)  # pyright: ignore[reportArgumentType]


def output_shapes(
    node: Node, tensors: Mapping[str, Tensor], around: Surroundings
) -> tuple[tuple[int, ...], ...]:
    """The output shapes that follow from those of the inputs, open where they need an open one.

    Args:
      node: of an operator with a rule of shapes.
      tensors: its inputs and outputs.
      around: its surroundings.

    Raises:
      Exception: of any kind, from a rule that met what it does not expect.
    """
    rule = RULES[node.op].shape
    assert rule is not None
    outcomes = Outcomes()  # a rule of shapes compares sizes only to see whether they are legal
    names = (*node.inputs, *node.outputs)
    open_tensors = {name: opened(tensors[name], outcomes) for name in names}
    shapes = rule(OpenCall(node, open_tensors, around, outcomes))
    return tuple(
        tuple(DYNAMIC if isinstance(dim, Size) else dim for dim in shape) for shape in shapes
    )


def certain(check: Callable[[Outcomes], Iterable[Finding]]) -> list[Finding]:
    """Returns the findings of a check whose labels occur in every run.

    A label's message is the one that all runs yield, or else the first run's. The list is empty if
    there are more than `_MOST_RUNS` combinations of outcomes.
    """
    first: list[Finding] = []
    labels: set[str] = set()
    same: list[Finding] = []
    waiting = [Outcomes()]
    for number in range(_MOST_RUNS):
        run = waiting.pop()
        findings = _until_stuck(check, run)
        if number == 0:
            first = same = findings
            labels = {finding.label for finding in findings}
        labels &= {finding.label for finding in findings}
        same = [finding for finding in same if finding in findings]
        if not labels:
            return []
        for at in range(len(run.given), len(run.taken)):
            waiting.append(Outcomes((*run.taken[:at], not run.taken[at])))
        if not waiting:
            exact = {finding.label for finding in same}
            others = {f.label: f for f in reversed(first) if f.label in labels - exact}
            return [f for f in first if f in same or others.get(f.label) is f]
    return []


def _until_stuck(check: Callable[[Outcomes], Iterable[Finding]], run: Outcomes) -> list[Finding]:
    """The findings of one run, up to the point where the check needs the number itself."""
    findings: list[Finding] = []
    try:
        for finding in check(run):
            findings.append(finding)
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        pass
    return findings
