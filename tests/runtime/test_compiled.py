"""Which constants of a program are its arguments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax.runtime.compiled import trace

pytest.importorskip("llvmlite")

from tosajax.native import call
from tosajax.native.codegen import isa
from tosajax.ops._window import Window

ONES = Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))
RNG = np.random.default_rng(0)
IMAGE = jnp.asarray(RNG.integers(-128, 128, (1, 2, 3, 512)).astype(np.int8))


def convolved(x: jax.Array, channels: int) -> jax.Array:
    weight = np.random.default_rng(1).integers(-128, 128, (channels, 1, 1, 512)).astype(np.int8)
    zero = np.zeros(1, np.int32)
    operands = call.Operands(x, weight, zero, zero.astype(np.int8))
    return call.run(call.convolve(isa.usable()[0], operands, ONES))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("channels", "large"), [(64, []), (1024, [2**19])])
def test_constants_of_native_kernels_stay_unless_they_are_large(
    channels: int, large: list[int], batched: bool
):
    def program(params: object, x: jax.Array) -> jax.Array:
        return convolved(x, channels)

    run = jax.vmap(program, (None, 0)) if batched else program
    x = IMAGE[None] if batched else IMAGE
    function, constants = trace(run, {}, x)
    assert [c.size for c in constants] == large
    np.testing.assert_array_equal(function(constants, x), run({}, x))


def test_what_xla_computes_with_becomes_an_argument():
    table = np.arange(512, dtype=np.int32).reshape(1, 1, 1, 512)

    def program(params: object, x: jax.Array) -> jax.Array:
        return convolved(x, 64)[..., :1] + jnp.asarray(table)

    _, constants = trace(program, {}, IMAGE)
    (found,) = constants
    np.testing.assert_array_equal(found, table)
