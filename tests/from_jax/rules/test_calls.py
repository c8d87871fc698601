"""Calls are inlined, and whatever leaves arrays as they are leaves no node."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import linear_call
from jax.experimental import compute_on, hijax, io_callback
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.layout import Layout, with_layout_constraint
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core
from jax.extend.core import primitives
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tosajax.from_jax.callees import PARAMETERS
from tosajax.from_jax.export import export
from tosajax.from_jax.places import Place
from tosajax.from_jax.rules import RULES
from tosajax.from_jax.scope import Options, Scope
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import known
from tosajax.from_jax.walk import call, run
from tosajax.report import UnsupportedError
from tosajax.spec.target import Target

pytestmark = pytest.mark.usefixtures("quick")

X = np.array([-2.5, 0.0, 1.0, 3.25], np.float32)


def primitives_of(fn, *args):
    """The names of all primitives, also of those in calls."""

    def names(jaxpr):
        for eqn in jaxpr.eqns:
            yield eqn.primitive.name
            for value in eqn.params.values():
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    yield from names(inner)

    return {*names(jax.make_jaxpr(fn)(*args).jaxpr)}


@jax.custom_jvp
def with_jvp(x):
    return x + 1


with_jvp.defjvp(lambda primals, tangents: (with_jvp(*primals), tangents[0] + tangents[0]))


@jax.custom_vjp
def with_vjp(x):
    return x + 2


with_vjp.defvjp(lambda x: (x + 2, x), lambda saved, change: (change * saved,))


@jax.custom_vjp
def with_few_saved(x):
    return x + 3


with_few_saved.defvjp(
    lambda x: (x + 3, x), lambda saved, change: (change * saved,), optimize_remat=True
)


@custom_vmap
def with_vmap(x):
    return x + 4


with_vmap.def_vmap(lambda size, batched, x: (x + 4, batched[0]))


def linear(x):
    return linear_call(lambda by, x: x * by, lambda by, change: change * by, jnp.float32(5), x)


@custom_partitioning
def partitioned(x):
    return x + 6


partitioned.def_partition(partition=None, infer_sharding_from_operands=None, sharding_rule="i -> i")


def called(primitive, x):
    """A call as JAX has it in jaxprs that it evaluates again."""
    outer = jax.make_jaxpr(jax.jit(lambda x: x + 8))(x).jaxpr
    inner = outer.eqns[0].params["jaxpr"]
    inner = inner.jaxpr if primitive is primitives.call_p else inner
    eqn = outer.eqns[0].replace(primitive=primitive, params={"call_jaxpr": inner})
    return core.jaxpr_as_fun(core.ClosedJaxpr(outer.replace(eqns=[eqn]), ()))(x)[0]


def solved(x):
    scale, other, inverse = x + 1, x + 2, x + 3
    return lax.custom_linear_solve(
        lambda v: v * scale,
        x,
        solve=lambda product, b: b * inverse,
        transpose_solve=lambda product, b: b * other,
    )


HIJAX: Any = vars(hijax)
COMPUTE_ON: Any = vars(compute_on)


class Doubled(HIJAX.get("HiPrim") or HIJAX["VJPHiPrimitive"]):
    """x + x of a dict of arrays."""

    def __init__(self, aval):
        self.in_avals = ({"x": aval},)
        self.out_aval = {"y": aval}
        self.params = {}
        super().__init__()

    def expand(self, arrays):
        return {"y": arrays["x"] + arrays["x"]}


def doubled(x):
    return Doubled(jax.typeof(x))({"x": x})["y"]


def on_host(x):
    on = COMPUTE_ON.get("compute_on2", COMPUTE_ON["compute_on"])
    space = jax.memory.Space.Device
    return on(lambda x: x + 9, compute_type="device_host", out_memory_spaces=space)(x)


def by_platform(x):
    return lax.platform_dependent(x, cpu=lambda x: x * 2, cuda=lambda x: x)


def by_default(x):
    def added(x):
        return x + x

    return lax.platform_dependent(x, cpu=lambda x: x * 2, default=added)


CALLS = {
    "jit": jax.jit(lambda x: x + 1),
    "remat2": jax.checkpoint(lambda x: x + 1),
    "custom_jvp_call": with_jvp,
    "custom_vjp_call": with_vjp,
    "custom_vmap_call": with_vmap,
    "custom_partitioning": partitioned,
    "linear_call": linear,
    "custom_linear_solve": solved,
    "call or eval_jaxpr": partial(called, primitives.call_p),
    "closed_call or eval_jaxpr": partial(called, primitives.closed_call_p),
    "remat_opt": lambda x: jax.vjp(with_few_saved, x)[0],
    "call_hi_primitive": doubled,
    "compute_on": on_host,
    "platform_index": by_platform,
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    fn = CALLS[name]
    assert not primitives_of(fn, X).isdisjoint(name.split(" or "))
    graph = agrees(fn, X, model=True)
    assert {*operators(graph)} <= {"ADD", "MUL"}


@pytest.mark.parametrize("name", [*PARAMETERS])
def test_parameters_of_calls(name):
    """Also of primitives that only some versions of JAX have."""
    outer = jax.make_jaxpr(jax.jit(lambda x: x * 3))(X).jaxpr
    params = {PARAMETERS[name]: outer.eqns[0].params["jaxpr"]}
    primitive = core.Primitive(name)
    primitive.multiple_results = True
    eqn = outer.eqns[0].replace(primitive=primitive, params=params)
    jaxpr = core.ClosedJaxpr(outer.replace(eqns=[eqn]), ())
    (found,) = run(Scope(Options(Target.everything(), 8)), jaxpr, [known(X)], Place())
    np.testing.assert_array_equal(found.elements, X * 3)


@pytest.mark.parametrize("fn", [jax.jit(lambda x: (x, x)), jax.jit(lambda x: X)])
def test_calls_without_equations(fn):
    agrees(fn, X, model=True)


def test_derivatives_of_the_users_own():
    def slopes(x):
        forward = jax.jvp(with_jvp, (x,), (x,))[1]
        return forward, jax.vjp(with_vjp, x)[1](x)[0], jax.vmap(with_vmap)(x)

    agrees(slopes, X, model=True)


def test_custom_root():
    def root(x):
        return lax.custom_root(lambda y: y - x, x, lambda f, y: y * 3, lambda f, y: y)

    agrees(root, X, model=True)


def test_platforms():
    graph = agrees(by_default, X)
    assert operators(graph) == ["ADD"]
    with pytest.raises(UnsupportedError, match="branches for cuda, rocm, expected one for cpu"):
        export(lambda x: lax.platform_dependent(x, cuda=lambda x: x, rocm=lambda x: -x), X)


MESH = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Auto,))
SHARDING = NamedSharding(MESH, PartitionSpec("i"))

IDENTITIES = {
    "device_put": jax.device_put,
    "layout_constraint": lambda x: with_layout_constraint(x, Layout((0,))),
    "name": lambda x: checkpoint_name(x, "kept"),
    "optimization_barrier": lambda x: lax.optimization_barrier((x, x * 2)),
    "sharding_constraint": lambda x: lax.with_sharding_constraint(x, SHARDING),
    "stop_gradient": lax.stop_gradient,
    "xla_metadata_value": lambda x: set_xla_metadata(x, kind="input"),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities(name):
    def scaled(x):
        return jax.tree.map(lambda y: y * 5, IDENTITIES[name](x))

    assert name in primitives_of(scaled, X)
    graph = agrees(scaled, jnp.asarray(X), model=True)
    assert {*operators(graph)} == {"MUL"}


def test_sharding_identities():
    """Primitives that need more devices, or another version of JAX."""
    for name, count in (("reshard", 1), ("shard_alike", 2)):
        values = [known(X + i) for i in range(count)]
        scope = Scope(Options(Target.everything(), 8))
        step = Step(scope, name, {}, (), Place(), call)
        assert RULES[name](step, *values) == values


def test_prints_are_dropped(capfd):
    def printing(x):
        jax.debug.print("x is {}", x)
        jax.debug.print("a constant is {}", jnp.float32(3))
        jax.debug.print("nothing")
        jax.debug.callback(lambda x: print("called", x), x)
        return x * 2

    assert {"debug_print", "debug_callback"} <= primitives_of(printing, X)
    graph = export(printing, X, check=False)
    jax.effects_barrier()
    assert capfd.readouterr().out == ""
    assert operators(graph) == ["MUL"]
    notes = [str(note) for note in graph.source.rewrites]
    assert len(notes) == 4
    for note in notes:
        assert "left out; nothing is printed or called back" in note
        assert "test_calls.py:" in note
    agrees(printing, X)


def test_prints_in_computed_loops_are_dropped(capfd):
    def printing(x):
        def turn(i, total):
            jax.debug.print("turn {}", i)
            return total + i

        return x * lax.fori_loop(0, 3, turn, 0).astype(jnp.float32)

    graph = export(printing, X, check=False)
    jax.effects_barrier()
    assert capfd.readouterr().out == ""
    assert operators(graph) == ["MUL"]


def test_inspected_shardings_are_dropped():
    def inspected(x):
        jax.debug.inspect_array_sharding(x, callback=lambda sharding: None)
        return x * 2

    assert "inspect_sharding" in primitives_of(inspected, X)
    assert operators(export(inspected, X, check=False)) == ["MUL"]


def identity_call(x):
    return jax.pure_callback(lambda x: x, jax.typeof(x), x)


def outside(x):
    return io_callback(lambda x: x, jax.typeof(x), x)


def outside_of_a_constant(x):
    return x + io_callback(lambda x: x, jax.ShapeDtypeStruct((4,), np.float32), X)


def foreign(x):
    return jax.ffi.ffi_call("elsewhere", jax.typeof(x))(x)


def sharded(x):
    spec = PartitionSpec("i")
    return jax.shard_map(lambda x: x * 2, mesh=MESH, in_specs=spec, out_specs=spec)(x)


def written(x):
    reference = jax.new_ref(x)
    reference[1] = 3.0
    return reference[...]


@pytest.mark.parametrize(
    ("fn", "name", "hint"),
    [
        (identity_call, "pure_callback", "write it in jax.numpy, or with the operators of"),
        (outside, "io_callback", "write it in jax.numpy"),
        (outside_of_a_constant, "io_callback", "write it in jax.numpy"),
        (foreign, "ffi_call", "write it in jax.numpy"),
        (sharded, "shard_map", "export the function of one device"),
        (written, "new_ref", "return new arrays in place of writing to one of jax.new_ref"),
    ],
)
def test_what_is_not_a_computation(fn, name, hint):
    with pytest.raises(UnsupportedError, match=rf"{name} \(.*test_calls.py:\d+\): .*{hint}"):
        export(fn, X, check=False)


def test_a_callback_of_constants_is_computed():
    def fn(x):
        return x + jax.pure_callback(lambda x: x * 2, jax.ShapeDtypeStruct((4,), np.float32), X)

    assert operators(agrees(fn, X)) == ["ADD"]
