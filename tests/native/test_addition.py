"""The native kernel of ADD and SUB equals its definition, on each instruction set here."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import native_calls
import numpy as np
import pytest
from native_calls import Pool
from native_sums import added, drawn, images, scaled

pytest.importorskip("llvmlite")

from tosajax.native import call, tiling
from tosajax.native.codegen import isa
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.operands import Rescaling

pytestmark = pytest.mark.usefixtures("quick")
SETS = [pytest.param(s, id=s.name) for s in isa.usable()]
BYTES = np.arange(-128, 128, dtype=np.int8)
EVERY_PAIR = np.repeat(BYTES, 256), np.tile(BYTES, 256)
ROUNDS = list(itertools.product([False, True], repeat=3))


@pytest.mark.parametrize("op", ["ADD", "SUB"])
@pytest.mark.parametrize("rounds", ROUNDS, ids=lambda r: "".join(str(1 + x) for x in r))
@pytest.mark.parametrize("s", SETS)
def test_every_pair_of_bytes(s: InstructionSet, rounds: tuple[bool, ...], op: str):
    for seed in range(6):
        scales, e = drawn(seed, rounds)
        fn = jax.jit(lambda *xs, scales=scales, e=e: call.run(call.add(s, op, xs, scales, e)))
        np.testing.assert_array_equal(fn(*EVERY_PAIR), added(op, EVERY_PAIR, scales, e))


# Converters scale to more bits first. Then follow factors below 1, and large and small shifts.
MORE_BITS = [(2**30, 10), (2**30, 11), (2**30, 16)]
NEXT = [(2**30 + 1, 31), (2**31 - 1, 32), (1623821475, 33), (2**30, 40), (1, 62), (0, 2)]


def twice(seed: int, doubles: tuple[bool, bool], which: str) -> Any:
    """Scales of an addition whose left, right or both operands are scaled twice."""
    rng = np.random.default_rng(seed)
    (left, right), e = drawn(seed)

    def again(s: call.Scaling, offset: int) -> call.Scaling:
        (m, n), (more, bits) = NEXT[(seed + offset) % len(NEXT)], MORE_BITS[rng.integers(3)]
        first = np.array([more], np.int32), np.array([bits], np.int8)
        then = Rescaling(np.array([m], np.int32), np.array([n], np.int8), doubles[1])
        return call.Scaling(s.zero_point, *first, doubles[0], then)

    left = left if which == "right" else again(left, 0)
    right = right if which == "left" else again(right, 1)
    result = np.array([2**30 + 12345 * seed], np.int32), np.array([47], np.int8)
    return (left, right), e._replace(multiplier=result[0], shift=result[1], least=-128, largest=127)


@pytest.mark.parametrize("doubles", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("which", ["left", "right", "both"])
@pytest.mark.parametrize("s", SETS)
def test_operands_that_are_scaled_twice(s: InstructionSet, which: str, doubles: tuple[bool, bool]):
    for seed in range(len(NEXT)):
        scales, e = twice(seed, doubles, which)
        fn = jax.jit(lambda *xs, scales=scales, e=e: call.run(call.add(s, "SUB", xs, scales, e)))
        np.testing.assert_array_equal(fn(*EVERY_PAIR), added("SUB", EVERY_PAIR, scales, e))


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("s", SETS)
def test_only_buffers_are_touched_where_operands_are_scaled_twice(s: InstructionSet, at_end: bool):
    inputs, (scales, e) = images(8, 3, 5, 7), twice(2, (True, True), "both")
    found = native_calls.call(call.add(s, "ADD", inputs, scales, e), at_end=at_end)
    np.testing.assert_array_equal(found, added("ADD", inputs, scales, e))


@pytest.mark.parametrize("ends", [(2**30, 30), (2**30, 54)], ids=["low", "high"])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("s", SETS)
def test_scales_of_all_sizes(s: InstructionSet, double: bool, ends: tuple[int, int]):
    """The left operand has each scale; results show the lowest or the highest bits of the sums."""
    pairs = list(itertools.product([0, 1, 3, 2**16, 2**30, 2**30 + 1, 2**31 - 1], range(2, 63)))
    multiplier, shift = (np.asarray(column)[:, None] for column in zip(*pairs, strict=True))
    zero, one = np.zeros((1, 256), np.int8), (np.array([2**30]), np.array([30]))
    e = call.Epilogue(np.array(ends[:1]), np.array(ends[1:]), 0, -128, 127, False)

    def each(m: jax.Array, n: jax.Array) -> jax.Array:
        scales = (
            call.Scaling(np.array([-128]), m, n, double),
            call.Scaling(zero[0, :1], *one, False),
        )
        return call.run(call.add(s, "ADD", (BYTES[None], zero), scales, e))

    found = jax.jit(jax.vmap(each))(multiplier.astype(np.int32), shift.astype(np.int32))
    for (m, n), bits in zip(pairs, found, strict=True):
        left = scaled(BYTES.astype(int) + 128, [m], [n], double=double)
        wanted = scaled(left, *e[:2], double=False)
        np.testing.assert_array_equal(bits[0], np.clip(wanted, -128, 127).astype(np.int8))


@pytest.mark.parametrize("s", SETS)
def test_constant_scales_of_all_sizes(s: InstructionSet):
    """The left operand has each constant scale, which chooses a `ByteScaleForm`."""
    zero, one = np.zeros((1, 256), np.int8), (np.array([2**30]), np.array([30]))
    factors = [0, 1, 4, 2**16, 3 * 2**15, 2**30, 2**30 + 2**15, 2**30 + 1, 2**31 - 1]
    for (m, n), low in itertools.product(itertools.product(factors, range(2, 20)), (False, True)):
        e = call.Epilogue(np.array([2**30]), np.array([30 if low else 54]), 0, -128, 127, False)
        left = call.Scaling(np.array([5]), np.array([m]), np.array([n]), False)
        scales = left, call.Scaling(zero[0, :1], *one, False)
        inputs = BYTES[None], zero
        found = native_calls.call(call.add(s, "ADD", inputs, scales, e))
        np.testing.assert_array_equal(found, added("ADD", inputs, scales, e), err_msg=f"{m} {n}")


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(1, 16), (1, 17), (3, 5, 7), (2, 31), (1, 260, 257)])
@pytest.mark.parametrize("s", SETS)
def test_only_buffers_are_touched(s: InstructionSet, shape: tuple[int, ...], at_end):
    inputs, (scales, e) = images(1, *shape), drawn(2)
    found = native_calls.call(call.add(s, "ADD", inputs, scales, e), at_end=at_end)
    np.testing.assert_array_equal(found, added("ADD", inputs, scales, e))


@pytest.mark.parametrize("when", ["now", "late", "never"])
@pytest.mark.parametrize("size", [0, 2, 7])
def test_threads(size: int, when: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiling, "threads", lambda: 4)
    inputs, (scales, e) = images(3, 2, 300, 301), drawn(4)
    kernel = call.add(isa.usable()[0], "ADD", inputs, scales, e)
    assert kernel.plan(inputs[0].shape, 4).threads == 4
    found = native_calls.call(kernel, pool=Pool(size, when))
    np.testing.assert_array_equal(found, added("ADD", inputs, scales, e))


@pytest.mark.parametrize("shared", [(), (0,), (1,)])
def test_examples_are_joined(shared: tuple[int, ...]):
    """`vmap` over both operands, or over one of them, makes one call."""
    left, right = images(5, 6, 1, 9, 7)
    scales, e = drawn(6)
    axes = tuple(None if i in shared else 0 for i in range(2))
    given = [x[0] if i in shared else x for i, x in enumerate((left, right))]

    def one(*xs: jax.Array) -> jax.Array:
        return call.run(call.add(isa.usable()[0], "SUB", (xs[0], xs[1]), scales, e))

    fn = jax.jit(jax.vmap(one, axes))
    assert str(jax.make_jaxpr(fn)(*given)).count("ffi_call[") == 1
    wide = [np.broadcast_to(x, left.shape) if i in shared else x for i, x in enumerate(given)]
    found = fn(*map(jnp.asarray, given))
    np.testing.assert_array_equal(found, added("SUB", (wide[0], wide[1]), scales, e))


def test_scales_may_be_traced():
    """Each example has scales of its own."""
    inputs = images(7, 3, 1, 40)
    every = [drawn(seed, (True, False, True)) for seed in range(3)]

    def numbers(scales: Any, e: Any) -> list[Any]:
        parts = *(tuple(s)[:3] for s in scales), tuple(e)[:5]
        return [np.asarray(v, np.int32) for part in parts for v in part]

    def one(left: jax.Array, right: jax.Array, *n: jax.Array) -> jax.Array:
        scales = call.Scaling(n[0], n[1], n[2], True), call.Scaling(n[3], n[4], n[5], False)
        e = call.Epilogue(n[6], n[7], n[8], n[9], n[10], True)
        return call.run(call.add(isa.usable()[0], "ADD", (left, right), scales, e))

    stacked = [np.stack(column) for column in zip(*(numbers(*x) for x in every), strict=True)]
    found = jax.jit(jax.vmap(one))(*map(jnp.asarray, (*inputs, *stacked)))
    for i, (scales, e) in enumerate(every):
        wanted = added("ADD", (inputs[0][i], inputs[1][i]), scales, e)
        np.testing.assert_array_equal(found[i], wanted)
