"""Powers of floats."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.from_jax.rules._wide import in_float32
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value
from tosajax.spec import NanMode

_LONGEST = 32  # the largest exponent; longer products are less exact than POW


def pow(step: Step, x: Value, y: Value) -> Value:
    """A product for a constant integer exponent, a square root for 1/2, RSQRT for -1/2, else POW.

    POW only takes positive bases and finite exponents: results for negative bases, zeros,
    infinities and NaN are selected by further operators, unless a constant base or exponent
    excludes them.
    """
    x = x if x.shape == step.out.shape else step.broadcast(x, step.out.shape, ())
    exponent = None if y.scalar is None else float(y.scalar)
    if exponent is not None and exponent.is_integer() and abs(exponent) <= _LONGEST:
        return step.jax(lambda x: lax.integer_pow(x, int(exponent)), x)
    if y.dtype != x.dtype:
        return step.jax(lambda x, y: lax.pow(x, y.astype(x.dtype)), x, y)
    if exponent in (0.5, -0.5):
        step.note("a square root", "powers of -infinity are NaN, and that of -0.0 has its sign")
        return step.jax(lax.sqrt if exponent > 0 else lax.rsqrt, x)
    if x.dtype != np.float32:
        return in_float32(step, lax.pow, x, y)
    return _by_pow(step, x, y)


def _by_pow(step: Step, x: Value, y: Value) -> Value:
    has_zero = y.is_known and bool((y.elements > 0).all())
    plain, base = step.jaxs(lambda x: _positive_base(x, has_zero), x)
    power = step.op("POW", base, _finite_exponent(step, y))
    return step.jax(_with_signs, x, y, plain, power)


def _finite_exponent(step: Step, y: Value) -> Value:
    """The exponent with infinities clamped to finite numbers and NaN replaced."""
    most = np.finfo(np.float32).max
    if y.is_known:
        return step.jax(lambda y: jnp.clip(jnp.where(y == y, y, 0), -most, most), y)
    return step.op("CLAMP", y, min_val=-most, max_val=most, nan_mode=NanMode.IGNORE)


def _positive_base(x: jax.Array, has_zero: bool) -> tuple[jax.Array, jax.Array]:
    """Whether POW can take the magnitude of the base; the magnitude, or else 1.

    Args:
      x: the base.
      has_zero: whether POW can take 0, as all exponents are positive.
    """
    size = jnp.abs(x)
    plain = size < jnp.inf
    if not has_zero:
        plain = plain & (size > 0)
    return plain, jnp.where(plain, size, 1)


def _with_signs(x: jax.Array, y: jax.Array, plain: jax.Array, power: jax.Array) -> jax.Array:
    """The power, given the power of the base's magnitude where `plain` is true."""
    size = jnp.abs(x)
    of_ends = jnp.where(y > 0, size, jnp.where(y < 0, 1 / size, 1))
    power = jnp.where(plain, power, of_ends)
    whole = jnp.floor(y) == y
    half = y * 0.5
    odd = whole & (jnp.floor(half) != half)
    fraction = jnp.where(size < jnp.inf, jnp.nan, power)
    negative = jnp.where(odd, -power, jnp.where(whole, power, fraction))
    power = jnp.where(x < 0, negative, power)
    return jnp.where(y == y, power, jnp.where(x == 1, 1, jnp.nan))
