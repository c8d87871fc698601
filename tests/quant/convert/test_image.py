"""RESIZE: nearest moves integers, bilinear rounds sums of them once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from oracle import image_oracle
from quant.convert.helpers import (
    SCALE16,
    SCALE32,
    VARIANTS,
    Trial,
    against,
    assert_rounded,
    floats,
    legal,
    operators,
    uniform,
)

from tosajax import Builder, DType, Graph, Tensor
from tosajax.spec import ResizeMode

SHAPE = (1, 4, 3, 2)


class Size(NamedTuple):
    """How many output samples there are to an input sample, and where the first one is."""

    scale: tuple[int, int, int, int]
    offset: tuple[int, int]
    border: tuple[int, int]


# Half-pixel centres, corners that stay, a third of the height, and no change in one direction.
SIZES = {
    "double": Size((4, 2, 4, 2), (-1, -1), (1, 1)),
    "corners": Size((6, 3, 10, 4), (0, 0), (0, 0)),
    "smaller": Size((2, 6, 1, 1), (0, 0), (0, 0)),
}  # fmt: skip
MODES = {"nearest": ResizeMode.NEAREST_NEIGHBOR, "bilinear": ResizeMode.BILINEAR}


def resize(b: Builder, x: Tensor, size: Size, mode: ResizeMode, name: str) -> Tensor:
    return b.op("RESIZE", x, *map(b.const_shape, size), mode=mode, name=name)


def graph() -> Graph:
    b = Builder()
    x = floats(b, "x", *SHAPE)
    outputs = [
        resize(b, x, size, mode, f"{kind}/{name}")
        for kind, mode in MODES.items()
        for name, size in SIZES.items()
    ]
    return legal(b.graph(outputs))


@pytest.fixture(scope="module", params=VARIANTS)
def trial(request) -> Trial:
    rules = VARIANTS[request.param]
    return Trial(graph(), uniform(0, *SHAPE), rules=rules, against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


@pytest.mark.parametrize("name", SIZES)
def test_nearest_moves(trial, name):
    expected = image_oracle.resize(trial["x"], *SIZES[name], bilinear=False)
    np.testing.assert_array_equal(trial[f"nearest/{name}"], expected)


@pytest.mark.parametrize("name", SIZES)
def test_bilinear_rounds_once(trial, name):
    expected = image_oracle.resize(trial["x"], *SIZES[name], bilinear=True)
    relative = SCALE16 if trial.dtype("x") is DType.INT16 else SCALE32
    # The zero point is scaled with the rest.
    most = np.abs(trial.ends("x")).max() + abs(trial.zero_point("x")) * trial.step("x")
    assert_rounded(trial, f"bilinear/{name}", expected, extra=relative * most)


def test_the_scale_is_that_of_the_input(trial):
    names = [f"{kind}/{name}" for kind in MODES for name in SIZES]
    assert {trial.model.owners[name] for name in names} == {"x"}
    assert operators(trial.frozen).count("RESCALE") == len(SIZES)
