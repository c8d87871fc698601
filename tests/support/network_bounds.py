"""The accuracy of every float operator of a network, on the tensors of the network.

The specification bounds the error of single operators; a sequence of operators is compliant when
each of them is. So each node runs on values that our nodes before it computed, and its result is
compared with float64 by the rule of its operator. Operators that only move, select or compare
values are exact and have their own tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import lax
from oracle import elementwise_oracle as elementwise
from oracle import float_bounds

from tosajax import Graph, Node
from tosajax.checks import Call
from tosajax.lowering.build import build

_UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "EXP": (np.exp, elementwise.exp_bound),
    "SIGMOID": (elementwise.sigmoid, elementwise.sigmoid_bound),
    "TANH": (np.tanh, elementwise.tanh_bound),
    "ERF": (elementwise.erf, elementwise.units(5)),
    "LOG": (np.log, elementwise.log_bound),
    "RSQRT": (elementwise.rsqrt, elementwise.units(2)),
    "RECIPROCAL": (np.reciprocal, elementwise.units(1)),
}
_BINARY = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply}


def worst(graph: Graph, inputs: list[np.ndarray]) -> tuple[float, str]:
    """The largest error of a float operator as a share of its bound, and its node."""
    shares = [(0.0, "")]
    for node, values in _trace(graph, inputs):
        share = _share(Call(node, graph.tensors), values)
        if share is not None:
            shares.append((share, node.title))
    return max(shares)


def _trace(graph: Graph, inputs: list[np.ndarray]) -> Iterator[tuple[Node, dict[str, np.ndarray]]]:
    """Every float node with the values of all tensors so far.

    Each node is compiled by itself: within one program XLA keeps the extra precision of a product
    for the sum that follows. The specification allows that, but it belongs to no single operator.
    """
    values = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.ordered_nodes():
        for name in node.outputs if node.op == "CONST" else ():
            values[name] = np.asarray(graph.tensors[name].values)
        if node.op in ("CONST", "CONST_SHAPE"):
            continue
        names = [n for n in node.inputs if n in values]
        program, params = build(_only(graph, node, tuple(names)))
        _, _, found = jax.jit(program)(params, {}, *(values[n] for n in names))
        values.update(zip(node.outputs, map(np.asarray, found), strict=True))
        if graph.tensors[node.outputs[0]].dtype.is_float:
            yield node, values


def _only(graph: Graph, node: Node, inputs: tuple[str, ...]) -> Graph:
    shapes = (n for n in graph.nodes if n.op == "CONST_SHAPE")
    return Graph(inputs, node.outputs, graph.tensors, (*shapes, node))


def _share(call: Call, values: dict[str, np.ndarray]) -> float | None:
    """The largest error of a node as a share of its bound; None for exact operators."""
    op = call.node.op
    result = values[call.output.name]
    if op in _UNARY:
        x = values[call.node.inputs[0]]
        reference, bound = _UNARY[op]
        wide = float_bounds.widen(x)
        with np.errstate(all="ignore"):
            expected = reference(wide)
            return _largest(result, expected, bound(result.dtype, expected, wide))
    if op in _BINARY:
        a, b = (float_bounds.widen(values[n]) for n in call.node.inputs[:2])
        expected = _BINARY[op](a, b)
        return _largest(result, expected, 0.5 * float_bounds.ulp(result.dtype, expected))
    dot = _dot_product(call, values)
    if dot is None:
        return None
    expected, magnitude, length, biased = dot
    return _largest(result, expected, _dot_bound(call, result, magnitude, length, biased))


def _largest(result: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> float:
    error = np.abs(float_bounds.widen(result) - expected)
    # Results below the smallest normal number may be flushed to zero.
    flushed = (result == 0) & (np.abs(expected) - bound < float_bounds.normal_min(result.dtype))
    finite = np.isfinite(expected) & ~flushed
    with np.errstate(all="ignore"):
        share = np.where(error == 0, 0.0, error / bound)
    return float(np.max(share, where=finite, initial=0.0))


def _dot_bound(
    call: Call, result: np.ndarray, magnitude: np.ndarray, length: int, biased: bool
) -> np.ndarray:
    """TOSA 1.0.1, "Dot product accuracy requirements"."""
    out = result.dtype
    acc = np.dtype(np.float32)  # bf16 adds up in fp32; fp16 may, at the bound of fp16
    if out == np.float16:
        acc = out
    bits = float_bounds.fraction_bits
    steps = math.ceil(length / 2 ** ((bits(acc) - bits(out)) / 2)) + biased
    unit = np.maximum(magnitude * 2.0 ** (-1 - bits(out)), float_bounds.normal_min(out))
    return 2 * steps * unit


def _dot_product(
    call: Call, values: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, int, bool] | None:
    """Result and sum of magnitudes in float64, products in each element, and: is there a bias?"""
    names = {t.name: float_bounds.widen(values[t.name]) for t in _float_inputs(call)}
    match call.node.op:
        case "CONV2D" | "DEPTHWISE_CONV2D" | "TRANSPOSE_CONV2D":
            x, w, b = (names[t.name] for t in (call.input, call.weight, call.bias))
            length = w[0].size if call.node.op != "DEPTHWISE_CONV2D" else w[..., 0, 0].size
            run = _CONVOLUTIONS[call.node.op]
            return run(call, x, w) + b, run(call, abs(x), abs(w)) + abs(b), length, bool(b.any())
        case "MATMUL":
            a, b = names[call.a.name], names[call.b.name]
            return a @ b, abs(a) @ abs(b), a.shape[2], False
        case "REDUCE_SUM":
            x = names[call.input.name]
            total = x.sum(axis=call.axis, keepdims=True)
            return total, abs(x).sum(axis=call.axis, keepdims=True), x.shape[call.axis], False
        case "AVG_POOL2D":
            x = names[call.input.name]
            return _average(call, x), _average(call, abs(x)), math.prod(call.kernel), False
    return None


def _float_inputs(call: Call):
    found = (getattr(call, a.name) for a in call.operator.inputs)
    return [t for t in found if not isinstance(t, tuple) and t.dtype.is_float]


def _in_float64(function: Callable[..., jax.Array]) -> Callable[..., np.ndarray]:
    def run(call: Call, *arrays: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            wide = (jax.numpy.asarray(a, dtype=np.float64) for a in arrays)
            return np.asarray(function(call, *wide))

    return run


def _pairs(pad: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(pad[0::2], pad[1::2], strict=True))


@_in_float64
def _conv2d(call: Call, x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(
        x, w, call.stride, _pairs(call.pad), rhs_dilation=call.dilation,
        dimension_numbers=("NHWC", "OHWI", "NHWC"),
    )  # fmt: skip


@_in_float64
def _depthwise(call: Call, x: jax.Array, w: jax.Array) -> jax.Array:
    kh, kw, channels, multiplier = w.shape
    return lax.conv_general_dilated(
        x, w.reshape(kh, kw, 1, channels * multiplier), call.stride, _pairs(call.pad),
        rhs_dilation=call.dilation, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=channels,
    )  # fmt: skip


@_in_float64
def _transposed(call: Call, x: jax.Array, w: jax.Array) -> jax.Array:
    pads = [
        (k - 1 + low, k - 1 + high)
        for k, (low, high) in zip(w.shape[1:3], _pairs(call.out_pad), strict=True)
    ]
    return lax.conv_general_dilated(
        x, w[:, ::-1, ::-1], (1, 1), pads, lhs_dilation=call.stride,
        dimension_numbers=("NHWC", "OHWI", "NHWC"),
    )  # fmt: skip


_CONVOLUTIONS = {
    "CONV2D": _conv2d,
    "DEPTHWISE_CONV2D": _depthwise,
    "TRANSPOSE_CONV2D": _transposed,
}


@_in_float64
def _average(call: Call, x: jax.Array) -> jax.Array:
    def add_up(values: jax.Array) -> jax.Array:
        window, stride = (1, *call.kernel, 1), (1, *call.stride, 1)
        pads = [(0, 0), *_pairs(call.pad), (0, 0)]
        return lax.reduce_window(values, np.float64(0), lax.add, window, stride, pads)

    return add_up(x) / add_up(jax.numpy.ones_like(x))
