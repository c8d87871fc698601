"""Every operator and type row: the integers are those of the plain graph, whatever the shadows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.device import to_device
from oracle.legal_graphs import OPERATORS, legal_graph
from oracle.operands import SMALL, draw_operands
from oracle.transforms import assert_identical

import tosajax
from tosajax import DType, spec
from tosajax.grad.qtensor import QTensor, payload

COMPUTING = [operator for operator in OPERATORS if operator.inputs]


def wrapped(values: np.ndarray, rng: np.random.Generator | None = None) -> Any:
    """Integers with their own shadow, or with another."""
    x = to_device(values)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return x
    real = values if rng is None else rng.normal(0, 1e3, values.shape)
    return QTensor(x, jax.device_put(real.astype(np.float32)))


def tangents(values: Any) -> Any:
    """Ones for floats and shadows, nothing for integers."""

    def one(x: jax.Array) -> Any:
        if jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.ones_like(x)
        return np.zeros(x.shape, jax.dtypes.float0)

    return jax.tree.map(one, values)


def some_rows(operator: spec.Operator) -> list[spec.TypeRow]:
    """The first and the last row with integers, and the first one of floats alone."""
    floats = [row for row in operator.types if all(DType(t).is_float for t in dtypes(row))]
    others = [row for row in operator.types if row not in floats]
    return others[:: max(1, len(others) - 1)] + floats[:1]


def dtypes(row: spec.TypeRow) -> list[Any]:
    return [t for t in row.types.values() if not isinstance(t, int)]


@pytest.mark.parametrize("rows", ["some", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("operator", COMPUTING, ids=lambda operator: operator.name)
def test_integers_are_those_that_ship(operator, rows):
    rng = np.random.default_rng(len(operator.name))
    chosen = list(operator.types) if rows == "all" else some_rows(operator)
    graphs = [legal_graph(operator, row, **SMALL.get(operator.name, {})) for row in chosen]
    data = [
        {n: values[0] for n, values in draw_operands(operator, graph, rng).items()}
        for graph in graphs
    ]

    @jax.jit
    def plain(operands: list) -> list:
        found = []
        for graph, given in zip(graphs, operands, strict=True):
            fn, constants = tosajax.lower(graph)
            found.append(fn({n: given[n] for n in constants}, *(given[n] for n in graph.inputs)))
        return found

    @jax.jit
    def differentiable(operands: list) -> list:
        """The outputs of each row, and their derivative."""
        found = []
        for graph, given in zip(graphs, operands, strict=True):
            fn, params = tosajax.differentiable(graph)
            primals = ({n: given[n] for n in params}, *(given[n] for n in graph.inputs))
            found.append((fn(*primals), jax.jvp(fn, primals, tangents(primals))[1]))
        return found

    expected = plain([{n: to_device(values) for n, values in each.items()} for each in data])
    for other in (None, rng):
        operands = [{n: wrapped(values, other) for n, values in each.items()} for each in data]
        results = differentiable(operands)
        for row, wanted, (outputs, moved) in zip(chosen, expected, results, strict=True):
            for found, want in zip(outputs, wanted, strict=True):
                assert_identical(payload(found), want)
                if isinstance(found, QTensor):
                    assert found.shadow.dtype == jnp.float32
                    assert found.shadow.shape == found.q.shape
            for found in moved:
                if isinstance(found, QTensor):
                    assert np.isfinite(np.asarray(found.shadow)).all(), row.mode
