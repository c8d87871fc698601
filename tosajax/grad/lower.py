"""Lowering for gradients: the exact integer graph as a function that can be differentiated."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import ops, spec
from tosajax.dtypes import DType
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.qtensor import QTensor
from tosajax.graph import Graph, declared_variables
from tosajax.lower import CustomOps, build
from tosajax.validate import validate
from tosajax.variables import State, Variable

# Of floats: their own derivative, 0, is the default.
_ROUNDING = ("CEIL", "FLOOR")


def lower(
    graph: Graph,
    *,
    estimator: Estimator = clipped_ste,
    overrides: Mapping[str, Estimator] | None = None,
    custom_ops: CustomOps | None = None,
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Turns a graph into `fn(params, *inputs) -> outputs`, with integers as QTensors.

    Integers are those that `tosajax.lower` gives, bit for bit. Derivatives are taken by the
    shadows of parameters and inputs, and of floats.

    Args:
      graph: legal, every dimension known. With variables, it becomes
        `fn(params, state, *inputs) -> (state, outputs)`.
      estimator: what stands for the derivative of rounding and saturation.
      overrides: other estimators, by operator ("RESCALE"); CEIL and FLOOR of floats have none but
        these.
      custom_ops: as for `tosajax.lower`; they are given QTensors.

    Returns:
      fn: pure. Inputs may be arrays or QTensors; outputs of integers are QTensors.
      params: the values of every CONST, by tensor name.

    Raises:
      TosaError: the graph is illegal.
      ValueError: an override is of no operator that rounds or saturates.
    """
    validate(graph).raise_errors()
    kernels = _kernels(estimator, overrides or {})
    program, params = build(graph, custom_ops=custom_ops, kernels=kernels)

    def fn(params: Mapping[str, Any], state: State, *inputs: Any) -> tuple[Any, Any]:
        known = {name: Variable(_wrap(v.value), v.written) for name, v in state.items()}
        wrapped = {name: _wrap(value) for name, value in params.items()}
        state, _, outputs = program(wrapped, known, *map(_wrap, inputs))
        return state, outputs

    def fn_without_state(params: Mapping[str, Any], *inputs: Any) -> Any:
        return fn(params, {}, *inputs)[1]

    chosen = fn if declared_variables(graph) else fn_without_state
    return chosen, {name: _wrap(value) for name, value in params.items()}


def gradient_rules() -> dict[str, str]:
    """What the gradient of every operator is, in words."""
    return {name: _rule(name) for name in spec.OPERATORS if hasattr(ops, name.lower())}


def _rule(name: str) -> str:
    kernel = _kernel(name)
    if kernel is getattr(ops, name.lower()):
        operator = spec.OPERATORS[name]
        if operator.chapter == "control_flow":
            return "That of the graphs it runs; a loop has a forward mode only"
        types = {DType(dtype) for row in operator.types for dtype in row.types.values()}
        return "Natural" if any(dtype.is_float for dtype in types) else "None: bool"
    return " ".join((inspect.getdoc(kernel) or "").split()).removesuffix(".")


def _kernels(estimator: Estimator, overrides: Mapping[str, Estimator]) -> SimpleNamespace:
    found = {}
    for name in spec.OPERATORS:
        if not hasattr(ops, name.lower()):
            continue
        kernel = _kernel(name)
        if "estimate" in inspect.signature(kernel).parameters:
            default = None if name in _ROUNDING else estimator
            chosen = overrides.get(name, default)
            kernel = functools.partial(kernel, estimate=chosen) if chosen else kernel
        elif name in overrides:
            raise ValueError(f"{name} neither rounds nor saturates: it has no estimator")
        found[name.lower()] = kernel
    if unknown := set(overrides) - set(spec.OPERATORS):
        raise ValueError(f"no operators {', '.join(sorted(unknown))}")
    return SimpleNamespace(**found)


def _kernel(name: str) -> Callable[..., Any]:
    """By chapter; operators of floats alone are natural."""
    own = getattr(ops, name.lower())
    chapter = spec.OPERATORS[name].chapter
    try:
        module = importlib.import_module(f"tosajax.grad.{chapter}")
    except ModuleNotFoundError:
        return own
    return getattr(module, name.lower(), own)


def _wrap(x: Any) -> Any:
    if isinstance(x, QTensor):
        return x
    if jnp.issubdtype(x.dtype, jnp.integer):
        return QTensor.of(x)
    return x if isinstance(x, jax.Array) else jnp.asarray(np.asarray(x))
