"""Every operator and type row: the gradient is that of a function of real numbers.

The functions stand here once more, in float64, beside their finite differences. At a kink a
gradient may be anything between the two one-sided differences; tests of single rules say what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import (
    conv_oracle,
    data_layout_oracle,
    elementwise_oracle,
    fft_oracle,
    image_oracle,
    legal_graphs,
    matmul_oracle,
    pool_oracle,
)
from oracle.device import to_device
from oracle.float_bounds import fraction_bits, normal_max
from oracle.legal_graphs import legal_graph
from oracle.operands import SMALL, draw_operands

import tosajax
from tosajax import DType, Graph, spec
from tosajax.grad import QTensor
from tosajax.grad.qtensor import payload, shadow
from tosajax.spec.enums import ResizeMode

pytestmark = pytest.mark.usefixtures("quick")

Real = Callable[..., Any]
Arrays = dict[str, np.ndarray]

# Functions of the operands, the type of the output, and attributes.


def level(*_: Any, **__: Any) -> float:
    return 0.0


def avg_pool2d(x, input_zp, output_zp, *, dtype, kernel, stride, pad, **_):
    mean = pool_oracle.avg_pool_float(x - input_zp, kernel=kernel, stride=stride, pad=pad)
    return np.clip(mean + output_zp, *limits(dtype))


def max_pool2d(x, *, kernel, stride, pad, **_):
    return pool_oracle.max_pool(x, kernel=kernel, stride=stride, pad=pad)


def convolution(of: Callable[..., np.ndarray]) -> Real:
    def real(*operands, dtype, acc_type, local_bound=False, **attributes):
        return of(*operands, **attributes)

    return real


def clamp(x, *, min_val, max_val, **_):
    return np.clip(x, float(min_val), float(max_val))


def cast(x, *, dtype):
    return np.clip(x, *limits(dtype))


def negate(x, input1_zp, output_zp, *, dtype):
    return np.clip(output_zp - (x - input1_zp), *limits(dtype))


def rescale(x, scale, shift, input_zp, output_zp, *, dtype, **_):
    """The shadow of the multiplier stands for the scale."""
    return np.clip((x - input_zp) * scale + output_zp, *limits(dtype))


def table(x, entries, **_):
    """Part of a line through two entries; of int8 one fitted to 9, which x alone moves along."""
    if entries.size == 513:
        position = (x + 32768) / 128
        at = np.clip(np.floor(position).astype(int), 0, 511)
        return 128 * (entries[at] + (entries[at + 1] - entries[at]) * (position - at))
    whole = np.rint(x)
    at = (whole + 128).astype(int)
    near = [np.arange(max(0, n - 4), min(255, n + 4) + 1) for n in at.flat]
    slopes = [np.polyfit(n, np.rint(entries[n]), 1)[0] for n in near]
    return entries[at] + np.reshape(slopes, x.shape) * (x - whole)


def rfft2d(x, **_):
    columns = x.shape[2] // 2 + 1
    return [part[:, :, :columns] for part in fft_oracle.transform(x, 0 * x)]


def resize(x, scale, offset, border, *, mode, dtype):
    """Bilinear results of integers stay scaled up."""
    bilinear = mode == ResizeMode.BILINEAR
    unit = scale[0] * scale[2] if bilinear and dtype.is_integer else 1
    return unit * image_oracle.resize(x, scale, offset, border, bilinear=bilinear)


def gather(values, indices, **_):
    return data_layout_oracle.gather(values, np.rint(indices).astype(int))


def scatter(values_in, indices, rows, **_):
    return data_layout_oracle.scatter(values_in, np.rint(indices).astype(int), rows)


REAL: dict[str, Real] = {
    **dict.fromkeys(("ARGMAX", "BITWISE_AND", "BITWISE_NOT", "BITWISE_OR", "BITWISE_XOR"), level),
    **dict.fromkeys(("CEIL", "CLZ", "FLOOR", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"), level),
    "AVG_POOL2D": avg_pool2d,
    "MAX_POOL2D": max_pool2d,
    "CONV2D": convolution(conv_oracle.conv),
    "CONV3D": convolution(conv_oracle.conv),
    "DEPTHWISE_CONV2D": convolution(conv_oracle.depthwise),
    "TRANSPOSE_CONV2D": convolution(conv_oracle.transpose),
    "FFT2D": lambda real, imag, *, inverse, **_: fft_oracle.transform(real, imag, inverse=inverse),
    "RFFT2D": rfft2d,
    "MATMUL": lambda a, b, a_zp, b_zp, **_: matmul_oracle.matmul(a - a_zp, b - b_zp),
    "MATMUL_T": lambda a, b, a_zp, b_zp, **_: matmul_oracle.matmul_t(a - a_zp, b - b_zp),
    "CLAMP": clamp,
    "ERF": lambda x, **_: elementwise_oracle.erf(x),
    "SIGMOID": lambda x, **_: elementwise_oracle.sigmoid(x),
    "TANH": lambda x, **_: np.tanh(x),
    "ADD": lambda a, b, **_: a + b,
    "ARITHMETIC_RIGHT_SHIFT": lambda a, b, **_: a * 2.0 ** -np.rint(b),
    "INTDIV": lambda a, b, **_: a / b,
    "MAXIMUM": lambda a, b, **_: np.maximum(a, b),
    "MINIMUM": lambda a, b, **_: np.minimum(a, b),
    "MUL": lambda a, b, shift, **_: a * b * 2.0 ** -np.rint(shift),
    "POW": lambda a, b, **_: a**b,
    "SUB": lambda a, b, **_: a - b,
    "TABLE": table,
    "ABS": lambda x, **_: np.abs(x),
    "COS": lambda x, **_: np.cos(x),
    "EXP": lambda x, **_: np.exp(x),
    "LOG": lambda x, **_: np.log(x),
    "NEGATE": negate,
    "RECIPROCAL": lambda x, **_: 1 / x,
    "RSQRT": lambda x, **_: x**-0.5,
    "SIN": lambda x, **_: np.sin(x),
    "SELECT": lambda choice, a, b, **_: np.where(choice, a, b),
    "REDUCE_MAX": lambda x, *, axis, **_: x.max(axis, keepdims=True),
    "REDUCE_MIN": lambda x, *, axis, **_: x.min(axis, keepdims=True),
    "REDUCE_PRODUCT": lambda x, *, axis, **_: x.prod(axis, keepdims=True),
    "REDUCE_SUM": lambda x, *, axis, **_: x.sum(axis, keepdims=True),
    "CONCAT": lambda *inputs, axis, **_: np.concatenate(inputs, axis),
    "PAD": lambda x, padding, value, **_: data_layout_oracle.pad(x, padding, value.item()),
    "RESHAPE": lambda x, shape, **_: x.reshape(shape),
    "REVERSE": lambda x, *, axis, **_: np.flip(x, axis),
    "SLICE": lambda x, start, size, **_: data_layout_oracle.slice(x, start, size),
    "TILE": lambda x, multiples, **_: np.tile(x, multiples),
    "TRANSPOSE": lambda x, *, perms, **_: x.transpose(perms),
    "GATHER": gather,
    "SCATTER": scatter,
    "RESIZE": resize,
    "CAST": cast,
    "RESCALE": rescale,
    "IDENTITY": lambda x, **_: x,
}
# Evaluated at the shadows, as these choose by them or carry them along; others at the integers.
BY_SHADOW = {"CLAMP", "MAXIMUM", "MINIMUM", "MAX_POOL2D", "REDUCE_MAX", "REDUCE_MIN"}
CARRYING = {"data_layout", "data_nodes", "elementwise_ternary", "scatter_gather"}
POSITIVE = {"LOG", "POW", "RSQRT"}
# With second derivatives, in one type row; of other operators those of integers are 0.
CONVOLUTIONS = ("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")
CURVED = {
    **dict.fromkeys((*CONVOLUTIONS, "MATMUL", "MATMUL_T"), "signed 8x8 with int32 accumulate"),
    "INTDIV": "signed 32",
    "MUL": "signed 32",
    "RESCALE": "8-bit to 8-bit",
    "TABLE": "signed 16",
}
# Few copies of the constant, whose gradients add up in its type.
CHANGES = SMALL | {"PAD": {"padding": [1, 0, 0, 1], "output": (3, 4)}}


def smooth_rows(operator: spec.Operator) -> list[spec.TypeRow]:
    """The type rows whose results, and operands beside a condition, are not bool."""
    ends = [argument.dtype for argument in (*operator.inputs[-1:], *operator.outputs[:1])]
    return [
        row for row in operator.types if DType.BOOL not in [row.types.get(str(d), d) for d in ends]
    ]


def chosen_rows(operator: spec.Operator) -> list[spec.TypeRow]:
    """Smooth rows, but of those with floats of equal widths the first; casts saturate by type."""

    def widths(row: spec.TypeRow) -> list[Any]:
        types = [row.types.get(str(a.dtype)) for a in (*operator.inputs, *operator.outputs)]
        return [t.bits if isinstance(t, DType) and t.is_float else t for t in types]

    rows = smooth_rows(operator)
    if operator.name == "CAST":
        return rows
    return [row for i, row in enumerate(rows) if widths(row) not in map(widths, rows[:i])]


OPERATORS = [
    operator for operator in legal_graphs.OPERATORS if operator.inputs and smooth_rows(operator)
]


def test_every_operator_is_here():
    assert {operator.name for operator in OPERATORS} == set(REAL)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_gradients_are_those_of_the_surrogate(operator):
    rng = np.random.default_rng(len(operator.name))
    rows = chosen_rows(operator)
    graphs = [legal_graph(operator, row, **CHANGES.get(operator.name, {})) for row in rows]
    drawn = [draw_all(graph, rng) for graph in graphs]
    results = derivatives(graphs, drawn)
    for row, graph, (operands, _, along, weights), (outputs, slopes, moved) in zip(
        rows, graphs, drawn, results, strict=True
    ):
        at = point(graph, operands)
        if REAL[operator.name] is not level:
            for found, want, t in zip(
                outputs, surrogate(graph, at), graph.output_tensors, strict=True
            ):
                assert_rounded(found, want, t.dtype)
        loss = tolerance(graph)
        for name, found in slopes.items():
            found = np.asarray(found, np.float64)
            least, most = bounds(graph, at, name, weights)
            error = loss * max(abs(least).max(), abs(most).max())
            assert np.all((least - error <= found) & (found <= most + error)), (row.mode, name)
        size = sum(np.abs(slope).sum(dtype=np.float64) for slope in slopes.values())
        backward = sum(inner(slopes[name], along[name]) for name in slopes)
        forward = sum(map(inner, moved, weights))
        np.testing.assert_allclose(backward, forward, atol=loss * (1 + size), err_msg=row.mode)


@pytest.mark.parametrize("name", CURVED)
def test_second_derivatives_are_those_of_the_surrogate(name):
    rng = np.random.default_rng(len(name))
    operator = spec.OPERATORS[name]
    (row,) = (row for row in operator.types if row.mode == CURVED[name])
    graph = legal_graph(operator, row, **CHANGES.get(name, {}))
    operands = {n: with_shadow(x, rng) for n, x in draw(graph, rng).items()}
    reals = {n: shadow(x) for n, x in operands.items()}
    at = point(graph, operands)
    # Upwards, where the pieces of a table begin.
    first, second = (
        {n: rng.uniform(0.5, 1.5, x.shape) * np.minimum(abs(x), 1) for n, x in at.items()}
        for _ in "ab"
    )

    def product(along: Any, reals: Any) -> Any:
        def loss(reals: Any) -> jax.Array:
            return of_shadows(graph, operands, reals)[0].shadow.sum()

        return jax.jvp(jax.grad(loss), (reals,), (along,))[1]

    def loss(*moves: Arrays) -> float:
        moved = {n: x + sum(move[n] for move in moves) * 2.0**-7 for n, x in at.items()}
        return surrogate(graph, moved)[0].sum()

    want = (loss(first, second) - loss(first) - loss(second) + loss()) * 2.0**14
    for a, b in ((first, second), (second, first)):
        along = jax.tree.map(lambda x: jax.device_put(np.asarray(x, jnp.float32)), b)
        found = jax.jit(product)(along, reals)
        np.testing.assert_allclose(sum(inner(a[n], found[n]) for n in a), want, rtol=1e-2)


def draw(graph: Graph, rng: np.random.Generator) -> Arrays:
    """Values of every operand that is not a shape, by tensor name."""
    node, output = graph.nodes[-1], graph.output_tensors[0].dtype
    found = draw_operands(spec.OPERATORS[node.op], graph, rng)
    found = {name: values[-1] for name, values in found.items()}
    for name, x in found.items():
        dtype = graph.tensors[name].dtype
        if dtype.is_integer and node.op in BY_SHADOW:
            found[name] = x % x.dtype.type(4)  # so that many are equal
        if dtype.is_float and has_gradient(x):
            # Numbers of all types, each once where they are enough.
            several = np.outer([1, 1.25, 1.5, 1.75], [-1, -0.5, 0.5, 1, 2]).ravel()
            some = rng.permutation(np.resize(several, max(x.size, 20)))[: x.size].reshape(x.shape)
            found[name] = (abs(some) if node.op in POSITIVE else some).astype(dtype.storage)
    first = graph.tensors[node.inputs[0]].dtype
    if first.is_integer:
        found[node.inputs[0]].flat[0] = 0
    if spec.OPERATORS[node.op].chapter == "conv" and not first.is_float:
        found[node.inputs[2]] %= 1000  # large sums would hide small differences
    if node.op == "INTDIV":
        found[node.inputs[0]] *= np.int32(-1)
        found[node.inputs[1]] += np.int32(20)  # where the function bends little
    if node.op == "MUL" and first is DType.INT32:
        found[node.inputs[2]] += np.int8(5)
    if node.op == "RESCALE":
        _, multiplier, shift, *_ = node.inputs
        # Some results are out of range, but for those of 32 bits, which must not be. More than 32
        # bits of input would hide small differences.
        bits, unit = min(first.bits, 32), found[multiplier].itemsize * 8 - 2
        if first is DType.INT48:
            found[node.inputs[0]] %= 1 << 31
        down = max(bits - output.bits, bits - 30, 0)
        found[multiplier] = np.full_like(found[multiplier], 5 << (unit - 2))
        found[shift] = np.full_like(found[shift], unit + down)
    return found


def has_gradient(x: np.ndarray | jax.Array) -> bool:
    """Whether it is not a condition, and no zero point of floats."""
    integer = jnp.issubdtype(x.dtype, jnp.integer)
    return x.dtype != np.bool_ and (integer or x.shape != (1,) or bool(np.any(x)))


def with_shadow(values: np.ndarray, rng: np.random.Generator) -> Any:
    x = to_device(values)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return x
    return QTensor(
        x, jax.device_put(np.asarray(values + rng.uniform(-0.4, 0.4, values.shape), jnp.float32))
    )


def signs(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return jax.device_put(np.asarray(rng.choice([-1.0, 1.0], shape), dtype))


def real_type(dtype: DType) -> np.dtype:
    """Of a gradient."""
    return dtype.storage if dtype.is_float else np.dtype(np.float32)


def draw_all(graph: Graph, rng: np.random.Generator) -> tuple[dict, dict, dict, list]:
    """Operands, those that have a gradient, a direction of these, and weights of the outputs."""
    operands = {n: with_shadow(x, rng) for n, x in draw(graph, rng).items()}
    reals = {n: shadow(x) for n, x in operands.items() if has_gradient(payload(x))}
    along = {n: signs(rng, x.shape, x.dtype) for n, x in reals.items()}
    weights = [signs(rng, t.shape or (), real_type(t.dtype)) for t in graph.output_tensors]
    return operands, reals, along, weights


def derivatives(graphs: list[Graph], drawn: list[tuple[dict, dict, dict, list]]) -> Any:
    """Outputs, the gradient of their weighted sum, and their derivative in a direction.

    One program for all graphs, as each program costs more than its content.
    """

    def compute(graph: Graph, operands: dict, reals: dict, along: dict, weights: list) -> Any:
        def outputs(reals: dict) -> Any:
            found = of_shadows(graph, operands, reals)
            return [shadow(x) for x in found], found

        _, pull, found = jax.vjp(outputs, reals, has_aux=True)
        moved = jax.jvp(lambda reals: outputs(reals)[0], (reals,), (along,))[1]
        return found, pull(weights)[0], moved

    @jax.jit
    def compute_all(drawn: list) -> Any:
        return [compute(graph, *values) for graph, values in zip(graphs, drawn, strict=True)]

    return compute_all(drawn)


def of_shadows(graph: Graph, operands: Mapping[str, Any], reals: Mapping[str, Any]) -> Any:
    """The outputs; floats and shadows of the operands are replaced by others."""
    fn, params = tosajax.differentiable(graph)
    given = {
        name: QTensor(x.q, reals[name]) if isinstance(x, QTensor) else reals.get(name, x)
        for name, x in operands.items()
    }
    return fn({n: given[n] for n in params}, *(given[n] for n in graph.inputs))


def point(graph: Graph, operands: Mapping[str, Any]) -> Arrays:
    """Where the surrogate is evaluated: all operands as float64, conditions as they are."""
    node = graph.nodes[-1]
    carries = spec.OPERATORS[node.op].chapter in CARRYING
    nearest = node.attributes.get("mode") == ResizeMode.NEAREST_NEIGHBOR
    found = {}
    for name, x in operands.items():
        values = np.asarray(shadow(x) if node.op in BY_SHADOW or carries or nearest else payload(x))
        found[name] = values if values.dtype == np.bool_ else values.astype(np.float64)
    if node.op == "RESCALE":
        _, multiplier, shift, *_ = node.inputs
        found[multiplier] *= 2.0 ** -found[shift]
    return found


def surrogate(graph: Graph, at: Mapping[str, Any]) -> list[np.ndarray]:
    """The outputs, in float64."""
    node, outputs = graph.nodes[-1], graph.output_tensors
    operands = [at[n] if n in at else static(graph, n) for n in node.inputs]
    result = REAL[node.op](*operands, dtype=outputs[0].dtype, **node.attributes)
    results = result if isinstance(result, tuple | list) else [result]
    return [np.broadcast_to(r, t.shape or ()) for r, t in zip(results, outputs, strict=True)]


def static(graph: Graph, name: str) -> tuple[int, ...]:
    values = graph.tensors[name].values
    assert values is not None
    return tuple(values.tolist())


def limits(dtype: DType) -> tuple[float, float]:
    """The least and the largest number of a type."""
    if dtype.is_integer:
        return dtype.minimum, dtype.maximum
    return -normal_max(dtype.storage), normal_max(dtype.storage)


def bounds(graph: Graph, at: Arrays, name: str, weights: list) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most that the gradient of the weighted sum by an operand may be."""
    here = surrogate(graph, at)
    least, most = np.zeros_like(at[name]), np.zeros_like(at[name])
    for index in np.ndindex(least.shape):
        size = abs(at[name][index])
        step = max(min(size, 1) * 2.0**-10 or 2.0**-10, size * 2.0**-40)
        sides = []
        for by in (step, -step):
            moved = at[name].copy()
            moved[index] += by
            there = surrogate(graph, {**at, name: moved})
            rises = [(t - h) / by for t, h in zip(there, here, strict=True)]
            sides.append([np.float64(w) * r for w, r in zip(weights, rises, strict=True)])
        for ahead, behind in zip(*sides, strict=True):
            least[index] += np.minimum(ahead, behind).sum()
            most[index] += np.maximum(ahead, behind).sum()
    return least, most


def assert_rounded(found: Any, want: np.ndarray, dtype: DType) -> None:
    """Asserts that the surrogate is the shadow, and that integers are rounded from it."""
    low, high = limits(dtype)
    inside = (want > low) & (want < high)
    real = np.asarray(shadow(found))
    loss = 4 * 2.0 ** -fraction_bits(real.dtype) * (1 + abs(want[inside]).max(initial=0))
    np.testing.assert_allclose(real.astype(np.float64)[inside], want[inside], rtol=0, atol=loss)
    if isinstance(found, QTensor):
        assert np.all(np.abs(np.asarray(found.q)[inside] - want[inside]) <= 1 + loss)


def tolerance(graph: Graph) -> float:
    """Of derivatives, by the largest: roundings of the narrowest type."""
    types = [t.dtype for t in graph.tensors.values() if t.dtype.is_float]
    return 2.0 ** -min([9, *(fraction_bits(dtype.storage) for dtype in types)])


def inner(a: jax.Array, b: jax.Array) -> float:
    return float((np.float64(a) * np.float64(b)).sum())
