"""Room in accumulators: channels with weights near 0 keep their bias, in training and in files."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.grad.qtensor import payload
from tosajax.quant.model.recipes import Bias
from tosajax.quant.model.room import fitted, fitted_qparams

# Of the weights of each channel, beside ordinary ones of 1.
SIZES = np.asarray([1, 1e-5, 1e-6, 1e-10, 1e-20, 1e-35, 1e-38, 0, 1, 1e-35], np.float32)
BIASES = np.asarray([0.5, 1, 1, -1, 1, -1, 1, 1, 0, 0], np.float32)
COUNT = len(SIZES)
ZEROS = (0, 0, 0, 0)
FLAT = {"pad": ZEROS, "stride": (1, 1), "dilation": (1, 1)}
A16 = [tq.rule(".*", act=tq.QSpec("i16"))]
INT4 = [tq.rule(".*", weight=tq.QSpec("i4", per_channel=True))]
SYMMETRIC = [tq.rule(".*", act=tq.QSpec("i8", symmetric=True))]
# Operator, shapes of input and weights, the axes of channels, attributes.
PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "CONV2D": ((1, 3, 3, 4), (COUNT, 2, 2, 4), (0,), FLAT),
    "DEPTHWISE_CONV2D": ((1, 3, 3, 5), (2, 2, 5, 2), (2, 3), FLAT),
    "TRANSPOSE_CONV2D": (
        (1, 2, 2, 4),
        (COUNT, 2, 2, 4),
        (0,),
        {"out_pad": ZEROS, "stride": (1, 1)},
    ),
    "CONV3D": (
        (1, 2, 2, 2, 3),
        (COUNT, 1, 2, 2, 3),
        (0,),
        {"pad": (0,) * 6, "stride": (1,) * 3, "dilation": (1,) * 3},
    ),
    "MATMUL": ((1, 3, 4), (1, 4, COUNT), (2,), {}),
}
CASES = {
    **{op: (op, []) for op in PRODUCTS},
    "int4": ("CONV2D", INT4),
    "a16": ("CONV2D", A16),
    "symmetric": ("DEPTHWISE_CONV2D", SYMMETRIC),
}


def product(
    op: str, sizes: np.ndarray = SIZES, biases: np.ndarray = BIASES, *, norm: bool = False
) -> Graph:
    """One product by weights of such sizes, with its bias, and perhaps a batch norm after it."""
    shape, weight, axes, attributes = PRODUCTS[op]
    b, rng = Builder(), np.random.default_rng(3)
    values = rng.normal(0, 0.4, weight)
    values = values * sizes.reshape([n if axis in axes else 1 for axis, n in enumerate(weight)])
    x = b.input("x", DType.FP32, shape)
    w = b.const(values.astype(np.float32), DType.FP32, name="w")
    zeros = [b.const([0.0], DType.FP32) for _ in range(2)]
    if op == "MATMUL":
        y = b.op(op, x, w, *zeros, name="y")
        bias = b.const(biases.reshape(1, 1, -1), DType.FP32, name="b")
        return b.graph([b.op("ADD", y, bias, name="total")])
    bias = b.const(biases, DType.FP32, name="b")
    y = b.op(op, x, w, bias, *zeros, acc_type=DType.FP32, name="y", **attributes)
    return b.graph([y])


def examples(op: str, count: int = 6) -> np.ndarray:
    shape = PRODUCTS[op][0]
    return np.random.default_rng(1).normal(0.2, 1, (count, *shape[1:])).astype(np.float32)


def errors(model: tq.QModel, params: Any, x: np.ndarray) -> np.ndarray:
    """The largest error of each channel, in steps of the output, of the frozen graph's integers."""
    (found,), (wanted,) = (model.apply(params, x, mode=mode) for mode in ("exact", "float"))
    (name,) = model.graph.outputs
    step = float(params["qparams"][model.owners[name]].scale)
    difference = np.abs(np.asarray(found, np.float64) - np.asarray(wanted)) / step
    return difference.reshape(-1, difference.shape[-1]).max(0)


def worst_sums(frozen: Graph, x_reach: int) -> np.ndarray:
    """For each output channel of the product in "y/acc", the largest magnitude of its sums."""
    (node,) = [n for n in frozen.nodes if n.outputs == ("y/acc",)]
    axes = PRODUCTS[node.op][2]
    weights = np.asarray(frozen.tensors["w"].values).astype(np.int64)
    others = tuple(axis for axis in range(weights.ndim) if axis not in axes)
    sums = np.abs(weights).sum(others).reshape(-1) * x_reach
    name = "total/bias" if node.op == "MATMUL" else "y/bias"
    return sums + np.abs(np.asarray(frozen.tensors[name].values).astype(np.int64)).reshape(-1)


@pytest.mark.parametrize("case", CASES)
def test_channels_with_weights_near_0_keep_their_bias(case):
    """In the frozen graph, with which training agrees, and no sum leaves its accumulator."""
    op, rules = CASES[case]
    model = tq.prepare(product(op), rules)
    x = examples(op)
    params = tq.calibrate(model, [x])
    near_0 = SIZES < 1
    assert errors(model, params, x)[near_0].max() < 1.5
    frozen = model.freeze(params)
    bits = 47 if case == "a16" else 31
    assert worst_sums(frozen, 32768 if case == "a16" else 255).max() < 2**bits
    report = tq.check_bit_exact(model, params, x, against="frozen")
    assert report, str(report)
    if case == "a16":  # a bias beyond INT32
        bias = frozen.tensors["y/bias"].values
        assert bias is not None
        assert 2**46 < np.abs(bias).max() < 2**47


def test_ordinary_channels_stay_as_they_are():
    """Their scale is that of their weights, to the last bit."""
    model = tq.prepare(product("CONV2D"))
    params = tq.calibrate(model, [examples("CONV2D")])
    own = np.asarray(params["qparams"]["w"].scale).reshape(-1)
    used = np.asarray(fitted_qparams(model.plan, params, "w").scale).reshape(-1)
    values = np.abs(np.asarray(params["values"]["w"])).reshape(COUNT, -1).max(1)
    margin = np.float32(1 + 2.0**-12)
    for channel in (0, 1, 8):
        assert own[channel] == used[channel] == values[channel] / np.float32(127) * margin
    # Weights of 0 alone have a scale that suits others, for training; their bias has a fine unit.
    assert own[7] == own.max()
    assert used[7] < 1e-6


def test_one_scale_for_all_channels():
    model = tq.prepare(
        product("CONV2D", np.full(COUNT, 1e-8, np.float32)),
        [tq.rule(".*", weight=tq.QSpec("i8", narrow_range=True))],
    )
    x = examples("CONV2D")
    params = tq.calibrate(model, [x])
    assert params["qparams"]["w"].scale.size == 1
    assert errors(model, params, x).max() < 1.5
    assert tq.check_bit_exact(model, params, x, against="frozen")


@pytest.mark.parametrize("rules", [[], A16], ids=["i8", "a16"])
def test_whatever_moves_a_scale_leaves_room(rules):
    """The scale that parameters hold may be anything: integers have one that fits."""
    model = tq.prepare(product("CONV2D"), rules)
    x = examples("CONV2D")
    params = tq.calibrate(model, [x])
    known = params["qparams"]["w"]
    tiny = dataclasses.replace(known, scale=known.scale * np.float32(1e-12))
    moved = {**params, "qparams": {**params["qparams"], "w": tiny}}
    stepped = tq.project({**params, "qparams": {**params["qparams"], "w": tiny}}, moved)
    for each in (moved, stepped, tq.with_bits(model, moved, {"w": 3})):
        near_0 = SIZES < 1
        assert errors(model, each, x)[near_0].max() < 1.5
        assert tq.check_bit_exact(model, each, x, against="frozen")
    assert model.quantization(moved)["w"].scale == tuple(
        np.asarray(fitted(model.plan, moved)["qparams"]["w"].scale).reshape(-1)
    )


def test_scales_have_the_same_bits_in_every_program():
    model = tq.prepare(product("CONV2D"))
    params = tq.calibrate(model, [examples("CONV2D")])
    eager = fitted(model.plan, params)["qparams"]["w"].scale
    jitted = jax.jit(lambda p: fitted(model.plan, p))(params)["qparams"]["w"].scale
    np.testing.assert_array_equal(eager, jitted)
    again = fitted(model.plan, fitted(model.plan, params))["qparams"]["w"].scale
    np.testing.assert_array_equal(eager, again)


@pytest.mark.parametrize("mode", ["exact", "fake_quant"])
def test_gradients_are_finite_and_reach_the_bias(mode):
    model = tq.prepare(product("CONV2D"))
    x = examples("CONV2D")
    params = tq.calibrate(model, [x])

    def loss(params: Any) -> jax.Array:
        return model.apply(params, x, mode=mode)[0].mean()

    gradient = jax.jit(jax.grad(loss, allow_int=True))(params)
    for name in ("values", "qparams"):
        for leaf in jax.tree.leaves(gradient[name]):
            assert np.isfinite(np.asarray(leaf)).all()
    # A mean over ten channels, but for what lies beyond the range of the output.
    np.testing.assert_allclose(gradient["values"]["b"][SIZES < 1], 0.1, rtol=0.15)


@pytest.mark.parametrize("tune", ["gptq", "reconstruct", "learned_rounding", "bias_correct"])
def test_tuning_keeps_them(tune):
    model = tq.prepare(product("CONV2D"))
    x = examples("CONV2D")
    params = tq.calibrate(model, [x])
    steps = {"steps": 2} if tune in ("reconstruct", "learned_rounding") else {}
    tuned = getattr(tq, tune)(model, params, [x], **steps)
    near_0 = SIZES < 1
    assert errors(model, tuned, x)[near_0].max() < 1.5
    assert tq.check_bit_exact(model, tuned, x, against="frozen")


def test_the_report_lists_them():
    model = tq.prepare(product("CONV2D"))
    x = examples("CONV2D")
    params = tq.calibrate(model, [x])
    report = tq.report(model, params, x)
    assert [(w.tensor, w.channel) for w in report.widened] == [("w", n) for n in (2, 3, 4, 5, 9)]
    assert all(w.scale > w.of_weights > 0 for w in report.widened)
    assert "scales that grew, so that biases have room:\n  'w', channel 2: scale" in str(report)
    assert "channel 2: scale" in report._repr_html_()
    ordinary = tq.prepare(product("CONV2D", np.ones(COUNT, np.float32)))
    of_ordinary = tq.report(ordinary, tq.calibrate(ordinary, [x]), x)
    assert of_ordinary.widened == ()
    assert "grew" not in str(of_ordinary)


def test_a_bias_that_cannot_have_room_is_refused():
    """That of a product of two computed tensors has no weights whose scale could grow."""
    b = Builder()
    x, z = (b.input(name, DType.FP32, (1, 3, 3)) for name in "xz")
    zeros = [b.const([0.0], DType.FP32) for _ in range(2)]
    y = b.op("MATMUL", x, z, *zeros, name="y")
    bias = b.const(np.asarray([[[1, 1e7, 1]]], np.float32), DType.FP32, name="b")
    model = tq.prepare(b.graph([b.op("ADD", y, bias, name="total")]))
    data = 1e-2 * np.random.default_rng(0).normal(0, 1, (2, 4, 3, 3)).astype(np.float32)
    params = tq.calibrate(model, [tuple(data)])
    with pytest.raises(ValueError, match="bias 'b' of 'total/bias', channel 1: it is beyond INT32"):
        model.freeze(params)


def test_the_largest_bias_is_beside_the_largest_products():
    """At the limit itself, both together are within the accumulator."""
    model = tq.prepare(product("CONV2D"))
    (recipe,) = [r for r in model.plan.recipes.values() if isinstance(r, Bias)]
    assert recipe.limit + 16 * 255 * 128 == 2**31 - 256
    wide = tq.prepare(product("CONV2D"), A16)
    (recipe,) = [r for r in wide.plan.recipes.values() if isinstance(r, Bias)]
    assert recipe.limit + 16 * 32768 * 128 == 2**47 - 2**24
    assert recipe.dtype is DType.INT48


@pytest.mark.parametrize("op", ["CONV2D", "MATMUL"])
def test_products_that_are_longer_than_any_accumulator_holds_are_named(op):
    """All weights at the end of their range: 127 times 255 times 66,312 is beyond INT32."""
    for count in (66_000, 67_000):
        b = Builder()
        shape = (1, 1, 1, count) if op == "CONV2D" else (1, 1, count)
        x = b.input("x", DType.FP32, shape)
        weights = np.ones((2, 1, 1, count) if op == "CONV2D" else (1, count, 2), np.float32)
        zeros = [b.const([0.0], DType.FP32) for _ in range(2)]
        w = b.const(weights, DType.FP32, name="w")
        if op == "CONV2D":
            bias = b.const([0.0, 0.0], DType.FP32)
            y = b.op(op, x, w, bias, *zeros, acc_type=DType.FP32, name="y", **FLAT)
        else:
            y = b.op(op, x, w, *zeros, name="y")
        model = tq.prepare(b.graph([y]))
        # Of one sign, so that the zero point is at the other end of the range.
        examples = np.linspace(0, 1, count, dtype=np.float32).reshape(shape)
        params = tq.calibrate(model, [examples])
        if count == 66_000:
            model.freeze(params)
            continue
        message = rf"{op} 'y/acc': sums of its products may be as large as .*: inputs that exceed"
        with pytest.warns(UserWarning, match=message):
            model.freeze(params)
        # Only inputs that do exceed it are named.
        for most, wanted in ((0.5, []), (1.0, [(f"{op} 'y/acc'", f"{op.lower()}.r1")])):
            inputs = np.full(shape, most, np.float32)
            with pytest.warns(UserWarning, match=message):
                report = tq.check_bit_exact(model, params, inputs, against="frozen")
            assert [(u.node, u.rule) for u in report.unpredictable] == wanted
            assert bool(report) == (not wanted)


def normed(gamma: float) -> Graph:
    """A convolution whose batch norm has a factor near 0 in one channel, then a ReLU."""
    b, rng = Builder(), np.random.default_rng(5)
    x = b.input("x", DType.FP32, (1, 4, 4, 3))
    const = lambda values, name: b.const(np.asarray(values, np.float32), DType.FP32, name=name)  # noqa: E731
    w = const(rng.normal(0, 0.4, (4, 2, 2, 3)), "w")
    zeros = [b.const([0.0], DType.FP32) for _ in range(2)]
    y = b.op("CONV2D", x, w, const(np.zeros(4), "b"), *zeros, acc_type=DType.FP32, name="y", **FLAT)
    factors = np.asarray([1, gamma, 0.7, 1.2])
    scaled = b.op(
        "MUL", y, const(factors.reshape(1, 1, 1, 4), "g"), b.const([0], DType.INT8), name="scaled"
    )
    beta = const(np.asarray([0.2, 1, -0.3, 0]).reshape(1, 1, 1, 4), "beta")
    return b.graph([b.op("ADD", scaled, beta, name="normed")])


IMAGES = np.random.default_rng(2).normal(0.2, 1, (8, 4, 4, 3)).astype(np.float32)


@pytest.mark.parametrize("kept", [False, True], ids=["folded", "kept"])
@pytest.mark.parametrize("gamma", [1e-6, 1e-30])
def test_batch_norms_with_a_factor_near_0(kept, gamma):
    model = tq.prepare(normed(gamma), batch_norms=kept)
    params = tq.calibrate(model, [IMAGES])
    assert errors(model, params, IMAGES)[1] < 1.5
    assert tq.check_bit_exact(model, params, IMAGES, against="frozen")


@pytest.mark.parametrize("weight", ["per channel", "per tensor", "a16"])
def test_a_kept_batch_norm_whose_factor_trained_to_nearly_0(weight):
    """Its bias takes all of the channel; batch statistics give the same integers."""
    spec = tq.QSpec("i8", narrow_range=True)
    rules = {"per channel": [], "per tensor": [tq.rule(".*", weight=spec)], "a16": A16}[weight]
    model = tq.prepare(normed(0.5), rules, batch_norms=True)
    params = tq.calibrate(model, [IMAGES])
    norm = params["norms"]["normed"]
    # Where the bias just has no room, and far beyond.
    small = {"per channel": 1.3e-6, "per tensor": 1e-9, "a16": 6e-9}[weight]
    gamma = norm.gamma.at[1].multiply(np.float32(small))
    params = {**params, "norms": {"normed": dataclasses.replace(norm, gamma=gamma)}}
    (before,), norms = jax.jit(model.apply_batch)(params, IMAGES)
    after = {**params, "norms": norms}
    (found,) = model.apply(after, IMAGES)
    np.testing.assert_array_equal(before, found)
    assert errors(model, after, IMAGES)[1] < 1.5
    assert np.ptp(np.asarray(found)[..., 0]) > 1
    assert tq.check_bit_exact(model, after, IMAGES, against="frozen")
    weights = model.freeze(after).tensors["w"].values
    assert weights is not None
    assert not weights[1].any()
    assert weights[0].any()
    assert weights[2].any()

    def loss(params: Any) -> jax.Array:
        return model.apply_batch(params, IMAGES)[0][0].mean()

    gradient = jax.jit(jax.grad(loss, allow_int=True))(params)
    for name in ("values", "qparams", "norms"):
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient[name]))


def test_zero_points_and_constants_are_those_of_training():
    model = tq.prepare(product("CONV2D"))
    params = tq.calibrate(model, [examples("CONV2D")])
    frozen = model.freeze(params)
    for name, made in model.constants(params).items():
        if name in frozen.tensors:
            known = frozen.tensors[name].values
            np.testing.assert_array_equal(
                np.ravel(np.asarray(payload(made))), np.ravel(np.asarray(known))
            )
    assert jnp.isfinite(fitted_qparams(model.plan, params, "w").scale).all()
