"""Programs of parameters, computed by NumPy on the host: nothing is compiled.

The constants of a model are thousands of small operations, which XLA takes seconds to compile and
microseconds to run, once. They have the same bits here as there: each operation on floats is
correctly rounded, no product goes into a sum, no sum has more than two terms, and no result that
matters is subnormal, which XLA:CPU takes for 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend import core

from tosajax.fixedpoint import _x64
from tosajax.from_jax.callees import callee
from tosajax.from_jax.evaluation import evaluated, literal


def evaluate(function: Any, *arguments: Any) -> Any:
    """The result of a function of pytrees of arrays, as NumPy arrays.

    Args:
      function: from `jax.jit`, which traces it once for arguments of the same shapes.
      arguments: the pytrees. With traced arrays, the function becomes part of the caller's program.
    """
    leaves = jax.tree.leaves(arguments)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return function(*arguments)
    traced = function.trace(*arguments)
    leaves = list(map(np.asarray, leaves))
    with np.errstate(all="ignore"):
        results = _results(traced.jaxpr, leaves, [True] * len(traced.jaxpr.jaxpr.outvars))
    return jax.tree.unflatten(traced.out_tree, results)


def on_device(arrays: Any) -> Any:
    """A pytree of NumPy arrays as JAX arrays, with all their bits; what is traced stays so."""
    return jax.tree.map(lambda x: x if isinstance(x, Tracer) else _put(x), arrays)


def _put(x: np.ndarray) -> jax.Array:
    # `jnp.asarray` would compile a program for each shape. A copy, as `device_put` may share the
    # memory of parameters that the user holds as NumPy arrays.
    return _x64.from_numpy(x) if x.dtype == np.int64 else jax.device_put(np.array(x))


def _results(
    closed: core.ClosedJaxpr, arrays: Sequence[np.ndarray], is_read: Sequence[bool]
) -> list[Any]:
    """The results of a jaxpr that are read; None for others.

    Most of what recipes compute are the values that gradients go through, which nobody reads here.
    """
    jaxpr = closed.jaxpr
    env: dict[Any, Any] = dict(zip(jaxpr.invars, arrays, strict=True))
    env.update(zip(jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    outvars = [var for var, read in zip(jaxpr.outvars, is_read, strict=True) if read]
    for eqn, of_eqn in _equations_for(jaxpr, outvars):
        inputs = [_value(env, atom) for atom in eqn.invars]
        env.update(zip(eqn.outvars, _computed(eqn, inputs, of_eqn), strict=True))
    return [
        _value(env, var) if read else None for var, read in zip(jaxpr.outvars, is_read, strict=True)
    ]


def _value(env: Mapping[Any, Any], atom: Any) -> Any:
    """The array of a variable, None if it is not computed; or of a literal."""
    return literal(atom) if isinstance(atom, core.Literal) else env.get(atom)


def _equations_for(jaxpr: Any, outvars: Sequence[Any]) -> list[tuple[Any, list[bool]]]:
    """The equations that variables depend on, in order, and which of their results are read."""
    needed = {var for var in outvars if not isinstance(var, core.Literal)}
    equations = []
    for eqn in reversed(jaxpr.eqns):
        is_read = [var in needed for var in eqn.outvars]
        if any(is_read):
            equations.append((eqn, is_read))
            used = eqn.invars[:1] if eqn.primitive.name == "follow" else eqn.invars
            needed.update(atom for atom in used if not isinstance(atom, core.Literal))
    return equations[::-1]


def _computed(eqn: Any, inputs: Sequence[Any], is_read: Sequence[bool]) -> list[Any]:
    """The results of an equation; by JAX where NumPy lacks the operation or rounds otherwise."""
    name = eqn.primitive.name
    inner = callee(name, eqn.params)
    if inner is not None:
        return _results(inner, inputs, is_read)
    if name in _OPERATIONS and _is_defined(name, eqn):
        result = np.asarray(_OPERATIONS[name](*inputs, **eqn.params))
        return [result.astype(eqn.outvars[0].aval.dtype, copy=False)]
    return evaluated(eqn, inputs)


def _is_defined(name: str, eqn: Any) -> bool:
    """Whether NumPy computes an equation with the bits that XLA gives it."""
    dtypes = [atom.aval.dtype for atom in (*eqn.invars, *eqn.outvars)]
    if any(dtype.kind not in "biuf" for dtype in dtypes):  # FP8 is a type of ml_dtypes
        return False
    # XLA divides floats by a constant in two roundings (`divide` is the quotient of recipes), and
    # adds up floats in an order of its own.
    return name not in ("div", "cumsum", "reduce_sum") or dtypes[0].kind in "iu"


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient of integers, rounded towards 0."""
    a, b = a.astype(np.int64), b.astype(np.int64)  # no type has the opposite of its least integer
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def _converted(x: np.ndarray, *, new_dtype: np.dtype, **_: Any) -> np.ndarray:
    """Converts elements; floats to integers as XLA does: saturated, and NaN to 0."""
    dtype = np.dtype(new_dtype)
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    info = np.iinfo(dtype)
    whole = np.trunc(np.nan_to_num(x.astype(np.float64), posinf=np.inf, neginf=-np.inf))
    inside = (whole >= info.min) & (whole <= info.max)
    ends = np.where(whole > 0, info.max, info.min).astype(dtype)
    return np.where(inside, np.where(inside, whole, 0).astype(dtype), ends)


def _rounded(x: np.ndarray, *, rounding_method: lax.RoundingMethod) -> np.ndarray:
    if rounding_method is lax.RoundingMethod.TO_NEAREST_EVEN:
        return np.rint(x)
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def _broadcast(
    x: np.ndarray, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: Any
) -> np.ndarray:
    own = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape, strict=True):
        own[axis] = size
    return np.broadcast_to(x.reshape(own), shape)


def _sliced(
    x: np.ndarray,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None,
) -> np.ndarray:
    strides = (1,) * x.ndim if strides is None else strides
    return x[tuple(map(slice, start_indices, limit_indices, strides))]


def _dynamic_slice(x: np.ndarray, *starts: np.ndarray, slice_sizes: Sequence[int]) -> np.ndarray:
    """A part of an array, which begins early enough to be inside."""
    places = zip(starts, slice_sizes, x.shape, strict=True)
    begins = [int(np.clip(start, 0, whole - size)) for start, size, whole in places]
    return x[tuple(slice(at, at + size) for at, size in zip(begins, slice_sizes, strict=True))]


def _cumulative_sum(x: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
    if reverse:
        return np.flip(np.cumsum(np.flip(x, axis), axis), axis)
    return np.cumsum(x, axis)


def _shifted(shift: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A shift, by fewer bits than there are."""

    def call(x: np.ndarray, by: np.ndarray) -> np.ndarray:
        if np.any((by < 0) | (by >= 8 * x.dtype.itemsize)):
            raise AssertionError(f"a shift of {x.dtype} by {by}")
        return shift(x, by)

    return call


def _without_parameters(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands, **_: operation(*operands)


def _first(x: np.ndarray, *_: Any) -> np.ndarray:
    return x


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "copy": _first,
    "div": _divided,
    "eq": np.equal,
    "floor": np.floor,
    "follow": _first,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "once": _first,
    "or": np.bitwise_or,
    "quotient": np.divide,
    "select_n": lambda which, *cases: np.choose(which, cases),
    "shift_left": _shifted(np.left_shift),
    "shift_right_arithmetic": _shifted(np.right_shift),
    "stop_gradient": _first,
    "sub": np.subtract,
}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: _without_parameters(operation) for name, operation in _ELEMENTWISE.items()},
    "bitcast_convert_type": lambda x, *, new_dtype: x.view(new_dtype),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "convert_element_type": _converted,
    "cumsum": _cumulative_sum,
    "dynamic_slice": _dynamic_slice,
    "reduce_and": lambda x, *, axes, **_: np.all(x, axes),
    "reduce_max": lambda x, *, axes, **_: np.max(x, axes),
    "reduce_min": lambda x, *, axes, **_: np.min(x, axes),
    "reduce_or": lambda x, *, axes, **_: np.any(x, axes),
    "reduce_sum": lambda x, *, axes, **_: np.sum(x, axes),
    "reshape": lambda x, *, new_sizes, **_: x.reshape(new_sizes),
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "round": _rounded,
    "slice": _sliced,
    "squeeze": lambda x, *, dimensions, **_: np.squeeze(x, dimensions),
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
}
