"""The cycles and the bytes of integer graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.graph.costs import arena_bytes, cycles
from tosajax.spec import RoundingMode
from tosajax.spec.rates import Rates

RNG = np.random.default_rng(2)
X = RNG.normal(size=(1, 4, 4, 8)).astype(np.float32)
# Products, elements and moves have digits of their own.
RATES = Rates(macs=1e-6, elements=1e-3, moves=1, wide=3)


def conv(kernel: int, depth: int = 8, outputs: int = 8, groups: int = 1) -> Callable[..., Any]:
    shape = kernel, kernel, depth // groups, outputs
    weight = RNG.normal(size=shape).astype(np.float32)
    return lambda x: jax.lax.conv_general_dilated(
        x, jnp.asarray(weight), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )  # fmt: skip


def frozen(function: Callable[..., Any], *rules: tq.Rule, x: np.ndarray = X) -> Graph:
    """The integer graph of a function of one input, or of two of different scales."""
    inputs = (x, np.float32(0.7) * x)[: function.__code__.co_argcount]
    model = tq.prepare(function, rules, example_args=inputs)
    return model.freeze(tq.calibrate(model, [inputs]))


INT16 = tq.rule(".*", act=tq.QSpec("i16"))


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (conv(3), 16 * 8 * 9 * 8 * 10**6),
        (conv(1), 16 * 8 * 8 * 10**6),
        (conv(3, groups=8), 16 * 8 * 9 * 10**6),
        (lambda x: x @ RNG.normal(size=(8, 5)).astype(np.float32), 16 * 5 * 8 * 10**6),
        (lambda x: jax.nn.relu(conv(1)(x)), 16 * 8 * 8 * 10**6),
        (lambda x: x + jax.nn.relu(conv(1)(x)), 16 * 8 * 8 * 10**6 + 128_000),
        (lambda x, y: x * y, 128_000),
        (lambda x: x.reshape(2, 64), 0),
        (lambda x: x.transpose(0, 3, 1, 2), 128),
        (lambda x: jax.nn.sigmoid(x), 128),  # a TABLE of an input
        (lambda x: jax.nn.sigmoid(conv(1)(x)), 16 * 8 * 8 * 10**6),
        (lambda x: x.max((1, 2)), 128),
        (lambda x: x.argmax(3), 128),
    ],
    ids=[
        "conv 3x3", "conv 1x1", "depthwise", "product", "relu", "residual", "square", "reshape",
        "transpose", "sigmoid", "sigmoid behind a product", "maximum", "index of the maximum",
    ],
)  # fmt: skip
def test_cycles(function, wanted):
    assert round(cycles(frozen(function), RATES)) == wanted


def test_int16_takes_longer_but_for_elements():
    assert cycles(frozen(conv(1), INT16), RATES) == pytest.approx(3 * 16 * 8 * 8 * 10**6)
    assert cycles(frozen(lambda x: x.transpose(0, 3, 1, 2), INT16), RATES) == 3 * 128
    assert cycles(frozen(lambda x, y: x * y, INT16), RATES) == pytest.approx(128_000)


@pytest.mark.parametrize(
    ("kernel", "depth", "groups", "filled"),
    [(3, 3, 1, 12 * 8), (3, 8, 1, 12 * 8), (3, 16, 1, 9 * 16), (3, 17, 1, 9 * 24), (1, 9, 1, 16),
     (3, 8, 8, 12 * 8), (5, 8, 8, 28 * 8)],
)  # fmt: skip
def test_kernels_are_filled_up(kernel, depth, groups, filled):
    """As Vela counts kernels of Ethos-U: depths to 8, and the elements of shallow ones to 4."""
    x = RNG.normal(size=(1, 4, 4, depth)).astype(np.float32)
    outputs = 8 if groups == 1 else depth
    rates = Rates(macs=1, elements=1, moves=1, depth=8, taps=4)
    graph = frozen(conv(kernel, depth, outputs, groups), x=x)
    assert cycles(graph, rates) == 16 * outputs * filled


def rescaled(b: Builder, x: Any, dtype: DType, name: str) -> Any:
    one, shift = b.const([2**30], DType.INT32), b.const([30], DType.INT8)
    zeros = (b.const([0], each) for each in (x.dtype, dtype))
    return b.op(
        "RESCALE", x, one, shift, *zeros, scale32=True, per_channel=False, input_unsigned=False,
        output_unsigned=False, rounding_mode=RoundingMode.SINGLE_ROUND, name=name,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        # Elements of the sum, and its RESCALEs where the three types differ: twice as many moves
        # for INT16, four times as many for INT32, but none for an operand of INT16.
        (("INT8", "INT8", "INT8"), 64_000),
        (("INT16", "INT16", "INT16"), 64_000),
        (("INT8", "INT16", "INT8"), 64_000 + 3 * 64 + 9 * 64),
        (("INT8", "INT8", "INT16"), 64_000 + 2 * 3 * 64 + 9 * 64),
    ],
)
def test_sums_of_mixed_types_are_rescaled_beforehand(types, wanted):
    b = Builder()
    first, second, third = (DType[name] for name in types)
    x, y = b.input("x", first, (64,)), b.input("y", second, (64,))
    total = b.op("ADD", *(rescaled(b, t, DType.INT32, f"{t.name}/wide") for t in (x, y)))
    graph = b.graph([rescaled(b, total, third, "sum")])
    assert round(cycles(graph, RATES)) == wanted


def test_a_rescale_of_its_own():
    b = Builder()
    x = b.input("x", DType.INT8, (64,))
    same = rescaled(b, x, DType.INT8, "same")
    assert cycles(b.graph([same]), RATES) == 64
    wide = rescaled(b, same, DType.INT16, "wide")
    assert cycles(b.graph([wide]), RATES) == 64 + 3 * 64


def clamped(b: Builder, x: Any, name: str) -> Any:
    return b.op("CLAMP", x, min_val=np.int8(-9), max_val=np.int8(9), name=name)


def test_what_others_read_as_well_is_a_step_of_its_own():
    """A RESCALE, and a CLAMP of what another node reads, or the user."""
    b = Builder()
    y = b.op("MUL", *(b.input(name, DType.INT8, (64,)) for name in "xy"), b.const([0], DType.INT8))
    small = rescaled(b, y, DType.INT8, "small")
    one = clamped(b, small, "one")
    assert cycles(b.graph([one]), RATES) == pytest.approx(64_000)
    assert arena_bytes(b.graph([one])) == 3 * 64
    shown = b.graph([one, small])
    assert cycles(shown, RATES) == pytest.approx(64_000 + 64)
    two = clamped(b, small, "two")
    assert cycles(b.graph([one, two]), RATES) == pytest.approx(64_000 + 2 * 64)
    both = b.graph([one, two, rescaled(b, y, DType.INT8, "other")])
    # Neither RESCALE of the product is part of it; of INT32, each takes nine times as long.
    assert cycles(both, RATES) == pytest.approx(64_000 + 2 * 9 * 64 + 2 * 64)


def test_what_is_moved_is_clamped_by_itself():
    b = Builder()
    x = b.input("x", DType.INT8, (8, 8))
    moved = b.op("TRANSPOSE", x, perms=[1, 0])
    assert cycles(b.graph([clamped(b, moved, "y")]), RATES) == 2 * 64
    same = b.op("IDENTITY", x)
    assert cycles(b.graph([clamped(b, same, "z")]), RATES) == 2 * 64 + 64


def test_operands_and_sums_without_rescales():
    """INT32 as it is beside what was INT8: types are mixed."""
    b = Builder()
    x, y = b.input("x", DType.INT8, (64,)), b.input("y", DType.INT32, (64,))
    total = b.op("ADD", rescaled(b, x, DType.INT32, "wide"), y)
    assert cycles(b.graph([total]), RATES) == pytest.approx(64_000 + 3 * 64)
    small = rescaled(b, total, DType.INT8, "small")
    assert cycles(b.graph([small]), RATES) == pytest.approx(64_000 + 3 * 64 + 9 * 64)
    assert cycles(b.graph([small, total]), RATES) == pytest.approx(64_000 + 3 * 64 + 9 * 64)


def test_a_loop_counts_once():
    layer = conv(1)

    def body(_: Any, x: jax.Array) -> jax.Array:
        return layer(x)

    graph = tosajax.export(lambda x: jax.lax.fori_loop(0, 3, body, x), X, max_unroll=1)
    model = tq.prepare(graph)
    loop = model.freeze(tq.calibrate(model, [X]))
    assert any(node.op == "WHILE_LOOP" for node in loop.nodes)
    once = cycles(frozen(layer), RATES)
    assert once <= cycles(loop, RATES) < 1.01 * once


# Bytes.


def test_activations_that_are_needed_at_once():
    """The input is needed for the sum; accumulators and rectified values take no memory."""
    graph = frozen(lambda x: x + jax.nn.relu(conv(1)(jax.nn.relu(conv(3)(x)))))
    assert arena_bytes(graph) == 3 * 128
    wide = tq.rule("^conv_general_dilated", act=tq.QSpec("i16"))
    assert arena_bytes(frozen(lambda x: conv(1)(conv(3)(x)))) == 2 * 128
    assert arena_bytes(frozen(lambda x: conv(1)(conv(3)(x)), wide)) == (1 + 2) * 128


def test_reshape_takes_no_memory_and_outputs_stay():
    graph = frozen(lambda x: (x.reshape(2, 64), x.transpose(0, 3, 1, 2)))
    assert arena_bytes(graph) == 2 * 128
    b = Builder()
    x = b.input("x", DType.INT16, (8,))
    assert arena_bytes(b.graph([x])) == 8 * 2
    wide = rescaled(b, x, DType.INT32, "wide")
    assert arena_bytes(b.graph([b.op("ABS", wide)])) == 8 * 4 + 8 * 4
    assert arena_bytes(b.graph([b.op("ABS", wide), x])) == 8 * 2 + 8 * 4 + 8 * 4


def test_constants_are_no_activations():
    b = Builder()
    x, table = b.input("x", DType.INT8, (8,)), b.const(np.zeros(256), DType.INT8)
    assert arena_bytes(b.graph([b.op("TABLE", x, table)])) == 16
