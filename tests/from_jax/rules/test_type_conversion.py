"""Changes of type, beside JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from elements import EIGHT_BITS, FLOATS, INTEGERS, same, values
from exports import operators
from jax import lax

from tosajax import DType, UnsupportedError, ops
from tosajax.from_jax.export import export
from tosajax.from_jax.places import Place
from tosajax.from_jax.scope import Options, Scope
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import known
from tosajax.from_jax.walk import call
from tosajax.spec.target import target_of

BOOL = np.dtype(bool)
TYPES = [BOOL, *INTEGERS, *FLOATS, *EIGHT_BITS]


def _elements(dtype):
    if dtype in EIGHT_BITS:
        return np.arange(256, dtype=np.uint8).view(dtype)
    x = values(dtype, 512)
    if dtype in INTEGERS or dtype == BOOL:
        return x
    fractions = np.array([0.5, 0.9, 1.1, 126.6, 127.4, 127.5, 128.5, 254.9, 32766.5, 32767.5])
    steps = np.arange(0, 600, 0.5)
    ends = np.array([2147483520.0, 2147483648, 3e9, 447, 448, 463, 464, 465, 57344, 61440, 65519])
    more = np.concatenate([fractions, steps, ends])
    with np.errstate(over="ignore"):
        return np.concatenate([x, more.astype(dtype), (-more).astype(dtype)])


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_conversions(source):
    """All from one type; int32 to bfloat16 is rounded once, and twice by XLA:CPU."""
    targets = [dtype for dtype in TYPES if (source, dtype) != (np.int32, ml_dtypes.bfloat16)]

    def fn(x):
        return [lax.convert_element_type(x, dtype) for dtype in targets]

    same(fn, _elements(source), model=0)


def test_int32_to_bfloat16_is_rounded_once():
    x = np.array([16842753, -16842753, 65537, 257, 385, 2**31 - 1], np.int32)
    found = same(lambda x: x.astype(jnp.bfloat16), x, ulp=1, model=1)
    assert operators(found) == ["CAST"]


@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_constants_are_cast_as_operators_do(target):
    """Rules cast what they have made: to nearest, ties to even, and saturated."""
    x = np.array([-1e10, -40000, -128.5, -1.5, 0.5, 2.5, 127.5, 130, 40000, 1e10], np.float32)
    options = Options(target_of("PRO-FP@8K"), 1)
    step = Step(Scope(options), "convert_element_type", {}, (), Place(), call)
    found = step.cast(known(x), target)
    wanted = ops.cast(jnp.asarray(x), out_type=DType[str(target).upper()])
    np.testing.assert_array_equal(np.asarray(found.held), wanted)


def test_conversions_take_few_operators():
    def found(source, target):
        x = jax.ShapeDtypeStruct((4,), source)
        return operators(export(lambda x: lax.convert_element_type(x, target), x))

    assert found(np.int8, np.int32) == found(np.float32, np.float16) == ["CAST"]
    assert found(BOOL, np.float32) == ["SELECT"]
    assert found(BOOL, np.int8) == found(np.int16, BOOL) == ["CAST"]
    assert found(np.float32, BOOL) == ["EQUAL", "LOGICAL_NOT"]
    assert found(np.float16, ml_dtypes.bfloat16) == ["CAST", "CAST"]
    truncation = ["CLAMP", "MINIMUM", "FLOOR", "CEIL", "ADD", "CAST"]
    assert sorted(found(np.float32, np.int8)) == sorted(truncation)


def test_conversion_to_the_same_type_leaves_nothing():
    x = jax.ShapeDtypeStruct((4,), np.float32)
    fn = lambda x: lax.convert_element_type_p.bind(  # noqa: E731
        x, new_dtype=np.dtype(np.float32), weak_type=False, sharding=None
    )
    assert operators(export(lambda x: fn(x) + 1, x)) == ["ADD"]


BITS = [(8, 7), (5, 10), (5, 2), (8, 23), (11, 52)]


def test_reduced_precision():
    """Also beside the smallest normal numbers, which others become 0 below."""
    least = 2.0**-14
    steps = np.arange(-40, 41) * 2.0**-28
    near = np.concatenate(
        [least + steps, least - 2.0**-18 + steps, least * np.arange(0.5, 1, 0.01)]
    )
    x = np.concatenate([_elements(FLOATS[0]), near.astype(np.float32), -near.astype(np.float32)])
    narrow = [_elements(dtype) for dtype in FLOATS[1:]]
    for bits in BITS:
        same(lambda x, bits=bits: lax.reduce_precision(x, *bits), x, model=0)
        if bits in ((8, 7), (8, 23), (11, 52)):
            same(lambda x, bits=bits: lax.reduce_precision(x, *bits), narrow[1], model=0)
        if bits in ((5, 10), (5, 2), (11, 52)):
            same(lambda x, bits=bits: lax.reduce_precision(x, *bits), narrow[0], model=0)


def test_reduced_precision_that_changes_nothing_leaves_nothing():
    x = jax.ShapeDtypeStruct((4,), np.float16)
    assert operators(export(lambda x: lax.reduce_precision(x, 5, 10) + 1, x)) == ["ADD"]


@pytest.mark.parametrize(
    ("bits", "dtype"), [((4, 3), np.float32), ((8, 3), np.float32), ((8, 7), np.float16)]
)
def test_reduced_precision_without_a_type_says_which_there_are(bits, dtype):
    x = jax.ShapeDtypeStruct((2,), dtype)
    wanted = f"{bits[0]} bits of exponent and {bits[1]} of mantissa, expected 8 and 7 or 5 and 10"
    with pytest.raises(UnsupportedError, match=wanted):
        export(lambda x: lax.reduce_precision(x, *bits), x)


@pytest.mark.parametrize(
    ("source", "target"), [("int4", "int8"), ("int8", "int4"), ("int32", "uint8")]
)
def test_types_that_cast_does_not_have_are_named(source, target):
    x = jax.ShapeDtypeStruct((2,), source)
    with pytest.raises(UnsupportedError, match=r"int4|uint8"):
        export(lambda x: x.astype(target), x)


def test_constants_of_int4_are_converted():
    weights = np.arange(-8, 8).astype(ml_dtypes.int4)
    x = np.arange(16, dtype=np.float32)
    same(lambda x: x * jnp.asarray(weights).astype(jnp.float32), x, model=0)


def test_bits_of_floats_say_what_to_do():
    x = jax.ShapeDtypeStruct((2,), np.float32)
    with pytest.raises(UnsupportedError, match=r"bitcast_convert_type.*compute with numbers"):
        export(lambda x: lax.bitcast_convert_type(x, np.int32), x)
