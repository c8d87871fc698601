"""Trained models and frozen graphs have the same integers in every tensor, in every program.

`python tests/quant/bit_exact_report.py` compares all 540 images in all settings; here those with
INT48 tensors, which take Arm's model longer, have fewer.
"""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from quant.bit_exact_report import PROGRAMS, SETTINGS, Compared, Setting, compare, models

from tosajax import DType, reference_model

pytestmark = pytest.mark.skipif(
    not reference_model.is_installed(), reason="tosa-tools is not installed"
)
IMAGES = {"cnn W8A16": 24}
QUICK = ("cnn W8A8", "cnn W2A2")
DTYPES = {"i4": DType.INT4, "i8": DType.INT8, "i16": DType.INT16}


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SETTINGS]
)
def test_every_tensor_is_the_same(name):
    setting, images = SETTINGS[name], IMAGES.get(name, 540)
    compared = compare(setting, images)
    assert [str(c) for c in compared.comparisons if c.mismatches] == []
    check_that_all_was_compared(compared, images)
    check_integers(setting, compared)


def check_that_all_was_compared(compared: Compared, images: int) -> None:
    graph = compared.frozen
    expected = {
        name: images * math.prod(tensor.shape or ())
        for name, tensor in graph.tensors.items()
        if tensor.values is None and name not in graph.inputs
    }
    for program in PROGRAMS:
        found = {c.tensor: c.elements for c in compared.comparisons if c.against == program}
        assert found == expected


def check_integers(setting: Setting, compared: Compared) -> None:
    """Integers have the types and the bits of the setting, and take several values."""
    frozen, values = compared.frozen, compared.values
    assert all(len(np.unique(values[name])) > 1 for name in (*frozen.inputs, *frozen.outputs))
    integers = [n for n in values if frozen.tensors[n].dtype is DTYPES[setting.act]]
    clamped = [n for n in integers if not n.endswith(("/rescaled", "/looked_up"))]
    low, high = -(2 ** (setting.act_bits - 1)), 2 ** (setting.act_bits - 1) - 1
    for name in clamped:
        assert low <= values[name].min()
        assert values[name].max() <= high
    weights = [node.inputs[1] for node in frozen.nodes if node.op.endswith("CONV2D")]
    weights = [name for name in weights if not name.endswith("/ones")]  # those of a mean
    limit = 2 ** (setting.weight_bits - 1) - 1
    for tensor in (frozen.tensors[name] for name in weights):
        assert tensor.dtype is DTYPES[setting.weight]
        assert tensor.values is not None
        assert np.abs(tensor.values).max() == limit
    wide = DType.INT48 if setting.act == "i16" else DType.INT32
    assert wide in {frozen.tensors[name].dtype for name in values}


def test_parameters_are_not_those_of_calibration():
    """Calibrated scales are special: the largest weight of a channel is at the end of the range."""
    shared = models(SETTINGS["cnn W8A8"])
    start, end = shared.with_bits(np.float32(8), np.float32(8)), shared.trained(8, 8)
    for group in ("values", "qparams"):
        moved = jax.tree.map(lambda a, b: bool((a != b).any()), start[group], end[group])
        if group == "qparams":
            moved = {name: qparams.scale for name, qparams in moved.items()}
        assert all(jax.tree.leaves(moved)), moved
