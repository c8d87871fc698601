"""Every operator and type row: the integers are those of the plain graph, whatever the shadows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.legal_graphs import OPERATORS, legal_graph
from oracle.operands import SMALL, draw_operands, to_device
from oracle.transforms import assert_identical

import tosajax
from tosajax.grad.qtensor import QTensor, payload

COMPUTING = [operator for operator in OPERATORS if operator.inputs]


def disturbed(value: Any, rng: np.random.Generator) -> Any:
    """The same integers with another shadow."""
    if not isinstance(value, QTensor):
        return value
    return QTensor(value.q, jnp.asarray(rng.normal(0, 1e3, value.shape), jnp.float32))


def tangents(values: Any) -> Any:
    """Ones for floats and shadows, nothing for integers."""

    def one(x: jax.Array) -> Any:
        if jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.ones_like(x)
        return np.zeros(x.shape, jax.dtypes.float0)

    return jax.tree.map(one, values)


def wrapped(values: np.ndarray) -> Any:
    x = to_device(values)
    return QTensor.of(x) if jnp.issubdtype(x.dtype, jnp.integer) else x


@jax.jit(static_argnums=0)
def derivative(fn: Any, primals: Any) -> Any:
    return jax.jvp(fn, primals, tangents(primals))[1]


@pytest.mark.parametrize("rows", ["first and last", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("operator", COMPUTING, ids=lambda operator: operator.name)
def test_integers_are_those_that_ship(operator, rows):
    rng = np.random.default_rng(len(operator.name))
    step = 1 if rows == "all" else max(1, len(operator.types) - 1)
    for row in operator.types[::step]:
        graph = legal_graph(operator, row, **SMALL.get(operator.name, {}))
        data = {n: values[0] for n, values in draw_operands(operator, graph, rng).items()}
        plain, constants = tosajax.lower(graph)
        inputs = [to_device(data[name]) for name in graph.inputs]
        expected = jax.jit(plain)({name: to_device(data[name]) for name in constants}, *inputs)
        fn, params = tosajax.differentiable(graph)
        compiled = jax.jit(fn)
        for change in (False, True):
            operands = {name: wrapped(values) for name, values in data.items()}
            if change:
                operands = {name: disturbed(x, rng) for name, x in operands.items()}
            primals = ({n: operands[n] for n in params}, *(operands[n] for n in graph.inputs))
            for found, want in zip(compiled(*primals), expected, strict=True):
                assert_identical(payload(found), want)
                if isinstance(found, QTensor):
                    assert found.shadow.dtype == jnp.float32
                    assert found.shadow.shape == found.q.shape
            for found in derivative(fn, primals):
                if isinstance(found, QTensor):
                    assert np.isfinite(np.asarray(found.shadow)).all(), row.mode
