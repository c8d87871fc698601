"""Exported functions beside JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import tosajax
from tosajax import Graph, reference_model
from tosajax.from_jax.export import export


def agrees(
    fn: Callable[..., Any],
    *args: Any,
    ulp: float = 0,
    model: bool = False,
    params: Any = None,
    **options: Any,
) -> Graph:
    """The exported graph, whose outputs are compared with those of the function.

    Args:
      fn: the function.
      args: its arguments.
      ulp: by how much floats may differ, in units in the last place of the largest element of
        the output; 0 for the same bits, whatever NaN is. Integers have to be the same.
      model: also run Arm's model.
      params: the function's first argument.
      options: of `export`, whose own check is left out by default.
    """
    graph = export(fn, *args, params=params, **{"check": False, **options})
    wanted = jax.tree_util.tree_leaves(fn(*(() if params is None else (params,)), *args))
    inputs = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(args)]
    check(tosajax.compile(graph)(*inputs), wanted, ulp)
    if model:
        check(reference_model.run(graph, *inputs), wanted, ulp)
    return graph


def check(found: Any, wanted: Any, ulp: float) -> None:
    """Compares outputs in order."""
    found = [*found.values()] if isinstance(found, dict) else found
    found = found if isinstance(found, list | tuple) else [found]
    assert len(found) == len(wanted)
    for ours, theirs in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        assert ours.shape == theirs.shape
        theirs = theirs.astype(ours.dtype) if theirs.dtype == "int4" else theirs
        assert ours.dtype == theirs.dtype
        if jax.numpy.issubdtype(theirs.dtype, np.floating):
            _check_floats(ours, theirs, ulp)
        else:
            np.testing.assert_array_equal(ours, theirs)


def _check_floats(ours: np.ndarray, theirs: np.ndarray, ulp: float) -> None:
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    assert (np.isnan(a) == np.isnan(b)).all()
    infinite = np.isinf(a) | np.isinf(b)
    np.testing.assert_array_equal(a[infinite], b[infinite])
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return
    largest = np.abs(b[finite]).max()
    unit = largest * float(jax.numpy.finfo(theirs.dtype).eps)
    worst = np.abs(a[finite] - b[finite]).max()
    assert worst <= ulp * unit, f"{worst / max(unit, 5e-324):.3g} ulp of the largest, wanted {ulp}"


def operators(graph: Graph) -> list[str]:
    """The operators of a graph, without constants."""
    return [node.op for node in graph.ordered_nodes() if not node.op.startswith("CONST")]


def drawn(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Random elements, a third of the integers extremes."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype == np.bool_:
        return rng.random(shape) < 0.6
    if not jax.numpy.issubdtype(dtype, np.integer):
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)
    info = np.iinfo(dtype)
    numbers = rng.integers(info.min, info.max, shape, endpoint=True)
    edges = rng.choice([info.min, info.max, -1, 0, 1], shape)
    return np.where(rng.random(shape) < 0.3, edges, numbers).astype(dtype)
