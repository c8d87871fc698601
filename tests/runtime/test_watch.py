"""Tensors of many examples, by name."""

from __future__ import annotations

import numpy as np

from tosajax import Builder, DType
from tosajax.runtime.watch import Watch


def test_names_that_the_graph_has_already():
    """An input without an axis for examples is reshaped, under free names."""
    b = Builder()
    x = b.input("x", DType.INT32, (4,))
    one = b.const([1], DType.INT32, name="x/example")
    two = b.const([2, 2, 2, 2], DType.INT32, name="x/shape")
    graph = b.graph([b.op("ADD", b.op("ADD", x, one), two)])
    rows = np.arange(12, dtype=np.int32).reshape(3, 4)
    found = Watch(graph, graph.outputs, batch=2)([rows[:2]])
    np.testing.assert_array_equal(found[graph.outputs[0]], rows[:2] + 3)
    found = Watch(graph, ("x", *graph.outputs), batch=4)([rows])
    np.testing.assert_array_equal(found["x"], rows)
    np.testing.assert_array_equal(found[graph.outputs[0]], rows + 3)
