"""Fake quantization of QAT tools becomes the quantization that it is."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import stop_gradient

import tosajax
from tosajax import Builder, DType, quant
from tosajax.quant.graphs.fake_quants import FakeQuant
from tosajax.quant.graphs.simplify import simplified
from tosajax.quant.ranges.on_grid import ends_around_zero, largest_integers

S = np.float32(0.05)


@pytest.fixture(autouse=True)
def as_users_have_it() -> Iterator[None]:
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


X = 2 * drawn(64, 8)
Form = Callable[[Any], Any]


def rounded(x: Any) -> Any:
    """With straight-through code."""
    return x + stop_gradient(jnp.round(x) - x)


def limited(x: Any, low: float = -128, high: float = 127) -> Any:
    return jnp.clip(jnp.round(x / S), low, high)


def nearer(x: Any, half: float = 0.5, tie: float = 0.5) -> Any:
    """The nearer of floor and ceil, as torch-mlir writes a rounding."""
    floor = jnp.floor(x)
    fraction, is_even = x - floor, floor == jnp.floor(floor * 0.5) * 2
    return jnp.where((half > fraction) | ((fraction == tie) & is_even), floor, jnp.ceil(x))


def either(x: Any, below: Any, above: Any) -> Any:
    return jnp.where(x - jnp.floor(x) < 0.5, below, above)


def on_grid(x: Any, **options: float) -> Any:
    return jnp.clip(nearer(x / S, **options) + 3, -128, 127)


FORMS: dict[str, tuple[Form, int, int]] = {
    "plain": (lambda x: limited(x) * S, -128, 127),
    "narrow": (lambda x: limited(x, -127) * S, -127, 127),
    "unsigned": (lambda x: limited(x, 0, 255) * S, 0, 255),
    "6 bits": (lambda x: limited(x, -32, 31) * S, -32, 31),
    "2 bits": (lambda x: limited(x, -2, 1) * S, -2, 1),
    "16 bits": (lambda x: limited(x, -32768, 32767) * S, -32768, 32767),
    "zero point": (lambda x: (jnp.clip(jnp.round(x / S) + 3, -128, 127) - 3) * S, -131, 124),
    "zero point inside": (lambda x: (jnp.clip(jnp.round(x / S + 3), 0, 255) - 3) * S, -3, 252),
    "int8": (lambda x: limited(x).astype(jnp.int8).astype(jnp.float32) * S, -128, 127),
    "int32 zero point": (
        lambda x: (
            (jnp.clip(jnp.round(x / S).astype(jnp.int32) + 9, -128, 127) - 9).astype(jnp.float32)
            * S
        ),
        -137,
        118,
    ),
    "floor": (lambda x: jnp.clip(jnp.floor(x / S + 0.5), -128, 127) * S, -128, 127),
    "clip first": (lambda x: jnp.round(jnp.clip(x / S, -127, 127)) * S, -127, 127),
    "clip of reals": (lambda x: jnp.round(jnp.clip(x, -127 * S, 127 * S) / S) * S, -127, 127),
    "inverse": (lambda x: jnp.clip(jnp.round(x * (1 / S)), -127, 127) * S, -127, 127),
    "division": (lambda x: jnp.clip(jnp.round(x * 20), -127, 127) / 20, -127, 127),
    "straight through": (lambda x: x + stop_gradient(limited(x) * S - x), -128, 127),
    "otherwise": (lambda x: stop_gradient(limited(x) * S) + x - stop_gradient(x), -128, 127),
    "rounding alone": (lambda x: jnp.clip(rounded(x / S), -128, 127) * S, -128, 127),
    "nearer": (lambda x: (on_grid(x) - 3) * S, -131, 124),
    "nearer, as int8": (
        lambda x: (on_grid(x).astype(jnp.int8).astype(jnp.int32) - 3).astype(jnp.float32) * S,
        -131,
        124,
    ),
    "nearer, ties up": (
        lambda x: (
            jnp.clip(
                either(x / S, jnp.floor(x / S), jnp.ceil(x / S)),
                -128,
                127,
            )
            * S
        ),
        -128,
        127,
    ),
    "learned step": (lambda x: rounded(jnp.clip(x / S, -128, 127)) * S, -128, 127),
}


def grids(fn: Form, x: np.ndarray = X) -> dict[str, FakeQuant]:
    return dict(simplified(tosajax.export(lambda x: jnp.tanh(fn(x)), x)).fake_quants)


def test_forms():
    for name, (fn, low, high) in FORMS.items():
        (grid,) = grids(fn).values()
        assert (grid.low, grid.high) == (low, high), name
        np.testing.assert_allclose(grid.scale, S, rtol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_integers_are_those_of_the_function(name):
    fn, low, high = FORMS[name]
    row = np.array([[low - 1, low, high, high + 1, 0.4, 0.6, -0.4, 3]], np.float32)
    x = np.concatenate([X, row * S])
    x = np.clip(x, (low - 1) * S, (high + 1) * S)
    model = quant.prepare(lambda x: fn(x)[:, ::-1], example_args=(x[:1],))
    params = quant.calibrate(model, [x])
    qparams = params["qparams"]["x"]
    count = int(high) - int(low) + 1
    assert int(qparams.grid.qmax - qparams.grid.qmin) + 1 == count
    (y,) = model.apply(params, x)
    wanted = np.asarray(fn(x))[:, ::-1]
    is_tie = np.abs(np.abs(x / S) % 1 - 0.5)[:, ::-1] < 1e-3
    np.testing.assert_allclose(np.where(is_tie, 0, y), np.where(is_tie, 0, wanted), atol=1e-4)


def split(x: Any, above: float, below: float) -> Any:
    """A truncation, where both are 0."""
    return jnp.floor(jnp.maximum(x, above)) + jnp.ceil(jnp.minimum(x, below))


OTHERS: dict[str, Form] = {
    "no limits": lambda x: jnp.round(x / S) * S,
    "one limit": lambda x: jnp.maximum(jnp.round(x / S), -128) * S,
    "another scale": lambda x: limited(x) * (1.01 * S),
    "no rounding": lambda x: jnp.clip(x / S, -128, 127) * S,
    "a fraction": lambda x: (limited(x) + 0.25) * S,
    "an offset that stays": lambda x: (limited(x) + 3) * S,
    "a fraction before": lambda x: (jnp.clip(jnp.round(x / S + 0.25), -128, 127) - 0.25) * S,
    "an odd range": lambda x: limited(x, -100, 60) * S,
    "limits that are no integers": lambda x: limited(x, -127.5, 127.5) * S,
    "no 0": lambda x: limited(x, 1, 256) * S,
    "a zero point of 16 bits": lambda x: limited(x, 0, 65535) * S,
    "17 bits": lambda x: limited(x, -65536, 65535) * S,
    "a scale of each channel": lambda x: (
        jnp.clip(jnp.round(x / (S * np.arange(1, 9, dtype=np.float32))), -128, 127)
        * (S * np.arange(1, 9, dtype=np.float32))
    ),
    "a negative scale": lambda x: jnp.clip(jnp.round(x / -S), -128, 127) * -S,
    "a gap above 0": lambda x: jnp.clip(split(jnp.round(x / S), 1, 0), -128, 127) * S,
    "a gap below 0": lambda x: jnp.clip(split(jnp.round(x / S), 0, -1), -128, 127) * S,
    "a truncation": lambda x: jnp.clip(x / S, -127, 127).astype(jnp.int8).astype(jnp.float32) * S,
    "nearer to a quarter": lambda x: (on_grid(x, half=0.25) - 3) * S,
    "ties at a quarter": lambda x: (on_grid(x, tie=0.25) - 3) * S,
    "the farther": lambda x: (
        jnp.clip(either(x / S, jnp.ceil(x / S), jnp.floor(x / S)), -128, 127) * S
    ),
    "a fraction of another": lambda x: (
        jnp.clip(either(x, jnp.floor(x / S), jnp.ceil(x / S)), -128, 127) * S
    ),
    "a ceil of another": lambda x: (
        jnp.clip(either(x / S, jnp.floor(x / S), jnp.ceil(x)), -128, 127) * S
    ),
    "a choice of what nothing rounds": lambda x: (
        jnp.clip(jnp.where(x > 0, x, np.float32(0.5)), -128, 127) * S
    ),
    "floor alone": lambda x: jnp.clip(jnp.floor(x / S), -128, 127) * S,
}


def test_what_is_no_fake_quantization():
    found = {name: grids(fn) for name, fn in OTHERS.items()}
    assert found == {name: {} for name in OTHERS}


def test_a_tensor_of_two_grids_has_the_first():
    def fn(x: Any) -> Any:
        y = jnp.tanh(x)
        return limited(y) * S, jnp.clip(jnp.round(y / (2 * S)), -128, 127) * (2 * S)

    simple = simplified(tosajax.export(fn, X))
    assert {grid.scale for grid in simple.fake_quants.values()} == {S}
    assert "CAST" in {node.op for node in simple.graph.nodes}


def test_equal_grids_of_one_tensor():
    def fn(x: Any) -> Any:
        y = jnp.tanh(x)
        return (limited(y) * S)[:, ::-1], limited(y) * S

    simple = simplified(tosajax.export(fn, X))
    assert len(set(simple.fake_quants.values())) == 1
    assert "CAST" not in {node.op for node in simple.graph.nodes}


def test_the_ends_of_integers_stay_in_the_floats():
    """A converter leaves out the ReLU before integers whose least is 0."""

    def fn(x: Any) -> Any:
        y = limited(x @ W[0], 0, 255) * S
        return (limited(jnp.clip(y, 1, 2), 0, 255) * S)[:, ::-1], y @ np.eye(8, dtype=np.float32)

    model = quant.prepare(fn, example_args=(X[:1],))
    (limits,) = [node for node in model.float_graph.nodes if node.op == "CLAMP"][:1]
    assert limits.attributes["min_val"] == 0
    np.testing.assert_allclose(limits.attributes["max_val"], 255 * S, rtol=1e-6)
    params = quant.calibrate(model, [X])
    floats = model.apply(params, X, mode="float")
    for y, wanted in zip(floats, fn(X), strict=True):
        np.testing.assert_allclose(y, wanted, atol=0.51 * float(S))
    frozen = model.freeze(params)
    assert [node.op for node in frozen.nodes].count("CLAMP") == 1  # that of 1 and 2
    assert quant.check_bit_exact(model, params, X, against=("frozen",))


def test_a_limit_within_the_ends_is_the_only_one():
    def fn(x: Any) -> Any:
        return (limited(jnp.clip(jnp.tanh(x), 0, 1), 0, 255) * S)[:, ::-1]

    simple = simplified(tosajax.export(fn, X))
    assert [node.op for node in simple.graph.nodes].count("CLAMP") == 1
    assert {grid.high for grid in simple.fake_quants.values()} == {255}


def test_a_limit_beyond_one_end_leaves_that_end():
    for low, high, wanted in ((0, 99, (0, 255)), (-99, 1, (0, 20)), (0, 1, (0, 20))):

        def fn(x: Any, low: float = low, high: float = high) -> Any:
            return (limited(jnp.clip(x @ W[0], low, high), 0, 255) * S)[:, ::-1]

        simple = simplified(tosajax.export(fn, X))
        (limits,) = [node.attributes for node in simple.graph.nodes if node.op == "CLAMP"]
        ends = [limits["min_val"] / S, limits["max_val"] / S]
        np.testing.assert_allclose(ends, wanted, atol=1e-4)


# Networks.

W = [drawn(8, 8, seed=seed) / 3 for seed in range(3)]


def fake(x: Any, scale: float, zero_point: float = 0, low: float = -128, high: float = 127) -> Any:
    integers = jnp.clip(jnp.round(x / scale) + zero_point, low, high)
    return x + stop_gradient((integers - zero_point) * scale - x)


# An integer in units of the product, as biases ship: another one moves some integers by 1.
BIAS = np.float32(60 * 0.017 * 0.1)


def trained(x: Any) -> Any:
    """Weights and activations of known scales, as training with them leaves a network."""
    x = fake(x, 0.02)
    y = fake(jax.nn.relu(x @ fake(W[0], 0.007)), 0.017, -128)
    z = fake(jax.nn.relu(y @ fake(W[1], 0.1, low=-8, high=7) + BIAS), 0.0113, -128)
    return fake((z @ fake(W[2], 0.008)).reshape(-1, 2, 4), 0.02, 3)


def test_scales_are_those_of_the_network_and_integers_are_equal():
    x = drawn(512, 8, seed=4)
    model = quant.prepare(trained, example_args=(x[:1],))
    params = quant.calibrate(model, [x[:8]])  # they do not depend on examples
    scales = {name: float(params["qparams"][name].scale) for name in model.activations}
    np.testing.assert_allclose(sorted(scales.values()), [0.0113, 0.017, 0.02, 0.02], rtol=1e-6)
    for name, scale in zip(model.weights, (0.007, 0.1, 0.008), strict=True):
        ratios = scale / np.asarray(params["qparams"][name].scale)
        np.testing.assert_allclose(ratios, np.rint(ratios), rtol=1e-5)
    (y,) = model.apply(params, x)
    ours, theirs = (np.rint(np.asarray(z).reshape(-1) / 0.02) for z in (y, trained(x)))
    assert (ours == theirs).mean() >= 0.99
    assert np.abs(ours - theirs).max() <= 1
    assert quant.check_bit_exact(model, params, x, against="frozen")


def test_rules_of_the_user_win():
    rules = [quant.rule(".*", act=quant.QSpec("i16"))]
    model = quant.prepare(trained, rules, example_args=(X[:1],))
    assert {spec.dtype for n, spec in model.specs.items() if n in model.activations} == {
        DType.INT16
    }


def test_auto_leaves_known_scales():
    x = drawn(16, 8, seed=4)
    result = quant.auto(
        trained, [x], example_args=(x[:1],), budget=quant.Budget(seconds=60, wide_macs=0)
    )
    qparams = result.params["qparams"]
    scales = sorted(float(qparams[name].scale) for name in result.model.activations)
    np.testing.assert_allclose(scales, [0.0113, 0.017, 0.02, 0.02], rtol=1e-6)


def test_inside_a_loop():
    def fn(x: Any) -> Any:
        return jax.lax.fori_loop(0, 100, lambda _, y: fake(jnp.tanh(y @ W[0]), 0.01), x)

    graph = tosajax.export(fn, X[:1], max_unroll=2)
    simple = simplified(graph)
    assert [(g.scale, g.low) for g in simple.fake_quants.values()] == [(pytest.approx(0.01), -128)]
    assert not {"CAST", "FLOOR"} & {n.op for part in simple.graph.walk() for n in part.nodes}


# Weights on a grid.


@pytest.mark.parametrize(("axes", "shape"), [((0,), (3, 5)), ((1,), (5, 3)), ((), (4, 5))])
def test_weights_of_known_integers(axes, shape):
    rng = np.random.default_rng(1)
    integers = rng.integers(-90, 91, shape)
    scales = rng.uniform(0.1, 1, [n if at in axes else 1 for at, n in enumerate(shape)])
    found = largest_integers((integers * scales).astype(np.float32), axes, 127)
    assert found is not None
    rows = np.moveaxis(integers, axes, range(len(axes))).reshape(len(found), -1)
    for most, row in zip(found, rows, strict=True):
        own = row * most / np.abs(row).max()
        np.testing.assert_allclose(own, np.rint(own), atol=1e-9)
        assert 64 <= most <= 127


def test_weights_that_are_on_no_grid():
    on_grid, off = np.arange(-5, 6) * 0.1, drawn(11)
    assert largest_integers(np.stack([on_grid, off]), (0,), 127) is None
    assert largest_integers(np.stack([on_grid, 0 * off]), (0,), 127) == (125, 127)
    assert largest_integers(np.stack([on_grid, on_grid]), (0,), 4) is None
    assert largest_integers(np.array([[0.3, -0.3, 0.3], [0.0, 2.0, -2.0]]), (0,), 127) == (127, 127)
    assert largest_integers(np.zeros((2, 3)), (0,), 127) is None


def bytes_around(zero_point: int, *shape: int, least: int = 1, most: int = 255) -> np.ndarray:
    """Weights of unsigned bytes, of any scale."""
    integers = np.random.default_rng(zero_point).integers(least, most + 1, shape)
    integers.reshape(-1)[:2] = least, most
    return (integers - zero_point).astype(np.float32) * np.float32(0.0123)


def test_ends_of_weights_with_a_zero_point():
    for zero_point in (0, 52, 122, 204, 255):
        found = ends_around_zero(bytes_around(zero_point, 4, 5))
        assert found == (min(1 - zero_point, 0), 255 - zero_point), zero_point
    assert ends_around_zero(-bytes_around(52, 4, 5)) == (52 - 255, 51)
    assert ends_around_zero(bytes_around(100, 4, 5, least=0)) == (-100, 155)
    # One more integer than 8 bits have; what INT8 holds without a zero point; no grid; too few.
    assert ends_around_zero(bytes_around(100, 4, 5, least=-1)) is None
    assert ends_around_zero(bytes_around(128, 4, 5)) is None
    assert ends_around_zero(np.ones((4, 5), np.float32)) is None
    assert ends_around_zero(bytes_around(0, 4, 5, least=0, most=100)) is None
    assert ends_around_zero(drawn(4, 5)) is None
    assert ends_around_zero(bytes_around(52, 3, 5)) is None
    assert ends_around_zero(np.zeros((4, 5), np.float32)) is None


def test_weights_with_a_zero_point_keep_their_integers():
    weight = bytes_around(52, 8, 8)

    def fn(x: Any) -> Any:
        return fake(fake(x, 0.02) @ weight, 0.25)

    model = quant.prepare(fn, example_args=(X[:1],))
    params = quant.calibrate(model, [X])
    (name,) = model.weights
    qparams = params["qparams"][name]
    np.testing.assert_allclose(qparams.scale, 0.0123, rtol=1e-5)
    assert float(qparams.zero_point.reshape(())) == -128 + 51
    frozen = model.freeze(params)
    integers = np.asarray(frozen.tensors[name].values, np.int64) + 128 - 51
    wanted = np.rint(weight / 0.0123).T.reshape(integers.shape)
    np.testing.assert_array_equal(integers, wanted)
    assert quant.check_bit_exact(model, params, X, against="frozen")
    (y,) = model.apply(params, X)
    assert (np.rint(np.asarray(y) / 0.25) == np.rint(np.asarray(fn(X)) / 0.25)).mean() > 0.99


def test_weights_with_a_zero_point_that_change_have_a_range_of_their_own():
    model = quant.prepare(lambda x: x @ bytes_around(52, 8, 8), example_args=(X[:1],))
    (name,) = model.weights
    values = {name: quant.initial_values(model)[name] + 0.1 * drawn(8, 1, 1, 8)}
    qparams = quant.calibrate(model, [X], values=values)["qparams"][name]
    ends = [float(end(np.asarray(values[name]))) for end in (np.min, np.max)]
    np.testing.assert_allclose(qparams.scale, (ends[1] - ends[0]) / 255, rtol=1e-3)


def test_a_rule_of_the_user_has_no_zero_point():
    """As for a target without one."""
    rules = [quant.rule(".*", weight=quant.QSpec(per_channel=True, narrow_range=True))]
    model = quant.prepare(lambda x: x @ bytes_around(52, 8, 8), rules, example_args=(X[:1],))
    (name,) = model.weights
    assert model.specs[name].symmetric
    assert model.specs[name].per_channel


def test_weights_that_are_trained_off_their_grid_use_the_whole_range():
    x = drawn(64, 8)
    model = quant.prepare(lambda x: x @ fake(W[0], 0.02, low=-64, high=64), example_args=(x[:1],))
    (name,) = model.weights
    assert model.plan.scaled[name].integers is not None
    values = {name: quant.initial_values(model)[name] + 0.1 * drawn(8, 1, 1, 8)}
    scale = quant.calibrate(model, [x], values=values)["qparams"][name].scale.reshape(-1)
    most = np.abs(np.asarray(values[name])).max((1, 2, 3))
    np.testing.assert_allclose(most / scale, 127, rtol=1e-3)


def test_weights_of_a_grid_that_become_0_have_a_scale():
    model = quant.prepare(lambda x: x @ fake(W[0], 0.02), example_args=(X[:1],))
    (name,) = model.weights
    values = {name: 0 * quant.initial_values(model)[name]}
    assert (quant.calibrate(model, [X], values=values)["qparams"][name].scale > 0).all()


def test_weights_keep_a_scale_that_a_rule_gives():
    known = quant.QSpec("i8", observer=quant.fixed(0.03))
    rules = [quant.rule(".*", weight=known)]
    model = quant.prepare(lambda x: x @ fake(W[0], 0.02), rules, example_args=(X[:1],))
    (name,) = model.weights
    assert float(quant.calibrate(model, [X])["qparams"][name].scale.reshape(())) == np.float32(0.03)


def test_models_of_known_scales_can_be_copied():
    model = quant.prepare(trained, example_args=(X[:1],))
    copy = pickle.loads(pickle.dumps(model))
    params = quant.calibrate(model, [X])
    np.testing.assert_array_equal(copy.apply(params, X)[0], model.apply(params, X)[0])
    assert quant.fixed(0.5, 3) == quant.fixed(0.5, 3) != quant.fixed(0.5, 4)


def test_copies_before_it_do_not_hide_it():
    """As a dropout that does nothing leaves them."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 4))
    numbers = [b.const([[number]], DType.FP32) for number in (20, 0.05)]
    shift = b.const([0], DType.INT8)
    y = b.op("IDENTITY", b.op("TANH", x, name="y"), name="copy")
    rounded = b.op(
        "CAST", b.op("CAST", b.op("MUL", y, numbers[0], shift), dtype=DType.INT32), dtype=DType.FP32
    )
    ends: Any = {"min_val": np.float32(-128), "max_val": np.float32(127)}
    z = b.op("MUL", b.op("CLAMP", rounded, **ends), numbers[1], shift)
    simple = simplified(b.graph([b.op("EXP", z)]))
    assert "y" in simple.fake_quants
    assert len(set(simple.fake_quants.values())) == 1


def test_a_fixed_scale_is_positive():
    for scale in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected a positive number"):
            quant.fixed(scale)
