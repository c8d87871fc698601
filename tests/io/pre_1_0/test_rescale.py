"""Upgrades of RESCALE: what stands for it, and what stays illegal; its results are elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from old_graphs import Old, legal
from upgraded import (
    changed,
    constant,
    notes,
    only_node,
    ops_of,
    refused,
    upgraded,
)

import tosajax
from tosajax import DType, FormatError, Source
from tosajax.io.pre_1_0.model import OldGraph
from tosajax.io.pre_1_0.upgrade import upgrade
from tosajax.spec import RoundingMode


def test_rescale():
    graph = upgraded(legal("RESCALE", ("INT8", "INT8")))
    node = only_node(graph)
    assert [constant(graph, name) for name in node.inputs[1:]] == [
        (DType.INT32, [1 << 30, 1500000000, 7]),
        (DType.INT8, [31, 40, 62]),
        (DType.INT8, [3]),
        (DType.INT8, [-7]),
    ]
    assert node.attributes == {
        "scale32": True,
        "rounding_mode": RoundingMode.DOUBLE_ROUND,
        "per_channel": True,
        "input_unsigned": False,
        "output_unsigned": False,
    }


def test_multiplier_of_16_bits():
    graph = upgraded(legal("RESCALE", ("INT48", "INT8")))
    node = only_node(graph)
    assert constant(graph, node.inputs[1]) == (DType.INT16, [1 << 14, 3, 32767])
    assert node.attributes["rounding_mode"] is RoundingMode.SINGLE_ROUND
    old = changed(legal("RESCALE", ("INT48", "INT8")), multiplier=(32768,) * 3)
    refused(old, FormatError, r"multiplier: values in \[32768, 32768\] do not fit INT16")


def rescaled(source: str, target: str, rank: int = 2, **attributes: Any) -> OldGraph:
    b = Old()
    shape = (2, 3)[:rank]
    scale = {"multiplier": (1 << 30,), "shift": (30,), "scale32": True}
    x = b.input(source, shape)
    return b.graph(b.op("RESCALE", [x], target, shape, **scale | attributes))


@pytest.mark.parametrize("side", ["input", "output"])
def test_flag_and_type_say_unsigned(side):
    """Files of 0.60 have the type alone, later ones may have the flag alone."""
    types = ("UINT8", "INT8") if side == "input" else ("INT8", "UINT8")
    by_type = upgraded(rescaled(*types, **{f"{side}_zp": 200}))
    flag = {f"{side}_zp": 200, f"{side}_unsigned": True}
    by_flag = upgraded(rescaled("INT8", "INT8", **flag))
    assert only_node(by_type) == only_node(by_flag)
    assert only_node(by_type).attributes[f"{side}_unsigned"] is True
    zero_point = only_node(by_type).inputs[3 if side == "input" else 4]
    assert constant(by_type, zero_point) == (DType.INT8, [200 - 256])
    assert upgraded(rescaled(*types)).source.rewrites[-1].place.startswith(side)


@pytest.mark.parametrize(
    ("types", "attributes", "count"),
    [
        (("UINT8", "UINT8"), {}, 2),
        (("UINT8", "UINT8"), {"scale32": False, "multiplier": (1 << 14,)}, 2),
        (("UINT8", "INT32"), {}, 2),
        (("INT32", "UINT8"), {}, 2),
        (("UINT8", "UINT16"), {}, 2),
        (("UINT8", "UINT16"), {"output_zp": 1 << 15}, 2),
        (("UINT16", "UINT8"), {}, 2),
        (("UINT16", "UINT16"), {"input_zp": 1 << 15}, 2),
        (("UINT16", "UINT16"), {"output_zp": 1 << 15}, 2),
        (("UINT8", "INT8"), {}, 1),
        (("UINT16", "INT16"), {}, 1),
        (("INT16", "UINT16"), {}, 1),
    ],
)
def test_what_stands_for_an_unsigned_rescale(types, attributes, count):
    graph = upgraded(rescaled(*types, **attributes))
    assert ops_of(graph) == ["RESCALE"] * count
    assert [note.differs for note in notes(graph)] == [""] * (count > 1)


def test_longest_way_to_unsigned_integers():
    graph = upgraded(rescaled("UINT16", "UINT16"))
    assert ops_of(graph) == [
        *("RESCALE", "CAST", "ADD"),
        *("RESCALE", "MAXIMUM", "MINIMUM", "ADD", "CAST", "RESCALE"),
    ]
    assert [note.place for note in notes(graph)] == ["RESCALE 'y1'"]


@pytest.mark.parametrize("unsigned", [False, True])
def test_rescale_of_floats_stays_illegal(unsigned):
    flags = {"input_unsigned": unsigned, "output_unsigned": unsigned}
    graph = upgrade(rescaled("FP32", "INT8", **flags), Source())
    assert tosajax.validate(graph).errors
    graph = upgrade(rescaled("INT8", "FP32", **flags), Source())
    assert tosajax.validate(graph).errors


@pytest.mark.parametrize("types", [("UINT16", "INT32"), ("INT32", "UINT16")])
def test_rescale_that_is_illegal_in_0_80_stays_illegal(types):
    graph = upgrade(rescaled(*types), Source())
    assert ops_of(graph) == ["RESCALE"]
    assert tosajax.validate(graph).errors


@pytest.mark.parametrize("side", ["input", "output"])
def test_unsigned_32_bits_stay_illegal(side):
    flag = {f"{side}_unsigned": True}
    graph = upgrade(rescaled("INT32", "INT32", **flag), Source())
    assert ops_of(graph) == ["RESCALE"]
    assert tosajax.validate(graph).errors


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("types", [("UINT16", "UINT16"), ("INT32", "UINT8"), ("UINT8", "INT32")])
def test_unsigned_rescale_of_any_rank(types, rank):
    upgraded(rescaled(*types, rank=rank))


@pytest.mark.parametrize(
    ("types", "name", "value", "limits"),
    [
        (("UINT8", "INT8"), "input_zp", -1, "0, 255"),
        (("UINT8", "INT8"), "input_zp", 256, "0, 255"),
        (("INT8", "UINT8"), "output_zp", 256, "0, 255"),
        (("INT8", "INT8"), "output_zp", 128, "-128, 127"),
        (("UINT16", "INT8"), "input_zp", 65536, "0, 65535"),
    ],
)
def test_zero_point_beyond_the_type(types, name, value, limits):
    old = rescaled(*types, **{name: value})
    refused(old, FormatError, rf"{name} is {value}, expected one in \[{limits}\]")


def test_zero_point_of_uint16_that_0_80_forbids_stays_illegal():
    graph = upgrade(rescaled("UINT16", "INT8", input_zp=7), Source())
    assert tosajax.validate(graph).errors


def test_zero_points_of_numpy():
    """Arithmetic with them would wrap."""
    plain = upgraded(rescaled("UINT8", "UINT8", input_zp=3, output_zp=250))
    zero_points: dict[str, Any] = {"input_zp": np.uint8(3), "output_zp": np.uint8(250)}
    assert upgraded(rescaled("UINT8", "UINT8", **zero_points)) == plain


def test_scale_as_tensors():
    b = Old()
    x = b.input("INT32", (2, 3))
    scale = b.input("INT32", (1,), "multiplier"), b.input("INT8", (1,), "shift")
    graph = upgraded(b.graph(b.op("RESCALE", [x, *scale], "INT8", (2, 3), scale32=True)))
    assert only_node(graph).inputs[1:3] == scale
