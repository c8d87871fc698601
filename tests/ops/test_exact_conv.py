"""The routes of integer convolutions: every one equals the definition."""

from __future__ import annotations

import functools
import re

import jax
import numpy as np
import pytest
from oracle.device import on_cpu
from oracle.matmul_oracle import draw

from tosajax.dtypes import DType
from tosajax.ops._window import Window
from tosajax.ops.routes import (
    choose,
    constant,
    convolution,
    definition,
    patches,
)
from tosajax.ops.routes.operands import Convolution
from tosajax.ops.routes.route import Route

SHAPES = {
    # name: (x [N, ..., IC], OC, window)
    "same": ((2, 6, 5, 9), 20, Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))),
    "valid": ((1, 7, 6, 17), 3, Window((3, 2), (1, 1), (1, 1), ((0, 0), (0, 0)))),
    "strided": ((2, 9, 8, 8), 17, Window((3, 3), (2, 3), (1, 1), ((0, 1), (1, 0)))),
    "dilated": ((1, 9, 9, 8), 18, Window((3, 2), (1, 2), (2, 3), ((2, 1), (0, 3)))),
    "growing": ((1, 3, 4, 8), 20, Window((3, 3), (1, 1), (1, 1), ((2, 2), (2, 2)))),
    "padding alone": ((1, 2, 2, 8), 17, Window((2, 2), (3, 3), (1, 1), ((3, 3), (3, 3)))),
    "one tap": ((2, 4, 5, 6), 7, Window((1, 1), (2, 1), (1, 1), ((0, 0), (1, 0)))),
    "three channels": ((1, 6, 6, 3), 5, Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))),
    "one channel": ((1, 9, 5, 1), 8, Window((4, 3), (2, 2), (1, 1), ((1, 2), (0, 1)))),
    "one result": ((1, 3, 3, 16), 1, Window((3, 3), (1, 1), (1, 1), ((0, 0), (0, 0)))),
    "depth": (
        (2, 5, 4, 4, 4),
        17,
        Window((2, 3, 3), (2, 1, 1), (2, 1, 1), ((1, 0), (1, 1), (1, 1))),
    ),
    "many taps": ((1, 9, 12, 2), 18, Window((9, 8), (1, 1), (1, 1), ((4, 4), (4, 3)))),
}
# With int16, which takes the same windows, those that differ most.
INT16_SHAPES = ("same", "strided", "one tap", "depth", "many taps")
CASES = [
    pytest.param(shape, dtype, marks=[pytest.mark.slow] if is_more else [])
    for shape in SHAPES
    for dtype in (DType.INT8, DType.INT16)
    for is_more in [dtype is DType.INT16 and shape not in INT16_SHAPES]
]
ROUTES = [
    pytest.param(patches.run, id="patches"),
    pytest.param(convolution.run, id="convolution"),
]
POINTS = [-128, -1, 0, 127]
NO_PADDING = ((0, 0), (0, 0))


def convolve(x, weight, x_zp, weight_zp, window: Window):
    return choose.convolve_integers(Convolution(x, weight, x_zp, weight_zp, window))


def operands(shape: str, dtype: DType, rng, low: int = -128, high: int = 127):
    x_shape, oc, window = SHAPES[shape]
    x = draw(rng, dtype, x_shape)
    weight = np.clip(draw(rng, DType.INT8, (oc, *window.size, x_shape[-1])), low, high)
    return jax.device_put(x), weight, window


def point(value: int, dtype: DType = DType.INT8) -> np.ndarray:
    return np.full(1, value, dtype.storage)


def expected(x, weight, x_zp, weight_zp, window) -> np.ndarray:
    """By NumPy in int64, tap by tap."""
    wide = np.asarray(x).astype(np.int64) - int(x_zp[0])
    kernel = weight.astype(np.int64) - int(weight_zp[0])
    padded = np.pad(wide, [(0, 0), *window.pad, (0, 0)])
    out = window.out(x.shape)
    total = np.zeros((x.shape[0], *out, weight.shape[0]), np.int64)
    for tap in np.ndindex(*window.size):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, window.dilation, out, window.stride, strict=True)
        )
        total += padded[(slice(None), *at)] @ kernel[(slice(None), *tap)].T
    return total


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
@pytest.mark.parametrize("shape", SHAPES)
def test_definition(shape, dtype, rng):
    x, weight, window = operands(shape, dtype, rng)
    zps = point(-128 if dtype is DType.INT8 else 0, dtype), point(127)

    @jax.jit
    def defined(x, weight, x_zp, weight_zp):
        return definition.convolution(Convolution(x, weight, x_zp, weight_zp, window))

    # XLA:GPU does not convolve integers.
    result = defined(*(on_cpu(np.asarray(value)) for value in (x, weight, *zps)))
    np.testing.assert_array_equal(np.asarray(result), expected(x, weight, *zps, window))


# Zero points and limits of weights, and a zero point of the input that is also tried as a constant.
# Weights are prepared before any program, so that shapes take turns.
PREPARED = [(0, -128, 127, 0), (-128, -128, -1, -128), (127, -1, 127, None), (5, -100, 100, None)]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("shape", "dtype"), [c for c in CASES if "many taps" not in c.values])
def test_constant_weights(shape, dtype, route, monkeypatch, rng):
    monkeypatch.setattr(choose, "of_integers", lambda _: Route("forced", "by a test", route))
    turn = (list(SHAPES).index(shape) + (dtype is DType.INT16)) % 2
    for weight_zp, low, high, fixed in PREPARED[turn::2]:
        x, weight, window = operands(shape, dtype, rng, low, high)

        def call(x, x_zp, weight=weight, weight_zp=weight_zp, window=window):
            return convolve(x, weight, x_zp, point(weight_zp), window)

        traced = jax.jit(call)
        for x_zp in POINTS if dtype is DType.INT8 else [0]:
            given = point(x_zp, dtype)
            want = expected(x, weight, given, point(weight_zp), window)
            results = [traced(x, given)]
            if x_zp == fixed:
                results.append(jax.jit(functools.partial(call, x_zp=given))(x))
            for result in results:
                assert result.dtype == (np.int64 if dtype is DType.INT16 else np.int32)
                np.testing.assert_array_equal(np.asarray(result), want)


@pytest.mark.parametrize(("shape", "dtype"), CASES)
@pytest.mark.parametrize(
    "constant", ["neither", "weight", pytest.param("both", marks=pytest.mark.slow)]
)
def test_the_route_that_is_chosen(shape, dtype, constant, rng):
    x, weight, window = operands(shape, dtype, rng)
    route = functools.partial(convolve, window=window)
    of_all = jax.jit(route)
    # Of constants, one that leaves weights in int8 and one that does not.
    for weight_zp in POINTS if constant == "neither" else [0, 127]:
        known = point(weight_zp)
        by_x = jax.jit(lambda x, x_zp, zp=known: route(x, weight, x_zp, zp))
        for x_zp in POINTS if dtype is DType.INT8 else [0]:
            given = point(x_zp, dtype)
            if constant == "neither":
                result = of_all(x, weight, given, known)
            elif constant == "weight":
                result = by_x(x, given)
            else:
                result = jax.jit(lambda x, zps=(given, known): route(x, weight, *zps))(x)
            want = expected(x, weight, given, known, window)
            np.testing.assert_array_equal(np.asarray(result), want)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
def test_without_jit(dtype, rng):
    x, weight, window = operands("same", dtype, rng)
    zps = point(0 if dtype is DType.INT16 else -3, dtype), point(0)
    want = expected(x, weight, *zps, window)
    for given in (weight, jax.device_put(weight)):
        result = convolve(x, given, *zps, window)
        np.testing.assert_array_equal(np.asarray(result), want)


@pytest.mark.parametrize("channels", [131_071, 131_072])
def test_int16_sums_do_not_overflow(channels):
    window = Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))
    weight = np.full((1, 1, 1, channels), -128, np.int8)
    zps = point(0, DType.INT16), point(0)
    call = jax.jit(lambda x: convolve(x, weight, *zps, window))
    x = jax.device_put(np.zeros((1, 1, 1, channels), np.int16))
    known = Convolution(x, weight, *zps, window).known
    assert (known is not None) == (channels == 131_071)
    for value in (-32768, -32641, -1, 127, 32767):
        x = np.full((1, 1, 1, channels), value, np.int16)
        result = call(x)
        assert int(np.asarray(result).item()) == value * -128 * channels


def test_weights_beyond_int8_are_not_prepared():
    weight = np.array([-128, 127], np.int8).reshape(1, 1, 1, 2)
    x, window = jax.numpy.zeros((1, 1, 1, 2), np.int8), Window((1, 1), (1, 1), (1, 1), NO_PADDING)
    for zero_point, fits in ((0, True), (1, False), (-1, False)):
        c = Convolution(x, weight, point(0), point(zero_point), window)
        assert (c.known is not None) == fits
        if not fits:
            with pytest.raises(ValueError, match="not constants that int8 holds"):
                patches.run(c)


@pytest.mark.parametrize("pad", [((0, 0), (0, 0)), ((1, 1), (1, 1))])
def test_border_is_one_element_where_nothing_is_padded(pad):
    weight = np.ones((2, 3, 3, 4), np.int8)
    border = constant.border_of(weight, (1, 5, 6, 4), Window((3, 3), (1, 1), (1, 1), pad))
    padded = pad[0][0] > 0
    assert border.shape == ((1, 5, 6, 2) if padded else (1, 1, 1, 2))
    assert border[0, 0, 0].tolist() == ([16, 16] if padded else [36, 36])


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
@pytest.mark.parametrize("shape", ["same", "depth", "one tap"])
def test_transforms(shape, dtype, rng):
    x, weight, window = operands(shape, dtype, rng)
    zps = point(0 if dtype is DType.INT16 else -3, dtype), point(0)
    x = np.asarray(x)
    xs = np.stack([x, ~x, x[..., ::-1]])
    want = np.stack([expected(x, weight, *zps, window) for x in xs])

    def call(x):
        return convolve(x, weight, *zps, window)

    @jax.jit
    def together(xs):
        scanned = jax.lax.scan(lambda carry, x: (carry, call(x)), 0, xs)[1]
        return jax.vmap(call)(xs), jax.lax.map(call, xs), scanned

    results = [*together(xs), jax.vmap(jax.jit(call))(xs)]
    if shape == "one tap":
        results.append(jax.vmap(call)(xs))
    for result in results:
        np.testing.assert_array_equal(np.asarray(result), want)


FAST = {
    # name: (x [N, ..., IC], OC, window, route)
    "many channels": (
        (4, 8, 8, 32),
        32,
        Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
        "convolution",
    ),
    "strided": ((4, 8, 8, 16), 32, Window((3, 3), (2, 2), (1, 1), ((0, 1), (0, 1))), "convolution"),
    "dilated": ((4, 9, 9, 32), 32, Window((3, 3), (1, 1), (2, 2), ((2, 2), (2, 2))), "convolution"),
    "growing": ((4, 8, 8, 32), 32, Window((3, 3), (1, 1), (1, 1), ((2, 2), (2, 2))), "convolution"),
    "depth": (
        (1, 4, 8, 8, 8),
        32,
        Window((3, 3, 3), (1, 1, 1), (1, 1, 1), ((1, 1),) * 3),
        "convolution",
    ),
    "filled channels": (
        (4, 8, 8, 16),
        16,
        Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
        "convolution",
    ),
    "few channels": (
        (4, 8, 8, 11),
        16,
        Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
        "patches",
    ),
    "three channels": (
        (4, 8, 8, 3),
        16,
        Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
        "patches",
    ),
    "one tap": ((4, 8, 8, 32), 32, Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))), "dot"),
}


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="looks for the fast kernels of XLA:CPU")
@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
@pytest.mark.parametrize(
    ("case", "constant"),
    [
        *((case, True) for case in FAST),
        *((case, False) for case in ("many channels", "depth", "three channels", "one tap")),
    ],
)
def test_every_route_takes_the_fast_path(case, constant, dtype, rng):
    """XLA gives up its int8 kernels silently, and then takes 100 times as long."""
    x_shape, oc, window, name = FAST[case]
    x = jax.device_put(draw(rng, dtype, x_shape))
    weight = draw(rng, DType.INT8, (oc, *window.size, x_shape[-1]))
    zps = point(0 if dtype is DType.INT16 else 3, dtype), point(0)
    given = weight if constant else jax.device_put(weight)
    chosen = choose.of_integers(Convolution(x, given, *zps, window))
    assert chosen.name == (name if constant or name == "dot" else "patches")

    call = functools.partial(convolve, window=window)
    if constant:
        weight_and_zps = {"weight": weight, "x_zp": zps[0], "weight_zp": zps[1]}
        lowered = jax.jit(functools.partial(call, **weight_and_zps)).lower(x)
    else:
        lowered = jax.jit(call).lower(x, *map(jax.device_put, (weight, *zps)))
    text = str(lowered.compile().as_text())
    assert "ynn_fusion" in text
    program = text[text.index("ENTRY") :]
    assert not re.search(r"\b(dot|convolution)\(", program), "a slow kernel"


def test_no_64_bit_type_in_int8(rng):
    x, weight, window = operands("same", DType.INT8, rng)
    text = jax.jit(lambda x: convolve(x, weight, point(3), point(0), window))
    text = text.lower(x).as_text()
    assert not any(f"x{wide}>" in text for wide in ("i64", "ui64", "f64"))


@pytest.fixture
def rng():
    return np.random.default_rng(23)
