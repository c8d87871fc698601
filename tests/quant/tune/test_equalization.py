"""equalize and smooth: the same function, through layer norms, attention and changes of shape."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_of
from quant.image_networks import Images

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.quant.calibration import known_values
from tosajax.quant.tune.equalization import _scalings
from tosajax.quant.tune.scalings import Scaling, find_scalings

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


def scalings(prepared: tq.PreparedModel) -> list[Scaling]:
    return _scalings(prepared, known_values(prepared, None))


def test_the_scalings_of_a_transformer():
    """Queries and keys have none, as their product is read by no constant."""
    found = {s.divided[0].name: s for s in scalings(model())}
    assert set(found) == {"norm1/gamma", "v/w", "norm2/gamma", "up/w"}
    first = found["norm1/gamma"]
    assert [c.name for c in first.multiplied] == ["q/w", "k/w", "v/w"]
    assert [c.name for c in (*first.divided, *first.biases)] == ["norm1/gamma", "norm1/beta"]
    values = found["v/w"]
    assert [c.name for c in (*values.divided, *values.biases)] == ["v/w", "v/b"]
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


@pytest.mark.parametrize("tune", [tq.equalize, functools.partial(tq.smooth, batches=[INPUTS])])
def test_known_values_are_scaled_on_the_host_and_traced_ones_by_xla(tune):
    own, before = model(), known_values(model(), None)
    known = tune(own)
    assert compiled_of(lambda: tune(own)) == 0
    traced = jax.jit(lambda values: tune(own, values=values))(before)
    assert {n for n in before if np.any(known[n] != before[n])} >= {"norm1/gamma", "out/w"}
    for name, value in traced.items():
        np.testing.assert_allclose(known[name], value, rtol=1e-5)


def test_smooth_makes_activations_alike_or_weights():
    largest = {}
    for strength in (0.0, 1.0):
        values = tq.smooth(model(), [INPUTS], strength=strength)
        watched = model().with_outputs("norm1")
        (y,) = watched.apply({"values": values}, INPUTS, mode="float")
        largest[strength] = np.abs(y).max((0, 1)), np.abs(values["out/w"]).max((0, 2))
    np.testing.assert_allclose(largest[1.0][0], largest[1.0][0][0], rtol=1e-4)
    np.testing.assert_allclose(largest[0.0][1], largest[0.0][1][0], rtol=1e-4)


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
    assert len(scalings(prepared)) == count
    params = tq.calibrate(prepared, [INPUTS[:, :4, :4]])
    equal = {**params, "values": tq.equalize(prepared)}
    floats = jax.jit(functools.partial(prepared.apply, mode="float"))
    for found, wanted in zip(
        floats(equal, INPUTS[:, :4, :4]), floats(params, INPUTS[:, :4, :4]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def _residual(n: Images, x):
    for number in range(2):
        branch = n.relu(n.depthwise(x, f"depthwise{number}"))
        x = n.relu(n.b.op("ADD", x, n.conv(branch, f"conv{number}")))
    return x


def _prelu(n: Images, x):
    slopes, zero = n.random("slopes", 1, 1, 1, 4), n.const("0", np.zeros((1, 1, 1, 1)))
    above = n.b.op("GREATER_EQUAL", x, zero)
    return n.b.op("SELECT", above, x, n.mul(x, slopes))


def _gate(n: Images, x, *, first: bool = False):
    pooled = n.b.op(
        "AVG_POOL2D",
        x,
        n.zero,
        n.zero,
        kernel=(6, 6),
        stride=(6, 6),
        pad=(0,) * 4,
        acc_type=DType.FP32,
    )
    gate = n.b.op("SIGMOID", n.conv(pooled, "gate"))
    return n.mul(gate, x) if first else n.mul(x, gate)


def _wide(n: Images, x):
    padding = n.b.const_shape([0, 0, 0, 0, 0, 0, 0, 4])
    return n.b.op("PAD", x, padding, n.const("pad", np.zeros(1)))


def _wider(n: Images, x):
    return n.b.op("ADD", _wide(n, x), n.conv(x, "wider", 8))


def _shared(n: Images, x, values: np.ndarray):
    bias = n.const("shared", values)
    return n.conv(n.conv(x, "a", bias=bias), "b", bias=bias)


def _shared_row(n: Images, x):
    row = n.random("shared", 1, 1, 1, 4)
    y = n.depthwise(n.b.op("ADD", n.relu(x), row), "depthwise")
    return n.b.op("ADD", n.relu(y), row)


def _parts(n: Images, x):
    both = n.b.op("CONCAT", x, n.conv(x, "other", 3), axis=3)
    start, size = n.b.const_shape([0, 1, 0, 2]), n.b.const_shape([1, 4, 6, 4])
    return n.b.op("SLICE", both, start, size)


def _shifted(n: Images, x):
    y = n.b.op("ADD", n.random("row", 1, 6, 1, 4), x)
    return n.b.op("SUB", y, n.random("channels", 1, 1, 1, 4))


def _stacked(n: Images, x):
    y = n.b.op("CONCAT", x, n.conv(x, "other"), axis=1)
    return n.b.op("REVERSE", y, axis=2)


def _flat(n: Images, x):
    y = n.b.op("RESHAPE", x, n.b.const_shape([1, 4, 9, 4]))
    y = n.b.op("TRANSPOSE", y, perms=(0, 2, 1, 3))
    return n.b.op("RESHAPE", y, n.b.const_shape([1, 6, 6, 4]))


def _rows_beside(n: Images, x):
    return n.b.op("RESHAPE", x, n.b.const_shape([1, 6, 3, 8]))


def _back(n: Images, x):
    y = n.b.op("TRANSPOSE", x, perms=(0, 3, 1, 2))
    y = n.relu(n.b.op("RESHAPE", y, n.b.const_shape([1, 24, 1, 6])))
    y = n.b.op("RESHAPE", y, n.b.const_shape([1, 4, 6, 6]))
    return n.b.op("TRANSPOSE", y, perms=(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("between", "channels"),
    [
        (lambda n, x: n.relu(x), 4),
        (lambda n, x: n.relu(x, 0.0, 6.0), 0),
        (lambda n, x: n.relu(x, -1.0), 0),
        (lambda n, x: n.b.op("NEGATE", n.b.op("ABS", x), n.zero, n.zero), 4),
        (lambda n, x: n.depthwise(x, "depthwise", 2), 4 + 8),
        (_residual, 4 + 4 + 4),
        (_prelu, 4),
        (lambda n, x: n.mul(x, n.random("factors", 1, 1, 1, 4)), 4),
        (lambda n, x: n.mul(n.const("half", np.full((1, 1, 1, 1), 0.5)), x), 4),
        (lambda n, x: n.mul(x, n.random("rows", 1, 6, 1, 1)), 0),
        (_gate, 4),
        (functools.partial(_gate, first=True), 4),
        (_wide, 4),
        (_wider, 8),
        (_parts, 4 + 2),
        (_shifted, 4),
        (lambda n, x: n.b.op("ADD", x, n.random("rows", 1, 6, 1, 1)), 0),
        (lambda n, x: n.b.op("MAXIMUM", x, n.const("0", np.zeros((1, 1, 1, 1)))), 4),
        (lambda n, x: n.b.op("MAXIMUM", x, n.random("least", 1, 1, 1, 4)), 0),
        (lambda n, x: n.b.op("MINIMUM", x, n.conv(x, "other")), 4),
        (lambda n, x: n.conv(n.conv(x, "a", bias=n.zero), "b", bias=n.zero), 4 + 4 + 4),
        (functools.partial(_shared, values=np.zeros(4)), 4 + 4 + 4),
        (functools.partial(_shared, values=np.ones(4)), 4),
        (_shared_row, 0),
        (lambda n, x: n.conv(x, "shared", bias=n.const("ones", np.ones(1))), 4),
        (_stacked, 4),
        (_flat, 4),
        (_rows_beside, 4),
        (_back, 4),
    ],
)  # fmt: skip
def test_any_factors_of_channels_keep_the_function(between, channels):
    prepared = tq.prepare(Images().network(between))
    rng = np.random.default_rng(5)
    examples = rng.normal(0, 1, (3, 6, 6, 3)).astype(np.float32)
    values = known_values(prepared, None)
    found = _scalings(prepared, values)
    assert sum(scaling.size for scaling in found) == channels
    run = jax.jit(lambda values: prepared.apply({"values": values}, examples, mode="float")[0])
    wanted = run(values)
    for scaling in found:
        factors = jnp.exp(jnp.asarray(rng.normal(0, 1, scaling.size), jnp.float32))
        values |= scaling.applied(factors, values)
    np.testing.assert_allclose(run(values), wanted, atol=2e-5 * np.abs(wanted).max())


def test_computed_weights_are_not_scaled():
    n = Images()
    kernel = n.conv(n.input, "kernel")
    y = n.b.op(
        "CONV2D", n.conv(n.input, "first"), kernel, n.zero, n.zero, n.zero, pad=(3, 2, 3, 2),
        stride=(1, 1), dilation=(1, 1), acc_type=DType.FP32,
    )  # fmt: skip
    graph = n.b.graph([n.conv(y, "last")])
    assert find_scalings(graph, lambda name: name == "zero") == []


def test_zeros_that_other_values_replace_are_none():
    zeros = np.zeros((1, 1, 1, 4))
    graph = Images().network(lambda n, x: n.b.op("MAXIMUM", x, n.const("least", zeros)))
    prepared = tq.prepare(graph)
    values = known_values(prepared, {"least": zeros + np.float32(1)})
    assert _scalings(prepared, values) == []


def _ranges(prepared: tq.PreparedModel, values, examples, *names: str) -> list[np.ndarray]:
    watched = prepared.with_outputs(*names)
    outputs = watched.apply({"values": values}, examples, mode="float")
    return [np.abs(np.asarray(y)).max((0, 1, 2)) for y in outputs]


@pytest.mark.parametrize("per_channel", [True, False])
def test_smooth_makes_channels_alike_that_depthwise_convolutions_read(per_channel):
    weight = tq.QSpec("i8", per_channel=per_channel)
    graph = Images().network(lambda n, x: n.depthwise(x, "depthwise"))
    prepared = tq.prepare(graph, [tq.rule("depthwise", weight=weight)])
    examples = RNG.normal(0, 1, (3, 6, 6, 3)).astype(np.float32)
    values = tq.smooth(prepared, [examples])
    first, second = _ranges(prepared, values, examples, "first", "depthwise")
    assert (first.max() < 1.001 * first.min()) == per_channel
    assert second.max() > 1.1 * second.min()


def test_smooth_takes_the_mean_of_tensors_with_the_same_channels():
    """Of a sum before and after a branch, which are scaled together."""
    prepared = tq.prepare(Images().network(_residual))
    examples = RNG.normal(0, 1, (3, 6, 6, 3)).astype(np.float32)
    values = tq.smooth(prepared, [examples], strength=1.0)
    own = known_values(prepared, None)
    (scaling,) = [s for s in _scalings(prepared, own) if len(s.reads) == 3]
    names = [read.tensor for read in scaling.reads]
    before, after = (np.stack(_ranges(prepared, v, examples, *names)) for v in (own, values))
    each = before / before.max(1, keepdims=True)
    np.testing.assert_allclose(before / after, [np.exp(np.log(each).mean(0))] * 3, rtol=1e-4)


def test_smooth_leaves_channels_far_below_the_largest():
    """New examples may have more in them."""
    b = Builder()
    zero = b.const([0.0], DType.FP32, name="zero")
    first = np.array([[[1.0, 0.5, 1e-5]]])
    second = np.ones((1, 3, 1))
    w1, w2 = (b.const(w, DType.FP32, name=name) for name, w in (("w1", first), ("w2", second)))
    y = b.op("MATMUL", b.input("x", DType.FP32, (1, 1, 1)), w1, zero, zero, name="y")
    prepared = tq.prepare(b.graph([b.op("MATMUL", y, w2, zero, zero)]))
    values = tq.smooth(prepared, [np.ones((2, 1, 1), np.float32)], strength=1.0)
    np.testing.assert_allclose(values["w1"].ravel(), [1, 1, 64e-5], rtol=1e-5)
    np.testing.assert_allclose(values["w2"].ravel(), [1, 0.5, 1 / 64], rtol=1e-5)


def test_wrong_arguments_of_smooth():
    with pytest.raises(ValueError, match=r"strength is 2, expected a number in \[0, 1\]"):
        tq.smooth(model(), [INPUTS], strength=2)
    with pytest.raises(ValueError, match="no examples"):
        tq.smooth(model(), [])
    with pytest.raises(ValueError, match="batch 0: input 'x' is nan"):
        tq.smooth(model(), [np.full_like(INPUTS, np.nan)])
