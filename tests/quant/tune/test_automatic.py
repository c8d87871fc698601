"""auto: one call from floats to integers, remedies that help, budgets."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import re
import time
from typing import Any

import jax
import numpy as np
import pytest

from tosajax import DType, Graph, reference_model
from tosajax import quant as tq
from tosajax.quant.model.parts import heads
from tosajax.quant.model.programs import Programs
from tosajax.quant.tune.noise import decibels, relative_noise
from tosajax.quant.tune.range_choice import RangeChoice

AGAINST = ("frozen", "reference_model") if reference_model.is_installed() else ("frozen",)
WIDTH, CLASSES = 8, 4


def weights() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    shapes = [(WIDTH, WIDTH)] * 3 + [(WIDTH, CLASSES)]
    made = [rng.normal(0, 0.5, shape).astype(np.float32) for shape in shapes]
    # Channels that are far apart between the first two layers: equalization helps.
    spread = np.float32(10.0) ** np.linspace(-1.5, 1.5, WIDTH, dtype=np.float32)
    return [made[0] * spread, made[1] / spread[:, None], *made[2:]]


def network(x: jax.Array) -> jax.Array:
    first, second, third, last = weights()
    y = jax.nn.relu((x @ first) @ second)
    y = jax.nn.relu(y @ third)
    return jax.nn.softmax(y @ last)


def examples(count: int = 16, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 1, (1, WIDTH)).astype(np.float32) for _ in range(count)]


@functools.cache
def result() -> tq.Auto:
    return tq.auto(network, examples(), example_args=[examples()[0]])


def logits_sqnr(model: tq.PreparedModel, params: Any) -> float:
    x = np.concatenate(examples(32, seed=9))
    watched = model.with_outputs(*heads(model))
    (actual,), (wanted,) = watched.apply(params, x), watched.apply(params, x, mode="float")
    return float(10 * np.log10(np.sum(np.square(wanted)) / np.sum(np.square(actual - wanted))))


def test_it_is_better_than_the_defaults_on_other_examples():
    model = tq.prepare(network, example_args=[examples()[0]])
    plain = logits_sqnr(model, tq.calibrate(model, examples()))
    assert logits_sqnr(result().model, result().params) > plain + 5


def test_the_graph_is_the_model():
    found = result()
    assert isinstance(found.graph, Graph)
    assert found.graph == found.model.freeze(found.params)
    x = np.concatenate(examples(4))
    assert tq.check_bit_exact(found.model, found.params, x, against=AGAINST)


def test_each_remedy_is_in_the_report():
    names = [remedy.name for remedy in result().remedies]
    assert names == [
        *("defaults", "percentile 99.999", "percentile 99.99", "mse", "all examples seen"),
        *("gptq", "smooth 1, gptq", "smooth 0.5, gptq", "equalize, gptq"),
        *("INT16", "bias_correct"),
    ]
    kept = [remedy for remedy in result().remedies if remedy.is_kept]
    assert {"equalize, gptq", "smooth 1, gptq"} & {remedy.name for remedy in kept}
    assert kept[-1].sqnr > kept[0].sqnr + 5
    assert all(remedy.seconds >= 0 and not remedy.score for remedy in result().remedies)


def test_its_text():
    many = tuple(f"layer_{n}/copy" for n in range(40))
    lines = str(dataclasses.replace(result(), lifted=many)).splitlines()
    assert max(len(line) for line in lines if "/copy" in line) <= 100
    shown = " ".join(line.strip() for line in lines if "/copy" in line)
    assert f"lifted to INT16: {', '.join(many)}" in shown
    assert "lifted to INT16" not in str(dataclasses.replace(result(), lifted=()))
    text = str(result())
    assert "Auto(SQNR " in text
    for remedy in result().remedies:
        assert remedy.name in text
    assert "output " in text
    assert " dB now" in text
    assert "equalize" in result()._repr_html_()


@pytest.mark.parametrize("share", [0.3, pytest.param(1.0, marks=pytest.mark.slow)])
def test_macs_are_within_the_budget(share):
    budget = tq.Budget(wide_macs=share)
    found = tq.auto(network, examples(), example_args=[examples()[0]], budget=budget)
    assert found.wide_macs <= share
    lifted = {name: found.model.specs[name].storage.dtype for name in found.lifted}
    assert set(lifted.values()) <= {DType.INT16}


def _linear_result(**budget: Any) -> tq.Auto:
    options = {"example_args": [examples()[0]], "budget": tq.Budget(**budget)}
    return tq.auto(lambda x: x @ weights()[1], examples(), **options)


def test_outputs_are_wide():
    """No multiply-accumulate reads them; a budget without INT16, or without wide outputs, holds."""
    found = _linear_result()
    (output,) = found.graph.output_tensors
    assert output.dtype is DType.INT16
    assert found.lifted == (found.model.owners[output.name],)
    assert found.wide_macs == 0
    assert found.outputs[output.name][1] > found.outputs[output.name][0]
    for budget in ({"wide_outputs": False}, {"wide_macs": 0.0}):
        narrow = _linear_result(**budget)
        assert narrow.graph.output_tensors[0].dtype is DType.INT8
        assert narrow.lifted == ()
    assert all(remedy.name != "INT16" for remedy in narrow.remedies)


def test_constants_of_the_same_function_leave_time_for_the_rest(monkeypatch):
    from tosajax.quant.tune import automatic

    monkeypatch.setattr(automatic, "_SHARE", 0.0)
    names = [remedy.name for remedy in _linear_result().remedies]
    assert names[-5:] == ["all examples seen", "gptq", "INT16", "gptq again", "bias_correct"]


def test_memory_is_given_back_and_programs_are_let_go(monkeypatch):
    """Behind each remedy; those of ranges before INT16, and those without INT16 behind it."""
    from tosajax.quant.tune import automatic

    events: list[Any] = []
    own = Programs.clear
    monkeypatch.setattr(automatic, "trim", lambda: events.append("trim"))
    monkeypatch.setattr(Programs, "clear", lambda self: (events.append(self), own(self)))
    found = _linear_result()
    assert events.count("trim") == len(found.remedies)
    at = [remedy.name for remedy in found.remedies].index("INT16")
    trims = [place for place, event in enumerate(events) if event == "trim"]
    assert len({id(each) for each in events[trims[at - 1] + 1 : trims[at]]}) == 3  # of ranges
    (without,) = events[trims[at] + 1 : trims[at + 1]]
    assert without is not found.model.programs


def test_the_choice_of_int16_leaves_time_for_what_follows(monkeypatch):
    from tosajax.quant.tune import automatic

    own, left = automatic.lift_some, []

    def lift_some(*arguments: Any, **options: Any) -> Any:
        left.append(arguments[6] - time.perf_counter())
        return own(*arguments, **options)

    monkeypatch.setattr(automatic, "lift_some", lift_some)
    monkeypatch.setattr(automatic, "_REST", 1000)
    found = _linear_result(seconds=1e6)
    assert left[0] < 1e6 - 1000 * found.remedies[0].seconds


def test_int16_is_kept_unless_the_noise_grows(monkeypatch):
    """Outputs are wide for the sake of small elements, which hardly count as noise."""
    from tosajax.quant.tune import automatic

    def is_kept(share: float, name: str = "INT16") -> bool:
        """Whether a remedy stays that adds a share to all noise."""

        def with_noise(self: Any, candidate: Any, of_halves: Any) -> Any:
            is_new = candidate.note == "new" or bool(candidate.lifts.lifted)
            noise = np.full(8, 0.1) * (1 + share * is_new)
            return candidate._replace(noise=noise, held_back=noise.copy())

        monkeypatch.setattr(automatic._Search, "_with_noise", with_noise)
        monkeypatch.setattr(
            automatic._Search, "_by_gptq", lambda self, best: best._replace(note="new")
        )
        remedies = {remedy.name: remedy for remedy in _linear_result().remedies}
        return remedies[name].is_kept

    assert is_kept(0.005)
    assert not is_kept(0.02)
    assert not is_kept(-0.001, "gptq")  # too little for any other remedy
    assert is_kept(-0.1, "gptq")


def test_outputs_count_alike():
    """However much noise each has at first, what is left of it counts."""
    fine, coarse = np.diag([1.0] * 4).astype(np.float32), weights()[3]

    def fn(x: jax.Array) -> tuple[jax.Array, ...]:
        return x[:, :4] @ fine, (x @ coarse) ** 3 * np.array([[1, 100, 1, 1]], np.float32)

    search = _search_of(fn)
    noises = np.concatenate([search._noises(search.first, n, search.heads) for n in (0, 1)], 1)
    each = noises.mean(1)
    assert each.max() > 2 * each.min()
    np.testing.assert_allclose(search.weights * each, np.exp(np.log(each).mean()) / len(each))
    joined = np.concatenate([search.first.noise, search.first.held_back])
    np.testing.assert_allclose(joined, search.weights @ noises)


def _search_of(fn: Any) -> Any:
    """The search of `auto` before any remedy, with the ranges of all examples."""
    from tosajax.progress import Progress
    from tosajax.quant.tune.automatic import _Search

    model, batches = tq.prepare(fn, example_args=[examples()[0]]), examples()
    with Progress(None, False, unit="remedy") as bar:
        params, budget = tq.calibrate(model, batches), tq.Budget(seconds=0)
        return _Search(model, params, batches, budget, None, bar, time.perf_counter() - 1)


def test_noise_of_weights_is_without_that_of_activations():
    matrix = weights()[3]
    search = _search_of(lambda x: x @ matrix)
    model, params = search.first.model, search.first.params
    (name,) = model.weights
    frozen = model.freeze(params)
    integers = np.asarray(frozen.tensors[name].values, np.float64).reshape(CLASSES, WIDTH)
    scales = np.asarray(params["qparams"][name].scale, np.float64).reshape(-1, 1)
    rounded = (integers * scales).T
    found = search._noise_of_weights(search.first)
    assert np.concatenate(found).mean() < search.first.noise.mean()
    for half, own in zip(search.halves, found, strict=True):
        (x,) = (np.asarray(each, np.float64).reshape(-1, WIDTH) for each in half)
        noise, signal = (np.square(x @ each).sum(1) for each in (rounded - matrix, matrix))
        np.testing.assert_allclose(own, noise / np.maximum(signal, np.median(signal)), rtol=1e-3)


def test_weights_of_less_noise_are_kept_though_activations_hide_it(monkeypatch):
    search = _search_of(network)
    best = search.first._replace(noise=np.full(8, 0.1), held_back=np.full(8, 0.1))

    def is_kept(whole: float, of_weights: float, score: float | None = None) -> bool:
        """Whether a remedy stays that changes the noise of all and of weights by these shares."""
        noise = 0.1 * (1 + whole) * np.linspace(0.9, 1.1, 8)
        candidate = best._replace(noise=noise, held_back=noise.copy(), note="new", score=score)

        def noise_of_weights(each: Any) -> tuple[np.ndarray, np.ndarray]:
            share = 1 + of_weights * (each.note == "new")
            return np.full(8, 0.01 * share), np.full(8, 0.01 * share)

        monkeypatch.setattr(search, "_noise_of_weights", noise_of_weights)
        monkeypatch.setattr(search, "best", best._replace(score=None if score is None else 0.5))
        return search._rounds_better(candidate)

    assert is_kept(0.01, -0.5)
    assert not is_kept(0.01, 0.0)
    assert not is_kept(0.3, -0.5)  # more than chance
    assert is_kept(-0.3, 0.5)  # all in all
    assert is_kept(0.01, -0.5, score=0.5)
    assert not is_kept(0.01, -0.5, score=0.4)


def test_gptq_is_tried_once_more_behind_int16(monkeypatch):
    """Where it was not kept before, and INT16 was."""
    from tosajax.quant.tune import automatic

    for is_lifted, more in (
        (True, ["gptq again", "bias_correct"]),
        (False, ["INT16", "bias_correct"]),
    ):
        monkeypatch.setattr(automatic._Search, "_rounds_better", lambda *_: False)
        monkeypatch.setattr(automatic._Search, "_is_better", lambda *_: False)
        monkeypatch.setattr(
            automatic._Search, "_is_no_worse", lambda *_, kept=is_lifted, **__: kept
        )
        found = _linear_result()
        assert [remedy.name for remedy in found.remedies][-2:] == more
    monkeypatch.setattr(automatic._Search, "_rounds_better", lambda *_: True)
    assert _linear_result().remedies[-2].name == "INT16"


def test_what_has_no_channels_to_scale_takes_no_time():
    notes = {remedy.name: remedy.note for remedy in _linear_result().remedies}
    for name in ("smooth 1, gptq", "smooth 0.5, gptq", "equalize, gptq", "equalize"):
        assert notes[name] == "no channels to scale"


def test_no_time():
    """The defaults, measured, and nothing more."""
    found = tq.auto(network, examples(), example_args=[examples()[0]], budget=tq.Budget(seconds=0))
    assert [remedy.name for remedy in found.remedies] == ["defaults"]
    assert found.graph.output_tensors[0].dtype is DType.INT8


def test_the_metric_decides():
    """It sees predictions of integers, and a remedy that lowers it is not kept."""
    x = np.concatenate(examples(8, seed=3))
    wanted = np.asarray(jax.jit(network)(x)).argmax(-1)
    scores: list[float] = []

    def accuracy(predict: Any) -> float:
        (probabilities,) = predict(x)
        assert probabilities.shape == (8, CLASSES)
        scores.append(float(np.mean(np.asarray(probabilities).argmax(-1) == wanted)))
        return scores[-1]

    found = tq.auto(network, examples(), example_args=[examples()[0]], metric=accuracy)
    scored = [remedy for remedy in found.remedies if remedy.name != "all examples seen"]
    assert [remedy.score for remedy in scored] == scores
    kept = [remedy.score or 0.0 for remedy in found.remedies if remedy.is_kept]
    assert kept == sorted(kept)


@pytest.mark.slow
def test_no_remedy_that_lowers_the_metric_is_kept():
    calls = iter(range(100))
    worse = tq.auto(
        network, examples(), example_args=[examples()[0]], metric=lambda predict: -next(calls)
    )
    assert [remedy.is_kept for remedy in worse.remedies].count(True) == 2
    assert worse.remedies[4].score == worse.remedies[0].score == 0


@pytest.mark.slow
def test_noise_decides_where_the_metric_is_the_same():
    found = tq.auto(network, examples(), example_args=[examples()[0]], metric=lambda predict: 0.5)
    assert [(r.name, r.is_kept) for r in found.remedies] == [
        (r.name, r.is_kept) for r in result().remedies
    ]


def _with_outliers(*places: int) -> list[np.ndarray]:
    batches = examples()
    for place in places:
        batches[place] = batches[place] * np.float32(100)
    return batches


def _linear(x: jax.Array) -> jax.Array:
    first, second, *_, last = weights()
    return jax.nn.relu(x @ first @ second) @ last


def test_examples_far_beyond_others_are_left_out():
    """Otherwise all others have the few integers that their range leaves."""
    found = tq.auto(_linear, _with_outliers(3, 8), example_args=[examples()[0]])
    remedy = found.remedies[1]
    assert (remedy.name, remedy.is_kept) == ("without outliers", True)
    assert re.match(r"2 examples of 16, with outputs [0-9]+ times as large as usual", remedy.note)
    assert remedy.sqnr > found.remedies[0].sqnr
    x = np.concatenate(examples(32, seed=9))
    outputs = [found.model.apply(found.params, x, mode=m)[0] for m in ("exact", "float")]
    assert np.square(outputs[0] - outputs[1]).sum() < 0.1 * np.square(outputs[1]).sum()


def test_what_the_defaults_make_of_the_examples_that_count():
    """Those that are held back, without the outlier among them."""
    batches = _with_outliers(3, 8)
    budget = tq.Budget(seconds=60)
    found = tq.auto(_linear, batches, example_args=[examples()[0]], budget=budget)
    assert "without outliers" in [remedy.name for remedy in found.remedies]
    model = tq.prepare(_linear, example_args=[examples()[0]])
    params = tq.calibrate(model, batches)
    x = np.concatenate([batches[n] for n in range(1, 16, 2) if n != 3])
    exact, wanted = (np.asarray(model.apply(params, x, mode=m)[0]) for m in ("exact", "float"))
    ((before, _),) = found.outputs.values()
    assert before == pytest.approx(decibels(relative_noise(exact, wanted).mean()), abs=1e-3)


@pytest.mark.parametrize(("then", "is_kept"), [(1.0, True), (-1.0, False)])
def test_the_metric_decides_whether_examples_are_left_out(then, is_kept):
    scores = iter([0.0, then, then])
    budget = tq.Budget(seconds=60)
    found = tq.auto(
        _linear,
        _with_outliers(3, 8),
        example_args=[examples()[0]],
        metric=lambda predict: next(scores, -2.0),
        budget=budget,
    )
    remedy = found.remedies[1]
    assert (remedy.name, remedy.is_kept, remedy.score) == ("without outliers", is_kept, then)


def test_rare_large_probabilities_are_no_outliers():
    def small(x: jax.Array) -> jax.Array:
        return _linear(x) * np.float32(1e-4)

    budget = tq.Budget(seconds=1)
    found = tq.auto(small, _with_outliers(3, 8), example_args=[examples()[0]], budget=budget)
    assert "without outliers" not in [remedy.name for remedy in found.remedies]


@pytest.mark.slow
def test_examples_of_which_many_are_large_stay():
    places = [3, 4, 8, 9, 12]
    budget = tq.Budget(seconds=5)
    found = tq.auto(_linear, _with_outliers(*places), example_args=[examples()[0]], budget=budget)
    assert "without outliers" not in [remedy.name for remedy in found.remedies]


def test_one_example_chooses_and_judges():
    (example,) = examples(1)
    found = tq.auto(network, [example], example_args=[example], budget=tq.Budget(seconds=0))
    (remedy,) = found.remedies
    assert remedy.sqnr == remedy.held_back


def test_a_remedy_that_raises_is_in_the_report(monkeypatch):
    from tosajax.quant.tune import automatic

    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError("no place for it")

    for name in ("equalize", "smooth", "bias_correct", "gptq"):
        monkeypatch.setattr(automatic, name, fails)
    found = tq.auto(network, examples(), example_args=[examples()[0]])
    (remedy,) = [each for each in found.remedies if each.name == "bias_correct"]
    assert (remedy.is_kept, remedy.note) == (False, "no place for it")
    assert [each.name for each in found.remedies if "smooth" in each.name] == [
        *("smooth 1, gptq", "smooth 0.5, gptq", "smooth 1", "smooth 0.5")
    ]


@pytest.mark.slow
def test_ranges_are_judged_on_examples_that_they_have_not_seen():
    """The ranges of small examples clip large ones; those of large ones are coarse for small."""
    mixed = [x * (4 if number % 2 else 1) for number, x in enumerate(examples())]
    found = tq.auto(network, mixed, example_args=[mixed[0]], budget=tq.Budget(wide_macs=0))
    remedies = {remedy.name: remedy for remedy in found.remedies}
    assert "INT16" not in remedies
    unseen, seen = remedies["defaults"], remedies["all examples seen"]
    assert seen.held_back > unseen.held_back + 1.5
    assert abs(seen.sqnr - unseen.sqnr) < 3


@pytest.mark.parametrize("budget", [{"seconds": -1}, {"wide_macs": 1.5}, {"wide_macs": -0.1}])
def test_a_budget_out_of_range(budget):
    (name,) = budget
    with pytest.raises(ValueError, match=name):
        tq.Budget(**budget)


def test_a_search_goes_on_from_another():
    states: list[tq.Auto] = []
    options: dict[str, Any] = {"example_args": [examples()[0]]}
    tq.auto(network, examples(), **options, on_remedy=states.append)
    whole = result()
    assert states[-1].graph == whole.graph
    for at in (1, 4, len(states) - 2, len(states) - 1):
        start, more = pickle.loads(pickle.dumps(states[at])), list[tq.Auto]()
        found = tq.auto(network, examples(), **options, start=start, on_remedy=more.append)
        names = [remedy.name for remedy in whole.remedies]
        assert [remedy.name for remedy in found.remedies] == names
        assert len(more) == len(states) - 1 - at
        assert found.graph == whole.graph
        assert found.lifted == whole.lifted
        kept = [remedy.is_kept for remedy in whole.remedies]
        assert [remedy.is_kept for remedy in found.remedies] == kept


def test_a_search_does_not_go_on_from_that_of_another_graph():
    with pytest.raises(ValueError, match=r"start is of a graph of .*, expected the result of "):
        tq.auto(network, examples(), example_args=[examples()[0]], start=_linear_result())


def test_wrong_arguments():
    with pytest.raises(TypeError, match=r"budget .* a quant\.Budget"):
        tq.auto(network, examples(), example_args=[examples()[0]], budget=60)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no examples"):
        tq.auto(network, [], example_args=[examples()[0]])


def test_heads_are_logits():
    """The softmax is left out, also of several outputs; a sum at the end is its own head."""
    (head,) = heads(tq.prepare(network, example_args=[examples()[0]]))
    graph = tq.prepare(network, example_args=[examples()[0]]).float_graph
    producers = {name: node for node in graph.nodes for name in node.outputs}
    assert producers[head].op in ("CONV2D", "MATMUL", "ADD")
    w, square = weights()[3], weights()[3][:CLASSES]

    def several(x: jax.Array) -> tuple[jax.Array, ...]:
        y = x @ w
        return jax.nn.softmax(y), jax.nn.sigmoid(y @ square), y + y @ square

    model = tq.prepare(several, example_args=[examples()[0]])
    found = heads(model)
    assert len(found) == 3
    assert found[2] == model.float_graph.outputs[2]
    assert found[0] != model.float_graph.outputs[0]


def test_ranges_of_other_values_keep_their_observer():
    model = tq.prepare(network, example_args=[examples()[0]])
    tails = [np.random.default_rng(6).normal(size=(8192, WIDTH)).astype(np.float32) ** 3]
    params = tq.calibrate(model, tails)
    choice = RangeChoice(model, tails, params)
    narrow = choice.params(choice.everywhere("percentile 99.99"))
    found = {name: each["qparams"] for name, each in (("own", params), ("narrow", narrow))}
    name = next(n for n in model.activations if found["own"][n].scale != found["narrow"][n].scale)
    assert choice.params({}) is params
    values = tq.equalize(model)
    found = choice.of_values({name: "percentile 99.99"}, values)
    plain = tq.calibrate(model, tails, values=values)
    assert found["qparams"][name].scale != plain["qparams"][name].scale
    for other in model.activations:
        if other != name:
            assert found["qparams"][other].scale == plain["qparams"][other].scale
    model.check(found)


def test_ranges_with_room_hold_all_values():
    """What default ranges of inner activations leave out as well."""
    model = tq.prepare(network, example_args=[examples()[0]])
    tails = [np.random.default_rng(6).normal(size=(8192, WIDTH)).astype(np.float32) ** 3]
    params = tq.calibrate(model, tails)
    choice = RangeChoice(model, tails, params)
    ranges = choice.with_room(params["values"])
    assert ranges.keys() == {n for n in model.activations if model.specs[n].bits == 8}
    tensors = model.with_outputs(*ranges).apply(params, tails[0], mode="float")
    clipped = 0
    for (name, own), values in zip(ranges.items(), tensors, strict=True):
        low, high = (float((end - own.zero_point) * own.scale) for end in own.grid)
        wanted = np.minimum(values.min(), 0), np.maximum(values.max(), 0)
        np.testing.assert_allclose((low, high), 1.5 * np.array(wanted), rtol=0.02, atol=1e-6)
        clipped += float(params["qparams"][name].scale) < 0.9 / 1.5 * float(own.scale)
    assert clipped


def test_int16_has_one_range():
    model = tq.prepare(network, [tq.rule(".*", act=tq.QSpec("i16"))], example_args=[examples()[0]])
    choice = RangeChoice(model, examples())
    assert choice.observers == ()
    assert choice.everywhere("percentile 99.99") == {}
    assert choice.with_room(choice.own["values"]) == {}


def test_what_is_lifted_has_room():
    """An outlier that INT8 leaves out is inside the range of INT16."""
    x = np.random.default_rng(6).normal(size=(16, 1, 4096, 4)).astype(np.float32)
    x[:, :, 0] = 30
    w = np.eye(4, dtype=np.float32)
    budget = tq.Budget(seconds=60, wide_macs=1.0)
    found = tq.auto(lambda x: jax.nn.relu(x @ w) @ w, list(x), example_args=[x[0]], budget=budget)
    assert found.lifted
    for name in found.lifted:
        (values,) = found.model.with_outputs(name).apply(found.params, x, mode="float")
        largest = found.params["qparams"][name].scale * 32767
        np.testing.assert_allclose(largest, 1.5 * np.abs(values).max(), rtol=0.02)
