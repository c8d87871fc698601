"""While calls are recorded, a batch of an operator leaves as operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from oracle.float_bounds import fraction_bits, widen
from oracle.operands import EXAMPLES
from oracle.transforms import assert_identical
from recorded import COMPUTING, OneCall, each_row, names, one_call, record

from tosajax import ops, spec

every_row = each_row()

each_operator = pytest.mark.parametrize("operator", COMPUTING, ids=lambda operator: operator.name)

# Operands that are no data: where they differ between examples, there is an operator for each.
OTHER = {
    *("a_zp", "b_zp", "bias", "input1_zp", "input_zp", "multiplier", "output_zp", "pad_const"),
    *("shift", "table", "weight", "weight_zp"),
}
# What brings examples together, and apart.
MOVES = {"broadcast_in_dim", "concatenate", "reshape", "slice", "squeeze"}
# XLA adds the float products of more examples in another order, or fuses products and sums.
REORDERED = {
    *("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "MATMUL", "MATMUL_T", "RESIZE"),
    "TRANSPOSE_CONV2D",
}

pytestmark = pytest.mark.usefixtures("quick")


@every_row
def test_a_batch_leaves_as_the_operator(operator: spec.Operator, row: spec.TypeRow):
    """Once for all examples where only data differ, else once for each."""
    call, stacked = one_call(operator, row)
    parameters = list(inspect.signature(call.function).parameters)
    for axes in batchings(len(stacked)):
        operands = pick(stacked, axes)
        jaxpr = record(jax.vmap(call, axes), *operands)
        other = [parameters[i] for i, place in enumerate(call.inputs) if is_batched(place, axes)]
        is_data = not set(other) & OTHER
        assert names(jaxpr) == [operator.name] * (1 if is_data else EXAMPLES), other
        moves = {eqn.primitive.name for eqn in jaxpr.eqns} - {"tosa_operator"}
        assert moves <= MOVES
        wanted = jax.eval_shape(jax.vmap(call, axes), *operands)
        assert [(a.shape, a.dtype) for a in jaxpr.out_avals] == [
            (r.shape, r.dtype) for r in jax.tree.leaves(wanted)
        ]


@each_operator
def test_a_batch_is_a_loop(operator: spec.Operator):
    rows = [operator.types[0], operator.types[-1]]
    calls = [one_call(operator, row) for row in rows]
    functions, loops, operands = [], [], []
    for call, stacked in calls:
        for axes in batchings(len(stacked)):
            some = pick(stacked, axes)
            functions.append(jaxpr_as_fun(record(jax.vmap(call, axes), *some)))
            loops.append(looped(call, axes))
            operands.append(some)

    def run(functions: Sequence[Callable[..., Any]]) -> list[Any]:
        run = jax.jit(lambda rows: [f(*row) for f, row in zip(functions, rows, strict=True)])
        return jax.tree.leaves(run(operands))

    for found, wanted in zip(run(functions), run(loops), strict=True):
        if operator.name in REORDERED and not np.issubdtype(found.dtype, np.integer):
            assert_rounded(found, wanted)
        else:
            assert_identical(found, wanted)


def batchings(count: int) -> list[tuple[int | None, ...]]:
    """Each operand with an axis of examples alone, and all of them."""
    alone = [tuple(0 if i == n else None for i in range(count)) for n in range(count)]
    return [*alone, (0,) * count] if count > 1 else alone


def pick(stacked: Sequence[jax.Array], axes: Sequence[int | None]) -> list[jax.Array]:
    return [x if axis == 0 else example(x, 0) for x, axis in zip(stacked, axes, strict=True)]


def example(x: jax.Array, number: int) -> jax.Array:
    return jax.lax.index_in_dim(x, number, keepdims=False)


def is_batched(place: Any, axes: Sequence[int | None]) -> bool:
    places = place if isinstance(place, list) else [place]
    return not isinstance(place, tuple) and any(axes[at] == 0 for at in places)


def looped(call: OneCall, axes: Sequence[int | None]) -> Callable[..., list[jax.Array]]:
    def loop(*operands: jax.Array) -> list[jax.Array]:
        each = []
        for n in range(EXAMPLES):
            one = [x if a is None else example(x, n) for x, a in zip(operands, axes, strict=True)]
            each.append(jax.tree.leaves(call(*one)))
        return [
            jax.lax.concatenate([jax.lax.expand_dims(r, (0,)) for r in results], 0)
            for results in zip(*each, strict=True)
        ]

    return loop


def assert_rounded(found: jax.Array, wanted: jax.Array) -> None:
    """A few roundings of sums that are less than 2**10."""
    one, other = np.asarray(found), np.asarray(wanted)
    step = 2.0 ** -fraction_bits(one.dtype)
    np.testing.assert_allclose(widen(one), widen(other), rtol=step, atol=2.0**-14)


def test_a_batch_at_another_axis_and_of_a_batch():
    x = jnp.asarray(np.arange(24).reshape(2, 3, 4), jnp.int32)

    def function(x, y):
        return ops.reduce_sum(ops.add(x, y), axis=0)

    axes = ((2, None), (None, 1))
    mapped = jax.vmap(jax.vmap(function, axes[0]), axes[1])
    y = jnp.asarray([[1, 2, 3, 4, 5], [6, 7, 8, 9, 0]], jnp.int32)[..., None]
    y = jnp.broadcast_to(y, (2, 5, 3))
    jaxpr = record(mapped, x, y)
    assert names(jaxpr) == ["ADD", "REDUCE_SUM"]
    np.testing.assert_array_equal(jaxpr_as_fun(jaxpr)(x, y)[0], mapped(x, y))


def test_elements_of_lower_rank_in_a_batch():
    """Their dimensions are the last ones, as everywhere in JAX."""
    x, y = jnp.ones((4, 4), jnp.int32), jnp.arange(4, dtype=jnp.int32)
    with jax.numpy_rank_promotion("allow"):
        jaxpr = record(jax.vmap(ops.add, (None, 0)), x, y)
        (found,) = jaxpr_as_fun(jaxpr)(x, y)
    np.testing.assert_array_equal(found, np.ones((4, 4)) + np.arange(4)[:, None, None])
    assert names(jaxpr) == ["ADD"]
