"""freeze: a legal graph with the names of the float graph, or an error that names a node."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import (
    clamp,
    constant,
    floats,
    operators,
    producer,
    times,
    uniform,
    zeros,
)

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.grad.qtensor import payload
from tosajax.quant import (
    QModel,
    QSpec,
    calibrate,
    check_bit_exact,
    prepare,
    rule,
    sample_tables,
    with_bits,
)

SHAPE = (1, 3, 4, 2)
EXAMPLES = uniform(0, *SHAPE), uniform(1, *SHAPE, low=-0.5, high=2)
INFINITY = float("inf")


def network() -> Graph:
    """A convolution, a CLAMP of it, a sum, and a table, each an output."""
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    convolved = b.op(
        "CONV2D",
        x,
        constant(b, uniform(2, 2, 1, 1, 2), "weight"),
        constant(b, [0.5, -1], "bias"),
        *zeros(b),
        pad=(0, 0, 0, 0),
        stride=(1, 1),
        dilation=(1, 1),
        local_bound=False,
        acc_type=DType.FP32,
        name="before",
    )
    relu = clamp(b, convolved, 0, INFINITY, "relu")
    total = b.op("ADD", relu, y, name="total")
    low = clamp(b, total, -0.25, 1.25, "low")
    return b.graph([relu, total, low, b.op("TANH", total, name="tanh")])


@pytest.fixture(scope="module")
def model() -> QModel:
    return prepare(network())


@pytest.fixture(scope="module")
def params(model) -> Any:
    return calibrate(model, [EXAMPLES])


@pytest.fixture(scope="module")
def frozen(model, params) -> Graph:
    return model.freeze(params)


def with_scales(params: Any, **scales: Any) -> Any:
    """The parameters with some scales set."""
    qparams = dict(params["qparams"])
    for name, scale in scales.items():
        known = qparams[name]
        wanted = jnp.broadcast_to(jnp.asarray(scale, jnp.float32), known.scale.shape)
        qparams[name] = dataclasses.replace(known, scale=wanted)
    return {**params, "qparams": qparams}


def attribute(graph: Graph, name: str, end: str) -> int:
    (node,) = (n for n in graph.nodes if name in n.outputs)
    return int(node.attributes[end])


# CLAMPs that do nothing.


def test_clamps_that_do_nothing_are_left_out(model, frozen):
    """The input of an idle CLAMP takes the name of its output."""
    assert operators(model.graph).count("CLAMP") == 4
    assert operators(frozen).count("CLAMP") == 1
    assert producer(frozen, "relu") == producer(frozen, "total") == "RESCALE"
    assert producer(frozen, "tanh") == "TABLE"
    assert {"relu/rescaled", "total/rescaled", "tanh/looked_up"}.isdisjoint(frozen.tensors)


def test_names_are_kept(model, frozen):
    assert frozen.inputs == model.graph.inputs == ("x", "y")
    assert frozen.outputs == model.graph.outputs == ("relu", "total", "low", "tanh")
    assert {"weight", "relu", "total", "low", "tanh"} <= frozen.tensors.keys()
    for name in (*frozen.inputs, *frozen.outputs):
        assert frozen.tensors[name].dtype is model.graph.tensors[name].dtype
        assert frozen.tensors[name].shape == model.graph.tensors[name].shape


def test_a_clamp_keeps_its_rounded_bounds(params, frozen):
    assert producer(frozen, "low") == "CLAMP"
    qparams = params["qparams"]["total"]
    scale, zero_point = float(qparams.scale), float(qparams.zero_point)
    assert attribute(frozen, "low", "min_val") == round(-0.25 / scale) + zero_point
    assert attribute(frozen, "low", "max_val") == round(1.25 / scale) + zero_point


def test_a_clamp_of_an_input_stays():
    """An input keeps its name."""
    b = Builder()
    y = clamp(b, floats(b, "x", *SHAPE), -INFINITY, INFINITY, "y")
    model = prepare(b.graph([y]))
    frozen = model.freeze(calibrate(model, [EXAMPLES[0]]))
    assert (frozen.inputs, frozen.outputs) == (("x",), ("y",))
    assert operators(frozen) == ["CLAMP"]
    assert (attribute(frozen, "y", "min_val"), attribute(frozen, "y", "max_val")) == (-128, 127)


def test_a_clamp_of_what_is_an_output_too_stays():
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    total = b.op("SUB", x, y, name="total")
    model = prepare(b.graph([total, clamp(b, total, -INFINITY, INFINITY, "same")]))
    frozen = model.freeze(calibrate(model, [EXAMPLES]))
    assert producer(frozen, "total") == "RESCALE"
    assert producer(frozen, "same") == "CLAMP"


def test_fewer_bits_need_their_clamps(model, params):
    """Results of an operator may lie beyond a range that is narrower than its type."""
    bits = {"relu": 5, "total": 4, "tanh": 3, "weight": 3}
    changed = with_bits(model, params, bits)
    frozen = model.freeze(changed)
    assert operators(frozen).count("CLAMP") == 4
    for name in ("relu", "total", "tanh"):
        half = 1 << (bits[name] - 1)
        ends = attribute(frozen, name, "min_val"), attribute(frozen, name, "max_val")
        assert ends == (-half, half - 1)
        assert frozen.tensors[name].dtype is DType.INT8
    weight = frozen.tensors["weight"].values
    assert weight is not None
    assert np.abs(weight).max() == 3
    report = check_bit_exact(model, changed, *EXAMPLES, against=("frozen",))
    assert report, str(report)


# Constants.


def test_every_constant_is_that_of_the_parameters(model, params, frozen):
    made = jax.jit(model.constants)(params)
    constants = {n: t for n, t in frozen.tensors.items() if n in model.plan.recipes}
    assert constants.keys() == model.plan.recipes.keys()
    for name, tensor in constants.items():
        assert tensor.values is not None
        np.testing.assert_array_equal(tensor.values, np.asarray(payload(made[name])))
        assert tensor.values.dtype == tensor.dtype.storage


def test_no_placeholder_is_left(model, frozen):
    """A multiplier is never 0, and the others are the zeros that they ought to be."""
    for name, tensor in frozen.tensors.items():
        if tensor.values is None or tensor.dtype is DType.SHAPE:
            continue
        if name in model.plan.recipes and not name.endswith("_zp"):
            assert tensor.values.any(), name
        if name not in model.plan.recipes:
            assert name.endswith("_zp"), name
            assert not tensor.values.any()


def test_other_parameters_are_another_graph_of_the_same_operators(model, params, frozen):
    scale = params["qparams"]["total"].scale
    other = model.freeze(sample_tables(model, with_scales(params, total=scale * 1.5)))
    assert other != frozen
    assert operators(other) == operators(frozen)
    assert other.tensors["total/rescaled/shift"] != frozen.tensors["total/rescaled/shift"] or (
        other.tensors["total/rescaled/multiplier"] != frozen.tensors["total/rescaled/multiplier"]
    )


def test_the_model_stays_as_it_was(model, params):
    before = dict(model.graph.tensors)
    model.freeze(params)
    assert dict(model.graph.tensors) == before
    recipe = next(name for name in model.plan.recipes if name.endswith("/multiplier"))
    values = model.graph.tensors[recipe].values
    assert values is not None
    assert not values.any()


# Files.


def test_the_graph_is_legal_and_of_integers(frozen):
    assert tosajax.validate(frozen).findings == ()
    assert not any(t.dtype.is_float for t in frozen.tensors.values())


@pytest.mark.parametrize("ending", ["tosa", "json"])
def test_the_graph_is_saved_and_loaded(frozen, tmp_path, ending):
    path = tmp_path / f"model.{ending}"
    tosajax.save(frozen, path)
    assert tosajax.load(path) == frozen


# Scales.

SMALLEST = 2.0**-62
# The largest multipliers of 31 bits, of which float32 has 24, and of 15, times 2**-2.
LARGEST = {"factor": (2.0**24 - 1) * 2.0**5, "product": (2.0**15 - 1) * 2.0**-2}


@pytest.fixture(scope="module")
def scaled() -> dict[str, tuple[QModel, Any]]:
    """Models of one RESCALE each, of int8 and of int48; its scale is that of x over that of y."""
    b = Builder()
    half = times(b, floats(b, "x", 2, 3), constant(b, [[0.5]]), "y")
    factor = prepare(b.graph([half]))
    b = Builder()
    y = b.op("MATMUL", floats(b, "x", 1, 2, 3), floats(b, "z", 1, 3, 2), *zeros(b), name="y")
    product = prepare(b.graph([y]), [rule(".*", act=QSpec("i16"))])
    examples = uniform(0, 1, 2, 3), uniform(1, 1, 3, 2)
    return {
        "factor": (factor, calibrate(factor, [uniform(0, 2, 3)])),
        "product": (product, calibrate(product, [examples])),
    }


def frozen_at(scaled: dict[str, tuple[QModel, Any]], kind: str, scale: float) -> Graph:
    model, params = scaled[kind]
    ones = dict.fromkeys(params["qparams"], 1.0)
    ones["x"] = 2 * scale if kind == "factor" else scale
    return model.freeze(with_scales(params, **ones))


@pytest.mark.parametrize("kind", LARGEST)
def test_scales_that_a_rescale_holds(scaled, kind):
    """Exact up to both ends of the range."""
    for scale in (SMALLEST, 2.0**-40, 1.0, LARGEST[kind]):
        frozen = frozen_at(scaled, kind, scale)
        multiplier, shift = (
            frozen.tensors[f"y/rescaled/{what}"].values for what in ("multiplier", "shift")
        )
        assert multiplier is not None
        assert shift is not None
        assert float(multiplier[0]) * 2.0 ** -float(shift[0]) == scale


@pytest.mark.parametrize("kind", LARGEST)
@pytest.mark.parametrize("end", ["small", "large"])
def test_scales_that_no_rescale_holds_are_refused(scaled, kind, end):
    limit = {"factor": 2.0**29, "product": 2.0**13}[kind]
    scale = SMALLEST / 2 if end == "small" else limit
    with pytest.raises(ValueError, match=r"RESCALE 'y/rescaled': a scale cannot be expressed") as e:
        frozen_at(scaled, kind, scale)
    assert f"[2**-62, 2**{ {'factor': 29, 'product': 13}[kind] })" in str(e.value)


def test_one_channel_is_enough_to_refuse(model, params):
    """A weight whose scale is too large, of two channels; one that is too small grows."""
    scale = jnp.asarray([0.01, 1e15], jnp.float32).reshape(2, 1, 1, 1)
    with pytest.raises(ValueError, match=r"RESCALE 'relu/rescaled': a scale cannot be expressed"):
        model.freeze(with_scales(params, weight=scale))


def joined(of: tuple[float, float]) -> tuple[Graph, list[np.ndarray]]:
    """A CONCAT of values of these sizes, and examples."""
    b = Builder()
    factor = constant(b, [[1, 0.3, -0.5, 0.8]])
    parts = [times(b, floats(b, f"x{n}", 1, 4), factor, f"part{n}") for n in range(2)]
    graph = b.graph([b.op("CONCAT", *parts, name="whole", axis=1)])
    return graph, [size * uniform(n, 16, 4) for n, size in enumerate(of)]


@pytest.mark.parametrize(("of", "is_few"), [((640, 1), True), ((1, 1000), True), ((30, 2), False)])
def test_operands_that_a_common_scale_leaves_few_steps(of, is_few):
    graph, examples = joined(of)
    model = prepare(graph)
    params = calibrate(model, [tuple(examples)])
    small = f"part{int(of[0] > of[1])}"
    if is_few:
        message = f"CONCAT.* leaves '{small}' 0?[.]?[0-9]+ of 256 steps, expected at least 8.*QSpec"
        with pytest.warns(UserWarning, match=message):
            model.freeze(params)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.freeze(params)


def test_operands_of_one_scale_have_all_steps():
    """They are no RESCALEs."""
    b = Builder()
    x = floats(b, "x", 1, 4)
    parts = [b.op("REVERSE", x, axis=1, name="backwards"), x]
    model = prepare(b.graph([b.op("CONCAT", *parts, name="whole", axis=1)]))
    params = calibrate(model, [uniform(0, 8, 4)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [n.op for n in model.freeze(params).nodes if "CONST" not in n.op] == [
            *("REVERSE", "CONCAT"),
        ]


def test_operands_of_an_int16_concat_have_steps():
    graph, examples = joined((640, 1))
    model = prepare(graph, [rule("^whole$", act=QSpec("i16"))])
    params = calibrate(model, [tuple(examples)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.freeze(params)


def test_a_concat_inside_a_branch_warns_too():
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        def joined() -> jax.Array:
            return jnp.concatenate([x * 0.7, jnp.abs(y)], axis=1)

        return jax.lax.cond(x[0, 0] > 0, joined, lambda: jnp.concatenate([y, x], axis=1))

    rng = np.random.default_rng(3)
    batches = [
        (sign * np.abs(rng.normal(size=(1, 4)) * 900).astype(np.float32) + np.float32(1), y)
        for sign in (1, -1)
        for y in rng.normal(size=(4, 1, 4)).astype(np.float32)
    ]
    model = prepare(function, example_args=batches[0])
    params = calibrate(model, batches)
    with pytest.warns(UserWarning, match="CONCAT .* of 256 steps"):
        model.freeze(params)
