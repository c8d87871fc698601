"""Metrics against their definitions in Python and float64."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tosajax.sweep import (
    Examples,
    Greatest,
    Metric,
    Total,
    accumulation,
    accuracy,
    agreement,
    cosine,
    max_lsb,
    mcnemar,
    mean,
    mean_lsb,
    metrics,
    sqnr,
    top_k,
)

pytestmark = pytest.mark.usefixtures("quick")


def _array(dtype: Any, values: Any) -> np.ndarray:
    return np.asarray(values, dtype)


f32 = functools.partial(_array, np.float32)
i32 = functools.partial(_array, np.int32)
u32 = functools.partial(_array, np.uint32)
i16 = functools.partial(_array, np.int16)
u16 = functools.partial(_array, np.uint16)
i8 = functools.partial(_array, np.int8)
NAN, INF = math.nan, math.inf
I32 = np.iinfo(np.int32)
ACCURACY, AGREEMENT, SQNR, COSINE = accuracy(), agreement(), sqnr(), cosine()
LSB = mean_lsb(), max_lsb()
EACH = (ACCURACY, top_k(3), AGREEMENT, SQNR, COSINE, *LSB)


def _examples(outputs: Any, labels: Any = None, reference: Any = None) -> Examples:
    def arrays(x: Any) -> Any:
        return None if x is None else tuple(map(jnp.asarray, x if isinstance(x, tuple) else (x,)))

    wanted = arrays(reference)
    return Examples(arrays(outputs), None if labels is None else jnp.asarray(labels), wanted)


@functools.cache
def _update(chosen: tuple[Metric, ...]) -> Any:
    return jax.jit(functools.partial(accumulation.update, chosen))


def _measured(
    measures: Metric | Sequence[Metric], *parts: Examples, counts: Any = None
) -> dict[str, float]:
    """The metrics of examples in parts."""
    chosen = (measures,) if isinstance(measures, Metric) else tuple(measures)
    state, count = accumulation.start(chosen, parts[0]), 0
    for part in parts:
        size = part.outputs[0].shape[0]
        mask = np.ones(size, bool) if counts is None else np.asarray(counts)
        state = _update(chosen)(state, part, mask)
        count += int(mask.sum())
    return accumulation.finish(chosen, jax.device_get(state), count)


def _one(metric: Metric, *parts: Examples, counts: Any = None) -> float:
    return _measured(metric, *parts, counts=counts)[metric.name]


def _is_good(scores: np.ndarray, label: int, k: int) -> bool:
    """Sorts: higher scores first, equal ones by class; NaN is not a score."""
    if not 0 <= label < len(scores) or math.isnan(scores[label]):
        return False
    known = [i for i, s in enumerate(scores.tolist()) if not math.isnan(s)]
    return label in sorted(known, key=lambda i: (-scores.tolist()[i], i))[:k]


def _share(scores: np.ndarray, labels: np.ndarray, k: int) -> float:
    good = [
        _is_good(s.reshape(-1), int(label), k)
        for s, label in zip(scores, labels.reshape(-1), strict=True)
    ]
    return sum(good) / len(good)


SCORES = {
    "ties": f32([[1, 1, 1, 0], [0, 2, 2, 2], [3, 3, 3, 3], [0, 0, 0, 1], [-1, -1, -2, -3]]),
    "NaN": f32(
        [[NAN, 1, 2, 0], [0, NAN, 5, NAN], [NAN] * 4, [1, 2, 3, NAN], [-INF, NAN, -INF, NAN]]
    ),
    "infinite": f32(
        [[INF, INF, 0, 1], [-INF] * 4, [-INF, 0, -0.0, 1], [INF, -INF, 2, 3], [0, -0.0, 0, -0.0]]
    ),
    "int32": i32(
        [
            [I32.max, I32.max - 1, 0, I32.min],
            [I32.min] * 4,
            [I32.max] * 4,
            [2**24, 2**24 + 1, 0, 1],
            [I32.min, I32.min + 1, -1, 0],
        ]
    ),
    "int8": i8([[-128, 127, 127, 0], [-128] * 4, [127] * 4, [0, -1, 1, -1], [5, 6, 5, 6]]),
    "bool": np.array([[0, 1, 1, 0], [0] * 4, [1] * 4, [1, 0, 0, 0], [0, 0, 0, 1]], bool),
}


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_top_k(scores: np.ndarray) -> None:
    # Each class is the label of each row once.
    labels = np.repeat(np.arange(4, dtype=np.int32), len(scores))
    rows = np.tile(scores, (4, 1))
    found = _measured([ACCURACY, *map(top_k, (1, 2, 4, 5))], _examples(rows, labels))
    wanted = {f"top_{k}": _share(rows, labels, k) for k in (1, 2, 4, 5)}
    assert found == {"accuracy": wanted["top_1"], **wanted}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32])
def test_types_of_labels(dtype: Any) -> None:
    labels = np.array([0, 1, 2, 3, 0], dtype)
    wanted = _share(SCORES["int8"], labels, 1)
    assert _one(ACCURACY, _examples(SCORES["int8"], labels[:, None])) == wanted


@pytest.mark.parametrize("name", ["ties", "int32", "bool"])
def test_labels_that_are_no_class_are_wrong(name: str) -> None:
    scores = SCORES[name]
    labels = i32([-1, 4, -4, I32.max, I32.min])
    found = _measured([top_k(k) for k in (1, 4, 9)], _examples(scores, labels))
    assert set(found.values()) == {0.0}


def test_random_scores_of_more_axes() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(-3, 4, size=(200, 1, 3, 2)).astype(np.float32)
    labels = rng.integers(0, 6, size=200).astype(np.int32)
    found = _measured([top_k(k) for k in (1, 3, 6)], _examples(scores, labels))
    assert found == {f"top_{k}": _share(scores, labels, k) for k in (1, 3, 6)}


def test_wrong_labels() -> None:
    scores = np.zeros((4, 3), np.float32)
    for labels, message in (
        (None, "no labels"),
        (np.zeros(4, np.float32), r"labels are float32\[4\], expected an integer for each of 4"),
        (np.zeros(4, bool), r"labels are bool\[4\]"),
        (np.zeros(3, np.int32), r"labels are int32\[3\]"),
        (np.zeros((4, 3), np.int32), r"labels are int32\[4, 3\]"),
    ):
        with pytest.raises(ValueError, match=message):
            _one(ACCURACY, _examples(scores, labels))
    with pytest.raises(ValueError, match=r"scores of shape \(4,\)"):
        _one(ACCURACY, _examples(scores[:, 0], np.zeros(4, np.int32)))


@pytest.mark.parametrize("k", [0, -1])
def test_k_is_at_least_1(k: int) -> None:
    with pytest.raises(ValueError, match=f"k is {k}"):
        top_k(k)


def _agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    same = [
        not np.isnan(t).any() and _is_good(o, int(np.argmax(t)), 1)
        for o, t in zip(ours, theirs, strict=True)
    ]
    return sum(same) / len(same)


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_agreement(scores: np.ndarray) -> None:
    ours = np.tile(scores, (5, 1))
    for reference in (scores, SCORES["NaN"]):
        theirs = np.concatenate([np.roll(reference, shift, axis=0) for shift in range(5)])
        found = _one(AGREEMENT, _examples(ours, reference=theirs))
        assert found == _agreement(ours, theirs)


def test_outputs_of_nan_agree_with_nothing() -> None:
    ours, theirs = np.full((3, 4), NAN, np.float32), f32([[1, 0, 0, 0]] * 3)
    assert _one(AGREEMENT, _examples(ours, reference=theirs)) == 0
    assert _one(AGREEMENT, _examples(theirs, reference=ours)) == 0
    assert _one(AGREEMENT, _examples(ours, reference=ours)) == 0


def _sqnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    x, y = ours.astype(np.float64), theirs.astype(np.float64)
    return 10 * math.log10(np.sum(y * y) / np.sum((x - y) ** 2))


def _cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    x, y = (a.astype(np.float64).reshape(-1) for a in (ours, theirs))
    return float(x @ y / math.sqrt((x @ x) * (y @ y)))


PAIRS = {
    "float": (lambda r: r.normal(size=(50, 3, 5)).astype(np.float32), 1e-6),
    "large": (lambda r: (1e17 * r.normal(size=(50, 3, 5))).astype(np.float32), 1e-6),
    "small": (lambda r: (1e-17 * r.normal(size=(50, 3, 5))).astype(np.float32), 1e-6),
    "int8": (lambda r: r.integers(-128, 128, size=(50, 7)).astype(np.int8), 0),
    "int16": (lambda r: r.integers(-(2**15), 2**15, size=(50, 7)).astype(np.int16), 1e-6),
    "int32": (lambda r: r.integers(I32.min, I32.max, size=(50, 7)).astype(np.int32), 1e-6),
}


@pytest.mark.parametrize(("draw", "error"), PAIRS.values(), ids=PAIRS)
def test_sqnr_and_cosine(draw: Any, error: float) -> None:
    rng = np.random.default_rng(4)
    ours, theirs = draw(rng), draw(rng)
    found = _measured([SQNR, COSINE], _examples(ours, reference=theirs))
    # Squares are rounded to 24 bits: 10 log10(1 + 2**-23) dB at most, and exact for int8.
    assert found["sqnr"] == pytest.approx(_sqnr(ours, theirs), rel=1e-13, abs=error)
    assert found["cosine"] == pytest.approx(_cosine(ours, theirs), rel=1e-12, abs=error)


@pytest.mark.parametrize(
    ("won", "lost"), [(0, 0), (1, 0), (0, 6), (5, 5), (3, 9), (1, 20), (400, 520)]
)
def test_mcnemar_is_the_binomial_test_of_what_one_alone_gets_right(won: int, lost: int) -> None:
    # Right by both and by neither do not count; the first of equal scores is the class.
    right, wrong, equal = [0, 1, 0], [1, 0, 0], [1, 1, 0]
    ours = [right] * won + [wrong] * lost + [right, equal]
    theirs = [equal] * won + [right] * lost + [right, wrong]
    labels = np.full(len(ours), 1, np.int32)
    found = _one(mcnemar(), _examples(i32(ours), labels, i32(theirs)))
    want = scipy.stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert found == pytest.approx(want, rel=1e-9)


def test_mcnemar_needs_classes() -> None:
    assert mcnemar().needs == {"labels", "reference"}
    assert (mcnemar(1).name, mcnemar(1).classes) == ("mcnemar[1]", 1)
    (named,) = metrics.named(["mcnemar"])
    assert named.name == "mcnemar"


def test_sqnr_sees_a_step_of_large_integers() -> None:
    theirs = i32([[2**30, -(2**30)], [I32.max, I32.min]])
    ours = theirs + i32([[1, -1], [-1, 1]])
    assert _one(SQNR, _examples(ours, reference=theirs)) == pytest.approx(_sqnr(ours, theirs))
    assert _one(SQNR, _examples(theirs, reference=theirs)) == INF


def test_sqnr_of_int8_is_exact() -> None:
    rng = np.random.default_rng(5)
    ours, theirs = (rng.integers(-128, 128, size=(9, 9)).astype(np.int8) for _ in range(2))
    signal = sum(int(y) ** 2 for y in theirs.reshape(-1))
    noise = sum((int(y) - int(x)) ** 2 for x, y in zip(ours.flat, theirs.flat, strict=True))
    found = _one(SQNR, _examples(ours, reference=theirs))
    assert found == 10 * math.log10(Fraction(signal, noise))


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        ([1.0], [1.0], INF),
        ([0.0], [0.0], INF),
        ([1.0], [0.0], -INF),
        ([NAN], [1.0], NAN),
        ([1.0], [NAN], NAN),
        ([INF], [INF], NAN),
        ([INF], [1.0], NAN),
        ([1e20], [0.0], NAN),
        ([0.5], [1.0], 20 * math.log10(2)),
    ],
)
def test_sqnr_at_its_ends(ours: list[float], theirs: list[float], wanted: float) -> None:
    found = _one(SQNR, _examples(f32([ours]), reference=f32([theirs])))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        ([3, 4], [3, 4], 1.0),
        ([3, 4], [-6, -8], -1.0),
        ([3, 4], [4, -3], 0.0),
        ([3, 4], [0, 0], NAN),
        ([0, 0], [3, 4], NAN),
        ([NAN, 1], [3, 4], NAN),
        ([3, 4], [INF, 4], NAN),
        ([1, 0], [1, 1], math.sqrt(0.5)),
        ([-1, 0], [1, 1], -math.sqrt(0.5)),
    ],
)
def test_cosine_at_its_ends(ours: list[float], theirs: list[float], wanted: float) -> None:
    found = _one(COSINE, _examples(f32([ours]), reference=f32([theirs])))
    np.testing.assert_allclose(found, wanted, rtol=1e-15)


def test_cosine_is_at_most_1() -> None:
    rng = np.random.default_rng(6)
    for scale in (np.float32(3), np.float32(1) / 3, np.float32(-0.1)):
        x = rng.normal(size=(20, 3)).astype(np.float32)
        assert abs(_one(COSINE, _examples(x, reference=x * scale))) <= 1


INTEGERS = {
    "int32": (i32([[I32.min, I32.max, 0, -1, 2**24 + 1]]), np.int32),
    "uint32": (u32([[0, 2**32 - 1, 2**31, 1, 2**31 - 1]]), np.uint32),
    "int16": (i16([[-(2**15), 2**15 - 1, 0, -1, 1]]), np.int16),
    "uint16": (u16([[0, 2**16 - 1, 2**15, 1, 2]]), np.int32),
    "int8": (i8([[-128, 127, 0, -1, 1]]), np.uint8),
}


@pytest.mark.parametrize(("values", "other"), INTEGERS.values(), ids=INTEGERS)
def test_differences_of_integers_are_exact(values: np.ndarray, other: Any) -> None:
    info = np.iinfo(other)
    ours = np.repeat(values, 3, axis=0)
    theirs = np.array([[info.min] * 5, [info.max] * 5, [info.max, 0, info.max, 1, 0]], other)
    wanted = [abs(int(x) - int(y)) for x, y in zip(ours.flat, theirs.flat, strict=True)]
    found = _measured(LSB, _examples(ours, reference=theirs))
    assert found["max_lsb"] == max(wanted)
    assert found["mean_lsb"] == float(Fraction(sum(wanted), len(wanted)))
    swapped = _measured(LSB, _examples(theirs, reference=ours))
    assert swapped == found


def test_differences_of_other_types() -> None:
    ours, theirs = f32([[0.5, -2.0], [1.0, 3.0]]), i8([[1, 1], [1, 1]])
    found = _measured(LSB, _examples(ours, reference=theirs))
    assert found == {"mean_lsb": (0.5 + 3 + 0 + 2) / 4, "max_lsb": 3.0}
    found = _measured(LSB, _examples(ours > 0, reference=ours > 2))
    assert found == {"mean_lsb": 0.5, "max_lsb": 1.0}
    # No 32-bit integer holds both of these.
    ours, theirs = i32([[-5, 7]]), u32([[2**32 - 1, 7]])
    found = _measured(LSB, _examples(ours, reference=theirs))
    assert found == {"mean_lsb": 2.0**31, "max_lsb": 2.0**32}


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_differences_that_are_not_finite(bad: float) -> None:
    ours = f32([[0, 1], [bad, 0], [5, 0]])
    for a, b in ((ours, np.zeros_like(ours)), (np.zeros_like(ours), ours)):
        for parts in (
            [_examples(a, reference=b)],
            [_examples(a[i : i + 1], reference=b[i : i + 1]) for i in range(3)],
        ):
            found = _measured(LSB, *parts)
            assert math.isnan(found["mean_lsb"])
            np.testing.assert_equal(found["max_lsb"], abs(bad))


def test_a_reference_of_another_shape() -> None:
    ours = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for shape in ((2, 1, 3, 4), (2, 3, 1, 4, 1)):
        assert _one(LSB[1], _examples(ours, reference=ours.reshape(shape))) == 0
    assert _one(LSB[1], _examples(ours.reshape(2, 1, 3, 4, 1), reference=ours)) == 0
    for shape in ((2, 4, 3), (3, 2, 4), (2, 12), (24,), (4, 2, 3), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match="output 0 has shape"):
            _one(LSB[1], _examples(ours, reference=ours.reshape(shape)))
    with pytest.raises(ValueError, match="output 0 has shape"):
        _one(AGREEMENT, _examples(ours, reference=ours[:, :2]))


@pytest.mark.parametrize("metric", EACH[2:], ids=lambda m: m.name)
def test_no_reference(metric: Metric) -> None:
    assert metric.needs == {"reference"}
    with pytest.raises(ValueError, match="there is no reference"):
        _one(metric, _examples(np.zeros((2, 3), np.float32)))


def test_other_outputs() -> None:
    good, bad = f32([[0, 1], [1, 0]]), f32([[1, 0], [0, 1]])
    labels = i32([1, 0])
    examples = _examples((bad, good), labels, (good, good))
    makers = (accuracy, functools.partial(top_k, 1), agreement, sqnr, cosine, mean_lsb, max_lsb)
    found = _measured([make(output=i) for make in makers for i in (0, 1)], examples)
    wanted = {"accuracy": 1, "top_1": 1, "agreement": 1, "sqnr": INF, "cosine": 1}
    wanted |= {"mean_lsb": 0, "max_lsb": 0}
    # The names identify rows in a store.
    assert {name: found[f"{name}[1]"] for name in wanted} == wanted
    assert all(found[name] != value for name, value in wanted.items())
    for make in makers:
        with pytest.raises(ValueError, match="output 2"):
            _one(make(output=2), examples)
        with pytest.raises(ValueError, match="output -1"):
            _one(make(output=-1), examples)


def _batch(count: int, seed: int, dtype: Any = np.float32) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    outputs, reference = (rng.integers(-99, 100, size=(count, 5)).astype(dtype) for _ in range(2))
    return outputs, rng.integers(0, 5, size=count).astype(np.int32), reference


def _part(arrays: tuple[np.ndarray, ...], at: Any) -> Examples:
    return _examples(*(x[at] for x in arrays))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_halves_joined_are_the_whole(dtype: Any) -> None:
    arrays = _batch(12, 1, dtype)
    everything = np.arange(12)
    whole = _measured(EACH, _part(arrays, everything))
    mixed = np.random.default_rng(2).permutation(12)
    assert _measured(EACH, _part(arrays, mixed)) == whole
    half = mixed < 5

    def state(*masks: np.ndarray) -> Any:
        found = accumulation.start(EACH, _part(arrays, everything))
        for mask in masks:
            found = _update(EACH)(found, _part(arrays, everything), mask)
        return found

    joined = accumulation.join(EACH, state(half), state(~half))
    for same in (joined, state(half, ~half), state(~half, half)):
        jax.tree.map(np.testing.assert_array_equal, same, state(np.ones(12, bool)))
    assert accumulation.finish(EACH, jax.device_get(joined), 12) == whole


def test_batches_of_another_size() -> None:
    arrays = _batch(12, 1)
    parts = [_part(arrays, np.arange(i, i + 4)) for i in (8, 0, 4)]
    assert _measured(EACH, *parts) == _measured(EACH, _part(arrays, np.arange(12)))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_filled_up_examples_do_not_count(dtype: Any) -> None:
    arrays = _batch(12, 3, dtype)
    counts = np.arange(12) % 3 > 0
    few = _part(arrays, np.flatnonzero(counts))
    wanted = _measured(EACH, few) if dtype == np.float32 else None
    outputs, labels, reference = arrays
    for filling in (NAN, INF, 1e30) if dtype == np.float32 else (I32.min, I32.max):
        outputs[~counts] = filling
        found = _measured(EACH, _examples(outputs, labels, reference), counts=counts)
        wanted = wanted or found
        assert found == wanted
    assert wanted["max_lsb"] == np.max(np.abs(outputs - reference)[counts])  # type: ignore[index]


def test_vmap_is_a_loop() -> None:
    many = [_batch(12, seed) for seed in range(3)]
    outputs = jnp.stack([x[0] for x in many])
    _, labels, reference = many[0]

    def state(y: jax.Array) -> Any:
        examples = _examples(y, labels, reference)
        return accumulation.update(
            EACH, accumulation.start(EACH, examples), examples, jnp.ones(12, bool)
        )

    found = jax.device_get(jax.jit(jax.vmap(state))(outputs))
    for i, (one, *_) in enumerate(many):
        row = accumulation.finish(EACH, jax.tree.map(lambda x, i=i: x[i], found), 12)
        assert row == _measured(EACH, _examples(one, labels, reference))


def test_a_state_starts_from_shapes() -> None:
    examples = _part(_batch(4, 0), np.arange(4))
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), examples)
    started = accumulation.start(EACH, shapes)
    jax.tree.map(np.testing.assert_array_equal, started, accumulation.start(EACH, examples))
    assert set(started) == {m.name for m in EACH}


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, bool])
def test_a_mean_of_ones_own(dtype: Any) -> None:
    values = np.array([[1, 5], [0, 7], [1, 9]], dtype)
    own = mean("own", lambda e: e.outputs[0][:, 0], "labels")
    assert own.needs == {"labels"}
    assert mean("own", lambda e: e.outputs[0][:, 0]).needs == frozenset()
    assert _one(own, _examples(values)) == 2 / 3
    wide = mean("own", lambda e: e.outputs[0])
    with pytest.raises(ValueError, match=r"metric 'own' returned shape \(3, 2\), expected \(3,\)"):
        _one(wide, _examples(values))
    bad = mean("own", lambda e: jnp.where(jnp.arange(3) == 1, jnp.float32(NAN), jnp.float32(1)))
    assert math.isnan(_one(bad, _examples(values)))


def test_a_metric_of_ones_own() -> None:
    def measure(examples: Examples) -> dict[str, Total | Greatest]:
        x = examples.outputs[0]
        return {"sum": Total(x), "most": Greatest(x), "any": Greatest(x > 6)}

    def finish(found: Any, count: int) -> float:
        assert found["sum"] == Fraction(15)
        assert found["any"] == 1
        return found["most"] * 100 + count

    own = Metric("own", measure, finish)
    x = i32([[1, 2], [5, 7]])
    assert _one(own, _examples(x)) == 702
    assert _one(own, _examples(x[:1]), _examples(x[1:])) == 702


def test_own_values_have_examples_on_the_first_axis() -> None:
    examples = _examples(np.ones((4, 2), np.float32))
    for make in (
        lambda e: Total(jnp.sum(e.outputs[0])),
        lambda e: Total(jnp.ones((1, 4), jnp.float32)),
        lambda e: Greatest(jnp.max(e.outputs[0])),
    ):
        own = Metric("own", lambda e, make=make: {"x": make(e)}, lambda found, count: 0.0)
        with pytest.raises(ValueError, match=r"metric 'own' has values of shape .*, expected 4"):
            _one(own, examples)


def test_own_values_of_other_types() -> None:
    own = mean("own", lambda e: e.outputs[0][:, 0].astype(jnp.int8))
    with pytest.raises(TypeError, match="terms of int8"):
        _one(own, _examples(np.ones((4, 2), np.float32)))


def test_metrics_by_name() -> None:
    names = ["accuracy", "agreement", "sqnr", "cosine", "mean_lsb", "max_lsb", "top_1", "top_12"]
    assert [m.name for m in metrics.named(names)] == names
    own = mean("own", lambda e: e.labels)
    assert metrics.named([own, "sqnr"])[0] is own
    assert metrics.named(["accuracy"])[0].needs == {"labels"}
    labels, scores = i32([2] * 4), f32([[3, 2, 1, 0]] * 4)
    (second, third) = metrics.named(["top_2", "top_3"])
    assert _measured([second, third], _examples(scores, labels)) == {"top_2": 0.0, "top_3": 1.0}


@pytest.mark.parametrize("name", ["top_0", "top_", "top_x", "top_05", "mse", "", "named"])
def test_no_such_metric(name: str) -> None:
    with pytest.raises(ValueError, match="no metric"):
        metrics.named([name])


def test_metrics_have_names_of_their_own() -> None:
    for wrong in ([], ["sqnr", "sqnr"], [accuracy(), "accuracy"]):
        with pytest.raises(ValueError, match="each by a name of its own"):
            metrics.named(wrong)
    renamed = dataclasses.replace(accuracy(), name="again")
    assert len(metrics.named([renamed, "accuracy"])) == 2
