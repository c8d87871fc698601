"""Where equations come from: names of layers, and lines of the user's code."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tosajax
from tosajax.from_jax.places import Line, Place, place_of


def layer(x: jax.Array) -> jax.Array:
    with jax.named_scope("block"), jax.named_scope("dense"):
        return jnp.sin(x)


LINE = layer.__code__.co_firstlineno + 2
X = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    "transformed",
    [layer, jax.vmap(layer), jax.vmap(jax.vmap(layer)), lambda x: jax.jvp(layer, (x,), (x,))[0]],
    ids=["plain", "vmap", "vmap of vmap", "jvp"],
)
def test_layers_under_transformations(transformed):
    eqn = next(e for e in jax.make_jaxpr(transformed)(X).eqns if e.primitive.name == "sin")
    place = place_of(eqn)
    assert place.layers == "block/dense"
    assert place.line == Line("tests/from_jax/test_places.py", LINE)


def test_names_of_functions_are_not_layers():
    (eqn,) = jax.make_jaxpr(jax.jit(layer))(X).eqns
    assert place_of(eqn).layers == ""
    outer = Place("outer")
    inner = place_of(eqn.params["jaxpr"].eqns[0]).inside(outer)
    assert inner.layers == "outer/block/dense"


def test_the_users_line_comes_before_that_of_a_library():
    def loss(x: jax.Array) -> jax.Array:
        return optax.squared_error(x, x + 1)

    jaxpr = jax.make_jaxpr(loss)(X)
    line = Line("tests/from_jax/test_places.py", loss.__code__.co_firstlineno + 1)
    assert {eqn.primitive.name for eqn in jaxpr.eqns} > {"add", "sub"}
    assert {place_of(eqn).line for eqn in jaxpr.eqns} == {line}


def test_a_library_that_is_all_there_is():
    """As where `export` is given one of its functions."""
    graph = tosajax.export(optax.squared_error, X, X)
    lines = {re.search(r'"\("(.*?)":', node.location or "") for node in graph.nodes} - {None}
    assert {line[1] for line in lines if line}.pop().startswith("optax/")


def test_a_place_without_a_line_has_that_around_it():
    outer = Place("a", Line("model.py", 7))
    assert Place("b").inside(outer) == Place("a/b", Line("model.py", 7))
    assert Place("b", Line("other.py", 1)).inside(outer).line == Line("other.py", 1)
    assert outer.location("a/sin") == 'loc("a/sin"("model.py":7:0))'
    assert Place().location("sin") == 'loc("sin")'
