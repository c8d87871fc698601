"""Training programs compute each integer once: `once`, and how programs grow with a network."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, spec
from tosajax.grad import QTensor, tie
from tosajax.grad.conv import depthwise_conv2d
from tosajax.grad.elementwise_binary import add, sub
from tosajax.grad.once import gradient_once, held_in_gradients, once
from tosajax.grad.type_conversion import rescale


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_small_integers_are_themselves(dtype):
    info = np.iinfo(dtype)
    every = np.arange(info.min, info.max + 1).astype(dtype)
    found = jax.jit(once)(every)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, every)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_words_are_themselves(dtype):
    """Of floats, also -0, infinities, NaN and those below normal numbers."""
    ends = [0, 1, -1, 2**30, -(2**30), 2**31 - 1, -(2**31) + 1, -(2**31)]
    some = np.random.default_rng(0).integers(-(2**31), 2**31, 1000)
    every = np.concatenate([ends, some]).astype(np.int32)
    found = jax.jit(once)(every.view(dtype))
    np.testing.assert_array_equal(np.asarray(found).view(np.int32), every)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32])
def test_a_scalar_is_itself(dtype):
    found = jax.jit(once)(dtype(-7))
    assert found.dtype == dtype
    assert found.shape == ()
    assert found == -7


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int16, np.int32, np.float32])
def test_what_several_steps_read_is_computed_once(dtype):
    """Without `once`, XLA computes the product in each of the three steps."""

    def steps(x: jax.Array, hold: Callable[[jax.Array], jax.Array]) -> tuple[jax.Array, ...]:
        y = hold((x * 3).astype(dtype)).astype(np.int32)
        return y + 1, y[::-1], y >> 1

    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    products = [
        count(jax.jit(functools.partial(steps, hold=hold)).lower(x).compile(), " multiply(")
        for hold in (once, lambda x: x)
    ]
    assert products == [1, 3]


def test_scalars_are_computed_once_too():
    """Here the product of two scalars, which three loops over arrays read."""

    def steps(x: jax.Array, hold: Callable[[jax.Array], jax.Array]) -> tuple[jax.Array, ...]:
        y = hold(x[0, 0] * x[1, 1])
        return x + y, x[::-1] - y, x << y

    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    products = [
        count(jax.jit(functools.partial(steps, hold=hold)).lower(x).compile(), " multiply(")
        for hold in (once, lambda x: x)
    ]
    assert products == [1, 3]


@pytest.mark.parametrize(("dtype", "products"), [(np.int8, 1), (np.int16, 1), (np.int32, 3)])
def test_rescales_to_narrow_integers_are_computed_once(dtype, products):
    """Those to int32 go into sums, which are."""

    def steps(x: jax.Array) -> tuple[jax.Array, ...]:
        y = rescaled(QTensor.of(x), dtype).q
        return y + 1, y[::-1], y >> 1

    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    found = jax.jit(steps).lower(x).compile()
    assert count(found, " multiply(") == products


@pytest.mark.parametrize("wanted", ["add", "sub", "depthwise_conv2d"])
def test_sums_are_computed_once_where_gradients_are_asked_for(wanted):
    """Three steps read them. Inference is faster if each of the three computes them."""

    def steps(shadow: jax.Array, q: jax.Array) -> tuple[jax.Array, Any]:
        y = SUMS[wanted](QTensor(q, shadow))
        return tie(y).sum(), (y.q + 1, y.q[:, ::-1], y.q >> 1)

    q = np.arange(64, dtype=np.int8).reshape(1, 4, 4, 4)
    shadow = q.astype(np.float32)
    alone = jax.jit(lambda shadow, q: steps(shadow, q)[1])
    differentiated = jax.jit(jax.value_and_grad(steps, has_aux=True))
    found = [count(f.lower(shadow, q).compile(), " divide(") for f in (alone, differentiated)]
    assert found[0] == 0
    assert found[1] >= 1
    for integers, same in zip(alone(shadow, q), differentiated(shadow, q)[0][1], strict=True):
        np.testing.assert_array_equal(integers, same)


def test_integers_held_in_gradients_under_transforms():
    """Also with a batch of shadows beside the same integers."""

    def squares(shadow: jax.Array, q: Any) -> jax.Array:
        return (tie(held_in_gradients(QTensor(q, shadow))) ** 2).sum()

    q = np.arange(6, dtype=np.int32)
    shadows = np.ones((3, 6), np.float32)
    batch = jax.vmap(jax.grad(squares), (0, None))(shadows, q)
    np.testing.assert_array_equal(batch, np.tile(2.0 * q, (3, 1)))
    np.testing.assert_array_equal(jax.jacfwd(jax.grad(squares))(shadows[0], q), 2 * np.eye(6))
    loops = jax.grad(
        lambda s: jax.lax.scan(lambda c, x: (c + squares(s, x), None), 0.0, q[None])[0]
    )
    np.testing.assert_array_equal(loops(shadows[0]), 2.0 * q)


def test_bool_is_itself():
    every = np.array([False, True])
    np.testing.assert_array_equal(jax.jit(once)(every), every)


def window(x: QTensor) -> QTensor:
    """The sum over windows of 3 by 3."""
    weight, bias = (QTensor.of(np.ones(s, t)) for s, t in (((3, 3, 4, 1), "i1"), ((4,), "i4")))
    zeros = QTensor.known(np.zeros(1, np.int8)), QTensor.known(np.zeros(1, np.int8))
    options: dict[str, Any] = {"pad": (1,) * 4, "stride": (1, 1), "dilation": (1, 1)}
    return depthwise_conv2d(x, weight, bias, *zeros, acc_type=DType.INT32, **options)


def wide(x: QTensor) -> QTensor:
    return QTensor(x.q.astype(np.int32), x.shadow)


SUMS: dict[str, Callable[[QTensor], QTensor]] = {
    "add": lambda x: add(wide(x), wide(x)),
    "sub": lambda x: sub(wide(x), wide(window(x))),
    "depthwise_conv2d": window,
}


def rescaled(x: QTensor, dtype: Any) -> QTensor:
    """By 1, to integers of this type."""
    zeros = (QTensor.known(np.zeros(1, t)) for t in (x.dtype, dtype))
    scale = QTensor.of(np.array([1 << 30], np.int32)), QTensor.of(np.array([30], np.int8))
    options: dict[str, Any] = {"scale32": True, "rounding_mode": spec.RoundingMode.SINGLE_ROUND}
    signs = {"input_unsigned": False, "output_unsigned": False}
    return rescale(x, *scale, *zeros, per_channel=False, **options, **signs)


def test_the_smallest_int32_passes_a_rescale():
    x = QTensor.of(np.array([-(2**31), 2**31 - 1, -1], np.int32))
    np.testing.assert_array_equal(rescaled(x, np.int32).q, x.q)


def test_gradients_are_themselves():
    """Also infinite ones, NaN and those below normal numbers."""
    odd = [0.0, 1.5, -1.5, 1e-45, -1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan]
    x, slopes = np.ones(10, np.float32), np.array(odd, np.float32)
    y, pull = jax.vjp(jax.jit(gradient_once), x)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(jax.jit(lambda g: pull(g)[0])(slopes), slopes)
    _, tangent = jax.jvp(gradient_once, (x,), (slopes,))
    np.testing.assert_array_equal(tangent, slopes)


def test_gradients_under_transforms():
    def cubes(x: jax.Array) -> jax.Array:
        return (gradient_once(x) ** 3).sum()

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(jax.vmap(jax.grad(cubes))(x), 3 * x**2)
    hessian = jax.jacfwd(jax.grad(cubes))(x[0])
    np.testing.assert_array_equal(hessian, np.diag(6 * x[0]))
    np.testing.assert_array_equal(jax.jacrev(jax.grad(cubes))(x[0]), hessian)


def chain(blocks: int) -> tosajax.Graph:
    """Residual sums, each of a convolution of the one before, all in INT8."""
    b = Builder("chain")
    x = b.input("x", DType.INT8, (1, 4, 4, 8))
    rng = np.random.default_rng(0)
    no_zp = b.const([0], DType.INT8)
    options: dict[str, Any] = {
        "scale32": True,
        "rounding_mode": spec.RoundingMode.SINGLE_ROUND,
        "per_channel": False,
        "input_unsigned": False,
        "output_unsigned": False,
    }

    def rescale(x: tosajax.Tensor, dtype: DType, shift: int) -> tosajax.Tensor:
        zero_points = (b.const([0], t) for t in (x.dtype, dtype))
        scale = b.const([1 << 30], DType.INT32), b.const([shift], DType.INT8)
        return b.op("RESCALE", x, *scale, *zero_points, dtype=dtype, **options)

    for _ in range(blocks):
        weight = b.const(rng.integers(-9, 9, (8, 1, 1, 8)), DType.INT8)
        bias = b.const(np.zeros(8), DType.INT32)
        window: dict[str, Any] = {"pad": (0,) * 4, "stride": (1, 1), "dilation": (1, 1)}
        y = b.op("CONV2D", x, weight, bias, no_zp, no_zp, acc_type=DType.INT32, **window)
        wide = (rescale(t, DType.INT32, 20) for t in (x, rescale(y, DType.INT8, 36)))
        x = rescale(b.op("ADD", *wide), DType.INT8, 41)
    return b.graph([x])


def instructions(blocks: int) -> int:
    """How many the compiled gradient by all constants has, those of fusions included."""
    fn, params = tosajax.differentiable(chain(blocks))
    shadows = {name: value.shadow for name, value in params.items()}

    def loss(shadows: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        given = {name: QTensor(params[name].q, shadow) for name, shadow in shadows.items()}
        return (tie(fn(given, x)[0]) ** 2).sum()

    x = np.ones((1, 4, 4, 8), np.int8)
    return count(jax.jit(jax.grad(loss)).lower(shadows, x).compile())


def count(compiled: jax.stages.Compiled, word: str = " = ") -> int:
    text = compiled.as_text()
    assert text is not None
    return text.count(word)


def test_training_programs_grow_in_proportion_to_the_network():
    two, four, eight = map(instructions, (2, 4, 8))
    assert eight - four <= 2.2 * (four - two)
    assert (eight - four) / 4 <= 500  # of a block, two RESCALEs to INT8 and two to INT32
