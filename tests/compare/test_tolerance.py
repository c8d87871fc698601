"""How far tensors may be apart: the specification's bounds for floats, options for the rest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import small_networks as small

from tosajax import Builder, DType, Graph, Quantization
from tosajax.compare import Tolerance, compare
from tosajax.compare.tolerance import budgets
from tosajax.compliance import RULES
from tosajax.spec import NanMode

ULP = 2.0**-23


def floats() -> Graph:
    """A product of 8 terms, what only moves it, and the sum of both."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 4, 8))
    weight = b.const(np.linspace(-1, 1, 24).reshape(1, 8, 3), DType.FP32)
    zero = b.const([0.0], DType.FP32)
    product = b.op("MATMUL", x, weight, zero, zero, name="product")
    turned = b.op("REVERSE", product, axis=1, name="turned")
    clamped = b.op(
        "CLAMP", turned, min_val=np.float32(-9), max_val=np.float32(9),
        nan_mode=NanMode.PROPAGATE, name="clamped",
    )  # fmt: skip
    return b.graph([b.op("ADD", clamped, product, name="sum")])


def test_budgets_of_floats():
    graph = floats()
    product = (8 + 1) * ULP
    found = budgets(graph)
    assert {n: found[n] for n in ("product", "turned", "clamped", "sum")} == {
        "product": product, "turned": product, "clamped": product, "sum": product + 0.5 * ULP,
    }  # fmt: skip
    alone = budgets(graph, ("product", "turned", "clamped"))
    assert (alone["turned"], alone["sum"]) == (0, 0.5 * ULP)


def test_every_rule_has_a_budget():
    """Each operator with an accuracy rule, in a graph of its own: positive and finite."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 4, 4, 2))
    flat = b.op("RESHAPE", x, b.const_shape([1, 4, 8]))
    zero = b.const([0.0], DType.FP32)
    weight, bias = b.const(np.ones((2, 2, 2, 2)), DType.FP32), b.const([0.0, 0.0], DType.FP32)
    shared = {"dilation": (1, 1), "acc_type": DType.FP32}
    made = {
        "CAST": b.op("CAST", x, dtype=DType.FP16, name="CAST"),
        "MATMUL": b.op("MATMUL", flat, b.op("RESHAPE", x, b.const_shape([1, 8, 4])), zero, zero),
        "MATMUL_T": b.op("MATMUL_T", flat, flat, zero, zero),
        "AVG_POOL2D": b.op(
            "AVG_POOL2D", x, zero, zero, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0),
            acc_type=DType.FP32,
        ),
    }  # fmt: skip
    for op in ("CONV2D", "DEPTHWISE_CONV2D"):
        size = 4 if op == "DEPTHWISE_CONV2D" else 2
        full = bias if size == 2 else b.const(np.zeros(4), DType.FP32)
        made[op] = b.op(op, x, weight, full, zero, zero, pad=(0, 0, 0, 0), stride=(1, 1), **shared)
    for op in ("REDUCE_SUM", "REDUCE_PRODUCT"):
        made[op] = b.op(op, x, axis=1)
    for op in ("ADD", "SUB", "POW"):
        made[op] = b.op(op, x, x)
    for op in ("CEIL", "COS", "ERF", "EXP", "FLOOR", "LOG", "RECIPROCAL", "RSQRT", "SIGMOID",
               "SIN", "TANH"):  # fmt: skip
        made[op] = b.op(op, x)
    real, imaginary = b.ops("RFFT2D", b.op("RESHAPE", x, b.const_shape([2, 4, 4])))
    made["RFFT2D"] = real
    found = budgets(b.graph([*made.values(), imaginary]))
    left = set(RULES) - set(made)
    assert left == {"CONV3D", "FFT2D", "MUL", "RESIZE", "TRANSPOSE_CONV2D"}
    for op, tensor in made.items():
        assert 0 < found[tensor.name] < 0.01, op
    assert found[real.name] == (4 * 4 + 1) * ULP


@pytest.mark.parametrize(("dtype", "bound"), [(DType.FP32, 2.0**-11.5), (DType.BF16, 2.0**-3.5)])
def test_bounds_that_grow_with_the_input_are_of_the_type(dtype, bound):
    b = Builder()
    y = b.op("COS", b.input("x", dtype, (1, 4)), name="y")
    assert budgets(b.graph([y]))["y"] == pytest.approx((1 + np.pi) * bound)


def test_nothing_bounds_what_an_error_turns():
    b = Builder()
    x = b.input("x", DType.FP32, (1, 4))
    y = b.op("EXP", x)
    floor = b.op("FLOOR", y, name="floor")
    chosen = b.op("SELECT", b.op("GREATER", y, x), x, y, name="chosen")
    found = budgets(b.graph([floor, chosen, b.op("FLOOR", x, name="first")]))
    assert found["floor"] == found["chosen"] == float("inf")
    assert found["first"] == 0.5 * ULP


def test_floats_within_the_bounds():
    graph, generator = floats(), np.random.default_rng(0)
    x = generator.standard_normal((3, 1, 4, 8)).astype(np.float32)
    weight = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 8, 3)
    exact = np.matmul(x.astype(np.float64), weight.astype(np.float64))
    product = exact.astype(np.float32)
    total = (product + product[:, :, ::-1]).astype(np.float32)
    allowed = 2 * 9 * ULP * np.abs(product).max()
    for off, good in ((0.9, True), (1.1, False)):
        moved = product.copy()
        moved[0, 0, 1, 2] += np.float32(off * allowed) * (-1 if moved[0, 0, 1, 2] > 0 else 1)
        found = compare(graph, {"product": moved, "sum": total}, x)
        assert bool(found) == good
        assert (found.first_divergent is None) == good
        assert "tensors are within tolerance" in str(found)
        assert found.to_rows()[0]["within"] == good
        assert not compare(graph, {"product": moved}, x, tolerance=Tolerance(floats=False))
        assert compare(graph, {"product": moved}, x, tolerance=Tolerance(min_sqnr=100))
        assert not compare(graph, {"product": moved}, x, tolerance=Tolerance(min_sqnr=200))
    moved[1, 0, 0, 0] = np.nan
    for tolerance in (None, Tolerance(atol_lsb=9), Tolerance(min_sqnr=0)):
        assert not compare(graph, {"product": moved}, x, tolerance=tolerance)


def test_integers():
    graph, x = small.two_layers(), small.images(6)
    whole = compare(graph, graph, x)
    assert str(whole) == "5 of 5 tensors are equal, on 6 examples"
    twice = small.two_layers(rounding=small.RoundingMode.DOUBLE_ROUND)
    found = compare(graph, twice, x)
    worst = max(row.total.max_error for row in found.rows)
    assert not found
    assert worst >= 1
    assert compare(graph, twice, x, tolerance=Tolerance(atol_lsb=worst))
    assert not compare(graph, twice, x, tolerance=Tolerance(atol_lsb=worst - 1))
    sqnr = min(row.total.sqnr for row in found.rows)
    assert compare(graph, twice, x, tolerance=Tolerance(min_sqnr=sqnr))
    assert not compare(graph, twice, x, tolerance=Tolerance(min_sqnr=sqnr + 1))


def test_integers_of_two_scales_are_compared_as_real_numbers():
    graph, x = small.two_layers(), small.images(6)
    one = dataclasses.replace(graph, quantization={"out": Quantization((0.5,), (-7,))})
    other = dataclasses.replace(graph, quantization={"out": Quantization((0.25,), (-7,))})
    same, apart = compare(one, one, x).rows[-1], compare(one, other, x).rows[-1]
    assert (same.as_real, same.total.mismatches) == (False, 0)
    assert apart.as_real
    assert apart.total.sqnr == pytest.approx(0, abs=1e-6)  # twice as large
    steps = apart.total.max_error / 0.5
    assert compare(one, other, x, tolerance=Tolerance(atol_lsb=steps)).rows[-1].is_within
    assert not compare(one, other, x, tolerance=Tolerance(atol_lsb=steps - 0.5)).rows[-1].is_within


def test_misuse():
    for atol_lsb in (-1, float("nan")):
        with pytest.raises(ValueError, match="atol_lsb"):
            Tolerance(atol_lsb)
    with pytest.raises(ValueError, match="min_sqnr"):
        Tolerance(min_sqnr=float("nan"))
