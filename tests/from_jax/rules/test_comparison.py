"""Comparisons, beside JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elements import EIGHT_BITS, FLOATS, INTEGERS, boundary, pairs, same
from exports import operators
from jax import lax
from jax.extend.core.primitives import eq_to_p, le_to_p, lt_to_p

from tosajax import UnsupportedError
from tosajax.from_jax.export import export

pytestmark = pytest.mark.usefixtures("quick")

COMPARISONS = lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge


def _each(*operands):
    return [fn(x, y) for x, y in operands for fn in COMPARISONS]


@pytest.mark.parametrize("dtypes", [FLOATS, INTEGERS, [np.dtype(bool)]], ids=["f", "i", "bool"])
def test_comparisons(dtypes):
    operands = [pairs(boundary(dtype), boundary(dtype)) for dtype in dtypes]
    same(_each, *operands, model=0)


def test_comparisons_of_floats_of_8_bits():
    every = [np.arange(0, 256, 3, dtype=np.uint8).view(dtype) for dtype in EIGHT_BITS]
    same(_each, *(pairs(x, x) for x in every), model=0)


def test_comparisons_are_few_operators():
    def found(fn, dtype):
        x = jax.ShapeDtypeStruct((4,), dtype)
        return operators(export(fn, x, x))

    assert found(lax.lt, np.float32) == ["GREATER"]
    assert found(lax.ne, np.float32) == ["EQUAL", "LOGICAL_NOT"]
    assert found(lax.ne, np.bool_) == ["LOGICAL_XOR"]
    assert found(lax.eq, np.int8) == ["CAST", "CAST", "EQUAL"]
    assert found(lambda x, y: x > 3, np.int8) == ["CAST", "GREATER"]


@pytest.mark.parametrize("value", [False, True])
def test_bool_beside_a_constant(value):
    def fn(x):
        constant = jnp.full_like(x, value)
        return [f(*p) for f in COMPARISONS for p in ((x, constant), (constant, x))]

    same(fn, boundary(np.dtype(bool)), model=0)


@pytest.mark.parametrize("primitive", [eq_to_p, le_to_p, lt_to_p], ids=str)
def test_total_orders_say_what_to_do(primitive):
    x = jax.ShapeDtypeStruct((2,), np.float32)
    with pytest.raises(UnsupportedError, match=f"{primitive.name}.*compare with"):
        export(primitive.bind, x, x)
