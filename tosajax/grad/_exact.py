"""Operators that return exact integers and have the gradient of a surrogate function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.qtensor import QTensor, payload, shadow


def exact(
    kernel: Callable[..., jax.Array], *, estimates: bool = False
) -> Callable[[Callable[..., jax.Array]], Callable[..., Any]]:
    """Decorates the surrogate of a kernel: a float32 function of the kernel's operands.

    The decorated function takes the operands of the kernel, with integers as QTensors. Without
    QTensors it is the kernel itself; with them it returns a QTensor: the integers from the kernel,
    and the result of the surrogate as their shadow.

    Args:
      kernel: a function of `tosajax.ops`.
      estimates: whether the surrogate takes the keyword `estimate`, for rounding and saturation.
    """

    def decorate(surrogate: Callable[..., jax.Array]) -> Callable[..., Any]:
        @functools.wraps(surrogate)
        def call(*operands: Any, estimate: Estimator = clipped_ste, **attributes: Any) -> Any:
            leaves = jax.tree.leaves(operands, is_leaf=_is_qtensor)
            if not any(map(_is_qtensor, leaves)):
                return kernel(*operands, **attributes)
            result = kernel(*payloads(operands), **attributes)
            if estimates:
                attributes["estimate"] = estimate
            return QTensor(result, surrogate(*operands, **attributes))

        return call

    return decorate


def without_gradient(kernel: Callable[..., jax.Array]) -> Callable[..., QTensor]:
    """A kernel that returns QTensors, whose gradient is 0."""

    def call(*operands: Any, **attributes: Any) -> QTensor:
        """0."""
        return QTensor.of(kernel(*payloads(operands), **attributes))

    return call


def payloads(operands: Any) -> Any:
    """The operands, with each QTensor replaced by its integers."""
    return jax.tree.map(payload, operands, is_leaf=_is_qtensor)


def shadows(operands: Any) -> Any:
    """The operands, with each QTensor replaced by its shadow."""
    return jax.tree.map(shadow, operands, is_leaf=_is_qtensor)


def _is_qtensor(x: object) -> bool:
    return isinstance(x, QTensor)
