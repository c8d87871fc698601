"""Real inputs of integer graphs, and the advice of those who refuse them."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph, Quantization

REAL = np.array([[-66.0, -0.26, -0.25, 0.25, 0.75, 63.0]], np.float32)
STEPS = np.array([[-128, 2, 3, 3, 5, 127]], np.int8)  # of 0.5, of which 3 is zero; ties are even
ADVICE = r"; graph\.quantized\(\*inputs\) has the integers of real numbers"


def graph(dtype: DType = DType.INT8, **scales: Quantization) -> Graph:
    b = Builder()
    ends = [b.input(name, t, (1, 6)) for name, t in (("x", dtype), ("raw", DType.INT8))]
    made = b.graph([b.op("IDENTITY", end) for end in ends])
    return dataclasses.replace(made, quantization=scales)


SCALED = graph(x=Quantization((0.5,), (3,)))


def test_real_inputs_become_integers():
    raw = np.zeros((1, 6), np.int8)
    x, same = SCALED.quantized(REAL, raw, clip=True)
    np.testing.assert_array_equal(x, STEPS)
    assert x.dtype == np.int8
    assert same is raw
    np.testing.assert_array_equal(tosajax.compile(SCALED)(x, same)[0], STEPS)


def test_examples_of_any_number():
    for many in (np.tile(REAL, (5, 1)), np.tile(REAL, (5, 1, 1))):
        x, _ = SCALED.quantized(many, np.zeros((5, 6), np.int8), clip=True)
        assert x.shape == many.shape
        np.testing.assert_array_equal(x.reshape(5, 6), np.tile(STEPS, (5, 1)))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.bool_])
def test_arrays_that_are_not_real_stay_as_they_are(dtype):
    x = np.ones((1, 6), dtype)
    assert SCALED.quantized(x, x)[0] is x


def test_real_inputs_beyond_the_scale_are_said():
    raw = np.zeros((1, 6), np.int8)
    with pytest.warns(UserWarning, match=r"'x'.* were clipped"):
        SCALED.quantized(REAL, raw)
    with pytest.raises(ValueError, match=r"'x'.* clip=True"):
        SCALED.quantized(REAL * 100, raw)


def test_inputs_without_a_scale_stay_as_they_are():
    assert SCALED.quantized(REAL, REAL, clip=True)[1] is REAL


def test_scales_by_channel():
    by_channel = graph(x=Quantization((0.5, 1, 2, 4, 8, 16), (0,), (1,)))
    x, _ = by_channel.quantized(np.full((1, 6), 16.0), REAL)
    np.testing.assert_array_equal(x, [[32, 16, 8, 4, 2, 1]])


def test_wrong_inputs():
    with pytest.raises(TypeError, match=r"1 inputs, expected 2 \(x, raw\)"):
        SCALED.quantized(REAL)
    with pytest.raises(ValueError, match="'x': a real value is NaN"):
        SCALED.quantized(REAL * np.nan, REAL)


def test_those_who_refuse_real_numbers_name_the_way():
    raw = np.zeros((1, 6), np.int8)
    fn, params = tosajax.lower(SCALED)
    shadowed, constants = tosajax.differentiable(SCALED)
    for call in (
        lambda x: tosajax.compile(SCALED)(x, raw),
        lambda x: tosajax.compile(SCALED, batch=1)(x, raw),
        lambda x: fn(params, x, raw),
        lambda x: jax.jit(fn)(params, x, raw),
        lambda x: shadowed(constants, x, raw),
    ):
        with pytest.raises(TypeError, match=r"type float32, expected int8 \(INT8\)" + ADVICE):
            call(REAL)
        with pytest.raises(TypeError, match=r"type int32, .* use \.astype\(int8\) if its values"):
            call(REAL.astype(np.int32))
    with pytest.raises(TypeError, match=r"'raw' has type float32, expected int8 \(INT8\)$"):
        tosajax.compile(SCALED)(raw, REAL)
