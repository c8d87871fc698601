"""equalize and smooth: the same function, through layer norms, attention and changes of shape."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.quant.tune.scalings import find_scalings

TOKENS, WIDTH, HEADS = 5, 8, 2
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(0, 1, (24, TOKENS, WIDTH)).astype(np.float32)


def transformer() -> Graph:
    """A block of attention and a perceptron, factors of layer norms that differ by channel."""
    rng = np.random.default_rng(1)
    b = Builder()
    zero = b.const([0.0], DType.FP32, name="zero")

    def const(name: str, *shape: int, spread: float = 0.3):
        return b.const(rng.normal(0, spread, shape), DType.FP32, name=name)

    def shaped(x, name: str, *shape: int):
        return b.op("RESHAPE", x, b.const_shape(list(shape)), name=name)

    def dense(x, name: str, inputs: int, outputs: int):
        w = const(f"{name}/w", 1, inputs, outputs)
        y = b.op("MATMUL", x, w, zero, zero, name=f"{name}/product")
        return b.op("ADD", y, const(f"{name}/b", 1, 1, outputs), name=name)

    def norm(x, name: str):
        gamma = np.exp(rng.normal(0, 1.5, (1, 1, WIDTH)))
        factor = b.const(gamma, DType.FP32, name=f"{name}/gamma")
        y = b.op("MUL", x, factor, b.const([0], DType.INT8), name=f"{name}/scaled")
        return b.op("ADD", y, const(f"{name}/beta", 1, 1, WIDTH), name=name)

    def heads(x, name: str, perms: tuple[int, ...]):
        split = shaped(x, f"{name}/split", TOKENS, HEADS, WIDTH // HEADS)
        return b.op("TRANSPOSE", split, perms=perms, name=f"{name}/heads")

    x = b.input("x", DType.FP32, (1, TOKENS, WIDTH))
    y = norm(x, "norm1")
    q, k, v = (dense(y, name, WIDTH, WIDTH) for name in "qkv")
    q, v = (heads(t, name, (1, 0, 2)) for t, name in ((q, "q"), (v, "v")))
    scores = b.op("MATMUL", q, heads(k, "k", (1, 2, 0)), zero, zero, name="scores")
    mixed = b.op("MATMUL", b.op("SIGMOID", scores, name="weights"), v, zero, zero, name="mixed")
    joined = b.op("TRANSPOSE", mixed, perms=(1, 0, 2), name="joined")
    y = dense(shaped(joined, "flat", 1, TOKENS, WIDTH), "out", WIDTH, WIDTH)
    total = b.op("ADD", x, y, name="total")
    hidden = dense(norm(total, "norm2"), "up", WIDTH, 12)
    limit = np.finfo(np.float32).max
    relu = b.op("CLAMP", hidden, min_val=np.float32(0), max_val=limit, name="relu")
    return b.graph([b.op("ADD", total, dense(relu, "down", 12, WIDTH), name="y")])


@functools.cache
def model() -> tq.PreparedModel:
    return tq.prepare(transformer())


@functools.cache
def plain():
    return tq.calibrate(model(), [INPUTS])


@functools.partial(jax.jit, static_argnums=1)
def run(params, mode: tq.Mode) -> jax.Array:
    return model().apply(params, INPUTS, mode=mode)[0]


def error(params) -> float:
    difference = np.asarray(run(params, "exact")) - np.asarray(run(plain(), "float"))
    return float(np.square(difference).mean())


def test_the_scalings_of_a_transformer():
    """Queries and keys have none, as their product is read by no constant."""
    floats = model().float_graph
    assert floats is not None
    found = {s.divided[0].name: s for s in find_scalings(floats)}
    assert set(found) == {"norm1/gamma", "v/w", "norm2/gamma", "up/w"}
    first = found["norm1/gamma"]
    assert [c.name for c in first.multiplied] == ["q/w", "k/w", "v/w"]
    assert [c.name for c in first.divided] == ["norm1/gamma", "norm1/beta"]
    values = found["v/w"]
    assert [c.name for c in values.divided] == ["v/w", "v/b"]
    (out,) = values.multiplied
    assert (out.name, out.axes) == ("out/w", (1,))
    np.testing.assert_array_equal(out.channels, np.arange(WIDTH))
    assert found["up/w"].size == 12


@pytest.mark.slow
def test_biases_of_layer_norms_and_of_products_are_corrected():
    """In 4 bits activations are rounded with a mean error, which the next sum takes away."""
    narrow = tq.QSpec("i8", bits=4, symmetric=False)
    rough = tq.prepare(transformer(), [tq.rule("norm|^[qkv]|up", act=narrow)])
    params = tq.calibrate(rough, [INPUTS])
    found = tq.bias_correct(rough, params, [INPUTS])
    assert {"norm1/beta", "norm2/beta", "q/b", "up/b", "down/b"} <= set(found["corrections"])
    watched = rough.with_outputs("norm2", "y")
    exact = jax.jit(lambda p: watched.apply(p, INPUTS))
    wanted = watched.apply(params, INPUTS, mode="float")
    for before, after, right in zip(exact(params), exact(found), wanted, strict=True):
        errors = [np.abs((x - right).mean((0, 1))).mean() for x in (before, after)]
        assert errors[1] < 0.6 * errors[0]


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_smooth_keeps_the_function(strength):
    values = tq.smooth(model(), [INPUTS[:10], INPUTS[10:]], strength=strength)
    params = tq.calibrate(model(), [INPUTS], values=values)
    found, wanted = run(params, "float"), run(plain(), "float")
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())
    assert np.abs(values["norm1/gamma"] - plain()["values"]["norm1/gamma"]).max() > 0.1
    assert tq.check_bit_exact(model(), params, INPUTS[:4], against=("frozen",))


def test_smooth_makes_activations_alike_or_weights():
    largest = {}
    for strength in (0.0, 1.0):
        values = tq.smooth(model(), [INPUTS], strength=strength)
        watched = model().with_outputs("norm1")
        (y,) = watched.apply({"values": values}, INPUTS, mode="float")
        largest[strength] = np.abs(y).max((0, 1)), np.abs(values["out/w"]).max((0, 2))
    np.testing.assert_allclose(largest[1.0][0], 1, rtol=1e-4)
    np.testing.assert_allclose(largest[0.0][1], 1, rtol=1e-4)


def test_both_lower_the_error_of_integers():
    smoothed = tq.calibrate(model(), [INPUTS], values=tq.smooth(model(), [INPUTS]))
    equal = tq.calibrate(model(), [INPUTS], values=tq.equalize(model()))
    found, wanted = run(equal, "float"), run(plain(), "float")
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())
    assert error(smoothed) < 0.99 * error(plain())
    assert error(equal) < error(plain())


def test_equalized_channels_of_weights_are_alike_across_attention():
    values = tq.equalize(model())
    before = np.abs(values["v/w"]).max((0, 1))
    behind = np.abs(values["out/w"]).max((0, 2))
    np.testing.assert_allclose(before, behind, rtol=1e-3)


def chain(*, shared: bool = False, between: str = "", output: bool = False) -> Graph:
    """Two MATMULs, with something between them that may forbid to scale."""
    rng = np.random.default_rng(3)
    b = Builder()
    zero = b.const([0.0], DType.FP32, name="zero")
    w1, w2 = (b.const(rng.normal(0, 1, (1, 4, 4)), DType.FP32, name=f"w{i}") for i in (1, 2))
    y = b.op("MATMUL", b.input("x", DType.FP32, (1, 4, 4)), w1, zero, zero, name="first")
    first = y
    if between == "SIGMOID":
        y = b.op("SIGMOID", y)
    elif between == "TRANSPOSE":
        y = b.op("TRANSPOSE", y, perms=(0, 2, 1))
    elif between == "RESHAPE":
        y = b.op("RESHAPE", y, b.const_shape([1, 8, 2]))
        y = b.op("RESHAPE", y, b.const_shape([1, 4, 4]))
    elif between == "CLAMP":
        y = b.op("CLAMP", y, min_val=np.float32(0), max_val=np.float32(6))
    elif between == "ADD":
        y = b.op("ADD", y, b.const(rng.normal(0, 1, (1, 4, 1)), DType.FP32, name="rows"))
    y = b.op("MATMUL", y, w1 if shared else w2, zero, zero, name="second")
    return b.graph([first, y] if output else [y])


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 1),
        ({"between": "RESHAPE"}, 1),
        ({"between": "TRANSPOSE"}, 0),
        ({"between": "SIGMOID"}, 0),
        ({"between": "CLAMP"}, 0),
        ({"between": "ADD"}, 0),
        ({"shared": True}, 0),
        ({"output": True}, 0),
    ],
)
def test_what_forbids_to_scale(options, count):
    prepared = tq.prepare(chain(**options))
    assert len(list(find_scalings(prepared.float_graph))) == count
    params = tq.calibrate(prepared, [INPUTS[:, :4, :4]])
    equal = {**params, "values": tq.equalize(prepared)}
    floats = jax.jit(functools.partial(prepared.apply, mode="float"))
    for found, wanted in zip(
        floats(equal, INPUTS[:, :4, :4]), floats(params, INPUTS[:, :4, :4]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_wrong_arguments_of_smooth():
    with pytest.raises(ValueError, match=r"strength is 2, expected a number in \[0, 1\]"):
        tq.smooth(model(), [INPUTS], strength=2)
    with pytest.raises(ValueError, match="no examples"):
        tq.smooth(model(), [])
    with pytest.raises(ValueError, match="batch 0: input 'x' is nan"):
        tq.smooth(model(), [np.full_like(INPUTS, np.nan)])
