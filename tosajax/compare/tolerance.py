"""Tolerances of a comparison: by default, from the specification's error bounds of operators.

TOSA bounds the error of single operators, not of networks: the growth of errors depends on the
network. Here the bound of a float tensor, relative to its largest magnitude, is the sum of the
bounds of the operators on the longest path to it, in each program:

    |a - b| <= 2 * max|b| * (the sum of relative bounds)

This assumes that operators neither amplify the errors of their operands, relative to the largest
value, nor add up the errors of several operands. Correct networks with much cancellation, or
division by numbers near 0, can exceed the bound: `min_sqnr` is for them. There is no bound after a
decision that an error may flip (FLOOR, a comparison, a cast to integers), nor after control flow,
variables and CUSTOM: tensors there have to be equal, and so do integers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.compare.measure import Measured, Side
from tosajax.compliance import bounds, rule_of
from tosajax.compliance.formats import fraction_bits
from tosajax.compliance.terms import roundings, terms_of
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, arguments
from tosajax.spec import Kind

_STEPS = {"CEIL", "FLOOR"}  # they can turn a small error into 1
# The input at which to evaluate a bound that grows with the input. For operators not listed, the
# input at which EXP overflows: beyond it, functions of EXP have reached their limits.
_INPUTS = {"COS": math.pi, "SIN": math.pi, "RESIZE": 1.0}


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """The largest accepted differences between tensors.

    Args:
      atol_lsb: the steps that integers may differ by, also if they are compared as real numbers.
      min_sqnr: the SQNR in dB that suffices for a tensor of any type; for floats it replaces the
        specification's bounds. None for these bounds.
      floats: whether floats may differ at all.

    Raises:
      ValueError: a number is negative or NaN.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax.compare import Tolerance, compare
      >>> graphs = []
      >>> for high in (100, 99):
      ...     b = tosajax.Builder()
      ...     x = b.input("x", tosajax.DType.INT8, (1, 4))
      ...     y = b.op("CLAMP", x, min_val=np.int8(0), max_val=np.int8(high), name="y")
      ...     graphs.append(b.graph([y]))
      >>> x = np.int8([[1, 99, 100, 101]])
      >>> bool(compare(*graphs, x)), bool(compare(*graphs, x, tolerance=Tolerance(atol_lsb=1)))
      (False, True)
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
    """The tolerance for one tensor: it suffices to meet either limit.

    Args:
      error: the largest |a - b|, in LSB for integers, else in real units.
      sqnr: the smallest SQNR in dB; infinite if only the error counts.
    """

    error: float = 0.0
    sqnr: float = math.inf

    def holds(self, measured: Measured) -> bool:
        """Whether a measured tensor is equal or meets a limit."""
        if not measured.mismatches or measured.sqnr >= self.sqnr:
            return True
        return measured.max_error <= self.error and math.isfinite(measured.max_error)


EQUAL = Allowed()


def allowed(
    tolerance: Tolerance, sides: tuple[Side, Side], budget: float, measured: Measured
) -> Allowed:
    """The tolerance for one tensor.

    Args:
      tolerance: the tolerance for all tensors.
      sides: the interpretation of its two arrays.
      budget: the relative error allowed to the operators before the tensor; see `budgets`.
      measured: the measured difference of the arrays.
    """
    sqnr = math.inf if tolerance.min_sqnr is None else tolerance.min_sqnr
    scales = [float(np.max(side.scale or 1.0)) for side in sides if not side.dtype.is_float]
    if len(scales) == 1:  # integers against floats: errors are in steps
        return Allowed(tolerance.atol_lsb, sqnr)
    if scales:
        return Allowed(tolerance.atol_lsb * max(scales), sqnr)
    if not tolerance.floats:
        return Allowed()
    if tolerance.min_sqnr is not None or not math.isfinite(budget):
        return Allowed(0.0, sqnr)
    coarse = max(_ulp(side.dtype) for side in sides)
    rounded = coarse if sides[0].dtype is not sides[1].dtype else 0.0
    return Allowed((2 * budget + rounded) * measured.peak, sqnr)


def budgets(graph: Graph, exact: Collection[str] = ()) -> dict[str, float]:
    """The relative error allowed to the operators on the longest path to each tensor.

    Args:
      graph: a legal graph, dimensions known; its subgraphs are ignored.
      exact: tensors that are exact for the nodes that read them.

    Returns:
      Relative errors by tensor name: 0 for constants, infinite without a bound. Inputs have no
      entry.
    """
    sums: dict[str, float] = {}
    for node in graph.ordered_nodes():
        before = max((0.0 if n in exact else sums.get(n, 0.0) for n in node.inputs), default=0.0)
        is_float = all(graph.tensors[name].dtype.is_float for name in node.outputs)
        is_function = spec.OPERATORS[node.op].is_function
        if not is_function or (before and (node.op in _STEPS or not is_float)):
            before = math.inf
        own = _relative(node, graph) if is_float and is_function else 0.0
        sums |= dict.fromkeys(node.outputs, before + own)
    return sums


def _relative(node: Node, graph: Graph) -> float:
    """The error bound of one operator with float outputs, relative to the largest output."""
    if node.op in spec.CONSTANT_OPERATORS:
        return 0.0
    dtype = graph.tensors[node.outputs[0]].dtype
    rule = rule_of(node.op)
    match rule.name:
        case "EXACT":
            return 0.0
        case "ULP":
            ulps = 2 * rule.ulps if node.op == "CAST" else rule.ulps  # CAST may truncate
            return ulps * _ulp(dtype)
        case "DOT_PRODUCT":
            acc_dtype = node.attributes.get("acc_type", dtype)
            return roundings(_terms(node, graph), acc_dtype, dtype, biased=True) * _ulp(dtype)
        case "REDUCE_PRODUCT":
            return float(bounds.reduce_product(dtype, np.ones(()), _terms(node, graph)))
        case _:
            return _by_input(node.op, dtype)


def _by_input(op: str, dtype: DType) -> float:
    """The error bound for an output of 1, at a large input."""
    end_of_exp = math.ceil(math.log(float(jnp.finfo(dtype.storage).max)))
    inputs = [np.float64(_INPUTS.get(op, end_of_exp))]
    if op == "POW":
        inputs.insert(0, np.float64(math.e))
    return float(getattr(bounds, op.lower())(dtype, np.ones(()), *inputs))


def _terms(node: Node, graph: Graph) -> int:
    names = arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT)
    shapes = {argument: graph.tensors[name].shape or () for argument, name in names.items()}
    return terms_of(node.op, shapes, node.attributes.get("kernel"), node.attributes.get("axis"))


def _ulp(dtype: DType) -> float:
    return 2.0 ** -fraction_bits(dtype)
