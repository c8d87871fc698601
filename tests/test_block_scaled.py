"""Block-scaled values: moved without a change, and carried by programs as one value."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import ml_dtypes
import numpy as np
import pytest

import tosajax
from tosajax.block_scaled import BlockScaled
from tosajax.lowering.build import build
from tosajax.runtime.batching import Batch, batched
from tosajax.runtime.program import Program

E8M0 = ml_dtypes.float8_e8m0fnu


def drawn(*shape: int, seed: int = 0) -> BlockScaled:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 16, shape).astype(np.uint8).astype(ml_dtypes.float4_e2m1fn)
    exponents = rng.integers(-3, 4, (*shape[:-1], shape[-1] // 32))
    return BlockScaled(values, np.exp2(exponents).astype(E8M0)).check()


def numbers(x: BlockScaled) -> np.ndarray:
    """The numbers, one by one in Python floats."""
    found = np.empty(x.shape, np.float32)
    for place in np.ndindex(*x.shape):
        *outer, inner = place
        found[place] = float(x.values[place]) * float(x.scales[(*outer, inner // x.block)])
    return found


@pytest.mark.parametrize("shape", [(32,), (2, 64), (3, 1, 96)])
def test_numbers(shape):
    x = drawn(*shape)
    assert x.shape == shape
    assert x.ndim == len(shape)
    np.testing.assert_array_equal(x.real(), numbers(x))


@pytest.mark.parametrize("shape", [(192,), (6, 32), (1, 3, 64), (2, 3, 32)])
def test_reshape_keeps_each_number(shape):
    x = drawn(2, 96)
    y = x.reshape(shape).check()
    assert y.shape == shape
    np.testing.assert_array_equal(y.real(), numbers(x).reshape(shape))
    assert y.reshape((2, 96)) == x


@pytest.mark.parametrize("perms", [(0, 1, 2), (1, 0, 2)])
def test_transpose_keeps_each_number(perms):
    x = drawn(2, 3, 64)
    np.testing.assert_array_equal(x.transpose(perms).check().real(), numbers(x).transpose(perms))


def test_refused():
    x = drawn(2, 3, 64)
    with pytest.raises(ValueError, match=r"shape is \(4, 96, 1\), expected blocks of 32 innermost"):
        x.reshape((4, 96, 1))
    with pytest.raises(ValueError, match=r"perms is \(0, 2, 1\), expected the innermost axis"):
        x.transpose((0, 2, 1))
    with pytest.raises(ValueError, match=r"shape \(2, 33\), expected an innermost axis of blocks"):
        BlockScaled(np.zeros((2, 33), np.int8), np.ones((2, 1), E8M0)).check()
    with pytest.raises(ValueError, match=r"scales have shape \(2, 2\), expected \(2, 1\)"):
        BlockScaled(np.zeros((2, 32), np.int8), np.ones((2, 2), E8M0)).check()
    with pytest.raises(ValueError, match=r"shape \(\), expected an innermost axis"):
        BlockScaled(np.zeros((), np.int8), np.ones((), E8M0)).check()


def test_equality_is_of_all_bits():
    x = drawn(2, 64)
    assert x == drawn(2, 64)
    assert x != drawn(2, 64, seed=1)
    assert x != BlockScaled(x.values, x.scales, block=16)
    assert x != BlockScaled(-x.values, x.scales)
    assert x != BlockScaled(x.values, x.scales * x.scales[:1, :1])
    assert x != x.values.tolist()
    zeros = (BlockScaled(np.full((1, 32), v, np.float32), x.scales[:1, :1]) for v in (0.0, -0.0))
    assert next(zeros) != next(zeros)


def test_a_program_carries_both_arrays_of_each_example():
    b = tosajax.Builder()
    x = b.input("x", tosajax.DType.INT8, (1, 2, 3, 64))
    y = b.op("IDENTITY", b.op("TRANSPOSE", x, perms=(0, 2, 1, 3)))
    graph = b.graph([y])
    kernels = SimpleNamespace(transpose=lambda x, perms: x.transpose(perms), identity=lambda x: x)
    function, params = build(graph, kernels=kernels)
    one, four = drawn(1, 2, 3, 64), drawn(4, 2, 3, 64)
    _, _, (result,) = jax.jit(function)(params, {}, one)
    assert result == one.transpose((0, 2, 1, 3))
    program = Program(function, params, graph.input_tensors, graph.output_tensors)
    whole = batched(program, Batch((True,), examples=4, at_once=4, micro_batch=2))
    _, _, (result,) = jax.jit(whole.function)(params, {}, four)
    assert result == four.transpose((0, 2, 1, 3))
