"""Schedules: bits, rounding, averages, and ranges by observers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tosajax import quant as tq

STEP, KEY = jnp.int32(0), jax.random.key(0)


@pytest.mark.parametrize("extra", [2, 4])
def test_extra_bits_keep_ranges(model, params, extra):
    schedule = tq.Schedule(extra_bits=lambda step: extra - step.astype(jnp.float32))
    used = schedule.used(model, params, STEP, KEY)
    for name, qparams in used["qparams"].items():
        before = params["qparams"][name]
        if name in model.plan.sampled:
            assert qparams is before
            continue
        assert float(qparams.bits) == min(float(before.bits) + extra, 8)
        lowest, highest = (
            [(getattr(q.grid, end) - q.zero_point) * q.scale for q in (before, qparams)]
            for end in ("qmin", "qmax")
        )
        np.testing.assert_allclose(*lowest, rtol=1e-5)
        # Without a narrow range, the highest integer is a step below the end.
        within = 0 if before.narrow_range else before.scale.max()
        np.testing.assert_allclose(*highest, rtol=1e-5, atol=within)
    later = schedule.used(model, params, jnp.int32(extra), KEY)
    jax.tree.map(np.testing.assert_array_equal, later, params)


def test_extra_bits_are_those_of_a_model_with_more(model, params, batches):
    """The integers of the step are those of the parameters with these bits, frozen."""
    used = tq.Schedule(extra_bits=lambda step: 1.0).used(model, params, STEP, KEY)
    assert tq.check_bit_exact(model, used, batches[0][0], against=("frozen",))
    x = batches[0][0]
    (wanted,) = model.apply(params, x, mode="float")
    errors = [float(jnp.abs(model.apply(p, x)[0] - wanted).mean()) for p in (params, used)]
    assert errors[1] < 0.8 * errors[0]


def test_stochastic_rounding(model, params):
    """Each integer is one of both neighbours; their mean is the value."""
    schedule = tq.Schedule(stochastic=lambda step: 1.0)

    @jax.jit
    def integers(key):
        made = model.constants(schedule.used(model, params, STEP, key))
        return {name: made[name].q for name in model.weights}

    found = jax.vmap(integers)(jax.random.split(jax.random.key(1), 2000))
    for name in model.weights:
        scaled = np.asarray(params["values"][name] / params["qparams"][name].scale, np.float64)
        q = np.asarray(found[name], np.float64)
        assert (np.abs(q - scaled) < 1 + 1e-4).all()
        inside = np.abs(scaled) < 6.5
        # A standard deviation of at most 0.5 / sqrt(2000); 5 of them.
        np.testing.assert_allclose(q.mean(0)[inside], scaled[inside], atol=0.056)
    nearest = tq.Schedule(stochastic=lambda step: 0.0).used(model, params, STEP, KEY)
    found, wanted = (model.constants(p) for p in (nearest, params))
    for name in found:
        jax.tree.map(np.testing.assert_array_equal, found[name], wanted[name])


def test_corrections_stay_under_stochastic_rounding(model, params):
    known = {n: jnp.full(params["values"][n].shape, 0.25) for n in model.weights}
    schedule = tq.Schedule(stochastic=lambda step: 0.0)
    used = schedule.used(model, {**params, "corrections": known}, STEP, KEY)
    jax.tree.map(np.testing.assert_array_equal, used["corrections"], known)


def test_scales_are_held(model, params, batches, loss):
    schedule = tq.Schedule(hold_scales=3)
    optimizer = tq.relative(optax.adam(1e-2))

    def after(steps: int) -> Any:
        options: Any = {"steps": steps, "optimizer": optimizer, "schedule": schedule}
        return tq.fit(model, params, batches, loss, **options).params

    kept = [after(steps) for steps in (2, 3, 6)]
    scales = [np.asarray(p["qparams"]["conv1"].scale) for p in kept]
    assert scales[0] != scales[1]
    assert scales[1] == scales[2]
    assert (kept[1]["values"]["w0"] != kept[2]["values"]["w0"]).any()


def test_the_average(model, params, batches, loss):
    """Beside the recurrence in float64, of the parameters after each step."""
    seen = []
    found = tq.fit(
        model,
        params,
        batches,
        loss,
        steps=12,
        schedule=tq.Schedule(average=0.5),
        every=1,
        on_state=lambda state: seen.append(np.asarray(state.params["values"]["w0"], np.float64)),
    )
    mean = np.asarray(params["values"]["w0"], np.float64)
    for number, value in enumerate(seen):
        kept = min(0.5, (1 + number) / (10 + number))
        mean = kept * mean + (1 - kept) * value
    np.testing.assert_allclose(found.params["values"]["w0"], mean, rtol=1e-5)
    assert np.abs(mean - seen[-1]).max() > 1e-5
    assert (found.state.params["values"]["w0"] == seen[-1].astype(np.float32)).all()


def test_observers_find_ranges_first(model, params, batches, loss):
    """They look at each batch with the weights of its step; then gradients train the scales."""
    wide = [(3 * x, y) for x, y in batches]
    schedule = tq.Schedule(observe=1)
    found = tq.fit(model, params, wide, loss, steps=1, optimizer=optax.sgd(0.0), schedule=schedule)
    wanted = tq.calibrate(model, [wide[0][0]])
    for name in model.activations:
        jax.tree.map(
            np.testing.assert_array_equal, found.params["qparams"][name], wanted["qparams"][name]
        )
    longer = tq.fit(model, params, wide, loss, steps=4, schedule=tq.Schedule(observe=3))
    assert tq.check_bit_exact(model, longer.params, wide[0][0], against=("frozen",))
    assert (longer.params["values"]["w0"] != params["values"]["w0"]).any()
    assert set(longer.state.observed) == set(model.activations)


def test_averages_have_tables_of_their_scales(model, params, batches, loss):
    """Scales and tables move while ranges are observed; the average starts after that."""
    assert model.plan.sampled
    wide = [((n + 1) * x, y) for n, (x, y) in enumerate(batches)]
    found = tq.fit(
        model,
        params,
        wide,
        loss,
        steps=5,
        optimizer=optax.sgd(0.0),
        schedule=tq.Schedule(observe=3, average=0.9),
    ).params
    wanted = tq.sample_tables(model, found)
    for name in found["tables"]:
        np.testing.assert_allclose(found["tables"][name], wanted["tables"][name], rtol=1e-6)
    assert tq.check_bit_exact(model, found, batches[0][0], against=("frozen",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observe": -1}, "observe is -1, expected a number of steps"),
        ({"hold_scales": -1}, "hold_scales is -1"),
        ({"average": 1.0}, r"average is 1.0, expected a number in \[0, 1\)"),
    ],
)
def test_numbers_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        tq.Schedule(**options)


@pytest.mark.parametrize(
    "options", [{"observe": 1}, {"extra_bits": jnp.float32}, {"stochastic": jnp.float32}]
)
def test_a_lifted_model_has_no_scales_to_change(model, params, batches, loss, options):
    lifted, own = tq.lift(model.freeze(params))
    with pytest.raises(ValueError, match=f"{next(iter(options))} of a model from `lift`"):
        tq.fit(lifted, own, batches, loss, schedule=tq.Schedule(**options))


def test_bits_of_floats_cannot_change(model, batches, loss):
    spec = tq.QSpec("fp8e4m3")
    floats = tq.prepare(model.float_graph, [tq.rule(".*", weight=spec, act=spec)])
    params = tq.calibrate(floats, [x for x, _ in batches])
    with pytest.raises(ValueError, match="extra_bits of a model of FP8"):
        tq.fit(floats, params, batches, loss, schedule=tq.Schedule(extra_bits=jnp.float32))
