"""PAD of zeros before convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exports import operators

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.from_jax.tidy.padding import with_padding
from tosajax.from_jax.written import Written
from tosajax.passes.folding import fold

OUT = {DType.FP32: DType.FP32, DType.INT8: DType.INT32}


def padded(
    op: str, widths: list[int], dtype: DType = DType.FP32, fill: float = 0, zero: int = 0
) -> Graph:
    """A PAD, and a convolution that pads by itself."""
    b = Builder()
    rank = 5 if op == "CONV3D" else 4
    x = b.input("x", dtype, (2, 5, 4, 3, 3)[:rank])
    pad = b.op("PAD", x, b.const_shape(widths), b.const([fill], dtype))
    shape = (3, 3, 3, 2) if op == "DEPTHWISE_CONV2D" else (2, *((2,) * (rank - 2)), 3)
    weight = b.const(np.arange(np.prod(shape)).reshape(shape) % 5 - 2, dtype)
    bias = b.const([1], OUT[dtype])
    zeros = b.const([zero], dtype), b.const([0], dtype)
    options: dict[str, Any] = {
        "pad": (1, 0, 0, 1, 0, 0)[: 2 * (rank - 2)],
        "stride": (1,) * (rank - 2),
        "dilation": (1,) * (rank - 2),
    }
    return b.graph([b.op(op, pad, weight, bias, *zeros, **options, acc_type=OUT[dtype])])


def merged(graph: Graph) -> Graph:
    """The graph after the pass, which is legal and has the same bits."""
    found = fold(with_padding(Written(graph, {})).graph)
    tosajax.validate(found, tosajax.Target.everything("none")).raise_errors()
    (x,) = graph.input_tensors
    values = np.random.default_rng(1).integers(-99, 99, x.shape or ()).astype(x.dtype.storage)
    results = [
        tosajax.compile(g, tosajax.Target.everything("none"))(values) for g in (graph, found)
    ]
    np.testing.assert_array_equal(*(result[0] for result in results))
    return found


@pytest.mark.parametrize(
    ("op", "widths"),
    [
        ("CONV2D", [0, 0, 1, 2, 3, 4, 0, 0]),
        ("DEPTHWISE_CONV2D", [0, 0, 1, 2, 3, 4, 0, 0]),
        ("CONV3D", [0, 0, 1, 2, 3, 4, 0, 5, 0, 0]),
    ],
)
def test_zeros_of_space(op, widths):
    graph = merged(padded(op, widths))
    assert operators(graph) == [op]
    node = graph.nodes[-1]
    own = (1, 0, 0, 1, 0, 0)[: len(widths) - 4]
    assert node.attributes["pad"] == tuple(np.add(own, widths[2:-2]))


def test_as_much_as_the_level_has():
    assert operators(merged(padded("CONV2D", [0, 0, 8191, 0, 0, 0, 0, 0]))) == ["CONV2D"]


def test_int8():
    assert operators(merged(padded("CONV2D", [0, 0, 1, 0, 0, 1, 0, 0], DType.INT8))) == ["CONV2D"]


@pytest.mark.parametrize(
    ("widths", "options"),
    [
        ([1, 0, 0, 0, 0, 0, 0, 0], {}),
        ([0, 0, 0, 1, 0, 0, 0, 0], {"fill": 2}),
        ([0, 0, 0, 1, 0, 0, 0, 0], {"dtype": DType.INT8, "zero": 3}),
        ([0, 0, 8192, 0, 0, 0, 0, 0], {}),
    ],
    ids=["of examples", "not of zeros", "a zero point", "beyond the level"],
)
def test_others_stay(widths, options):
    graph = padded("CONV2D", widths, **options)
    assert operators(merged(graph)) == ["PAD", "CONV2D"]


def test_of_channels():
    b = Builder()
    x = b.input("x", DType.FP32, (2, 5, 4, 2))
    y = b.op("PAD", x, b.const_shape([0, 0, 0, 0, 0, 0, 0, 1]), b.const([0], DType.FP32))
    zero = b.const([0], DType.FP32)
    weight = b.const(np.ones((2, 1, 1, 3)), DType.FP32)
    options: dict[str, Any] = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    y = b.op("CONV2D", y, weight, zero, zero, zero, **options, acc_type=DType.FP32)
    assert operators(merged(b.graph([y]))) == ["PAD", "CONV2D"]


def test_other_nodes_before():
    b = Builder()
    x = b.input("x", DType.FP32, (2, 5, 4, 3))
    zero = b.const([0], DType.FP32)
    weight = b.const(np.ones((2, 1, 1, 3)), DType.FP32)
    options: dict[str, Any] = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    y = b.op("CONV2D", b.op("ABS", x), weight, zero, zero, zero, **options, acc_type=DType.FP32)
    assert operators(merged(b.graph([y]))) == ["ABS", "CONV2D"]
