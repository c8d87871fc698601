"""Executables move bfloat16 without changing a bit, in shapes that XLA:CPU writes by element."""

from __future__ import annotations

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType

BITS = np.array([0x0001, 0x8001, 0x007F, 0x8000, 0x807F, 0x0040, 0x7F81, 0xFFFF], np.uint16)
BF16 = DType.BF16.storage


def bits(shape):
    return np.resize(BITS, shape)


def moved(make, *arrays):
    """The bits of the output of one operator, for bits of bfloat16 and indices."""
    builder = Builder()
    values = [x.view(BF16) if x.dtype == np.uint16 else x for x in arrays]
    types = [DType.BF16 if x.dtype == BF16 else DType.INT32 for x in values]
    inputs = [
        builder.input(f"input{i}", dtype, x.shape)
        for i, (dtype, x) in enumerate(zip(types, values, strict=True))
    ]
    executable = tosajax.compile(builder.graph([make(builder, *inputs)]))
    return np.asarray(executable(*values)[0]).view(np.uint16)


@pytest.mark.parametrize(
    ("shape", "multiples"),
    [((1, 1), (3, 2)), ((1, 3), (3, 2)), ((2, 1, 3), (2, 3, 1)), ((1, 3, 1, 2), (1, 3, 3, 3))],
)
def test_tile(shape, multiples):
    x = bits(shape)
    result = moved(lambda b, x: b.op("TILE", x, b.const_shape(multiples)), x)
    np.testing.assert_array_equal(result, np.tile(x, multiples))


@pytest.mark.parametrize(
    ("shape", "padding"),
    [((2, 1, 2, 3), (0, 1, 1, 2, 0, 0, 1, 2)), ((3,), (2, 5)), ((1, 1), (2, 2, 0, 2))],
)
def test_pad(shape, padding):
    x, value = bits(shape), np.array([1], np.uint16)

    def make(b, x):
        constant = b.const(value.view(BF16), DType.BF16)
        return b.op("PAD", x, b.const_shape(padding), constant)

    wanted = np.pad(x, np.reshape(padding, (-1, 2)), constant_values=1)
    np.testing.assert_array_equal(moved(make, x), wanted)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat_and_reverse(axis):
    x = bits((2, 1, 5))
    joined = moved(lambda b, x: b.op("CONCAT", x, x, axis=axis), x)
    np.testing.assert_array_equal(joined, np.concatenate([x, x], axis))
    turned = moved(lambda b, x: b.op("REVERSE", x, axis=axis), x)
    np.testing.assert_array_equal(turned, np.flip(x, axis))


def test_slice_transpose_and_reshape():
    x = bits((2, 3, 5))
    start, size = (1, 0, 1), (1, 3, 3)
    cut = moved(lambda b, x: b.op("SLICE", x, b.const_shape(start), b.const_shape(size)), x)
    np.testing.assert_array_equal(cut, x[1:2, :, 1:4])
    turned = moved(lambda b, x: b.op("TRANSPOSE", x, perms=(2, 0, 1)), x)
    np.testing.assert_array_equal(turned, x.transpose(2, 0, 1))
    flat = moved(lambda b, x: b.op("RESHAPE", x, b.const_shape((30,))), x)
    np.testing.assert_array_equal(flat, x.reshape(30))


@pytest.mark.parametrize("shape", [(2, 1, 17), (1, 1, 3), (2, 3, 5)])
def test_gather_and_scatter(shape):
    x = bits(shape)
    indices = np.resize(np.arange(shape[1], dtype=np.int32), (shape[0], 4))
    rows = moved(lambda b, x, i: b.op("GATHER", x, i), x, indices)
    np.testing.assert_array_equal(rows, np.take_along_axis(x, indices[:, :, None], 1))
    last = np.full((shape[0], 1), shape[1] - 1, np.int32)
    new = bits((shape[0], 1, shape[2]))[:, :, ::-1].copy()
    result = moved(lambda b, x, i, new: b.op("SCATTER", x, i, new), x, last, new)
    np.testing.assert_array_equal(result, np.concatenate([x[:, :-1], new], 1))
