"""Spaces against the equivalent loops."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tosajax.sweep import Space, grid, integers, one_at_a_time, random, uniform, zip_


class _Trial:
    """A trial of Optuna that answers from a list, and records the questions."""

    def __init__(self, *answers: Any):
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> Any:
        self.asked.append((name, low, high, log))
        return self.answers.pop(0)

    def suggest_int(self, name: str, low: int, high: int) -> Any:
        self.asked.append((name, low, high))
        return self.answers.pop(0)

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        self.asked.append((name, choices))
        return self.answers.pop(0)


def test_grid_is_nested_loops() -> None:
    found = grid(a=[1, 2], b=(x for x in "pq"), c=["z"])
    wanted = [{"a": a, "b": b, "c": "z"} for a in [1, 2] for b in "pq"]
    assert list(found) == wanted
    assert len(found) == 4
    assert found[0] == wanted[0]
    assert found[-1] == wanted[-1]


def test_grid_without_axes_is_one_empty_setting() -> None:
    assert list(grid()) == [{}]


@pytest.mark.parametrize("value", ["i8", {"conv.*": 4}], ids=["string", "dictionary"])
def test_strings_and_dictionaries_are_one_value(value: Any) -> None:
    assert list(grid(a=value)) == [{"a": value}]
    assert list(zip_(a=value)) == [{"a": value}]
    assert list(random(2, a=value)) == [{"a": value}] * 2


def test_arrays_are_axes() -> None:
    for axis in (np.array([1, 2]), jnp.array([1, 2])):
        assert [int(s["a"]) for s in grid(a=axis)] == [1, 2]


@pytest.mark.parametrize("make", [grid, zip_, lambda **axes: random(0, **axes)])
def test_axes_without_values(make: Any) -> None:
    with pytest.raises(ValueError, match="'b' has no values"):
        make(a=[1], b=[])
    with pytest.raises(TypeError, match="'b' is 8, expected values"):
        make(a=[1], b=8)


@pytest.mark.parametrize("make", [grid, zip_])
def test_ranges_are_no_values(make: Any) -> None:
    for axis in (uniform(0, 1), integers(0, 1)):
        with pytest.raises(TypeError, match="axis 'a' is a range"):
            make(a=axis)


def test_zip() -> None:
    found = zip_(a=[1, 2, 3], b=iter("pqr"))
    assert list(found) == [{"a": 1, "b": "p"}, {"a": 2, "b": "q"}, {"a": 3, "b": "r"}]
    with pytest.raises(ValueError, match=r"different lengths: \{'a': 1, 'b': 2\}"):
        zip_(a=[1], b=[1, 2])


def test_random_is_known_by_its_seed() -> None:
    axes = {"a": uniform(0, 1), "b": integers(-5, 5), "c": "pq", "d": [1, 2, 3]}
    found = random(50, seed=3, **axes)
    assert list(found) == list(random(50, seed=3, **axes))
    assert list(found) != list(random(50, seed=4, **axes))
    assert list(found)[:7] == list(random(7, seed=3, **axes))
    assert list(random(5, **axes)) == list(random(5, seed=0, **axes))


def test_random_has_its_axes() -> None:
    found = random(1, count=[3], a=uniform(0, 1))
    assert set(found[0]) == {"count", "a"}
    assert found.axes["a"] == uniform(0, 1)


def test_random_counts() -> None:
    assert len(random(0, a=[1])) == 0
    with pytest.raises(ValueError, match="count is -1"):
        random(-1, a=[1])


def test_random_values_have_plain_types_and_equal_shares() -> None:
    found = random(3000, a=integers(2, 4), b=uniform(-1, 3), c=["p", "q"])
    counts = collections.Counter(s["a"] for s in found)
    assert set(counts) == {2, 3, 4}
    # Five standard deviations: sqrt(3000 * 1/3 * 2/3) = 25.8.
    assert all(abs(n - 1000) < 130 for n in counts.values())
    assert {type(s["a"]) for s in found} == {int}
    assert {type(s["b"]) for s in found} == {float}
    values = sorted(s["b"] for s in found)
    assert -1 <= values[0] < -0.95
    assert 2.95 < values[-1] <= 3
    assert abs(np.mean(values) - 1) < 0.11
    assert 1300 < sum(s["c"] == "p" for s in found) < 1700


def test_logarithms_are_evenly_spread() -> None:
    values = [s["a"] for s in random(3000, a=uniform(1e-4, 1, log=True))]
    decades = collections.Counter(math.floor(math.log10(v)) for v in values)
    assert all(600 < decades[d] < 900 for d in (-4, -3, -2, -1))
    assert all(1e-4 <= v <= 1 for v in values)


@pytest.mark.parametrize("at", [0.0, 1.0])
def test_rounding_does_not_lead_out_of_a_range(at: float) -> None:
    class Ends:
        """Draws the ends of a range, as a generator may."""

        def uniform(self, low: float, high: float) -> float:
            return high if at else low

    for low, high in itertools.pairwise(10.0**e for e in range(-20, 20)):
        drawn = uniform(low, high, log=True).draw(Ends())  # type: ignore[arg-type]
        assert low <= drawn <= high


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [
        (1, 1, False),
        (2, 1, False),
        (math.nan, 1, False),
        (0, math.nan, False),
        (0, math.inf, False),
        (-math.inf, 0, False),
        (-1.7e308, 1.7e308, False),
        (0, 1, True),
        (-1, 1, True),
    ],
)
def test_ranges_that_cannot_be_drawn_from(low: float, high: float, log: bool) -> None:
    with pytest.raises(ValueError, match="expected finite low < high"):
        uniform(low, high, log)


def test_ranges_of_integers() -> None:
    rng = np.random.default_rng(0)
    assert integers(3, 3).draw(rng) == 3
    assert {integers(0, 1).draw(rng) for _ in range(50)} == {0, 1}
    assert integers(np.int64(3), 3).draw(rng) == 3  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected low <= high"):
        integers(3, 2)
    for low, high in ((0.5, 2), (0, 2.0)):
        with pytest.raises(TypeError):
            integers(low, high)  # type: ignore[arg-type]


def test_one_at_a_time() -> None:
    wanted = [{"bits": {part: bits}} for part in ("a", "b") for bits in (4, 8)]
    assert list(one_at_a_time("bits", ["a", "b"], [4, 8])) == wanted
    assert list(one_at_a_time("bits", iter(["a", "b"]), iter([4, 8]))) == wanted
    assert list(one_at_a_time("bits", "conv", [4])) == [{"bits": {"conv": 4}}]
    for parts, values in (([], [4]), (["a"], [])):
        with pytest.raises(ValueError, match="no values"):
            one_at_a_time("bits", parts, values)


def test_sums_and_products() -> None:
    a, b = grid(x=[1, 2]), grid(x=[2, 3])
    assert list(a + b) == [{"x": 1}, {"x": 2}, {"x": 2}, {"x": 3}]
    c = zip_(y=[5, 6], z=[7, 8])
    assert list(a * c) == [{**s, **t} for s in a for t in c]
    assert set((a * c).axes) == {"x", "y", "z"}
    with pytest.raises(ValueError, match="both spaces have the axes x"):
        _ = a * b
    # Settings without axes also have keys.
    with pytest.raises(ValueError, match="both spaces have the axes x"):
        _ = Space(({"x": 1},)) * b


def test_slices_are_spaces() -> None:
    space = grid(a=[1, 2, 3, 4])
    part = space[1:3]
    assert isinstance(part, Space)
    assert list(part) == [{"a": 2}, {"a": 3}]
    assert part.axes == space.axes
    assert repr(part) == "Space(2 settings of a)"
    assert repr(Space(())) == "Space(0 settings of nothing)"


def test_suggestions() -> None:
    array = np.array([1, 2])
    space = random(
        0, a=uniform(1, 2, log=True), b=integers(0, 9), c=["p", None, 2.5], d=[array, {"e": 1}]
    )
    trial = _Trial(1.5, 7, None, 1)
    assert space.suggest(trial) == {"a": 1.5, "b": 7, "c": None, "d": {"e": 1}}
    assert trial.asked == [
        ("a", 1, 2, True),
        ("b", 0, 9),
        ("c", ("p", None, 2.5)),
        ("d", 0, 1),
    ]


def test_a_sum_suggests_values_of_both() -> None:
    trial = _Trial(8)
    (grid(a=[2, 4]) + grid(a=[4, 8])).suggest(trial)
    assert trial.asked == [("a", (2, 4, 8))]
    # 1, 1.0 and True are different values.
    trial = _Trial(1)
    (grid(a=[1, 1.0]) + grid(a=[True, 1])).suggest(trial)
    assert [type(v) for v in trial.asked[0][1]] == [int, float, bool]


def test_a_sum_of_arrays_suggests_each_once() -> None:
    first, second = np.array([1, 2]), np.array([3, 4])
    space = grid(a=[first]) + grid(a=[second, first.copy()])
    trial = _Trial(1)
    assert space.suggest(trial)["a"] is second
    assert trial.asked == [("a", 0, 1)]


def test_a_sum_of_ranges_suggests_from_either() -> None:
    space = random(1, a=uniform(0, 1)) + random(1, a=integers(5, 9))
    trial = _Trial(0, 0.5)
    assert space.suggest(trial) == {"a": 0.5}
    assert trial.asked == [("a/axis", 0, 1), ("a/0", 0, 1, False)]
    trial = _Trial(1, 6)
    assert space.suggest(trial) == {"a": 6}
    assert trial.asked == [("a/axis", 0, 1), ("a/1", 5, 9)]
    same = random(1, a=uniform(0, 1)) + random(1, seed=1, a=uniform(0, 1))
    assert same.axes == {"a": uniform(0, 1)}


def test_a_sum_draws_from_either() -> None:
    space = random(1, a=uniform(0, 1)) + random(1, a=integers(5, 9))
    rng = np.random.default_rng(0)
    drawn = [space.draw(rng)["a"] for _ in range(20)]
    assert min(drawn) <= 1
    assert max(drawn) >= 5
    mixed = grid(a=[7]) + random(1, a=integers(0, 3))
    assert {mixed.draw(rng)["a"] for _ in range(50)} == {0, 1, 2, 3, 7}


def test_optuna_takes_the_suggestions() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = random(0, a=uniform(1, 2), b=integers(0, 3), c=["p", None], d=[{"e": 1}, {"e": 2}])
    space = space + random(0, a=integers(5, 6))
    found = []

    def objective(trial: Any) -> float:
        found.append(space.suggest(trial))
        return 0.0

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=30)
    assert {type(s["a"]) for s in found} == {int, float}
    assert {s["b"] for s in found} == {0, 1, 2, 3}
    assert {s["c"] for s in found} == {"p", None}
    assert {s["d"]["e"] for s in found} == {1, 2}


def test_ranges_and_spaces_do_not_change() -> None:
    for thing, name in ((uniform(0, 1), "low"), (integers(0, 1), "low"), (grid(a=[1]), "axes")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, 5)
