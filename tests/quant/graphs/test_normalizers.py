"""Softmaxes and norms in float graphs: their inner tensors, and what their ranges hold."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tosajax
from tosajax import DType, quant
from tosajax.grad import QTensor
from tosajax.quant.ranges.relevance import Logit, LogitTerm, RowFactor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 32)).astype(np.float32)
W = RNG.normal(size=(32, 32)).astype(np.float32)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def fast_layer_norm(x):
    """With the variance as Flax computes it, and a scale and an offset."""
    mean, square = (y.mean(-1, keepdims=True) for y in (x, x * x))
    factor = (
        lax.rsqrt(jnp.maximum(square - mean * mean, 0) + 1e-6)
        * np.linspace(0.5, 1, 32, dtype=np.float32)[None]
    )
    return (x - mean) * factor + np.linspace(-1, 1, 32, dtype=np.float32)[None]


def rms_norm(x):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def unit_norm(x):
    return x / jnp.maximum(jnp.sqrt((x * x).sum(-1, keepdims=True)), 1e-12)


NORMS = [layer_norm, fast_layer_norm, rms_norm, unit_norm]


def sqnr(reals, values) -> float:
    reals, values = np.asarray(reals), np.asarray(values)
    return float(10 * np.log10(np.square(reals).sum() / np.square(reals - values).sum()))


def quantized(function, *inputs, rules=(), **options):
    model = quant.prepare(function, list(rules), example_args=inputs, **options)
    return model, quant.calibrate(model, [inputs])


def fidelity(function, *inputs, rules=(), **options) -> float:
    model, params = quantized(function, *inputs, rules=rules, **options)
    return sqnr(function(*inputs), jax.jit(model.apply)(params, *inputs)[0])


def types(model) -> dict[str, DType]:
    return {name: model.specs[name].storage.dtype for name in model.activations}


@pytest.mark.parametrize("norm", [*NORMS, jax.nn.softmax])
def test_inner_tensors_are_int16_and_ends_are_int8(norm):
    model, params = quantized(lambda x: norm(x @ W) @ W, X)
    products = [node for node in model.graph.nodes if node.op == "CONV2D"]
    operands = {model.graph.tensors[name].dtype for node in products for name in node.inputs[:2]}
    assert operands == {DType.INT8}
    ends = (*model.graph.input_tensors, *model.graph.output_tensors)
    assert {tensor.dtype for tensor in ends} == {DType.INT8}
    assert DType.INT16 in types(model).values()
    assert quant.check_bit_exact(model, params, X)


@pytest.mark.parametrize("norm", [*NORMS, jax.nn.softmax])
def test_rules_decide_where_normalizers_are_not_wide(norm):
    model, _ = quantized(norm, X, wide_normalizers=False, wide_elementwise=False)
    assert set(types(model).values()) == {DType.INT8}
    assert DType.INT16 in types(quantized(lambda x: norm(x) + x, X)[0]).values()


def test_an_input_that_a_product_reads_is_int8():
    def function(x):
        y = x @ W
        return layer_norm(y) + y @ W

    model, _ = quantized(function, X)
    (_, read_twice) = (n.inputs[0] for n in model.float_graph.nodes if n.op == "CONV2D")
    assert types(model)[read_twice] is DType.INT8
    assert DType.INT16 in types(model).values()


def test_sums_between_norms_are_int16():
    def function(x):
        y = x @ W
        for _ in range(2):
            y = y + layer_norm(y) @ W
        return y

    model, _ = quantized(function, X)
    sums = [n.outputs[0] for n in model.float_graph.nodes if n.op == "ADD" and n.inputs[0] != "x"]
    assert DType.INT16 in {types(model).get(name) for name in sums}


@pytest.mark.parametrize("norm", NORMS)
def test_a_row_of_zeros_takes_no_precision_from_others(norm):
    padded = X.copy()
    padded[3] = 0
    assert fidelity(norm, padded) > fidelity(norm, X) - 1.5
    model, _ = quantized(norm, padded)
    factors = [s for s in model.plan.scaled.values() if isinstance(s.relevance, RowFactor)]
    assert factors


def test_factors_that_others_read_count_in_all_rows():
    """A factor that is an output, or added, matters where its product is 0."""
    padded = X.copy()
    padded[3] = 0

    def function(x):
        factor = lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-2)
        return x * factor, factor

    model, params = quantized(function, padded)
    assert not any(isinstance(s.relevance, RowFactor) for s in model.plan.scaled.values())
    (_, factor) = model.apply(params, padded)
    assert np.asarray(factor)[3] > 9.5


@pytest.mark.parametrize("norm", NORMS)
def test_rows_of_a_wide_spread(norm):
    """2.5 dB with tables of even steps."""
    rows = X * np.geomspace(0.1, 10, 24, dtype=np.float32)[:, None]
    rules = [quant.rule(".*", act=quant.QSpec("i16"))]
    assert fidelity(norm, rows, rules=rules) > 30


@pytest.mark.parametrize("norm", [*NORMS, jax.nn.softmax])
def test_gradients_go_through(norm):
    model, params = quantized(norm, X)
    weights = RNG.normal(size=X.shape).astype(np.float32)
    gradient = jax.jit(jax.grad(lambda x: (weights * model.apply(params, x)[0]).sum()))(X)
    wanted = jax.grad(lambda x: (weights * norm(x)).sum())(X)
    assert np.corrcoef(np.ravel(gradient), np.ravel(wanted))[0, 1] > 0.95


# Masks.

Q, K, V = (RNG.normal(size=(2, 8, 8)).astype(np.float32) for _ in range(3))
KEEP = np.arange(8) < np.array([[8], [5]])[:, :, None]
CAUSAL = np.tril(np.ones((8, 8), bool))

MASKS = {
    "selected": (lambda t, m: jnp.where(m, t, -jnp.inf), KEEP),
    "selected -1e4": (lambda t, m: jnp.where(m, t, -1e4), KEEP),
    "input of -1e4": (lambda t, m: t + m, np.where(KEEP, 0, -1e4).astype(np.float32)),
    "input of -65504": (lambda t, m: t + m, np.where(KEEP, 0, -65504).astype(np.float32)),
    "input of -1e9": (lambda t, m: m + t, np.where(KEEP, 0, -1e9).astype(np.float32)),
    "product by -1e9": (lambda t, m: t + (1 - m) * -1e9, KEEP.astype(np.float32)),
    "product by -1e4": (lambda t, m: t + (1 - m) * -1e4, KEEP.astype(np.float32)),
    "integers": (lambda t, m: t + (1 - m.astype(jnp.float32)) * -3e38, KEEP.astype(np.int32)),
    "booleans": (lambda t, m: t + (1 - m.astype(jnp.float32)) * -1e9, KEEP),
}
CONSTANTS = {c: np.where(CAUSAL, 0, c).astype(np.float32)[None] for c in (-1e4, -65504.0, -1e9)}


def attention(masked):
    def function(q, k, v, mask):
        logits = masked(jnp.einsum("bid,bjd->bij", q, k) / np.sqrt(8), mask)
        return jnp.einsum("bij,bjd->bid", jax.nn.softmax(logits, -1), v)

    return function


@pytest.mark.slow
@pytest.mark.parametrize("bits", ["i8", "i16"])
def test_all_forms_of_masks_are_alike(bits):
    rules = [quant.rule(".*", act=quant.QSpec(bits, symmetric=bits == "i16"))]
    fidelities = {
        name: fidelity(attention(masked), Q, K, V, mask, rules=rules)
        for name, (masked, mask) in MASKS.items()
    }
    assert max(fidelities.values()) - min(fidelities.values()) < 1, fidelities
    assert min(fidelities.values()) > {"i8": 33, "i16": 50}[bits]


def test_constant_masks_are_alike():
    fidelities = [
        fidelity(lambda q, k, v, c=c: attention(lambda t, _: t + c)(q, k, v, None), Q, K, V)
        for c in CONSTANTS.values()
    ]
    assert max(fidelities) - min(fidelities) < 1, fidelities
    assert min(fidelities) > 33


def test_masked_inputs_are_not_clipped(tmp_path):
    masked, mask = MASKS["input of -1e4"]
    model, params = quantized(attention(masked), Q, K, V, mask)
    path = tmp_path / "attention.tosa"
    tosajax.save(model.freeze(params), path)
    graph = tosajax.load(path)
    assert [name for name, q in graph.quantization.items() if q.is_mask] == ["mask"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (values,) = tosajax.run(graph, *(x[None] for x in (Q, K, V, mask)))
    (expected,) = model.integers(params, Q, K, V, mask)
    assert isinstance(expected, QTensor)
    np.testing.assert_array_equal(np.asarray(values)[0], expected.q)
    with pytest.raises(ValueError, match=r"input 'mask': .* beyond the range"):
        tosajax.run(graph, *(x[None] for x in (Q, K, V, -mask)))


@pytest.mark.slow
def test_deep_graphs():
    """Long chains of sums are walked without recursion."""

    def function(x):
        y = x @ W
        for _ in range(700):
            y = y + 0.001
            y = y - x
        return layer_norm(y)

    graph = tosajax.export(function, X)
    model = quant.prepare(graph)
    assert DType.INT16 in types(model).values()


def test_relevances_of_masked_logits():
    masked, mask = MASKS["input of -1e4"]
    model, params = quantized(attention(masked), Q, K, V, mask)
    kinds = [type(s.relevance) for s in model.plan.scaled.values() if s.relevance is not None]
    assert {kinds.count(kind) for kind in (Logit, LogitTerm)} == {2}
    assert params["qparams"]["mask"].scale * 255 < 40
    assert quant.check_bit_exact(model, params, Q, K, V, mask)
