"""Whole graphs with gradients: the integers that ship, under every transformation of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import below, choice, doubled, loop, plus

import tosajax
from tosajax import Builder, DType, grad, spec
from tosajax.grad import QTensor, tie
from tosajax.grad.qtensor import payload

pytestmark = pytest.mark.usefixtures("quick")

NETWORKS = ["et_digits_cnn_a8w8", "et_digits_cnn_a16w8", "jax_gather"]


def load(data, name):
    graph = tosajax.load(data / name / "model.tosa")
    files = sorted((data / name).glob("inputs_*.npy"))
    return graph, [np.load(f)[0] for f in files]


@pytest.mark.parametrize(
    "name", [*NETWORKS, pytest.param("et_digits_vit_a8w8", marks=pytest.mark.slow)]
)
def test_networks_compute_what_ships(data, name):
    graph, inputs = load(data, name)
    plain, constants = tosajax.lower(graph)
    fn, params = tosajax.differentiable(graph)
    expected = jax.jit(plain)(constants, *inputs)
    for found, want in zip(jax.jit(fn)(params, *inputs), expected, strict=True):
        np.testing.assert_array_equal(payload(found), want)


@pytest.fixture
def digits(data):
    """Squares of the outputs as a function of all shadows, and the shadows."""
    graph, (x,) = load(data, "et_digits_cnn_a8w8")
    fn, params = tosajax.differentiable(graph)
    shadows = {name: value.shadow for name, value in params.items()}

    def loss(shadows: Any, x: Any = x) -> jax.Array:
        given = {name: QTensor(params[name].q, shadow) for name, shadow in shadows.items()}
        return (tie(fn(given, x)[0]) ** 2).sum()

    return loss, shadows, x


def random_like(tree: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: jax.device_put(np.asarray(rng.normal(size=x.shape), jnp.float32)), tree
    )


def inner(a: Any, b: Any) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum(float((np.asarray(x) * np.asarray(y)).sum()) for x, y in pairs)


def test_forward_and_reverse_mode_agree(digits):
    loss, shadows, _ = digits
    along = random_like(shadows, 1)
    gradient = jax.jit(jax.grad(loss))(shadows)
    (derivative,) = jax.jit(lambda s, t: jax.jvp(loss, (s,), (t,)))(shadows, along)[1:]
    np.testing.assert_allclose(inner(gradient, along), derivative, rtol=1e-4)
    moved = [name for name, g in gradient.items() if np.asarray(g).any()]
    assert not any(name.endswith("_shifts") for name in moved)
    for kind in ("weight_ohwi", "weight_hwicm", "multipliers", "input_zp", "output_zp"):
        assert any(name.endswith(kind) for name in moved), kind


@pytest.mark.slow
def test_second_derivatives_are_symmetric(digits):
    loss, shadows, _ = digits
    a, b = random_like(shadows, 2), random_like(shadows, 3)
    product = jax.jit(lambda t: jax.jvp(jax.grad(loss), (shadows,), (t,))[1])
    np.testing.assert_allclose(inner(a, product(b)), inner(b, product(a)), rtol=1e-4)
    backward = jax.jit(lambda t: jax.grad(lambda s: jax.jvp(loss, (s,), (t,))[1])(shadows))
    np.testing.assert_allclose(inner(a, product(b)), inner(a, backward(b)), rtol=1e-4)


@pytest.mark.slow
def test_batches_loops_and_checkpoints(digits):
    loss, shadows, x = digits
    images = np.stack([x, x[:, ::-1], np.roll(x, 1, axis=2)])
    gradient = jax.grad(loss)
    alone = [jax.jit(gradient)(shadows, image) for image in images]
    together = jax.jit(jax.vmap(gradient, in_axes=(None, 0)))(shadows, images)
    in_turn = jax.jit(lambda xs: jax.lax.map(lambda image: gradient(shadows, image), xs))(images)
    again = jax.jit(jax.vmap(jax.grad(jax.checkpoint(loss)), in_axes=(None, 0)))(shadows, images)
    for name in shadows:
        want = np.stack([one[name] for one in alone])
        size = np.abs(want).max() + 1e-6
        for found in (together, in_turn, again):
            np.testing.assert_allclose(found[name] / size, want / size, atol=1e-4)


@pytest.mark.slow
def test_gradients_are_exported(digits):
    loss, shadows, _ = digits
    exported = jax.export.export(jax.jit(jax.grad(loss)))(shadows)
    again = jax.export.deserialize(exported.serialize())
    want = jax.jit(jax.grad(loss))(shadows)
    called: Any = again.call(shadows)
    for name, found in called.items():
        np.testing.assert_allclose(found, want[name], rtol=1e-5, atol=1e-5)


def test_inference_computes_no_shadow(data):
    graph, inputs = load(data, "et_digits_cnn_a8w8")
    plain, constants = tosajax.lower(graph)
    fn, params = tosajax.differentiable(graph)

    def floats(call, *operands):
        text = jax.jit(call).lower(*operands).compile().as_text() or ""
        return [line for line in text.splitlines() if " f32[" in line and "parameter" not in line]

    integers = jax.tree.map(payload, params, is_leaf=lambda x: isinstance(x, QTensor))
    assert len(integers) == len(constants)
    run = floats(lambda p, x: payload(fn(p, x)[0]), integers, *inputs)
    assert len(run) <= len(floats(plain, constants, *inputs))


def test_estimators_by_operator(data):
    graph, (x,) = load(data, "et_digits_cnn_a8w8")

    def gradient(**options: Any) -> np.ndarray:
        fn, params = tosajax.differentiable(graph, **options)
        q = jax.device_put(x)
        out = jax.jit(jax.grad(lambda s: tie(fn(params, QTensor(q, s))[0]).sum()))
        return np.asarray(out(q.astype(jnp.float32)))

    assert np.any(gradient())
    assert not np.any(gradient(estimator=grad.zero))
    assert not np.any(gradient(overrides={"RESCALE": grad.zero}))
    assert np.any(gradient(estimator=grad.zero, overrides={"RESCALE": grad.ste}))
    with pytest.raises(ValueError, match="ADD has no estimator"):
        tosajax.differentiable(graph, overrides={"ADD": grad.ste})
    with pytest.raises(ValueError, match="no operators RESCAEL"):
        tosajax.differentiable(graph, overrides={"RESCAEL": grad.ste})


def test_control_flow():
    fn, params = tosajax.differentiable(choice(plus(5, "a"), plus(7, "b")))
    x = jnp.array([1, 2, 3], jnp.int32)

    def total(flag: jax.Array, s: jax.Array) -> jax.Array:
        (y,) = fn(params, flag, QTensor(x, s))
        return (tie(y) ** 2).sum()

    for flag, more in ((True, 5), (False, 7)):
        found = jax.jit(jax.grad(total, argnums=1))(jnp.array([flag]), x.astype(jnp.float32))
        np.testing.assert_array_equal(found, 2 * (x + more))


def test_loops_have_a_forward_mode():
    fn, params = tosajax.differentiable(loop(below(5), doubled()))
    x = jnp.array([1, 2, 3], jnp.int32)

    def run(s: jax.Array) -> Any:
        return fn(params, jnp.array([2], jnp.int32), QTensor(x, s))[-1]

    value, moved = jax.jit(lambda s: jax.jvp(run, (s,), (jnp.ones(3),)))(x.astype(jnp.float32))
    np.testing.assert_array_equal(value.q, 8 * x)
    np.testing.assert_array_equal(moved.shadow, [8, 8, 8])


@pytest.mark.parametrize("turns", [0, 1, 3, 5, 6])
def test_loops_have_a_reverse_mode_for_so_many_turns(turns):
    graph = loop(below(6), doubled())
    fn, params = tosajax.differentiable(graph, max_trip_count=5)
    plain, constants = tosajax.lower(graph)
    first, x = jnp.array([6 - turns], jnp.int32), np.array([1, -2, 3], np.int32)

    def run(s: jax.Array) -> Any:
        return fn(params, first, QTensor(jax.device_put(x), s))[-1]

    def loss(s: jax.Array) -> jax.Array:
        return (tie(run(s)) ** 2).sum()

    @jax.jit
    def derivatives(real: jax.Array, along: jax.Array) -> Any:
        moved = jax.jvp(loss, (real,), (along,))[1]
        return moved, *jax.jvp(jax.grad(loss), (real,), (along,))

    real = x.astype(np.float32)
    want = 2 * 4.0**turns if turns <= 5 else np.nan
    np.testing.assert_array_equal(jax.jit(run)(real).q, jax.jit(plain)(constants, first, x)[-1])
    for along in np.array([[1, 2, -1], [3, 1, 1]], np.float32):
        moved, gradient, product = derivatives(real, along)
        np.testing.assert_array_equal(gradient, want * x)
        np.testing.assert_array_equal(moved, want * (x * along).sum())
        np.testing.assert_array_equal(product, want * along)


def test_loops_in_loops_have_gradients_of_their_constants():
    """Each of 3 turns multiplies by 2 in 2 turns of its own, of a loop that may have 3."""
    b = Builder("times")
    i, x = b.input("i", DType.INT32, (1,)), b.input("x", DType.INT32, (3,))
    two = b.const([2, 2, 2], DType.INT32, name="two")
    more = b.op("ADD", i, b.const([1], DType.INT32))
    inner = loop(below(2), b.graph([more, b.op("MUL", x, two, b.const([0], DType.INT8))]), "inner")
    b = Builder("outer")
    i, x = b.input("i", DType.INT32, (1,)), b.input("x", DType.INT32, (3,))
    graphs: dict[str, Any] = {
        f"{kind}_graph": b.subgraph(inner.subgraphs[name])
        for kind, name in (("cond", "below"), ("body", "times"))
    }
    _, y = b.ops("WHILE_LOOP", b.const([0], DType.INT32), x, **graphs)
    body = b.graph([b.op("ADD", i, b.const([1], DType.INT32)), y])
    fn, params = tosajax.differentiable(loop(below(3, "outer_below"), body), max_trip_count=3)
    (name,) = (name for name in params if name.endswith("two"))
    x = QTensor.of(jnp.array([1, -2, 3], jnp.int32))

    def total(shadow: jax.Array) -> jax.Array:
        given = params | {name: QTensor(params[name].q, shadow)}
        return fn(given, jnp.array([0], jnp.int32), x)[-1].shadow.sum()

    found = jax.jit(jax.grad(total))(params[name].shadow)
    np.testing.assert_array_equal(found, 6 * 2**5 * x.q)


def test_loops_of_examples_end_apart():
    fn, params = tosajax.differentiable(loop(below(6), doubled()), max_trip_count=4)
    x = jnp.array([1, 2, 3], jnp.int32)

    def loss(s: jax.Array, first: jax.Array) -> jax.Array:
        return tie(fn(params, first[None], QTensor(x, s))[-1]).sum()

    firsts = jnp.array([7, 6, 5, 3, 2, 1], jnp.int32)
    slopes = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(x.astype(jnp.float32), firsts)
    want = np.array([1, 1, 2, 8, 16, np.nan])
    np.testing.assert_array_equal(slopes, want[:, None].repeat(3, 1))


def test_inference_runs_a_loop_once():
    fn, params = tosajax.differentiable(loop(below(6), doubled()), max_trip_count=4)
    inputs = [jnp.array([2], jnp.int32), jnp.array([1, 2, 3], jnp.int32)]

    def integers(*inputs: jax.Array) -> Any:
        return [payload(y) for y in fn(params, *inputs)]

    text = jax.jit(integers).lower(*inputs).compile().as_text() or ""
    assert text.count(" while(") == 1


def test_variables():
    b = Builder()
    x = b.input("x", DType.INT8, (3,))
    old = b.read("last", DType.INT8, (3,))
    b.variable("last", DType.INT8, (3,), initial_value=[1, 2, 3])
    b.write("last", x)
    graph = b.graph([b.op("MUL", x, old, b.const([0], DType.INT8))])
    fn, params = tosajax.differentiable(graph)
    state = tosajax.initial_state(graph)

    def total(s: jax.Array) -> jax.Array:
        q = QTensor(jnp.array([4, 5, 6], jnp.int8), s)
        known, _ = fn(params, state, q)
        return tie(fn(params, known, q)[1][0]).sum()

    found = jax.jit(jax.grad(total))(jnp.array([4.0, 5.0, 6.0]))
    np.testing.assert_array_equal(found, [8, 10, 12])


def test_every_operator_has_a_rule():
    rules = grad.gradient_rules()
    left_out = set(spec.OPERATORS) - set(rules)
    assert left_out == {
        *("CONST", "CONST_SHAPE", "CUSTOM", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE")
    }
    assert all(rules.values())
    assert rules["RESCALE"].startswith("(x - input_zp) * scale")
    assert rules["SIN"] == "Natural"
    assert rules["LOGICAL_OR"] == rules["REDUCE_ALL"] == "None: bool"
    assert "`safe`" in rules["LOG"]
    assert "`max_trip_count`" in rules["WHILE_LOOP"]
    lines = str(rules).splitlines()
    assert len(lines) == len(rules)
    assert lines[0].split() == ["ARGMAX", "0"]
