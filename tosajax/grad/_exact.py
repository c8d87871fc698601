"""Operators of exact integers with the gradient of another function."""

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
    """Decorates the surrogate of a kernel: a function of its operands in float32.

    The result takes the operands of the kernel, integers as QTensors. Without QTensors it is the
    kernel itself; with them it returns the kernel's integers, and the surrogate as their shadow.

    Args:
      kernel: of `tosajax.ops`.
      estimates: the surrogate takes the keyword `estimate`, for rounding and saturation.
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
    """The integers of a kernel, whose gradient is 0."""

    def call(*operands: Any, **attributes: Any) -> QTensor:
        """0."""
        return QTensor.of(kernel(*payloads(operands), **attributes))

    return call


def payloads(operands: Any) -> Any:
    """Operands with integers in the place of QTensors."""
    return jax.tree.map(payload, operands, is_leaf=_is_qtensor)


def shadows(operands: Any) -> Any:
    """Operands with shadows in the place of QTensors."""
    return jax.tree.map(shadow, operands, is_leaf=_is_qtensor)


def _is_qtensor(x: object) -> bool:
    return isinstance(x, QTensor)
