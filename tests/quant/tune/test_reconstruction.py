"""reconstruct: block by block, on networks with a residual, a table, and other inputs."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.quant.model.parts import cuts, part
from tosajax.quant.model.recipes import Params, corrected

RNG = np.random.default_rng(0)
# Of few patterns, as real images are: of white noise, nearest rounding is best.
PATTERNS = RNG.normal(0, 1, (3, 5, 5, 3))
IMAGES = (0.7 + np.einsum("np,pijc->nijc", RNG.normal(0, 0.7, (48, 3)), PATTERNS)).astype(
    np.float32
)
BATCHES = np.split(IMAGES, 3)
STATIC = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}


def network() -> Graph:
    """A convolution, a residual block of two, a sigmoid, and a convolution behind it."""
    rng = np.random.default_rng(1)
    b = Builder()

    def conv(x, name: str, inputs: int, outputs: int):
        zeros = [b.const([0.0], DType.FP32, name=f"{name}/zero{i}") for i in range(2)]
        w = b.const(rng.normal(0, 0.3, (outputs, 3, 3, inputs)), DType.FP32, name=f"{name}/w")
        bias = b.const(rng.normal(0, 0.1, outputs), DType.FP32, name=f"{name}/b")
        return b.op("CONV2D", x, w, bias, *zeros, name=name, **STATIC)

    def relu(x, name: str):
        limit = np.finfo(np.float32).max
        return b.op("CLAMP", x, min_val=np.float32(0), max_val=limit, name=name)

    x = b.input("x", DType.FP32, (1, 5, 5, 3))
    stem = relu(conv(x, "stem", 3, 6), "stem/relu")
    inner = conv(relu(conv(stem, "first", 6, 6), "first/relu"), "second", 6, 6)
    total = b.op("ADD", stem, inner, name="total")
    gate = b.op("SIGMOID", total, name="gate")
    return b.graph([conv(gate, "head", 6, 4)])


@functools.cache
def prepared(bits: int = 3) -> tuple[tq.PreparedModel, Params]:
    weight = tq.QSpec("i8", bits=bits, narrow_range=True)
    model = tq.prepare(network(), [tq.rule(".*", weight=weight)])
    return model, tq.calibrate(model, BATCHES)


@functools.cache
def learned(**options):
    model, params = prepared()
    return tq.reconstruct(model, params, BATCHES, steps=60, **options)


@functools.partial(jax.jit, static_argnums=0)
def difference(model: tq.PreparedModel, params) -> jax.Array:
    exact, floats = (model.apply(params, IMAGES, mode=mode)[0] for mode in ("exact", "float"))
    return jnp.square(exact - floats).mean()


def error(params) -> float:
    return float(difference(prepared()[0], params))


def test_blocks_end_where_all_the_rest_depends_on_one_tensor():
    model, _ = prepared()
    assert cuts(model) == ["stem/relu", "total", "gate", "head"]
    block = part(model, "stem/relu", ["total"])
    assert block.graph.inputs == ("stem/relu",)
    assert set(block.weights) == {"first/w", "second/w"}
    assert set(block.activations) == {"stem/relu", "first/relu", "second", "total"}
    assert not block.plan.functions
    assert set(part(model, "total", ["head"]).plan.functions) == {"gate"}


def test_a_part_computes_what_the_whole_does():
    model, params = prepared()
    names = ("stem/relu", "total")
    watched = jax.jit(model.with_outputs(*names).integers)
    given, wanted = watched(params, IMAGES)
    block = part(model, names[0], names[1:])
    (found,) = jax.jit(block.integers)(params, given)
    np.testing.assert_array_equal(found.q, wanted.q)
    floats = model.with_outputs(*names).apply(params, IMAGES, mode="float")
    (real,) = block.apply(params, floats[0], mode="float")
    np.testing.assert_allclose(real, floats[1], rtol=1e-5, atol=1e-5)


def test_reconstruction_lowers_the_error_of_the_integers():
    model, params = prepared()
    found = learned()
    assert error(found) < 0.5 * error(params)
    assert set(found["corrections"]) == set(model.weights)
    before, after = (model.apply(p, IMAGES, mode="float")[0] for p in (params, found))
    np.testing.assert_array_equal(before, after)
    assert tq.check_bit_exact(model, found, IMAGES, against=("frozen",))


def test_each_weight_is_one_of_its_two_integers():
    model, params = prepared()
    made = jax.jit(model.constants)(learned())
    for name in model.weights:
        own = params["qparams"][name]
        steps = np.asarray(corrected(params, name) / own.scale)
        found = np.asarray(made[name].q)
        inside = np.abs(steps) <= 3
        assert (np.abs(found - steps)[inside] < 1).all()
        assert (found != np.rint(steps))[inside].any()


def test_scales_of_activations_are_learned_but_those_of_inputs_and_weights():
    model, params = prepared()
    found = learned()["qparams"]
    moved = {
        name
        for name in model.specs
        if not np.array_equal(found[name].scale, params["qparams"][name].scale)
    }
    assert {"total", "head"} <= moved <= set(model.activations) - {"x"}
    assert all(float(found[n].bits) == float(params["qparams"][n].bits) for n in model.specs)


def test_tables_follow_the_scales():
    """The scale of the sigmoid's input is learned in one block, and its table read in the next."""
    model, params = prepared()
    found = learned()
    assert not np.array_equal(found["tables"]["gate"], params["tables"]["gate"])
    points = (np.arange(-128, 128) - np.rint(found["qparams"]["total"].zero_point)) * np.float64(
        found["qparams"]["total"].scale
    )
    np.testing.assert_allclose(found["tables"]["gate"], 1 / (1 + np.exp(-points)), atol=1e-6)
    model.freeze(found)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"ends": ("total",)}, {"drop": 0.5}], ids=["end", "drop"])
def test_other_ways_lower_the_error_too(options):
    _, params = prepared()
    found = tq.reconstruct(prepared()[0], params, BATCHES, steps=60, **options)
    assert error(found) < 0.7 * error(params)
    assert error(found) != error(learned())


@pytest.mark.slow
def test_a_regularizer_draws_weights_to_integers():
    """Between two integers a weight is a float, and free of error; in the end it is at one."""
    model, params = prepared()
    found = tq.reconstruct(model, params, BATCHES, steps=150, regularizer=1.0)
    assert error(found) < 0.9 * error(params)


@pytest.mark.slow
def test_the_loss_decides_which_outputs_count():
    """A loss of two channels alone leaves the other two as they are."""
    model, params = prepared()
    apply = jax.jit(model.apply)
    floats = jax.jit(functools.partial(model.apply, mode="float"))(params, IMAGES)[0]

    def errors(p):
        return np.square(np.asarray(apply(p, IMAGES)[0]) - floats).mean((0, 1, 2))

    some = tq.reconstruct(
        model, params, BATCHES, steps=80, loss=lambda y: jnp.square(y[0][..., :2]).sum()
    )
    every, found = errors(learned()), errors(some)
    # From 0.34 to 0.72 of the error is left, as steps are few more or less.
    assert found[:2].sum() < 0.75 * errors(params)[:2].sum()
    assert found[2:].sum() > every[2:].sum()


@pytest.mark.slow
def test_a_block_that_would_be_worse_stays():
    import optax

    model, params = prepared()
    wild = optax.sgd(-1e3)  # away from what is wanted
    found = tq.reconstruct(model, params, BATCHES, steps=3, optimizer=wild)
    assert error(found) <= error(params)


def test_inputs_and_outputs_that_are_not_real_numbers():
    """Rows chosen by indices, and the place of the largest element."""
    rng = np.random.default_rng(2)
    b = Builder()
    rows = b.input("rows", DType.FP32, (1, 6, 8))
    indices = b.input("indices", DType.INT32, (1, 4))
    w1, w2 = (b.const(rng.normal(0, 0.4, (1, 8, 8)), DType.FP32, name=f"w{i}") for i in (1, 2))
    zero = b.const([0.0], DType.FP32)
    first = b.op("MATMUL", rows, w1, zero, zero, name="first")
    chosen = b.op("GATHER", first, indices, name="chosen")
    second = b.op("MATMUL", chosen, w2, zero, zero, name="second")
    graph = b.graph([second, b.op("ARGMAX", second, axis=2, name="place")])
    spec = tq.QSpec("i8", bits=3, narrow_range=True)
    model = tq.prepare(graph, [tq.rule(".*", weight=spec)])
    patterns = rng.normal(0, 1, (2, 8))
    batches = [
        (
            (rng.normal(0, 1, (16, 1, 6, 2)) @ patterns + 0.5).astype(np.float32),
            rng.integers(0, 6, (16, 1, 4)).astype(np.int32),
        )
        for _ in range(2)
    ]
    params = tq.calibrate(model, batches)
    found = tq.reconstruct(model, params, batches, steps=60)

    def distance(p):
        exact, floats = (model.apply(p, *batches[0], mode=mode)[0] for mode in ("exact", "float"))
        return float(jnp.square(exact - floats).mean())

    assert set(found["corrections"]) == {"w1", "w2"}
    assert distance(found) < 0.8 * distance(params)


@pytest.mark.slow
def test_batch_norms_are_folded_in_what_is_learned():
    weight = tq.QSpec("i8", bits=3, narrow_range=True)
    model = tq.prepare(network(), [tq.rule(".*", weight=weight)], batch_norms="stem|first")
    params = tq.calibrate(model, BATCHES)
    found = tq.reconstruct(model, params, BATCHES, steps=60)
    assert float(difference(model, found)) < 0.6 * float(difference(model, params))
    assert tq.check_bit_exact(model, found, IMAGES, against=("frozen",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"drop": 1.0}, r"drop is 1\.0"),
        ({"regularizer": -1}, "regularizer is -1"),
        ({"ends": ("first/relu",)}, "ends has 'first/relu', which is not"),
        ({"ends": ("totl",)}, "did you mean 'total'"),
    ],
)
def test_wrong_arguments(options, message):
    model, params = prepared()
    with pytest.raises(ValueError, match=message):
        tq.reconstruct(model, params, BATCHES, **options)
    with pytest.raises(TypeError, match="ends is 'total'"):
        tq.reconstruct(model, params, BATCHES, ends="total")
