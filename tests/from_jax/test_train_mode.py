"""Exports of networks in training mode are named: baked-in randomness, statistics of the batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tosajax
from tosajax.from_jax.tracing import traced
from tosajax.from_jax.train_mode import signs

IMAGES = np.ones((4, 6, 6, 2), np.float32)
ROWS = np.ones((5, 4), np.float32)
DRAWN, MIXED = "random bits that depend on no argument", "depends on the others of its batch"


class Net(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(2, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.drop(nnx.relu(self.norm(self.conv(x)))).mean((1, 2))


class Rows(nnx.Module):
    def __init__(self) -> None:
        self.norm = nnx.BatchNorm(4, rngs=nnx.Rngs(0))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(x)


def said(fn: Callable[..., Any], *args: Any, is_batch: bool = False) -> list[str]:
    return list(signs(traced(fn, args, None), is_batch=is_batch))


@pytest.mark.parametrize("count", [1, 4])
def test_a_network_of_flax_before_eval(count: int):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tosajax.export(Net(), IMAGES[:count], check=False)
    drawn, mixed = (str(warning.message) for warning in found)
    assert drawn.startswith(DRAWN)
    assert mixed.startswith(f"each example of 'output' {MIXED}")
    assert all("test_train_mode.py:" in text and "model.eval()" in text for text in (drawn, mixed))


@pytest.mark.parametrize("count", [1, 4])
def test_a_network_of_flax_after_eval(count: int):
    net = Net()
    net.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tosajax.export(net, IMAGES[:count], check=False)
        tosajax.export(net, IMAGES[:count], check=False, dynamic_batch=True)


def test_a_batch_norm_of_rows():
    (text,) = said(Rows(), ROWS)
    assert MIXED in text
    net = Rows()
    net.eval()
    assert said(net, ROWS) == []


def test_layers_are_named():
    def fn(x: jax.Array) -> jax.Array:
        with jax.named_scope("Dropout_0"):
            mask = jax.random.bernoulli(jax.random.key(0), 0.5, x.shape)
        return jnp.where(mask, x, 0)

    (text,) = said(fn, ROWS)
    assert "Dropout_0 (" in text


KEY = jax.random.key(3)


def in_scan(x: jax.Array) -> jax.Array:
    def turn(carry: tuple[jax.Array, jax.Array], row: jax.Array):
        key, total = carry
        key, use = jax.random.split(key)
        return (key, total + row), row + jax.random.normal(use, row.shape)

    return jax.lax.scan(turn, (KEY, jnp.zeros(4)), x)[1]


def in_while(x: jax.Array) -> jax.Array:
    def turn(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        at, y = state
        return at + 1, y + jax.random.uniform(KEY, y.shape)

    return jax.lax.while_loop(lambda s: s[0] < 3, turn, (jnp.int32(0), x))[1]


def in_cond(x: jax.Array) -> jax.Array:
    return jax.lax.cond(x[0, 0] > 0, lambda x: x + jax.random.normal(KEY, x.shape), jnp.abs, x)


@pytest.mark.parametrize("fn", [in_scan, in_while, in_cond, jax.jit(in_cond)])
def test_random_bits_inside_of_other_functions(fn: Callable[..., Any]):
    assert [text for text in said(fn, ROWS) if text.startswith(DRAWN)]


def test_random_bits_of_an_argument_or_of_no_use():
    def of_argument(x: jax.Array, seed: jax.Array) -> jax.Array:
        return x + jax.random.normal(jax.random.key(seed), x.shape)

    def unused(x: jax.Array) -> jax.Array:
        jax.random.normal(KEY, x.shape)
        return x * 2

    assert said(of_argument, ROWS, np.uint32(3)) == []
    assert said(unused, ROWS) == []


def attention(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x @ x.T) @ x


def norm_of_channels(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def by_the_loudest(x: jax.Array) -> jax.Array:
    return x / jnp.max(jnp.abs(x))


def by_the_largest(x: jax.Array) -> jax.Array:
    return x - x.max(0, keepdims=True)


def pooled(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def products_of_batches(x: jax.Array) -> jax.Array:
    """The examples are axis 2 of the product, behind a batch axis and a free one."""
    dims = (((2,), (3,)), ((0,), (1,)))
    return jax.lax.dot_general(jnp.ones((6, 3, 2)), x, dims)


def sums_before(x: jax.Array) -> jax.Array:
    """The examples are axis 1 of the sum, behind one axis that is summed and one that is not."""
    return x.transpose(1, 2, 0, 3).sum(1)


def flat(x: jax.Array) -> jax.Array:
    return x.reshape(len(x), -1) @ jnp.ones((72, 3)) + x.transpose(3, 0, 1, 2)[0, :, 0, :3]


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (attention, ROWS),  # The rows may be one sequence.
        (norm_of_channels, ROWS),
        (norm_of_channels, IMAGES),
        (by_the_loudest, IMAGES[:1]),
        (by_the_loudest, np.ones(8, np.float32)),
        (pooled, IMAGES),
        (flat, IMAGES),
        (jax.vmap(attention), np.ones((3, 5, 4), np.float32)),
        (lambda x: (x**2).mean(), IMAGES),  # A loss of the whole batch.
        (lambda x: x[:, ::-1].sum(1), IMAGES),
        (lambda x: jnp.sort(x, 1), IMAGES),
    ],
)
def test_functions_of_single_examples(fn: Callable[..., Any], x: np.ndarray):
    assert said(fn, x) == []


def test_the_axis_of_the_examples_in_results():
    for fn, rank, axis in ((products_of_batches, 4, 2), (sums_before, 3, 1)):
        for each in range(rank):
            text = said(lambda x, fn=fn, at=each: jnp.sort(fn(x), at), IMAGES, is_batch=True)
            assert len(text) == (each == axis)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x - x.mean(0, keepdims=True),
        by_the_largest,
        lambda x: jnp.sort(x, 0),
        lambda x: jnp.cumsum(x, 0),
        lambda x: jnp.einsum("nhwc,mhwc->nm", x, x) @ x.reshape(4, -1),
        lambda x: x.transpose(1, 0, 2, 3) * x.transpose(1, 0, 2, 3).sum(1, keepdims=True),
        by_the_loudest,
        jax.vmap(lambda x: x - jax.lax.pmean(x, "n"), axis_name="n"),
    ],
)
def test_examples_that_are_combined(fn: Callable[..., Any]):
    (text,) = said(fn, IMAGES, is_batch=True)
    assert MIXED in text
    assert said(fn, IMAGES) == []  # They may be something else.


def test_a_convolution_shows_what_a_batch_is():
    def fn(x: jax.Array) -> jax.Array:
        dims = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x, jnp.ones((3, 3, 2, 2)), (1, 1), "SAME", dimension_numbers=dims
        )
        return by_the_largest(y)

    (text,) = said(fn, IMAGES)
    assert MIXED in text


def test_the_user_says_that_rows_are_a_batch():
    assert said(attention, ROWS) == []
    assert MIXED in said(attention, ROWS, is_batch=True)[0]
    with pytest.warns(UserWarning, match=MIXED):
        tosajax.export(by_the_largest, ROWS, dynamic_batch=True, check=False)
