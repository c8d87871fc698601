"""Exported elementwise functions beside JAX, element by element, at the ends of each type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import tosajax
from tosajax import Graph, reference_model
from tosajax.from_jax.export import export

FLOATS = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16)))
EIGHT_BITS = tuple(map(np.dtype, (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)))
INTEGERS = tuple(map(np.dtype, (np.int32, np.int16, np.int8)))


def boundary(dtype: np.dtype) -> np.ndarray:
    """Numbers at which something changes, of both signs; none that XLA:CPU takes for 0."""
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        near = [0, 1, 2, 3, 7, 10, 63, 64, 85, 100, 126, 127]
        ends = [info.max, info.max - 1, info.min + 1, info.min]
        return np.array([*near, *(-n for n in near[1:]), *ends], dtype)
    info = jnp.finfo(dtype)
    near = [0.0, 0.3, 0.4999, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 3.5, 7, 10, 100, 240]
    steps = [np.nextafter(np.float32(0.5), np.float32(0)), 2.0**23 - 0.5, 2.0**23 + 1, 2.0**31]
    ends = [16 * float(info.smallest_normal), info.max, info.eps, np.inf]
    with np.errstate(over="ignore"):
        numbers = np.array([*near, *steps, *map(float, ends)], np.float32).astype(dtype)
    return np.concatenate([numbers, -numbers, np.array([np.nan], dtype)])


def values(dtype: np.dtype, count: int = 64, seed: int = 0) -> np.ndarray:
    """Those of `boundary`, and random ones."""
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        random = rng.random(count) < 0.5
    elif dtype in INTEGERS:
        info = np.iinfo(dtype)
        random = rng.integers(info.min, info.max, count, dtype, endpoint=True)
    else:
        random = (rng.normal(size=count) * 2.0 ** rng.integers(-6, 7, count)).astype(dtype)
    return np.concatenate([boundary(dtype), random])


def pairs(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each element of one with each of the other."""
    return np.repeat(x, len(y)), np.tile(y, len(x))


def same(
    fn: Callable[..., Any],
    *args: Any,
    ulp: float = 0,
    model: float | None = None,
    zeros: bool = True,
    predictable: bool = True,
) -> Graph:
    """The exported graph of a function, each element of whose results is as in JAX.

    What is subnormal may be 0, as in XLA:CPU.

    Args:
      fn: the function; its results are one array or several.
      args: its arguments.
      ulp: how far finite floats may be from JAX's, in units in their last place.
      model: the same in Arm's model, where zeros may have either sign; None without it.
      zeros: whether zeros have the sign of JAX's.
      predictable: whether no operator may break a rule of TOSA for any element.
    """
    shapes = jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    graph = export(fn, *shapes)
    # JAX converts NumPy arrays by NumPy, which does not saturate.
    wanted = jax.tree_util.tree_leaves(fn(*jax.tree_util.tree_map(jnp.asarray, args)))
    inputs = jax.tree_util.tree_leaves(args)
    found, flags = tosajax.compile(graph, report_unpredictable=True)(*inputs)
    compare(_listed(found), wanted, ulp, zeros)
    broken = [rule for rule, flag in flags.items() if np.any(flag)]
    assert not (predictable and broken)
    if model is not None:
        compare(_listed(reference_model.run(graph, *map(np.asarray, inputs))), wanted, model, False)
    return graph


def run(graph: Graph, *inputs: Any) -> np.ndarray:
    """The one result of a graph."""
    (result,) = _listed(tosajax.compile(graph)(*inputs))
    return np.asarray(result)


def _listed(results: Any) -> list[Any]:
    if isinstance(results, dict):
        return [*results.values()]
    return [*results] if isinstance(results, list | tuple) else [results]


def compare(found: Sequence[Any], wanted: Sequence[Any], ulp: float, zeros: bool) -> None:
    """Compares results in order."""
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        ours, theirs = np.asarray(a), np.asarray(b)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if jnp.issubdtype(theirs.dtype, np.floating):
            _compare_floats(number, ours, theirs, ulp, zeros)
        else:
            np.testing.assert_array_equal(ours, theirs, f"result {number}")


def _compare_floats(
    number: int, ours: np.ndarray, theirs: np.ndarray, ulp: float, zeros: bool
) -> None:
    info = jnp.finfo(theirs.dtype)
    a, b = _flushed(ours), _flushed(theirs)
    with np.errstate(divide="ignore"):
        exponents = np.floor(np.log2(np.maximum(np.abs(b), float(info.smallest_normal))))
    unit = 2.0 ** np.where(np.isfinite(exponents), exponents - info.nmant, 0)
    with np.errstate(invalid="ignore"):
        is_close = np.abs(a - b) <= ulp * unit
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    if zeros:
        is_same &= (np.signbit(a) == np.signbit(b)) | (b != 0)
    wrong = ~(is_same | (is_close & (b != 0)) | (is_close & (a != 0)))
    assert not wrong.any(), (
        f"result {number}: {ours[wrong][:5]}, expected {theirs[wrong][:5]} "
        f"at {np.flatnonzero(wrong)[:5]}"
    )


def _flushed(x: np.ndarray) -> np.ndarray:
    """float64, with zeros for what float32 has as subnormal."""
    wide = x.astype(np.float64)
    tiny = np.abs(wide) < float(np.finfo(np.float32).smallest_normal)
    return np.where(tiny, np.copysign(0.0, wide), wide)
