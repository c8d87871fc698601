"""`tosajax.run` and `tosajax.dump`: any number of examples, integers or real numbers."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Quantization

SCALES = {"x": Quantization((0.5,), (-3,)), "out": Quantization((0.25,), (-7,))}


def quantized():
    return dataclasses.replace(small.two_layers(), quantization=SCALES)


def expected(x):
    return np.asarray(tosajax.compile(small.two_layers(), batch=len(x))(x)[0])


@pytest.mark.parametrize("batch", [1, 3, 7, 99])
def test_any_number_of_examples(batch):
    x = small.images(7)
    (y,) = tosajax.run(quantized(), x, batch=batch)
    np.testing.assert_array_equal(y, expected(x))
    assert isinstance(y, np.ndarray)
    (whole,) = tosajax.run(quantized(), x[:, None], batch=batch)
    np.testing.assert_array_equal(whole[:, 0], y)


def test_real_numbers_go_in_and_come_out():
    # Ends of the type, ties and their neighbours.
    x = small.images(5)
    x.reshape(-1)[:4] = -128, 127, -3, -2
    reals = (x.astype(np.float32) + 3) * np.float32(0.5)
    (y,) = tosajax.run(quantized(), reals, batch=2, real=True)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, (expected(x).astype(np.float32) + 7) * np.float32(0.25))
    (steps,) = tosajax.run(quantized(), jnp.asarray(reals), batch=2)
    np.testing.assert_array_equal(steps, expected(x))
    np.testing.assert_array_equal(tosajax.dump(quantized(), reals, batch=2)["out"], expected(x))
    np.testing.assert_array_equal(
        tosajax.dump(quantized(), jnp.asarray(reals), batch=2)["out"], expected(x)
    )


def test_trouble():
    x, graph = small.images(2), small.two_layers()
    with pytest.raises(TypeError, match="input 'x' has type float32, expected int8"):
        tosajax.run(graph, x.astype(np.float32))
    with pytest.raises(ValueError, match=r"real=True .--real.: output 'out', INT8.* has no scale"):
        tosajax.run(graph, x, real=True)
    with pytest.raises(ValueError, match="2 inputs, the graph has 1"):
        tosajax.run(graph, x, x)
    for function in tosajax.run, tosajax.dump:
        with pytest.raises(ValueError, match="batch is 0"):
            function(graph, x, batch=0)
        with pytest.raises(ValueError, match="has no examples"):
            function(graph, x[:0])
    b = Builder()
    fixed = b.graph([b.op("REVERSE", b.const([1, 2], DType.INT32), axis=0)])
    with pytest.raises(ValueError, match="has no inputs"):
        tosajax.run(fixed)
