"""Reads at indices, beside JAX: all dimension numbers and modes, and few nodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators
from hypothesis import Phase, given, settings
from jax import lax
from jax.lax import GatherScatterMode
from windows import Drawn, windows

from tosajax.from_jax.export import export
from tosajax.from_jax.rules.indices import RULES

pytestmark = pytest.mark.usefixtures("quick")

PROMISE, CLIP, FILL = (
    GatherScatterMode.PROMISE_IN_BOUNDS,
    GatherScatterMode.CLIP,
    GatherScatterMode.FILL_OR_DROP,
)
WRAPPED = ["GREATER", "ADD", "SELECT"]  # jnp adds the length to negative indices.


def _numbers(*shape, dtype="float32"):
    values = np.random.default_rng(0).integers(-100, 100, shape)
    return jnp.asarray(values % 2 if dtype == "bool" else values).astype(dtype)


X, AT, S = _numbers(4, 5, 6), jnp.int32([1, 3, -2]), jnp.int32(2)
TABLE = _numbers(10, 8)

# Of arguments beside X; nodes without RESHAPE.
NODES = {
    "embedding": (lambda _, t: jnp.take(TABLE, t, axis=0), (AT,), [*WRAPPED, "GATHER"]),
    "take": (lambda x, i: jnp.take(x, i, axis=0), (AT,), [*WRAPPED, "GATHER"]),
    "take clipped": (
        lambda x, i: jnp.take(x, i, axis=0, mode="clip"),
        (jnp.int32([1, 9, -3]),),
        ["MAXIMUM", "MINIMUM", "GATHER"],
    ),
    "take of an axis": (lambda x, i: jnp.take(x, i, 1), (AT,), [*WRAPPED, "TILE", "GATHER"]),
    "take_along_axis": (
        lambda x, i: jnp.take_along_axis(x, i, 2),
        (jnp.int32(np.arange(40).reshape(4, 5, 2) % 6),),
        [*WRAPPED, "GATHER"],
    ),
    "x[:, i]": (lambda x, i: x[:, i], (AT,), [*WRAPPED, "TILE", "GATHER"]),
    "x[i, :, j]": (
        lambda x, i: x[i, :, i],
        (jnp.int32([1, 3]),),
        [*WRAPPED, "ADD", "SELECT", "CONCAT", "MUL", "REDUCE_SUM", "TRANSPOSE", "GATHER"],
    ),
    "one element": (
        lambda x, i: x[i],
        (S,),
        [*WRAPPED, "MAXIMUM", "MINIMUM", "GATHER"],
    ),
    "a slice": (
        lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 0),
        (jnp.int32(9),),
        [*WRAPPED, "MAXIMUM", "MINIMUM", "ADD", "GATHER"],
    ),
    "a slice at a constant": (lambda x: lax.dynamic_slice(x, (1, 9, 0), (2, 3, 6)), (), ["SLICE"]),
    "backwards": (lambda x: x[:, jnp.arange(4, -1, -1)], (), ["REVERSE"]),
    "neighbours": (lambda x: x[:, jnp.arange(1, 4)], (), ["SLICE"]),
    "two blocks": (lambda x: x[jnp.int32([2, 3, 0, 1])], (), ["SLICE", "SLICE", "CONCAT"]),
    "constants": (lambda x: x[:, jnp.int32([3, 1, 0, 1])], (), ["GATHER"]),
    "a diagonal": (lambda x: x[jnp.arange(4), jnp.arange(4)], (), ["GATHER"]),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_are_as_few_as_by_hand(name):
    fn, args, wanted = NODES[name]
    found = operators(export(fn, X, *args))
    assert [op for op in found if op != "RESHAPE"] == wanted
    assert found.count("RESHAPE") <= 6


def test_what_is_short_is_right():
    args = [args for _, args, _ in NODES.values()]

    def all_of(x, args):
        return [fn(x, *a) for (fn, *_), a in zip(NODES.values(), args, strict=True)]

    agrees(all_of, X, args, model=True)


def _gather(drawn: Drawn, x, indices, mode):
    numbers = lax.GatherDimensionNumbers(
        drawn.window_at, drawn.gone, drawn.axes, drawn.batch, drawn.index_batch
    )
    return lax.gather(x, indices, numbers, drawn.sizes, mode=mode, fill_value=7)


@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(windows())
def test_random_gathers(drawn):
    x = _numbers(*drawn.shape, dtype="int32")
    inside = np.array([drawn.shape[a] - drawn.sizes[a] for a in drawn.axes])
    inside = np.clip(drawn.indices, 0, inside).astype(np.int32)

    def gathered(x, indices, inside):
        traced = [_gather(drawn, x, indices, mode) for mode in (CLIP, FILL)]
        constant = [_gather(drawn, x, drawn.indices, mode) for mode in (CLIP, FILL)]
        return [*traced, *constant, _gather(drawn, x, inside, PROMISE)]

    agrees(gathered, x, drawn.indices, inside)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"],
)
def test_every_type(dtype):
    def taken(x, i):
        fills = [] if "float8" in dtype else [jnp.take(x, i, 0, fill_value=1, mode="fill")]
        return [x[:, i], x[jnp.int32([2, 0])], lax.dynamic_slice_in_dim(x, i[0], 2, 1), *fills]

    agrees(taken, _numbers(4, 5, 6, dtype=dtype), AT, model=True)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_narrow_indices(dtype):
    agrees(lambda x, i: x.at[i].get(mode="clip", wrap_negative_indices=False), X, AT.astype(dtype))


def test_constant_indices_of_unsigned_types():
    def taken(x):
        big = jnp.uint32([1, 2**32 - 1])
        return x[jnp.uint8([1, 3])], x.at[big].get(mode="clip", wrap_negative_indices=False)

    agrees(taken, X)


def test_batches():
    def taken(x, i):
        row = jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 6)))
        return row(x, i), jax.vmap(lambda x, i: x[i], (0, None))(x, i), jax.vmap(jnp.take)(x, i)

    agrees(taken, X, jnp.int32([1, 3, -1, 0]), model=True)


def test_many_places_in_short_rows_are_transposed():
    x = _numbers(3000, 4)
    graph = agrees(lambda x, i: x[:, i], x, jnp.int32([2, 0, 1]))
    assert operators(graph).count("TRANSPOSE") == 2


def test_dynamic_slices_along_several_axes():
    def taken(x, i, j):
        return (
            lax.dynamic_slice(x, (i, 1, j), (2, 2, 3)),
            lax.dynamic_slice(x, (i, j, 0), (1, 1, 6)),
            lax.dynamic_slice(x, (7, j, i), (2, 5, 1)),
        )

    for i, j in ((1, 2), (-9, 9), (9, -1)):
        agrees(taken, X, jnp.int32(i), jnp.int32(j))


def test_reads_out_of_bounds_are_noted():
    def differences(fn):
        return [note.differs for note in export(fn, X, AT).source.rewrites]

    assert "clips" in differences(lambda x, i: x[i])[0]
    assert "nan" in differences(lambda x, i: jnp.take(x, i, 0))[0]
    assert "-2147483648" in differences(lambda x, i: jnp.take(x.astype(jnp.int32), i, 0))[0]
    assert not differences(lambda x, i: jnp.take(x, i, 0, mode="clip"))
    assert not differences(lambda x, i: jnp.take(x, i, 0, mode="fill", fill_value=0))
    assert not differences(lambda x, i: jnp.take(x, jnp.int32([1, 9]), 0))


def test_every_rule_is_tested():
    assert {"gather", "dynamic_slice"} == RULES.keys()
