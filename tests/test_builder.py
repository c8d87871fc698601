"""Builder: graphs made in Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph

INT8, INT32 = DType.INT8, DType.INT32


def started() -> Builder:
    b = Builder()
    b.input("x", INT8, (2, 3))
    b.const(np.ones(3, np.int8), INT8, name="c")
    b.variable("v", INT8, (3,))
    return b


def graph_of(b: Builder) -> Graph:
    return b.graph([])


X = started().graph([]).tensors["x"]
FAILURES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an input twice": (lambda b: b.input("x", INT8, (1,)), "tensor 'x' exists already"),
    "an input without a shape": (lambda b: b.input("y", INT8, None), "not iterable"),
    "an input of no type": (lambda b: b.input("y", "INT8", (1,)), "dtype is 'INT8'"),
    "a constant twice": (lambda b: b.const([1], INT8, name="c"), "tensor 'c' exists already"),
    "a constant beyond": (lambda b: b.const([128], INT8, name="d"), "INT8"),
    "a shape twice": (lambda b: b.const_shape((1,), name="c"), "tensor 'c' exists already"),
    "an output twice": (lambda b: b.op("ABS", X, dtype=INT8, name="x"), "'x' exists already"),
    "outputs of one name": (
        lambda b: b.ops("CUSTOM", X, shapes=[(1,), (1,)], dtypes=[INT8, INT8], names=["p", "p"]),
        "tensor 'p' exists already",
    ),
    "an output without a shape": (
        lambda b: b.ops("CUSTOM", X, shapes=[(1,), 5], dtypes=[INT8, INT8], names=["p", "q"]),
        "not iterable",
    ),
    "no output type": (lambda b: b.op("CAST", X), "possible output types"),
    "a variable without a shape": (lambda b: b.variable("w", INT8, None), "not iterable"),
    "a read without a shape": (lambda b: b.read("v", INT8, None), "not iterable"),
    "a read of an unknown variable": (lambda b: b.read("w", INT8, None), "not iterable"),
    "a write of nothing": (lambda b: b.write("w", None), "NoneType"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_methods_that_fail_add_nothing(case):
    fails, message = FAILURES[case]
    b, before = started(), graph_of(started())
    with pytest.raises(Exception, match=re.escape(message)):
        fails(b)
    after = graph_of(b)
    assert (after, after.inputs, after.nodes) == (before, before.inputs, before.nodes)
    y = b.op("IDENTITY", X, name="y")
    graph = b.graph([y])
    tosajax.validate(graph).raise_errors()
    assert graph.inputs == ("x",)


PERMS = {
    "tuple": (1, 0),
    "list": [1, 0],
    "range": range(1, -1, -1),
    "NumPy": np.array([1, 0]),
    "JAX": jnp.array([1, 0]),
    "NumPy integers": [np.int64(1), np.int8(0)],
}


@pytest.mark.parametrize("kind", PERMS)
def test_lists_of_integers_may_be_any_sequence(kind):
    b = started()
    graph = b.graph([b.op("TRANSPOSE", X, perms=PERMS[kind], name="y")])
    tosajax.validate(graph).raise_errors()
    assert graph.nodes[-1].attributes["perms"] == (1, 0)
    assert graph.tensors["y"].shape == (3, 2)
    hash(graph.nodes[-1].attributes["perms"])


def test_every_list_of_a_convolution_may_be_a_list():
    b = Builder()
    x = b.input("x", INT8, [1, 4, 4, 1])
    weight = b.const(np.ones((1, 3, 3, 1)), INT8)
    zeros = [b.const([0], dtype) for dtype in (INT32, INT8, INT8)]
    lists: dict[str, Any] = {"pad": [1, 1, 1, 1], "stride": [1, 1], "dilation": [1, 1]}
    y = b.op("CONV2D", x, weight, *zeros, acc_type=INT32, **lists)
    graph = b.graph([y])
    tosajax.validate(graph).raise_errors()
    found = graph.nodes[-1].attributes
    assert {name: found[name] for name in lists} == {n: tuple(v) for n, v in lists.items()}
    tosajax.compile(tosajax.load(tosajax.io.to_bytes(graph)))(np.ones((1, 4, 4, 1), np.int8))


def test_strings_and_numbers_stay_as_they_are():
    b = started()
    names: dict[str, Any] = {
        "operator_name": "o",
        "domain_name": "d",
        "implementation_attrs": b"\1\2",
    }
    b.ops("CUSTOM", X, shapes=[(1,)], dtypes=[INT8], **names)
    assert dict(graph_of(b).nodes[-1].attributes) == names
    b.op("CLAMP", X, min_val=np.int8(0), max_val=np.int8(3))
    assert graph_of(b).nodes[-1].attributes["max_val"] == 3
