"""Data layout: integers move as they are; CONCAT and PAD give them a scale in common."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from oracle import data_layout_oracle as oracle
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    assert_rounded,
    constant,
    floats,
    legal,
    operators,
    uniform,
    zeros,
)

from tosajax import Builder, DType, Graph, Tensor
from tosajax.quant import calibrate, prepare

SHAPE = (2, 3, 4)


def shape(b: Builder, *sizes: int) -> Tensor:
    return b.const_shape(sizes)


MOVES: dict[str, tuple[Callable[..., Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "reshape": (
        lambda b, x, n: b.op("RESHAPE", x, shape(b, 4, 6), name=n),
        lambda x: oracle.reshape(x, (4, 6)),
    ),
    "reverse": (
        lambda b, x, n: b.op("REVERSE", x, axis=1, name=n),
        lambda x: oracle.reverse(x, 1),
    ),
    "slice": (
        lambda b, x, n: b.op("SLICE", x, shape(b, 0, 1, 1), shape(b, 2, 2, 3), name=n),
        lambda x: oracle.slice(x, (0, 1, 1), (2, 2, 3)),
    ),
    "tile": (
        lambda b, x, n: b.op("TILE", x, shape(b, 1, 2, 3), name=n),
        lambda x: oracle.tile(x, (1, 2, 3)),
    ),
    "transpose": (
        lambda b, x, n: b.op("TRANSPOSE", x, perms=(2, 0, 1), name=n),
        lambda x: oracle.transpose(x, (2, 0, 1)),
    ),
}
PADDING = (0, 1, 2, 0, 0, 0)
PADS = {"pad": 0.0, "pad-inside": -1.3, "pad-end": 1.0}


def graph() -> Graph:
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", 2, 1, 4)
    outputs = [node(b, x, name) for name, (node, _) in MOVES.items()]
    for name, value in PADS.items():
        outputs.append(b.op("PAD", x, shape(b, *PADDING), constant(b, [value]), name=name))
    moved = b.op("REVERSE", x, axis=2, name="moved")
    fixed = constant(b, np.linspace(-4, 3, 8).reshape(2, 1, 4), "fixed")
    outputs += [
        b.op("CONCAT", x, y, fixed, x, axis=1, name="different"),
        b.op("CONCAT", x, moved, x, axis=0, name="same"),
    ]
    return legal(b.graph(outputs))


@pytest.fixture(scope="module", params=VARIANTS)
def trial(request) -> Trial:
    examples = uniform(0, *SHAPE), uniform(1, 2, 1, 4, low=-0.5, high=7)
    return Trial(graph(), *examples, rules=VARIANTS[request.param], against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


@pytest.mark.parametrize("name", MOVES)
def test_integers_move(trial, name):
    np.testing.assert_array_equal(trial[name], MOVES[name][1](trial["x"]))
    assert trial.model.owners[name] == "x"


@pytest.mark.parametrize("name", PADS)
def test_what_is_padded_with_is_rounded(trial, name):
    """What is inside moves, and 0 is exact."""
    assert_rounded(trial, name, oracle.pad(trial["x"], PADDING, PADS[name]))
    np.testing.assert_array_equal(trial[name][:2, 2:], trial["x"])
    if name == "pad":
        assert not trial[name][2].any()


def test_padding_may_be_beyond_the_range_of_what_is_padded():
    b = Builder()
    x = floats(b, "x", *SHAPE)
    graph = b.graph([b.op("PAD", x, shape(b, *PADDING), constant(b, [50.0]), name="y")])
    trial = Trial(legal(graph), uniform(0, *SHAPE))
    expected = oracle.pad(trial["x"], PADDING, 50.0)
    assert np.abs(trial["y"] - expected).max() <= 0.5 * trial.step("y")


def test_padding_that_is_computed_is_rescaled():
    b = Builder()
    x, value = floats(b, "x", *SHAPE), floats(b, "value", 1)
    graph = b.graph([b.op("PAD", x, shape(b, *PADDING), value, name="y")])
    model = prepare(legal(graph))
    params = calibrate(model, [(uniform(0, *SHAPE), np.array([5], np.float32))])
    apply = jax.jit(model.apply)
    (found,) = apply(params, uniform(1, *SHAPE), np.array([0.5], np.float32))
    assert np.abs(np.asarray(found)[2] - 0.5).max() < 0.1


def test_one_scale_is_made_for_tensors_of_different_ones(trial):
    parts = [trial[name] for name in ("x", "y", "fixed", "x")]
    assert_rounded(trial, "different", oracle.concat(parts, 1))
    assert trial.model.owners["different"] == "different"


def test_tensors_of_one_scale_are_joined_as_they_are(trial):
    expected = oracle.concat([trial["x"], trial["moved"], trial["x"]], 0)
    np.testing.assert_array_equal(trial["same"], expected)
    assert trial.model.owners["same"] == "x"


def test_only_different_scales_take_a_rescale(trial):
    found = operators(trial.frozen)
    assert found.count("RESCALE") == 4
    assert found.count("CONCAT") == 2


def test_what_is_moved_has_no_scale_of_its_own():
    """A chain of moves between two convolutions costs nothing."""
    b = Builder()
    x = floats(b, "x", 1, 2, 3, 4)
    for name in ("first", "second"):
        w = constant(b, uniform(3, 4, 1, 1, 4), f"{name}/w")
        attributes = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
        bias = constant(b, np.zeros(4), f"{name}/b")
        x = b.op("CONV2D", x, w, bias, *zeros(b), acc_type=DType.FP32, name=name, **attributes)
        x = b.op("TRANSPOSE", x, perms=(0, 2, 1, 3))
        x = b.op("REVERSE", x, axis=3)
    trial = Trial(b.graph([x]), uniform(0, 1, 2, 3, 4))
    assert operators(trial.frozen) == ["CONV2D", "RESCALE", "TRANSPOSE", "REVERSE"] * 2
    assert set(trial.model.activations) == {"x", "first", "second"}
