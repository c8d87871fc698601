"""Every operator and type row: jit is eager, and vmap over any operands is a loop, bit for bit.

The rows of an operator share two programs, so that few are compiled: one of the operator alone,
one of all its vmaps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.float_bounds import fraction_bits, widen
from oracle.legal_graphs import OPERATORS, legal_graph
from oracle.table_rows import boundaries
from oracle.transforms import assert_identical

from tosajax import DType, Graph, lower, spec
from tosajax.fixedpoint import _x64
from tosajax.graph import Tensor

EXAMPLES = 2
# Data of the graph: nothing is computed.
COMPUTING = [operator for operator in OPERATORS if operator.inputs]

# XLA fuses a product into a sum, which eager execution rounds by itself.
FUSED = {"DEPTHWISE_CONV2D", "RESIZE"}
# XLA adds up float products in another order where one of their operands is batched alone.
REORDERED = {"MATMUL": ("a", "b"), "CONV2D": ("weight",)}

# Windows of few taps, as each is an instruction to compile.
_CONV = {"pad": (1, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "bias": (2,)}
_POOL = {"input": (1, 2, 3, 2), "kernel": (2, 1), "stride": (1, 1), "pad": (1, 0, 0, 0)}
SMALL: dict[str, dict[str, Any]] = {
    "AVG_POOL2D": _POOL | {"output": (1, 2, 3, 2)},
    "MAX_POOL2D": _POOL | {"output": (1, 2, 3, 2)},
    "CONV2D": _CONV | {"input": (1, 2, 3, 2), "weight": (2, 2, 1, 2), "output": (1, 2, 3, 2)},
    "CONV3D": {
        "input": (1, 1, 2, 3, 2),
        "weight": (2, 1, 2, 1, 2),
        "bias": (2,),
        "pad": (0, 0, 1, 0, 0, 0),
        "stride": (1, 1, 1),
        "dilation": (1, 1, 1),
        "output": (1, 1, 2, 3, 2),
    },
    "DEPTHWISE_CONV2D": _CONV
    | {"input": (1, 2, 3, 2), "weight": (2, 1, 2, 1), "output": (1, 2, 3, 2)},
    "TRANSPOSE_CONV2D": {
        "input": (1, 2, 2, 2),
        "weight": (2, 2, 1, 2),
        "bias": (2,),
        "out_pad": (0, 0, 0, 0),
        "stride": (2, 1),
        "output": (1, 4, 2, 2),
    },
}

Operands = dict[str, jax.Array]
Axes = dict[str, int | None]


def test_operators_that_are_left_out():
    left = spec.OPERATORS.keys() - {operator.name for operator in COMPUTING}
    assert left == {
        *("CONST", "CONST_SHAPE", "CUSTOM", "COND_IF", "WHILE_LOOP"),
        *("VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"),
    }


def _draw(operator: str, name: str, tensor: Tensor, rng: np.random.Generator) -> np.ndarray:
    """EXAMPLES values of an operand, all of them predictable."""
    assert tensor.shape is not None
    dtype, shape = tensor.dtype, (EXAMPLES, *tensor.shape)
    steps = np.arange(EXAMPLES).reshape(-1, *(1 for _ in tensor.shape))
    if name == "indices":
        # SCATTER wants each index at most once.
        order = (np.arange(shape[-1]) + steps) % shape[-1]
        return np.broadcast_to(order, shape).astype(np.int32)
    if name == "input2" and "SHIFT" in operator:
        return rng.integers(0, 8, shape).astype(dtype.storage)
    if operator == "INTDIV":  # never 0, nor the least by -1
        return rng.integers(1, 100, shape).astype(dtype.storage)
    if tensor.values is not None:
        free = (dtype is DType.INT8 and name.endswith("_zp")) or name in ("multiplier", "pad_const")
        more = steps if free and dtype is not DType.BOOL else 0 * steps
        return (np.broadcast_to(tensor.values, shape) + more.astype(dtype.storage)).astype(
            dtype.storage
        )
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_float:
        return _floats(operator, dtype, shape, rng)
    narrow = {"input1", "input2"} >= {name} and operator in ("ADD", "SUB", "MUL", "REDUCE_SUM")
    return _integers(dtype, shape, rng, small=narrow)


def _floats(operator: str, dtype: DType, shape: tuple, rng: np.random.Generator) -> np.ndarray:
    values = rng.uniform(-4, 4, shape)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5]
    values = np.where(rng.random(shape) < 0.3, rng.choice(edges, shape), values)
    # One would spoil all of a transform, and a product with a zero between the inputs of
    # TRANSPOSE_CONV2D may be left out.
    if operator not in ("FFT2D", "RFFT2D", "TRANSPOSE_CONV2D"):
        special = [np.inf, -np.inf, np.nan]
        values = np.where(rng.random(shape) < 0.05, rng.choice(special, shape), values)
    with np.errstate(invalid="ignore"):
        return values.astype(dtype.storage)


def _integers(dtype: DType, shape: tuple, rng: np.random.Generator, *, small: bool) -> np.ndarray:
    if small and dtype in (DType.INT32, DType.INT48):  # whose sums would overflow
        return rng.integers(-1000, 1000, shape).astype(dtype.storage)
    edges = np.clip(boundaries(dtype.storage), dtype.minimum, dtype.maximum)
    values = rng.integers(dtype.minimum, dtype.maximum, shape, dtype=np.int64, endpoint=True)
    return np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), values).astype(dtype.storage)


def _to_device(values: np.ndarray) -> jax.Array:
    return _x64.from_numpy(values) if values.dtype == np.int64 else jnp.asarray(values)


def _function(graph: Graph) -> Callable[[Operands], tuple[jax.Array, ...]]:
    """The graph as a function of all operands, constants too."""
    fn, params = lower(graph)
    return lambda operands: fn(
        {name: operands[name] for name in params}, *(operands[name] for name in graph.inputs)
    )


def _batchings(stacked: dict[str, np.ndarray]) -> list[Axes]:
    """Each operand that may differ batched alone, and all together."""
    differ = [name for name, values in stacked.items() if np.any(values[0] != values[-1])]
    alone: list[Axes] = [{n: 0 if n == name else None for n in stacked} for name in differ]
    together: Axes = dict.fromkeys(stacked, 0)
    return alone if alone == [together] else [*alone, together]


def _pick(stacked: dict[str, np.ndarray], axes: Axes, example: int) -> Operands:
    """The operands of one example; what is not batched is that of example 0."""
    return {
        name: _to_device(values[0 if axes[name] is None else example])
        for name, values in stacked.items()
    }


@pytest.mark.parametrize("operator", COMPUTING, ids=lambda operator: operator.name)
def test_jit_is_eager_and_vmap_is_a_loop(operator):
    rng = np.random.default_rng(len(operator.name))
    graphs = [legal_graph(operator, row, **SMALL.get(operator.name, {})) for row in operator.types]
    functions = [_function(graph) for graph in graphs]
    data = [_operands(operator, graph, rng) for graph in graphs]
    batchings = [_batchings(stacked) for stacked in data]

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
    for i, row in enumerate(operator.types):
        exact = operator.name not in FUSED or not graphs[i].output_tensors[0].dtype.is_float
        _assert_same(compiled[i], functions[i](first[i]), f"{row.mode}, eager", exact)
    batched = [
        [
            {n: _to_device(v if axes[n] == 0 else v[0]) for n, v in stacked.items()}
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
                loose = names == names[:1] and names[0] in REORDERED.get(operator.name, ())
                exact = not loose or not graphs[i].output_tensors[0].dtype.is_float
                one = [part[example] for part in found]
                _assert_same(one, alone, f"{row.mode}, batched {names}", exact)


def _operands(
    operator: spec.Operator, graph: Graph, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """EXAMPLES values of every operand that is no shape, by tensor name."""
    node = graph.nodes[-1]
    names = [a.name for a in operator.inputs]
    names += names[-1:] * (len(node.inputs) - len(names))  # a tensor list is last
    return {
        tensor: _draw(operator.name, name, graph.tensors[tensor], rng)
        for tensor, name in zip(node.inputs, names, strict=True)
        if graph.tensors[tensor].dtype is not DType.SHAPE
    }


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
