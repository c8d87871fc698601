"""Checks that a kernel has the same result under jit and vmap, and is traced once."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from oracle import float_bounds
from oracle.device import to_device


def bits(values) -> np.ndarray:
    """The bit patterns of an array, which compare NaN and signed zeros."""
    values = np.asarray(values)
    return np.atleast_1d(values).view(np.dtype(f"u{values.dtype.itemsize}"))


def assert_identical(result, expected) -> None:
    """Asserts the same type, shape and bits; any NaN stands for any other."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    if result.dtype.kind not in "iub":
        with np.errstate(invalid="ignore"):
            both = np.isnan(result) & np.isnan(expected)
        result = np.where(both, np.zeros((), result.dtype), result)
        expected = np.where(both, np.zeros((), expected.dtype), expected)
    np.testing.assert_array_equal(bits(result), bits(expected))


def assert_transforms(function: Callable[..., jax.Array], *inputs: jax.Array, exact=True) -> None:
    """Asserts jit == eager and, for every input batched alone and all together, vmap == loop.

    Without `exact`, floats may differ in the last places, as fusion reorders them.
    """
    compare = assert_identical if exact else _close
    traces = 0

    def counted(*args):
        nonlocal traces
        traces += 1
        return function(*args)

    compiled = jax.jit(counted)
    compare(compiled(*inputs), function(*inputs))
    compiled(*inputs)
    assert traces == 1
    every = range(len(inputs))
    variants = [np.stack([x, *_variants(x)]) for x in map(np.asarray, inputs)]
    choices = {*((i,) for i in every), tuple(every)}
    stacks = [
        tuple(to_device(variants[i]) if i in batched else inputs[i] for i in every)
        for batched in choices
    ]
    axes = [tuple(0 if i in batched else None for i in every) for batched in choices]

    @jax.jit
    def mapped(stacks):
        return [jax.vmap(function, a)(*s) for a, s in zip(axes, stacks, strict=True)]

    for batched, results in zip(choices, mapped(stacks), strict=True):
        for n in range(3):
            one = [to_device(variants[i][n]) if i in batched else inputs[i] for i in every]
            compare(results[n], compiled(*one))


def _variants(values: np.ndarray) -> list[np.ndarray]:
    """Two rearrangements of an array, or other values near it where it holds one."""
    if values.size > 1:
        return [np.roll(values, n) for n in (1, 2)]
    if values.dtype == np.bool_:
        return [~values, values]
    one = values.reshape(1)
    return [(one + one.dtype.type(n)).astype(one.dtype).reshape(values.shape) for n in (1, 2)]


def _close(result, expected) -> None:
    """A few units of float32 apart, which may round to neighbours in a narrower type."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.dtype == expected.dtype
    unit = max(2.0**-20, 2.0 ** -float_bounds.fraction_bits(result.dtype))
    wide = float_bounds.widen(result), float_bounds.widen(expected)
    np.testing.assert_allclose(*wide, rtol=unit, atol=2.0**-20)
