"""CAST between floats and integers, and rounding that is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    assert_looked_up,
    assert_rounded,
    constant,
    floats,
    legal,
    operators,
    times,
    uniform,
)

import tosajax
from tosajax import Builder, DType

SHAPE = (4, 16)
ROUNDED: dict[str, tuple[Callable[[jax.Array], jax.Array], Callable[[np.ndarray], Any]]] = {
    "round": (jnp.round, np.rint),
    "rint": (jnp.rint, np.rint),
    "decimals": (lambda x: jnp.round(x, 1), lambda x: np.rint(x * 10) / 10),
    "floor": (jnp.floor, np.floor),
    "trunc": (jnp.trunc, np.trunc),
    "int32": (lambda x: x.astype(jnp.int32).astype(jnp.float32) * 0.5, lambda x: np.trunc(x) / 2),
    "int8": (lambda x: x.astype(jnp.int8).astype(jnp.float32) * 0.5, lambda x: np.trunc(x) / 2),
    "bool": (lambda x: (x > 0.5).astype(jnp.float32), lambda x: x > 0.5),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_is_looked_up(name):
    function, exact = ROUNDED[name]
    graph = tosajax.export(function, uniform(0, *SHAPE))
    trial = Trial(graph, uniform(0, *SHAPE), against=("frozen", "reference_model"))
    assert trial.report, str(trial.report)
    assert operators(trial.frozen)[0] == "TABLE"
    assert_looked_up(trial, graph.outputs[0], graph.inputs[0], exact)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int16, jnp.int8])
def test_integers_of_floats_are_truncated(dtype):
    graph = tosajax.export(lambda x: x.astype(dtype), uniform(0, *SHAPE, high=90))
    trial = Trial(graph, uniform(0, *SHAPE, high=90))
    assert trial.report, str(trial.report)
    (name,) = graph.outputs
    (owner,) = {n for n in trial.params["qparams"] if n != "x"}
    expected = np.clip(np.trunc(trial["x"]), *trial.ends(owner))
    assert np.abs(trial[name] - expected).max() <= 0.5 + 0.5 * trial.step(owner)
    assert trial.dtype(name).bits == 8 * np.dtype(dtype).itemsize


def test_rounded_numbers_are_indices():
    def function(x: jax.Array, table: jax.Array) -> jax.Array:
        return table[jnp.clip(jnp.round(x).astype(jnp.int32), 0, 3)]

    x, table = uniform(0, 16, low=0, high=3), uniform(1, 4, 8)
    trial = Trial(tosajax.export(function, x, table), x, table)
    assert trial.report, str(trial.report)
    rows = np.clip(np.rint(trial["x"]), 0, 3).astype(int)
    np.testing.assert_array_equal(trial["output"], trial["table"][rows])


@pytest.mark.parametrize("variant", VARIANTS)
def test_casts_of_builders(variant):
    """Rounded to nearest, as CAST does; a zero point stays out."""
    b = Builder()
    x = times(b, floats(b, "x", *SHAPE), constant(b, [[40.0]]), "y")
    numbers = b.input("numbers", DType.INT32, SHAPE)
    is_true = b.input("is_true", DType.BOOL, SHAPE)
    outputs = [
        b.op("CAST", x, dtype=dtype, name=f"to_{dtype.name}")
        for dtype in (DType.INT8, DType.INT16, DType.INT32)
    ]
    outputs += [
        b.op("CAST", numbers, dtype=DType.FP32, name="from_INT32"),
        b.op("CAST", b.op("CAST", numbers, dtype=DType.INT8), dtype=DType.FP32, name="from_INT8"),
        b.op("CAST", b.op("CAST", is_true, dtype=DType.INT8), dtype=DType.FP32, name="from_BOOL"),
    ]
    drawn = np.random.default_rng(0).integers(-100, 120, SHAPE).astype(np.int32)
    examples = uniform(0, *SHAPE), drawn, drawn % 2 == 0
    trial = Trial(legal(b.graph(outputs)), *examples, rules=VARIANTS[variant])
    assert trial.report, str(trial.report)
    for dtype in (DType.INT8, DType.INT16, DType.INT32):
        limited = np.clip(trial["y"], dtype.minimum, dtype.maximum)
        assert np.abs(trial[f"to_{dtype.name}"] - limited).max() <= 0.5 + 1e-4
    for name in ("from_INT32", "from_INT8"):
        assert_rounded(trial, name, drawn.astype(np.float64))
    assert_rounded(trial, "from_BOOL", examples[2].astype(np.float64))
