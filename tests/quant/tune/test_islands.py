"""Layers in other types: by rules, with the ranges that they had; and the fewest for a budget."""

from __future__ import annotations

import itertools
from typing import Any

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.quant.tune.rescuing import _smallest_set
from tosajax.spec import NanMode, RoundingMode

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(0.2, 1, (64, 1, 1, 6)).astype(np.float32)
CONV = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
BOTH = ("frozen", "reference_model")


def network() -> Graph:
    """Five layers; channels of "wide0" and "wide1" differ so much in range that INT8 is too few."""
    rng = np.random.default_rng(1)
    b = Builder("wide")
    x = b.input("x", DType.FP32, (1, 1, 1, 6))
    zero = [b.const([0.0], DType.FP32, name=f"zero{i}") for i in range(2)]

    def conv(x: Any, outputs: int, name: str, gain: Any = 1.0, before: Any = 1.0) -> Any:
        values = rng.normal(0, 0.5, (outputs, 1, 1, x.shape[-1]))
        values = values * np.reshape(gain, (-1, 1, 1, 1)) / np.reshape(before, (1, 1, 1, -1))
        w = b.const(values, DType.FP32, name=f"{name}_w")
        bias = b.const(rng.normal(0, 0.1, outputs) * np.ravel(gain), DType.FP32, name=f"{name}_b")
        return b.op("CONV2D", x, w, bias, *zero, name=name, **CONV)

    far = np.array([100.0] + [1.0] * 7)
    x = conv(x, 8, "first")
    x = b.op("TANH", x, name="tanh")
    x = conv(x, 8, "wide0", far)
    ends = {"min_val": np.float32(0), "max_val": np.float32(1e3), "nan_mode": NanMode.PROPAGATE}
    x = b.op("CLAMP", x, name="relu0", **ends)
    x = conv(x, 8, "middle", before=far)
    x = conv(x, 8, "wide1", far)
    return b.graph([conv(x, 3, "last", before=far)])


@pytest.fixture(scope="module")
def model() -> tq.QModel:
    return tq.prepare(network())


@pytest.fixture(scope="module")
def params(model: tq.QModel) -> Any:
    return tq.calibrate(model, [IMAGES])


def error(model: tq.QModel, params: Any, examples: np.ndarray = IMAGES) -> float:
    (wanted,), (found,) = (model.apply(params, examples, mode=m) for m in ("float", "exact"))
    return float(jnp.square(found - wanted).mean())


# with_rules.


def linear(*, clamped: bool) -> Graph:
    """A MATMUL by a constant and an ADD of a constant, as ONNX has linear layers."""
    rng = np.random.default_rng(2)
    b = Builder("linear")
    x = b.op("TANH", b.input("x", DType.FP32, (1, 4, 6)), name="tanh")
    w = b.const(rng.normal(0, 0.5, (1, 6, 8)), DType.FP32, name="w")
    zeros = [b.const([0.0], DType.FP32, name=f"zero{i}") for i in range(2)]
    y = b.op("MATMUL", x, w, *zeros, name="product")
    y = b.op("RESHAPE", y, b.const_shape([4, 8]), name="rows")
    bias = b.const(rng.normal(0, 3, (1, 8)), DType.FP32, name="bias")
    y = b.op("ADD", y, bias, name="sum")
    ends = {"min_val": np.float32(0), "max_val": np.float32(2), "nan_mode": NanMode.PROPAGATE}
    return b.graph([b.op("CLAMP", y, name="relu", **ends) if clamped else y])


@pytest.mark.slow
@pytest.mark.parametrize("clamped", [False, True])
def test_a_bias_that_leaves_the_accumulator(clamped):
    """Sums of INT48 take no constant: the product has a scale of its own then."""
    examples = RNG.normal(0, 1, (32, 4, 6)).astype(np.float32)
    model = tq.prepare(linear(clamped=clamped), wide_elementwise=False)
    params = tq.calibrate(model, [examples])
    assert "product" not in model.owners
    lifted, own = tq.with_rules(model, params, [tq.rule("tanh", act=tq.QSpec("i16"))])
    assert lifted.specs["product"].storage.dtype is DType.INT16
    assert tq.check_bit_exact(lifted, own, examples[:1], against=BOTH)
    assert error(lifted, own, examples) < error(model, params, examples)
    found = tq.rescue(model, params, examples, budget=0.97 * error(model, params, examples))
    assert found.after < found.before


def test_a_budget_out_of_reach():
    """The least loss that there is, with a warning."""
    examples = RNG.normal(0, 1, (32, 4, 6)).astype(np.float32)
    model = tq.prepare(linear(clamped=False))
    params = tq.calibrate(model, [examples])
    with pytest.warns(UserWarning, match=r"the loss is .* with . of 1 tensors .* budget of 1e-12"):
        found = tq.rescue(model, params, examples, budget=1e-12)
    assert found.after <= found.before


@pytest.mark.slow
def test_a_lifted_model_is_that_of_all_rules(model, params):
    """The same as to prepare and to calibrate with the rules, where ranges are those of min_max."""
    rules = [tq.rule("^relu0$", act=tq.QSpec("i16")), tq.rule("middle_w", weight=tq.QSpec(bits=5))]
    found, own = tq.with_rules(model, params, rules)
    wanted = tq.prepare(network(), rules)
    assert found.specs == wanted.specs
    assert found.graph.tensors["relu0"].dtype is DType.INT16
    settled = tq.calibrate(wanted, [IMAGES])
    for name, qparams in settled["qparams"].items():
        known = own["qparams"][name]
        assert (known.dtype, known.symmetric) == (qparams.dtype, qparams.symmetric)
        np.testing.assert_allclose(known.scale, qparams.scale, rtol=2e-2)
    chex.assert_trees_all_equal(own["qparams"]["wide1"], params["qparams"]["wide1"])
    np.testing.assert_array_equal(
        own["qparams"]["middle_w"].scale, settled["qparams"]["middle_w"].scale
    )
    assert tq.check_bit_exact(found, own, IMAGES[:8], against=BOTH)
    assert error(found, own) < error(model, params)


def test_later_rules_win(model, params):
    wide = tq.with_rules(model, params, [tq.rule("relu0", act=tq.QSpec("i16"))])
    six = tq.QSpec(symmetric=False, bits=6)
    narrow, own = tq.with_rules(*wide, [tq.rule("relu0", act=six)])
    assert narrow.specs["relu0"].dtype is DType.INT8
    assert float(own["qparams"]["relu0"].bits) == 6
    assert narrow.plan.options.rules[-1].act == six


@pytest.mark.slow
def test_tables_are_sampled_in_the_new_types(model, params):
    for pattern, dtypes in {"^first$": ("i16", "i8"), "^tanh$": ("i8", "i16")}.items():
        found, own = tq.with_rules(model, params, [tq.rule(pattern, act=tq.QSpec("i16"))])
        assert [found.specs[n].storage.name.lower() for n in ("first", "tanh")] == [
            {"i8": "int8", "i16": "int16"}[d] for d in dtypes
        ]
        assert own["tables"]["tanh"].shape == (513,)
        assert tq.check_bit_exact(found, own, IMAGES[:8], against=BOTH)


def test_options_and_norms_stay():
    options: Any = {"rounding_mode": RoundingMode.DOUBLE_ROUND, "batch_norms": "middle"}
    model = tq.prepare(network(), **options)
    params = tq.calibrate(model, [IMAGES])
    found, own = tq.with_rules(model, params, [tq.rule("relu0", act=tq.QSpec("i16"))])
    assert set(found.plan.norms) == {"middle"}
    modes = {n.attributes["rounding_mode"] for n in found.graph.nodes if n.op == "RESCALE"}
    assert options["rounding_mode"] in modes
    assert tq.check_bit_exact(found, own, IMAGES[:8], against=("frozen",))


def test_wrong_rules(model, params):
    wrong: Any = "relu0"
    with pytest.raises(TypeError, match="rules is 'relu0'"):
        tq.with_rules(model, params, wrong)
    with pytest.raises(TypeError, match="an element of rules is 3"):
        tq.with_rules(model, params, [3])  # pyright: ignore
    with pytest.raises(ValueError, match="the pattern is found in no name"):
        tq.with_rules(model, params, [tq.rule("nothing", act=tq.QSpec("i16"))])
    fp8 = tq.QSpec("fp8e4m3")
    with pytest.raises(ValueError, match=r"rule 'middle': FP8E4M3 beside integers, expected INT4"):
        tq.with_rules(model, params, [tq.rule("middle", act=fp8)])
    floats = tq.prepare(network(), [tq.rule(".*", weight=fp8, act=fp8)])
    for call in (tq.with_rules, tq.rescue):
        more: Any = ([],) if call is tq.with_rules else (IMAGES,)
        options: Any = {} if call is tq.with_rules else {"budget": 0.1}
        with pytest.raises(ValueError, match="not of integers from a float graph"):
            call(floats, params, *more, **options)


# rescue.


def lifted(model: tq.QModel, params: Any, names: tuple[str, ...]) -> float:
    rules = [tq.rule(f"^{name}$", act=tq.QSpec("i16")) for name in names]
    return error(*tq.with_rules(model, params, rules)) if rules else error(model, params)


@pytest.mark.slow
def test_the_fewest_tensors_within_the_budget(model, params):
    """Beside the loss of every choice, each measured on its own integer graph."""
    names = ("first", "tanh", "relu0", "middle", "wide1")
    losses = {
        chosen: lifted(model, params, chosen)
        for count in range(4)
        for chosen in itertools.combinations(names, count)
    }
    for budget in (0.5 * losses[()], 1.2 * min(losses.values())):
        found = tq.rescue(model, params, IMAGES, budget=budget)
        fewest = min(len(chosen) for chosen, loss in losses.items() if loss <= budget)
        assert len(found.lifted) == fewest
        assert found.after <= budget < found.before
        np.testing.assert_allclose(found.before, losses[()], rtol=1e-5)
        np.testing.assert_allclose(found.after, error(found.model, found.params), rtol=1e-5)
        assert tq.check_bit_exact(found.model, found.params, IMAGES[:8], against=BOTH)
        wide = {n for n, spec in found.model.specs.items() if spec.dtype is DType.INT16}
        assert wide == set(found.lifted)
    assert set(found.lifted) >= {"relu0", "wide1"}
    assert found.candidates == 5


@pytest.mark.parametrize(
    ("needed", "kept"),
    [({1, 3}, [1, 3]), ({0}, [0]), ({4}, [4]), ({0, 1, 2, 3, 4}, list(range(5)))],
)
def test_what_is_not_needed_is_left_out(needed, kept):
    """Tensors that help by themselves may be of no use beside others."""
    assert _smallest_set(lambda places: float(len(needed - set(places))), range(5), 0.5) == kept
    assert _smallest_set(lambda places: 1.0, range(5), 0.5) == list(range(5))


def test_nothing_to_rescue(model, params):
    found = tq.rescue(model, params, IMAGES, budget=1e9)
    assert found.lifted == ()
    assert found.model is model
    assert found.before == found.after


def test_a_loss_of_the_user(model, params):
    """Of the first output alone, which a tensor of the user's choice must bring down."""

    def loss(outputs: Any) -> Any:
        return jnp.abs(outputs[0][..., 0] - wanted[..., 0]).mean()

    (wanted,) = model.apply(params, IMAGES, mode="float")
    before = float(loss(model.apply(params, IMAGES)))
    budget = 0.95 * before
    found = tq.rescue(model, params, IMAGES, budget=budget, loss=loss, names=["relu0", "wide1"])
    assert set(found.lifted) <= {"relu0", "wide1"}
    assert found.candidates == 2
    np.testing.assert_allclose(
        found.after, loss(found.model.apply(found.params, IMAGES)), rtol=1e-5
    )


def test_ends_are_lifted_if_asked(model, params):
    names = list(model.activations)
    found = tq.rescue(model, params, IMAGES, budget=0.2 * error(model, params), names=names)
    assert found.candidates == len(model.activations)


@pytest.mark.slow
def test_int4_weights_stay_legal():
    """Beside INT16 they are INT8 of 4 bits."""
    model = tq.prepare(network(), [tq.rule("middle_w", weight=tq.QSpec("i4", per_channel=True))])
    params = tq.calibrate(model, [IMAGES])
    found = tq.rescue(model, params, IMAGES, budget=0.9 * error(model, params), names=["relu0"])
    assert found.lifted == ("relu0",)
    spec = found.model.specs["middle_w"]
    assert (spec.dtype, spec.bits, spec.per_channel, spec.narrow_range) == (
        DType.INT8,
        4,
        True,
        True,
    )
    np.testing.assert_array_equal(
        found.params["qparams"]["middle_w"].scale, params["qparams"]["middle_w"].scale
    )
    assert tq.check_bit_exact(found.model, found.params, IMAGES[:8], against=BOTH)


def test_errors(model, params):
    with pytest.raises(ValueError, match="names has 'relu', which is not an INT8 activation"):
        tq.rescue(model, params, IMAGES, budget=0.1, names=["relu"])
    with pytest.raises(ValueError, match="names has 'middle_w', which is not an INT8 activation"):
        tq.rescue(model, params, IMAGES, budget=0.1, names=["middle_w"])
    with pytest.raises(ValueError, match="is nan at"):
        tq.rescue(model, params, IMAGES * np.float32("nan"), budget=0.1)


def test_what_is_printed(model, params):
    found = tq.rescue(model, params, IMAGES, budget=0.1 * error(model, params))
    text = str(found)
    assert f"{len(found.lifted)} of 5 tensors" in text
    assert all(f"\n  {name}" in text for name in found.lifted)
