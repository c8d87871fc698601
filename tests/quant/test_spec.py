"""Specifications and rules: contradictions are refused, later rules win."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax.dtypes import DType
from tosajax.quant import QSpec, rule
from tosajax.quant.spec import DEFAULT_ACT, DEFAULT_WEIGHT, act_spec, weight_spec
from tosajax.quant.storages import Float8, Integers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "i7"}, "'i7'"),
        ({"dtype": DType.INT32}, "INT32"),
        ({"dtype": Integers(DType.INT32)}, "INT32"),
        ({"dtype": np.int8}, "int8"),
        ({"dtype": None}, "None"),
        ({"bits": 1}, "1 bits of INT8, expected 2 to 8"),
        ({"dtype": "i4", "bits": 5}, "5 bits of INT4"),
        ({"dtype": "i16", "symmetric": False}, "no zero point for INT16"),
        ({"per_channel": True, "symmetric": False}, "no zero point for values of a scale per"),
    ],
)
def test_contradictions(arguments, message):
    with pytest.raises(ValueError, match=message):
        QSpec(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": QSpec("i16")}, "weights of INT16"),
        ({"act": QSpec("i4")}, "activations of INT4"),
        ({"act": QSpec(per_channel=True)}, "activations of a scale per channel"),
    ],
)
def test_rules_that_tosa_cannot_express(arguments, message):
    with pytest.raises(ValueError, match=message):
        rule(".*", **arguments)


def test_a_broken_pattern_is_refused():
    with pytest.raises(Exception, match="unterminated"):
        rule("[", weight=QSpec())


@pytest.mark.parametrize(
    "storage", [*map(Integers, (DType.INT4, DType.INT8, DType.INT16)), Float8(DType.FP8E4M3)]
)
def test_our_own_storages_are_their_types(storage):
    assert QSpec(storage) == QSpec(storage.dtype)


def test_int4_is_narrow():
    assert QSpec("i4").narrow_range
    assert QSpec("i4").bits == 4


def test_the_last_rule_that_speaks_counts():
    wide, narrow, act = QSpec(bits=8), QSpec("i4"), QSpec("i16")
    rules = [rule(".*", weight=wide, act=act), rule("head", weight=narrow)]
    assert weight_spec(rules, ["body/conv"]) == wide
    assert weight_spec(rules, ["conv", "x/head/y"]) == narrow
    assert act_spec(rules, ["head"]) == act
    assert weight_spec([], ["any"]) == DEFAULT_WEIGHT
    assert act_spec([], ["any"]) == DEFAULT_ACT
