"""cond_if and while_loop as functions of plain functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import ops


def add_up(x, y):
    return x + y, x - y


def times(x, y):
    return x * y, y


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
@pytest.mark.parametrize(("taken", "wanted"), [(True, (7, 3)), (False, (10, 2))])
def test_cond_if(taken, wanted, shape):
    def run(condition, x, y):
        return ops.cond_if(condition, [x, y], then_graph=add_up, else_graph=times)

    condition = jnp.full(shape, taken)
    for form in (run, jax.jit(run)):
        assert tuple(map(int, form(condition, jnp.int32(5), jnp.int32(2)))) == wanted
    both = jax.vmap(run, (0, None, None))
    found = both(jnp.stack([condition, ~condition]), jnp.int32(5), jnp.int32(2))
    other = {(7, 3): (10, 2), (10, 2): (7, 3)}[wanted]
    np.testing.assert_array_equal(np.transpose(found), [wanted, other])


def below_hundred(x, _):
    return jnp.reshape(x < 100, (1,))


def times_y(x, y):
    return [x * y, y]


@pytest.mark.parametrize(("start", "end"), [(1, 128), (25, 100), (99, 198), (100, 100), (101, 101)])
def test_while_loop(start, end):
    def run(x, y):
        return ops.while_loop([x, y], cond_graph=below_hundred, body_graph=times_y)

    for form in (run, jax.jit(run)):
        assert tuple(map(int, form(jnp.int32(start), jnp.int32(2)))) == (end, 2)
    found, _ = jax.vmap(run, (0, None))(jnp.array([start, 50], jnp.int32), jnp.int32(2))
    np.testing.assert_array_equal(found, [end, 100])
