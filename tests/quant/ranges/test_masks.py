"""Masks of attention: numbers that stand for "never" have no scale, and softmax leaves them out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax_networks
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph, quant, reference_model
from tosajax.graph import Node
from tosajax.quant.graphs.blocks import all_nodes
from tosajax.quant.graphs.simplify import simplify
from tosajax.quant.qparams import QParams
from tosajax.quant.ranges.mask_ranges import leaving_out, saturated
from tosajax.quant.ranges.masks import masked_axes, with_selects
from tosajax.quant.ranges.observers import min_max

LENGTH, FEATURES = 6, 8
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), np.bool_))
PROGRAMS = ("frozen", "reference_model") if reference_model.is_installed() else "frozen"
LOWEST = float(np.finfo(np.float32).min)
RNG = np.random.default_rng(20)
EXAMPLES = [
    tuple(RNG.normal(0, 0.8, (LENGTH, FEATURES)).astype(np.float32) for _ in range(2))
    for _ in range(8)
]


def added(never: float, rest: np.ndarray | float = 0.0) -> np.ndarray:
    return np.where(CAUSAL, rest, never).astype(np.float32)


DISTANCES = -np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))) / 4
SECOND = np.where(np.arange(LENGTH) == 1, -1e10, 0).astype(np.float32)[None]
MASKS = {
    "where-lowest": lambda x: jnp.where(CAUSAL, x, LOWEST),
    "where-inf": lambda x: jnp.where(CAUSAL, x, -jnp.inf),
    "where-1e10": lambda x: jnp.where(~CAUSAL, -1e10, x),
    "where-array": lambda x: jnp.where(CAUSAL, x, added(-np.inf, -1e9)),
    "add-lowest": lambda x: x + added(LOWEST),
    "add-inf": lambda x: added(-np.inf) + x,
    "add-1e10": lambda x: x + added(-1e10),
    "sub-1e10": lambda x: x - added(1e10),
    "add-distances": lambda x: x + added(-np.inf, DISTANCES),
    "add-two": lambda x: x + added(-1e9) + SECOND,
}


def attention(mask: Callable[..., Any], queries: Any, keys: Any) -> jax.Array:
    return jax.nn.softmax(mask(queries @ keys.T / np.sqrt(FEATURES)), axis=-1)


def exported(mask: Callable[..., Any], fn: Callable[..., Any] = attention) -> Graph:
    return tosajax.export(functools.partial(fn, mask), *EXAMPLES[0], check=False)


def calibrated(graph: Graph, **options: Any) -> tuple[quant.PreparedModel, dict[str, Any]]:
    model = quant.prepare(graph, [quant.rule(".*", act=quant.QSpec(symmetric=False, **options))])
    return model, quant.calibrate(model, EXAMPLES)


def outputs(
    model: quant.PreparedModel, params: dict[str, Any], mode: quant.Mode = "exact"
) -> np.ndarray:
    run = jax.jit(lambda p, *x: model.apply(p, *x, mode=mode)[0])
    return np.stack([np.asarray(run(params, *example)) for example in EXAMPLES])


def nodes_of(model: quant.PreparedModel, op: str) -> list[Node]:
    return [node for node in model.float_graph.nodes if node.op == op]


def assert_softmax(found: np.ndarray, wanted: np.ndarray) -> None:
    assert np.abs(found - wanted).max() < 0.02
    assert (wanted == 0).any()
    assert np.abs(found[wanted == 0]).max() < 1 / 256


def some(names, *quick):
    """The names, of which all others are left to slow runs."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", some(MASKS, "where-lowest", "add-inf", "add-distances"))
def test_softmax_leaves_masked_elements_out(name):
    model, params = calibrated(exported(MASKS[name]))
    wanted = outputs(model, params, "float")
    expected = np.stack([np.asarray(attention(MASKS[name], *example)) for example in EXAMPLES])
    np.testing.assert_allclose(wanted, expected, atol=1e-6)
    assert_softmax(outputs(model, params), wanted)
    assert_softmax(outputs(model, params, "fake_quant"), wanted)
    scales = [float(known.scale.max()) for known in params["qparams"].values()]
    assert max(scales) < 1
    assert bool(nodes_of(model, "ADD")) == (name == "add-distances")


@pytest.mark.parametrize("name", some(["where-inf", "add-distances", "add-two"], "where-inf"))
def test_what_trains_is_what_ships(name):
    model, params = calibrated(exported(MASKS[name]))
    assert quant.check_bit_exact(model, params, *EXAMPLES[0], against=PROGRAMS)
    modes: tuple[quant.Mode, ...] = ("exact", "fake_quant")
    for mode in modes:

        def loss(p: dict[str, Any], mode: quant.Mode = mode) -> jax.Array:
            return jnp.square(model.apply(p, *EXAMPLES[0], mode=mode)[0] - 0.2).sum()

        gradients = jax.jit(jax.grad(loss))(params)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))
        assert any(np.any(x != 0) for x in jax.tree.leaves(gradients["qparams"]))


OBSERVERS = {
    "min_max": quant.min_max(),
    "moving_average": quant.moving_average(),
    "percentile": quant.percentile(99.0),
    "mse": quant.mse(),
    "entropy": quant.entropy(),
}


@pytest.mark.parametrize("name", some(OBSERVERS, "min_max", "percentile"))
def test_every_observer_leaves_masks_out(name):
    # One masked element in all, which a percentile would cut off.
    first = np.zeros((LENGTH, LENGTH), np.bool_)
    first[2, 3] = True
    graph = exported(lambda x: jnp.where(first, -jnp.inf, x))
    model, params = calibrated(graph, observer=OBSERVERS[name])
    found = outputs(model, params)
    assert found[:, 2, 3].max() < 1 / 256
    assert np.abs(found - outputs(model, params, "float")).max() < 0.1
    (select,) = nodes_of(model, "SELECT")
    (logits,) = (name for name in select.inputs if name in model.activations)
    own = [params["qparams"][n] for n in (logits, select.outputs[0])]
    narrow, wide = (each.scale * 2**each.bits for each in own)
    assert narrow / 4 < wide < narrow + np.log(2**17 * LENGTH) * 2


@pytest.mark.slow
def test_a_percentile_of_a_histogram_leaves_masks_out():
    model, _ = calibrated(exported(MASKS["where-inf"]), observer=quant.percentile(99.0))
    observed = quant.observe(model, EXAMPLES)
    for percentile in (100.0, 99.0):
        params = quant.settle(model, observed, percentile=percentile)
        assert outputs(model, params)[:, ~CAUSAL].max() < 1 / 256
    model, _ = calibrated(exported(MASKS["where-inf"]))
    with pytest.raises(ValueError, match="without a histogram"):
        quant.settle(model, quant.observe(model, EXAMPLES), percentile=99.0)


@pytest.mark.parametrize(
    "never", [pytest.param(LOWEST, id="lowest"), pytest.param(-1e10, id="1e10")]
)
def test_a_row_without_elements_is_even(never):
    rows = np.arange(LENGTH)[:, None] == 2
    model, params = calibrated(exported(lambda x: jnp.where(rows, never, x)))
    found, wanted = outputs(model, params), outputs(model, params, "float")
    np.testing.assert_allclose(wanted[:, 2], 1 / LENGTH, rtol=1e-6)
    assert np.abs(found - wanted).max() < 0.02
    assert (found[:, 2] == found[:, 2, :1]).all()


def test_a_row_of_infinities_is_defined_in_integers():
    rows = np.arange(LENGTH)[:, None] == 2
    model, params = calibrated(exported(lambda x: jnp.where(rows, -jnp.inf, x)))
    found, wanted = outputs(model, params), outputs(model, params, "float")
    assert np.isnan(wanted[:, 2]).all()
    assert np.isfinite(found).all()
    assert np.abs(np.delete(found - wanted, 2, 1)).max() < 0.02


def of_input_mask(place: str) -> Callable[..., jax.Array]:
    """An attention whose mask is an input, as a bias that is made beside the logits."""

    def fn(queries, keys, mask):
        bias = jnp.where(mask, 0.0, LOWEST)[None]
        logits = (queries @ keys.T / np.sqrt(FEATURES))[None]
        if place == "with-positions":
            bias = bias + DISTANCES.astype(np.float32)[None] * keys[None, :, :1]
        elif place == "transposed":
            bias = jnp.where(mask.T, 0.0, LOWEST).T[None]
        return jax.nn.softmax(logits + bias, axis=-1)

    return fn


@pytest.mark.parametrize(
    "place", some(["reshaped", "transposed", "with-positions"], "with-positions")
)
def test_a_mask_that_is_an_input(place):
    fn = of_input_mask(place)
    examples = [(*example, RNG.random((LENGTH, LENGTH)) < 0.7) for example in EXAMPLES]
    graph = tosajax.export(fn, *examples[0], check=False)
    model = quant.prepare(graph)
    params = quant.calibrate(model, examples)
    run = jax.jit(lambda p, *x: model.apply(p, *x)[0])
    for example in examples:
        wanted = np.asarray(fn(*example))
        if example[2].any(axis=1).all():
            assert_softmax(np.asarray(run(params, *example)), wanted)
    assert quant.check_bit_exact(model, params, *examples[0], against="frozen")


def test_rows_along_another_axis():
    def columns(mask, queries, keys):
        logits = queries @ keys.T / np.sqrt(FEATURES)
        return jax.nn.softmax(
            mask(logits * np.arange(1, LENGTH + 1, dtype=np.float32)[None]), axis=0
        )

    graph = exported(lambda x: jnp.where(CAUSAL, x, -jnp.inf), columns)
    assert set(masked_axes(simplify(graph)).values()) == {-2}
    model, params = calibrated(graph)
    found = outputs(model, params)
    assert found[:, ~CAUSAL].max() < 1 / 256


def test_rows_of_examples_with_an_axis_in_front():
    def columns(mask, queries, keys):
        return jax.nn.softmax(mask(queries @ keys.T / np.sqrt(FEATURES)), axis=0)

    for fn in (attention, columns):
        graph = exported(lambda x: jnp.where(CAUSAL, x, -jnp.inf), fn)
        model, params = calibrated(graph)
        together = quant.calibrate(model, [tuple(map(np.stack, zip(*EXAMPLES, strict=True)))])
        jax.tree.map(np.testing.assert_array_equal, together["qparams"], params["qparams"])


def test_the_least_of_a_row_has_a_mask_at_the_upper_end():
    def softmin(mask, queries, keys):
        return jax.nn.softmax(-mask(queries @ keys.T / np.sqrt(FEATURES)), axis=-1)

    model, params = calibrated(exported(lambda x: jnp.where(CAUSAL, x, jnp.inf), softmin))
    assert_softmax(outputs(model, params), outputs(model, params, "float"))


def test_a_report_has_no_error_of_masks():
    model, params = calibrated(exported(MASKS["where-lowest"]))
    rows = quant.report(model, params, *EXAMPLES[0]).rows
    assert min(row.sqnr for row in rows) > 15
    assert all(row.saturated < 0.05 for row in rows)


@pytest.mark.parametrize(
    "name",
    [pytest.param("flax_language_model", marks=pytest.mark.slow), "equinox_attention"],
)
def test_networks_freeze(name):
    pytest.importorskip(name.split("_")[0])
    with jax_networks.as_users():
        net = jax_networks.build(name, "small")
        graph = tosajax.export(net.fn, *net.args, params=net.params, check=False)
    inputs = [np.asarray(x) for x in jax.tree.leaves(net.args)]
    model = quant.prepare(graph)
    params = quant.calibrate(model, [tuple(inputs)])
    frozen = model.freeze(params)
    assert max(float(known.scale.max()) for known in params["qparams"].values()) < 1
    integers = [np.asarray(getattr(x, "q", x)) for x in model.input_integers(params, *inputs)]
    found = [np.asarray(y) for y in tosajax.compile(frozen)(*integers)]
    if not reference_model.is_installed():
        pytest.skip("needs tosa-tools")
    rows = [x[None] for x in integers]
    theirs = reference_model.run(frozen, *rows)
    for name, y in zip(frozen.outputs, found, strict=True):
        np.testing.assert_array_equal(np.asarray(theirs[name]).reshape(y.shape), y)


# Parts.


def test_an_observer_counts_masked_elements_at_a_margin():
    observer = leaving_out(min_max(), -1)
    never = [-1e10, LOWEST, -np.inf, -1e9]
    x = jnp.asarray([[1, 2, -np.inf, -1e10], [5, 7, 6, -3], never], jnp.float32)
    state = observer.update(observer.init(), x)
    margin = np.log(512 * 4)
    np.testing.assert_allclose(state.ends.low, 2 - margin, rtol=1e-6)
    assert state.ends.high == -np.inf
    assert (state.state.low, state.state.high) == (-3, 7)
    state = observer.update(state, jnp.asarray([[np.inf, 3.0, 4.0, 5.0]]))
    np.testing.assert_allclose(state.ends.high, 3 + margin, rtol=1e-6)
    spec = quant.QSpec()
    grid = spec.storage.grid(jnp.float32(8), narrow_range=False)
    for symmetric in (False, True):
        scale, zero_point = observer.qparams(state, grid, symmetric)
        low, high = (float((end - zero_point) * scale) for end in grid)
        assert low <= 2 - margin + scale / 2
        assert high >= 3 + margin - scale / 2
    assert leaving_out(min_max(), -1) is observer


def test_an_observer_without_masks_is_as_before():
    x = jnp.asarray(RNG.normal(size=(4, 5)), jnp.float32)
    grid = quant.QSpec().storage.grid(jnp.float32(8), narrow_range=False)
    for own in OBSERVERS.values():
        observer = leaving_out(own, -1)
        found = observer.qparams(observer.update(observer.init(), x), grid, False)
        wanted = own.qparams(own.update(own.init(), x), grid, False)
        np.testing.assert_array_equal(found, wanted)


def test_masked_elements_saturate():
    known = QParams(jnp.float32(0.5), jnp.float32(3), jnp.float32(8))
    x = jnp.asarray([-np.inf, -1e9, 1.25, LOWEST, np.inf, 1e6, 999_999])
    low, high = (-128 - 3) / 2, (127 - 3) / 2
    wanted = np.array([low, low, 1.25, low, high, high, 999_999], np.float32)
    np.testing.assert_array_equal(saturated(x, known), wanted)


def with_constant(op: str, values: np.ndarray, *, first: bool = False) -> Graph:
    b = Builder()
    x = b.input("x", DType.FP32, (2, 3))
    constant = b.const(values.astype(np.float32), DType.FP32, name="c")
    return b.graph([b.op(op, *((constant, x) if first else (x, constant)), name="y")])


@pytest.mark.parametrize("op", ["ADD", "SUB"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("rest", [0.0, 2.0])
def test_sums_of_masks_are_selects(op, first, rest):
    values = np.array([[rest, -np.inf, np.inf], [1e9, rest, -1e9]])
    graph = with_constant(op, values, first=first)
    changed = with_selects(graph)
    assert [n.op for n in changed.nodes if n.op == "SELECT"] == ["SELECT"] * 2
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    (wanted,), (found,) = (tosajax.compile(g)(x) for g in (graph, changed))
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


MOVES = {
    "RESHAPE": lambda bias: bias[None],
    "REVERSE": lambda bias: bias[::-1],
    "SLICE": lambda bias: bias[1:, 2:],
    "TILE": lambda bias: jnp.tile(bias, (2, 1)),
    "TRANSPOSE": lambda bias: bias.T,
    "CONCAT": lambda bias: jnp.concatenate([bias, bias * 0.5]),
    "PAD": lambda bias: jnp.pad(bias, 1),
}


@pytest.mark.parametrize("op", MOVES)
def test_sums_of_moved_masks_are_selects(op):
    def fn(mask, x):
        return x + MOVES[op](jnp.where(mask, 0.0, -1e10))

    mask = RNG.random((3, 4)) < 0.5
    x = RNG.normal(size=MOVES[op](jnp.zeros((3, 4))).shape).astype(np.float32)
    graph = simplify(tosajax.export(fn, mask, x, check=False))
    operators = [node.op for node in graph.nodes]
    assert op in operators
    assert ("ADD" in operators) == (op in ("CONCAT", "PAD"))
    np.testing.assert_allclose(tosajax.compile(graph)(mask, x)[0], fn(mask, x), rtol=1e-7)


@pytest.mark.parametrize("values", [[[9.9e8, 0, -9.9e8]], [[1, 2, 3]], [[0, 0, 0]]])
def test_numbers_that_are_not_masks_stay(values):
    graph = with_constant("ADD", np.array(values))
    assert with_selects(graph) is graph
    assert masked_axes(graph) == {}


@pytest.mark.parametrize(("op", "value"), [("MAXIMUM", LOWEST), ("MINIMUM", np.inf)])
def test_the_larger_of_the_lowest_float_is_dropped(op, value):
    assert all_nodes(simplify(with_constant(op, np.full((1, 1), value))))[-1].op == "IDENTITY"
    kept = simplify(with_constant(op, np.full((1, 1), -value)))
    assert all_nodes(kept)[-1].op == (op if np.isinf(value) else "CLAMP")


def test_large_numbers_that_no_constant_puts_in_have_a_scale():
    b = Builder()
    x, y = (b.input(name, DType.FP32, (2, 3)) for name in "xy")
    model = quant.prepare(b.graph([b.op("SUB", x, y, name="z")]))
    large = np.array([[1e10, 2e10, 0], [1e9, 5, -1e10]], np.float32)
    params = quant.calibrate(model, [(large, np.zeros_like(large))])
    np.testing.assert_allclose(params["qparams"]["z"].scale, 3e10 / 255, rtol=1e-3)
    found = model.apply(params, large, np.zeros_like(large))[0]
    np.testing.assert_allclose(found, large, atol=3e10 / 255)


def test_masks_inside_a_branch():
    def branch(is_masked, queries, keys):
        return jax.lax.cond(
            is_masked,
            functools.partial(attention, MASKS["add-distances"]),
            functools.partial(attention, MASKS["where-inf"]),
            queries,
            keys,
        )

    examples = [(np.bool_(at % 2), *example) for at, example in enumerate(EXAMPLES)]
    model = quant.prepare(tosajax.export(branch, *examples[0], check=False))
    params = quant.calibrate(model, examples)
    for example in examples[:2]:
        assert_softmax(np.asarray(model.apply(params, *example)[0]), np.asarray(branch(*example)))


def test_constants_of_a_mask_do_not_train():
    def fn(weights, x):
        logits = x @ weights["dense"]
        return jax.nn.softmax(logits + added(-np.inf, DISTANCES), axis=-1)

    weights = {"dense": RNG.normal(0, 0.5, (FEATURES, LENGTH)).astype(np.float32)}
    inputs = [(example[0],) for example in EXAMPLES]
    model = quant.prepare(fn, example_args=inputs[0], params=weights)
    params = quant.calibrate(model, inputs)
    assert all(np.isfinite(x).all() and np.abs(x).max() < 10 for x in params["values"].values())
    readable = model.readable(params)
    np.testing.assert_array_equal(model.pytree(readable)["dense"], weights["dense"])
    model.freeze(params)


def test_masks_beside_fp8():
    spec = quant.QSpec("fp8e4m3")
    graph = exported(MASKS["add-1e10"])
    model = quant.prepare(graph, [quant.rule(".*", weight=spec, act=spec)])
    params = quant.calibrate(model, EXAMPLES)
    found, wanted = outputs(model, params), outputs(model, params, "float")
    assert (found[wanted == 0] == 0).all()
    assert np.abs(found - wanted).max() < 0.05
