"""Programs of parameters on the host: the bits that XLA gives them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from compilations import compiled_of
from jax import lax

from tosajax.dtypes import DType
from tosajax.grad.once import once
from tosajax.ops._follow import follow
from tosajax.quant.model import on_host
from tosajax.quant.model.recipes import to_accumulator
from tosajax.quant.storages.division import divide, reciprocal

RNG = np.random.default_rng(3)
_HUGE = np.array(
    [1e37, -1e37, np.inf, -np.inf, np.nan, 2.0**31, -(2.0**31), 2.0**31 - 128], np.float32
)
_TIES = np.array(
    [-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 127.5, -128.5, 2**23 + 1, 2**24 - 1], np.float32
)
FLOATS = np.concatenate([_HUGE, _TIES, RNG.normal(0, 100, 40).astype(np.float32)])
INTS = np.array([-(2**31), 2**31 - 1, -1, 0, 1, -7, 7, 1 << 24, 12345], np.int32)
BITS = np.array([0, 1, 31, 5, 2, 1, 3, 7, 8], np.int32)

FUNCTIONS = {
    "abs, neg": lambda x, i: (abs(x), -x, abs(i), -i),
    "sum, product": lambda x, i: (x + x[::-1], x - x[::-1], x * x[::-1], i + i, i - 1, i * 3),
    "bits": lambda x, i: (i & 0xFF, i | 3, i ^ 5, ~i),
    "shifts": lambda x, i: (i << BITS, i >> BITS, jnp.int32(1) << BITS),
    "comparisons": lambda x, i: (x < 1, x <= 1, x > 1, x >= 1, x == 1, x != 1, i < 1, i == 7),
    "minimum": lambda x, i: (jnp.minimum(x, 1), jnp.maximum(x, x[::-1]), jnp.maximum(i, 0)),
    "clip": lambda x, i: (jnp.clip(x, -3, 3), jnp.clip(i, -3, 3)),
    "choice": lambda x, i: (jnp.where(x > 0, x, 5.0), lax.select_n(i > 0, i, -i)),
    "three choices": lambda x, i: lax.select_n(jnp.clip(i, 0, 2), i, -i, i + 1),
    "rounding": lambda x, i: (jnp.rint(x), jnp.floor(x), lax.round(x)),
    "to integers": lambda x, i: [x.astype(t) for t in (jnp.int8, jnp.int16, jnp.int32, jnp.uint8)],
    "to floats": lambda x, i: (i.astype(jnp.float32), i.astype(jnp.int8), (x > 0).astype(x.dtype)),
    "reinterpreted": lambda x, i: (lax.bitcast_convert_type(x, jnp.int32), jnp.isfinite(x)),
    "quotients": lambda x, i: (
        divide(x, x[::-1] + 1),
        divide(x, jnp.float32(0.3)),
        reciprocal(x * x + 1),
    ),
    "quotients of integers": lambda x, i: (lax.div(i, jnp.full_like(i, -1)), lax.div(i, i | 1)),
    "once": lambda x, i: (once(i), once(i.astype(jnp.int8)), once(x)),
    "other gradients": lambda x, i: (follow(x, jnp.exp(x)), lax.stop_gradient(x)),
    "shapes": lambda x, i: (x[None, :, None], x[1::3], jnp.broadcast_to(i[:, None], (9, 2)).T),
    "moves": lambda x, i: (jnp.concatenate([i, i[2:4]]), i.reshape(3, 3).T, i.reshape(1, 9)[0]),
    "largest": lambda x, i: (i.reshape(3, 3).max(1), i.min(), (x > 0).any(), (x > 0).all()),
    "largest of some": lambda x, i: jnp.max(x, where=jnp.isfinite(x), initial=-jnp.inf),
    "sums": lambda x, i: (jnp.cumsum(i), lax.cumsum(i, reverse=True), i.sum(), i[::-1]),
    "places": lambda x, i: [lax.dynamic_slice(x, (at,), (3,)) for at in (i[3], i[0], i[1])],
    "by XLA": lambda x, i: (jnp.exp2(i & 7), x.sum(), x / 3, jnp.argmax(i), jnp.sort(i)),
    "calls": lambda x, i: (jax.jit(jnp.clip)(x, -3, 3), jax.vmap(lambda y: y + 1)(x), 2.5),
    "float8 to integers": lambda x, i: (
        jnp.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(jnp.int8)
    ),
    "float8": lambda x, i: jnp.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(x.dtype),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_bits_of_a_compiled_program(function: Any):
    compiled = jax.jit(function)
    actual, wanted = on_host.evaluate(compiled, FLOATS, INTS), compiled(FLOATS, INTS)
    assert jax.tree.structure(actual) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(wanted), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


def test_nothing_is_compiled(caplog):
    """Of what NumPy has: an operation that it lacks is compiled by itself."""

    def function(x: jax.Array) -> jax.Array:
        bits = lax.bitcast_convert_type(follow(x, jnp.exp(x)), jnp.int32)
        return jnp.where(x > 0, jnp.clip(bits >> 2, 0, 9), 3)

    def compiled(function: Any) -> bool:
        caplog.clear()
        with jax.log_compiles(), caplog.at_level("WARNING"):
            on_host.evaluate(jax.jit(function), np.full((1, 3, 1, 7), 2, np.float32))
        return any("Compiling" in record.message for record in caplog.records)

    assert not compiled(function)
    assert not compiled(lambda x: jnp.cumsum(lax.bitcast_convert_type(x, jnp.int32), 3))
    assert compiled(jnp.tan)


def test_what_nobody_reads_is_not_computed(monkeypatch):
    """Neither in the function itself, nor in those that it calls."""

    @jax.jit
    def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x + 1, jnp.exp(x)

    computed: list[str] = []
    original = on_host._computed
    monkeypatch.setattr(
        on_host,
        "_computed",
        lambda eqn, *a: computed.append(eqn.primitive.name) or original(eqn, *a),
    )
    result = on_host.evaluate(jax.jit(lambda x: (both(x)[0], x)), np.array([1, 2], np.float32))
    assert result[0].tolist() == [2, 3]
    assert "exp" not in computed
    assert "add" in computed


def test_traced_arguments_join_the_program_of_the_caller():
    inner = jax.jit(lambda x, y: divide(x, y))
    outer = jax.jit(lambda x: on_host.evaluate(inner, x, np.float32(3)))
    assert outer(np.float32(1)) == np.float32(1) / np.float32(3)
    assert jax.grad(lambda x: on_host.evaluate(inner, x, np.float32(3)))(1.0) == np.float32(1 / 3)


def test_int48():
    """Integers of 64 bits, from the scope that has them."""
    values = np.array([2.0**40, -(2.0**46), 0.5, 1.5], np.float32)
    compiled = jax.jit(lambda x: to_accumulator(x, DType.INT48, 2.0**46))
    actual, wanted = on_host.evaluate(compiled, values), compiled(values)
    assert actual.q.dtype == np.int64
    np.testing.assert_array_equal(actual.q, wanted.q)
    assert actual.q.tolist() == [2**40, -(2**46), 0, 2]


def test_arrays_are_copied_to_the_device_and_compile_nothing():
    for dtype in (np.float32, np.int8, np.int64, np.bool_):
        memory = np.zeros(1088, np.uint8)
        start = -memory.ctypes.data % 64  # aligned, as a device could take it
        values = memory[start : start + 24 * np.dtype(dtype).itemsize].view(dtype)
        found = []
        assert compiled_of(lambda x=values, to=found: to.append(on_host.on_device([x]))) == 0
        ((copied,),) = found
        memory[:] = 1
        assert copied.dtype == dtype
        np.testing.assert_array_equal(copied, np.zeros(24, dtype))
    traced = jax.jit(lambda x: on_host.on_device({"a": x, "b": np.ones(2, np.float32)}))
    np.testing.assert_array_equal(traced(np.arange(2.0))["a"], [0, 1])
