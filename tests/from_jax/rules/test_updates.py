"""Writes at indices, beside JAX: all dimension numbers and modes, repeats, and few nodes."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators
from hypothesis import Phase, given, settings
from jax import lax
from jax.lax import GatherScatterMode
from windows import Drawn, windows

import tosajax
from tosajax import UnsupportedError
from tosajax.from_jax.export import export
from tosajax.from_jax.rules import updates
from tosajax.from_jax.rules.updates import RULES

pytestmark = pytest.mark.usefixtures("quick")

PROMISE, CLIP, FILL = (
    GatherScatterMode.PROMISE_IN_BOUNDS,
    GatherScatterMode.CLIP,
    GatherScatterMode.FILL_OR_DROP,
)
WRAPPED = ["GREATER", "ADD", "SELECT"]  # jnp adds the length to negative indices.
KINDS = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-sub": lax.scatter_sub,
    "scatter-mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}


def _numbers(*shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).integers(-9, 9, shape)
    return jnp.asarray(values % 2 if dtype == "bool" else values).astype(dtype)


X, V = _numbers(4, 5, 6), _numbers(3, 5, 6, seed=1)
CACHE, ROW = _numbers(2, 3, 16, 4), _numbers(2, 3, 1, 4, seed=2)
AT, REPEATED, S = jnp.int32([1, 3, 0]), jnp.int32([2, 2, -4]), jnp.int32(2)
OUTSIDE = jnp.int32([1, 9, -9])


def _cache(cache, row, at):
    return lax.dynamic_update_slice(cache, row, (0, 0, at, 0))


# Nodes without RESHAPE.
NODES = {
    "KV cache": (_cache, (CACHE, ROW, S), [*WRAPPED, "MAXIMUM", "MINIMUM", "EQUAL", "SELECT"]),
    "KV cache, several": (
        _cache,
        (CACHE, _numbers(2, 3, 5, 4), S),
        [*WRAPPED, "MAXIMUM", "MINIMUM", "ADD", "TILE", "SCATTER"],
    ),
    "KV cache, each example elsewhere": (
        lambda x, v, i: jax.vmap(lambda x, v, i: x.at[:, i].set(v))(x, v, i),
        (CACHE, ROW[:, :, 0], jnp.int32([3, -1])),
        [*WRAPPED, "EQUAL", "SELECT"],
    ),
    "a constant place": (
        lambda x, v: x.at[:, 3].set(v),
        (X, X[:, 0]),
        ["SLICE", "SLICE", "CONCAT"],
    ),
    "a constant block": (
        lambda x, v: x.at[1:3, 2:4, 1].set(v),
        (X, _numbers(2, 2)),
        ["PAD", "SELECT"],
    ),
    "added to a constant block": (
        lambda x, v: x.at[1:3, 2:4, 1].add(v),
        (X, _numbers(2, 2)),
        ["PAD", "ADD"],
    ),
    "into zeros": (lambda v: jnp.zeros((4, 6)).at[1].set(v), (_numbers(6),), ["PAD"]),
    "one place": (lambda x, v, i: x.at[i].set(v), (X, V[0], S), [*WRAPPED, "EQUAL", "SELECT"]),
    "added to one place": (
        lambda x, v, i: x.at[i].add(v),
        (X, V[0], S),
        [*WRAPPED, "EQUAL", "ADD", "SELECT"],
    ),
    "different places": (
        lambda x, v, i: x.at[i].set(v, unique_indices=True, mode="promise_in_bounds"),
        (X, V, AT),
        [*WRAPPED, "SCATTER"],
    ),
    "any places": (
        lambda x, v, i: x.at[i].set(v),
        (X, V, REPEATED),
        [*WRAPPED, "EQUAL", "SELECT", "REDUCE_MAX", "CONCAT", "GATHER"],
    ),
    "segment_sum": (
        lambda v, i: jax.ops.segment_sum(v, i, 4),
        (V[0], jnp.int32([0, 3, 3, 1, 0])),
        ["EQUAL", "SELECT", "REDUCE_SUM", "ADD"],
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_are_as_few_as_by_hand(name):
    fn, args, wanted = NODES[name]
    found = operators(export(fn, *args))
    assert [op for op in found if op != "RESHAPE"] == wanted
    assert found.count("RESHAPE") <= 5


def test_what_is_short_is_right():
    def all_of(args):
        return [fn(*a) for (fn, *_), a in zip(NODES.values(), args, strict=True)]

    agrees(all_of, [args for _, args, _ in NODES.values()], model=True)


def _scatter(drawn: Drawn, kind, x, indices, values, mode, unique=False):
    numbers = lax.ScatterDimensionNumbers(
        drawn.window_at, drawn.gone, drawn.axes, drawn.batch, drawn.index_batch
    )
    return KINDS[kind](x, indices, values, numbers, mode=mode, unique_indices=unique)


@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(windows())
def test_random_scatters(drawn):
    x, values = (_numbers(*shape, dtype="int32") for shape in (drawn.shape, drawn.result))
    kinds = ["scatter", "scatter-sub", "scatter-mul", "scatter-max"]
    first = np.zeros_like(drawn.indices)

    def scattered(x, indices, values):
        found = []
        for kind in kinds:
            write = functools.partial(_scatter, drawn, kind, x)
            found += [write(indices, values, mode) for mode in (CLIP, FILL)]
            found += [write(drawn.indices, values, FILL), write(first, values, PROMISE)]
        return found

    agrees(scattered, x, drawn.indices, values)


@pytest.mark.parametrize("at", [[[0], [1]], [[-1], [0]], [[2], [1]], [[1]], [[0]]])
def test_windows_that_fill_an_axis(at):
    """Those out of bounds along it are dropped, although no place along it is looked for."""
    numbers = lax.ScatterDimensionNumbers((1,), (1,), (0,))
    indices = np.array(at, np.int32)

    def updated(x, i, v):
        return [
            KINDS[kind](x, i, v, numbers, mode=mode)
            for kind in ("scatter", "scatter-mul")
            for mode in (CLIP, FILL)
        ]

    x, values = _numbers(4, 2, dtype="int32"), _numbers(len(at), 4, dtype="int32")
    agrees(updated, x, indices, values, model=True)


@pytest.mark.parametrize("at", [AT, OUTSIDE])
def test_different_places(at):
    def updated(x, i, v):
        found = []
        for mode in ("clip", "drop"):
            of = x.at[:, i] if mode == "drop" else x.at[AT + i * 0]
            v_of = v if mode == "clip" else jnp.moveaxis(v, 0, 1)[:4]
            for name in ("set", "add", "multiply", "min", "max"):
                found.append(getattr(of, name)(v_of, mode=mode, unique_indices=True))
        return found

    agrees(updated, X, at, V, model=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int8", "int16", "float16", "bfloat16", "float32"])
def test_every_type(dtype, kind):
    def updated(x, i, v):
        numbers = lax.ScatterDimensionNumbers((1, 2), (0,), (0,))
        write = functools.partial(KINDS[kind], dimension_numbers=numbers)
        places = [i, np.asarray(REPEATED)[:, None], i[:1]]
        return [write(x, at, v[: len(at)]) for at in places]

    agrees(updated, *(_numbers(4, 5, 6, dtype=dtype), AT[:, None], V.astype(dtype)), model=True)


def test_bool():
    def updated(x, i, v):
        found = [getattr(x.at[i], name)(v) for name in ("set", "max", "min")]
        return [*found, x.at[i].set(True, unique_indices=True), x.at[np.asarray(AT)].set(v)]

    x, v = _numbers(4, 5, 6, dtype="bool"), _numbers(3, 5, 6, dtype="bool", seed=1)
    agrees(updated, x, AT, v, model=True)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8(dtype):
    def updated(x, i, v):
        block = lax.dynamic_update_slice(x, v[:1], (i[0], 0, 0))
        many = x.at[jnp.int32([0, 2, 1])].set(v)
        return block, many, x.at[1:3, 2:4].set(v[:2, :2]), x.at[:, i[1]].set(v[0, 0, 0])

    agrees(updated, X.astype(dtype), AT, V.astype(dtype), model=True)


def test_every_place():
    agrees(lambda x, v: (x.at[:].set(2.0), x.at[...].add(v), x.at[:, 0:5].mul(v)), X, X + 1)


def test_dynamic_update_slices():
    def updated(x, i, j, v):
        update = lax.dynamic_update_slice
        return (
            update(x, v[:2, :1, :2], (1, i, 2)),
            update(x, v[:1, :1], (i, j, 0)),
            update(x, v[:2, :3, :3], (i, 1, j)),
            update(x, v[:2, :3], (9, -9, 1)),
            update(x, v[:0], (i, 0, 0)),
            update(x, x + 1, (i, j, j)),
        )

    for i, j in ((1, 2), (-9, 9), (9, -1)):
        agrees(updated, X, jnp.int32(i), jnp.int32(j), V, model=True)


def test_an_order_of_floats_is_kept_at_constant_places_and_noted_elsewhere():
    x, v = jnp.float32([1e8, 1, -0.0]), jnp.float32([1, -1e8, 3e-4, 7])
    at = jnp.int32([0, 0, 0, 1])
    assert not agrees(lambda x, v: x.at[at].add(v), x, v).source.rewrites
    graph = export(lambda x, v, at: x.at[at].add(v), x, v, at)
    assert "another order" in graph.source.rewrites[0].differs


@pytest.mark.parametrize("is_constant", [True, False])
def test_what_is_not_updated_keeps_its_sign(is_constant):
    x, at = jnp.float32([-0.0, 0.0, 1]), jnp.int32([1])

    def updated(x, i):
        i = at if is_constant else i
        found = [getattr(x.at[i], name)(-3.0) for name in ("add", "subtract", "multiply")]
        return [*found, x.at[i].min(-3.0), x.at[i].max(3.0)]

    graph = export(updated, x, at)
    for ours, theirs in zip(
        tosajax.compile(graph)(np.asarray(x), np.asarray(at)), updated(x, at), strict=True
    ):
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


def test_many_repeats_of_constant_places():
    at = jnp.zeros((20,), jnp.int32)
    agrees(lambda x, v: x.at[at].add(v), _numbers(3, dtype="int32"), _numbers(20, dtype="int32"))


def test_writes_out_of_bounds_are_noted():
    def differences(**options):
        graph = export(lambda x, i, v: x.at[i].set(v, **options), X, AT, V)
        return [note.differs for note in graph.source.rewrites]

    assert "drops" in differences(mode="promise_in_bounds")[0]
    assert not differences()
    assert not differences(mode="clip", unique_indices=True)


def test_too_many_updates_at_places_that_may_repeat(monkeypatch):
    monkeypatch.setattr(updates, "_MOST_ELEMENTS", 11)
    with pytest.raises(UnsupportedError, match=r"3 updates of 4 places.*unique_indices=True"):
        export(lambda x, i, v: x.at[i].set(v), X, AT, V)
    export(lambda x, i, v: x.at[i].set(v, unique_indices=True), X, AT, V)


def test_every_rule_is_tested():
    assert {*KINDS, "dynamic_update_slice"} == RULES.keys()
