"""Gradients of exact integers, against differences of the integers themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.transforms import assert_identical

from tosajax import DType, grad, ops
from tosajax.grad import (
    QTensor,
    conv,
    data_layout,
    elementwise_binary,
    elementwise_ternary,
    image,
    pool,
    products,
    reduction,
    scatter_gather,
    type_conversion,
)
from tosajax.grad import activation as act
from tosajax.grad import elementwise_unary as unary
from tosajax.spec.enums import NanMode, ResizeMode, RoundingMode

NEAREST = ResizeMode.NEAREST_NEIGHBOR
RNG = np.random.default_rng(7)
ZERO = np.zeros(1, np.int8)


def draw(shape: tuple[int, ...], dtype: Any = np.int8, size: int = 60) -> np.ndarray:
    return RNG.integers(-size, size + 1, shape).astype(dtype)


def moves(
    function: Callable[..., Any], operands: list[np.ndarray], along: Mapping[int, np.ndarray]
) -> dict[int, np.ndarray]:
    """The derivatives of the result by some operands, each in one direction."""

    @jax.jit
    def run(operands: list[jax.Array], along: Mapping[int, jax.Array]) -> dict[int, jax.Array]:
        def of(at: int, shadow: jax.Array) -> jax.Array:
            given = [QTensor.of(x) for x in operands]
            given[at] = QTensor(given[at].q, shadow)
            return function(*given).shadow

        shadows = {at: operands[at].astype(jnp.float32) for at in along}
        return {
            at: jax.jvp(functools.partial(of, at), (shadows[at],), (by,))[1]
            for at, by in along.items()
        }

    found = run(operands, {at: by.astype(np.float32) for at, by in along.items()})
    return {at: np.asarray(x) for at, x in found.items()}


def moved(
    function: Callable[..., Any], operands: list[np.ndarray], at: int, by: np.ndarray
) -> np.ndarray:
    """The derivative of the result by one operand, in one direction."""
    return moves(function, operands, {at: by})[at]


def pulled(function: Callable[..., Any], by: Any, *inputs: Any) -> Any:
    """The gradients by all inputs of the result weighted."""
    return jax.jit(lambda by, *inputs: jax.vjp(function, *inputs)[1](by))(by, *inputs)


CONV = {"pad": (1, 0, 0, 1), "stride": (2, 1), "dilation": (1, 2), "acc_type": DType.INT32}
WEIGHTS = [draw((1, 5, 6, 3)), draw((4, 3, 2, 3)), draw((4,), np.int32), draw((1,)), draw((1,))]
DEPTHWISE = [draw((1, 5, 6, 3)), draw((3, 2, 3, 2)), draw((6,), np.int32), draw((1,)), draw((1,))]
DEEP = [draw((1, 3, 4, 4, 2)), draw((3, 2, 2, 1, 2)), draw((3,), np.int32), draw((1,)), draw((1,))]
SPREAD = {"out_pad": (1, 0, 0, -1), "stride": (2, 1), "acc_type": DType.INT32}
GRID = {"scale": (4, 2, 6, 2), "offset": (-1, 1), "border": (1, 0)}
PAIR = [draw((2, 3)), draw((1, 3))]
WIDE = [draw((2, 3), np.int32), draw((1, 3), np.int32)]
# Linear in each operand by itself: a step in any direction gives the derivative, to the last bit.
LINEAR: dict[str, tuple[Any, Any, list[Any]]] = {
    "conv2d": (conv.conv2d, functools.partial(ops.conv2d, **CONV), WEIGHTS),
    "conv3d": (
        conv.conv3d,
        functools.partial(
            ops.conv3d,
            pad=(1, 0, 0, 0, 1, 1), stride=(1, 2, 1), dilation=(1, 1, 1), acc_type=DType.INT32,
        ),
        DEEP,
    ),
    "depthwise_conv2d": (
        conv.depthwise_conv2d, functools.partial(ops.depthwise_conv2d, **CONV), DEPTHWISE,
    ),
    "transpose_conv2d": (
        conv.transpose_conv2d, functools.partial(ops.transpose_conv2d, **SPREAD), WEIGHTS,
    ),
    "matmul": (
        products.matmul, functools.partial(ops.matmul, out_type=DType.INT32),
        [draw((2, 3, 4)), draw((2, 4, 5)), draw((1,)), draw((1,))],
    ),
    "matmul_t": (
        products.matmul_t, functools.partial(ops.matmul_t, out_type=DType.INT32),
        [draw((2, 3, 4)), draw((2, 5, 4)), draw((1,)), draw((1,))],
    ),
    "matmul_t, one matrix": (
        products.matmul_t, functools.partial(ops.matmul_t, out_type=DType.INT32),
        [draw((2, 3, 4)), draw((1, 5, 4)), draw((1,)), draw((1,))],
    ),
    "add": (elementwise_binary.add, ops.add, WIDE),
    "sub": (elementwise_binary.sub, ops.sub, WIDE),
    "mul": (elementwise_binary.mul, ops.mul, [*PAIR, ZERO]),
    "negate": (unary.negate, ops.negate, [draw((5,)), draw((1,), size=20), draw((1,), size=20)]),
    "reduce_sum": (reduction.reduce_sum, functools.partial(ops.reduce_sum, axis=0), WIDE[:1]),
    "resize bilinear": (
        image.resize,
        functools.partial(ops.resize, **GRID, mode=ResizeMode.BILINEAR, out_type=DType.INT32),
        [draw((1, 3, 3, 2))],
    ),
    "resize nearest": (
        image.resize,
        functools.partial(ops.resize, **GRID, mode=NEAREST, out_type=DType.INT8),
        [draw((1, 3, 3, 2))],
    ),
    "table of int16": (
        elementwise_binary.table, ops.table, [draw((9,), np.int16, 30000), draw((513,), np.int16)],
    ),
    "pad": (
        data_layout.pad, lambda x, value: ops.pad(x, (1, 0, 2, 1), value), [PAIR[0], draw((1,))],
    ),
    "tile": (data_layout.tile, lambda x: ops.tile(x, (2, 3)), PAIR[:1]),
    "transpose": (data_layout.transpose, functools.partial(ops.transpose, perms=(1, 0)), PAIR[:1]),
    "slice": (data_layout.slice, lambda x: ops.slice(x, (1, 0), (1, 2)), PAIR[:1]),
}  # fmt: skip
STATIC = {
    "pad": lambda x, value: data_layout.pad(x, (1, 0, 2, 1), value),
    "tile": lambda x: data_layout.tile(x, (2, 3)),
    "slice": lambda x: data_layout.slice(x, (1, 0), (1, 2)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_in_each_operand(name):
    own, kernel, operands = LINEAR[name]
    keywords = getattr(kernel, "keywords", {})
    own = STATIC.get(name, functools.partial(own, **keywords))
    skipped = {"mul": 2, "table of int16": 0}.get(name)
    along = {at: RNG.integers(-3, 4, x.shape) for at, x in enumerate(operands) if at != skipped}
    plain, found = jax.jit(kernel), moves(own, operands, along)
    before = np.asarray(plain(*operands)).astype(np.int64)
    for at, by in along.items():
        stepped = [*operands]
        stepped[at] = (operands[at] + by).astype(operands[at].dtype)
        want = np.asarray(plain(*stepped)) - before
        np.testing.assert_allclose(found[at], want, rtol=1e-6, atol=1e-3)


def scale_operands(x: np.ndarray, scale: float, zero_in: int, zero_out: int) -> list[np.ndarray]:
    multiplier, shift = round(scale * 2**38), 38
    return [
        x,
        np.array([multiplier], np.int32),
        np.array([shift], np.int8),
        np.array([zero_in], x.dtype),
        np.array([zero_out], np.int8),
    ]


RESCALE: dict[str, Any] = {
    "scale32": True,
    "rounding_mode": RoundingMode.SINGLE_ROUND,
    "per_channel": False,
    "input_unsigned": False,
    "output_unsigned": False,
}


def test_rescale():
    scale, zero_out = 2.0**-9, 5
    low, high = (-128 - zero_out) / scale, (127 - zero_out) / scale
    x = np.array([low - 1, low, -999, 0, 1000, high, high + 1]).astype(np.int32)
    operands = scale_operands(x, scale, 0, zero_out)
    rescale = functools.partial(type_conversion.rescale, **RESCALE)
    inside = np.array([0, 1, 1, 1, 1, 1, 0])
    ones = np.ones(7)
    found = moves(rescale, operands, {0: ones} | {at: np.ones(1) for at in (1, 2, 3, 4)})
    np.testing.assert_allclose(found[0], inside * scale)
    # By the scale: the shadow of the multiplier.
    np.testing.assert_allclose(found[1], inside * x)
    np.testing.assert_array_equal(found[2], 0 * x)
    np.testing.assert_allclose(found[3], -inside * scale)
    np.testing.assert_array_equal(found[4], inside)
    free = functools.partial(rescale, estimate=grad.ste)
    np.testing.assert_allclose(moved(free, operands, 0, ones), np.full(7, scale))


@pytest.mark.parametrize("unsigned", [False, True])
def test_rescale_of_each_channel(unsigned):
    x = draw((3, 2), size=127)
    multiplier, shift = np.array([2**30, 2**30], np.int32), np.array([30, 32], np.int8)
    operands = [x, multiplier, shift, np.array([7], np.int8), np.array([-3], np.int16)]
    options = RESCALE | {"per_channel": True, "input_unsigned": unsigned}
    rescale = functools.partial(type_conversion.rescale, **options)
    numbers = x.view(np.uint8) if unsigned else x
    found = moves(rescale, operands, {0: np.ones((3, 2)), 1: np.array([1, 10])})
    np.testing.assert_allclose(found[0], [[1, 0.25]] * 3)
    np.testing.assert_allclose(found[1], (numbers.astype(float) - 7) * [1, 10])


def test_table_of_int8():
    table = draw((256,), size=127)
    x = np.array([-128, -126, -5, 0, 100, 127], np.int8)
    slopes = []
    for at in x.astype(int) + 128:
        near = np.arange(max(0, at - 4), min(255, at + 4) + 1)
        slopes.append(np.polyfit(near, table[near].astype(float), 1)[0])
    operands = [x, table]
    found = moved(elementwise_binary.table, operands, 0, np.ones(6))
    np.testing.assert_allclose(found, slopes, rtol=1e-4, atol=1e-4)
    by = RNG.normal(size=256)
    by_entries = moved(elementwise_binary.table, operands, 1, by)
    np.testing.assert_allclose(by_entries, by[x.astype(int) + 128], rtol=1e-6)


def test_table_of_int16_has_the_slope_between_entries():
    table = draw((513,), np.int16, 9000)
    x = np.array([-32768, -32700, -1, 0, 126, 32766], np.int16)
    found = moved(elementwise_binary.table, [x, table], 0, np.ones(6))
    at = (x.astype(int) + 32768) >> 7
    np.testing.assert_array_equal(found, table[at + 1].astype(int) - table[at])


def test_average_pool_counts_what_is_inside():
    window: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "pad": (1, 0, 0, 1)}
    x = draw((1, 3, 3, 1), size=30)
    average = functools.partial(pool.avg_pool2d, acc_type=DType.INT32, **window)
    by = np.arange(1.0, 10).reshape(1, 3, 3, 1)
    want = np.array([(1 + 2) / 2, 3, (4 + 5 + 7 + 8) / 4, (6 + 9) / 2]).reshape(1, 2, 2, 1)
    operands = [x, np.array([3], np.int8), np.array([-2], np.int8)]
    found = moves(average, operands, {0: by, 1: np.ones(1), 2: np.ones(1)})
    np.testing.assert_allclose(found[0], want, rtol=1e-6)
    np.testing.assert_allclose(found[1], -np.ones_like(want))
    np.testing.assert_allclose(found[2], np.ones_like(want))


def gradient(function: Callable[..., Any], *operands: Any) -> list[np.ndarray]:
    """Of the sum of the result, by the shadow of each operand."""

    @jax.jit
    def run(operands: Any) -> list[jax.Array]:
        def total(shadows: list[jax.Array]) -> jax.Array:
            given = [QTensor(x.q, s) for x, s in zip(operands, shadows, strict=True)]
            return function(*given).shadow.sum()

        return jax.grad(total)([x.shadow for x in operands])

    return [np.asarray(x) for x in run(operands)]


def slopes_of(function: Callable[[jax.Array], jax.Array], x: Any) -> np.ndarray:
    """Of the sum of a function of floats."""
    sum_of = jax.jit(jax.grad(lambda x: function(x).astype(jnp.float32).sum()))
    return np.asarray(sum_of(np.asarray(x)))


def q(values: Any, shadow: Any = None, dtype: Any = np.int8) -> QTensor:
    values = np.asarray(values, dtype)
    real = np.asarray(values if shadow is None else shadow, np.float32)
    return QTensor(jax.device_put(values), jax.device_put(real))


def test_the_larger_shadow_wins():
    a, b = q([3, 3, 3, 1], [3.2, 2.9, 3.0, 1]), q([3, 3, 3, 2], [3.1, 3.1, 3.0, 2])
    first, second = gradient(elementwise_binary.maximum, a, b)
    np.testing.assert_array_equal(first, [1, 0, 0.5, 0])
    np.testing.assert_array_equal(second, [0, 1, 0.5, 1])
    (found,) = gradient(functools.partial(reduction.reduce_min, axis=0), a)
    np.testing.assert_array_equal(found, [0, 0, 0, 1])
    x = q([[[[5], [5]], [[5], [4]]]], [[[[4.8], [5.1]], [[4.9], [4]]]])
    pooled = functools.partial(pool.max_pool2d, kernel=(2, 2), stride=(1, 1), pad=(0, 0, 0, 0))
    (found,) = gradient(pooled, x)
    np.testing.assert_array_equal(found.ravel(), [0, 1, 0, 0])


def test_clamp_at_its_bounds():
    clamp = functools.partial(act.clamp, min_val=np.int8(0), max_val=np.int8(6))
    (found,) = gradient(clamp, q([-1, 0, 3, 6, 6, 9], [-0.6, 0, 3, 6, 6.4, 9]))
    np.testing.assert_array_equal(found, [0, 1, 1, 1, 0, 0])
    x = jnp.array([-1.0, 0.0, 3.0, 6.0, 9.0, jnp.nan])
    floats = slopes_of(lambda x: act.clamp(x, min_val=0.0, max_val=6.0)[:5], x)
    np.testing.assert_array_equal(floats[:5], [0, 1, 1, 1, 0])


def test_clamp_moves_its_bounds():
    def clamp(x: Any, low: Any, high: Any) -> Any:
        return act.clamp(x, min_val=low, max_val=high)

    values = [-1, 0, 3, 6, 6, 6, 9], [-0.6, 0, 3, 6, 6.3, 6.4, 9]
    # A scalar and, as zero points are, a list of one; bounds are the integers.
    low, high = q(0), q([6], [6.3])
    x = q(*values)
    result = clamp(x, low, high)
    np.testing.assert_array_equal(result.q, [0, 0, 3, 6, 6, 6, 6])
    np.testing.assert_array_equal(result.shadow, [0, 0, 3, 6, 6, 6, 6])
    by_x, by_low, by_high = gradient(clamp, x, low, high)
    np.testing.assert_array_equal(by_x, [0, 1, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(by_low, 1)
    np.testing.assert_array_equal(by_high, [3])
    # Equal bounds: x keeps the gradient at them.
    for found, want in zip(
        gradient(clamp, x, q(3), q(3)), ([0, 0, 1, 0, 0, 0, 0], 2, 4), strict=True
    ):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_clamp_moves_traced_bounds_of_floats(dtype):
    x = jnp.array([-1, 0, 3, 6, 9, jnp.nan, jnp.inf], dtype)

    for mode, to_low in ((NanMode.PROPAGATE, 1), (NanMode.IGNORE, 2)):

        def clamp(x: jax.Array, low: jax.Array, high: jax.Array, mode=mode) -> jax.Array:
            return act.clamp(x, min_val=low, max_val=high, nan_mode=mode)

        @jax.jit
        def run(x: jax.Array, clamp=clamp, mode=mode) -> Any:
            result, pull = jax.vjp(clamp, x, jnp.float32(0), jnp.float32(6))
            plain = ops.clamp(x, min_val=0.0, max_val=6.0, nan_mode=mode)
            return result, plain, pull(jnp.ones_like(x))

        result, plain, (by_x, by_low, by_high) = run(x)
        assert_identical(result, plain)
        np.testing.assert_array_equal(np.asarray(by_x).astype(np.float32), [0, 1, 1, 1, 0, 0, 0])
        np.testing.assert_array_equal([by_low, by_high], [to_low, 2])


def test_clamp_maps_over_its_bounds():
    x = q([-3, 1, 8])

    def by_high(high: jax.Array) -> jax.Array:
        bound = QTensor(jnp.round(high).astype(jnp.int8), high)
        return act.clamp(x, min_val=np.int8(0), max_val=bound).shadow.sum()

    slopes = jax.jit(jax.vmap(jax.grad(by_high)))(jnp.array([0.0, 1.0, 7.6, 8.0, 9.0]))
    np.testing.assert_array_equal(slopes, [2, 1, 0, 0, 0])


def test_nan_has_no_gradient():
    nan = np.nan
    a, b = np.array([[nan, 1, nan, 2], [1, nan, nan, 2]], np.float32)
    for own in (elementwise_binary.maximum, elementwise_binary.minimum):
        for mode, first, second in (
            (NanMode.PROPAGATE, [0, 0, 0, 0.5], [0, 0, 0, 0.5]),
            (NanMode.IGNORE, [0, 1, 0, 0.5], [1, 0, 0, 0.5]),
        ):
            slopes = pulled(functools.partial(own, nan_mode=mode), np.ones(4, np.float32), a, b)
            np.testing.assert_array_equal(slopes, [first, second])
    x = np.array([[nan, 2, 2, 1], [nan, nan, nan, nan]], np.float32)
    by = np.ones((2, 1), np.float32)
    image = x.reshape(2, 2, 2, 1)
    window: dict[str, Any] = {"kernel": (2, 2), "stride": (1, 1), "pad": (0, 0, 0, 0)}
    for mode in NanMode:
        want = np.array([[0, 0.5, 0.5, 0], [0, 0, 0, 0]]) * (mode is NanMode.IGNORE)
        largest = functools.partial(reduction.reduce_max, axis=1, nan_mode=mode)
        np.testing.assert_array_equal(pulled(largest, by, x)[0], want)
        least = functools.partial(reduction.reduce_min, axis=1, nan_mode=mode)
        np.testing.assert_array_equal(pulled(least, by, -x)[0], want)
        pooled = functools.partial(pool.max_pool2d, nan_mode=mode, **window)
        (found,) = pulled(pooled, by.reshape(2, 1, 1, 1), image)
        np.testing.assert_array_equal(found.reshape(2, 4), want)


def test_equal_ones_share():
    for own, values in ((reduction.reduce_max, [3, 3, 3, 1]), (reduction.reduce_min, [1, 1, 1, 3])):
        (found,) = gradient(functools.partial(own, axis=0), q(values))
        np.testing.assert_allclose(found, [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)
    window: dict[str, Any] = {"kernel": (2, 2), "stride": (1, 1), "pad": (1, 0, 0, 0)}
    (found,) = gradient(functools.partial(pool.max_pool2d, **window), q(np.ones((1, 1, 3, 1))))
    np.testing.assert_array_equal(found.ravel(), [0.5, 1, 0.5])


def test_absolute_values_are_level_at_zero():
    (found,) = gradient(unary.abs, q([-4, 0, 5], dtype=np.int32))
    np.testing.assert_array_equal(found, [-1, 0, 1])
    floats = slopes_of(unary.abs, np.array([-4, 0, -0.0, 5], np.float32))
    np.testing.assert_array_equal(floats, [-1, 0, 0, 1])


def test_saturation_begins_beyond_the_range():
    # Results of 128, 127 and 5; then of -129, -128 and -1.
    for x, zero_in, inside in (([-123, -122, 0], 3, [0, 1, 1]), ([127, 126, -1], -4, [0, 1, 1])):
        by_x, by_in, by_out = gradient(unary.negate, q(x), q([zero_in]), q([2]))
        np.testing.assert_array_equal(by_x, np.negative(inside))
        np.testing.assert_array_equal([by_in, by_out], [[2], [2]])
    window: dict[str, Any] = {"kernel": (1, 2), "stride": (1, 2), "pad": (0, 0, 0, 0)}
    average = functools.partial(pool.avg_pool2d, acc_type=DType.INT32, **window)
    x = q(np.reshape([100, 101, 100, 100, -101, -101, -101, -102], (1, 4, 2, 1)))
    for zero_out, inside in ((27, [0, 1, 1, 1]), (-27, [1, 1, 1, 0])):
        found, _, by_zp = gradient(average, x, q([0]), q([zero_out]))
        np.testing.assert_array_equal(found.ravel(), np.repeat(inside, 2) / 2)
        np.testing.assert_array_equal(by_zp, [3])


def test_estimators_of_what_is_shifted_and_divided():
    ramps = grad.pwl(0.5)  # 2 within a quarter of a step, else 0
    x, eighth, three = (q(v, dtype=np.int32) for v in ([-9, -12, 9, 12, 1], [8], [3]))
    shift = elementwise_binary.arithmetic_right_shift
    for own, by, steps in (
        # 1/8 lies by a step of rounding down, and far from those of truncation.
        (functools.partial(shift, round=False), three, [2, 0, 2, 0, 2]),
        (functools.partial(shift, round=True), three, [0, 2, 0, 2, 0]),
        (elementwise_binary.intdiv, eighth, [2, 0, 2, 0, 0]),
    ):
        for estimate, want in ((grad.zero, 0), (grad.ste, 1), (ramps, np.array(steps))):
            found, _ = gradient(functools.partial(own, estimate=estimate), x, by)
            np.testing.assert_array_equal(found, np.broadcast_to(want, 5) / 8)
            real = own(x, by, estimate=estimate).shadow
            np.testing.assert_array_equal(real, np.asarray(x.q) / 8)


def test_left_shifts_are_level_but_by_choice():
    x, by = q([1, 100, -64, -65]), q([3, 1, 1, 1])
    for estimate, want in (
        (None, [0, 0, 0, 0]), (grad.ste, [8, 2, 2, 2]), (grad.clipped_ste, [8, 0, 2, 0]),
    ):  # fmt: skip
        options = {"estimate": estimate} if estimate else {}
        shift = functools.partial(elementwise_binary.logical_left_shift, **options)
        np.testing.assert_array_equal(gradient(shift, x, by)[0], want)
        np.testing.assert_array_equal(shift(x, by).q, [8, -56, -128, 126])
        np.testing.assert_array_equal(shift(x, by).shadow, [8, -56, -128, 126])


def test_shifts_and_quotients():
    x, by = q([-20, 7, 0], dtype=np.int32), q([2, 3, 31], dtype=np.int32)
    shifted = functools.partial(elementwise_binary.arithmetic_right_shift, round=True)
    first, second = gradient(shifted, x, by)
    np.testing.assert_array_equal(first, [0.25, 0.125, 2.0**-31])
    np.testing.assert_array_equal(second, [0, 0, 0])
    first, second = gradient(elementwise_binary.intdiv, x, by)
    np.testing.assert_allclose(first, [1 / 2, 1 / 3, 1 / 31], rtol=1e-6)
    np.testing.assert_allclose(second, [20 / 4, -7 / 9, 0], rtol=1e-6)
    for amount in (0, 4, 31, 63):
        product = functools.partial(elementwise_binary.mul, shift=q([amount]))
        first, second = gradient(product, x, by)
        np.testing.assert_array_equal(first, np.array([2, 3, 31]) / 2.0**amount)
        np.testing.assert_array_equal(second, np.array([-20, 7, 0]) / 2.0**amount)
    assert not gradient(elementwise_binary.bitwise_and, x, by)[0].any()


def test_casts():
    cast = type_conversion.cast
    (found,) = gradient(
        functools.partial(cast, out_type=DType.INT8), q([5, 300, -129], None, np.int32)
    )
    np.testing.assert_array_equal(found, [1, 0, 0])
    (found,) = gradient(functools.partial(cast, out_type=DType.INT32), q([5, -5]))
    np.testing.assert_array_equal(found, [1, 1])
    x = jnp.array([0.4, -200.0, 127.0, 127.3])
    floats = slopes_of(lambda x: cast(x, out_type=DType.INT8).shadow, x)
    np.testing.assert_array_equal(floats, [1, 0, 1, 0])
    large = slopes_of(functools.partial(cast, out_type=DType.FP16), np.array([1, 1e6], np.float32))
    np.testing.assert_array_equal(large, [1, 0])
    for out_type, kept in ((DType.FP8E4M3, [1, 1, 0, 0, 0]), (DType.FP8E5M2, [1, 1, 1, 0, 0])):
        values = np.array([-448, 1e-9, 480, 1e5, np.nan], np.float32)
        narrow = slopes_of(functools.partial(cast, out_type=out_type), values)
        np.testing.assert_array_equal(narrow, kept)
    for out_type, x, kept in (
        (DType.FP16, np.array([-65504, 70000], np.int32), [1, 0]),
        (DType.FP32, np.array([7], np.int8), [1]),
    ):
        real = slopes_of(
            lambda s, q=x, to=out_type: cast(QTensor(jnp.asarray(q), s), out_type=to),
            x.astype(np.float32),
        )
        np.testing.assert_array_equal(real, kept)


def test_choice_and_rows():
    a, b = q([1, 2, 3]), q([4, 5, 6])
    chosen = functools.partial(elementwise_ternary.select, jnp.array([True, False, True]))
    first, second = gradient(chosen, a, b)
    np.testing.assert_array_equal([first, second], [[1, 0, 1], [0, 1, 0]])
    values, indices = q([[[1], [2], [3]]]), q([[0, 0, 2]], dtype=np.int32)
    first, _ = gradient(scatter_gather.gather, values, indices)
    np.testing.assert_array_equal(first.ravel(), [2, 0, 1])
    first, _, last = gradient(scatter_gather.scatter, values, q([[1]], dtype=np.int32), q([[[9]]]))
    np.testing.assert_array_equal(first.ravel(), [1, 0, 1])
    np.testing.assert_array_equal(last.ravel(), [1])


def test_floor_is_level_but_by_choice():
    x = jnp.array([0.4, 1.6])
    assert not slopes_of(unary.floor, x).any()
    found = slopes_of(functools.partial(unary.ceil, estimate=grad.ste), x)
    np.testing.assert_array_equal(found, [1, 1])
    x = jnp.array([-1.9, -1.5, 0.1, 2.0])
    for own in (unary.floor, unary.ceil):  # which step at whole numbers
        found = slopes_of(functools.partial(own, estimate=grad.pwl(0.5)), x)
        np.testing.assert_array_equal(found, [0 if v == -1.5 else 2 for v in x])
