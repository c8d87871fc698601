"""Recipes at their ends: what is beyond a type saturates, and nothing wraps or is made of NaN.

Biases, weights and RESCALEs, which have more room or are refused, are in test_room.py and
test_arguments.py.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import DType
from tosajax.quant.freezing import check_factors
from tosajax.quant.model import recipes
from tosajax.quant.qparams import QParams

BEYOND = (np.inf, 3.4e38, 1e30, 1e10)
TYPES = (DType.INT8, DType.INT16)


def params(dtype: DType = DType.INT8, bits: int | None = None, **groups) -> recipes.Params:
    bits = dtype.bits if bits is None else bits
    zero_point = jnp.float32(3 if dtype is DType.INT8 else 0)
    qparams = QParams(jnp.float32(0.125), zero_point, jnp.float32(bits), dtype)
    return {"qparams": {"x": qparams}, **groups}


def test_every_recipe_is_walked_to_its_ends():
    """Or is in another file; a new one needs a test here or a place in this list."""
    elsewhere = {"Recipe", "Weight", "Bias", "Value", "Multiplier", "Shift", "ZeroPoint"}
    here = {"Number", "Bound", "End", "Entries", "Factor"}
    classes = {
        name
        for name, value in vars(recipes).items()
        if isinstance(value, type) and value.__module__ == recipes.__name__ and _makes(value)
    }
    assert classes == elsewhere | here


def _makes(kind: type) -> bool:
    parameters = getattr(kind.__call__, "__code__", None)
    return (
        parameters is not None
        and parameters.co_varnames[:2] == ("self", "params")
        and (kind is not recipes.Scale)
    )


@pytest.mark.parametrize("bits", [2, 8, 13, 16])
def test_numbers(bits):
    dtype = DType.INT8 if bits <= 8 else DType.INT16
    given = params(dtype, bits)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for value in BEYOND:
        assert recipes.Number("x", value)(given).q.tolist() == [high]
        assert recipes.Number("x", -value)(given).q.tolist() == [low]
    zero = min(3 if dtype is DType.INT8 else 0, high)
    for value, units in ((0.0, 0), (1e-45, 0), (-0.125, -1), (0.1875, 2), (0.0625, 0)):
        made = recipes.Number("x", value, (2, 1))(given).q
        assert made.tolist() == [[min(max(zero + units, low), high)]] * 2
        assert made.dtype == dtype.storage


@pytest.mark.parametrize("bits", [2, 8, 13, 16])
@pytest.mark.parametrize("upper", [False, True])
def test_ends(bits, upper):
    dtype = DType.INT8 if bits <= 8 else DType.INT16
    given = params(dtype, bits)
    end = 2 ** (bits - 1) - 1 if upper else -(2 ** (bits - 1))
    made = recipes.End("x", upper, (1, 3))(given).q
    assert made.tolist() == [[end] * 3]
    assert made.dtype == dtype.storage
    assert recipes.Bound("x", upper)(given).q.tolist() == end
    # A clamp that ends beyond the range on its own side is none.
    for value in BEYOND:
        assert recipes.Bound("x", upper, value if upper else -value)(given).q.tolist() == end
    # All values are beyond a bound on the other side, and become the end that is nearest.
    other = -(2 ** (bits - 1)) if upper else 2 ** (bits - 1) - 1
    assert recipes.Bound("x", upper, -1e30 if upper else 1e30)(given).q.tolist() == other


@pytest.mark.parametrize("output", TYPES)
def test_entries_of_int8(output):
    samples = np.zeros(256, np.float32)
    samples[:8] = [*BEYOND, *(-x for x in BEYOND)]
    given = params(output, tables={"t": jnp.asarray(samples)})
    made = np.asarray(recipes.Entries("t", "x", DType.INT8)(given).q)
    assert made.dtype == output.storage
    assert made[:8].tolist() == [output.maximum] * 4 + [output.minimum] * 4
    assert set(made[8:].tolist()) == {3 if output is DType.INT8 else 0}


@pytest.mark.parametrize("output", TYPES)
@pytest.mark.parametrize("value", BEYOND)
def test_entries_of_int16(output, value):
    """A step is within INT16, or TABLE is unpredictable: from one end to the other takes two."""
    for before, after in ((0, value), (0, -value), (value, -value), (-value, value)):
        samples = np.where(np.arange(513) < 100, before, after).astype(np.float32)
        given = params(output, tables={"t": jnp.asarray(samples)})
        made = np.asarray(recipes.Entries("t", "x", DType.INT16)(given).q)
        assert made.dtype == np.int16
        steps = np.diff(made.astype(np.int64))
        assert steps.min() >= -(2**15)
        assert steps.max() < 2**15
        ends = {0.0: 0, value: 2**15 - 1, -value: -(2**15)}
        assert abs(int(made[0]) - ends[before]) <= 1
        assert abs(int(made[-1]) - ends[after]) <= 1


@pytest.mark.parametrize("is_reciprocal", [False, True])
@pytest.mark.parametrize("scale", [0.0, 2.0**-127, 2.0**-126, 1.0, 2.0**126, 2.0**127, np.nan])
def test_factors(scale, is_reciprocal):
    """A scale and its reciprocal are both normal numbers, or `freeze` refuses them."""
    own = params()["qparams"]["x"]
    recipe = recipes.Factor("x", (1, 1), is_reciprocal)
    made = recipe({"qparams": {"x": dataclasses.replace(own, scale=jnp.float32(scale))}})
    if 2.0**-126 <= scale <= 2.0**126:
        check_factors({"f": np.asarray(made)}, {"f": recipe})
        assert made.tolist() == [[1 / scale if is_reciprocal else scale]]
    else:
        with pytest.raises(ValueError, match=r"'x': a scale cannot be expressed, expected all in"):
            check_factors({"f": np.asarray(made)}, {"f": recipe})
