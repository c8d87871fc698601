"""Functions that TOSA does not have, composed of functions that it has, in float32.

Each docstring states the largest error in units in the last place (ulp) of the exact result, if the
exact result is a normal number; a test measures it. Zeros with their signs, infinities and NaN are
JAX's unless the docstring states otherwise.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

_HALF_PI = np.float32(np.pi / 2)
_PI = np.float32(np.pi)
_LN2 = np.float32(np.log(2))

# Minimax polynomials in t**2: (atan(t) - t) / t**3 for t**2 <= 1, (asin(t) - t) / t**3 for
# t**2 <= 1/4.
_ATAN = (
    -0.33333301544189453,
    0.19998638331890106,
    -0.1426524519920349,
    0.10957571864128113,
    -0.08419445902109146,
    0.0582343190908432,
    -0.03145546838641167,
    0.011064315214753151,
    -0.0018271846929565072,
)
_ASIN = (
    0.16666753590106964,
    0.07495241612195969,
    0.04547709599137306,
    0.02414761111140251,
    0.04221854731440544,
)
# M. Giles, "Approximating the erfinv function": polynomials in w - 2.5 if w = -log(1 - x**2) is
# below 5, else in sqrt(w) - 3.
_ERF_INV_CENTRE = (
    1.50140941,
    0.246640727,
    -0.00417768164,
    -0.00125372503,
    0.00021858087,
    -4.39150654e-06,
    -3.5233877e-06,
    3.43273939e-07,
    2.81022636e-08,
)
_ERF_INV_TAIL = (
    2.83297682,
    1.00167406,
    0.00943887047,
    -0.0076224613,
    0.00573950773,
    -0.00367342844,
    0.00134934322,
    0.000100950558,
    -0.000200214257,
)


def sqrt(x: jax.Array) -> jax.Array:
    """1 / rsqrt(x), which is correct at 0 and infinity; 3 ulp."""
    return 1 / jax.lax.rsqrt(x)


def tan(x: jax.Array) -> jax.Array:
    """sin(x) / cos(x); 3 ulp."""
    return jnp.sin(x) * (1 / jnp.cos(x))


def expm1(x: jax.Array) -> jax.Array:
    """u - 1 for u = exp(x); (u - 1) x / log(u) for |x| < 1/2; 3 ulp.

    The ratio (W. Kahan) cancels the error of EXP. TANH would be shorter, but implementations of
    TOSA may lose its small results.
    """
    u = jnp.exp(x)
    less = u - 1
    near = jnp.where(u == 1, x, less * (x * (1 / jnp.log(u))))
    return jnp.where(jnp.abs(x) < 0.5, near, less)


def log1p(x: jax.Array) -> jax.Array:
    """log(1 + x), plus the rounding error of 1 + x for x <= 1; 2 ulp; -0.0 gives 0.0."""
    total = x + 1
    near = jnp.log(total) + (x - (total - 1))
    return jnp.where(x > 1, jnp.log(total), near)


def sinh(x: jax.Array) -> jax.Array:
    """(exp(x) - exp(-x)) / 2; from expm1 for |x| < 1; 5 ulp.

    Squares exp(x / 2), to overflow only if the result does.
    """
    less = expm1(x)
    near = (less + less * (1 / (less + 1))) * 0.5
    up, down = _half_exponentials(x)
    return jnp.where(jnp.abs(x) < 1, near, up - down)


def cosh(x: jax.Array) -> jax.Array:
    """(exp(x) + exp(-x)) / 2; 5 ulp.

    Squares exp(x / 2), to overflow only if the result does.
    """
    up, down = _half_exponentials(x)
    return up + down


def _half_exponentials(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """exp(x) / 2 and exp(-x) / 2."""
    root = jnp.exp(x * 0.5)
    inverse = 1 / root
    return (root * 0.5) * root, (inverse * 0.5) * inverse


def asinh(x: jax.Array) -> jax.Array:
    """log1p(x + x**2 / (1 + sqrt(1 + x**2))); log(2 x) for large numbers; 4 ulp."""
    size = jnp.abs(x)
    squared = size * size
    near = log1p(size + squared * (1 / (1 + sqrt(squared + 1))))
    result = jnp.where(size > 1e6, jnp.log(size) + _LN2, near)
    return jnp.where(x < 0, -result, jnp.where(x > 0, result, x))


def acosh(x: jax.Array) -> jax.Array:
    """log1p(t + sqrt(t (t + 2))) for t = x - 1; log(2 x) for large numbers; 4 ulp."""
    t = x - 1
    near = log1p(t + sqrt(t * (t + 2)))
    result = jnp.where(x > 1e6, jnp.log(x) + _LN2, near)
    return jnp.where(x < 1, jnp.nan, result)


def atanh(x: jax.Array) -> jax.Array:
    """(log1p(x) - log1p(-x)) / 2; 3 ulp; -0.0 gives 0.0."""
    return (log1p(x) - log1p(-x)) * 0.5


def atan(x: jax.Array) -> jax.Array:
    """A polynomial in x, or in 1 / x for |x| > 1; 3 ulp."""
    is_large = jnp.abs(x) > 1
    angle = _small_atan(jnp.where(is_large, 1 / x, x))
    return jnp.where(is_large, jnp.where(x > 0, _HALF_PI, -_HALF_PI) - angle, angle)


def atan2(y: jax.Array, x: jax.Array) -> jax.Array:
    """A polynomial for angles below 45 degrees, then mapped to the octant; 3 ulp."""
    across, along = jnp.abs(y), jnp.abs(x)
    large, small = jnp.maximum(across, along), jnp.minimum(across, along)
    # Otherwise the reciprocal would be 0 on hardware without subnormal numbers.
    scale = jnp.where(large > 2.0**64, 2.0**-64, 1)
    ratio = (small * scale) * (1 / (large * scale))
    ratio = jnp.where(large == 0, 0, jnp.where(small == jnp.inf, 1, ratio))
    angle = _small_atan(ratio)
    angle = jnp.where(across > along, _HALF_PI - angle, angle)
    angle = jnp.where(_is_negative(x), _PI - angle, angle)
    return jnp.where(_is_negative(y), -angle, angle)


def _is_negative(x: jax.Array) -> jax.Array:
    """Whether the sign bit is set, for zeros as well."""
    return jnp.where(x == 0, 1 / x, x) < 0


def _small_atan(t: jax.Array) -> jax.Array:
    """The arctangent for |t| <= 1."""
    squared = t * t
    return t * (1 + squared * _polynomial(_ATAN, squared))


def asin(x: jax.Array) -> jax.Array:
    """A polynomial in x, or in sqrt((1 - |x|) / 2) for |x| > 1/2; 4 ulp."""
    is_large, angle = _small_asin(x)
    beyond = _HALF_PI - (angle + angle)
    return jnp.where(is_large, jnp.where(x < 0, -beyond, beyond), angle)


def acos(x: jax.Array) -> jax.Array:
    """A polynomial in x, or in sqrt((1 - |x|) / 2) for |x| > 1/2; 4 ulp."""
    is_large, angle = _small_asin(x)
    double = angle + angle
    return jnp.where(is_large, jnp.where(x < 0, _PI - double, double), _HALF_PI - angle)


def _small_asin(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether |x| > 1/2, and the arcsine of x, or in that case of sqrt((1 - |x|) / 2)."""
    size = jnp.abs(x)
    is_large = size > 0.5
    squared = jnp.where(is_large, (1 - size) * 0.5, x * x)
    t = jnp.where(is_large, sqrt(squared), x)
    return is_large, t + t * squared * _polynomial(_ASIN, squared)


def cbrt(x: jax.Array) -> jax.Array:
    """exp(log(x) / 3), then a step of Newton's method; 2 ulp."""
    size = jnp.abs(x)
    root = jnp.exp(jnp.log(size) * np.float32(1 / 3))
    root = root - (root - size * (1 / (root * root))) * np.float32(1 / 3)
    root = jnp.where(x < 0, -root, root)
    return jnp.where((size > 0) & (size < jnp.inf), root, x)


def erfc(x: jax.Array) -> jax.Array:
    """1 - erf(x); the absolute error is at most 2**-22, so the tail where erf(x) is 1 is lost."""
    return 1 - jax.lax.erf(x)


def erf_inv(x: jax.Array) -> jax.Array:
    """Polynomials in log(1 - x**2); 5 ulp."""
    w = -jnp.log((1 - x) * (1 + x))
    centre = _polynomial(_ERF_INV_CENTRE, w - 2.5)
    tail = _polynomial(_ERF_INV_TAIL, sqrt(w) - 3)
    result = jnp.where(w < 5, centre, tail) * x
    return jnp.where(jnp.abs(x) == 1, x * jnp.inf, result)


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    """The value of a polynomial; coefficients begin with the lowest power."""
    result = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result * x + np.float32(coefficient)
    return result
