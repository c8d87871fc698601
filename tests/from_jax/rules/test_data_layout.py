"""Primitives that move elements, beside JAX: exact for every element type, and few nodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import tosajax
from tosajax import UnsupportedError
from tosajax.from_jax.export import export
from tosajax.from_jax.rules.data_layout import RULES

pytestmark = pytest.mark.usefixtures("quick")

TYPES = ["bool", "int8", "int16", "int32", "float32", "float16", "bfloat16"]
FP8 = ["float8_e4m3fn", "float8_e5m2"]
_ONES = np.ones((2, 6, 5), np.float32)


def _numbers(shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).integers(-100, 100, shape)
    return jnp.asarray(values % 2 if dtype == "bool" else values).astype(dtype)


PRIMITIVES = {
    "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (3, 2, 6, 5), (1, 2, 3)),
    "concatenate": lambda x: lax.concatenate([x, x[:, :1], x], 1),
    "copy": jnp.copy,
    "iota": lambda x: x + lax.broadcasted_iota(x.dtype, x.shape, 1),
    "pad": lambda x: lax.pad(x, jnp.ones((), x.dtype), ((1, 2, 0), (0, 0, 1), (-1, 3, 2))),
    "reshape": lambda x: (lax.reshape(x, (5, 12)), lax.reshape(x, (12, 5), (2, 0, 1))),
    "rev": lambda x: lax.rev(x, (0, 2)),
    "slice": lambda x: (x[:, 1:4], x[:, ::2], x[1:, 1::2, 1::3], x[:, ::5, ::-2]),
    "split": lambda x: lax.split(x, (1, 2, 3), 1),
    "squeeze": lambda x: lax.squeeze(x[:1], (0,)),
    "stack": lambda x: (jnp.stack([x, x[::-1]], 1), jnp.stack([x[0, 0, 0], x[0, 1, 0]])),
    "tile": lambda x: (lax.tile(x, (2, 1, 3)), lax.tile(x[:, :1], (1, 4, 2))),
    "transpose": lambda x: lax.transpose(x, (2, 0, 1)),
    "unstack": lambda x: (*jnp.unstack(x, axis=1)[::2], *jnp.unstack(x[0, 0])),
}


def test_every_rule_is_tested():
    assert PRIMITIVES.keys() == RULES.keys()


@pytest.mark.parametrize("name", PRIMITIVES)
def test_the_primitive_is_the_one_that_is_named(name):
    assert f" {name}" in str(jax.make_jaxpr(PRIMITIVES[name])(_ONES))


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dtype):
    def all_of(x):
        skipped = {"iota"} if dtype == "bool" else set()
        return [fn(x) for name, fn in PRIMITIVES.items() if name not in skipped]

    agrees(all_of, _numbers((2, 6, 5), dtype), model=True)


@pytest.mark.parametrize("dtype", FP8)
def test_fp8(dtype):
    def all_of(x):
        names = PRIMITIVES.keys() - {"iota"}  # TOSA does not add FP8.
        return [PRIMITIVES[name](x) for name in sorted(names)]

    agrees(all_of, _numbers((2, 6, 5), dtype), model=True)


SLICE3, PAD3 = ["RESHAPE", "SLICE", "RESHAPE"], ["RESHAPE", "PAD", "RESHAPE"]
NODES = {
    "copy": (jnp.copy, ["IDENTITY"]),
    "rev": (lambda x: x[::-1, :, ::-1], ["REVERSE", "REVERSE"]),
    "every second": (lambda x: x[:, ::2], SLICE3),
    "every second of an odd number": (lambda x: x[..., ::2], ["PAD", *SLICE3]),
    "every second but the last": (lambda x: x[..., 1::2], ["SLICE", *SLICE3]),
    "every second from the third": (lambda x: x[..., 2::2], ["SLICE", *SLICE3]),
    "along two axes": (lambda x: x[:, ::3, :4:2], ["SLICE", *SLICE3]),
    "a stride that is one element": (lambda x: x[:, ::6], ["SLICE"]),
    "backwards": (lambda x: x[:, ::-2], [*SLICE3, "REVERSE"]),
    "roll": (lambda x: jnp.roll(x, 2, 1), ["SLICE", "SLICE", "CONCAT"]),
    "roll by nothing": (lambda x: jnp.roll(x, 6, 1), ["IDENTITY"]),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 1), (2, 0))), ["PAD"]),
    "pad between": (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (0, 1, 1), (0, 0, 0))), PAD3),
    "pad less": (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (-1, -2, 0), (0, 0, 0))), ["SLICE"]),
    "zeros around": (
        lambda x: jnp.concatenate([jnp.zeros((2, 1, 5)), x, jnp.zeros((2, 2, 5))], 1),
        ["PAD"],
    ),
    "with nothing": (lambda x: jnp.concatenate([x[:, :0], x, x[:, 6:]], 1), ["IDENTITY"]),
    "constants": (
        lambda x: jnp.concatenate([jnp.ones((2, 1, 5)), jnp.zeros((2, 1, 5)), x], 1),
        ["CONCAT"],
    ),
    "repeated by an operator": (lambda x: jnp.tile(x[:1], (2, 1, 1)) + x, ["SLICE", "ADD"]),
    "repeated pieces": (
        lambda x: jnp.concatenate([jnp.broadcast_to(x[:1], (2, 6, 5))] * 2, 1) + 1,
        ["SLICE", "CONCAT", "ADD", "TILE"],
    ),
    "tile": (lambda x: jnp.tile(x, (2, 1, 3)), ["TILE"]),
    "split": (lambda x: jnp.split(x, 3, 1), ["SLICE", "SLICE", "SLICE"]),
    "iota": (lambda x: x + lax.broadcasted_iota(jnp.float32, (2, 6, 5), 1), ["ADD"]),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_are_as_few_as_by_hand(name):
    fn, wanted = NODES[name]
    assert operators(export(fn, _ONES)) == wanted


def test_what_is_short_is_right():
    agrees(lambda x: [fn(x) for fn, _ in NODES.values()], _numbers((2, 6, 5)), model=True)


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_random_slices_and_pads(data):
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    slices, configs = [], []
    for n in shape:
        start = data.draw(st.integers(0, n - 1))
        limit = data.draw(st.integers(start + 1, n))
        slices.append((start, limit, data.draw(st.integers(1, 4))))
        low, interior = data.draw(st.integers(-n, 3)), data.draw(st.integers(0, 2))
        least = 1 - (n + (n - 1) * interior + low)
        configs.append((low, data.draw(st.integers(least, max(least, 2))), interior))

    def moved(x):
        return lax.slice(x, *zip(*slices, strict=True)), lax.pad(x, jnp.int32(7), configs)

    agrees(moved, _numbers(shape, "int32"))


def test_slices_of_what_is_known():
    """They are constants, of the elements that `lax.slice` takes."""
    known = np.arange(35, dtype=np.float32).reshape(7, 5)

    def moved(x, y, z):
        doubled = jnp.asarray(known) * 2
        return (
            x + lax.slice(doubled, (1, 0), (7, 5), (2, 3)),
            y + lax.slice(doubled, (0, 4), (6, 5), (5, 1)),
            z + lax.slice(doubled, (2, 1), (5, 5), (1, 4)),
        )

    inputs = [jnp.ones(shape) for shape in ((3, 2), (2, 1), (3, 1))]
    agrees(moved, *inputs)
    graph = tosajax.export(moved, *inputs)
    assert [node.op for node in graph.nodes if not node.op.startswith("CONST")] == ["ADD"] * 3


def test_equal_rows_are_padded_once():
    def fn(x):
        return lax.pad(jnp.broadcast_to(x, (5, 4)), 7.0, ((0, 0, 0), (1, 1, 0)))

    assert operators(agrees(fn, _numbers((1, 4)))) == ["PAD", "TILE"]


def test_an_interior_that_one_element_does_not_have():
    graph = agrees(lambda x: lax.pad(x, 7.0, ((1, 2, 3), (0, 0, 0))), _numbers((1, 4)))
    assert operators(graph) == ["PAD"]


def test_pads_with_a_number_of_the_graph():
    def padded(x, number):
        config = ((1, 0, 0), (0, -1, 2), (0, 0, 0))
        return lax.pad(x, number, config), lax.pad(x[:0], number, ((2, 1, 0), *config[1:]))

    agrees(padded, _numbers((2, 6, 5)), jnp.float32(3.5), model=True)


def test_signed_zeros_stay():
    def moved(x):
        zeros = jnp.zeros((1,))
        return jnp.concatenate([-zeros, x, zeros]), lax.pad(x, -0.0, ((1, 1, 1),))

    x = jnp.float32([1, -0.0, 0.0])
    graph = export(moved, x)
    for ours, theirs in zip(tosajax.compile(graph)(np.asarray(x)), moved(x), strict=True):
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


def test_more_operands_than_a_concat_has():
    graph = agrees(lambda x: lax.concatenate([x * i for i in range(130)], 0), _numbers((2, 3)))
    assert [op for op in operators(graph) if op != "MUL"] == ["CONCAT"] * 4


def test_more_axes_than_the_level_has():
    ones, more = (2,) * 7, (1, 1, 2, 1, 1, 1, 1)

    def moved(x):
        y = x.reshape(ones)
        return [
            part.reshape(-1)
            for part in (
                jnp.transpose(y, (6, 4, 5, 3, 2, 1, 0)) + 1,
                jnp.transpose(y, (0, 1, 2, 4, 3, 5, 6)) * y[:, :, :, :1],
                jnp.transpose(y, (0, 1, 3, 2, 4, 5, 6)) * y[0, 0, :, 0, 0, 0, 0].reshape(more),
                y[:, :, :, 1:, :, :1],
                y[:, ::2, :, :, ::2],
                lax.rev(y, (1, 4)),
                lax.pad(y, 3.0, ((0, 0, 0),) * 2 + ((1, 2, 1),) + ((0, 0, 0),) * 4),
                lax.concatenate([y, y + 1], 3),
                lax.tile(y, (1, 2, 1, 1, 3, 1, 1)),
                jnp.broadcast_to(y[:, :, :1, :, :, :1], ones),
            )
        ]

    graph = agrees(moved, _numbers((128,)), target="PRO-INT+PRO-FP@8K")
    assert max(len(tensor.shape or ()) for tensor in graph.tensors.values()) <= 6


def test_nothing_vanishes_and_nothing_to_return_is_an_error():
    def sums(x):
        return x + x[:, :0].sum(1, keepdims=True), jnp.concatenate([x, x[:0]]) * 2

    assert sorted(operators(agrees(sums, _numbers((2, 6, 5))))) == ["ADD", "MUL"]
    with pytest.raises(UnsupportedError, match=r"shape \(2, 0, 5\), expected at least one element"):
        export(lambda x: x[:, 3:3], _ONES)


def test_numbers_between_elements_of_many_axes():
    x = _numbers((2, 3, 5, 4))
    agrees(lambda x: lax.pad(x, 7.0, ((1, 0, 1), (0, 0, 2), (0, 1, 1), (0, 0, 1))), x)
    x = _numbers((2, 3, 2, 4, 2))
    graph = agrees(lambda x: lax.pad(x, 7.0, ((0, 0, 1),) * 5), x)
    assert max(len(tensor.shape or ()) for tensor in graph.tensors.values()) <= 6


def test_constants_stay_small():
    def masked(x):
        big = jnp.zeros((2, 600, 500))
        return (
            x
            + lax.rev(big, (0,))[:, ::2, 1:101][:, :6, :5]
            + lax.split(big, (594, 6), 1)[1][..., :5]
        )

    graph = agrees(masked, _numbers((2, 6, 5)))
    assert max(np.size(t.values) for t in graph.tensors.values() if t.values is not None) <= 3
