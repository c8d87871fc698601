"""`shared`: what is traced once, and what must not be."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax.fixedpoint import _x64
from tosajax.grad import QTensor, noise
from tosajax.grad.shared import shared
from tosajax.ops.routes.platform import Platform, current, tracing_for

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Counted:
    """A function that counts how often it runs, which is when it is traced."""

    def __init__(self, function: Any) -> None:
        self.function, self.count = function, 0
        self.call = shared(self.run)

    def run(self, *operands: Any, **attributes: Any) -> Any:
        self.count += 1
        return self.function(*operands, **attributes)


def test_equal_kinds_are_traced_once():
    counted = Counted(lambda x, more, *, factor: x * factor + more["y"].shadow[None])

    def total(x: jax.Array) -> jax.Array:
        y = QTensor(jnp.zeros(3, jnp.int8), x[0])
        for _ in range(5):
            x = counted.call(x, {"y": y}, factor=3.0)
        return x.sum()

    gradient = jax.jit(jax.grad(total))(X)
    assert counted.count == 1
    wanted = np.full_like(X, 3.0**5)
    wanted[0] += 2 * (1 + 3 + 9 + 27 + 81)  # both rows add the first
    np.testing.assert_array_equal(gradient, wanted)
    jax.jit(jax.vmap(total))(np.stack([X, X]))
    assert counted.count == 1


@pytest.mark.parametrize(
    ("operand", "factor"),
    [
        (jnp.ones((3, 2)), 1.0),
        (jnp.ones((2, 3), jnp.int32), 1.0),
        (np.ones((2, 3), np.float32), 1.0),
        (jnp.ones((2, 3)), 2.0),
        (jnp.ones((2, 3)), 1),
        (jnp.ones((2, 3)), True),
        ([jnp.ones((2, 3))], 1.0),
    ],
    ids=["shape", "type", "constant", "value", "integer", "bool", "tree"],
)
def test_other_kinds_are_traced_apart(operand, factor):
    counted = Counted(lambda x, *, factor: (x[0], factor))
    counted.call(jnp.ones((2, 3)), factor=1.0)
    counted.call(operand, factor=factor)
    assert counted.count == 2


@pytest.mark.parametrize("wrap", [float, np.float32, lambda x: np.full(1, x, np.float32)])
def test_zeros_of_either_sign_are_two_constants(wrap):
    divided = shared(lambda x, zero: x / jnp.asarray(zero, jnp.float32))
    found = [divided(jnp.ones(1), wrap(zero)).item() for zero in (0.0, -0.0, 0.0)]
    assert found == [np.inf, -np.inf, np.inf]


def test_nan_is_one_constant():
    counted = Counted(lambda x, nan: x)
    for _ in range(2):
        counted.call(jnp.ones(1), float("nan"))
    assert counted.count == 1


def test_constants_are_known_while_it_is_traced():
    found = []
    shared(lambda zero_point: found.append(zero_point))(QTensor.known(np.zeros(1, np.int8)))
    assert all(isinstance(x, np.ndarray) for x in (found[0].q, found[0].shadow))


def test_each_platform_has_its_own():
    found = []
    note = shared(lambda x: found.append(current().name))
    for name in ("cpu", "gpu", "cpu"):
        with tracing_for(Platform(name)):
            note(jnp.ones(1))
    assert found == ["cpu", "gpu"]


def test_functions_may_hold_traced_values():
    """As estimators that are made from a key within a step."""
    estimated = shared(lambda x, *, estimate: estimate(x, -1.0, 1.0))

    @jax.jit
    def slopes(key: jax.Array) -> jax.Array:
        estimate = noise(key)
        return jax.grad(lambda x: estimated(x, estimate=estimate).sum())(jnp.ones(64))

    one, other, again = (slopes(jax.random.key(seed)) for seed in (0, 1, 0))
    assert set(np.asarray(one).tolist()) == {0.0, 1.0}
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_64_bits_are_kept_outside_their_scope():
    with _x64.scope():
        big = jax.device_put(np.array([2**40, -(2**47)]))
    assert big.dtype == np.int64

    def doubled(x: jax.Array) -> jax.Array:
        with _x64.scope():
            return x + x

    for function in (shared(doubled), jax.jit(shared(doubled)), jax.vmap(shared(doubled))):
        found = function(big)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(np.asarray(found), [2**41, -(2**48)])
