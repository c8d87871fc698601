"""Depthwise convolutions of real numbers: values, gradients of any order, batches."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from tosajax.grad.depthwise import depthwise
from tosajax.ops._window import Window

pytestmark = pytest.mark.usefixtures("quick")

# Size, stride, dilation, pad.
WINDOWS = {
    "plain": Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    "strided": Window((3, 3), (2, 2), (1, 1), ((0, 1), (0, 1))),
    "uneven": Window((2, 3), (3, 2), (2, 1), ((4, 0), (2, 3))),
    "dilated": Window((3, 2), (1, 1), (2, 3), ((0, 0), (0, 4))),
    "gaps": Window((1, 1), (2, 1), (1, 1), ((0, 0), (0, 0))),
}
SIZE = (9, 8)

windows = pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)


def operands(window: Window) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    taps = window.size[0] * window.size[1]
    return rng.normal(size=(2, *SIZE, 3)).astype("f4"), rng.normal(size=(taps, 3)).astype("f4")


def written_out(x: np.ndarray, weight: np.ndarray, window: Window) -> np.ndarray:
    """Element by element, float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), *window.pad, (0, 0)))
    height, width = window.out(x.shape)
    result = np.zeros((len(x), height, width, x.shape[-1]))
    for i, j in itertools.product(range(height), range(width)):
        for (down, right), factor in zip(window.offsets(), weight, strict=True):
            at = i * window.stride[0] + down, j * window.stride[1] + right
            result[:, i, j] += padded[:, *at] * factor
    return result


@windows
def test_values(window):
    x, weight = operands(window)
    found = depthwise(x, weight, window)
    np.testing.assert_allclose(found, written_out(x, weight, window), rtol=1e-5, atol=1e-5)


@windows
def test_gradients_of_each_order_and_mode(window):
    """It is linear in either operand, so that differences of float32 are good enough."""
    function = functools.partial(depthwise, window=window)
    check_grads(function, operands(window), order=3, atol=0.02, rtol=0.02)


@windows
def test_gradients_are_those_of_its_terms(window):
    x, weight = operands(window)
    slope = np.random.default_rng(1).normal(size=(2, *window.out(x.shape), 3)).astype("f4")
    by_x, by_weight = jax.vjp(functools.partial(depthwise, window=window), x, weight)[1](slope)
    # Linear: the derivative by an element is the result for that element alone.
    for at in [(0, 0, 0, 0), (1, 4, 3, 2), (1, 8, 7, 1), (0, 8, 0, 2)]:
        one = np.zeros_like(x)
        one[at] = 1
        expected = (written_out(one, weight, window) * slope).sum()
        np.testing.assert_allclose(by_x[at], expected, rtol=1e-4, atol=1e-4)
    for at in np.ndindex(weight.shape):
        one = np.zeros_like(weight)
        one[at] = 1
        expected = (written_out(x, one, window) * slope).sum()
        np.testing.assert_allclose(by_weight[at], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (2, 1), (None, 1), (3, None)])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("window", [WINDOWS["strided"], WINDOWS["uneven"]])
def test_batches_are_loops(window, axes, order):
    function: Any = functools.partial(depthwise, window=window)
    for _ in range(order):
        function = jax.grad(lambda *args, f=function: jnp.sin(jax.tree.leaves(f(*args))[0]).sum())
    examples = [operands(window)] * 3
    examples = [(x * (i + 1), weight - i) for i, (x, weight) in enumerate(examples)]
    stacked = [
        parts[0] if axis is None else np.stack(parts, axis)
        for parts, axis in zip(zip(*examples, strict=True), axes, strict=True)
    ]
    found = jax.vmap(function, axes)(*stacked)
    for i in range(3):
        one = [
            part if axis is None else np.take(part, i, axis)
            for part, axis in zip(stacked, axes, strict=True)
        ]
        np.testing.assert_allclose(found[i], function(*one), rtol=2e-3, atol=2e-3)


def test_gradients_have_few_instructions():
    """JAX's gradients of a sum over nine taps have two programs for each tap."""
    x, weight = operands(WINDOWS["plain"])
    function = functools.partial(depthwise, window=WINDOWS["plain"])
    gradient = jax.jit(jax.grad(lambda *args: (function(*args) ** 2).sum(), (0, 1)))
    text = gradient.lower(x, weight).compile().as_text()
    assert text is not None
    assert text.count("fusion(") <= 12
