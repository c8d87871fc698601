"""Graphs of open batch that compute each example by itself, and others."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from batched_graphs import APART, INT32, TOGETHER, inputs_of

import tosajax
from tosajax import Builder, DType
from tosajax.passes.one_example import one_example
from tosajax.spec import RoundingMode


@pytest.mark.parametrize("micro_batch", [None, 1, 2, 3])
@pytest.mark.parametrize("name", APART)
def test_examples_apart(name, micro_batch):
    graph = APART[name]
    assert one_example(graph) is not None
    inputs = inputs_of(graph, 5)
    bound, params = tosajax.lower(tosajax.bind(graph, batch=5))
    run = tosajax.compile(graph, batch=5, micro_batch=micro_batch)
    assert run.examples == 5
    for found, expected in zip(run(*inputs), bound(params, *inputs), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", TOGETHER)
def test_examples_together(name):
    graph = TOGETHER[name]
    assert one_example(graph) is None
    batch = 1 if name == "per channel of the batch" else 3
    inputs = inputs_of(graph, batch)
    run = tosajax.compile(graph, batch=batch)
    assert run.examples is None
    bound, params = tosajax.lower(tosajax.bind(graph, batch=batch))
    for found, expected in zip(run(*inputs), bound(params, *inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="runs as a whole"):
        tosajax.compile(graph, batch=batch, micro_batch=2)
    with pytest.raises(ValueError, match="runs as a whole"):
        tosajax.compile(graph, batch=batch, devices=jax.devices())


def test_a_fixed_first_dimension_of_one_is_not_taken_for_the_batch():
    b = Builder()
    x, y = b.input("x", INT32, (-1, 4)), b.input("y", INT32, (1, 4))
    graph = b.graph([b.op("ADD", x, y)])
    assert one_example(graph) is None
    run = tosajax.compile(graph, batch=3)
    (z,) = run(np.ones((3, 4), np.int32), np.full((1, 4), 2, np.int32))
    np.testing.assert_array_equal(z, np.full((3, 4), 3))


def test_numbers_are_examples():
    b = Builder()
    zero = b.const([0], DType.INT8)
    y = b.op(
        "RESCALE", b.input("x", INT32, (-1,)), b.const([2**30], INT32), b.const([30], DType.INT8),
        b.const([0], INT32), zero, dtype=DType.INT8, scale32=True, per_channel=False,
        rounding_mode=RoundingMode.SINGLE_ROUND, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip
    assert one_example(b.graph([y])) is not None


def test_a_shared_input():
    b = Builder()
    x, y = b.input("x", INT32, (-1, 2, 4)), b.input("y", INT32, (2, 4))
    b_y = b.op("RESHAPE", y, b.const_shape((1, 2, 4)), shape=(1, 2, 4))
    graph = b.graph([b.op("ADD", x, b_y)])
    assert one_example(graph) is not None
    run = tosajax.compile(graph, batch=3, micro_batch=2)
    x, y = (
        np.arange(24, dtype=np.int32).reshape(3, 2, 4),
        np.arange(8, dtype=np.int32).reshape(2, 4),
    )
    np.testing.assert_array_equal(run(x, y)[0], x + y)


def test_graphs_with_variables_run_as_a_whole():
    b = Builder()
    x = b.input("x", INT32, (-1, 4))
    b.variable("total", INT32, (1, 4), initial_value=np.zeros((1, 4)))
    graph = b.graph([b.op("ADD", x, b.read("total", INT32, (1, 4)))])
    assert one_example(graph) is None
