"""Checks zero points at run time: an error if their values are known, a flag if they are traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tosajax.checks.zero_points import OpenZeroPoint, check_zero_points
from tosajax.fixedpoint import _x64
from tosajax.graph import Tensor
from tosajax.lowering.run import Context, Run


def judge_zero_points(zero_points: Sequence[OpenZeroPoint], run: Run, context: Context) -> None:
    """Checks the zero points of a node by their values in a run.

    Raises:
      TosaError: a known value breaks a rule; values are known if the graph is not traced.
    """
    values = {z.tensor: run.values[z.tensor] for z in zero_points}
    check_at_hand(zero_points, values)
    for zero_point in zero_points if context.report_unpredictable else ():
        value, name = values[zero_point.tensor], (zero_point.node, zero_point.label)
        with _x64.scope_of(value.dtype):
            broken = jnp.any(zero_point.rule.is_broken(value, jnp))
        run.flags[name] = run.flags.get(name, False) | broken


def check_inputs(
    zero_points: Sequence[OpenZeroPoint], tensors: Sequence[Tensor], arrays: Sequence[Any]
) -> None:
    """Checks inputs that are zero points; the values of other inputs are not read.

    Args:
      zero_points: the zero points from `input_zero_points`.
      tensors: the graph's inputs.
      arrays: their values; some may be traced.

    Raises:
      TosaError: a value breaks a rule.
    """
    if zero_points:
        names = (t.name for t in tensors)
        check_at_hand(zero_points, dict(zip(names, arrays, strict=True)))


def check_at_hand(zero_points: Sequence[OpenZeroPoint], values: Mapping[str, Any]) -> None:
    """Raises TosaError if a zero point with a known value breaks a rule.

    Args:
      zero_points: the zero points. Other values are not read, as reading may wait for a device.
      values: values by tensor name; some may be traced.
    """
    names = {z.tensor for z in zero_points if _is_known(values[z.tensor])}
    check_zero_points(zero_points, {name: np.asarray(values[name]) for name in names})


def _is_known(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and not isinstance(value, Tracer)
