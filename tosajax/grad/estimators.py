"""Estimators: surrogate derivatives of rounding and saturation.

An estimator takes values before rounding and the range they are saturated to, and returns the same
values with another derivative. `clipped_ste` is the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from tosajax.grad.qtensor import follow

Estimator = Callable[[jax.Array, ArrayLike, ArrayLike], jax.Array]


def zero(value: jax.Array, low: ArrayLike, high: ArrayLike) -> jax.Array:
    """Derivative 0: exact almost everywhere.

    Example:
      >>> import jax
      >>> from tosajax import grad
      >>> jax.grad(lambda x: grad.zero(x, -128, 127))(3.0).item()
      0.0
    """
    del low, high
    return lax.stop_gradient(value)


def ste(value: jax.Array, low: ArrayLike, high: ArrayLike) -> jax.Array:
    """Derivative 1, saturated or not: the straight-through estimator.

    Example:
      >>> import jax
      >>> from tosajax import grad
      >>> jax.grad(lambda x: grad.ste(x, -128, 127))(200.0).item()
      1.0
    """
    del low, high
    return value


def clipped_ste(value: jax.Array, low: ArrayLike, high: ArrayLike) -> jax.Array:
    """Derivative 1 for low <= value <= high, else 0.

    Example:
      >>> import jax
      >>> from tosajax import grad
      >>> derivative = jax.grad(lambda x: grad.clipped_ste(x, -128, 127))
      >>> derivative(3.0).item(), derivative(200.0).item()
      (1.0, 0.0)
    """
    # Infinite ends need no comparison.
    if isinstance(low, float) and isinstance(high, float) and low == -math.inf and high == math.inf:
        return value
    return _where((value >= low) & (value <= high), value)


def round_window(value: jax.Array, low: ArrayLike, high: ArrayLike) -> jax.Array:
    """Derivative 1 where the rounded value is in range: up to half a step beyond it.

    Example:
      >>> import jax
      >>> from tosajax import grad
      >>> derivative = jax.grad(lambda x: grad.round_window(x, -128, 127))
      >>> derivative(127.25).item(), derivative(127.75).item()
      (1.0, 0.0)
    """
    return _where((value >= low - 0.5) & (value < high + 0.5), value)


def ewgs(delta: float = 0.1) -> Estimator:
    """`clipped_ste`, its gradient scaled by 1 + delta * sign(gradient) * (value - rounded value).

    Source: "Network Quantization with Element-wise Gradient Scaling" (Lee et al., 2021). The sign
    makes it nonlinear in the tangent, so it has only a reverse mode.

    Example:
      >>> import jax
      >>> from tosajax import grad
      >>> estimator = grad.ewgs(delta=0.5)
      >>> jax.grad(lambda x: estimator(x, -128, 127))(3.25).item()
      1.125
    """

    @jax.custom_vjp
    def scaled(value: jax.Array) -> jax.Array:
        return value

    def forward(value: jax.Array) -> tuple[jax.Array, jax.Array]:
        return value, value - jnp.floor(value + 0.5)

    def backward(error: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
        return (gradient * (1 + delta * jnp.sign(gradient) * error),)

    scaled.defvjp(forward, backward)
    return lambda value, low, high: scaled(clipped_ste(value, low, high))


def soft_round(temperature: float = 0.25) -> Estimator:
    """The derivative of a smooth rounding; the lower the temperature, the steeper at ties.

    Source: "Universally Quantized Neural Compression" (Agustsson and Theis, 2020).

    Example:
      >>> import jax
      >>> from tosajax import grad
      >>> estimator = grad.soft_round()
      >>> derivative = jax.grad(lambda x: estimator(x, -128, 127))
      >>> bool(derivative(3.5) > derivative(3.0))
      True
    """

    def estimate(value: jax.Array, low: ArrayLike, high: ArrayLike) -> jax.Array:
        middle = lax.stop_gradient(jnp.floor(value)) + 0.5
        scale = 2 * jnp.tanh(0.5 / temperature)
        smooth = middle + jnp.tanh((value - middle) / temperature) / scale
        return follow(value, _where((value >= low) & (value <= high), smooth))

    return estimate


def noise(key: jax.Array) -> Estimator:
    """`clipped_ste` at values moved by uniform noise one step wide, like rounding errors.

    A key always gives the same noise: use a new key for each training step.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from tosajax import grad
      >>> estimator = grad.noise(jax.random.key(0))
      >>> gradient = jax.grad(lambda x: estimator(x, -128, 127).sum())
      >>> gradient(jnp.float32([0, 129])).tolist()
      [1.0, 0.0]
    """

    def estimate(value: jax.Array, low: ArrayLike, high: ArrayLike) -> jax.Array:
        moved = value + jax.random.uniform(key, value.shape, value.dtype, -0.5, 0.5)
        return _where((moved >= low) & (moved <= high), value)

    return estimate


def pwl(width: float = 0.5) -> Estimator:
    """Rounding as a ramp at each tie, `width` steps wide, and level between ramps; 1 on average.

    Example:
      >>> import jax
      >>> from tosajax import grad
      >>> estimator = grad.pwl()
      >>> derivative = jax.grad(lambda x: estimator(x, -128, 127))
      >>> derivative(3.5).item(), derivative(3.0).item()
      (2.0, 0.0)
    """

    def estimate(value: jax.Array, low: ArrayLike, high: ArrayLike) -> jax.Array:
        from_tie = jnp.abs(value - jnp.floor(value) - 0.5)
        ramp = follow(value, _where(from_tie <= width / 2, value / width))
        return follow(value, _where((value >= low) & (value <= high), ramp))

    return estimate


def _where(passes: jax.Array, value: jax.Array) -> jax.Array:
    """The value; its gradient is 0 where `passes` is false."""
    return jnp.where(passes, value, lax.stop_gradient(value))
