"""What TOSA cannot express: errors say what could stand in its place; constants need no rule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators
from jax import lax

from tosajax import UnsupportedError
from tosajax.from_jax.export import export
from tosajax.from_jax.rules import HINTS, RULES

pytestmark = pytest.mark.usefixtures("quick")

OLD, NEW = jax.random.PRNGKey(0), jax.random.key(0)
X = jnp.float32([0.5, -1, 2, 0, 3])
SQUARE = jnp.eye(4) + 1


@pytest.mark.filterwarnings("ignore:random bits that depend on no argument")
@pytest.mark.parametrize("key", [OLD, NEW, jax.random.key(1, impl="rbg")])
def test_random_numbers_of_a_constant_key_are_constants(key):
    def noisy(x):
        first, second = jax.random.split(jax.random.fold_in(key, 3))
        dropped = jnp.where(jax.random.bernoulli(first, 0.5, x.shape), x, 0.0)
        return dropped, x + jax.random.gumbel(second, x.shape), x + jax.random.normal(key)

    assert sorted(operators(agrees(noisy, X, ulp=2, model=True))) == ["ADD", "ADD", "SELECT"]


@pytest.mark.filterwarnings("ignore:random bits that depend on no argument")
def test_choices_of_a_constant_key():
    logits = np.asarray([[0.1, 0.7, 0.2], [3, 0, 1]], np.float32)
    graph = agrees(lambda x: jax.random.categorical(NEW, x), logits)
    assert operators(graph) == ["ADD", "ARGMAX"]
    assert operators(agrees(lambda x: jax.random.permutation(NEW, x), X)).count("GATHER") == 1
    agrees(lambda x: jax.random.choice(NEW, x, (3,)), X)


@pytest.mark.parametrize(
    ("fn", "arg", "name", "instead"),
    [
        (lambda s: jax.random.normal(jax.random.key(s)), np.int32(1), "random_seed", "constant"),
        (lambda x: x + lax.rng_uniform(0.0, 1.0, (5,)), X, "rng_uniform", "constant"),
        (jnp.linalg.cholesky, SQUARE, "cholesky", "outside of the function"),
        (jnp.linalg.qr, SQUARE, "qr", "outside of the function"),
        (jnp.linalg.svd, SQUARE, "svd", "outside of the function"),
        (jnp.linalg.eigh, SQUARE, "eigh", "outside of the function"),
        (jnp.linalg.inv, SQUARE, "lu", "outside of the function"),
        (
            lambda x: jax.scipy.linalg.solve_triangular(x, x),
            SQUARE,
            "triangular_solve",
            "pass the inverse",
        ),
        (lambda x: jax.lax.complex(x, x).real, X, "complex", "tosajax.ops.fft2d"),
        (lambda x: jnp.abs(jnp.fft.fft(x)), X, "convert_element_type", "tosajax.ops.rfft2d"),
    ],
)
def test_what_could_stand_in_its_place(fn, arg, name, instead):
    with pytest.raises(UnsupportedError, match=rf"^{name}\b.*expected.*{instead}"):
        export(fn, arg)


@pytest.mark.parametrize(
    ("key", "instead"),
    [(OLD, "make a random key inside of the function"), (NEW, "make the key inside")],
)
def test_keys_are_not_inputs(key, instead):
    with pytest.raises(UnsupportedError, match=instead):
        export(lambda key: jax.random.normal(key), key)


def test_hints_are_of_primitives_without_a_rule():
    assert not HINTS.keys() & RULES.keys()
