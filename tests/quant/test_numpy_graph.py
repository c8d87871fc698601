"""The oracle of graphs computes each operator as the oracles of operators do."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import pytest
from oracle import elementwise_oracle, numpy_graph, type_conversion_oracle
from oracle.device import to_device
from oracle.legal_graphs import legal_graph
from oracle.operands import SMALL, draw_operands
from oracle.table_rows import boundaries

from tosajax import Builder, DType, Graph, lower, spec
from tosajax.graph import Node
from tosajax.spec import RoundingMode

ROWS = [
    pytest.param(operator, row, id=f"{operator.name}-{row.mode}")
    for operator in spec.OPERATORS.values()
    for row in operator.types
    if hasattr(numpy_graph, operator.name.lower())
    and not any(isinstance(t, DType) and t.is_float for t in row.types.values())
]


# The constants of the oracle, and places where an operand would exceed what a sum or a shift
# is defined for.
CONSTANT = ("weight", "bias", "table")
SMALLER = {"REDUCE_SUM": "input", "RESCALE": "input"}


@pytest.mark.parametrize(("operator", "row"), ROWS)
def test_operators(operator: spec.Operator, row: spec.TypeRow):
    graph = legal_graph(operator, row, **SMALL.get(operator.name, {}))
    operands = draw_operands(operator, graph, np.random.default_rng(len(operator.name)))
    name = SMALLER.get(operator.name, "bias")
    if name in operands and graph.tensors[name].dtype.bits >= 32:
        operands[name] //= 16
    graph = with_constants(graph, {name: values[-1] for name, values in operands.items()})
    inputs = [operands[name] for name in graph.inputs]
    found = numpy_graph.run(graph, *inputs)
    fn, params = lower(graph)
    for example in range(len(inputs[0])):
        (expected,) = fn(params, *(to_device(x[example]) for x in inputs))
        (output,) = graph.outputs
        assert found[output].dtype == expected.dtype
        np.testing.assert_array_equal(found[output][example], expected)


def with_constants(graph: Graph, values: dict[str, np.ndarray]) -> Graph:
    """The graph with other values of its constants, and with inputs made constants."""
    made = [n for n in values if n in CONSTANT or graph.tensors[n].values is not None]
    tensors = {n: dataclasses.replace(graph.tensors[n], values=values[n]) for n in made}
    nodes = [Node("CONST", (), (name,)) for name in made if name in graph.inputs]
    return dataclasses.replace(
        graph,
        inputs=tuple(name for name in graph.inputs if name not in made),
        tensors={**graph.tensors, **tensors},
        nodes=(*nodes, *graph.nodes),
    )


def test_no_operator_is_left_out():
    assert {name for name in spec.OPERATORS if hasattr(numpy_graph, name.lower())} >= {
        *("ARGMAX", "AVG_POOL2D", "CONV2D", "DEPTHWISE_CONV2D", "MATMUL", "MAX_POOL2D"),
        *("TRANSPOSE_CONV2D", "CLAMP", "TABLE", "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"),
        *("NEGATE", "SELECT", "EQUAL", "GREATER", "GREATER_EQUAL", "REDUCE_SUM", "REDUCE_MAX"),
        *("REDUCE_MIN", "CONCAT", "PAD", "RESHAPE", "SLICE", "TRANSPOSE", "GATHER", "RESCALE"),
    }


@pytest.mark.parametrize(
    ("source", "target", "double_round"),
    [
        (DType.INT32, DType.INT8, False),
        (DType.INT32, DType.INT8, True),
        (DType.INT32, DType.INT32, False),
        (DType.INT32, DType.INT32, True),
        (DType.INT8, DType.INT16, False),
        (DType.INT8, DType.INT16, True),
        (DType.INT48, DType.INT16, False),
        (DType.INT48, DType.INT32, False),
    ],
)
def test_rescale(source: DType, target: DType, double_round: bool):
    scale32 = source is not DType.INT48
    largest = np.iinfo(np.int32 if scale32 else np.int16).max
    rng = np.random.default_rng(3)
    for multiplier in (largest, (largest + 1) // 2, 12345):
        for shift in (2, 3, 14, 15, 30, 31, 32, 33, 45, 61, 62):
            exact = functools.partial(
                type_conversion_oracle.rescale,
                multiplier=multiplier,
                shift=shift,
                input_zp=int(rng.integers(-128, 128)) if source is DType.INT8 else 0,
                output_zp=int(rng.integers(-128, 128)) if target is DType.INT8 else 0,
                scale32=scale32,
                double_round=double_round,
                bits=target.bits,
                unsigned=False,
            )
            zero = exact.keywords["input_zp"]
            values = [v for v in (zero, *drawn(source, rng)) if exact(v) is not None]
            graph = rescaled(source, target, len(values), **exact.keywords)
            found = numpy_graph.run(graph, np.array([values], source.storage))["y"]
            np.testing.assert_array_equal(found[0], np.array([exact(v) for v in values]))


def drawn(dtype: DType, rng: np.random.Generator) -> list[int]:
    """Boundaries and random values of all sizes."""
    sizes = 2.0 ** rng.uniform(0, dtype.bits - 1, 100)
    random = (sizes * rng.choice([-1, 1], 100)).astype(np.int64)
    edges = np.clip(boundaries(dtype.storage).astype(np.int64), dtype.minimum, dtype.maximum)
    return [0, *edges.tolist(), *random.tolist()]


def rescaled(source: DType, target: DType, size: int, **options: Any) -> Graph:
    b = Builder()
    scale32, double_round = options["scale32"], options["double_round"]
    y = b.op(
        "RESCALE",
        b.input("x", source, (size,)),
        b.const([options["multiplier"]], DType.INT32 if scale32 else DType.INT16),
        b.const([options["shift"]], DType.INT8),
        b.const([options["input_zp"]], source),
        b.const([options["output_zp"]], target),
        name="y",
        dtype=target,
        scale32=scale32,
        rounding_mode=RoundingMode.DOUBLE_ROUND if double_round else RoundingMode.SINGLE_ROUND,
        per_channel=False,
        input_unsigned=False,
        output_unsigned=False,
    )
    return b.graph([y])


@pytest.mark.parametrize("shift", [0, 1, 31, 32, 63])
def test_mul(shift: int):
    pairs = list(itertools.product(boundaries(np.int32).tolist(), repeat=2))
    expected = [elementwise_oracle.mul(a, b, shift) for a, b in pairs]
    kept = [n for n, product in enumerate(expected) if elementwise_oracle.fits(product)]
    b = Builder()
    x, y = (b.input(name, DType.INT32, (len(kept),)) for name in "xy")
    graph = b.graph([b.op("MUL", x, y, b.const([shift], DType.INT8), name="product")])
    operands = np.array(pairs)[kept].T[:, None]
    found = numpy_graph.run(graph, *operands)["product"]
    np.testing.assert_array_equal(found[0], np.array(expected)[kept])


def test_values_beyond_a_type_are_refused():
    """The specification gives them no result, so that there is nothing to compare with."""
    b = Builder()
    x = b.input("x", DType.INT32, (1,))
    graph = b.graph([b.op("ADD", x, x, name="y")])
    np.testing.assert_array_equal(numpy_graph.run(graph, np.array([[2**30 - 1]]))["y"], 2**31 - 2)
    with pytest.raises(AssertionError, match=r"y: .* beyond INT32"):
        numpy_graph.run(graph, np.array([[2**30]], np.int32))


def test_rescale_of_a_value_that_its_shift_is_too_small_for():
    options = {"multiplier": 1, "shift": 2, "input_zp": 0, "output_zp": 0}
    graph = rescaled(DType.INT32, DType.INT8, 1, **options, scale32=True, double_round=False)
    np.testing.assert_array_equal(numpy_graph.run(graph, np.array([[1]], np.int32))["y"], 0)
    with pytest.raises(AssertionError, match="shift is too small"):
        numpy_graph.run(graph, np.array([[2]], np.int32))
