"""Every operator and type row: jit is eager, and vmap over any operands is a loop, bit for bit.

The rows of an operator share two programs, so that few are compiled: one of the operator alone,
one of all its vmaps. Of the float rows of one kind, each batches another operand alone. Only the
first row of a kind runs without `jit`, where every operation is a program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from oracle.device import to_device
from oracle.float_bounds import fraction_bits, widen
from oracle.legal_graphs import OPERATORS, legal_graph
from oracle.operands import EXAMPLES, SMALL, draw_operands
from oracle.transforms import assert_identical

from tosajax import DType, Graph, lower, spec

# Data of the graph: nothing is computed.
COMPUTING = [operator for operator in OPERATORS if operator.inputs]

# XLA fuses a product into a sum; eager execution rounds the product.
FUSED = {"DEPTHWISE_CONV2D", "RESIZE"}
# XLA adds float products in another order if one of these operands alone is batched.
REORDERED_ALONE = {"MATMUL": ("a", "b"), "MATMUL_T": ("a", "b")}
# On some processors it does so wherever this operand is batched, alone or with others.
REORDERED = {"CONV2D": "weight", "CONV3D": "weight"}

Operands = dict[str, jax.Array]
Axes = dict[str, int | None]


def test_operators_that_are_left_out():
    left = spec.OPERATORS.keys() - {operator.name for operator in COMPUTING}
    assert left == {
        *("CONST", "CONST_SHAPE", "CUSTOM", "COND_IF", "WHILE_LOOP"),
        *("VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"),
    }


def _function(graph: Graph) -> Callable[[Operands], tuple[jax.Array, ...]]:
    """The graph as a function of all operands, constants included."""
    fn, params = lower(graph)
    return lambda operands: fn(
        {name: operands[name] for name in params}, *(operands[name] for name in graph.inputs)
    )


def _kind(graph: Graph) -> tuple[str, str]:
    """The kind of the types of a graph: rows of one kind differ in conversions."""

    def kind(dtype: DType) -> str:
        if dtype.is_float:
            return "FP32" if dtype is DType.FP32 else "narrow float"
        return dtype.name if dtype in (DType.INT48, DType.BOOL) else "integer"

    first = graph.tensors[graph.nodes[-1].inputs[0]]
    return kind(first.dtype), kind(graph.output_tensors[0].dtype)


def _firsts(kinds: list[tuple[str, str]]) -> list[int]:
    """The first row of each kind."""
    return [i for i, kind in enumerate(kinds) if kind not in kinds[:i]]


def _batchings(stacked: dict[str, np.ndarray], turn: int, turns: int) -> list[Axes]:
    """The operands to batch alone in this turn, and all together."""
    differ = [name for name, values in stacked.items() if np.any(values[0] != values[-1])]
    alone: list[Axes] = [{n: 0 if n == name else None for n in stacked} for name in differ]
    together: Axes = dict.fromkeys(stacked, 0)
    return [together] if alone == [together] else [*alone[turn::turns], together]


def _all_batchings(graphs: list[Graph], data: list[dict[str, np.ndarray]]) -> list[list[Axes]]:
    """The batchings of each row."""
    kinds = [_kind(graph) for graph in graphs]
    found = []
    for i, (kind, stacked) in enumerate(zip(kinds, data, strict=True)):
        shared = "narrow float" in kind
        turn, turns = (kinds[:i].count(kind), kinds.count(kind)) if shared else (0, 1)
        found.append(_batchings(stacked, turn, turns))
    return found


def _pick(stacked: dict[str, np.ndarray], axes: Axes, example: int) -> Operands:
    """The operands of one example; operands that are not batched come from example 0."""
    return {
        name: to_device(values[0 if axes[name] is None else example])
        for name, values in stacked.items()
    }


@pytest.mark.parametrize("operator", COMPUTING, ids=lambda operator: operator.name)
def test_jit_is_eager_and_vmap_is_a_loop(operator):
    rng = np.random.default_rng(len(operator.name))
    graphs = [legal_graph(operator, row, **SMALL.get(operator.name, {})) for row in operator.types]
    functions = [_function(graph) for graph in graphs]
    data = [draw_operands(operator, graph, rng) for graph in graphs]
    batchings = _all_batchings(graphs, data)

    @jax.jit
    def plain(rows: list[Operands]) -> list[Any]:
        return [f(operands) for f, operands in zip(functions, rows, strict=True)]

    @jax.jit
    def mapped(rows: list[list[Operands]]) -> list[list[Any]]:
        return [
            [
                jax.vmap(f, in_axes=(axes,))(operands)
                for axes, operands in zip(batching, each, strict=True)
            ]
            for f, batching, each in zip(functions, batchings, rows, strict=True)
        ]

    first = [_pick(d, b[-1], 0) for d, b in zip(data, batchings, strict=True)]
    compiled = plain(first)
    for i in _firsts([_kind(graph) for graph in graphs]):
        exact = operator.name not in FUSED or not graphs[i].output_tensors[0].dtype.is_float
        note = f"{operator.types[i].mode}, eager"
        _assert_same(compiled[i], functions[i](first[i]), note, exact)
    batched = [
        [
            {n: to_device(v if axes[n] == 0 else v[0]) for n, v in stacked.items()}
            for axes in batching
        ]
        for stacked, batching in zip(data, batchings, strict=True)
    ]
    results = mapped(batched)
    count = max(len(batching) for batching in batchings)
    for at in range(count):
        chosen = [batching[min(at, len(batching) - 1)] for batching in batchings]
        for example in range(EXAMPLES):
            rows = [_pick(d, axes, example) for d, axes in zip(data, chosen, strict=True)]
            for i, (alone, row) in enumerate(zip(plain(rows), operator.types, strict=True)):
                found = results[i][min(at, len(batchings[i]) - 1)]
                names = [name for name, axis in chosen[i].items() if axis == 0]
                exact = not (
                    graphs[i].output_tensors[0].dtype.is_float
                    and _is_reordered(operator.name, names)
                )
                one = [np.asarray(part)[example] for part in found]
                _assert_same(one, alone, f"{row.mode}, batched {names}", exact)


def _is_reordered(operator: str, batched: list[str]) -> bool:
    """Whether XLA may add float products in another order where these operands are batched."""
    alone = len(batched) == 1 and batched[0] in REORDERED_ALONE.get(operator, ())
    return alone or REORDERED.get(operator) in batched


def _assert_same(result, expected, note: str, exact: bool) -> None:
    """Asserts equal bits, or a few roundings of sums that are less than 2**10."""
    for found, wanted in zip(result, expected, strict=True):
        try:
            if exact:
                assert_identical(found, wanted)
            else:
                _assert_rounded(np.asarray(found), np.asarray(wanted))
        except AssertionError as error:
            raise AssertionError(f"{note}: {error}") from None


def _assert_rounded(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.dtype == wanted.dtype
    step = 2.0 ** -fraction_bits(found.dtype)
    np.testing.assert_allclose(widen(found), widen(wanted), rtol=step, atol=2.0**-14)
