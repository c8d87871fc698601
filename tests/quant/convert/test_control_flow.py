"""WHILE_LOOP and COND_IF in integers: bits, scales of states, gradients, refusals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recurrent import (
    FP32,
    INT32,
    counting,
    drawn,
    gru_cell,
    loop,
    one_more,
    product,
    recurrence,
    tanh_cell,
    unrolled,
)

import tosajax
from tosajax import Builder, DType, Graph, Tensor, UnsupportedError, reference_model, sweep
from tosajax.quant import (
    QModel,
    QSpec,
    bias_correct,
    calibrate,
    check_bit_exact,
    equalize,
    initial_values,
    prepare,
    report,
    rule,
    sample_tables,
    with_rules,
)

AGAINST = ("frozen", "reference_model") if reference_model.is_installed() else ("frozen",)
TURNS, INPUTS, UNITS = 16, 3, 4
XS, H0 = drawn(0, 6, TURNS, INPUTS, low=-2), drawn(1, 6, 1, UNITS)
RULES: dict[str, Any] = {"i8": (), "i16": (rule(".*", act=QSpec("i16")),)}


@functools.cache
def gru(act: str = "i8", turns: int = TURNS, *, wide: bool = True) -> tuple[QModel, Any]:
    graph = recurrence(gru_cell(INPUTS, UNITS), turns, INPUTS, UNITS)
    model = prepare(graph, RULES[act], wide_elementwise=wide)
    return model, calibrate(model, [(XS[:, :turns], H0)])


def at_ends(model: QModel, name: str, examples: int, seed: int = 0) -> np.ndarray:
    """Integers of an input: the ends of its range, 0 and random ones; in each example."""
    tensor = model.graph.tensors[name]
    low, high = tensor.dtype.minimum, tensor.dtype.maximum
    rng = np.random.default_rng(seed)
    shape = (examples, *(tensor.shape or ()))
    chosen = rng.choice([low, low + 1, -1, 0, 1, high - 1, high], shape)
    found = np.where(rng.random(shape) < 0.5, chosen, rng.integers(low, high + 1, shape))
    found[0], found[1] = low, high
    return found.astype(tensor.dtype.storage)[:, 0]


def is_exact(model: QModel, params: Any, *inputs: Any, against: Any = AGAINST) -> Any:
    return check_bit_exact(model, params, *inputs, against=against)


# A GRU.


@pytest.mark.parametrize("act", ["i8", "i16"])
def test_a_gru_has_the_bits_of_its_file(act):
    model, params = gru(act)
    assert model.plan.turns == {"i_end": TURNS}
    inputs = [at_ends(model, name, 6, seed) for seed, name in enumerate(model.graph.inputs)]
    found = is_exact(model, params, *inputs)
    assert found, str(found)
    real = is_exact(model, params, XS, H0)
    assert real, str(real)
    assert {c.tensor for c in real.comparisons} >= {"h_end"}
    wanted, (y,) = model.apply(params, XS, H0, mode="float")[0], model.apply(params, XS, H0)
    step = float(params["qparams"]["h_end"].scale)
    assert float(jnp.abs(wanted - y).max()) < (8 * step if act == "i8" else 100 * step)
    assert len(np.unique(y)) > 12


def test_a_state_has_one_scale_in_all_turns():
    model, params = gru()
    owners = {name: model.owners[name] for name in ("h_end", "step/h", "step/next", "more/h")}
    assert set(owners.values()) == {"h_end"}
    # The rows stay as they are, and so does their scale; h0 is brought to that of the state.
    assert {model.owners[n] for n in ("xs_end", "step/xs", "step/x")} == {"xs"}
    assert model.owners["h0"] == "h0"
    (node,) = (node for node in model.graph.nodes if node.op == "WHILE_LOOP")
    assert node.inputs == ("first", "h_end/initial", "xs")
    assert set(model.weights) == {f"step/{kind}{gate}" for kind in "WU" for gate in "rzn"}
    body = model.freeze(params).subgraphs["step"]
    assert {body.tensors[n].dtype for n in ("step/h", "step/next", "step/Wr")} == {DType.INT8}
    assert not any(t.dtype.is_float for t in body.tensors.values())
    assert body.tensors["step/i"].dtype is INT32


def test_ranges_hold_all_turns():
    _, params = gru(wide=False)
    steps = prepare(unrolled(functools.partial(gru_cell, INPUTS, UNITS), TURNS, INPUTS, UNITS))
    names = ("next", "r", "n", "of_h_z", "old")
    watched = steps.with_outputs(*(f"{t}/{name}" for name in names for t in range(TURNS)))
    start = {"values": initial_values(steps)}
    values = dict(
        zip(watched.graph.outputs, watched.apply(start, XS, H0, mode="float"), strict=True)
    )
    for name in names:
        seen = np.stack([values[f"{t}/{name}"] for t in range(TURNS)])
        seen = np.concatenate([seen.ravel(), H0.ravel() if name == "next" else [0.0]])
        known = params["qparams"]["h_end" if name == "next" else f"step/{name}"]
        wanted = (max(seen.max(), 0) - min(seen.min(), 0)) / 255
        np.testing.assert_allclose(known.scale, wanted, rtol=1e-3)


@pytest.mark.slow
def test_turns_are_those_of_the_unrolled_graph():
    turns = 4
    model, params = gru(turns=turns)
    # The unrolled graph reads h0 in its own scale.
    params = {**params, "qparams": {**params["qparams"], "h0": params["qparams"]["h_end"]}}
    graph = unrolled(functools.partial(gru_cell, INPUTS, UNITS), turns, INPUTS, UNITS)
    steps = prepare(graph)

    def inside(name: str) -> str:
        turn, _, rest = name.partition("/")
        return f"step/{rest}" if turn.isdigit() else name

    def of_loop(name: str) -> Any:
        return params["qparams"][model.owners[inside(name)]]

    same = {
        "values": {name: params["values"][inside(name)] for name in steps.plan.trained},
        "qparams": {name: of_loop(name) for name in steps.specs},
    }
    same = sample_tables(steps, same)
    inputs = [at_ends(model, name, 6, seed) for seed, name in enumerate(model.graph.inputs)]
    (looped,) = model.apply(params, *inputs)
    np.testing.assert_array_equal(steps.apply(same, *inputs)[-1], looped)


def loss(model: QModel, params: Any, mode: Any, wanted: Any) -> jax.Array:
    (y,) = model.apply(params, XS, H0, mode=mode)
    return jnp.square(y - wanted).mean()


@pytest.mark.slow
def test_gradients_reach_the_parameters_of_a_loop_and_training_lowers_its_loss():
    model, params = gru(wide=False)
    wanted = jnp.tanh(1.5 * model.apply(params, XS, H0, mode="float")[0])
    exact, floats = (
        jax.jit(jax.value_and_grad(functools.partial(loss, model, mode=mode, wanted=wanted)))
        for mode in ("exact", "float")
    )
    first, slopes = exact(params)
    _, real = floats({"values": params["values"]})
    assert set(slopes["values"]) == {f"step/{kind}{gate}" for kind in "WUb" for gate in "rzn"}
    for name, slope in slopes["values"].items():
        found = np.corrcoef(np.ravel(slope), np.ravel(real["values"][name]))[0, 1]
        assert found > 0.98, (name, found)
    scales = {name: qparams.scale for name, qparams in slopes["qparams"].items()}
    assert all(np.isfinite(scale).all() for scale in scales.values())
    assert all(np.any(scales[name] != 0) for name in ("h_end", "xs", "step/Un", "step/kept"))
    assert float(slopes["qparams"]["step/kept"].zero_point) != 0
    trained = params
    for _ in range(30):
        _, slopes = exact(trained)
        moved = jax.tree.map(lambda x, s: x - 0.2 * s, trained["values"], slopes["values"])
        trained = {**trained, "values": moved}
    assert float(exact(trained)[0]) < 0.5 * float(first)
    assert is_exact(model, trained, XS, H0, against="frozen")


def test_examples_are_apart():
    model, params = gru()
    (batch,) = jax.jit(model.apply)(params, XS, H0)
    run = jax.jit(model.apply)
    for at in range(2):
        np.testing.assert_array_equal(
            run(params, XS[at : at + 1], H0[at : at + 1])[0][0], batch[at]
        )
    (rounded,) = model.apply(params, XS, H0, mode="fake_quant")
    step = float(params["qparams"]["h_end"].scale)
    assert float(jnp.abs(rounded - batch).max()) < 4 * step


# Other states.


def small(limit: str | None = None, turns: int = 5) -> Graph:
    return recurrence(tanh_cell(UNITS), turns, UNITS, UNITS, limit=limit)


ROWS = drawn(2, 6, 5, UNITS)


@pytest.mark.parametrize(
    "rules",
    [(), (rule(".*", act=QSpec(bits=4)),), (rule("h_end", act=QSpec("i16")),)],
    ids=["i8", "4-bits", "wide-state"],
)
def test_a_state_out_of_a_table(rules):
    model = prepare(small(), rules)
    params = calibrate(model, [(ROWS, H0)])
    assert model.owners["step/next"] == "h_end"
    assert "step/next" in model.plan.functions
    inputs = [at_ends(model, name, 6, seed) for seed, name in enumerate(model.graph.inputs)]
    grids = [params["qparams"][name].grid for name in model.graph.inputs]
    inputs = [np.clip(x, int(g.qmin), int(g.qmax)) for x, g in zip(inputs, grids, strict=True)]
    assert is_exact(model, params, *inputs)
    wanted, (y,) = model.apply(params, ROWS, H0, mode="float")[0], model.apply(params, ROWS, H0)
    (rounded,) = model.apply(params, ROWS, H0, mode="fake_quant")
    tolerance = 12 * float(params["qparams"]["step/sum"].scale)
    assert float(jnp.abs(wanted - y).max()) < tolerance
    assert float(jnp.abs(rounded - y).max()) < tolerance


def test_fake_quantization_rounds_states_in_each_turn():
    model = prepare(small(), [rule("h_end", act=QSpec(bits=3, symmetric=False))])
    params = calibrate(model, [(ROWS, H0)])
    (rounded,) = model.apply(params, ROWS, H0, mode="fake_quant")
    (exact,) = model.apply(params, ROWS, H0)
    step = float(params["qparams"]["h_end"].scale)
    assert np.mean(np.abs(rounded - exact) < step / 2) > 0.9


def swapping() -> Graph:
    """Two states that change places in each of 3 turns, one of them doubled."""
    states = [("i", INT32, (1, 1)), ("a", FP32, (1, UNITS)), ("b", FP32, (1, UNITS))]
    b = Builder("swap")
    i, x, y = (b.input(*state) for state in states)
    twice = b.op("ADD", x, x, name="twice")
    body = b.graph([one_more(b, i), b.op("REVERSE", y, axis=1, name="turned"), twice])
    b = Builder()
    x, y = (b.input(*state) for state in states[1:])
    names = [f"{name}_end" for name, *_ in states]
    first = b.const([[0]], INT32)
    _, x, y = loop(b, counting("more", states, 3), body, [first, x, y], names)
    return b.graph([x, y])


def test_states_that_change_places():
    model = prepare(swapping())
    a, b = drawn(3, 4, UNITS, low=-0.5), drawn(4, 4, UNITS)
    params = calibrate(model, [(a, b)])
    assert model.owners["swap/twice"] == "b_end"
    assert model.owners["swap/turned/result"] == "a_end"
    assert is_exact(model, params, *(at_ends(model, name, 6) for name in "ab"))
    found = model.apply(params, a, b)
    for y, wanted, name in zip(found, (2 * b, 4 * a[:, ::-1]), ("a", "b"), strict=True):
        assert np.abs(y - wanted).max() < 6 * float(params["qparams"][f"{name}_end"].scale)


def with_operands() -> Graph:
    """h W + v, three times; W and v go into the loop as states, and only v is an input."""
    states = [
        ("i", INT32, (1, 1)),
        ("h", FP32, (1, 1, UNITS)),
        ("W", FP32, (1, UNITS, UNITS)),
        ("v", FP32, (1, 1, UNITS)),
        ("top", INT32, (1, 1)),
    ]
    b = Builder("step")
    i, h, w, v, top = (b.input(*state) for state in states)
    copy = b.op("IDENTITY", w, name="copy")
    body = b.graph([one_more(b, i), b.op("ADD", product(b, h, w, "hw", ""), v), copy, v, top])
    b = Builder()
    v = b.input("v", FP32, (1, 1, UNITS))
    weight = drawn(5, 1, UNITS, UNITS)
    operands = [
        b.const([[0]], INT32),
        b.const(np.zeros((1, 1, UNITS)), FP32, name="zeros"),
        b.const(weight, FP32, name="weight"),
        v,
        b.const([[3]], INT32),
    ]
    names = ["i", "h", "W", "v_end", "t"]
    _, h, w, _, _ = loop(b, counting("more", states, "top"), body, operands, names)
    return b.graph([h, w])


def test_weights_that_go_in_as_operands_are_weights():
    graph = with_operands()
    model = prepare(graph)
    assert "step/W" in model.weights
    assert model.specs["step/W"].per_channel
    assert model.plan.turns == {"i": 3}
    (node,) = (node for node in model.graph.nodes if node.op == "WHILE_LOOP")
    assert len(node.inputs) == 3
    v = drawn(6, 5, 1, UNITS)
    params = calibrate(model, [v])
    wanted = [np.stack(y) for y in zip(*(tosajax.compile(graph)(x[None]) for x in v), strict=True)]
    real = model.apply(params, v, mode="float")
    np.testing.assert_allclose(real[0], wanted[0].reshape(real[0].shape), rtol=1e-5)
    assert is_exact(model, params, at_ends(model, "v", 4))


# Loops of an unknown number of turns.


@pytest.mark.slow
def test_turns_that_inputs_decide_on():
    with pytest.raises(ValueError, match=r"WHILE_LOOP 'i_end'.*max_trip_count"):
        prepare(small("count"))
    model = prepare(small("count"), max_trip_count=3)
    assert not model.plan.turns
    counts = np.array([1, 2, 3, 3, 0, 2], np.int32).reshape(6, 1)
    params = calibrate(model, [(ROWS, H0, counts)])
    assert is_exact(model, params, ROWS, H0, counts)
    assert is_exact(model, params, ROWS, H0, counts + 1)  # more turns have values

    def total(params: Any, rows: Any, h: Any, count: Any) -> jax.Array:
        return model.apply(params, rows[None], h[None], count[None])[0].sum()

    slope = jax.jit(jax.vmap(jax.grad(total), (None, 0, 0, 0)))
    found = slope(params, ROWS, H0, counts)["values"]["step/W"]
    assert [bool(jnp.any(row != 0)) for row in found] == [True, True, True, True, False, True]
    assert np.isnan(slope(params, ROWS, H0, counts + 1)["values"]["step/W"][2]).all()
    with pytest.raises(ValueError, match=r"batch 0: the loop of .* takes more turns"):
        calibrate(model, [(ROWS, H0, counts + 1)])
    with pytest.raises(ValueError, match="no example computes 'step/"):
        calibrate(model, [(ROWS, H0, 0 * counts)])


def test_gradients_of_unknown_turns_are_those_of_known_ones():
    known, unknown = prepare(small(turns=3)), prepare(small("count", turns=3), max_trip_count=4)
    rows, counts = ROWS[:, :3], np.full((6, 1), 3, np.int32)
    params = calibrate(known, [(rows, H0)])
    same = calibrate(unknown, [(rows, H0, counts)])
    np.testing.assert_array_equal(params["qparams"]["h_end"].scale, same["qparams"]["h_end"].scale)
    one = jax.jit(jax.grad(lambda p: known.apply(p, rows, H0)[0].sum()))(params)
    other = jax.jit(jax.grad(lambda p: unknown.apply(p, rows, H0, counts)[0].sum()))(same)
    for name, slope in one["values"].items():
        np.testing.assert_allclose(slope, other["values"][name], rtol=1e-5)


# Branches, and loops and branches in others.


def branch(name: str, of: Any) -> Graph:
    b = Builder(name)
    x = b.input("x", FP32, (1, 1, UNITS))
    k = b.input("k", FP32, (1, 1, UNITS))
    return b.graph([of(b, x, k)])


def either(
    b: Builder, name: str, operands: Sequence[Tensor], then_graph: Graph, else_graph: Graph
) -> Tensor:
    graphs: dict[str, Any] = {
        "then_graph": b.subgraph(then_graph),
        "else_graph": b.subgraph(else_graph),
    }
    return b.op("COND_IF", *operands, name=name, **graphs)


def chosen() -> Graph:
    """x W + k, or the hyperbolic tangent of x; and half of that."""

    def product_of(b: Builder, x: Tensor, k: Tensor) -> Tensor:
        weight = np.random.default_rng(5).normal(size=(1, UNITS, UNITS))
        return b.op("ADD", product(b, x, weight, "xw", "W"), k, name="y")

    def tanh(b: Builder, x: Tensor, k: Tensor) -> Tensor:
        del k
        return b.op("TANH", x, name="y")

    b = Builder()
    flag, x = b.input("flag", DType.BOOL, (1,)), b.input("x", FP32, (1, 1, UNITS))
    k = b.const(drawn(8, 1, 1, UNITS), FP32, name="k")
    y = either(b, "y", [flag, x, k], branch("matrix", product_of), branch("curve", tanh))
    half = b.const([[[0.5]]], FP32)
    return b.graph([b.op("MUL", y, half, b.const([0], DType.INT8), name="half")])


FLAGS = np.array([1, 0, 1, 0, 1, 0], bool).reshape(6, 1)
POINTS = drawn(7, 6, 1, UNITS, low=-2, high=2)


def test_both_branches():
    model = prepare(chosen())
    params = calibrate(model, [(FLAGS, POINTS)])
    assert {model.owners[n] for n in ("y", "matrix/y", "curve/y")} == {"y"}
    assert {model.owners[n] for n in ("matrix/x", "curve/x")} == {"x"}
    (node,) = (node for node in model.graph.nodes if node.op == "COND_IF")
    assert node.inputs == ("flag", "x")  # the constant is inside
    integers = at_ends(model, "x", 6)
    for flags in (FLAGS, ~FLAGS):
        assert is_exact(model, params, flags, integers)
    wanted, (y,) = (
        model.apply(params, FLAGS, POINTS, mode="float")[0],
        model.apply(params, FLAGS, POINTS),
    )
    (rounded,) = model.apply(params, FLAGS, POINTS, mode="fake_quant")
    step = float(params["qparams"]["half"].scale)
    assert float(jnp.abs(y - wanted).max()) < 6 * step
    assert float(jnp.abs(y - rounded).max()) < 3 * step


def test_only_the_branch_that_is_taken_has_gradients():
    model = prepare(chosen())
    params = calibrate(model, [(FLAGS, POINTS)])
    slope = jax.jit(jax.grad(lambda p, flag: model.apply(p, flag, POINTS[:1])[0].sum()))
    taken, left = (slope(params, np.array([[flag]])) for flag in (True, False))
    for name in ("matrix/W", "matrix/k"):
        assert np.any(taken["values"][name] != 0)
        assert not np.any(left["values"][name])
    real = jax.grad(
        lambda p: model.apply(p, np.array([[True]]), POINTS[:1], mode="float")[0].sum()
    )({"values": params["values"]})
    np.testing.assert_allclose(
        taken["values"]["matrix/W"], real["values"]["matrix/W"], rtol=0.1, atol=0.02
    )


def test_a_branch_without_examples_is_an_error():
    model = prepare(chosen())
    with pytest.raises(ValueError, match="no example computes 'matrix/"):
        calibrate(model, [(~FLAGS & FLAGS, POINTS)])
    # A branch may be left out by some of the batches.
    together = calibrate(model, [(FLAGS, POINTS)])
    apart = calibrate(model, [(FLAGS[at : at + 1], POINTS[at : at + 1]) for at in range(6)])
    for one, other in zip(
        jax.tree.leaves(together["qparams"]), jax.tree.leaves(apart["qparams"]), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def nested() -> Graph:
    """In each of 3 turns: x is added twice by a loop of its own, and then a branch by parity."""
    states = [("j", INT32, (1, 1)), ("h", FP32, (1, 1, UNITS)), ("x", FP32, (1, 1, UNITS))]
    b = Builder("add")
    j, h, x = (b.input(*state) for state in states)
    add = b.graph([one_more(b, j), b.op("ADD", h, x, name="sum"), x])

    def halved(b: Builder, x: Tensor, k: Tensor) -> Tensor:
        del k
        return b.op("MUL", x, b.const([[[0.25]]], FP32), b.const([0], DType.INT8), name="y")

    def curved(b: Builder, x: Tensor, k: Tensor) -> Tensor:
        return b.op("TANH", b.op("ADD", x, k, name="sum"), name="y")

    outer = [("i", INT32, (1, 1)), ("h", FP32, (1, 1, UNITS)), ("x", FP32, (1, 1, UNITS))]
    b = Builder("turn")
    i, h, x = (b.input(*state) for state in outer)
    first = b.const([[0]], INT32)
    names = ["j", "both", "x2"]
    _, h, _ = loop(b, counting("inner", states, 2), add, [first, h, x], names)
    parity = b.op("BITWISE_AND", i, b.const([[1]], INT32))
    is_odd = b.op("EQUAL", parity, b.const([[1]], INT32))
    branches = branch("halved", halved), branch("curved", curved)
    h = either(b, "either", [is_odd, h, x], *branches)
    body = b.graph([one_more(b, i), h, x])
    b = Builder()
    h, x = (b.input(*state) for state in outer[1:])
    first = b.const([[0]], INT32)
    _, h, _ = loop(b, counting("more", outer, 3), body, [first, h, x], ["i", "end", "x3"])
    return b.graph([h])


def test_loops_and_branches_in_loops():
    graph = nested()
    model = prepare(graph)
    assert model.plan.turns == {"i": 3, "turn/j": 2}
    assert model.owners["turn/either"] == model.owners["turn/curved/y"] == "end"
    h, x = drawn(9, 4, 1, UNITS), drawn(10, 4, 1, UNITS)
    params = calibrate(model, [(h, x)])
    (real,) = model.apply(params, h, x, mode="float")
    wanted = np.stack(
        [tosajax.compile(graph)(a[None], b[None])[0] for a, b in zip(h, x, strict=True)]
    )
    np.testing.assert_allclose(real, wanted.reshape(real.shape), rtol=1e-5)
    assert is_exact(model, params, *(at_ends(model, name, 6) for name in ("h", "x")))
    (y,) = model.apply(params, h, x)
    assert np.abs(y - real).max() < 8 * float(params["qparams"]["turn/both"].scale)
    slope = jax.jit(jax.grad(lambda x: model.apply(params, h, x)[0].sum()))(x)
    floats = jax.grad(lambda x: model.apply(params, h, x, mode="float")[0].sum())(x)
    assert np.corrcoef(np.ravel(slope), np.ravel(floats))[0, 1] > 0.98


def test_a_body_of_two_loops_has_scales_for_each():
    states = [("i", INT32, (1, 1)), ("h", FP32, (1, 1, UNITS))]
    b = Builder("twice")
    i, h = (b.input(*state) for state in states)
    body = b.graph([one_more(b, i), b.op("ADD", h, h, name="sum")])
    b = Builder()
    h = b.input("h", FP32, (1, 1, UNITS))
    for name in ("first", "second"):
        operands = [b.const([[0]], INT32), h]
        _, h = loop(b, counting("more", states, 2), body, operands, [f"{name}_i", name])
    model = prepare(b.graph([h]))
    params = calibrate(model, [drawn(11, 4, 1, UNITS)])
    ratio = params["qparams"]["second"].scale / params["qparams"]["first"].scale
    np.testing.assert_allclose(ratio, 4, rtol=1e-3)
    assert set(model.graph.subgraphs) == {"more", "twice", "more'", "twice'"}
    assert is_exact(model, params, at_ends(model, "h", 5))


# What walks graphs.


def test_reports_leave_out_the_inside():
    model = prepare(small())
    params = calibrate(model, [(ROWS, H0)])
    found = report(model, params, ROWS, H0)
    assert [row.tensor for row in found.rows] == ["xs", "h0", "h_end"]
    assert found.rows[-1].op == "WHILE_LOOP"
    assert 15 < found.rows[-1].local_sqnr < 80


def test_refusals_name_what_they_are_about():
    graph = small()
    model = prepare(graph)
    for name in ("step/next", "step/of_h/acc"):
        with pytest.raises(UnsupportedError, match=f"'{name}' is inside a loop or a branch"):
            model.with_outputs(name)
    float8 = rule(".*", weight=QSpec("fp8e4m3"), act=QSpec("fp8e4m3"))
    with pytest.raises(UnsupportedError, match="WHILE_LOOP 'i_end': rules ask for FP8E4M3"):
        prepare(graph, [float8])
    gru_model, params = gru()
    with pytest.raises(UnsupportedError, match="ADD 'step/of_x_r' is inside a loop"):
        bias_correct(gru_model, params, [(XS, H0)])
    params = calibrate(model, [(ROWS, H0)])
    with pytest.raises(UnsupportedError, match="WHILE_LOOP 'i_end' has parameters inside"):
        sweep.of_model(model, params)
    with pytest.raises(ValueError, match="pattern is found in no name"):
        prepare(graph, [rule("stop/", act=QSpec("i16"))])


def test_rules_for_tensors_inside():
    wide = prepare(small(), [rule("step/sum", act=QSpec("i16"))])
    assert wide.specs["step/sum"].dtype is DType.INT16
    assert wide.specs["h_end"].dtype is DType.INT8
    model = prepare(small())
    params = calibrate(model, [(ROWS, H0)])
    lifted, own = with_rules(model, params, [rule("^step/sum$", act=QSpec("i16"))])
    assert lifted.specs == wide.specs
    assert is_exact(lifted, own, ROWS, H0, against="frozen")
    again = {**equalize(model)}
    assert set(again) == set(params["values"])


def test_constants_inside_are_those_that_are_given():
    model = prepare(small())
    twice = {"step/W": 2 * np.asarray(calibrate(model, [(ROWS, H0)])["values"]["step/W"])}
    params = calibrate(model, [(ROWS, H0)], values=twice)
    np.testing.assert_array_equal(params["values"]["step/W"], twice["step/W"])
    moved = dataclasses.replace(params["qparams"]["h_end"], scale=jnp.float32(0.25))
    found = {**params, "qparams": {**params["qparams"], "h_end": moved}}
    (y,) = model.apply(sample_tables(model, found), ROWS, H0)
    np.testing.assert_array_equal(np.asarray(y) % 0.25, 0)
