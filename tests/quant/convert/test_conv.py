"""Convolutions: sums of int32 or int48, rescaled once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from oracle import conv_oracle
from quant.convert.helpers import (
    SCALE16,
    SCALE32,
    VARIANTS,
    Trial,
    against,
    assert_constant,
    assert_rounded,
    clamp,
    constant,
    floats,
    legal,
    operators,
    uniform,
    zeros,
)

from tosajax import Builder, DType, Graph, Tensor, UnsupportedError
from tosajax.quant import QSpec, calibrate, prepare, rule

FLAT = {"pad": (1, 0, 1, 1), "stride": (2, 1), "dilation": (1, 2)}
DEEP = {"pad": (0, 1, 1, 0, 0, 0), "stride": (1, 1, 1), "dilation": (1, 1, 1)}
TRANSPOSED = {"out_pad": (0, 1, -1, 0), "stride": (2, 1)}
IMAGE, VOLUME = (1, 5, 5, 3), (1, 2, 2, 3, 2)


class Case(NamedTuple):
    """A convolution: shape and channel axes of its weights, its attributes, and its definition."""

    op: str
    input: str
    weight: tuple[int, ...]
    channel_axes: tuple[int, ...]
    attributes: dict[str, Any]
    definition: Callable[..., np.ndarray]

    @property
    def channels(self) -> int:
        return int(np.prod([self.weight[axis] for axis in self.channel_axes]))


CASES = {
    "conv2d": Case("CONV2D", "x", (4, 2, 2, 3), (0,), FLAT, conv_oracle.conv),
    "conv3d": Case("CONV3D", "v", (3, 2, 2, 1, 2), (0,), DEEP, conv_oracle.conv),
    "depthwise": Case("DEPTHWISE_CONV2D", "x", (2, 2, 3, 2), (2, 3), FLAT, conv_oracle.depthwise),
    "transpose": Case(
        "TRANSPOSE_CONV2D", "x", (2, 3, 2, 3), (0,), TRANSPOSED, conv_oracle.transpose
    ),
    "relu6": Case("CONV2D", "x", (4, 2, 2, 3), (0,), FLAT, conv_oracle.conv),
}  # fmt: skip
EXAMPLES = uniform(0, *IMAGE), uniform(1, *VOLUME, low=-0.5, high=2)
PER_TENSOR = QSpec("i8", narrow_range=True)
KINDS = {
    **VARIANTS,
    "i8-per-tensor": (rule(".*", weight=PER_TENSOR),),
    "i8-asymmetric-weights": (rule(".*", weight=QSpec("i8", symmetric=False)),),
    "i8xi4": (rule(".*", weight=QSpec("i4", per_channel=True)),),
    "i8xi4-per-tensor": (rule(".*", weight=QSpec("i4")),),
    "i16xi8-of-4-bits": (rule(".*", act=QSpec("i16"), weight=QSpec(bits=4, per_channel=True)),),
}  # fmt: skip
CHOSEN = {
    "i8": list(CASES),
    "i8-symmetric": ["relu6"],
    "i8-per-tensor": ["conv2d", "depthwise"],
    "i8-asymmetric-weights": ["conv2d", "transpose"],
    "i8xi4": list(CASES)[:4],
    "i8xi4-per-tensor": ["relu6"],
    "i16": list(CASES),
    "i16xi8-of-4-bits": ["conv2d"],
}


def weights(case: Case, seed: int = 0) -> np.ndarray:
    """Weights whose sizes differ from channel to channel."""
    values = uniform(seed, *case.weight, low=-1, high=0.7)
    shape = [n if axis in case.channel_axes else 1 for axis, n in enumerate(case.weight)]
    return values * np.linspace(0.1, 2, case.channels, dtype=np.float32).reshape(shape)


def add(b: Builder, name: str, x: Tensor, **attributes: Any) -> Tensor:
    case = CASES[name]
    bias = np.linspace(-1, 2, case.channels)
    return b.op(
        case.op,
        x,
        constant(b, weights(case), f"{name}/w"),
        constant(b, bias, f"{name}/b"),
        *zeros(b),
        acc_type=DType.FP32,
        name=f"{name}/before" if name == "relu6" else name,
        **case.attributes,
    )


def graph(cases: list[str]) -> Graph:
    b = Builder()
    operands = {"x": floats(b, "x", *IMAGE), "v": floats(b, "v", *VOLUME)}
    outputs = [add(b, name, operands[CASES[name].input]) for name in cases]
    if "relu6" in cases:
        at = cases.index("relu6")
        outputs[at] = clamp(b, outputs[at], 0, 1.5, "relu6")
    return legal(b.graph(outputs))


@functools.cache
def trial_of(kind: str) -> Trial:
    return Trial(graph(CHOSEN[kind]), *EXAMPLES, rules=KINDS[kind], against=against(kind))


SOME = [(kind, name) for kind, cases in CHOSEN.items() for name in cases]


@pytest.mark.parametrize("kind", CHOSEN)
def test_training_computes_what_ships(kind):
    assert trial_of(kind).report, str(trial_of(kind).report)


@pytest.mark.parametrize(("kind", "name"), SOME)
def test_values(kind, name):
    trial, case = trial_of(kind), CASES[name]
    bias = trial.exact(f"{name}/b")
    expected = case.definition(trial[case.input], trial[f"{name}/w"], bias, **case.attributes)
    if name == "relu6":
        expected = np.clip(expected, 0, 1.5)
    # A bias is rounded to a multiple of input times weight.
    unit = trial.step(case.input) * trial.step(f"{name}/w").reshape(-1)
    relative = SCALE16 if trial.dtype(case.input) is DType.INT16 else SCALE32
    extra = 0.5 * unit + SCALE32 * np.abs(bias)
    assert_rounded(trial, name, expected, extra=extra, relative=relative)


@pytest.mark.parametrize(("kind", "name"), SOME)
def test_weights(kind, name):
    """Each channel, or all of them, fills the range up to one end."""
    trial, case, label = trial_of(kind), CASES[name], f"{name}/w"
    assert_constant(trial, label)
    spec = trial.model.specs[label]
    shape = [n if axis in case.channel_axes else 1 for axis, n in enumerate(case.weight)]
    assert trial.step(label).size == (case.channels if spec.per_channel else 1)
    if spec.per_channel:
        assert trial.step(label).shape == tuple(shape)
    axes = tuple(a for a, n in enumerate(trial.step(label).shape or [1] * 5) if n == 1)
    axes = tuple(axis for axis in axes if axis < len(case.weight))
    high = trial.grid(label)[1]
    levels = np.abs(trial[label] / trial.step(label))
    assert (levels.max(axis=axes) >= high).all()
    assert trial.dtype(label) is (DType.INT4 if "xi4" in kind else DType.INT8)


def test_a_convolution_takes_one_rescale():
    frozen = trial_of("i8").frozen
    found = operators(frozen)
    assert found.count("RESCALE") == len(CASES)
    assert sorted(set(found)) == sorted({"RESCALE", *(case.op for case in CASES.values())})
    rescales = {n.outputs[0]: n for n in frozen.nodes if n.op == "RESCALE"}
    assert all(node.attributes["per_channel"] for node in rescales.values())
    assert all(node.attributes["scale32"] for node in rescales.values())
    of_int16 = [n for n in trial_of("i16").frozen.nodes if n.op == "RESCALE"]
    assert not any(node.attributes["scale32"] for node in of_int16)


def pointwise(
    b: Builder, x: Tensor, w: Tensor, bias: Tensor | None = None, name: str = "y"
) -> Tensor:
    bias = constant(b, [0.5, -0.25], f"{name}/b") if bias is None else bias
    attributes = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    return b.op("CONV2D", x, w, bias, *zeros(b), acc_type=DType.FP32, name=name, **attributes)


WEIGHT = uniform(3, 2, 1, 1, 3, low=-1, high=2)


def sum_of(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x @ w.reshape(2, 3).T + np.array([0.5, -0.25])


def test_weights_that_are_computed():
    """They have a zero point, as all activations."""
    b = Builder()
    y = pointwise(b, floats(b, "x", *IMAGE), floats(b, "w", 2, 1, 1, 3))
    trial = Trial(legal(b.graph([y])), EXAMPLES[0], WEIGHT)
    assert trial.report, str(trial.report)
    assert trial.zero_point("w") != 0
    unit = trial.step("x") * trial.step("w")
    assert_rounded(trial, "y", sum_of(trial["x"], trial["w"]), extra=0.5 * unit + SCALE32)


def test_weights_that_two_convolutions_read():
    b = Builder()
    w = constant(b, WEIGHT, "w")
    first = pointwise(b, floats(b, "x", *IMAGE), w)
    second = pointwise(b, floats(b, "z", *IMAGE), w, name="second")
    trial = Trial(b.graph([first, second]), EXAMPLES[0], 9 * EXAMPLES[0])
    assert trial.report, str(trial.report)
    for source, name in (("x", "y"), ("z", "second")):
        extra = 0.5 * trial.step(source) * trial.step("w").reshape(-1) + SCALE32
        assert_rounded(trial, name, sum_of(trial[source], trial["w"]), extra=extra)


def test_weights_that_another_operator_reads():
    b = Builder()
    w = constant(b, WEIGHT, "w")
    y = pointwise(b, floats(b, "x", *IMAGE), w)
    total = b.op("ADD", w, floats(b, "z", 2, 1, 1, 3), name="total")
    trial = Trial(legal(b.graph([y, total])), EXAMPLES[0], WEIGHT)
    assert trial.report, str(trial.report)
    assert_rounded(trial, "total", trial["w"] + trial["z"], extra=trial.step("total"))


def test_one_bias_for_all_channels():
    b = Builder()
    y = pointwise(b, floats(b, "x", *IMAGE), constant(b, WEIGHT, "w"), constant(b, [0.5], "y/b"))
    trial = Trial(legal(b.graph([y])), EXAMPLES[0])
    expected = trial["x"] @ trial["w"].reshape(2, 3).T + 0.5
    extra = 0.5 * trial.step("x") * trial.step("w").reshape(-1)
    assert_rounded(trial, "y", expected, extra=extra)


@pytest.mark.parametrize(("kind", "dtype"), [("i8", DType.INT32), ("i16", DType.INT48)])
def test_scales_of_weights_grow_for_a_bias_beyond_its_range(kind, dtype):
    """The bias then takes nearly all that products leave of the accumulator."""
    b = Builder()
    y = pointwise(b, floats(b, "x", *IMAGE), constant(b, 1e-6 * WEIGHT), constant(b, [1e4, -1e4]))
    model = prepare(b.graph([y]), VARIANTS[kind])
    bias = model.freeze(calibrate(model, [EXAMPLES[0]])).tensors["y/bias"]
    assert bias.dtype is dtype
    assert bias.values is not None
    share = np.asarray(bias.values, np.float64) / 2.0 ** (dtype.bits - 1)
    np.testing.assert_allclose(share, [1, -1], rtol=2e-3)
    assert (abs(share) < 1).all()


def test_a_bias_that_is_computed_is_refused():
    b = Builder()
    y = pointwise(b, floats(b, "x", *IMAGE), constant(b, WEIGHT), floats(b, "c", 2))
    with pytest.raises(UnsupportedError, match="CONV2D 'y': bias 'c' is not constant"):
        prepare(legal(b.graph([y])))


def test_int4_weights_of_int16_are_refused():
    b = Builder()
    y = pointwise(b, floats(b, "x", *IMAGE), constant(b, WEIGHT))
    with pytest.raises(UnsupportedError, match=r"CONV2D 'y': INT4 weights of INT16 .* not a type"):
        prepare(b.graph([y]), [rule(".*", weight=QSpec("i4"), act=QSpec("i16"))])


@pytest.mark.parametrize("pattern", ["w", ".*"])
def test_int16_weights_are_refused(pattern):
    b = Builder()
    y = pointwise(b, floats(b, "x", *IMAGE), floats(b, "w", 2, 1, 1, 3))
    with pytest.raises(UnsupportedError, match="CONV2D 'y'"):
        prepare(b.graph([y]), [rule(pattern, act=QSpec("i16"))])
