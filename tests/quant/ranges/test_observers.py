"""Observers against NumPy in float64, which sees all values where observers see bins."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tosajax.grad.estimators import clipped_ste
from tosajax.quant.ranges.observers import (
    BINS,
    MARGIN,
    Histogram,
    Observer,
    Range,
    entropy,
    min_max,
    moving_average,
    mse,
    percentile,
    scale_and_zero_point,
)
from tosajax.quant.storages import Grid

OBSERVERS = {
    "min_max": min_max(),
    "moving_average": moving_average(),
    "percentile": percentile(99),
    "mse": mse(16),  # fewer candidates than by default: many searches
    "entropy": entropy(16),
}
COUNT = 3000  # values in each tensor; the same, so that there is less to compile
MODES = {"symmetric": True, "asymmetric": False}
LARGEST, TINY = 2.0**126, 2.0**-126
observers = pytest.mark.parametrize("observer", OBSERVERS.values(), ids=OBSERVERS)
modes = pytest.mark.parametrize("symmetric", MODES.values(), ids=MODES)


def _grid(bits: int, *, narrow: bool = False) -> Grid:
    ends = np.float32(narrow - 2.0 ** (bits - 1)), np.float32(2.0 ** (bits - 1) - 1)
    return Grid(*map(jnp.asarray, ends))


def _tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    normal = rng.normal(size=COUNT)
    tensors = {
        "normal": normal,
        "laplace": rng.laplace(size=COUNT) - 0.25,
        "uniform": rng.uniform(-1, 1, size=COUNT),
        "relu": np.maximum(normal, 0),
        "relu6": np.clip(4 * normal, 0, 6),
        "positive": rng.exponential(size=COUNT) + 1,
        "negative": -rng.exponential(size=COUNT) - 1,
        "outlier": np.where(np.arange(COUNT) == 7, 300, normal),
        "few": np.resize(rng.normal(size=9), COUNT),
        "small": normal * 1e-25,
        "large": normal * 1e25,
    }
    return {name: values.astype(np.float32) for name, values in tensors.items()}


TENSORS = _tensors()
tensors = pytest.mark.parametrize("x", TENSORS.values(), ids=TENSORS)


_compiled = functools.cache(jax.jit)


@functools.partial(jax.jit, static_argnums=(0, 3))
def _chosen(observer: Observer, state: Any, grid: Grid, symmetric: bool) -> Any:
    return observer.qparams(state, grid, symmetric)


def _observe(observer: Observer, *batches: Any) -> Any:
    state = observer.init()
    for batch in batches:
        state = _compiled(observer.update)(state, np.asarray(batch, np.float32))
    return state


def _qparams(observer: Observer, x: Any, grid: Grid, symmetric: bool) -> tuple[Any, Any]:
    return _chosen(observer, _observe(observer, x), grid, symmetric)


def _assert_same(a: Any, b: Any):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def _error(x: np.ndarray, scale: float, zero_point: float, grid: Grid) -> float:
    """The mean squared error of quantization, in float64."""
    integers = np.clip(np.rint(x / scale) + zero_point, float(grid.qmin), float(grid.qmax))
    return float(np.mean(((integers - zero_point) * scale - x) ** 2))


def _rule(low: float, high: float, grid: Grid, symmetric: bool) -> tuple[float, float]:
    """The scale and the zero point of a range, in float64, with the margin."""
    qmin, qmax = float(grid.qmin), float(grid.qmax)
    if symmetric:
        return max(-low, high) / qmax * (1 + MARGIN), 0.0
    step = (high - low) / (qmax - qmin)
    return step * (1 + MARGIN), float(np.rint(qmin - low / step))


def _ends(x: np.ndarray) -> tuple[float, float]:
    return min(float(x.min()), 0.0), max(float(x.max()), 0.0)


# The rule.

RANGES = [
    (0.0, 0.0),
    (-1.0, 1.0),
    (-1.0, 0.0),
    (0.0, 1.0),
    (2.0, 5.0),
    (-5.0, -2.0),
    (-0.3, 2.7),
    (-3e38, 3e38),
    (0.0, 3e38),
    (-1e-36, 2e-36),
    (-1e-37, 1.2e-38),
    (0.0, 1e-45),
    (np.inf, -np.inf),
]


@modes
@pytest.mark.parametrize("bits", [2, 3, 4, 8, 16])
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_rule(low: float, high: float, bits: int, symmetric: bool):
    grid = _grid(bits)
    scale, zero_point = scale_and_zero_point(jnp.float32(low), jnp.float32(high), grid, symmetric)
    qmin, qmax = np.float32(grid.qmin), np.float32(grid.qmax)
    bottom = np.float32(np.clip(low, -LARGEST, 0))
    top = np.float32(np.clip(high, 0, LARGEST))
    # NumPy also rounds each operation correctly.
    step = max(-bottom, top) / qmax if symmetric else (top - bottom) / (qmax - qmin)
    step = step if step >= np.float32(TINY) else np.float32(1)
    assert scale.dtype == zero_point.dtype == jnp.float32
    assert np.float32(scale) == step
    expected = 0 if symmetric else np.clip(np.rint(qmin - bottom / step), qmin, qmax)
    assert np.float32(zero_point) == expected


def _ranges() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(5)
    low, high = rng.uniform(0.01, 3, size=(2, 20_000)).astype(np.float32)
    # Ranges that are symmetric put the zero point at a tie.
    return jnp.asarray(-np.append(low, high)), jnp.asarray(np.append(high, high))


@modes
@pytest.mark.parametrize("margin", [0.0, MARGIN])
def test_rule_is_the_same_in_every_program(margin: float, symmetric: bool):
    def rule(low: jax.Array, high: jax.Array, grid: Grid):
        return scale_and_zero_point(low, high, grid, symmetric, margin=margin)

    low, high = _ranges()
    bottom, top = np.asarray(low), np.asarray(high)
    grids = {bits: _grid(bits) for bits in (2, 4, 8, 16)}
    jitted, mapped = jax.jit(rule), jax.jit(jax.vmap(rule, (0, 0, None)))
    mapped_grids = jax.jit(jax.vmap(rule))
    constants = jax.jit(lambda low, high: {bits: rule(low, high, grids[bits]) for bits in grids})
    of_constants = constants(low, high)
    for bits, grid in grids.items():
        qmin, qmax = map(np.float32, grid)
        step = np.maximum(-bottom, top) / qmax if symmetric else (top - bottom) / (qmax - qmin)
        zero_point = np.clip(np.rint(qmin - bottom / step), qmin, qmax) * (not symmetric)
        expected = step * np.float32(1 + margin), zero_point.astype(np.float32)
        each = jax.tree.map(lambda end: np.full(low.shape, end), grid)
        programs = {
            "eager": rule(low, high, grid),
            "jit": jitted(low, high, grid),
            "constant grid": of_constants[bits],
            "vmap": mapped(low, high, grid),
            "vmap of grids": mapped_grids(low, high, each),
        }
        for found in programs.values():
            _assert_same((found[0], np.broadcast_to(found[1], low.shape)), expected)


@pytest.mark.parametrize("observer", [min_max(), moving_average(), percentile(100)])
def test_the_greatest_value_has_a_gradient(observer: Observer):
    def gradient(top: jax.Array, grid: Grid) -> jax.Array:
        state = observer.update(observer.init(), jnp.stack([top, -top / 2]))
        scale, _ = observer.qparams(state, grid, True)
        return jax.grad(lambda x: clipped_ste(x / scale, *grid) * scale)(top)  # type: ignore

    gradients = jax.jit(jax.vmap(gradient, (0, None)))
    _, tops = _ranges()
    for bits in (2, 4, 8, 16):
        np.testing.assert_array_less(0.99, gradients(tops[:300], _grid(bits)))


# All observers.


@observers
@modes
@tensors
def test_zero_is_exact(observer: Observer, symmetric: bool, x: np.ndarray):
    state = _observe(observer, x)
    for bits, narrow in [(2, False), (2, True), (4, True), (8, False), (16, False)]:
        grid = jax.device_get(_grid(bits, narrow=narrow))
        scale, zero_point = jax.device_get(_chosen(observer, state, grid, symmetric))
        assert scale.shape == zero_point.shape == ()
        assert 0 < scale < np.inf
        assert zero_point == np.round(zero_point)
        assert grid.qmin <= zero_point <= grid.qmax
        assert not symmetric or zero_point == 0


@observers
@modes
@pytest.mark.parametrize(
    "x", [[], [0.0], [0.0, -0.0, 0.0], [np.nan], [np.inf, -np.inf], [1e-42, -1e-42]], ids=str
)
def test_no_range(observer: Observer, symmetric: bool, x: list[float]):
    scale, zero_point = _qparams(observer, x, _grid(8), symmetric)
    assert scale == np.float32(1 + MARGIN)
    assert zero_point == (0 if symmetric else -128)


@observers
@modes
@pytest.mark.parametrize("value", [1.0, -1.0, 0.7, -3e-20, 255.0, 3e38])
@pytest.mark.parametrize("bits", [2, 8, 16])
def test_constant(observer: Observer, symmetric: bool, value: float, bits: int):
    grid, x = _grid(bits), np.full((2, 15, 100), value, np.float32)
    scale, zero_point = map(float, _qparams(observer, x, grid, symmetric))
    bounded = np.clip(x.astype(np.float64), -LARGEST, LARGEST)
    assert math.sqrt(_error(bounded, scale, zero_point, grid)) <= abs(bounded[0, 0, 0]) * 2**-11


@observers
def test_values_that_are_not_finite_are_ignored(observer: Observer):
    x = TENSORS["normal"]
    spoilt = np.insert(x, [0, 7, 99, COUNT], [np.nan, np.inf, -np.inf, np.nan])
    _assert_same(_observe(observer, spoilt), _observe(observer, x))
    nothing = np.full(COUNT, np.nan, np.float32)
    _assert_same(_observe(observer, nothing, x, nothing), _observe(observer, x))


@observers
@modes
@pytest.mark.parametrize("exponent", [-70, -7, 1, 100])
def test_scaling_by_a_power_of_two_is_exact(observer: Observer, symmetric: bool, exponent: int):
    x = TENSORS["laplace"]
    scale, zero_point = _qparams(observer, x, _grid(8), symmetric)
    scaled = _qparams(observer, np.ldexp(x, exponent), _grid(8), symmetric)
    _assert_same(scaled, (np.ldexp(scale, exponent), zero_point))


@observers
def test_jit_equals_eager(observer: Observer):
    def run(grid: Grid, x: jax.Array):
        state = observer.update(observer.update(observer.init(), x), x[::2] * 1.7)
        return state, [observer.qparams(state, grid, symmetric) for symmetric in MODES.values()]

    grid = _grid(8)
    both = jax.jit(lambda traced, x: (run(traced, x), run(grid, x)))
    for x in map(jnp.asarray, TENSORS.values()):
        eager = run(grid, x)
        traced, constant = both(grid, x)
        _assert_same(traced, eager)
        _assert_same(constant, eager)


_update_channels = functools.cache(lambda update: jax.jit(jax.vmap(update)))


@observers
def test_channels_are_independent(observer: Observer):
    x = np.stack(list(TENSORS.values())).reshape(-1, 2, COUNT // 2).swapaxes(0, 1)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * x.shape[1]), observer.init())
    for batch in x:
        states = _update_channels(observer.update)(states, batch)
    grid = _grid(4)

    def qparams(state: Any, grid: Grid):
        return [observer.qparams(state, grid, symmetric) for symmetric in MODES.values()]

    found = jax.jit(jax.vmap(qparams, (0, None)))(states, grid)
    for channel in range(x.shape[1]):
        state = _observe(observer, *x[:, channel])
        _assert_same(jax.tree.map(lambda a, c=channel: np.asarray(a)[c], states), state)
        expected = [_chosen(observer, state, grid, symmetric) for symmetric in MODES.values()]
        _assert_same(jax.tree.map(lambda a, c=channel: np.asarray(a)[c], found), expected)


@observers
@modes
def test_grids_are_swept(observer: Observer, symmetric: bool):
    state = _observe(observer, TENSORS["laplace"])
    grids = [_grid(bits) for bits in range(2, 17)]
    stacked = jax.tree.map(lambda *values: np.stack(values), *grids)
    sweep = jax.jit(jax.vmap(lambda s, grid: observer.qparams(s, grid, symmetric), (None, 0)))
    swept = sweep(state, stacked)
    expected = [_chosen(observer, state, grid, symmetric) for grid in grids]
    _assert_same(swept, jax.tree.map(lambda *values: np.stack(values), *expected))
    assert len(set(swept[0].tolist())) == len(grids)


@functools.partial(jax.jit, static_argnums=0)
def _scan(update: Callable[[Any, jax.Array], Any], state: Any, x: jax.Array) -> Any:
    return lax.scan(lambda state, x: (update(state, x), None), state, x)[0]


@observers
def test_batches_may_be_scanned(observer: Observer):
    x = TENSORS["normal"].reshape(10, -1)
    scanned = _scan(observer.update, observer.init(), x)
    _assert_same(scanned, _observe(observer, *x))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(scanned)} <= {"float32", "int32"}


@observers
def test_gradients_are_finite(observer: Observer):
    def total(x: jax.Array, qmax: jax.Array, symmetric: bool) -> jax.Array:
        state = observer.update(observer.init(), x)
        scale, zero_point = observer.qparams(state, Grid(-qmax - 1, qmax), symmetric)
        return scale + zero_point

    @jax.jit
    def gradients(x: jax.Array, qmax: jax.Array):
        return {name: jax.grad(total, (0, 1))(x, qmax, mode) for name, mode in MODES.items()}

    for x in (TENSORS["normal"], np.zeros(COUNT, np.float32)):
        for name, (by_x, by_qmax) in gradients(x, np.float32(127)).items():
            assert np.all(np.isfinite(by_x)), name
            assert np.isfinite(by_qmax), name


def test_observers_of_the_same_arguments_are_equal():
    default = min_max()

    @dataclasses.dataclass(frozen=True)
    class Options:
        observer: Observer = default

    assert Options() == Options(min_max()) == Options(min_max(margin=MARGIN))
    assert hash(Options()) == hash(Options(min_max(MARGIN)))
    assert percentile() == percentile(99.9) == percentile(p=99.9) != percentile(99)
    assert moving_average() == moving_average(momentum=0.9) != moving_average(0.5)
    assert mse() == mse(candidates=64) != mse(32)
    assert entropy() == entropy(64) != mse(64)


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: moving_average(1.0), "momentum is 1.0"),
        (lambda: moving_average(-0.1), "momentum is -0.1"),
        (lambda: percentile(50), "p is 50"),
        (lambda: percentile(100.1), "p is 100.1"),
        (lambda: mse(0), "mse: candidates is 0"),
        (lambda: entropy(0), "entropy: candidates is 0"),
    ],
)
def test_arguments_out_of_range(construct: Callable[[], Observer], message: str):
    with pytest.raises(ValueError, match=message):
        construct()


# Ranges.


@modes
@pytest.mark.parametrize("bits", [2, 8, 16])
@tensors
def test_min_max(x: np.ndarray, symmetric: bool, bits: int):
    observer, grid = min_max(), _grid(bits)
    state = _observe(observer, *np.split(x, 2))
    assert (state.low, state.high) == (x.min(), x.max())
    scale, zero_point = _chosen(observer, state, grid, symmetric)
    expected, expected_zero_point = _rule(*_ends(x), grid, symmetric)
    np.testing.assert_allclose(scale, expected, rtol=4e-7)
    assert zero_point == expected_zero_point


def test_margin():
    x, grid = TENSORS["normal"], _grid(8)
    exact, zero_point = _qparams(min_max(0.0), x, grid, False)
    wide, same = _qparams(min_max(0.25), x, grid, False)
    assert (wide, same) == (exact * np.float32(1.25), zero_point)
    assert exact == (x.max() - x.min()) / np.float32(255)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_moving_average(momentum: float):
    rng = np.random.default_rng(7)
    batches = (rng.normal(size=(6, 50)) * rng.uniform(1, 5, size=(6, 1))).astype(np.float32)
    low, high = float(batches[0].min()), float(batches[0].max())
    observer = moving_average(momentum)
    state = _observe(observer, batches[0])
    assert (state.low, state.high) == (low, high)
    for batch in batches[1:]:
        low = momentum * low + (1 - momentum) * float(batch.min())
        high = momentum * high + (1 - momentum) * float(batch.max())
    state = _observe(observer, *batches)
    np.testing.assert_allclose([state.low, state.high], [low, high], rtol=1e-6)
    scale, _ = _chosen(observer, state, _grid(8), False)
    np.testing.assert_allclose(scale, (high - low) / 255 * (1 + MARGIN), rtol=1e-6)


# Histograms.


def _histogram(x: np.ndarray) -> Any:
    """The state that a histogram of x has, in Python's integers."""
    values = np.clip(x.reshape(-1), -LARGEST, LARGEST).tolist()
    exponent = max([-100, *(math.frexp(v)[1] for v in values if v)])
    counts = np.zeros(BINS, np.int32)
    for value in values:
        counts[math.floor(math.ldexp(value, 11 - exponent)) + BINS // 2] += 1
    return jax.tree.map(
        jnp.asarray,
        Histogram(
            counts=counts,  # type: ignore
            zeros=np.int32(values.count(0.0)),  # type: ignore
            exponent=np.int32(exponent),  # type: ignore
            range=Range(np.float32(min(values)), np.float32(max(values))),  # type: ignore
        ),
    )


# On the edges of bins, radii and the range.
EDGES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 2**-10, -(2**-10), 0.75, 1.9999999, -1.9999999]
FAR = [1.5e-45, 2**-112, -(2**-101), 2**-100, 1e-20, -1e-20, 1.0, -3e20, 2.0**126, -3e38]


@pytest.mark.parametrize("count", range(1, len(FAR) + 1))
def test_histogram_of_far_apart_values(count: int):
    x = np.asarray(FAR[1:count] or [0.0], np.float32)
    # Of one shape for all counts: values that are not finite are ignored.
    padded = np.append(x, np.full(len(FAR) - x.size, np.nan, np.float32))
    _assert_same(_observe(mse(), padded), _histogram(x))
    # Folding at each value, by many octaves at once, is folding once.
    _assert_same(_observe(mse(), *x), _histogram(x))


@tensors
def test_histogram(x: np.ndarray):
    _assert_same(_observe(mse(), x), _histogram(x))


def test_histogram_at_edges_of_bins():
    x = np.asarray(EDGES, np.float32)
    _assert_same(_observe(mse(), x), _histogram(x))
    _assert_same(_observe(mse(), *x[::-1]), _histogram(x))


@tensors
def test_histogram_of_any_batches_is_the_same(x: np.ndarray):
    whole = _observe(entropy(), x)
    # Growing values, so that later batches fold earlier ones; and shrinking ones.
    ordered = x[np.argsort(np.abs(x))]
    for values in (x, ordered, ordered[::-1]):
        _assert_same(_observe(entropy(), *values.reshape(10, -1)), whole)
        _assert_same(_observe(entropy(), *np.split(values, [COUNT // 10])), whole)


def test_counts_do_not_overflow():
    observer = percentile(90)
    state = _observe(observer, np.repeat([0.0, 1.0, 2.0, 5.0], [50, 30, 15, 5]))
    many = state._replace(counts=state.counts * 21_474_836, zeros=state.zeros * 21_474_836)
    assert jnp.sum(many.counts, dtype=jnp.int32) == 2_147_483_600
    update = _compiled(observer.update)
    once = update(many, jnp.full(47, 1.0, jnp.float32))
    assert jnp.sum(once.counts, dtype=jnp.int32) == 2**31 - 1
    more = update(once, jnp.zeros(100, jnp.float32))
    assert jnp.sum(more.counts, dtype=jnp.int32) == pytest.approx(2**30, abs=200)
    assert more.zeros == more.counts[BINS // 2] == 536_870_900 + 100
    for symmetric in (True, False):
        scale, _ = _chosen(observer, more, _grid(8), symmetric)
        expected, _ = _chosen(observer, state, _grid(8), symmetric)
        np.testing.assert_allclose(scale, expected, rtol=1e-3)


@tensors
@pytest.mark.parametrize("p", [50.1, 75, 90, 99, 99.9, 100])
def test_percentile(x: np.ndarray, p: float):
    observer, grid = percentile(p), _grid(16)
    state = _observe(observer, x)
    values, width = (
        np.clip(x, -LARGEST, LARGEST).astype(np.float64),
        2.0 ** (int(state.exponent) - 11),
    )
    scale, _ = observer.qparams(state, grid, True)
    end = float(scale) * 32767 / (1 + MARGIN)
    expected = np.percentile(np.abs(values), p, method="higher")
    np.testing.assert_allclose(end, expected, rtol=1e-6, atol=0 if p == 100 else width)

    scale, zero_point = map(float, observer.qparams(state, grid, False))
    low, high = (-32768 - zero_point) * scale, (32767 - zero_point) * scale
    tolerance = (0 if p == 100 else width) + scale + (high - low) * MARGIN
    expected = min(np.percentile(values, 100 - p, method="lower"), 0.0)
    np.testing.assert_allclose(low, expected, rtol=0, atol=tolerance)
    expected = max(np.percentile(values, p, method="higher"), 0.0)
    np.testing.assert_allclose(high, expected, rtol=0, atol=tolerance)


@modes
@tensors
def test_percentile_of_all_is_min_max(x: np.ndarray, symmetric: bool):
    for bits in (4, 8):
        found = _qparams(percentile(100), x, _grid(bits), symmetric)
        _assert_same(found, _qparams(min_max(), x, _grid(bits), symmetric))


def test_percentile_counts_values_within_a_bin():
    """Where an outlier leaves all others one bin, the end is still near."""
    x = np.append(np.linspace(0, 1, 10_001), 1500.0).astype(np.float32)
    state = _observe(percentile(75), x)
    assert state.exponent == 11  # bins of width 1
    scale, _ = _chosen(percentile(75), state, _grid(8), True)
    np.testing.assert_allclose(float(scale) * 127, 0.75, rtol=1e-3)


def test_values_of_a_bin_are_in_the_middles_of_its_equal_parts():
    x = np.append(np.arange(10) / 10 + 0.05, 1500.0).astype(np.float32)
    scale, _ = _qparams(percentile(75), x, _grid(8), True)  # two of eleven are above
    np.testing.assert_allclose(float(scale) * 127, 0.85 * (1 + MARGIN), rtol=1e-4)


# Searches.

FRACTIONS = 2.0 ** (-np.arange(64) / 8)


def _candidates(x: np.ndarray, symmetric: bool) -> Iterator[tuple[float, float]]:
    low, high = _ends(x)
    if symmetric:
        yield from ((-end, end) for end in max(-low, high) * FRACTIONS)
        return
    for bottom in low * FRACTIONS[::3] if low else [0.0]:
        for top in high * FRACTIONS[::3] if high else [0.0]:
            yield bottom, top


@modes
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ["normal", "laplace", "relu", "negative", "outlier", "few"])
def test_mse_is_the_least(name: str, bits: int, symmetric: bool):
    grid, x = _grid(bits), TENSORS[name].astype(np.float64)
    rules = [_rule(*ends, grid, symmetric) for ends in _candidates(x, symmetric)]
    best = min(_error(x, scale, zero_point, grid) for scale, zero_point in rules)
    scale, zero_point = map(float, _qparams(mse(), x, grid, symmetric))
    assert _error(x, scale, zero_point, grid) <= best * 1.03


@modes
def test_16_bits_get_the_whole_range(symmetric: bool):
    x, grid = TENSORS["normal"], _grid(16)
    for observer in (mse(), entropy()):
        found = _qparams(observer, x, grid, symmetric)
        _assert_same(found, _qparams(min_max(), x, grid, symmetric))


@modes
def test_mse_with_one_candidate_is_the_whole_range(symmetric: bool):
    x, grid = TENSORS["laplace"], _grid(2)
    _assert_same(_qparams(mse(1), x, grid, symmetric), _qparams(min_max(), x, grid, symmetric))


def test_mse_takes_zeros_for_exact():
    """Zeros, of which activations are full, do not make the other values count less."""
    rng = np.random.default_rng(1)
    x, grid = rng.laplace(size=COUNT), _grid(8)
    padded = np.append(x, np.zeros(10**6))
    _assert_same(_qparams(mse(), padded, grid, True), _qparams(mse(), x, grid, True))


def _divergence(state: Histogram, grid: Grid, scale: float, zero_point: float) -> float:
    """By the definition, over bins that hold values and are in range."""
    counts = np.asarray(state.counts, np.float64)
    counts[BINS // 2] -= float(state.zeros)
    width = 2.0 ** (int(state.exponent) - 11)
    middles = (np.arange(BINS) - BINS // 2 + 0.5) * width
    integers = np.rint(middles / scale) + zero_point
    inside = (integers >= float(grid.qmin)) & (integers <= float(grid.qmax))
    kept = np.flatnonzero(inside & (counts > 0))
    if scale < width or not kept.size:
        return np.inf
    _, group = np.unique(integers[kept], return_inverse=True)
    q = (np.bincount(group, counts[kept]) / np.bincount(group))[group] / counts.sum()
    p = counts[kept]
    p[0] += counts[: kept[0]].sum()
    p[-1] += counts[kept[-1] + 1 :].sum()
    p /= counts.sum()
    return float(np.sum(p * np.log(p / q) - p + q))


def _least_divergence(state: Histogram, grid: Grid, symmetric: bool) -> tuple[float, float]:
    def loss(low: float, high: float) -> float:
        return _divergence(state, grid, *_rule(low, high, grid, symmetric))

    low, high = min(float(state.range.low), 0.0), max(float(state.range.high), 0.0)
    if symmetric:
        low, high = min(low, -high), max(-low, high)
    both = min(FRACTIONS, key=lambda part: loss(low * part, high * part))
    bottom, top = low * both, high * both
    if symmetric:
        return _rule(bottom, top, grid, True)
    for _ in range(2):
        top = min(high * FRACTIONS, key=lambda end: loss(bottom, end))
        bottom = min(low * FRACTIONS, key=lambda end: loss(end, top))
    return _rule(bottom, top, grid, False)


@modes
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("name", ["laplace", "uniform", "relu6", "positive", "outlier"])
def test_entropy_is_the_least(name: str, bits: int, symmetric: bool):
    grid, state = _grid(bits), _observe(entropy(), TENSORS[name])
    scale, zero_point = _chosen(entropy(), state, grid, symmetric)
    expected, expected_zero_point = _least_divergence(state, grid, symmetric)
    np.testing.assert_allclose(scale, expected, rtol=1e-6)
    assert zero_point == expected_zero_point


@modes
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_entropy_saturates_outliers(bits: int, symmetric: bool):
    rng = np.random.default_rng(2)
    x, grid = np.append(rng.normal(size=COUNT - 2), [90.0, -100.0]), _grid(bits)
    whole, _ = _qparams(min_max(), x, grid, symmetric)
    scale, _ = _qparams(entropy(), x, grid, symmetric)
    assert whole / 200 < scale < whole / 5


@modes
@pytest.mark.parametrize("bits", [4, 8])
def test_entropy_saturates_nothing_of_an_even_spread(bits: int, symmetric: bool):
    x, grid = TENSORS["uniform"], _grid(bits)
    _assert_same(_qparams(entropy(), x, grid, symmetric), _qparams(min_max(), x, grid, symmetric))


@modes
def test_entropy_does_not_saturate_nearly_all(symmetric: bool):
    """Where no value is near 0, a range of few values holds few integers, which match well."""
    x, grid = TENSORS["positive"].astype(np.float64), _grid(4)
    scale, zero_point = map(float, _qparams(entropy(), x, grid, symmetric))
    assert np.mean(x > (float(grid.qmax) - zero_point) * scale) < 0.1
