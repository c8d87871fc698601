"""The operators with gradients: kernels, estimators, and the rules in words."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from tosajax import ops, spec
from tosajax.dtypes import DType
from tosajax.grad._finite import finite
from tosajax.grad.estimators import Estimator, clipped_ste, zero
from tosajax.grad.shared import shared
from tosajax.grad.type_conversion import rescale_before_clamp


class _Rules(dict[str, str]):
    def __str__(self) -> str:
        return "\n".join(f"{name:24}{rule}" for name, rule in self.items())


def gradient_rules() -> dict[str, str]:
    """The gradient of every operator, in words; prints as a table.

    Example:
      >>> from tosajax import grad
      >>> rules = grad.gradient_rules()
      >>> rules["ADD"]
      'Linear'
    """
    return _Rules({name: _rule(name) for name in spec.OPERATORS if hasattr(ops, name.lower())})


def _rule(name: str) -> str:
    kernel = _kernel(name)
    if kernel is getattr(ops, name.lower()):
        operator = spec.OPERATORS[name]
        if operator.chapter == "control_flow":
            return "That of the graph it runs"
        if operator.is_singular:
            return "Natural; if `safe`, 0 where that is infinite or NaN"
        types = {DType(dtype) for row in operator.types for dtype in row.types.values()}
        return "Natural" if any(dtype.is_float for dtype in types) else "None: bool"
    return " ".join((inspect.getdoc(kernel) or "").split()).removesuffix(".")


def kernels(
    estimator: Estimator,
    overrides: Mapping[str, Estimator],
    *,
    safe: bool = False,
    max_trip_count: int | None = None,
) -> SimpleNamespace:
    """A function of QTensors and floats for each operator, by its name in lower case.

    Also the functions for results that a single node reads, see `lowering.build.build`. Calls with
    operands of the same types and shapes are traced once.

    Args:
      estimator: the derivative of rounding and saturation.
      overrides: other estimators, by operator.
      safe: whether infinite and NaN derivatives become 0.
      max_trip_count: the most turns of a loop that reverse mode can go back.

    Raises:
      ValueError: an override names an operator that does not exist or has no estimator.
    """
    by_name = {}
    for name, operator in spec.OPERATORS.items():
        if not hasattr(ops, name.lower()):
            continue
        kernel = _kernel(name)
        parameters = inspect.signature(kernel).parameters
        if "estimate" in parameters:
            own = parameters["estimate"].default
            # These keep the exact derivative, 0 almost everywhere, unless it is overridden.
            chosen = overrides.get(name, own if own is zero else estimator)
            kernel = functools.partial(kernel, estimate=chosen)
        elif name in overrides:
            raise ValueError(f"{name} has no estimator")
        elif safe and operator.is_singular:
            kernel = finite(kernel)
        elif "max_trip_count" in parameters:
            kernel = functools.partial(kernel, max_trip_count=max_trip_count)
        # Operands of control flow are functions, which belong to one program.
        is_shared = operator.chapter != "control_flow"
        by_name[name.lower()] = shared(kernel) if is_shared else kernel
    if overrides.get("RESCALE", estimator) is clipped_ste:
        by_name["rescale_before_clamp"] = shared(rescale_before_clamp)
    if unknown := set(overrides) - set(spec.OPERATORS):
        raise ValueError(f"no operators {', '.join(sorted(unknown))}")
    return SimpleNamespace(**by_name)


def _kernel(name: str) -> Callable[..., Any]:
    """The kernel of an operator in its chapter; operators of floats only use `tosajax.ops`."""
    own = getattr(ops, name.lower())
    chapter = spec.OPERATORS[name].chapter
    try:
        module = importlib.import_module(f"tosajax.grad.{chapter}")
    except ModuleNotFoundError:
        return own
    return getattr(module, name.lower(), own)
