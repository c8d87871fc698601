"""A scale for each channel of what only depthwise convolutions read."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from quant.image_networks import Images

import tosajax
from tosajax import DType, Graph, reference_model
from tosajax import quant as tq
from tosajax.graph.quantization import dequantize
from tosajax.quant.model.params import with_channels
from tosajax.quant.ranges.channel_scales import channel_ends, factors_of

AGAINST = ("frozen", "reference_model") if reference_model.is_installed() else ("frozen",)
CHANNELS = 4
# What the first convolution multiplies the channels by: one of them is dead. The next makes small
# channels count as much as large ones.
SPREAD = np.array([1, 0.1, 0.02, 0], np.float32)
UNDONE = 1 / np.where(SPREAD > 0, SPREAD, 1)
RNG = np.random.default_rng(5)
X = RNG.normal(0, 0.2, (12, 6, 6, 3)).astype(np.float32)
FMAX = float(np.finfo(np.float32).max)


def expanded(multiplier: int = 1, low: float = 0, high: float = 6.0) -> Graph:
    """A convolution, a bounded activation, and a depthwise convolution of it."""
    n = Images()
    y = n.relu(n.conv(n.input, "up", factors=SPREAD), low, high, name="y")
    return n.b.graph([n.conv(n.depthwise(y, "depthwise", multiplier, UNDONE), "down")])


def quantized(graph: Graph, *rules: tq.Rule, **options: Any) -> tuple[tq.PreparedModel, Any]:
    model = tq.prepare(graph, rules, **options)
    return model, tq.calibrate(model, [X[:8], X[8:]])


def sqnr(model: tq.PreparedModel, params: Any, mode: Any = "exact") -> float:
    (actual,), (wanted,) = (model.apply(params, X, mode=m) for m in (mode, "float"))
    return float(10 * np.log10(np.sum(np.square(wanted)) / np.sum(np.square(actual - wanted))))


@pytest.mark.parametrize("multiplier", [1, 3])
def test_small_channels_keep_their_precision(multiplier: int):
    graph = expanded(multiplier)
    model, params = quantized(graph)
    plain = quantized(graph, channel_scales=False)
    assert model.plan.factors == {"y": CHANNELS}
    assert sqnr(model, params) > sqnr(*plain) + 6
    assert sqnr(model, params, "fake_quant") > sqnr(model, params) - 1
    assert tq.check_bit_exact(model, params, X[:3], against=AGAINST)


def test_no_operator_and_no_weight_changes():
    """The integers of weights are the same; RESCALEs have other numbers."""
    graph = expanded()
    (model, params), (plain, plain_params) = (
        quantized(graph),
        quantized(graph, channel_scales=False),
    )
    ours, theirs = model.freeze(params), plain.freeze(plain_params)
    assert [node.op for node in ours.nodes] == [node.op for node in theirs.nodes]
    for name in ("up/w", "depthwise/w", "down/w"):
        chex.assert_trees_all_equal(ours.tensors[name].values, theirs.tensors[name].values)
    chex.assert_trees_all_equal(params["values"], plain_params["values"])


def test_factors_are_those_of_the_largest_magnitudes():
    model, params = quantized(expanded(high=FMAX))
    (y,) = model.with_outputs("y").apply(params, X, mode="float")
    largest = np.asarray(y).max((0, 1, 2))
    wanted = np.minimum(largest.max() / np.maximum(largest, 1e-9), 64)
    wanted[-1] = 64  # of the dead channel
    np.testing.assert_allclose(params["factors"]["y"], wanted, rtol=1e-6)


def test_the_file_has_the_scales():
    """Scales of channels are in the file, and give back what `apply` gives."""
    model, params = quantized(expanded())
    frozen = model.with_outputs("y", "down").freeze(params)
    own = frozen.quantization["y"]
    assert own.axes == (3,)
    np.testing.assert_allclose(
        own.scale, params["qparams"]["y"].scale / np.asarray(params["factors"]["y"]), rtol=1e-6
    )
    (integers,) = frozen.quantized(X)
    values = np.asarray(tosajax.compile(frozen, batch=len(X))(integers)[0])
    (wanted,) = model.with_outputs("y").apply(params, X)
    np.testing.assert_allclose(dequantize(values, frozen.tensors["y"], own), wanted, rtol=1e-6)


def test_copies_of_residual_sums():
    """A sum is INT16, and each channel of the copy that is convolved has a scale."""
    n = Images()
    stem = n.conv(n.input, "stem", factors=SPREAD)
    branch = n.conv(n.depthwise(stem, "branch", factors=UNDONE), "back", factors=SPREAD)
    total = n.b.op("ADD", stem, branch, name="total")
    graph = n.b.graph([n.conv(n.depthwise(total, "last", factors=UNDONE), "head")])
    model, params = quantized(graph)
    assert model.plan.factors == {"stem/copy": CHANNELS, "total": CHANNELS}
    assert model.specs["stem"].dtype is DType.INT16
    assert sqnr(model, params) > sqnr(*quantized(graph, channel_scales=False)) + 8
    assert tq.check_bit_exact(model, params, X[:3], against=AGAINST)


def _read_by_more() -> Graph:
    n = Images()
    y = n.conv(n.input, "y")
    return n.b.graph([n.conv(n.depthwise(y, "depthwise"), "down"), n.conv(y, "other")])


def _output() -> Graph:
    n = Images()
    y = n.conv(n.input, "y")
    return n.b.graph([n.depthwise(y, "depthwise"), y])


def _moved() -> Graph:
    """A table has the scale of its own integers."""
    n = Images()
    table = n.b.op("SIGMOID", n.conv(n.input, "logit"), name="y")
    return n.b.graph([n.depthwise(table, "depthwise")])


def _input() -> Graph:
    n = Images()
    return n.b.graph([n.depthwise(n.input, "depthwise")])


def _computed_weight() -> Graph:
    n = Images()
    y = n.conv(n.input, "y")
    weight = n.b.input("w", DType.FP32, (3, 3, CHANNELS, 1))
    return n.b.graph([n.depthwise(y, "depthwise", weight=weight)])


def _weight_of_two_operators() -> Graph:
    """It has one scale, as an ADD reads it."""
    n = Images()
    weight = n.random("depthwise/w", 3, 3, CHANNELS, 1)
    y = n.depthwise(n.conv(n.input, "y"), "depthwise", weight=weight)
    return n.b.graph(
        [y, n.b.op("ADD", weight, n.b.input("other", DType.FP32, (3, 3, CHANNELS, 1)))]
    )


INT16 = tq.rule("^y$", act=tq.QSpec("i16"))
PER_TENSOR = tq.rule("depthwise/w", weight=tq.QSpec())
FIXED = tq.rule("^y$", act=tq.QSpec("i8", observer=tq.fixed(0.05)))


@pytest.mark.parametrize(
    ("graph", "rules"),
    [
        (_read_by_more(), ()),
        (_output(), ()),
        (_moved(), ()),
        (_input(), ()),
        (_computed_weight(), ()),
        (_weight_of_two_operators(), ()),
        (expanded(), (INT16,)),
        (expanded(), (PER_TENSOR,)),
        (expanded(), (FIXED,)),
        (expanded(low=-6, high=-0.5), ()),
        (expanded(low=0.5, high=6), ()),
    ],
    ids=[
        *("read by more", "output", "table", "input", "computed weight", "shared weight"),
        *("INT16", "per tensor", "fixed", "to -0.5", "from 0.5"),
    ],
)
def test_what_keeps_one_scale(graph: Graph, rules: tuple[tq.Rule, ...]):
    model = tq.prepare(graph, rules)
    others = [RNG.normal(0, 1, t.shape).astype(np.float32) for t in graph.input_tensors[1:]]
    params = tq.calibrate(model, [(X[:1], *others)])
    assert model.plan.factors == {}
    assert "factors" not in params


@pytest.mark.parametrize(("low", "high"), [(0, 6.0), (-0.5, 0.5), (-1, 0.3), (-0.1, 6), (0, FMAX)])
def test_bounds_hold_for_each_channel(low: float, high: float):
    """Beyond what calibration has seen, channels end at the range, within both bounds."""
    graph = expanded(low=low, high=high)
    model = tq.prepare(graph)
    params = tq.calibrate(model, [X])
    assert model.plan.factors
    (y,) = model.with_outputs("y").apply(params, 50 * X)
    half = 0.51 * float(params["qparams"]["y"].scale)  # bounds are integers
    assert float(y.min()) >= low - half
    assert float(y.max()) <= high + half
    assert tq.check_bit_exact(model, params, 50 * X[:3], against=("frozen",))


def test_a_bias_has_room_beside_factors():
    """A channel 64 times finer has sums of so many more units."""
    n = Images()
    y = n.conv(n.input, "y", factors=SPREAD)
    bias = n.const("depthwise/b", np.full(CHANNELS, 3e3))
    graph = n.b.graph([n.depthwise(y, "depthwise", bias=bias, factors=np.full(CHANNELS, 1e-5))])
    model, params = quantized(graph)
    assert model.plan.factors == {"y": CHANNELS}
    np.testing.assert_allclose(model.apply(params, X)[0], 3e3, rtol=0.01)
    assert tq.check_bit_exact(model, params, X[:3], against=AGAINST)


def test_batches_that_run_once_have_the_factors_of_the_first():
    model = tq.prepare(expanded(high=FMAX))
    batches = [X[:4], 3 * X[4:8], X[8:]]
    once = tq.calibrate(model, iter(batches))
    first = tq.calibrate(model, batches[:1])
    chex.assert_trees_all_equal(once["factors"], first["factors"])
    # All batches are in the range.
    assert once["qparams"]["y"].scale > 1.5 * first["qparams"]["y"].scale
    with pytest.raises(ValueError, match="no examples to calibrate with"):
        tq.calibrate(model, iter([]))


def test_ranges_hold_small_channels_of_later_batches():
    """What is observed is each channel times its factor, as factors are of the first batch."""
    model = tq.prepare(expanded(high=FMAX))
    params = tq.calibrate(model, iter([0 * X[:4], X[4:]]))
    (y,) = model.with_outputs("y").apply(params, X[4:], mode="float")
    by_channel = np.asarray(y).max((0, 1, 2))
    largest = by_channel * np.asarray(params["factors"]["y"])
    assert largest.max() > 1.2 * by_channel.max()
    np.testing.assert_allclose(params["qparams"]["y"].scale * 255, largest.max(), rtol=0.01)


def test_factors_leave_out_outliers():
    """An example that ranges leave out has no say in factors either."""
    model = tq.prepare(expanded(high=FMAX))
    far = X.copy()
    far[3, ..., 1] *= 1e5
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        params = tq.calibrate(model, [far[:8], far[8:]])
    assert any("1 of 12 examples" in str(each.message) for each in caught)
    wanted = tq.calibrate(model, [np.delete(X, 3, 0)])
    chex.assert_trees_all_equal(params["factors"], wanted["factors"])


def test_factors_do_not_train():
    """No gradient reaches them, and weight decay leaves them as they are; corrections as well."""
    optax = pytest.importorskip("optax")
    model, params = quantized(expanded())
    params = tq.bias_correct(model, params, [X])
    wanted = np.asarray(model.apply(params, X, mode="float")[0])
    trained = tq.fit(
        model,
        params,
        [(X, wanted)] * 2,
        lambda outputs, y: jnp.mean(jnp.square(outputs[0] - y)),
        optimizer=optax.adamw(1e-5, weight_decay=50),
    ).params
    for group in ("factors", "corrections"):
        chex.assert_trees_all_equal(trained[group], params[group])
    changed = trained["values"]["depthwise/w"] != params["values"]["depthwise/w"]
    assert bool(jnp.any(changed))
    assert tq.check_bit_exact(model, trained, X[:2], against=("frozen",))


def test_rules_take_factors_away_and_bring_them_back():
    model, params = quantized(expanded())
    wide, wide_params = tq.with_rules(model, params, [INT16])
    assert wide.plan.factors == {}
    assert sqnr(wide, wide_params) > sqnr(model, params)
    again, narrow = tq.with_rules(
        wide, wide_params, [tq.rule("^y$", act=tq.QSpec(symmetric=False))]
    )
    chex.assert_trees_all_equal(narrow["factors"], params["factors"])
    assert sqnr(again, narrow) > sqnr(model, params) - 1
    # A model that never had them gets factors of 1.
    whole, of_whole = quantized(expanded(), INT16)
    new, new_params = tq.with_rules(
        whole, of_whole, [tq.rule("^y$", act=tq.QSpec(symmetric=False))]
    )
    assert new_params["factors"]["y"].tolist() == [1] * CHANNELS
    assert tq.check_bit_exact(new, new_params, X[:2], against=("frozen",))


def test_every_remedy_takes_them():
    """Programs of parts of a model see the scales of channels."""
    model, params = quantized(expanded())
    before = sqnr(model, params)
    corrected = tq.bias_correct(model, params, [X])
    chosen = tq.gptq(model, corrected, [X])
    for changed in (corrected, chosen, tq.reconstruct(model, chosen, [X], steps=5)):
        chex.assert_trees_all_equal(changed["factors"], params["factors"])
        assert sqnr(model, changed) > before - 0.5
    report = tq.report(model, params, X)
    assert {row.tensor for row in report.rows} >= {"y", "depthwise"}


def test_how_far_each_channel_reaches():
    y = jnp.array([[[1, -2]], [[jnp.nan, 3]], [[-jnp.inf, 0.5]], [[-4, 0]]])
    ends = channel_ends(y, 2)
    chex.assert_trees_all_equal(ends, jnp.array([[[1, 3], [0, 2]], [[0, 0.5], [4, 0]]]))
    # Above 0 the first channel could be 3 times as large, below it is the largest.
    several = np.array([[[1, 3, 0.5, 0, 0.01], [4, 2, 1, 0, 0.01]]], np.float32)
    factors = factors_of({"y": [several], "dead": [np.zeros((2, 2, 3), np.float32)]})
    chex.assert_trees_all_equal(factors["y"], jnp.array([1, 1, 4, 64, 64], jnp.float32))
    assert factors["dead"].tolist() == [64, 64, 64]


def test_no_channel_is_coarser_than_with_one_scale():
    """The range stays, also where one channel is positive and another one negative."""
    graph = expanded(low=-FMAX)
    (model, params), (plain, plain_params) = (
        quantized(graph),
        quantized(graph, channel_scales=False),
    )
    own, of_all = (each["qparams"]["y"].scale for each in (params, plain_params))
    assert float(own) <= 1.01 * float(of_all)
    assert float(params["factors"]["y"].min()) == 1
    assert sqnr(model, params) > sqnr(plain, plain_params) + 6


def test_under_jit_vmap_and_grad():
    model, params = quantized(expanded())
    apply = functools.partial(model.apply, params)
    chex.assert_trees_all_close(jax.jit(apply)(X), model.apply(params, X))
    chex.assert_trees_all_close(jax.vmap(lambda x: apply(x[None])[0][0])(X), apply(X)[0])
    gradient = jax.grad(lambda p: model.apply(p, X)[0].sum(), allow_int=True)(params)
    assert not np.any(gradient["factors"]["y"])
    assert np.any(gradient["values"]["up/w"])


def test_networks_inside_loops_have_one_scale():
    """Records of loops and branches are of elements, not of channels."""
    rng = np.random.default_rng(4)
    dimensions = ("NHWC", "HWIO", "NHWC")
    first = jnp.float32(rng.normal(0, 0.5, (1, 1, 3, 3)))
    second = jnp.float32(rng.normal(0, 0.5, (3, 3, 1, 3)))

    def body(_: Any, x: jax.Array) -> jax.Array:
        conv = functools.partial(lax.conv_general_dilated, dimension_numbers=dimensions)
        y = jax.nn.relu(conv(x, first, (1, 1), "SAME"))
        return conv(y, second, (1, 1), "SAME", feature_group_count=3)

    def loop(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, body, x)

    model = tq.prepare(loop, example_args=[X[:1]], max_unroll=1)
    assert any(node.op == "WHILE_LOOP" for node in model.float_graph.nodes)
    assert model.plan.factors == {}
    unrolled = tq.prepare(loop, example_args=[X[:1]], max_unroll=3)
    assert len(unrolled.plan.factors) == 3
    params = tq.calibrate(model, [X])
    assert tq.check_bit_exact(model, params, X[:2], against=("frozen",))


def test_the_scale_of_each_channel_is_a_correctly_rounded_quotient():
    model, params = quantized(expanded())
    own = with_channels(model.plan, params, "y", params["qparams"]["y"], rank=4)
    assert own.scale.shape == (1, 1, 1, CHANNELS)
    quotient = np.asarray(params["qparams"]["y"].scale) / np.asarray(params["factors"]["y"])
    chex.assert_trees_all_equal(own.scale.reshape(-1), quotient)
    assert with_channels(model.plan, params, "x", params["qparams"]["x"]) is params["qparams"]["x"]
