"""Rounding and multipliers of RESCALE, against Python integers and Arm's reference model."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Graph, reference_model, rewrite
from tosajax.spec import RoundingMode

VALUES = np.array([-(1 << 20), -12345, -3, -2, -1, 0, 1, 2, 3, 12345, (1 << 20) - 1], np.int32)
MULTIPLIERS = (1 << 30, (1 << 31) - 1, (1 << 30) + 1, 0x7FFF8000, 0x7FFF7FFF, 12345, 1, 0)
SHIFTS = (22, 30, 31, 32, 33, 40, 61, 62)


def rescaling(multiplier: int, shift: int, **settings) -> Graph:
    """One RESCALE from int32 to int32."""
    b = Builder()
    x = b.input("x", DType.INT32, (1, len(VALUES)))
    return b.graph([small.rescale(b, x, (multiplier,), (shift,), DType.INT32, **settings)])


def scaled(value: int, multiplier: int, shift: int, double: bool) -> int:
    half = 1 << (shift - 1)
    if double and shift > 31:
        half += (1 << 30) if value >= 0 else -(1 << 30)
    return (value * multiplier + half) >> shift


def settings(graph: Graph, name: str = "rescaled") -> tuple[int, int]:
    (node,) = [n for n in graph.nodes if name in n.outputs]
    values = [graph.tensors[n].values for n in node.inputs[1:3]]
    return tuple(int(v.reshape(())) for v in values if v is not None)  # pyright: ignore


@pytest.mark.parametrize("mode", ["single", "double"])
@pytest.mark.parametrize("before", [RoundingMode.SINGLE_ROUND, RoundingMode.DOUBLE_ROUND])
def test_rounding(mode, before):
    graph = rewrite.rounding(rescaling((1 << 30) + 1, 33, rounding=before), mode)
    tosajax.validate(graph).raise_errors()
    values = np.concatenate([VALUES[:-4], [3, -3, 11, -11]]).astype(np.int32)  # by 1 / 8
    (found,) = tosajax.compile(graph)(values[None])
    want = [scaled(int(v), (1 << 30) + 1, 33, mode == "double") for v in values]
    np.testing.assert_array_equal(np.asarray(found)[0], want)
    np.testing.assert_array_equal(reference_model.run(graph, values[None])["rescaled"][0], want)


def test_rounding_changes_what_it_is_to():
    single = [scaled(v, (1 << 30) + 1, 33, False) for v in (3, -3, 11, -11)]
    double = [scaled(v, (1 << 30) + 1, 33, True) for v in (3, -3, 11, -11)]
    assert single != double


def test_rounding_of_chosen_nodes():
    graph = small.two_layers()
    for where, wanted in (
        ("^act1$", ["act1"]),
        ("second", ["out"]),  # in the location
        ("first;conv$", ["act1"]),
        (None, ["act1", "out"]),
    ):
        found = rewrite.rounding(graph, "double", where)
        modes = {n.outputs[0]: n.attributes.get("rounding_mode") for n in found.nodes}
        doubled = [n for n, m in modes.items() if m is RoundingMode.DOUBLE_ROUND]
        assert doubled == wanted
    assert rewrite.rounding(graph, "single") == graph


def test_rounding_in_subgraphs():
    b = Builder("main")
    x = b.input("x", DType.INT32, (1, 4))
    other = Builder("then")
    y = other.input("y", DType.INT32, (1, 4))
    body = other.graph([small.rescale(other, y, (1 << 30,), (31,), DType.INT32)])
    twin = dataclasses.replace(body, name="else")
    condition = b.input("c", DType.BOOL, (1,))
    result = b.op(
        "COND_IF", condition, x, shape=(1, 4), dtype=DType.INT32,
        then_graph=b.subgraph(body), else_graph=b.subgraph(twin),
    )  # fmt: skip
    graph = rewrite.rounding(b.graph([result]), "double")
    tosajax.validate(graph).raise_errors()
    modes = [
        n.attributes["rounding_mode"] for g in graph.walk() for n in g.nodes if n.op == "RESCALE"
    ]
    assert modes == [RoundingMode.DOUBLE_ROUND] * 2


def test_nested_subgraphs():
    """Rewrites of both kinds reach subgraphs."""
    inner = small.two_layers()
    middle = dataclasses.replace(inner, name="middle", subgraphs={"inner": inner})
    outer = dataclasses.replace(inner, name="outer", subgraphs={"middle": middle})
    for graph in (rewrite.rounding(outer, "double"), rewrite.to_float(outer)):
        assert [part.name for part in graph.walk()] == ["outer", "middle", "main"]
        first, *others = (part.nodes for part in graph.walk())
        assert all(nodes == first != inner.nodes for nodes in others)


def test_rounding_twice_takes_32_bits():
    narrow = rescaling(1 << 14, 15, scale32=False)
    with pytest.raises(ValueError, match=r"RESCALE 'rescaled': a 16-bit multiplier"):
        rewrite.rounding(narrow, "double")
    assert rewrite.rounding(narrow, "single") == narrow
    inexact = rewrite.rounding(narrow, "inexact")
    assert "EXT-INEXACTROUND" in (tosajax.validate(inexact).needs or ())
    b = Builder()
    x = b.input("x", DType.INT32, (1, 4))
    y = small.rescale(b, x, (1 << 14,), (15,), DType.INT32, scale32=False, name="narrow")
    graph = b.graph([small.rescale(b, y, (1 << 30,), (31,), DType.INT32, name="wide")])
    found = rewrite.rounding(graph, "double")  # where it can be
    assert [n.attributes["rounding_mode"].name for n in found.nodes if n.op == "RESCALE"] == [
        "SINGLE_ROUND",
        "DOUBLE_ROUND",
    ]


@pytest.mark.parametrize("name", ["rounding", "scale", "table_resolution", "bits", "to_float"])
def test_nothing_matches(name):
    arguments = {"rounding": ["single"], "scale": [16], "table_resolution": [4], "bits": [4]}
    with pytest.raises(ValueError, match="'nowhere'"):
        getattr(rewrite, name)(small.two_layers(), *arguments.get(name, []), where="nowhere")


def test_wrong_settings():
    graph = small.two_layers()
    with pytest.raises(ValueError, match="'up', expected one of single, double, inexact"):
        rewrite.rounding(graph, "up")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="8 bits, expected 16 or 32"):
        rewrite.scale(graph, 8)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("multiplier", MULTIPLIERS)
def test_scale_16_is_the_nearest(multiplier, shift):
    graph = rewrite.scale(rescaling(multiplier, shift, rounding=RoundingMode.DOUBLE_ROUND), 16)
    tosajax.validate(graph).raise_errors()
    found, by = settings(graph)
    factor = Fraction(multiplier, 1 << shift)
    assert 0 <= found < 1 << 15
    assert 2 <= by <= 62
    # Nearest of what the shift allows, and a larger shift has no room or does not exist.
    assert found == (2 * factor * (1 << by) + 1) // 2
    assert found >= 1 << 14 or by == 62 or multiplier == 0


@pytest.mark.parametrize("shift", [2, 14, 15, 30, 46, 47, 62])
@pytest.mark.parametrize("multiplier", [1 << 14, (1 << 15) - 1, 3, 1, 0])
def test_scale_32_is_exact(multiplier, shift):
    graph = rewrite.scale(rescaling(multiplier, shift, scale32=False), 32)
    tosajax.validate(graph).raise_errors()
    found, by = settings(graph)
    assert Fraction(found, 1 << by) == Fraction(multiplier, 1 << shift)
    assert found >= 1 << 30 or by == 62 or multiplier == 0
    assert rewrite.scale(graph, 32) == graph


def test_scale_of_channels_on_arms_model():
    graph, x = small.two_layers(rounding=RoundingMode.DOUBLE_ROUND), small.images(4)
    narrow = rewrite.scale(graph, 16, "act1")
    tosajax.validate(narrow).raise_errors()
    (node,) = [n for n in narrow.nodes if "act1" in n.outputs]
    assert node.attributes["rounding_mode"] is RoundingMode.SINGLE_ROUND
    (found,) = tosajax.compile(narrow, batch=4)(x)
    want = reference_model.run(narrow, x[:, None])["out"]
    np.testing.assert_array_equal(np.asarray(found)[:, None], want)
    unused = set(graph.tensors) - set(narrow.tensors)
    assert len(unused) == 2  # the multiplier and the shift that nothing reads


def test_scale_that_cannot_be():
    with pytest.raises(ValueError, match="too large for 16 bits"):
        rewrite.scale(rescaling((1 << 31) - 1, 17), 16)
    assert settings(rewrite.scale(rescaling(1 << 30, 18), 16)) == (1 << 14, 2)
    b = Builder()
    x = b.input("x", DType.INT48, (1, 4))
    wide = b.graph([small.rescale(b, x, (1 << 14,), (15,), DType.INT32, scale32=False)])
    with pytest.raises(ValueError, match="int48"):
        rewrite.scale(wide, 32)
    b = Builder()
    x, m, s, zero = (
        b.input("x", DType.INT32, (1, 4)), b.input("m", DType.INT32, (1,)),
        b.const([31], DType.INT8), b.const([0], DType.INT32),
    )  # fmt: skip
    y = b.op(
        "RESCALE", x, m, s, zero, zero, dtype=DType.INT32, scale32=True, per_channel=False,
        rounding_mode=RoundingMode.SINGLE_ROUND, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip
    with pytest.raises(ValueError, match="'m' is not a constant"):
        rewrite.scale(b.graph([y]), 16)
