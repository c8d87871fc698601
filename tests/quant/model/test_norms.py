"""Batch norms that convolutions keep: folded, of a batch, trained, estimated anew; and errors."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import tosajax
from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.grad.qtensor import QTensor, payload
from tosajax.quant.model.norms import shifted

RNG = np.random.default_rng(3)
IMAGES = RNG.normal(0.3, 1, (24, 6, 6, 3)).astype(np.float32)
EPSILON = 1e-5
STATIC = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
RULES: dict[str, list[tq.Rule]] = {
    "W8A8": [],
    "W4A8 per tensor": [tq.rule(".*", weight=tq.QSpec(bits=4))],
    "W8 asymmetric": [tq.rule(".*", weight=tq.QSpec(symmetric=False))],
    "INT4": [tq.rule(".*", weight=tq.QSpec("i4", per_channel=True))],
    "W3A3": [
        tq.rule(
            ".*",
            weight=tq.QSpec(bits=3, per_channel=True),
            act=tq.QSpec(bits=3, symmetric=False),
        )
    ],
    "W8A16": [tq.rule(".*", act=tq.QSpec("i16"))],
}


class Net:
    """Builds a network with batch norms as exporters write them."""

    def __init__(self, seed: int = 5) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = Builder("normed")
        self.zero = [self.b.const([0.0], DType.FP32, name=f"zero{i}") for i in range(2)]
        self.shift = self.b.const(np.zeros(1, np.int8), DType.INT8, name="no_shift")

    def const(self, values: Any, name: str) -> Any:
        return self.b.const(np.asarray(values, np.float32), DType.FP32, name=name)

    def conv(
        self, op: str, x: Any, shape: tuple[int, ...], channels: int, name: str, **static: Any
    ):
        w = self.const(self.rng.normal(0, 0.4, shape), f"{name}_w")
        bias = self.const(self.rng.normal(0, 0.3, channels), f"{name}_b")
        return self.b.op(op, x, w, bias, *self.zero, name=name, **{**STATIC, **static})

    def norm(self, x: Any, name: str) -> Any:
        """(x - mean) * (gamma / deviation) + beta; gamma has both signs."""
        channels = x.shape[-1]
        ones = (1,) * (len(x.shape) - 1)
        made = {
            "mean": self.rng.normal(0, 0.5, channels),
            "gain": self.rng.choice([-1.0, 1.0], channels) * self.rng.uniform(0.3, 2, channels),
            "beta": self.rng.normal(0, 0.3, channels),
        }
        mean, gain, beta = (
            self.const(v.reshape(*ones, -1), f"{name}_{n}") for n, v in made.items()
        )
        x = self.b.op("SUB", x, mean, name=f"{name}_centered")
        x = self.b.op("MUL", x, gain, self.shift, name=f"{name}_scaled")
        return self.b.op("ADD", x, beta, name=name)


def network(batch: int = 1, ends: tuple[float, float] = (0, 6)) -> Graph:
    """A convolution, a depthwise one and a residual, each with its norm; then one without."""
    net = Net()
    b = net.b
    x = b.input("x", DType.FP32, (batch, 6, 6, 3))
    y = net.norm(net.conv("CONV2D", x, (4, 3, 3, 3), 4, "first"), "first_bn")
    low, high = map(np.float32, ends)
    mode = tosajax.spec.NanMode.PROPAGATE
    y = b.op("CLAMP", y, name="relu", nan_mode=mode, min_val=low, max_val=high)
    z = net.conv("DEPTHWISE_CONV2D", y, (3, 3, 4, 1), 4, "depth")
    z = net.norm(z, "depth_bn")
    y = b.op("ADD", y, z, name="sum")
    y = net.conv("CONV2D", y, (5, 6, 6, 4), 5, "last", pad=(0, 0, 0, 0))
    return b.graph([y])


def alone(op: str) -> tuple[Graph, np.ndarray]:
    """One convolution with a norm, and examples."""
    net = Net(7)
    shapes = {
        "CONV2D": ((1, 5, 5, 3), (4, 3, 3, 3), {}),
        "DEPTHWISE_CONV2D": ((1, 5, 5, 3), (3, 3, 3, 2), {}),
        "TRANSPOSE_CONV2D": ((1, 4, 4, 3), (4, 3, 3, 3), {"out_pad": (0, 0, 0, 0)}),
        "CONV3D": (
            (1, 3, 4, 4, 2),
            (4, 2, 2, 2, 2),
            {"pad": (0,) * 6, "stride": (1,) * 3, "dilation": (1,) * 3},
        ),
    }
    shape, weight, static = shapes[op]
    x = net.b.input("x", DType.FP32, shape)
    channels = 6 if op == "DEPTHWISE_CONV2D" else 4
    w = net.const(net.rng.normal(0, 0.4, weight), "conv_w")
    bias = net.const(net.rng.normal(0, 0.3, channels), "conv_b")
    attributes: dict[str, Any] = {**STATIC, **static}
    if op == "TRANSPOSE_CONV2D":
        attributes = {k: attributes[k] for k in ("out_pad", "stride", "acc_type")}
    y = net.b.op(op, x, w, bias, *net.zero, name="conv", **attributes)
    return net.b.graph([net.norm(y, "bn")]), net.rng.normal(0.4, 1, (9, *shape[1:])).astype("f4")


def kept(rules: list[tq.Rule] | None = None, batch: int = 1) -> tq.QModel:
    return tq.prepare(network(batch), rules or [], batch_norms=True)


@pytest.fixture(scope="module")
def model() -> tq.QModel:
    return kept()


@pytest.fixture(scope="module")
def params(model: tq.QModel) -> Any:
    return tq.calibrate(model, [IMAGES[:8], IMAGES[8:]])


def moved(params: Any, seed: int = 1) -> Any:
    """The parameters with other norms, as training would leave them."""
    rng = np.random.default_rng(seed)

    def other(norm: tq.Norm) -> tq.Norm:
        shape = norm.gamma.shape
        return tq.Norm(
            norm.gamma * rng.uniform(0.6, 1.5, shape).astype("f4"),
            norm.beta + rng.normal(0, 0.2, shape).astype("f4"),
            norm.mean + rng.normal(0, 0.2, shape).astype("f4"),
            norm.deviation * rng.uniform(0.6, 1.5, shape).astype("f4"),
        )

    return {**params, "norms": {name: other(norm) for name, norm in params["norms"].items()}}


def bias_recipes(model: tq.QModel, name: str) -> tuple[Any, Any]:
    """The recipe of the bias of a convolution with its norm, and without."""
    recipe: Any = model.plan.recipes[f"{name}/bias"]
    return recipe, dataclasses.replace(recipe, norm=None)


def by_hand(norm: tq.Norm, x: np.ndarray) -> np.ndarray:
    gamma, beta, mean, deviation = (
        np.asarray(getattr(norm, f.name), np.float64) for f in dataclasses.fields(norm)
    )
    return (x - mean) / deviation * gamma + beta


# Which convolutions.


def test_those_whose_channels_are_scaled(model, params):
    assert set(model.plan.norms) == set(params["norms"]) == {"first_bn", "depth_bn"}


@pytest.mark.parametrize(("pattern", "names"), [("^last$", {"last"}), ("depth", {"depth_bn"})])
def test_those_a_pattern_is_found_in(pattern, names):
    assert set(tq.prepare(network(), batch_norms=pattern).plan.norms) == names


def test_none_by_default():
    model = tq.prepare(network())
    assert not model.plan.norms
    assert "norms" not in tq.calibrate(model, [IMAGES])


def test_an_addition_alone_is_a_bias():
    net = Net()
    x = net.b.input("x", DType.FP32, (1, 5, 5, 3))
    y = net.conv("CONV2D", x, (4, 3, 3, 3), 4, "conv")
    y = net.b.op("ADD", y, net.const(np.ones((1, 1, 1, 4)), "one"), name="y")
    with pytest.raises(ValueError, match="batch_norms True: the graph has no convolution whose"):
        tq.prepare(net.b.graph([y]), batch_norms=True)


def test_a_shared_weight_keeps_none():
    net = Net()
    x = net.b.input("x", DType.FP32, (1, 5, 5, 3))
    first = net.conv("CONV2D", x, (3, 3, 3, 3), 3, "conv")
    w, bias = (net.b.graph([first]).tensors[f"conv_{n}"] for n in "wb")
    second = net.b.op("CONV2D", first, w, bias, *net.zero, name="again", **STATIC)
    with pytest.raises(ValueError, match="no convolution with 'again' in its name"):
        tq.prepare(net.b.graph([second]), batch_norms="again")


# Folded.


def test_the_function_is_that_of_the_graph(model, params):
    wanted = tosajax.compile(network())(IMAGES[:1])[0]
    (found,) = model.apply(params, IMAGES[:1], mode="float")
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_the_statistics_are_those_of_the_examples(model, params):
    floats = dataclasses.replace(model.float_graph, outputs=("first_bn", "depth_bn"))
    run = tosajax.compile(floats)
    rows = [run(image[None]) for image in IMAGES]
    for at, name in enumerate(floats.outputs):
        x = np.stack([np.asarray(row[at], np.float64) for row in rows]).reshape(-1, 4)
        norm = params["norms"][name]
        np.testing.assert_allclose(norm.mean, x.mean(0), atol=1e-5)
        np.testing.assert_allclose(norm.deviation, np.sqrt(x.var(0) + EPSILON), rtol=1e-5)
        np.testing.assert_array_equal(norm.gamma, norm.deviation)
        np.testing.assert_array_equal(norm.beta, norm.mean)


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_training_is_the_file_and_arms_model(rules):
    model = kept(rules)
    params = moved(tq.calibrate(model, [IMAGES]))
    report = tq.check_bit_exact(model, params, IMAGES[:6], against=("frozen", "reference_model"))
    assert report, report


@pytest.mark.parametrize("op", ["CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "CONV3D"])
@pytest.mark.parametrize("form", ["W8A8", pytest.param("W8A16", marks=pytest.mark.slow)])
def test_every_convolution(op, form):
    graph, images = alone(op)
    model = tq.prepare(graph, RULES[form], batch_norms=True)
    params = moved(tq.calibrate(model, [images]))
    assert tq.check_bit_exact(model, params, images, against=("frozen", "reference_model"))
    (floats,) = model.apply(params, images, mode="float")
    folded = tq.prepare(graph, RULES[form])
    (plain,) = folded.apply(tq.calibrate(folded, [images]), images, mode="float")
    wanted = by_hand(params["norms"]["bn"], np.asarray(plain, np.float64))
    np.testing.assert_allclose(floats, wanted, atol=1e-4)
    scale = float(params["qparams"]["bn"].scale)
    params = tq.with_bits(model, params, {}) if form == "W8A8" else params
    for mode in ("exact", "fake_quant"):
        inside = np.abs(wanted - np.asarray(model.apply(params, images, mode=mode)[0]))
        low, high = (np.asarray(end) for end in _range(params["qparams"]["bn"]))
        near = (wanted > low) & (wanted < high)
        assert near.any()
        assert inside[near].max() < 0.2 + 2 * scale


def _range(qparams: tq.QParams) -> tuple[Any, Any]:
    grid = qparams.grid
    zero = 0 if qparams.symmetric else qparams.zero_point
    return (grid.qmin - zero) * qparams.scale, (grid.qmax - zero) * qparams.scale


def test_the_file_has_the_scales_of_folded_weights(model, params):
    params = moved(params)
    frozen = model.freeze(params)
    for name, weight, axes in (("first_bn", "first_w", (0,)), ("depth_bn", "depth_w", (2, 3))):
        known = frozen.quantization[weight]
        factor = params["norms"][name].factor
        own = params["qparams"][weight].scale.reshape(-1)
        np.testing.assert_allclose(known.scale, own * factor, rtol=1e-6)
        assert known.axes == axes


def test_a_scale_that_no_rescale_has_is_named(model, params):
    norms = params["norms"]
    far = dataclasses.replace(norms["first_bn"], gamma=norms["first_bn"].gamma * 1e25)
    with pytest.raises(ValueError, match="batch norm of 'first_bn'"):
        model.freeze({**params, "norms": {**norms, "first_bn": far}})


# Of a batch.


# The others are slow.
SOME_RULES = [
    pytest.param(rules, id=name, marks=() if name in ("W8A8", "W3A3") else pytest.mark.slow)
    for name, rules in RULES.items()
]


@pytest.mark.slow
@pytest.mark.parametrize("rules", SOME_RULES)
def test_a_batch_gives_the_bits_of_its_statistics(rules):
    model = kept(rules)
    params = moved(tq.calibrate(model, [IMAGES]))
    outputs, norms = jax.jit(model.apply_batch)(params, IMAGES)
    found = {**params, "norms": norms}
    np.testing.assert_array_equal(outputs[0], model.apply(found, IMAGES)[0])
    assert tq.check_bit_exact(model, found, IMAGES[:6], against=("frozen", "reference_model"))
    # They are the statistics of the sums, which the frozen graph has.
    watched = model.with_outputs("first_bn/acc", "depth_bn/acc")
    accumulators = watched.integers(found, IMAGES)
    for name, acc in zip(("first_bn", "depth_bn"), accumulators, strict=True):
        norm = norms[name]
        own, plain = bias_recipes(model, name)
        unit = np.asarray(plain.scale(params), np.float64)
        sums = np.asarray(payload(acc), np.float64).reshape(-1, 4)
        sums -= np.asarray(own(found).q, np.float64) - np.asarray(plain(found).q, np.float64)
        x = sums * unit
        np.testing.assert_allclose(norm.mean, x.mean(0), atol=2e-5)
        np.testing.assert_allclose(norm.deviation, np.sqrt(x.var(0) + EPSILON), rtol=1e-4)
        np.testing.assert_array_equal(norm.gamma, params["norms"][name].gamma)
        np.testing.assert_array_equal(norm.beta, params["norms"][name].beta)


@pytest.mark.parametrize("mode", ["float", "fake_quant", "exact"])
def test_the_graphs_own_batch_is_one_batch(mode):
    """A graph of 24 examples has the statistics of one that runs 24 times."""
    model, own = kept(), kept(batch=24)
    params = tq.calibrate(model, [IMAGES])
    (many,), norms = model.apply_batch(params, IMAGES, mode=mode)
    (one,), own_norms = own.apply_batch(params, IMAGES, mode=mode)
    np.testing.assert_allclose(np.asarray(many), np.asarray(one), atol=1e-4)
    for name, norm in norms.items():
        np.testing.assert_allclose(norm.mean, own_norms[name].mean, atol=1e-4)
        np.testing.assert_allclose(norm.deviation, own_norms[name].deviation, rtol=1e-4)
    stacked, _ = model.apply_batch(params, IMAGES[:, None], mode=mode)
    np.testing.assert_allclose(stacked[0][:, 0], many, atol=1e-4)


def test_floats_of_a_batch_are_normalized(model, params):
    params = moved(params)
    watched = model.with_outputs("first_bn", "depth_bn")
    outputs, norms = watched.apply_batch(params, IMAGES, mode="float")
    plain = tq.prepare(network()).with_outputs("first_bn")
    (x,) = plain.apply({"values": params["values"]}, IMAGES, mode="float")
    x = np.asarray(x, np.float64)
    mean, deviation = x.mean((0, 1, 2)), np.sqrt(x.var((0, 1, 2)) + EPSILON)
    np.testing.assert_allclose(norms["first_bn"].mean, mean, atol=1e-5)
    np.testing.assert_allclose(norms["first_bn"].deviation, deviation, rtol=1e-5)
    known = params["norms"]["first_bn"]
    wanted = by_hand(dataclasses.replace(known, mean=mean, deviation=deviation), x)
    np.testing.assert_allclose(outputs[0], wanted, atol=1e-4)
    for y, name in zip(outputs, ("first_bn", "depth_bn"), strict=True):
        y = np.asarray(y, np.float64)
        np.testing.assert_allclose(y.mean((0, 1, 2)), params["norms"][name].beta, atol=1e-4)


# Gradients.


def test_gradients_go_through_the_statistics():
    model = tq.prepare(network(ends=(-50, 50)), batch_norms=True)
    params = tq.calibrate(model, [IMAGES])
    trained = {"values": params["values"], "norms": params["norms"]}

    def loss(trained: Any) -> jax.Array:
        (y,), _ = model.apply_batch({**params, **trained}, IMAGES, mode="float")
        return jnp.square(y - 0.5).mean()

    check_grads(loss, (trained,), order=1, modes=["rev"], eps=1e-2, rtol=2e-2, atol=2e-2)
    gradient = jax.grad(loss)(trained)
    # A normalized convolution does not depend on its bias, nor on the statistics it does not use.
    for name in ("first", "depth"):
        assert not gradient["values"][f"{name}_b"].any()
        norm = gradient["norms"][f"{name}_bn"]
        assert not norm.mean.any()
        assert not norm.deviation.any()
        assert norm.gamma.any()
        assert np.abs(norm.beta).max() > 0.1


def test_gradients_of_integers_are_near_those_of_floats(model, params):
    def loss(trained: Any, mode: Any) -> jax.Array:
        (y,), _ = model.apply_batch({**params, **trained}, IMAGES, mode=mode)
        return jnp.square(y - 0.5).mean()

    trained = {"values": params["values"], "norms": params["norms"]}
    exact, floats = (jax.grad(loss)(trained, mode) for mode in ("exact", "float"))
    pairs = jax.tree.leaves(jax.tree.map(lambda a, b: (a.ravel(), b.ravel()), exact, floats))
    a, b = (np.concatenate(side) for side in (pairs[::2], pairs[1::2]))
    assert np.corrcoef(a, b)[0, 1] > 0.98


# Own statistics.


def test_statistics_move_by_momentum(params):
    found = moved(params)["norms"]
    for momentum in (0.0, 0.75, 1.0):
        after = tq.with_statistics(params, found, momentum=momentum)["norms"]
        for name, norm in after.items():
            old, new = params["norms"][name], found[name]
            mean = momentum * old.mean + (1 - momentum) * new.mean
            square = momentum * old.deviation**2 + (1 - momentum) * new.deviation**2
            np.testing.assert_allclose(norm.mean, mean, rtol=1e-6)
            np.testing.assert_allclose(norm.deviation**2, square, rtol=1e-6)
            np.testing.assert_array_equal(norm.gamma, old.gamma)
            np.testing.assert_array_equal(norm.beta, old.beta)
    same = tq.with_statistics(params, found, momentum=0)["norms"]
    np.testing.assert_array_equal(same["first_bn"].deviation, found["first_bn"].deviation)


@pytest.mark.parametrize("sizes", [(24,), (8, 8, 8), (4, 20)])
def test_estimates_join_the_statistics_of_batches(model, params, sizes):
    params = moved(params)
    ends = np.cumsum((0, *sizes))
    batches = [IMAGES[a:b] for a, b in itertools.pairwise(ends)]
    found = tq.estimate_norms(model, params, batches, mode="float")
    plain = tq.prepare(network()).with_outputs("first_bn")
    (x,) = plain.apply({"values": params["values"]}, IMAGES, mode="float")
    x = np.asarray(x, np.float64)
    norm = found["norms"]["first_bn"]
    np.testing.assert_allclose(norm.mean, x.mean((0, 1, 2)), atol=1e-5)
    wanted = np.sqrt(x.var((0, 1, 2)) + EPSILON)
    np.testing.assert_allclose(norm.deviation, wanted, rtol=1e-4)
    np.testing.assert_array_equal(norm.gamma, params["norms"]["first_bn"].gamma)


@pytest.mark.slow
def test_estimates_after_quantization_are_nearer_to_the_floats():
    """Few bits move the statistics of what follows; new ones bring the outputs back."""
    model = kept([tq.rule(".*", weight=tq.QSpec(bits=2, per_channel=True))])
    params = tq.calibrate(model, [IMAGES])
    watched = model.with_outputs("depth_bn")
    (wanted,) = watched.apply(params, IMAGES, mode="float")

    def shift(params: Any) -> float:
        (found,) = watched.apply(params, IMAGES)
        return float(np.abs(np.asarray(found - wanted).mean((0, 1, 2))).mean())

    after = tq.estimate_norms(model, params, [IMAGES])
    assert shift(after) < 0.5 * shift(params)
    assert tq.check_bit_exact(model, after, IMAGES[:4], against=("frozen",))


@pytest.mark.slow
def test_bias_correction_is_of_the_convolution():
    """Its bias is added before the factor of the norm, which is far from 1 here."""
    model = kept([tq.rule(".*", weight=tq.QSpec(bits=3, per_channel=True))])
    params = tq.calibrate(model, [IMAGES])
    norms = {n: dataclasses.replace(v, gamma=v.gamma * 0.3) for n, v in params["norms"].items()}
    params = {**params, "norms": norms}
    watched = model.with_outputs("first_bn/acc", "depth_bn/acc")
    floats = model.with_outputs("first_bn", "depth_bn")

    def errors(params: Any) -> list[np.ndarray]:
        found = []
        sums = watched.integers(params, IMAGES)
        wanted = floats.apply(params, IMAGES, mode="float")
        for name, acc, y in zip(("first_bn", "depth_bn"), sums, wanted, strict=True):
            unit = bias_recipes(model, name)[1].scale(params) * params["norms"][name].factor
            real = np.asarray(payload(acc), np.float64) * np.asarray(unit, np.float64)
            found.append(np.abs((real - np.asarray(y)).mean((0, 1, 2))))
        return found

    corrected = tq.bias_correct(model, params, [IMAGES])
    for before, after in zip(errors(params), errors(corrected), strict=True):
        assert before.max() > 0.005
        assert after.max() < 0.1 * before.max()


# Errors.


def test_a_model_without_norms():
    model = tq.prepare(network())
    params = tq.calibrate(model, [IMAGES])
    with pytest.raises(ValueError, match="keeps no batch norms"):
        model.apply_batch(params, IMAGES)
    with pytest.raises(ValueError, match="keeps no batch norms"):
        tq.estimate_norms(model, params, [IMAGES])


def test_floats_need_norms_for_a_batch(model, params):
    with pytest.raises(ValueError, match="params has no 'norms'"):
        model.apply_batch({"values": params["values"]}, IMAGES, mode="float")


@pytest.mark.parametrize("what", ["gamma", "deviation"])
def test_a_factor_that_is_not_positive(model, params, what):
    norm = params["norms"]["first_bn"]
    wrong = dataclasses.replace(norm, **{what: getattr(norm, what).at[2].set(0.0)})
    wrong = {**params, "norms": {**params["norms"], "first_bn": wrong}}
    with pytest.raises(ValueError, match=f"{what} of channel 2 of the batch norm of 'first_bn' is"):
        model.apply(wrong, IMAGES)


def test_momentum_and_norms_of_another_model(params):
    with pytest.raises(ValueError, match=r"momentum is 1.5"):
        tq.with_statistics(params, params["norms"], momentum=1.5)
    with pytest.raises(ValueError, match="norms of another model: only one of the two has 'depth"):
        tq.with_statistics(params, {"first_bn": params["norms"]["first_bn"]})
    wrong: Any = [params["norms"]]
    with pytest.raises(TypeError, match=r"norms is .* \(list\), expected a dictionary of Norms"):
        tq.with_statistics(params, wrong)


def test_beside_fp8():
    rules = [tq.rule(".*", weight=tq.QSpec("fp8e4m3"), act=tq.QSpec("fp8e4m3"))]
    with pytest.raises(ValueError, match=r"batch norms are kept by integers, .* FP8E4M3"):
        tq.prepare(network(), rules, batch_norms=True)


def test_a_channel_that_never_changes():
    """Its deviation is the root of epsilon, and it stays at its own constant."""
    graph, images = alone("CONV2D")
    weight = np.array(graph.tensors["conv_w"].values)
    weight[1] = 0
    model = tq.prepare(graph, batch_norms=True)
    params = tq.calibrate(model, [images], values={"conv_w": weight * 1})
    for mode in ("exact", "float"):
        (outputs,), norms = model.apply_batch(params, images, mode=mode)
        deviation = norms["bn"].deviation
        np.testing.assert_allclose(deviation[1], np.sqrt(EPSILON), rtol=1e-4)
        np.testing.assert_allclose(outputs[..., 1], params["norms"]["bn"].beta[1], atol=0.03)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_another_bias_has_its_gradient(dtype):
    with jax.enable_x64(dtype is np.int64):
        acc, bias, before = (
            jnp.asarray(x, dtype) for x in (np.full((1, 2, 3), 2**30), [1] * 3, [5] * 3)
        )

    is_left = jnp.ones(3, jnp.bool_)

    def total(*floats: jax.Array) -> jax.Array:
        sums, now, then = map(QTensor, (acc, bias, before), floats)
        found = shifted(sums, now, then, is_left)
        assert found.q.dtype == dtype
        return found.shadow.sum()

    sums, now, then = (QTensor(x, x.astype(jnp.float32)) for x in (acc, bias, before))
    found = shifted(sums, now, then, is_left)
    np.testing.assert_array_equal(found.q, np.full((1, 2, 3), 2**30 - 4))
    # Where its products are left out, the bias is all.
    found = shifted(sums, now, then, jnp.asarray([True, False, True]))
    np.testing.assert_array_equal(found.q[0, 0], [2**30 - 4, 1, 2**30 - 4])
    np.testing.assert_array_equal(found.shadow[0, 0], [2.0**30, 1, 2.0**30])
    floats = [x.astype(jnp.float32) for x in (acc, bias, before)]
    for gradient, wanted in zip(jax.grad(total, (0, 1, 2))(*floats), (1, 2, -2), strict=True):
        np.testing.assert_array_equal(gradient, np.full(gradient.shape, wanted))
