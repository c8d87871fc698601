"""COND_IF and WHILE_LOOP in graphs: values, nesting, batches, open dimensions."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
from reference import arm

import tosajax
from tosajax import Builder, DType, TosaError, UnsupportedError
from tosajax.fixedpoint import _x64

X = np.array([1, -2, 3], np.int32)
CHOICE = programs.choice(programs.plus(10, "then"), programs.plus(20, "else"))
LOOP = programs.loop(programs.below(4), programs.doubled())


def flag(*values: bool) -> np.ndarray:
    return np.array(values)


@pytest.mark.parametrize(("taken", "wanted"), [(True, X + 10), (False, X + 20)])
def test_choice(taken, wanted):
    (found,) = tosajax.compile(CHOICE)(flag(taken), X)
    np.testing.assert_array_equal(found, wanted)
    fn, params = tosajax.lower(CHOICE)
    (eager,) = fn(params, flag(taken), jnp.asarray(X))
    np.testing.assert_array_equal(eager, wanted)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.SHAPE], ids=lambda d: d.name)
def test_choice_of_every_type(dtype):
    b = Builder()
    taken, x, z = b.input("flag", DType.BOOL, (1,)), *pair(b, dtype)
    b.subgraph(kept("first", dtype, 0))
    b.subgraph(kept("second", dtype, 1))
    chosen = b.op("COND_IF", taken, x, z, then_graph="first", else_graph="second")
    run = tosajax.compile(b.graph([chosen]))
    low, high = (dtype.minimum, dtype.maximum) if dtype.is_integer else (0, 1)
    values = [np.array(v).astype(dtype.storage) for v in ([0, low, high], [high, 1, low])]
    for flag_value, wanted in zip((True, False), values, strict=True):
        (found,) = run(flag(flag_value), *values)
        assert np.asarray(found).tobytes() == wanted.tobytes()


def pair(b: Builder, dtype: DType) -> list[tosajax.Tensor]:
    return [b.input(name, dtype, (3,)) for name in ("x", "z")]


def kept(name: str, dtype: DType, position: int) -> tosajax.Graph:
    b = Builder(name)
    return b.graph([b.op("IDENTITY", pair(b, dtype)[position])])


def test_choice_by_example():
    x = jnp.asarray(np.stack([X, 2 * X]))
    fn, params = tosajax.lower(CHOICE)
    condition = jnp.array([[True], [False]])
    (found,) = jax.vmap(fn, in_axes=(None, 0, 0))(params, condition, x)
    np.testing.assert_array_equal(found, [X + 10, 2 * X + 20])


def test_choice_of_examples_side_by_side():
    ten, twenty = (programs.plus(a, f"plus_{a}", (1, 3)) for a in (10, 20))
    run = tosajax.compile(programs.choice(ten, twenty), batch=3)
    x = np.arange(9, dtype=np.int32).reshape(3, 3)
    (found,) = run(flag(True, False, True), x)
    np.testing.assert_array_equal(found, np.array([[10], [20], [10]]) + x)


def test_gradient_of_a_choice():
    twice, square = (binary_with_itself(op) for op in ("ADD", "MAXIMUM"))
    fn, params = tosajax.lower(programs.choice(twice, square))

    def total(x, taken):
        return fn(params, flag(taken), x)[0].sum()

    x = jnp.ones(3, jnp.float32)
    np.testing.assert_array_equal(jax.grad(total)(x, True), [2, 2, 2])
    np.testing.assert_array_equal(jax.grad(total)(x, False), [1, 1, 1])


def binary_with_itself(op: str):
    b = Builder(op.lower())
    x = b.input("x", DType.FP32, (3,))
    return b.graph([b.op(op, x, x)])


@pytest.mark.parametrize("start", [-3, 0, 3, 4, 9])
def test_loop(start):
    turns = max(4 - start, 0)
    i, found = tosajax.compile(LOOP)(np.array([start], np.int32), X)
    np.testing.assert_array_equal(i, [start + turns])
    np.testing.assert_array_equal(found, X * 2**turns)


def test_loop_by_example():
    fn, params = tosajax.lower(LOOP)
    starts = jnp.array([[0], [4], [2]], jnp.int32)
    ends, found = jax.jit(jax.vmap(fn, in_axes=(None, 0, None)))(params, starts, jnp.asarray(X))
    np.testing.assert_array_equal(ends, [[4], [4], [4]])
    np.testing.assert_array_equal(found, [X * 16, X, X * 4])


def test_loop_carries_int48():
    b = Builder("body")
    i, x, z = b.input("i", DType.INT32, (1,)), *pair(b, DType.INT48)
    body = b.graph([b.op("ADD", i, b.const([1], DType.INT32)), b.op("IDENTITY", z), x])
    b = Builder("condition")
    i, *_ = b.input("i", DType.INT32, (1,)), *pair(b, DType.INT48)
    graph = programs.loop(b.graph([b.op("GREATER", b.const([3], DType.INT32), i)]), body)
    x, z = np.array([-(1 << 47), 5, 7]), np.array([(1 << 47) - 1, 6, 8])
    _, *found = tosajax.compile(graph)(np.array([0], np.int32), x, z)
    np.testing.assert_array_equal(np.asarray(found), [z, x])
    fn, params = tosajax.lower(graph)
    starts = jnp.array([[0], [1]], jnp.int32)
    _, *found = jax.vmap(fn, in_axes=(None, 0, None, None))(
        params, starts, *map(_x64.from_numpy, (x, z))
    )
    np.testing.assert_array_equal(np.asarray(found), [[z, x], [x, z]])


def test_loop_in_a_choice_in_a_loop():
    """Turns of x: doubled until i is 2, then a loop of its own adds 1 three times."""
    inner = programs.loop(programs.below(3, "inner_below"), counted_up(), name="inner")
    b = Builder("body")
    i, x = b.input("i", DType.INT32, (1,)), b.input("x", DType.INT32, (3,))
    late = b.op("GREATER", i, b.const([1], DType.INT32))
    zero = b.const([0], DType.INT32)
    b.subgraph(inner)
    b.subgraph(programs.doubled("double"))
    _, x = b.ops("COND_IF", late, zero, x, then_graph="inner", else_graph="double")
    body = b.graph([b.op("ADD", i, b.const([1], DType.INT32)), x])
    (i, found) = tosajax.compile(programs.loop(programs.below(4), body))(np.array([0], np.int32), X)
    np.testing.assert_array_equal(i, [4])
    np.testing.assert_array_equal(found, X * 4 + 6)


def counted_up():
    b = Builder("counted_up")
    i, x = b.input("i", DType.INT32, (1,)), b.input("x", DType.INT32, (3,))
    one = b.const([1], DType.INT32)
    return b.graph([b.op("ADD", i, one), b.op("ADD", x, one)])


@pytest.mark.parametrize(("level", "deepest"), [("8K", 6), ("none", 256)])
def test_nesting_is_limited(level, deepest):
    target = tosajax.Target.everything(level)
    assert tosajax.validate(programs.nested(deepest), target).findings == ()
    (finding,) = tosajax.validate(programs.nested(deepest + 1), target).findings
    assert finding.label == "cond_if.e1"
    assert finding.verdict is tosajax.Verdict.ERROR
    assert f"depth {deepest}, expected less than {deepest} (MAX_NESTING)" in finding.message


def test_nested_choices():
    run = tosajax.compile(programs.nested(6))
    np.testing.assert_array_equal(run(X)[0], X + 1)
    np.testing.assert_array_equal(run(-abs(X))[0], -abs(X) - 1)


def test_nesting_that_python_cannot_follow():
    """Level "none" allows 256 graphs inside each other; 40 work, and no depth is a crash."""
    target = tosajax.Target.everything("none")
    np.testing.assert_array_equal(tosajax.compile(programs.nested(40), target)(X)[0], X + 1)
    run = tosajax.compile(programs.nested(256), target)
    with pytest.raises(UnsupportedError, match="graph 'main' nests control flow too deeply"):
        run(X)


def test_constants_of_subgraphs_are_parameters():
    fn, params = tosajax.lower(CHOICE)
    assert set(params) == {"then/amount", "else/amount"}
    changed = params | {"then/amount": jnp.array([7, 7, 7], jnp.int32)}
    np.testing.assert_array_equal(fn(changed, flag(True), jnp.asarray(X))[0], X + 7)


def test_constants_of_one_name():
    """A tensor may have the name of a subgraph's constant."""
    b = Builder()
    taken, x = b.input("flag", DType.BOOL, (1,)), b.input("x", DType.INT32, (3,))
    b.subgraph(programs.plus(10, "then"))
    b.subgraph(programs.plus(20, "else"))
    own = b.const([1, 1, 1], DType.INT32, name="then/amount")
    chosen = b.op("COND_IF", taken, x, then_graph="then", else_graph="else")
    run = tosajax.compile(b.graph([b.op("ADD", chosen, own)]))
    np.testing.assert_array_equal(run(flag(True), X)[0], X + 11)
    np.testing.assert_array_equal(run(flag(False), X)[0], X + 21)


def test_open_dimensions_of_subgraphs():
    """Two nodes use one graph of open size, with different sizes."""
    b = Builder()
    taken = b.input("flag", DType.BOOL, (1,))
    x, z = b.input("x", DType.INT32, (-1, 3)), b.input("z", DType.INT32, (2, 3))
    for name, op in (("then", "ABS"), ("else", "CLZ")):
        b.subgraph(programs.unary(op, name, shape=(-1, 3)))
    names: dict[str, Any] = {"then_graph": "then", "else_graph": "else"}
    graph = b.graph([b.op("COND_IF", taken, t, shape=(-1, 3), **names) for t in (x, z)])
    bound = tosajax.bind(graph, batch=5)
    assert [t.shape for t in bound.output_tensors] == [(5, 3), (2, 3)]
    assert not bound.is_dynamic
    run = tosajax.compile(graph)
    for batch in (1, 4):
        x = np.arange(-5, batch * 3 - 5, dtype=np.int32).reshape(batch, 3)
        z = np.full((2, 3), -9, np.int32)
        for found, given in zip(run(flag(True), x, z), (x, z), strict=True):
            np.testing.assert_array_equal(found, abs(given))


def test_open_subgraph_of_the_wrong_inputs():
    graph = programs.choice(
        programs.unary("ABS", "then", shape=(-1, 3)), programs.unary("ABS", "else", shape=(-1, 3))
    )
    (node,) = graph.nodes
    short = dataclasses.replace(node, inputs=node.inputs[:1])
    wanted = r"cannot tell the output shape: input_list has 0 tensors, expected 1 as in then_graph"
    with pytest.raises(TosaError, match=wanted):
        tosajax.bind(dataclasses.replace(graph, nodes=(short,)), batch=2)


@pytest.mark.skipif(not arm.is_installed(), reason="tosa-tools is not installed")
@pytest.mark.parametrize("graph", [CHOICE, LOOP, programs.nested(6)], ids=["if", "while", "nested"])
def test_arm_model_computes_the_same(graph):
    rng = np.random.default_rng(0)
    run = tosajax.compile(graph)
    for _ in range(3):
        inputs = {
            t.name: rng.integers(-3, 4, t.shape).astype(t.dtype.storage)
            for t in graph.input_tensors
        }
        wanted = arm.run(graph, inputs)
        assert wanted.status is arm.Status.VALID, wanted.message
        for tensor, found in zip(graph.outputs, run(*inputs.values()), strict=True):
            np.testing.assert_array_equal(found, wanted.outputs[tensor])
