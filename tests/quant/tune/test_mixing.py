"""mixed_precision and pareto: choices that nothing beats, and models with the types they need."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import Builder, DType, Graph
from tosajax import quant as tq

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(0.3, 1, (16, 4, 4, 3)).astype(np.float32)


def network() -> Graph:
    """Two convolutions, the first of channels that differ much, a sigmoid and a MATMUL."""
    rng = np.random.default_rng(1)
    b = Builder()
    zero = b.const([0.0], DType.FP32, name="zero")
    static = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}

    def conv(x, name: str, inputs: int, outputs: int):
        w = b.const(rng.normal(0, 0.4, (outputs, 3, 3, inputs)), DType.FP32, name=f"{name}/w")
        bias = b.const(rng.normal(0, 0.1, outputs), DType.FP32, name=f"{name}/b")
        return b.op("CONV2D", x, w, bias, zero, zero, name=name, **static)

    x = conv(b.input("x", DType.FP32, (1, 4, 4, 3)), "first", 3, 6)
    x = conv(b.op("SIGMOID", x, name="gate"), "second", 6, 4)
    rows = b.op("RESHAPE", x, b.const_shape([1, 16, 4]), name="rows")
    w = b.const(rng.normal(0, 0.5, (1, 4, 5)), DType.FP32, name="product/w")
    return b.graph([b.op("MATMUL", rows, w, zero, zero, name="product")])


@functools.cache
def prepared() -> tuple[tq.QModel, dict]:
    model = tq.prepare(network())
    return model, tq.calibrate(model, [IMAGES])


@functools.cache
def total(*bits: tuple[str, int]) -> float:
    cost = tq.storage_cost(prepared()[0])
    return sum(cost(name, count) for name, count in bits)


@functools.cache
def mixed(share: float = 0.7, **options) -> tq.MixedPrecision:
    """Within a share of what the model costs as it is."""
    model, params = prepared()
    inner = [name for name in model.specs if name not in ("x", "product")]
    budget = share * total(*((name, 8) for name in inner))
    return tq.mixed_precision(model, params, IMAGES, budget=budget, **options)


def test_what_tensors_cost():
    """INT4 has half a byte, and only convolutions have it; all else takes whole bytes."""
    cost = tq.storage_cost(prepared()[0])
    first, product, gate = 6 * 3 * 3 * 3, 4 * 5, 4 * 4 * 6
    wanted = {
        ("first/w", 2): first * 4,
        ("first/w", 4): first * 4,
        ("first/w", 5): first * 8,
        ("first/w", 8): first * 8,
        ("product/w", 4): product * 8,
        ("gate", 4): gate * 8,
        ("gate", 9): gate * 16,
    }
    assert {key: cost(*key) for key in wanted} == wanted


@pytest.mark.slow
def test_the_best_within_the_budget_is_made():
    model, _ = prepared()
    found = mixed(0.9)
    assert found.choice in found.front
    narrow = {n for n, bits in found.choice.bits.items() if bits == 4 and n in model.weights}
    assert narrow
    for name, bits in found.choice.bits.items():
        own = found.model.specs[name]
        assert own.bits == bits
        is_int4 = name in narrow and name != "product/w"
        wanted = DType.INT4 if is_int4 else DType.INT16 if bits > 8 else DType.INT8
        assert own.dtype is wanted
    assert found.choice.cost == total(*found.choice.bits.items())
    assert tq.check_bit_exact(found.model, found.params, IMAGES, against=("frozen",))
    cheaper = [c for c in found.front if c.cost <= found.choice.cost]
    assert found.choice.loss == min(c.loss for c in cheaper)
    assert found.loss == pytest.approx(found.choice.loss, rel=0.5)


def test_a_front_falls():
    front = mixed(0.9).front
    assert len(front) > 2
    for before, after in itertools.pairwise(front):
        assert before.cost < after.cost
        assert before.loss > after.loss
    lines = str(mixed(0.9)).splitlines()
    assert len(lines) == len(front) + 2
    assert sum(line.endswith("<") for line in lines) == 1


@pytest.mark.slow
def test_activations_in_int16_cost_more_and_lose_less():
    """With all the memory they ask for, weights have 8 bits and activations 16."""
    model, params = prepared()
    found = mixed(2.0)
    inner = [name for name in model.activations if name not in ("x", "product")]
    assert {found.choice.bits[name] for name in inner} >= {16}
    apply = jax.jit(model.apply)
    floats = jax.jit(functools.partial(model.apply, mode="float"))(params, IMAGES)[0]
    before = float(jnp.square(apply(params, IMAGES)[0] - floats).mean())
    assert found.loss < before
    assert tq.check_bit_exact(found.model, found.params, IMAGES, against=("frozen",))


def test_a_weight_of_4_bits_beside_int16_is_int8():
    """TOSA has no convolution of INT16 by INT4."""
    found = mixed(4.0, weight_bits=(4,), activation_bits=(16,))
    specs = found.model.specs
    assert (specs["second/w"].dtype, specs["second/w"].bits) == (DType.INT8, 4)
    assert (specs["first/w"].dtype, specs["first/w"].bits) == (DType.INT4, 4)
    assert tq.check_bit_exact(found.model, found.params, IMAGES, against=("frozen",))


def test_bits_of_int4_weights_may_grow():
    spec = tq.QSpec("i4", per_channel=True, narrow_range=True)
    model = tq.prepare(network(), [tq.rule("first|second", weight=spec)])
    params = tq.calibrate(model, [IMAGES])
    found = tq.mixed_precision(
        model, params, IMAGES, budget=1e9, weight_bits=(4, 8), activation_bits=(8,)
    )
    assert found.model.specs["first/w"].dtype is DType.INT8
    exact = jax.jit(lambda p: model.apply(p, IMAGES)[0])(params)
    floats = model.apply(params, IMAGES, mode="float")[0]
    assert found.loss < float(jnp.square(exact - floats).mean())


def test_a_cost_and_a_loss_of_ones_own():
    """Only what products cost counts, and only one output."""
    model, params = prepared()
    (floats,) = model.apply(params, IMAGES, mode="float")
    found = tq.mixed_precision(
        model,
        params,
        IMAGES,
        budget=12,
        activation_bits=(8,),
        cost=lambda name, bits: float(bits) if name == "product/w" else 0.0,
        loss=lambda y: jnp.square(y[0] - floats)[..., 0].mean(),
        points=2,
    )
    assert len(found.front) <= 2
    assert found.choice.cost <= 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 1}, r"budget 1: the cheapest choice costs \d+"),
        ({"weight_bits": (4, 9)}, "weight_bits has 9, expected 2 to 8"),
        ({"activation_bits": (1,)}, "activation_bits has 1, expected 2 to 16"),
        ({"activation_bits": ()}, "activation_bits is empty"),
    ],
)
def test_wrong_arguments(options, message):
    model, params = prepared()
    with pytest.raises(ValueError, match=message):
        tq.mixed_precision(model, params, IMAGES, **{"budget": 1e9, **options})


@pytest.mark.parametrize("seed", range(10))
def test_a_front_has_every_choice_that_none_beats(seed):
    """All of them at first, then three of them at most, with both ends."""
    rng = np.random.default_rng(seed)
    names, widths = ["a", "b", "c"], (2, 4, 8)
    scores = {n: dict(zip(widths, rng.exponential(1, 3), strict=True)) for n in names}
    sizes = dict(zip(names, rng.integers(1, 50, 3), strict=True))

    def cost(name: str, bits: int) -> float:
        return float(sizes[name] * bits)

    every = []
    for chosen in itertools.product(widths, repeat=3):
        bits = dict(zip(names, chosen, strict=True))
        spent = sum(cost(n, b) for n, b in bits.items())
        every.append((spent, sum(scores[n][b] for n, b in bits.items())))
    unbeaten = {
        one
        for one in every
        if not any(o != one and o[0] <= one[0] and o[1] <= one[1] for o in every)
    }
    found = tq.pareto(scores, cost)
    assert [sum(cost(n, b) for n, b in bits.items()) for bits in found] == sorted(
        spent for spent, _ in unbeaten
    )
    few = tq.pareto(scores, cost, points=3)
    assert len(few) == min(3, len(found))
    assert (few[0], few[-1]) == (found[0], found[-1])
    with pytest.raises(ValueError, match="points is 1"):
        tq.pareto(scores, cost, points=1)
