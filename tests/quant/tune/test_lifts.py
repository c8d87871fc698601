"""Which tensors are lifted to INT16 within a budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.image_networks import Images

from tosajax import DType
from tosajax import quant as tq
from tosajax.quant.tune import lifts as lifts_file
from tosajax.quant.tune.costs import Limits
from tosajax.quant.tune.lifts import (
    Examples,
    best_set,
    by_miss,
    lift_some,
    outputs_to_lift,
    sets_to_lift,
)

RNG = np.random.default_rng(3)
W, SQUARE = (RNG.normal(0, 1, shape).astype(np.float32) for shape in ((6, 4), (4, 4)))
X = RNG.normal(0, 1, (8, 6)).astype(np.float32)


def each(noise: float) -> np.ndarray:
    """Examples with this noise, some more and some less."""
    return noise * np.asarray([0.9, 1.1, 1, 1])


def chosen(gains: Sequence[float], costs: Sequence[float], deadline: float = math.inf) -> list[int]:
    """The set where the noise is 100, less what each gains, and the budget 10."""

    def noise(places: Sequence[int]) -> np.ndarray:
        return each(100 - sum(gains[place] for place in places))

    def fits(places: Sequence[int]) -> bool:
        return sum(costs[place] for place in places) <= 10

    order = by_miss(costs, [lambda places: noise(places).mean()], fits, deadline)
    return best_set(sets_to_lift(order, fits), noise)


@pytest.mark.parametrize(
    ("gains", "costs", "wanted"),
    [
        ([10, 9, 8], [1, 1, 1], [0, 1, 2]),
        ([10, 9, 8], [9, 5, 5], [1, 2]),  # cheap ones together
        ([90, 10, 1.5], [10, 1, 1], [1, 2]),  # those are missed most for their cost
        ([10, 9, -5], [1, 1, 1], [0, 1]),
        ([10, 0.5], [1, 1], [0]),  # too little
        ([0.5, 0.4], [1, 1], []),
        ([10, 9], [11, 1], [1]),
        ([10, 9], [11, 12], []),
    ],
)
def test_less_noise_within_the_budget(gains, costs, wanted):
    assert sorted(chosen(gains, costs)) == wanted


def test_sets_of_the_first_places():
    places = [7, 5, 3, 1, 0, 2]
    assert sets_to_lift(places, lambda _: True) == [[], [7], [7, 5], [7, 5, 3, 1], places]
    assert sets_to_lift(places, lambda s: 5 not in s and len(s) < 5) == [
        [], [7], [7, 3], [7, 3, 1, 0]
    ]  # fmt: skip
    assert sets_to_lift(places[:2], lambda _: True) == [[], [7], [7, 5]]
    assert sets_to_lift(places[:1], lambda _: True) == [[], [7]]
    assert sets_to_lift([], lambda _: True) == [[], []]


def test_what_helps_only_together():
    """Two tensors of a sum: either alone leaves the noise of the other, and hides nothing."""

    def noise(places: Sequence[int]) -> np.ndarray:
        return each(100 - 60 * ({0, 1} <= {*places}) - 5 * (2 in places) + 3 * (3 in places))

    totals = [lambda places: noise(places).mean()]
    order = by_miss([1, 1, 1, 1, 9], totals, lambda s: 4 not in s, math.inf)
    assert order == [0, 1, 2, 3]
    assert best_set(sets_to_lift(order, lambda s: len(s) < 4), noise) == [0, 1, 2]


def test_all_examples_say_what_is_missed():
    gains = [[9.0, 6.0, 0.0], [0.0, 6.0, 9.0], [0.0, 0.0, 20.0]]
    noises = [lambda places, own=own: 100 - sum(own[place] for place in places) for own in gains]

    def order(count: int) -> list[int]:
        return by_miss([1, 1, 1], noises[:count], lambda _: True, math.inf)

    assert [order(count) for count in (1, 2, 3)] == [[0, 1, 2], [1, 0, 2], [2, 1, 0]]


def test_a_set_has_to_leave_clearly_less():
    noises, sets = [10.0, 9.95, 9.85], [[0], [1], [2]]

    def noise(places: Sequence[int]) -> np.ndarray:
        return each(noises[places[0]])

    assert best_set(sets, noise) == [2]
    assert best_set(sets[:2], noise) == [0]
    noises[0] = math.nan
    assert best_set(sets[:2], noise) == [1]
    assert best_set(sets[:1], noise) == [0]


def test_two_examples_do_not_choose_a_set():
    """Where one example has nearly all noise, sets of which each moves it gain by chance."""
    noises = np.ones((4, 32))
    noises[0, :2] = 100
    noises[1, 0] = noises[2, :2] = noises[3, :3] = 1
    noises[1, 1] = 100
    noises[3, 2:] = 0.5
    sets = [[n] for n in range(4)]

    def chosen_of(*numbers: int) -> list[int]:
        return best_set([sets[n] for n in numbers], lambda places: noises[places[0]])

    assert chosen_of(0, 1) == chosen_of(0, 2) == [0]
    assert chosen_of(2, 3) == [3]
    assert chosen_of(0, 1, 3, 2) == [3]


def test_a_set_is_set_beside_none():
    """However little it gains beside a smaller one, if both are clearly better than none."""
    noises = [np.full(32, 10.0), np.full(32, 5.0), np.full(32, 5.0)]
    noises[2][:2] = 0.1
    assert best_set([[0], [1], [2]], lambda places: noises[places[0]]) == [2]


def test_no_time():
    assert chosen([10, 9], [1, 1], deadline=time.perf_counter() - 1) == []


def test_little_time(monkeypatch):
    """Cheap places come first; other examples count if all places are known."""
    clock = [0.0]
    monkeypatch.setattr(lifts_file.time, "perf_counter", lambda: clock[0])

    def noise_of(gains: Sequence[float]) -> Callable[[Sequence[int]], float]:
        def noise(places: Sequence[int]) -> float:
            clock[0] += 1
            return 100 - sum(gains[place] for place in places)

        return noise

    noises = [noise_of([20, 4, 3, 2]), noise_of([0, 0, 9, 9])]

    def order_in(seconds: float) -> list[int]:
        clock[0] = 0.0
        return by_miss([9, 2, 1, 1], noises, lambda _: True, seconds)

    assert order_in(0) == []
    assert order_in(1) == [2]
    assert order_in(3) == [2, 3, 1]
    assert order_in(4) == order_in(8) == [2, 0, 3, 1]
    assert order_in(9) == [2, 3, 0, 1]


# Outputs.


def model_of(function: Callable[..., Any], *rules: tq.Rule) -> tq.PreparedModel:
    return tq.prepare(function, rules, example_args=[X[:1]])


def boxes(x: jax.Array) -> jax.Array:
    """Two heads of one output, as detectors have them."""
    return jnp.concatenate([(x @ W).reshape(-1, 2, 2), (x @ W @ SQUARE).reshape(-1, 2, 2)], 1)


def test_outputs_and_what_is_moved_into_them():
    model = model_of(boxes)
    lifted = outputs_to_lift(model)
    (output,) = model.graph.outputs
    assert model.owners[output] in lifted
    producers = {name: node for node in model.float_graph.nodes for name in node.outputs}
    sources = {producers[name].op for name in lifted}
    assert sources >= {"CONCAT"}
    assert sources <= {"CONCAT", "CONV2D", "MATMUL", "RESHAPE"}
    params = tq.calibrate(model, [X])
    wanted = np.asarray(model.apply(params, X, mode="float")[0])
    halves = [Examples((X,), (wanted,))] * 2
    none, all_of_them = (Limits(model, tq.Budget(wide_macs=share)) for share in (0, 1))
    wide, own, lifts = lift_some(model, params, [output], halves, [1.0], none, math.inf)
    assert (lifts.lifted, wide.graph) == ((), model.graph)
    wide, own, lifts = lift_some(
        model, params, [output], halves, [1.0], none, math.inf, outputs=lifted
    )
    assert (set(lifts.lifted), lifts.wide_macs) == (set(lifted), 0)
    assert wide.graph.output_tensors[0].dtype is DType.INT16
    noise, before = (
        float(np.square(m.apply(p, X)[0] - wanted).mean())
        for m, p in ((wide, own), (model, params))
    )
    assert noise < 0.7 * before
    more = lift_some(model, params, [output], halves, [1.0], all_of_them, math.inf, outputs=lifted)[
        2
    ]
    assert {*lifted} < {*more.lifted}
    assert more.wide_macs > 0
    assert tq.check_bit_exact(wide, own, X[:2], against=("frozen",))


def test_all_halves_choose(monkeypatch):
    model = model_of(lambda x: x @ W @ SQUARE @ SQUARE)
    params = tq.calibrate(model, [X])
    names: list[str] = []
    noises = {"first": (100.0, 60.0, 99.9, 55.0), "second": (50.0, 10.0, 50.0, 200.0)}

    def lifted_outputs(model: Any, params: Any, candidates: Sequence[str], ranges: Any) -> Any:
        names[:] = candidates

        def outputs(places: Sequence[int], half: str) -> tuple[np.ndarray]:
            noise = noises[half][sum(place + 1 for place in places)]
            return (1 + np.sqrt(each(noise))[:, None],)

        return outputs

    monkeypatch.setattr(lifts_file, "lifted_outputs", lifted_outputs)
    halves = [Examples((half,), (np.ones((4, 1)),)) for half in noises]
    budget = [1.0], Limits(model, tq.Budget(wide_macs=1)), math.inf
    alone = lift_some(model, params, list(model.graph.outputs), halves[:1], *budget)[2]
    both = lift_some(model, params, list(model.graph.outputs), halves, *budget)[2]
    assert len(names) == 2
    assert set(alone.lifted) == set(names)
    assert both.lifted == (names[0],)
    assert alone.left == {}
    assert both.left == {names[1]: pytest.approx(127.5)}


FIXED = tq.rule("^dot_general_1$", act=tq.QSpec(observer=tq.fixed(0.1)))
INT16 = tq.rule("^dot_general_1$", act=tq.QSpec("i16"))


@pytest.mark.parametrize(
    ("function", "rules"),
    [
        (lambda x: jax.nn.softmax(x @ W), ()),
        (lambda x: jax.nn.sigmoid(x @ W), ()),
        (lambda x: x @ W, (FIXED,)),
        (lambda x: x @ W, (INT16,)),
        (lambda x: jnp.flip(x, 1), ()),
    ],
    ids=["softmax", "sigmoid", "fixed", "INT16", "input"],
)
def test_outputs_that_stay(function: Callable[..., Any], rules: tuple[tq.Rule, ...]):
    assert outputs_to_lift(model_of(function, *rules)) == []


def test_constants_and_what_is_not_moved():
    """A constant is no activation; a pool has other integers than what it is of."""
    model = model_of(lambda x: (x @ W, jnp.asarray(SQUARE) * 2))
    assert outputs_to_lift(model) == [model.owners[model.graph.outputs[0]]]
    n = Images()
    pool = n.b.op(
        "AVG_POOL2D", n.conv(n.input, "y"), n.zero, n.zero, kernel=(6, 6), stride=(1, 1),
        pad=(0, 0, 0, 0), acc_type=DType.FP32, name="pool",
    )  # fmt: skip
    means = tq.prepare(n.b.graph([pool]))
    assert "y" in means.activations
    assert outputs_to_lift(means) == ["pool"]


def test_features_that_are_outputs_stay():
    """A product reads them."""

    def features(x: jax.Array) -> tuple[jax.Array, ...]:
        y = x @ W
        return y, y @ SQUARE

    model = model_of(features)
    (lifted,) = outputs_to_lift(model)
    assert lifted == model.owners[model.graph.outputs[1]]
