"""Monoids, the functions of JAX's reductions with their identities, and folds of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from tosajax.from_jax.rules._sliding import Window
from tosajax.from_jax.rules._wide import has_type
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value

Arrays = list[jax.Array]
# An elementwise function of two lists of arrays.
Combine = Callable[[Arrays, Arrays], Arrays]


class Monoid(NamedTuple):
    """An associative function of two elements, and its identity.

    Args:
      function: JAX's elementwise function.
      identity: returns the identity, given a dtype.
    """

    function: Callable[[Any, Any], Any]
    identity: Callable[[np.dtype], Any]

    def combine(self, left: Arrays, right: Arrays) -> Arrays:
        """The function on lists of arrays, as a `Combine`."""
        return [self.function(x, y) for x, y in zip(left, right, strict=True)]

    def neutral(self, dtype: np.dtype) -> np.ndarray:
        """The identity as an array."""
        return np.asarray(self.identity(dtype), dtype)


def _lowest(dtype: np.dtype) -> Any:
    if dtype == np.bool_:
        return False
    if jnp.issubdtype(dtype, np.floating):
        finite = dtype.name == "float8_e4m3fn"  # It has no infinities.
        return jnp.finfo(dtype).min if finite else -np.inf
    return jnp.iinfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    if dtype == np.bool_:
        return True
    return -_lowest(dtype) if jnp.issubdtype(dtype, np.floating) else jnp.iinfo(dtype).max


def _all_bits(dtype: np.dtype) -> Any:
    return True if dtype == np.bool_ else -1


# The identity of ADD is -0.0: unlike 0.0, it keeps -0.0.
ADD = Monoid(lax.add, lambda dtype: -0.0 if jnp.issubdtype(dtype, np.floating) else 0)
MUL = Monoid(lax.mul, lambda dtype: 1)
MAX = Monoid(lax.max, _lowest)
MIN = Monoid(lax.min, _highest)
AND = Monoid(lax.bitwise_and, _all_bits)
OR = Monoid(lax.bitwise_or, lambda dtype: 0)
XOR = Monoid(lax.bitwise_xor, lambda dtype: 0)
LOGADDEXP = Monoid(jnp.logaddexp, lambda dtype: -np.inf)

_BY_PRIMITIVE = {"add": ADD, "mul": MUL, "max": MAX, "min": MIN, "and": AND, "or": OR, "xor": XOR}


def closed(jaxpr: Any, constants: Sequence[Any] = ()) -> core.ClosedJaxpr:
    """The jaxpr closed over constants."""
    return jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else core.ClosedJaxpr(jaxpr, constants)


def monoid_of(jaxpr: core.ClosedJaxpr) -> Monoid | None:
    """The monoid whose function a jaxpr computes; None if there is none."""
    inside = jaxpr.jaxpr
    if len(inside.eqns) != 1 or len(inside.invars) != 2:
        return None
    (eqn,) = inside.eqns
    is_all = set(map(id, eqn.invars)) == set(map(id, inside.invars))
    if not is_all or eqn.outvars != inside.outvars:
        return None
    return _BY_PRIMITIVE.get(eqn.primitive.name)


def combine_of(jaxpr: core.ClosedJaxpr) -> Combine:
    """The elementwise function that applies a jaxpr of scalars."""
    function = core.jaxpr_as_fun(jaxpr)

    def combine(left: Arrays, right: Arrays) -> Arrays:
        flat = [x.reshape(-1) for x in (*left, *right)]
        return [y.reshape(left[0].shape) for y in jax.vmap(function)(*flat)]

    return combine


def folded(combine: Combine, arrays: Arrays, axis: int) -> Arrays:
    """Reduces arrays along an axis to size 1, by combining halves."""
    rest: list[Arrays] = []
    while (size := arrays[0].shape[axis]) > 1:
        half = size // 2
        if size % 2:
            rest.append(_slices(arrays, axis, size - 1, size))
        arrays = combine(_slices(arrays, axis, 0, half), _slices(arrays, axis, half, 2 * half))
    for each in rest:
        arrays = combine(arrays, each)
    return arrays


def slid(combine: Combine, arrays: Arrays, windows: Sequence[Window]) -> Arrays:
    """Reduces arrays, which are padded already, in windows."""
    for axis, window in enumerate(windows):
        if window != Window(window.size):
            arrays = _reduce_windows_along(combine, arrays, axis, window)
    return arrays


def _reduce_windows_along(combine: Combine, arrays: Arrays, axis: int, window: Window) -> Arrays:
    """Reduces windows along an axis, by combining windows of 1, 2, 4, ... elements."""
    size, result, at, width = window.room + 1, None, 0, 1
    while True:
        if window.length & width:
            part = _slices(arrays, axis, at, at + size)
            result = part if result is None else combine(result, part)
            at += width * window.dilation
        if 2 * width > window.length:
            return [lax.slice_in_dim(x, 0, size, window.stride, axis) for x in result or arrays]
        step, end = width * window.dilation, arrays[0].shape[axis]
        arrays = combine(_slices(arrays, axis, 0, end - step), _slices(arrays, axis, step, end))
        width *= 2


def _slices(arrays: Arrays, axis: int, start: int, limit: int) -> Arrays:
    return [lax.slice_in_dim(x, start, limit, axis=axis) for x in arrays]


def widely(
    step: Step, monoid: Monoid | None, function: Callable[[jax.Array], jax.Array], x: Value
) -> Value:
    """Applies a reduction in int32 or float32, unless it is exact in the operand's dtype.

    Integers wrap in the cast back, and floats are rounded once.

    Args:
      step: the equation.
      monoid: the monoid of the reduction; None if it is not known.
      function: the reduction, a function of one array.
      x: the array.
    """
    is_kept = monoid in (AND, OR, XOR) or (monoid in (MAX, MIN) and has_type(step, "MAXIMUM", x))
    if is_kept:
        return step.jax(function, x)
    wide = np.float32 if jnp.issubdtype(x.dtype, np.floating) else np.int32
    back = x.dtype
    return step.jax(lambda v: function(v.astype(wide)).astype(back), x)
