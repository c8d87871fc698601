"""Plans of kernels, as users print them; what programs make of them is in `test_fusions.py`."""

from __future__ import annotations

import pytest
from native_graphs import averaged, convolved, graph_of, joined_sum, mirrored, pointwise
from paths import DATA

import tosajax
from tosajax import Tensor
from tosajax.builder import Builder

pytest.importorskip("llvmlite")


def two_terms(b: Builder, x: Tensor) -> Tensor:
    """A chain behind a REVERSE."""
    x = mirrored(b, x)
    first = pointwise(b, x)
    return averaged(b, joined_sum(b, first, pointwise(b, first)))


def test_a_line_for_each_part():
    lines = str(tosajax.plan_kernels(graph_of(two_terms))).splitlines()
    assert [line.split("'")[0] for line in lines] == [
        "XLA     REVERSE ",
        "one call of 3 kernels:",
        "  native  CONV2D ",
        "  native  CONV2D ",
        "  native  AVG_POOL2D ",
    ]
    assert lines[3].endswith(", RESCALE, RESCALE, RESCALE, ADD, RESCALE")


def test_a_kernel_and_a_reshape_are_one_call():
    text = str(tosajax.plan_kernels(tosajax.load(DATA / "et_digits_cnn_a8w8" / "model.tosa")))
    assert "one call of 1 kernel:\n  native  CONV2D 'tosa_conv2d_default_2', RESCALE\n" in text
    assert text.endswith("\n  XLA     RESHAPE 'tosa_reshape_default'")


def test_the_obstacle_is_named():
    graph = graph_of(lambda b, x: convolved(b, x, op="DEPTHWISE_CONV2D", size=(3, 43)))
    (product,) = str(tosajax.plan_kernels(graph)).splitlines()
    assert product.startswith("XLA     DEPTHWISE_CONV2D ")
    assert product.endswith(": 129 taps, more than 128")


def test_a_graph_of_nothing():
    b = Builder()
    graph = b.graph([b.input("x", tosajax.DType.INT8, (1,))])
    assert str(tosajax.plan_kernels(graph)) == ""


def test_refused():
    b = Builder()
    x = b.input("x", tosajax.DType.INT8, (-1, 4))
    with pytest.raises(tosajax.TosaError, match="expected known dimensions: bind them"):
        tosajax.plan_kernels(b.graph([b.op("REVERSE", x, axis=0)]))
    with pytest.raises(TypeError, match="expected a Graph"):
        tosajax.plan_kernels("m.tosa")  # pyright: ignore[reportArgumentType]
