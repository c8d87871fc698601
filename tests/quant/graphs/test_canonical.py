"""MAXIMUM and MINIMUM with a number as CLAMP, POW by 2 as MUL, SLICEs of operands of a CONCAT."""

from __future__ import annotations

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph, Tensor, quant
from tosajax.passes.folding import fold
from tosajax.quant.graphs.canonical import with_canonical_operators
from tosajax.spec import NanMode

X = np.array([[-3, -1, 0, 1, 6, 7, np.nan, np.inf, -np.inf]], np.float32)


def graph_of(op: str, number: float | np.ndarray, *, first: bool = False, **options) -> Graph:
    b = Builder()
    x = b.input("x", DType.FP32, X.shape)
    other = b.const(np.full((1, 1), number, np.float32), DType.FP32, name="number")
    y = b.op(op, *((other, x) if first else (x, other)), name="y", **options)
    return b.graph([y])


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes if not node.op.startswith("CONST")]


@pytest.mark.parametrize("nan_mode", [NanMode.PROPAGATE, NanMode.IGNORE])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("op", "number"), [("MAXIMUM", 0), ("MINIMUM", 6), ("MAXIMUM", -1.5)])
def test_extremes_of_a_number_are_clamps(op, number, first, nan_mode):
    graph = graph_of(op, number, first=first, nan_mode=nan_mode)
    canonical = with_canonical_operators(graph)
    is_clamp = op == "MAXIMUM" or nan_mode is NanMode.PROPAGATE
    assert operators(canonical) == ["CLAMP" if is_clamp else op]
    (y,), (expected,) = tosajax.compile(canonical)(X), tosajax.compile(graph)(X)
    largest = np.finfo(np.float32).max  # infinities are no ends of a CLAMP
    limited = np.clip(np.asarray(expected), -largest, largest)
    np.testing.assert_array_equal(np.clip(np.asarray(y), -largest, largest), limited)


def test_squares_are_products():
    canonical = with_canonical_operators(graph_of("POW", 2))
    assert operators(canonical) == ["MUL"]
    (y,) = tosajax.compile(canonical)(X)
    np.testing.assert_array_equal(y, X * X)


@pytest.mark.parametrize(
    ("op", "number", "first"),
    [("POW", 2, True), ("POW", 3, False), ("MAXIMUM", np.nan, False), ("MINIMUM", -np.inf, False)],
)
def test_others_stay(op, number, first):
    assert operators(with_canonical_operators(graph_of(op, number, first=first))) == [op]


def test_several_numbers_and_integers_stay():
    b = Builder()
    x, i = b.input("x", DType.FP32, (1, 3)), b.input("i", DType.INT32, (1, 3))

    def limited(x: Tensor, values: np.ndarray, dtype: DType) -> Tensor:
        return b.op("MAXIMUM", x, b.const(values, dtype))

    several = limited(x, np.array([[0, 1, 2]], np.float32), DType.FP32)
    integer = limited(i, np.array([[0]], np.int32), DType.INT32)
    graph = b.graph([several, integer])
    assert operators(with_canonical_operators(graph)) == ["MAXIMUM", "MAXIMUM"]


def test_a_relu_written_as_maximum_needs_no_table():
    b = Builder()
    x = b.input("x", DType.FP32, (1, 1, 1, 8))
    w = b.const(np.random.default_rng(0).normal(size=(4, 1, 1, 8)), DType.FP32, name="w")
    zeros = [b.const(np.zeros(n), DType.FP32, name=f"zeros{n}{i}") for i, n in enumerate((4, 1, 1))]
    conv = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    y = b.op("CONV2D", x, w, *zeros, name="conv", **conv)
    zero = b.const(np.zeros((1, 1, 1, 1)), DType.FP32, name="zero")
    y = b.op("MAXIMUM", y, zero, name="relu")
    model = quant.prepare(b.graph([y]))
    assert "TABLE" not in operators(model.graph)
    assert list(model.activations) == ["x", "relu"]


def joined(*slices: tuple[tuple[int, int], tuple[int, int]], nested: bool = False) -> Graph:
    """SLICEs of a CONCAT of boxes, up to 640, and scores, up to 1, each computed from inputs."""
    b = Builder()
    boxes, scores = b.input("boxes", DType.FP32, (4, 3)), b.input("scores", DType.FP32, (4, 2))
    shift = b.const(np.zeros(1, np.int8), DType.INT8)
    parts = [
        b.op("MUL", x, b.const(np.full((1, 1), factor, np.float32), DType.FP32), shift, name=name)
        for x, factor, name in ((boxes, 640, "large"), (scores, 0.9, "small"))
    ]
    whole = b.op("CONCAT", *parts, name="whole", axis=1)
    if nested:
        whole = b.op("CONCAT", b.op("ABS", whole, name="size"), whole, name="both", axis=1)
    outputs = [
        b.op(
            "SLICE",
            whole,
            b.const(np.array(start), DType.SHAPE),
            b.const(np.array(size), DType.SHAPE),
            name=f"part{number}",
        )
        for number, (start, size) in enumerate(slices)
    ]
    return b.graph([b.op("TANH", x, name=f"y{n}") for n, x in enumerate(outputs)])


BOXES = np.random.default_rng(1).uniform(-1, 1, (8, 4, 3)).astype(np.float32)
SCORES = np.random.default_rng(2).uniform(0, 1, (8, 4, 2)).astype(np.float32)


def test_a_slice_of_an_operand_reads_the_operand():
    """All of the scores, one row of them, and a part of the boxes."""
    graph = joined(((0, 3), (4, 2)), ((1, 4), (1, 1)), ((0, 1), (2, 2)))
    canonical = fold(with_canonical_operators(graph))
    assert operators(canonical).count("CONCAT") == 0
    inputs = BOXES[0], SCORES[0]
    for actual, wanted in zip(
        tosajax.compile(canonical)(*inputs), tosajax.compile(graph)(*inputs), strict=True
    ):
        np.testing.assert_array_equal(actual, wanted)


def test_a_slice_across_operands_stays():
    graph = joined(((0, 2), (4, 2)))
    canonical = fold(with_canonical_operators(graph))
    assert "CONCAT" in operators(canonical)
    np.testing.assert_array_equal(
        tosajax.compile(canonical)(BOXES[0], SCORES[0])[0],
        tosajax.compile(graph)(BOXES[0], SCORES[0])[0],
    )


def test_operands_of_operands():
    """A CONCAT of a CONCAT."""
    graph = joined(((1, 8), (2, 2)), nested=True)
    canonical = fold(with_canonical_operators(graph))
    assert operators(canonical) == ["MUL", "SLICE", "TANH"]
    np.testing.assert_array_equal(
        tosajax.compile(canonical)(BOXES[0], SCORES[0])[0],
        tosajax.compile(graph)(BOXES[0], SCORES[0])[0],
    )


def test_scores_beside_boxes_keep_their_precision():
    model = quant.prepare(joined(((0, 3), (4, 2))))
    params = quant.calibrate(model, [(BOXES, SCORES)])
    exact, real = (model.apply(params, BOXES, SCORES, mode=m)[0] for m in ("exact", "float"))
    np.testing.assert_allclose(exact, real, atol=0.01)
    assert quant.check_bit_exact(model, params, BOXES, SCORES)
