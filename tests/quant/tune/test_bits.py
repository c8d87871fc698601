"""Bits: other widths, their cost, the growth of the loss, and the best choice."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import Builder, DType
from tosajax import quant as tq

IMAGES = np.random.default_rng(0).normal(0.2, 1, (32, 1, 1, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    b = Builder()
    x = b.input("x", DType.FP32, (1, 1, 1, 6))
    zero = [b.const([0.0], DType.FP32, name=f"zero{i}") for i in range(2)]
    static = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    for n, (inputs, outputs) in enumerate([(6, 8), (8, 8), (8, 3)]):
        w = b.const(rng.normal(0, 0.5, (outputs, 1, 1, inputs)), DType.FP32, name=f"w{n}")
        bias = b.const(rng.normal(0, 0.1, outputs), DType.FP32, name=f"b{n}")
        x = b.op("CONV2D", x, w, bias, *zero, name=f"conv{n}", **static)
    return tq.prepare(b.graph([x]))


@pytest.fixture(scope="module")
def params(model):
    return tq.calibrate(model, [IMAGES])


def test_with_bits_is_what_calibration_would_find(model, params):
    narrow = tq.with_bits(model, params, {"w1": 3, "conv0": 4})
    w1 = params["values"]["w1"]
    np.testing.assert_allclose(
        narrow["qparams"]["w1"].scale.reshape(-1), np.abs(w1).max((1, 2, 3)) / 3, rtol=1e-3
    )
    wide, less = (p["qparams"]["conv0"] for p in (params, narrow))
    np.testing.assert_allclose(less.scale, wide.scale * 255 / 15, rtol=1e-2)
    assert -8 <= float(less.zero_point) <= 7
    ends, wanted = ([(end - q.zero_point) * q.scale for end in q.grid] for q in (less, wide))
    np.testing.assert_allclose(ends, wanted, atol=float(less.scale))
    (found,) = jax.jit(model.with_outputs("conv0").integers)(narrow, IMAGES)
    integers = found.q
    assert -8 <= int(integers.min()) < int(integers.max()) <= 7
    assert narrow["qparams"]["w0"] is params["qparams"]["w0"]
    assert tq.check_bit_exact(model, narrow, IMAGES, against=("frozen",))


def test_with_bits_keeps_a_range_that_is_not_even(model, params):
    skewed = dataclasses.replace(params["qparams"]["conv0"], zero_point=jnp.float32(-90))
    params = {**params, "qparams": {**params["qparams"], "conv0": skewed}}
    less = tq.with_bits(model, params, {"conv0": 4})["qparams"]["conv0"]
    ends, wanted = ([(end - q.zero_point) * q.scale for end in q.grid] for q in (less, skewed))
    np.testing.assert_allclose(ends, wanted, atol=float(less.scale))
    assert float(less.zero_point) == -6


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        ({"w0": 9}, "'w0': 9 bits, expected 2 to 8"),
        ({"w0": 1}, "1 bits"),
        ({"b0": 4}, "'b0' has no"),
    ],
)
def test_wrong_bits(model, params, bits, message):
    with pytest.raises(ValueError, match=message):
        tq.with_bits(model, params, bits)


def test_bits_are_data(model, params):
    """One program for all widths."""
    traces = []

    @jax.jit
    def outputs(width):
        traces.append(width)
        return model.apply(tq.with_bits(model, params, {"w0": width}), IMAGES)[0]

    apply = jax.jit(model.apply)
    for width in (2, 5, 8):
        (wanted,) = apply(tq.with_bits(model, params, {"w0": width}), IMAGES)
        np.testing.assert_array_equal(outputs(jnp.float32(width)), wanted)
    assert len(traces) == 1


def test_mean_bits(model, params):
    narrow = tq.with_bits(model, params, {"w0": 2})
    assert float(tq.mean_bits(model, params)) == 8
    assert float(tq.mean_bits(model, narrow)) == pytest.approx((48 * 2 + 64 * 8 + 24 * 8) / 136)
    beyond = dataclasses.replace(params["qparams"]["w0"], bits=jnp.float32(9))
    outside = {**params, "qparams": {**params["qparams"], "w0": beyond}}
    assert float(tq.mean_bits(model, outside)) == 8


def mse(outputs, wanted):
    return jnp.square(outputs[0] - wanted).mean((1, 2, 3))


@pytest.mark.parametrize("metric", ["loss", "hessian", "fisher"])
def test_sensitivity(model, params, metric):
    (floats,) = model.apply(params, IMAGES, mode="float")
    target = floats + 0.1 if metric == "fisher" else floats
    found = tq.sensitivity(
        model, params, IMAGES, bits=(2, 4, 8, 16), metric=metric, loss=lambda y: mse(y, target)
    )
    assert set(found) == {"w0", "w1", "w2"}
    for growth in found.values():
        assert set(growth) == {2, 4, 8}
        assert growth[2] > growth[4] > growth[8]


def test_sensitivity_by_loss_is_exact(model, params):
    (floats,) = model.apply(params, IMAGES, mode="float")
    apply = jax.jit(model.apply)

    def loss(p):
        return float(jnp.square(apply(p, IMAGES)[0] - floats).mean())

    found = tq.sensitivity(model, params, IMAGES, bits=(3,), names=["w1"])
    wanted = loss(tq.with_bits(model, params, {"w1": 3})) - loss(params)
    assert found == {"w1": {3: pytest.approx(wanted, rel=1e-4)}}


def test_sensitivity_by_hessian_is_that_of_a_quadratic(model, params):
    """The last layer is linear in its weights, and the loss quadratic."""
    found = tq.sensitivity(model, params, IMAGES, bits=(3,), metric="hessian", names=["w2"])
    changed = tq.with_bits(model, params, {"w2": 3})
    weights = tq.fake_quant(changed["values"]["w2"], changed["qparams"]["w2"])
    rounded = {**params, "values": {**params["values"], "w2": weights}}
    before, after = (model.apply(p, IMAGES, mode="float")[0] for p in (params, rounded))
    assert found["w2"][3] == pytest.approx(float(jnp.square(after - before).mean()), rel=1e-3)


def test_sensitivity_errors(model, params):
    with pytest.raises(ValueError, match="metric 'size'"):
        tq.sensitivity(model, params, IMAGES, metric="size")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="'fisher' needs a loss"):
        tq.sensitivity(model, params, IMAGES, metric="fisher")


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    names, widths = ["a", "b", "c", "d"], (2, 3, 4, 8)
    scores = {n: dict(zip(widths, rng.exponential(1, 4), strict=True)) for n in names}
    sizes = dict(zip(names, rng.integers(1, 50, 4), strict=True))
    budget = float(rng.integers(3, 7) * sum(sizes.values()))

    def cost(name, bits):
        return float(sizes[name] * bits)

    every = [dict(zip(names, bits, strict=True)) for bits in itertools.product(widths, repeat=4)]
    legal = [c for c in every if sum(cost(n, b) for n, b in c.items()) <= budget]
    least = min(sum(scores[n][b] for n, b in c.items()) for c in legal)
    chosen = tq.allocate_bits(scores, budget, cost)
    assert chosen in legal
    assert sum(scores[n][b] for n, b in chosen.items()) == pytest.approx(least)


def test_a_budget_that_is_too_small():
    with pytest.raises(ValueError, match=r"budget 1: the cheapest choice costs 2\.0"):
        tq.allocate_bits({"a": {2: 0.0}}, 1, lambda name, bits: float(bits))


def test_what_costs_nothing_is_within_a_budget_of_0():
    assert tq.allocate_bits({"a": {2: 1.0, 8: 0.5}}, 0, lambda name, bits: 0.0) == {"a": 8}


def test_learned_bits_have_a_gradient(model):
    spec = tq.QSpec(per_channel=True, narrow_range=True, bits=4, learned_bits=True)
    learned = tq.prepare(model.float_graph, [tq.rule("conv1", weight=spec)])
    params = tq.calibrate(learned, [IMAGES])
    narrow = params["qparams"]["w1"]
    params["qparams"]["w1"] = dataclasses.replace(narrow, scale=narrow.scale / 2)  # saturates

    def loss(params):
        return jnp.square(learned.apply(params, IMAGES)[0]).mean() + tq.mean_bits(learned, params)

    gradient = jax.jit(jax.grad(loss))(params)["qparams"]
    share = 64 / 136
    assert float(gradient["w1"].bits) != pytest.approx(share)
    for name in ("w0", "w2"):
        assert float(gradient[name].bits) == pytest.approx(params["values"][name].size / 136)
    assert float(gradient["conv0"].bits) == 0


def test_bits_that_are_traced_change_the_resolution(model, params):
    """One bit less is a step of about twice the size."""

    def step(bits):
        return tq.with_bits(model, params, {"w2": bits})["qparams"]["w2"].scale.mean()

    at, slope = jax.jit(jax.value_and_grad(step))(jnp.float32(5))
    assert float(step(jnp.float32(4)) / at) == pytest.approx(15 / 7)
    # By hand: the range over 2**(bits - 1) - 1.
    assert float(slope / at) == pytest.approx(-np.log(2) * 16 / 15, rel=1e-5)


def test_bits_learn_what_a_bit_costs(model, params):
    """Bits fall where only their price counts, and rise where only the error does."""

    def loss(bits, price):
        chosen = tq.with_bits(model, params, bits)
        (found,) = model.apply(chosen, IMAGES)
        error = jnp.square(found - floats).mean()
        return 1e3 * (1 - price) * error + price * tq.mean_bits(model, chosen)

    (floats,) = model.apply(params, IMAGES, mode="float")
    bits = {name: jnp.float32(3) for name in ("w0", "w1", "w2")}
    slopes = jax.jit(jax.grad(loss))
    assert all(float(g) > 0 for g in slopes(bits, 1.0).values())
    assert float(slopes(bits, 0.0)["w2"]) < 0
