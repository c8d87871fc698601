"""One CLAMP for two."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from exports import operators

import tosajax
from tosajax import Builder, DType
from tosajax.from_jax.tidy.clamps import with_single_clamps
from tosajax.from_jax.written import Written
from tosajax.passes.folding import fold
from tosajax.spec import NanMode

BOUNDS = [(-3, 4), (0, 6), (5, 9), (-9, -4), (2, 2), (-128, 127)]
X = np.asarray([-128, -9, -4, -3, -1, 0, 1, 2, 3, 4, 5, 6, 8, 9, 127])


def clamped(dtype: DType, *clamps: tuple[tuple[float, float], NanMode], both: bool = False):
    b = Builder()
    found = [b.input("x", dtype, X.shape)]
    for (low, high), mode in clamps:
        bounds = {n: dtype.storage.type(v) for n, v in (("min_val", low), ("max_val", high))}
        found.append(b.op("CLAMP", found[-1], **bounds, nan_mode=mode))
    return b.graph(found[1:] if both else found[-1:])


def joined(graph):
    found = fold(with_single_clamps(Written(graph, {})).graph)
    tosajax.validate(found).raise_errors()
    return found


@pytest.mark.parametrize(("first", "second"), [*itertools.product(BOUNDS, BOUNDS)])
def test_bounds(first, second):
    graph = clamped(DType.INT8, (first, NanMode.PROPAGATE), (second, NanMode.PROPAGATE))
    found = joined(graph)
    assert operators(found) == ["CLAMP"]
    node = found.nodes[-1]
    wanted = np.clip(np.clip(X, *first), *second)
    np.testing.assert_array_equal(
        np.clip(X, int(node.attributes["min_val"]), int(node.attributes["max_val"])), wanted
    )


@pytest.mark.parametrize("modes", [*itertools.product(NanMode, NanMode)])
def test_nan(modes):
    graph = clamped(DType.FP32, ((-3, 4), modes[0]), ((0, 6), modes[1]))
    found = joined(graph)
    apart = modes == (NanMode.PROPAGATE, NanMode.IGNORE)
    assert operators(found) == ["CLAMP"] * (1 + apart)
    x = np.where(X == 5, np.nan, X).astype(np.float32)
    results = [tosajax.compile(g)(x)[0] for g in (graph, found)]
    np.testing.assert_array_equal(*results)


def test_three_become_one():
    clamps = [(bounds, NanMode.PROPAGATE) for bounds in BOUNDS[:3]]
    assert operators(joined(clamped(DType.INT8, *clamps))) == ["CLAMP"]


def test_one_that_something_else_reads():
    """It stays, and the other does not wait for it."""
    clamps = [(bounds, NanMode.PROPAGATE) for bounds in BOUNDS[:2]]
    found = joined(clamped(DType.INT8, *clamps, both=True))
    assert [node.inputs for node in found.nodes] == [("x",), ("x",)]
