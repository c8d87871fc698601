"""Lowering for gradients: the exact integer graph as a function that can be differentiated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.block_scaled import BlockScaled
from tosajax.fixedpoint import _x64
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.kernels import kernels
from tosajax.grad.qtensor import QTensor, payload
from tosajax.graph import Graph, declared_variables
from tosajax.lowering.build import build
from tosajax.lowering.inputs import checked_inputs, forms_of
from tosajax.lowering.run import CustomOps
from tosajax.lowering.variables import State, Variable
from tosajax.validation import validate


def differentiable(
    graph: Graph,
    *,
    estimator: Estimator = clipped_ste,
    overrides: Mapping[str, Estimator] | None = None,
    safe: bool = False,
    max_trip_count: int | None = None,
    custom_ops: CustomOps | None = None,
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Turns a graph into `fn(params, *inputs) -> outputs`, with integers as QTensors.

    Integers equal the integers of `tosajax.lower`, bit for bit. Derivatives are with respect to
    floats and to the shadows of parameters and inputs.

    Args:
      graph: legal, every dimension known. With variables, it becomes
        `fn(params, state, *inputs) -> (state, outputs)`.
      estimator: the surrogate derivative of rounding and saturation.
      overrides: other estimators, by operator ("RESCALE"). CEIL, FLOOR and LOGICAL_LEFT_SHIFT use
        an estimator only if it is given here.
      safe: whether infinite and NaN derivatives of LOG, POW, RECIPROCAL and RSQRT become 0.
      max_trip_count: the most turns of a WHILE_LOOP that reverse mode can go back; it takes memory
        for all of them. Outputs do not depend on it; derivatives of a loop with more turns are NaN.
        None: loops have forward mode only.
      custom_ops: as for `tosajax.lower`; the functions get QTensors.

    Returns:
      fn: a pure function. Inputs may be arrays or QTensors; integer outputs are QTensors.
      params: the values of every CONST, by tensor name; integers as QTensors.

    Raises:
      TosaError: the graph is illegal.
      UnsupportedError: as for `tosajax.lower`.
      ValueError: the operator of an override takes no estimator.
      TypeError, ValueError: when fn is called or traced, an argument is of another type or shape.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.FP32, (3,))
      >>> fn, params = tosajax.differentiable(b.graph([b.op("CAST", x, dtype=tosajax.DType.INT8)]))
      >>> x = jnp.float32([-1000, 0.6, 1])
      >>> fn(params, x)[0].q.tolist()
      [-128, 1, 1]
      >>> jax.grad(lambda x: fn(params, x)[0].shadow.sum())(x).tolist()
      [0.0, 1.0, 1.0]
    """
    validate(graph).raise_errors()
    chosen = kernels(estimator, overrides or {}, safe=safe, max_trip_count=max_trip_count)
    program, params = build(graph, custom_ops=custom_ops, kernels=chosen)
    forms = forms_of(params)

    def fn(params: Mapping[str, Any], state: State, *inputs: Any) -> tuple[Any, Any]:
        exact = jax.tree.map(_exact, (params, state, inputs), is_leaf=_is_q)
        arrays = checked_inputs(graph, forms, *exact)
        variables = {name: Variable(_wrap(v.value), v.written) for name, v in state.items()}
        wrapped = {name: _wrap(value) for name, value in params.items()}
        pairs = zip(inputs, arrays, strict=True)
        operands = (x if isinstance(x, QTensor) else _wrap(array) for x, array in pairs)
        state, _, outputs = program(wrapped, variables, *operands)
        return state, outputs

    def fn_without_state(params: Mapping[str, Any], *inputs: Any) -> Any:
        return fn(params, {}, *inputs)[1]

    wrapped = {name: _wrap(value) for name, value in params.items()}
    return (fn if declared_variables(graph) else fn_without_state), wrapped


def _is_q(x: Any) -> bool:
    return isinstance(x, QTensor)


def _exact(x: Any) -> Any:
    """The integers of a QTensor, whose shadow must have the same shape; other values unchanged."""
    if isinstance(x, QTensor) and x.shadow.shape != x.q.shape:
        raise ValueError(f"{x} has a shadow of shape {x.shadow.shape}, expected that of its q")
    return payload(x)


def _wrap(x: Any) -> Any:
    if isinstance(x, QTensor | BlockScaled):
        return x
    if jnp.issubdtype(x.dtype, jnp.integer):
        is_int48 = isinstance(x, np.ndarray) and x.dtype.itemsize == 8
        return QTensor.of(_x64.from_numpy(x) if is_int48 else x)
    return x if isinstance(x, jax.Array) else jnp.asarray(x)
