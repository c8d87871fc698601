"""How far two programs may be apart, by default as far as the specification lets operators be.

TOSA bounds the error of single operators, not that of networks: how far errors grow depends on the
network. A float tensor may be off here, relative to its largest magnitude, by what the operators
on the longest way to it may be together, in either program:

    |a - b| <= 2 * max|b| * (the sum of relative bounds, in ulp of the tensors' types)

So no operator is taken to make the errors of its operands larger, relative to the largest value,
nor to add those of several. Networks that cancel much, or divide by what is nearly 0, can be
beyond that and right: `min_sqnr` is for them. What follows a decision that an error may turn
(FLOOR, a comparison, a cast to integers) has no bound, nor what follows control flow, variables
and CUSTOM: it has to be equal. Integers have to be.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import NamedTuple

from tosajax import spec
from tosajax.checks import Call
from tosajax.compare.measure import Measured, Side
from tosajax.compliance import rule_of
from tosajax.compliance.formats import fraction_bits
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node

_UNBOUNDED = {"COND_IF", "WHILE_LOOP", "CUSTOM", "VARIABLE_READ"}
_TURNING = {"CEIL", "FLOOR"}
# Bounds that depend on the input, by the largest that has a finite result: |x| of EXP ends at 89,
# and other functions have reached their ends there. SIN and COS are taken up to pi. In ulp; the
# formulas are those of `compliance.bounds`.
_EXP = 3 + 2 * 89
_HALF = 2.0**11.5  # SIN and COS have half of the fraction bits of fp32
_BY_INPUT = {
    "COS": (1 + math.pi) * _HALF,
    "EXP": _EXP,
    "LOG": 5,
    "POW": 5.5 * 89 + _EXP,
    "SIGMOID": 2 * (1 + 89),
    "SIN": 2 * math.pi * _HALF,
    "TANH": 4 * _EXP,
    "RESIZE": 0.006 * 2**23,
}


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """What counts as near enough.

    Args:
      atol_lsb: steps that integers may differ by, those that are compared as real numbers as well.
      min_sqnr: dB; tensors with as much are near enough, whatever their type. Of floats, it
        stands in place of the specification's bounds. None for those.
      floats: whether floats may differ at all.

    Raises:
      ValueError: a number is negative or NaN.
    """

    atol_lsb: float = 0
    min_sqnr: float | None = None
    floats: bool = True

    def __post_init__(self) -> None:
        if not self.atol_lsb >= 0:
            raise ValueError(f"atol_lsb is {self.atol_lsb}, expected 0 or more")
        if self.min_sqnr is not None and math.isnan(self.min_sqnr):
            raise ValueError("min_sqnr is NaN, expected dB")


EXACT = Tolerance(floats=False)


class Allowed(NamedTuple):
    """How far one tensor may be off.

    Args:
      error: the largest |a - b|, in its units: LSB of integers, else real.
      sqnr: or the smallest SQNR in dB; infinite where only the error counts.
    """

    error: float = 0.0
    sqnr: float = math.inf

    def holds(self, measured: Measured) -> bool:
        """Whether a tensor is near enough."""
        if not measured.mismatches or measured.sqnr >= self.sqnr:
            return True
        return measured.max_error <= self.error and math.isfinite(measured.max_error)


EQUAL = Allowed()


def allowed(
    tolerance: Tolerance, sides: tuple[Side, Side], budget: float, measured: Measured
) -> Allowed:
    """How far a tensor may be off.

    Args:
      tolerance: of all.
      sides: what is known of its two arrays.
      budget: the relative error that operators may have made; see `budgets`.
      measured: how the arrays differ.
    """
    sqnr = math.inf if tolerance.min_sqnr is None else tolerance.min_sqnr
    scales = [side.scale or 1.0 for side in sides if not side.dtype.is_float]
    if scales:
        return Allowed(tolerance.atol_lsb * max(scales), sqnr)
    if not tolerance.floats:
        return Allowed()
    if tolerance.min_sqnr is not None or not math.isfinite(budget):
        return Allowed(0.0, sqnr)
    coarse = max(_ulp(side.dtype) for side in sides)
    rounded = coarse if sides[0].dtype is not sides[1].dtype else 0.0
    return Allowed((2 * budget + rounded) * measured.peak, sqnr)


def budgets(graph: Graph, given: Collection[str] = ()) -> dict[str, float]:
    """The relative error that operators may make on the longest way to each tensor.

    Args:
      graph: legal, dimensions known; its subgraphs are not looked at.
      given: tensors that count as exact for what reads them.

    Returns:
      By name; infinite where there is no bound. Inputs and constants have none, of 0.
    """
    found: dict[str, float] = {}
    for node in graph.ordered_nodes():
        before = max((0.0 if n in given else found.get(n, 0.0) for n in node.inputs), default=0.0)
        is_float = all(graph.tensors[name].dtype.is_float for name in node.outputs)
        if node.op in _UNBOUNDED or (before and (node.op in _TURNING or not is_float)):
            before = math.inf
        own = _relative(node, graph) if is_float and node.op not in _UNBOUNDED else 0.0
        found |= dict.fromkeys(node.outputs, before + own)
    return found


def _relative(node: Node, graph: Graph) -> float:
    """The bound of one operator of float results, relative to the largest one."""
    if node.op in spec.CONSTANT_OPERATORS or not node.outputs:
        return 0.0
    dtype = graph.tensors[node.outputs[0]].dtype
    rule = rule_of(node.op)
    match rule.name:
        case "EXACT":
            ulps = 0.0
        case "ULP":
            ulps = 2 * rule.ulps if node.op == "CAST" else rule.ulps  # it may round towards zero
        case "REDUCE_PRODUCT":
            ulps = 0.5 * _terms(Call(node, graph.tensors))
        case "DOT_PRODUCT":
            ulps = _roundings(Call(node, graph.tensors), dtype)
        case _:
            ulps = _BY_INPUT[node.op]
    return ulps * _ulp(dtype)


def _ulp(dtype: DType) -> float:
    return 2.0 ** -fraction_bits(dtype)


def _roundings(call: Call, dtype: DType) -> float:
    """KSB of "Dot product accuracy requirements": with a bias, and by the accumulator's bits."""
    acc = call.node.attributes.get("acc_type", dtype)
    finer = 2.0 ** ((fraction_bits(acc) - fraction_bits(dtype)) / 2)
    return math.ceil(_terms(call) / finer) + 1


def _terms(call: Call) -> int:
    """KS, the number of products or terms that each element is the sum of."""
    match call.node.op:
        case "CONV2D" | "CONV3D" | "TRANSPOSE_CONV2D":
            return math.prod(call.weight.shape[1:])
        case "DEPTHWISE_CONV2D":
            return math.prod(call.weight.shape[:2])
        case "MATMUL":
            return call.a.shape[2]
        case "AVG_POOL2D":
            return math.prod(call.kernel)
        case "FFT2D" | "RFFT2D":
            return 2 * math.prod(call.input_real.shape[1:])
        case _:
            return call.input.shape[call.axis]
