"""Limits of Ethos-U: at each end, and beside Vela where it is installed."""

from __future__ import annotations

import npu_cases
import pytest

import tosajax
from tosajax import UnsupportedError, spec, vela
from tosajax.spec.npu import FAMILIES, NPUS
from tosajax.spec.target import Target

# Of all cases, those that Ethos-U55 and Ethos-U65 do not run, by rule.
REFUSED = {
    "sums": ["conv2d-i16-alone", "resize-bilinear-shift", "resize-bilinear-alone"],
    "stride": [
        "conv2d-stride4", "depthwise-stride4", "tconv-12", "tconv-33", "avg-stride4", "max-stride4",
    ],
    "kernel": [
        "conv2d-kernel65", "conv2d-kernel-4160", "depthwise-kernel65", "conv3d-z2", "avg-pad-9",
        "avg-257", "max-257",
    ],
    "size": [
        "conv2d-channels+1", "avg-batch", "argmax-128", "argmax-batch", "matmul-wide+1",
        "transpose-i32-batch",
    ],
    "weights": ["conv2d-sum+"],
    "bias": ["conv2d-bias41"],
    "constant": [
        "conv2d-dynamic-weight", "conv2d-dynamic-bias", "conv3d-dynamic-weight",
        "tconv-dynamic-weight", "tconv-dynamic-bias",
    ],
    "axis": ["argmax-axis", "reverse-c", "reverse-n"],
    "types": [
        "matmul-i16", "table-i16", "shift-i16", "left-i16", "transpose-bool", "reduce-max-i32",
        "concat-bool", "slice-bool", "tile-bool", "cast-down", "cast-bool", "identity-bool",
        "pad-bool", "reverse-i32",
    ],
    "round": ["shift-plain"],
    "perms": ["transpose-i32-nchw"],
    "rank": ["transpose-i32-rank5"],
    "scale": ["resize-nearest-3", "resize-nearest-16"],
    "operator": [
        "intdiv", "bitwise-and", "logical-and", "equal", "bitwise-not", "reduce-any",
    ],
}  # fmt: skip
RULE_OF = {name: rule for rule, names in REFUSED.items() for name in names}
ON_U85 = {
    "conv2d-channels+1": "size", "conv3d-dynamic-weight": "constant",
    "tconv-dynamic-weight": "constant", "tconv-dynamic-bias": "constant",
}  # fmt: skip
# Vela compiles less than it documents of these.
BEYOND = {"resize-nearest-2", "resize-nearest-8", "resize-bilinear-2", "resize-bilinear-8"}


def rules(name, npu):
    report = tosajax.validate(npu_cases.CASES[name](), npu)
    assert all(finding.verdict is tosajax.Verdict.ERROR for finding in report.findings)
    return {finding.label.rpartition(".")[2]: finding for finding in report.findings}


@pytest.mark.parametrize("name", npu_cases.CASES)
def test_each_limit_at_its_ends(name):
    assert tosajax.validate(npu_cases.CASES[name]()).findings == ()
    for npu in "ethos-u55-128", "ethos-u65-256":
        found = rules(name, npu)
        assert [*found] == [RULE_OF[key] for key in (name,) if key in RULE_OF]
        for finding in found.values():
            assert npu[:9].replace("ethos-u", "(Ethos-U") in finding.message
            assert finding.node in {n.title for n in npu_cases.CASES[name]().nodes}
    assert [*rules(name, "ethos-u85-256")] == [ON_U85[key] for key in (name,) if key in ON_U85]


def test_messages_name_what_was_found_and_wanted():
    for name, words in (
        ("conv2d-stride4", "stride is 4 x 4, expected at most 3 (Ethos-U55)"),
        ("conv2d-channels+1", "input has channels 65,537, expected at most 65,536"),
        ("conv2d-sum+", "absolute weights of a channel add up to 16,646,144, expected at most"),
        ("conv2d-bias41", "bias has 549,755,813,888, expected [-549,755,813,888, 549,755,813,887]"),
        ("conv2d-dynamic-weight", "weight is computed, expected a constant"),
        ("conv2d-i16-alone", "the INT48 output is an output, expected a RESCALE to one of INT16"),
        ("table-i16", "input1 is INT16, expected one of INT8"),
        ("equal", "the operator is not supported"),
        ("pad-bool", "'x' is BOOL, expected integers"),
        ("resize-nearest-3", "scale is 3/1 x 3/1, expected 2, 4 or 8"),
        ("tconv-12", "stride is 1 x 2, expected 1 x 1 or 2 x 2"),
    ):
        (found,) = rules(name, "ethos-u55-128").values()
        assert words in str(found), found


def test_networks_run_on_all_npus(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    for npu in NPUS:
        assert tosajax.validate(graph, npu).findings == ()


def test_profiles_come_first(data):
    report = tosajax.validate(npu_cases.unary("ABS", tosajax.DType.FP32), "ethos-u85-128")
    assert "needs PRO-FP" in str(report.errors[0])


def test_facts_are_of_operators_and_arguments():
    for npu in FAMILIES:
        for op, limits in npu.operators.items():
            arguments = {a.name for a in spec.OPERATORS[op].arguments}
            assert arguments >= {*limits.constants, *(name for name, _ in limits.sizes)}


def test_targets_are_named():
    target = Target.parse(" Ethos-U55-128 ")
    assert str(target) == target.npu == "ethos-u55-128"
    assert target.names == {"PRO-INT", "EXT-INT16", "EXT-INT4", "EXT-DOUBLEROUND"}
    assert "EXT-CONTROLFLOW" in Target.parse("ethos-u85-2048").names
    with pytest.raises(ValueError, match="unknown NPU 'ethos-u55-512', expected one of ethos-u55"):
        Target.parse("ethos-u55-512")
    with pytest.raises(ValueError, match="unknown NPU 'gpu'"):
        Target(frozenset({"PRO-INT"}), npu="gpu")


@pytest.mark.slow
@pytest.mark.skipif(not vela.is_installed(), reason="ethos-u-vela is not installed")
@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize("name", npu_cases.CASES)
def test_what_vela_refuses_is_refused(name, npu):
    try:
        vela.estimate(npu_cases.CASES[name](), npu)
    except UnsupportedError:
        assert rules(name, npu) or (name in BEYOND and npu != "ethos-u85-256")
