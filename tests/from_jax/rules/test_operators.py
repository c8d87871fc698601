"""Functions of `tosajax.ops` leave as the operators that they are."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators
from oracle.legal_graphs import legal_graph
from oracle.operands import SMALL, draw_operands
from recorded import ROWS, OneCall

import tosajax
from tosajax import DType, Graph, UnsupportedError, ops, spec
from tosajax.fixedpoint import _x64
from tosajax.graph.alike import difference
from tosajax.spec import NanMode, RoundingMode

pytestmark = pytest.mark.usefixtures("quick")

# Functions of functions, which leave as what JAX makes of them.
_HIGHER = ("COND_IF", "WHILE_LOOP")


def types_of(graph: Graph) -> set[DType]:
    return {tensor.dtype for tensor in graph.tensors.values()}


# Arrays of int4 and int48 are int8 and int64, of which a function cannot tell, or take, inputs.
EACH = [
    pytest.param(operator, row, id=f"{operator.name}-{row.mode.replace(' ', '-')}")
    for operator, row in ROWS
    if operator.name not in _HIGHER
]


@pytest.mark.parametrize(("operator", "row"), EACH)
def test_every_row(operator: spec.Operator, row: spec.TypeRow):
    graph = legal_graph(operator, row, **SMALL.get(operator.name, {}))
    values = {
        name: drawn[0]
        for name, drawn in draw_operands(operator, graph, np.random.default_rng(3)).items()
    }
    call = OneCall(operator, graph, values)
    names = [name for name in graph.nodes[-1].inputs if name in values]
    held = [at for at, name in enumerate(names) if graph.tensors[name].values is not None]
    given = [at for at in range(len(names)) if at not in held]

    def function(*inputs: Any) -> Any:
        found = dict(zip(given, inputs, strict=True)) | {at: call.operands[at] for at in held}
        return call(*(found[at] for at in range(len(names))))

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (call.operands[at] for at in given)]
    with _x64.scope() if DType.INT48 in types_of(graph) else contextlib.nullcontext():
        exported = tosajax.export(function, *shapes, check=False)
    if DType.INT4 in types_of(graph):  # It is held in int8, and leaves as that.
        assert operators(exported) == operators(graph)
    else:
        assert difference(exported, graph) is None


def requantized(x: jax.Array) -> jax.Array:
    return ops.rescale(
        x, jnp.asarray([1 << 30], np.int32), jnp.asarray([31], np.int8), jnp.asarray([0], np.int8),
        jnp.asarray([3], np.int8), scale32=True, rounding_mode=RoundingMode.SINGLE_ROUND,
        per_channel=False, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip


X = np.arange(-6, 6, dtype=np.int8).reshape(2, 6)


def test_names_and_jit():
    graph = agrees(jax.jit(lambda x: ops.clamp(requantized(x), min_val=-3, max_val=4)), X)
    assert operators(graph) == ["RESCALE", "CLAMP"]
    assert "rescale" in graph.tensors


def test_a_batch():
    graph = agrees(jax.vmap(lambda x: ops.reverse(requantized(x), axis=0)), X)
    assert operators(graph) == ["RESCALE", "REVERSE"]


def test_beside_jax():
    graph = agrees(lambda x: requantized(x).astype(jnp.int32) + 1, X)
    assert operators(graph) == ["RESCALE", "CAST", "ADD"]


def test_bounds_that_depend_on_inputs():
    def fn(x: jax.Array, high: jax.Array) -> jax.Array:
        return ops.clamp(x, min_val=0, max_val=high, nan_mode=NanMode.PROPAGATE)

    with pytest.raises(UnsupportedError, match="max_val depends on the inputs, expected a const"):
        tosajax.export(fn, X, np.int8(3))


def test_loops_and_branches():
    def fn(x: jax.Array) -> Any:
        flag = jnp.asarray([x[0, 0] > -9])
        graphs = {"then_graph": lambda x: (requantized(x),), "else_graph": lambda x: (x,)}
        return ops.cond_if(flag, [x], **graphs)

    assert operators(agrees(fn, X))[-1] == "COND_IF"
