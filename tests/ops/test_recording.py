"""While calls are recorded, each operator is one equation, which evaluates to the same bits."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun, jaxprs_in_params
from jax.typing import ArrayLike
from recorded import COMPUTING, assert_same, each_row, names, one_call, record, recorded, told

from tosajax import DType, ops, spec
from tosajax.ops.recording import operator_p, recorded_as, recording

every_row = each_row()

each_operator = pytest.mark.parametrize("operator", COMPUTING, ids=lambda operator: operator.name)


pytestmark = pytest.mark.usefixtures("quick")


# Each operator and type row.


@every_row
def test_one_equation(operator: spec.Operator, row: spec.TypeRow):
    """It has the operator's name, all arguments, and the types and shapes of the results."""
    call, _ = one_call(operator, row)
    jaxpr = record(call, *call.operands)
    (eqn,) = jaxpr.eqns
    assert eqn.primitive is operator_p
    assert eqn.params["op"] == operator.name
    assert eqn.invars == jaxpr.jaxpr.invars
    inputs = {a.name: value for a, value in zip(operator.inputs, call.inputs, strict=True)}
    defaults = {a.name: a.default for a in operator.attributes if a.default is not spec.REQUIRED}
    assert told(eqn) == {**inputs, **defaults, **call.attributes}
    assert list(told(eqn)) == list(inspect.signature(call.function).parameters)
    results = jax.eval_shape(call, *call.operands)
    assert [(a.shape, a.dtype) for a in jaxpr.out_avals] == [
        (r.shape, r.dtype) for r in jax.tree.leaves(results)
    ]
    with recording():
        again = jax.eval_shape(call, *call.operands)
    assert jax.tree.structure(again) == jax.tree.structure(results)


@each_operator
def test_equations_evaluate_to_the_same_bits(operator: spec.Operator):
    calls = [one_call(operator, row)[0] for row in operator.types]
    operands = [call.operands for call in calls]
    evaluated = [jaxpr_as_fun(record(call, *call.operands)) for call in calls]
    assert_same(evaluated[0](*operands[0]), calls[0](*operands[0]))

    def run(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
        return jax.jit(lambda rows: [f(*row) for f, row in zip(functions, rows, strict=True)])

    assert_same(run(evaluated)(operands), run(calls)(operands))


# The arguments of calls.


def test_shapes_and_paddings_are_tuples_of_integers():
    x = jnp.ones((1, 4, 4, 1), jnp.int8)

    def function(x):
        shape: Any = np.array([4, 4])
        y = ops.reshape(x, shape)
        zero = jnp.zeros(1, jnp.int8)
        pool = {"kernel": [2, 2], "stride": [np.int64(1), 1], "pad": [0, 0, 0, 0]}
        z = ops.avg_pool2d(x, zero, zero, **pool, acc_type=DType.INT32)
        return y, z

    reshape, pool = recorded(record(function, x))
    assert told(reshape) == {"input1": 0, "shape": (4, 4)}
    found = told(pool)
    assert (found["kernel"], found["stride"], found["pad"]) == ((2, 2), (1, 1), (0, 0, 0, 0))
    assert {type(n) for n in (*found["stride"], *told(reshape)["shape"])} == {int}


def test_inputs_by_keyword():
    x = jnp.arange(4, dtype=jnp.int32)
    jaxpr = record(lambda x, y: ops.sub(input2=x, input1=y), x, x + 1)
    assert jaxpr.eqns[0].invars == jaxpr.jaxpr.invars[::-1]
    np.testing.assert_array_equal(jaxpr_as_fun(jaxpr)(x, x + 1)[0], [1, 1, 1, 1])


def test_arrays_of_numpy_and_numbers_are_operands():
    x = jnp.arange(4, dtype=jnp.int32)
    row: Any = np.arange(4, dtype=np.int32)
    three: Any = 3
    jaxpr = record(lambda x: ops.bitwise_and(ops.add(x, row), three), x)
    assert [len(eqn.invars) for eqn in recorded(jaxpr)] == [2, 2]
    np.testing.assert_array_equal(jaxpr_as_fun(jaxpr)(x)[0], [0, 2, 0, 2])


def test_int48_constants_of_numpy_are_kept():
    """JAX would narrow them outside the operator's own scope."""
    x, w = jnp.ones((1, 1, 1, 1), jnp.int16), jnp.ones((1, 1, 1, 1), jnp.int8)
    bias: Any = np.array([2**40 + 1])
    zps = (jnp.zeros(1, jnp.int16), jnp.zeros(1, jnp.int8))
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}

    def function(x, w):
        return ops.conv2d(x, w, bias, *zps, **window, acc_type=DType.INT48)

    (result,) = jaxpr_as_fun(record(function, x, w))(x, w)
    assert np.asarray(result).item() == 2**40 + 2


@pytest.mark.parametrize("bound", [-1.5, np.float32(-1.5), np.float16(-1.5)])
def test_bounds_of_clamp_that_are_numbers_stay(bound):
    x = jnp.arange(-2, 2, dtype=jnp.float32)
    (eqn,) = record(lambda x: ops.clamp(x, min_val=bound, max_val=2), x).eqns
    found = told(eqn)
    assert (found["min_val"], type(found["min_val"]), found["max_val"]) == (bound, type(bound), 2)


def test_bounds_of_clamp_that_are_arrays_are_operands():
    x, low = jnp.arange(-2, 2, dtype=jnp.float32), jnp.float32(-1)
    jaxpr = record(lambda x, low: ops.clamp(x, min_val=low, max_val=2.0), x, low)
    assert told(jaxpr.eqns[0])["min_val"] == 1
    np.testing.assert_array_equal(jaxpr_as_fun(jaxpr)(x, low)[0], [-1, -1, 0, 1])


def test_bounds_of_either_zero_are_told_apart():
    """Python has 0.0 == -0.0, and so have the keys of caches."""
    x = jnp.ones(2, jnp.float32)

    def function(x):
        low = ops.clamp(-x, min_val=-0.0, max_val=1.0)
        return low, ops.clamp(-x, min_val=0.0, max_val=1.0)

    low, high = jax.jit(jaxpr_as_fun(record(function, x)))(x)
    assert np.signbit(low).all()
    assert not np.signbit(high).any()


# The switch.


def scaled(x: jax.Array) -> jax.Array:
    return ops.mul(x, x, jnp.zeros(1, jnp.int8))


def carried(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda total, x: (ops.add(total, x), x), jnp.zeros_like(x[0]), x)[0]


def chosen(x: jax.Array) -> jax.Array:
    condition = jnp.ones(1, bool)
    return ops.cond_if(condition, [x], then_graph=lambda x: ops.abs(x), else_graph=ops.exp)


def turned(x: jax.Array) -> jax.Array:
    state = [x, jnp.zeros(1, jnp.int32)]
    return ops.while_loop(
        state,
        cond_graph=lambda _, n: ops.greater(jnp.full(1, 3, jnp.int32), n),
        body_graph=lambda x, n: (ops.tanh(x), ops.add(n, jnp.ones(1, jnp.int32))),
    )[0]


WITH_SCOPES = {
    "jit": (jax.jit(scaled), {"MUL"}),
    "remat": (jax.checkpoint(scaled), {"MUL"}),
    "scan": (carried, {"ADD"}),
    "cond": (chosen, {"ABS", "EXP"}),
    "while": (turned, {"GREATER", "TANH", "ADD"}),
}


def all_names(jaxpr: Any) -> set[str]:
    found: set[str] = set()
    for eqn in jaxpr.eqns:
        if eqn.primitive is operator_p:
            found.add(eqn.params["op"])
        for part in jaxprs_in_params(eqn.params):
            found |= all_names(part)
    return found


@pytest.mark.parametrize("name", WITH_SCOPES)
def test_caches_tell_recording_from_none(name: str):
    function, wanted = WITH_SCOPES[name]
    x = jnp.ones((2, 3), jnp.float32)
    compiled = jax.jit(function)
    for _ in range(2):
        before = compiled(x)
        assert all_names(jax.make_jaxpr(function)(x).jaxpr) == set()
        jaxpr = record(function, x)
        assert all_names(jaxpr.jaxpr) == wanted
        with recording():
            assert_same(compiled(x), before)
        assert_same(jaxpr_as_fun(jaxpr)(x), before)


def test_nothing_is_traced_again_outside():
    traces = []

    @jax.jit
    def function(x):
        traces.append(None)
        return ops.tanh(x)

    x = jnp.ones(3, jnp.float32)
    record(lambda x: x, x)
    function(x)
    with recording():
        function(x)
        function(x)
    function(x)
    assert len(traces) == 2


def test_recording_ends_with_an_error_and_may_be_nested():
    x = jnp.ones(3, jnp.float32)
    with pytest.raises(ZeroDivisionError), recording():
        raise ZeroDivisionError
    assert all_names(jax.make_jaxpr(ops.tanh)(x).jaxpr) == set()
    with recording():
        with recording():
            pass
        assert names(jax.make_jaxpr(ops.tanh)(x)) == ["TANH"]


def test_other_threads_do_not_record():
    found = []
    x = jnp.ones(3, jnp.float32)
    with recording():
        thread = threading.Thread(target=lambda: found.append(jax.make_jaxpr(ops.tanh)(x)))
        thread.start()
        thread.join()
    assert all_names(found[0].jaxpr) == set()


def test_a_new_process_makes_no_context_before_it_records():
    """JAX would trace and compile everything anew that it has."""
    code = """
import jax
import tosajax.ops
traces = []
f = jax.jit(lambda x: traces.append(None) or x + 1)
f(1.0)
tosajax.ops.tanh(f(1.0))
f(1.0)
assert len(traces) == 1, traces
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_calls_inside_an_operator_are_no_equations():
    """RFFT2D computes by FFT2D, and CLAMP by MAXIMUM."""
    x = jnp.ones((1, 4, 4), jnp.float32)
    jaxpr = record(lambda x: ops.clamp(ops.rfft2d(x)[0], min_val=-1.0, max_val=1.0), x)
    assert [eqn.params["op"] for eqn in jaxpr.eqns] == ["RFFT2D", "CLAMP"]


# Transformations.


def network(x: jax.Array, w: jax.Array) -> jax.Array:
    zero = jnp.zeros(1, jnp.float32)
    y = ops.tanh(ops.matmul(x, w, zero, zero, out_type=DType.FP32))
    y = ops.clamp(ops.sub(y, ops.exp(y)), min_val=-0.6, max_val=0.6)
    return jnp.sum(ops.concat([y, ops.reverse(y, axis=1)], axis=0))


def drawn() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 3, 4)), rng.normal(size=(1, 4, 3))
    return jnp.asarray(x, jnp.float32), jnp.asarray(w, jnp.float32)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.value_and_grad(f, argnums=(0, 1)),
        lambda f: jax.value_and_grad(jax.checkpoint(f), argnums=(0, 1)),
        lambda f: lambda x, w: jax.jvp(f, (x, w), (w.reshape(x.shape), jnp.ones_like(w))),
        lambda f: jax.hessian(f, argnums=1),
        lambda f: lambda x, w: jax.linearize(f, x, w)[1](x, w),
        lambda f: lambda x, w: jax.vmap(jax.grad(f), (None, 0))(x, jnp.stack([w, -w])),
    ],
    ids=["grad", "remat", "jvp", "hessian", "linearize", "vmap of grad"],
)
def test_gradients(transform: Callable[..., Any]):
    x, w = drawn()
    expected = jax.jit(transform(network))(x, w)
    jaxpr = record(transform(network), x, w)
    found = jax.jit(jaxpr_as_fun(jaxpr))(x, w)
    for one, other in zip(found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_values_beside_gradients_are_operators():
    jaxpr = record(jax.value_and_grad(network), *drawn())
    assert names(jaxpr) == ["MATMUL", "TANH", "EXP", "SUB", "CLAMP", "REVERSE", "CONCAT"]


def test_an_evaluated_equation_can_be_transformed():
    x, w = drawn()
    function = jaxpr_as_fun(record(network, x, w))
    expected = jax.grad(network)(x, w)
    np.testing.assert_allclose(
        jax.grad(lambda x, w: function(x, w)[0])(x, w), expected, rtol=1e-5, atol=1e-6
    )
    two = jnp.stack([x, 2 * x])
    wanted = [network(x, w), network(2 * x, w)]
    np.testing.assert_allclose(jax.vmap(function, (0, None))(two, w)[0], wanted, rtol=1e-5)


def test_gradients_of_integers_are_zero():
    def function(x):
        y = ops.cast(x, out_type=DType.INT8)
        return jnp.sum(ops.cast(ops.bitwise_not(y), out_type=DType.FP32) * x)

    x = jnp.asarray([1.2, -3.7], jnp.float32)
    jaxpr = record(jax.grad(function), x)
    np.testing.assert_array_equal(jaxpr_as_fun(jaxpr)(x)[0], jax.grad(function)(x))


# Functions that are no operators.


class Pair(NamedTuple):
    first: jax.Array
    second: jax.Array


@recorded_as("test.mix", keeps_batches=True)
def mix(mode: str, pair: Pair, *, weight: ArrayLike = 2.0) -> tuple[Pair, jax.Array]:
    """A function with a pytree, and an operator inside."""
    total = ops.add(pair.first, jnp.multiply(weight, pair.second))
    return Pair(total, pair.first), total if mode == "total" else ops.negate(total, *ZEROS)


ZEROS: Any = (np.zeros(1, np.float32),) * 2


def test_a_function_of_pytrees():
    pair = Pair(jnp.ones(3, jnp.float32), jnp.arange(3, dtype=jnp.float32))
    jaxpr = record(lambda pair: mix("total", pair), pair)
    (eqn,) = jaxpr.eqns
    assert eqn.params["op"] == "test.mix"
    marks: Any = (0, 1)
    assert told(eqn) == {"mode": "total", "pair": marks, "weight": 2.0}
    assert_same(jaxpr_as_fun(jaxpr)(*pair), mix("total", pair))
    with recording():
        inside = jax.make_jaxpr(eqn.params["call"].opened)(*pair)
    assert names(inside) == ["ADD"]


def test_batches_of_a_function_are_one_equation():
    rng = np.random.default_rng(3)
    shapes = (4, 2, 3), (3, 2)
    first, second = (jnp.asarray(rng.normal(size=n), jnp.float32) for n in shapes)

    def function(first, second):
        return mix("other", Pair(first, second), weight=jnp.float32(0.5))

    mapped = jax.vmap(jax.vmap(function, (0, None)), (1, 1))
    jaxpr = record(mapped, first, second)
    (eqn,) = recorded(jaxpr)
    assert eqn.params["call"].batches == ((True, True, False), (True, False, False))
    assert_same(jaxpr_as_fun(jaxpr)(first, second), mapped(first, second))
