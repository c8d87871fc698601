"""FP8: values by their definition, gradients of LSQ, and files equal to trained models."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from quant.convert.helpers import clamp, constant, floats, legal, producer, times, uniform, zeros

import tosajax
from tosajax import Builder, DType, Graph, UnsupportedError, reference_model
from tosajax.grad import QTensor
from tosajax.grad.estimators import ste
from tosajax.grad.qtensor import payload
from tosajax.quant import (
    QModel,
    QParams,
    QSpec,
    calibrate,
    check_bit_exact,
    entropy,
    equalize,
    fake_quant,
    fit,
    gptq,
    initial_values,
    learned_rounding,
    mean_bits,
    mixed_precision,
    mse,
    percentile,
    prepare,
    quantize,
    reconstruct,
    relative,
    report,
    rule,
    sensitivity,
    with_bits,
)
from tosajax.quant.storages import Float8
from tosajax.spec import NanMode

needs_model = pytest.mark.skipif(
    not reference_model.is_installed(), reason="tosa-tools is not installed"
)
E4M3, E5M2 = DType.FP8E4M3, DType.FP8E5M2
TYPES = [pytest.param(E4M3, id="e4m3"), pytest.param(E5M2, id="e5m2")]
# Bits of the mantissa, the exponent of subnormals, and the largest finite value.
FORMATS = {E4M3: (3, -6, 448.0), E5M2: (2, -14, 57344.0)}
NAMES = {E4M3: "fp8e4m3", E5M2: "fp8e5m2"}


def everywhere(dtype: DType = E4M3, **options: Any) -> Any:
    spec = QSpec(dtype)
    return (rule(".*", weight=dataclasses.replace(spec, **options), act=spec),)


# The oracle, in float64.


def finite_values(dtype: DType) -> np.ndarray:
    """All that are not negative, in order; every second one has an even mantissa."""
    mantissa, smallest, largest = FORMATS[dtype]
    steps = np.arange(1 << mantissa)
    octaves = [np.ldexp(steps, smallest - mantissa)]
    for exponent in range(smallest, smallest + 32):
        octaves.append(np.ldexp(steps + (1 << mantissa), exponent - mantissa))
    values = np.concatenate(octaves)
    return values[values <= largest]


def nearest(values: np.ndarray, dtype: DType) -> np.ndarray:
    """The nearest finite values, ties to an even mantissa; float64, with the sign."""
    known, magnitude = finite_values(dtype), np.abs(values).astype(np.float64)
    above = np.clip(np.searchsorted(known, magnitude), 1, len(known) - 1)
    low, high = known[above - 1], known[above]
    to_low, to_high = magnitude - low, high - magnitude
    is_high = (to_high < to_low) | ((to_high == to_low) & (above % 2 == 0))
    return np.copysign(np.where(is_high, high, low), values)


def stored(values: np.ndarray, scale: np.ndarray, dtype: DType) -> np.ndarray:
    """The FP8 values of a tensor, by float32 products with the reciprocal; float64."""
    reciprocal = np.float32(1) / np.asarray(scale, np.float32)
    return nearest((np.asarray(values, np.float32) * reciprocal).astype(np.float32), dtype)


def boundaries(dtype: DType) -> np.ndarray:
    """Every value, every tie and their neighbours; values beyond; float32, of both signs."""
    known = finite_values(dtype)
    points = np.concatenate([known, (known[1:] + known[:-1]) / 2]).astype(np.float32)
    largest, tiny = np.float32(known[-1]), np.float32(known[1])
    beyond = np.array([1.04 * largest, 1.5 * largest, 3e38, np.inf], np.float32)
    below = np.array([tiny / 2, tiny / 4, 1e-30], np.float32)
    near = [np.nextafter(points, np.float32(end)) for end in (-np.inf, np.inf)]
    every = np.concatenate([points, *near, beyond, below])
    return np.concatenate([every, -every])


def test_the_oracle_is_that_of_ml_dtypes():
    for dtype in FORMATS:
        values = np.clip(boundaries(dtype), -FORMATS[dtype][2], FORMATS[dtype][2])
        found = values.astype(dtype.storage).astype(np.float64)
        np.testing.assert_array_equal(found, nearest(values, dtype))
        assert float(ml_dtypes.finfo(dtype.storage).max) == FORMATS[dtype][2]


# Specifications.


@pytest.mark.parametrize("dtype", TYPES)
def test_names(dtype):
    assert QSpec(NAMES[dtype]) == QSpec(dtype)
    assert QSpec(dtype, per_channel=True).storage == Float8(dtype)
    assert dataclasses.replace(QSpec(dtype), per_channel=True).dtype is dtype
    assert rule(".*", weight=QSpec(dtype, per_channel=True), act=QSpec(dtype)).act == QSpec(dtype)


WRONG = {
    "bits": ({"bits": 4}, "bits 4 of FP8E4M3, expected 8"),
    "zero_point": ({"symmetric": False}, "symmetric False of FP8E4M3, expected True"),
    "narrow": ({"narrow_range": True}, "narrow_range True of FP8E4M3, expected False"),
    "learned": ({"learned_bits": True}, "learned_bits True of FP8E4M3, expected False"),
    "estimator": ({"estimator": ste}, "estimator .*ste.* of FP8E4M3, expected .*clipped_ste"),
    "mse": ({"observer": mse(7)}, "FP8E4M3: an observer that searches"),
    "entropy": ({"observer": entropy()}, "FP8E4M3: an observer that searches"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_is_of_integers_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        QSpec("fp8e4m3", **arguments)


def test_activations_have_one_scale():
    with pytest.raises(ValueError, match="activations of a scale per channel"):
        rule(".*", act=QSpec("fp8e4m3", per_channel=True))


# Values.


def qparams(dtype: DType, scale: Any) -> QParams:
    zero, bits = jnp.float32(0), jnp.float32(8)
    return QParams(jnp.asarray(scale, jnp.float32), zero, bits, dtype=dtype, symmetric=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("scale", [1.0, 2.0**-9, 2.0**7])
def test_rounding(dtype, scale):
    """Nearest, ties to even, saturated; a power of two changes no tie."""
    values = boundaries(dtype)
    expected = nearest(values, dtype)
    with np.errstate(over="ignore"):
        scaled = (values * np.float32(scale)).astype(np.float32)
    for convert in (quantize, jax.jit(quantize)):
        found = convert(jnp.asarray(scaled), qparams(dtype, scale))
        assert found.q.dtype == dtype.storage
        assert found.shadow.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(found.q).astype(np.float64), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_products_are_by_the_reciprocal(dtype):
    """Tenths and thirds, where a quotient rounds to another value, in any program."""
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.1, 10, (64, 1)).astype(np.float32)
    known = np.concatenate([finite_values(dtype), -finite_values(dtype)])
    ties = ((known[1:] + known[:-1]) / 2).astype(np.float32)
    values = (ties * scales).astype(np.float32)
    expected = stored(values, scales, dtype)
    params = qparams(dtype, scales)
    for convert in (fake_quant, jax.jit(fake_quant)):
        found = np.asarray(convert(jnp.asarray(values), params))
        np.testing.assert_array_equal(found, (expected * scales).astype(np.float32))
    quotients = nearest(values / scales, dtype)
    assert (quotients != expected).any()


def test_a_compiler_joins_nothing_to_it():
    """Neither the quotient that computes the scale, nor a product with a constant."""
    rng = np.random.default_rng(1)
    values = rng.uniform(-400, 400, 10_000).astype(np.float32)
    largest, limits = rng.uniform(300, 500, (2, 10_000)).astype(np.float32)

    def convert(x: Any, largest: Any, limits: Any) -> Any:
        return quantize(x * 0.3, qparams(E4M3, largest / limits)).shadow

    expected = (values * np.float32(0.3)) * (np.float32(1) / (largest / limits))
    np.testing.assert_array_equal(jax.jit(convert)(values, largest, limits), expected)
    for number in range(4):
        scale = jnp.asarray(largest[number]), jnp.asarray(limits[number])
        closed = jax.jit(functools.partial(convert, largest=scale[0], limits=scale[1]))
        by_scale = np.float32(1) / (largest[number] / limits[number])
        np.testing.assert_array_equal(closed(values), values * np.float32(0.3) * by_scale)


@pytest.mark.parametrize("dtype", TYPES)
def test_nan_stays_nan(dtype):
    found = fake_quant(jnp.array([jnp.nan, 1.0]), qparams(dtype, 1.0))
    np.testing.assert_array_equal(found, np.array([np.nan, 1.0], np.float32))


def test_it_has_no_integers():
    with pytest.raises(ValueError, match="FP8E4M3 has no bits and no integers"):
        _ = qparams(E4M3, 1.0).grid


# A network of all operators that multiply, and of some others.

SHAPES = (1, 6, 6, 4), (1, 3, 5)


def network() -> Graph:
    """CONV2D, ReLU, DEPTHWISE_CONV2D, MATMUL by a constant, an offset, MATMUL by an input."""
    b = Builder()
    x, y = (floats(b, name, *shape) for name, shape in zip("xy", SHAPES, strict=True))
    same: Any = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    x = b.op(
        "CONV2D",
        x,
        constant(b, uniform(1, 8, 3, 3, 4) * channel_sizes(8), "conv/weight"),
        constant(b, np.linspace(-1, 1, 8), "conv/bias"),
        *zeros(b),
        name="conv",
        location="model/body",
        **same,
    )
    x = clamp(b, x, 0, np.inf, "relu")
    x = b.op(
        "DEPTHWISE_CONV2D",
        x,
        constant(b, uniform(2, 3, 3, 8, 2), "depthwise/weight"),
        constant(b, [0.5], "depthwise/bias"),
        *zeros(b),
        name="depthwise",
        **same,
    )
    x = b.op("RESHAPE", x, b.const_shape((1, 36, 16)), name="rows")
    weight = constant(b, uniform(3, 1, 16, 3), "head/weight")
    x = b.op("MATMUL", x, weight, *zeros(b), name="head")
    x = b.op("ADD", x, constant(b, [[[1, -2, 3]]], "offset"), name="moved")
    x = times(b, x, constant(b, [[[0.125]]], "eighth"), "small")
    return legal(b.graph([b.op("MATMUL", x, y, *zeros(b), name="pairs"), x]))


def channel_sizes(count: int) -> np.ndarray:
    return np.exp2(np.arange(count, dtype=np.float32)).reshape(-1, 1, 1, 1) / 16


OPERANDS = {
    "conv": ("x", "conv/weight"),
    "depthwise": ("relu", "depthwise/weight"),
    "head": ("rows", "head/weight"),
    "pairs": ("small", "y"),
}
WEIGHTS = ("conv/weight", "depthwise/weight", "head/weight")
RULES = (
    *everywhere(E5M2),
    rule("^conv", weight=QSpec(E4M3, per_channel=True)),
    rule("^depthwise", weight=QSpec(E5M2, per_channel=True)),
    rule("^head", weight=QSpec(E4M3)),
    rule("relu|small", act=QSpec(E4M3)),
)
EXAMPLES = tuple(uniform(number, 4, *shape) for number, shape in enumerate(SHAPES))


class Case(NamedTuple):
    """A model, its parameters and its file, and compiled programs of both."""

    model: QModel
    params: Any
    frozen: Graph
    apply: Callable[..., Any]
    tensors: Callable[..., dict[str, np.ndarray]]  # of the file, as `tosajax.lower` runs it


@pytest.fixture(scope="module")
def case() -> Case:
    # Fixtures of modules are made before those of functions, which set this.
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        model = prepare(network(), RULES)
        params = calibrate(model, [EXAMPLES])
        frozen = model.freeze(params)
        program = compiled(frozen, computed(frozen))
        return Case(model, params, frozen, jax.jit(model.apply), program)


def computed(graph: Graph) -> list[str]:
    nodes = [node for node in graph.ordered_nodes() if not node.op.startswith("CONST")]
    return [name for node in nodes for name in node.outputs]


def compiled(graph: Graph, names: Sequence[str]) -> Callable[..., dict[str, np.ndarray]]:
    """A function of a graph's inputs that gives tensors by name."""
    fn, params = tosajax.lower(dataclasses.replace(graph, outputs=tuple(names)))
    program = jax.jit(fn)
    return lambda *x: dict(zip(names, map(np.asarray, program(params, *x)), strict=True))


def example(number: int) -> tuple[np.ndarray, ...]:
    """One that reaches beyond the ranges of calibration, with zeros."""
    inputs = tuple(1.5 * x[number] for x in EXAMPLES)
    for x in inputs:
        x.reshape(-1)[2] = 0
    return inputs


def test_the_graph(case):
    """Operands are FP8 and back; all else is FP32 as before."""
    graph = case.frozen
    assert tosajax.validate(graph).findings == ()
    for output, operands in OPERANDS.items():
        (node,) = (n for n in graph.nodes if output in n.outputs)
        assert node.inputs[:2] == tuple(f"{name}/rounded" for name in operands)
        for name in operands:
            dtype = case.model.specs[name].dtype
            assert producer(graph, f"{name}/rounded") == "MUL"
            assert producer(graph, f"{name}/wide") == "CAST"
            if name in WEIGHTS:
                assert (graph.tensors[name].dtype, producer(graph, name)) == (dtype, "CONST")
            else:
                assert graph.tensors[f"{name}/float8"].dtype is dtype
                assert producer(graph, f"{name}/float8") == "CAST"
                assert producer(graph, f"{name}/clamped") == "CLAMP"
    for name in (*case.model.float_graph.outputs, *case.model.float_graph.inputs, "moved"):
        assert graph.tensors[name].dtype is DType.FP32
    assert (graph.inputs, graph.outputs) == (network().inputs, network().outputs)
    assert list(case.model.weights) == list(WEIGHTS)
    assert set(case.model.activations) == {"x", "y", "relu", "rows", "small"}


def test_what_is_trained(case):
    """Weights, biases and offsets; a number like an eighth is part of the function."""
    wanted = {*WEIGHTS, "conv/bias", "depthwise/bias", "offset"}
    assert set(case.params["values"]) == set(initial_values(case.model)) == wanted


def test_scales(case):
    """The range over the largest finite value, of weights by output channel."""
    shapes: dict[str, tuple[int, ...]] = {
        "conv/weight": (8, 1, 1, 1),
        "depthwise/weight": (1, 1, 8, 2),
        "head/weight": (1, 1, 1),
    }
    for name, shape in shapes.items():
        values = case.model.float_graph.tensors[name].values
        assert values is not None
        axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
        found = case.params["qparams"][name]
        assert found.dtype is (E5M2 if name == "depthwise/weight" else E4M3)
        expected = np.abs(values).max(axes, keepdims=True) / FORMATS[found.dtype][2]
        assert found.scale.shape == shape
        np.testing.assert_allclose(found.scale, expected * (1 + 2.0**-12), rtol=1e-6)
    found = case.params["qparams"]["x"]
    assert (found.dtype, found.scale.shape) == (E5M2, ())
    np.testing.assert_allclose(found.scale, 3 / 57344 * (1 + 2.0**-12), rtol=1e-6)


def test_observers():
    act = QSpec(E4M3, observer=percentile(75))
    model = prepare(one_product(), [rule(".*", weight=QSpec(E4M3), act=act)])
    values = np.linspace(-1, 1, 4 * 2 * 5, dtype=np.float32).reshape(4, 1, 2, 5)
    found = float(calibrate(model, [values])["qparams"]["x"].scale)
    assert found * 448 == pytest.approx(0.75, abs=0.06)


def test_operands_by_the_oracle(case):
    """Weights in the file, and activations as the frozen graph computes them."""
    values = case.tensors(*example(0))
    values |= dict(zip(case.frozen.inputs, example(0), strict=True))
    for name in (n for pair in OPERANDS.values() for n in pair):
        qparams = case.params["qparams"][name]
        scale, in_file = np.asarray(qparams.scale), case.frozen.tensors.get(f"{name}/float8")
        real = case.params["values"][name] if name in WEIGHTS else values[name]
        expected = stored(np.asarray(real), scale, qparams.dtype)
        found = case.frozen.tensors[name].values if in_file is None else values[in_file.name]
        assert found is not None
        np.testing.assert_array_equal(found.astype(np.float64), expected)
        rounded = (expected.astype(np.float32) * scale).astype(np.float32)
        np.testing.assert_array_equal(values[f"{name}/rounded"], rounded)
    assert (np.abs(values["x/float8"].astype(np.float64)) == FORMATS[dtype_of(case, "x")][2]).any()


def dtype_of(case: Case, name: str) -> DType:
    return case.params["qparams"][name].dtype


def test_products_by_the_oracle(case):
    """Each in float64, of the operands that it has; float32 sums of them."""
    values = case.tensors(*example(1))

    def real(name: str) -> np.ndarray:
        return values[f"{name}/rounded"].astype(np.float64)

    bias = {n: np.asarray(v, np.float64) for n, v in case.params["values"].items()}
    windows: Any = np.lib.stride_tricks.sliding_window_view
    for output, (left, right) in OPERANDS.items():
        x, w = real(left), real(right)
        if output in ("conv", "depthwise"):
            padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            patches = windows(padded, (3, 3), (1, 2))
            subscripts = "nhwckl,oklc->nhwo" if output == "conv" else "nhwckl,klcm->nhwcm"
            expected = np.einsum(subscripts, patches, w).reshape(1, 6, 6, -1)
            size = np.einsum(subscripts, np.abs(patches), np.abs(w)).reshape(expected.shape)
            expected = expected + bias[f"{output}/bias"]
        else:
            expected, size = x @ w, np.abs(x) @ np.abs(w)
        error = np.abs(values[output] - expected)
        assert (error <= 40 * 2.0**-24 * (size + 1)).all(), output
    moved = values["head"] + np.array([1, -2, 3], np.float32)
    np.testing.assert_array_equal(values["moved"], moved)
    np.testing.assert_array_equal(values["small"], values["moved"] / 8)


def test_what_is_trained_is_what_ships(case):
    """Every tensor, to the last bit, where one program computes both in the same way."""
    names = computed(case.frozen)
    frozen = case.tensors(*example(2))
    watched = case.model.with_outputs(*names)
    trained = jax.jit(watched.integers)(case.params, *example(2))
    for name, value in zip(names, trained, strict=True):
        assert isinstance(value, QTensor) == name.endswith("/float8")
        np.testing.assert_array_equal(np.asarray(payload(value)), frozen[name], err_msg=name)
        if name.endswith("/float8"):  # as an output it is the real values that it stands for
            real = case.model.real(case.params, name, value)
            np.testing.assert_array_equal(real, frozen[name.replace("float8", "rounded")])


def test_saved_and_loaded(case, tmp_path: Path):
    path = tmp_path / "graph.tosa"
    tosajax.save(case.frozen, path)
    loaded = tosajax.load(path)
    for name in WEIGHTS:
        values = loaded.tensors[name].values
        assert values is not None
        assert values.dtype == dtype_of(case, name).storage
    tensors = case.tensors(*example(0))
    wanted = {name: tensors[name] for name in case.frozen.outputs}
    for y, name in zip(tosajax.compile(loaded)(*example(0)), wanted, strict=True):
        np.testing.assert_array_equal(y, wanted[name])
    for y, name in zip(case.apply(case.params, *example(0)), wanted, strict=True):
        np.testing.assert_array_equal(y, wanted[name])


@needs_model
def test_the_reference_model(case):
    """It finds the graph legal; its sums, and tensors rounded from them, are near ours."""
    names = computed(case.frozen)
    theirs = reference_model.run(case.frozen, *example(3), tensors=names)
    ours = case.tensors(*example(3))
    for name in ("x/float8", "y/float8", "conv/weight/rounded"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    np.testing.assert_allclose(ours["conv"], theirs["conv"], rtol=1e-5, atol=1e-4)
    # A sum at a tie may go either way: by one step.
    mantissa, _, _ = FORMATS[dtype_of(case, "relu")]
    found, wanted = (x["relu/rounded"].astype(np.float64) for x in (ours, theirs))
    assert np.mean(found != wanted) < 0.01
    assert (np.abs(found - wanted) <= 2.0**-mantissa * np.abs(wanted)).all()
    for name in case.frozen.outputs:
        size = np.abs(theirs[name]).max()
        np.testing.assert_allclose(ours[name], theirs[name], atol=0.02 * size)


def test_batches(case):
    """A batch equals its examples one by one, but for the last bits of sums."""
    together = case.apply(case.params, *EXAMPLES)
    for number in range(4):
        alone = case.apply(case.params, *(x[number] for x in EXAMPLES))
        for y, many in zip(alone, together, strict=True):
            np.testing.assert_allclose(many[number], y, rtol=1e-5, atol=1e-5 * np.abs(y).max())


# Gradients.


X = uniform(6, 4, 1, 2, 5)


def one_product() -> Graph:
    b = Builder()
    weight = constant(b, uniform(5, 1, 5, 3, low=-2, high=2), "weight")
    return legal(b.graph([b.op("MATMUL", floats(b, "x", 1, 2, 5), weight, *zeros(b), name="y")]))


@pytest.fixture(scope="module")
def product() -> tuple[QModel, Any]:
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        model = prepare(one_product(), everywhere())
        return model, calibrate(model, [X])


def test_what_inputs_are_computed_by_stays_apart(product):
    """Otherwise a compiler joins the product that computes an input to that by the reciprocal."""
    model, params = product
    (expected,) = jax.jit(model.apply)(params, X * np.float32(0.3))
    found, rounded = (
        jax.jit(lambda p, x, m=m: m.apply(p, x * 0.3)[0])(params, X)
        for m in (model, model.with_outputs("x/scaled"))
    )
    np.testing.assert_array_equal(found, expected)
    reciprocal = np.float32(1) / np.asarray(params["qparams"]["x"].scale)
    np.testing.assert_array_equal(rounded, X * np.float32(0.3) * reciprocal)


def test_nan_reaches_the_outputs(product):
    x = X[0].copy()
    x[0, 1, 2] = np.nan
    (y,) = jax.jit(product[0].apply)(product[1], x)
    np.testing.assert_array_equal(np.isnan(y), [[[False] * 3, [True] * 3]])


def test_modes(product):
    """fake_quant equals exact."""
    model, params = product
    by_mode = jax.jit(model.apply, static_argnames="mode")
    exact, rounded, plain = (
        by_mode(params, X, mode=mode)[0] for mode in ("exact", "fake_quant", "float")
    )
    np.testing.assert_array_equal(exact, rounded)
    np.testing.assert_allclose(plain, X @ uniform(5, 1, 5, 3, low=-2, high=2), rtol=1e-4, atol=1e-4)
    assert 0 < np.abs(exact - plain).max() < 1


def lsq(values: np.ndarray, scale: np.ndarray, dtype: DType, gradient: np.ndarray) -> Any:
    """The gradients by values and scales, given that by rounded values; float64."""
    scaled, largest = values / scale, FORMATS[dtype][2]
    inside = np.abs(scaled) <= largest
    by_scale = np.where(inside, nearest(scaled, dtype) - scaled, np.sign(scaled) * largest)
    axes = tuple(axis for axis, size in enumerate(scale.shape) if size == 1)
    return inside * gradient, (by_scale * gradient).sum(axes, keepdims=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("per_channel", [False, True])
def test_gradients_are_those_of_lsq(dtype, per_channel):
    """Operands inside their range and beyond it, and the scales of both."""
    model = prepare(one_product(), everywhere(dtype, per_channel=per_channel))
    x = uniform(6, 2, 1, 2, 5)
    params = calibrate(model, [x / 2, x[:, :, ::-1] / 3])
    # Some of the weights saturate.
    narrow = {
        name: dataclasses.replace(q, scale=q.scale * 0.7) for name, q in params["qparams"].items()
    }
    params = {**params, "qparams": narrow}
    factors = uniform(7, 2, 1, 2, 3)

    def loss(params: Any, x: Any) -> jax.Array:
        return (model.apply(params, x)[0] * factors).sum()

    by_params, by_x = jax.jit(jax.grad(loss, argnums=(0, 1)))(params, x)
    scales = {n: np.asarray(q.scale, np.float64) for n, q in params["qparams"].items()}
    values = {"x": x.astype(np.float64), "weight": np.asarray(params["values"]["weight"])}
    scales["x"] = scales["x"].reshape(1, 1, 1, 1)
    rounded = {n: nearest(values[n] / scales[n], dtype) * scales[n] for n in values}
    of_x = factors @ rounded["weight"].swapaxes(-1, -2)
    of_weight = (rounded["x"].swapaxes(-1, -2) @ factors).sum(0)
    saturated = {n: np.abs(values[n] / scales[n]) > FORMATS[dtype][2] for n in values}
    assert all(s.any() and not s.all() for s in saturated.values())
    wanted_x, wanted_x_scale = lsq(values["x"], scales["x"], dtype, of_x)
    wanted_weight, wanted_weight_scale = lsq(values["weight"], scales["weight"], dtype, of_weight)
    found = by_params["qparams"]
    assert by_x.dtype == by_params["values"]["weight"].dtype == np.float32
    np.testing.assert_allclose(by_x, wanted_x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_params["values"]["weight"], wanted_weight, rtol=1e-5, atol=1e-5)
    size = FORMATS[dtype][2]
    np.testing.assert_allclose(
        found["x"].scale, wanted_x_scale.reshape(()), rtol=1e-4, atol=1e-5 * size
    )
    np.testing.assert_allclose(
        found["weight"].scale, wanted_weight_scale, rtol=1e-4, atol=1e-5 * size
    )
    assert not found["x"].zero_point.any()
    assert not found["x"].bits.any()


def test_gradients_of_the_largest_value():
    """The range includes its ends, which have a gradient."""
    params = qparams(E4M3, 2.0)
    ends = np.array([896, np.nextafter(np.float32(896), np.float32(1e9)), -896], np.float32)
    gradient = jax.jit(jax.grad(lambda x: fake_quant(x, params).sum()))(ends)
    np.testing.assert_array_equal(gradient, [1, 0, 1])


def test_gradients_of_the_network(case):
    """All parameters have one, in float32."""

    @jax.jit
    def gradients(params: Any, *inputs: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            first, second = case.model.apply(params, *inputs)
            return jnp.square(first).mean() + jnp.square(second).mean()

        return jax.grad(loss)(params)

    found = gradients(case.params, *example(0))
    for name, gradient in found["values"].items():
        assert gradient.dtype == np.float32
        assert np.isfinite(gradient).all()
        assert np.asarray(gradient).any(), name
    for name, gradient in found["qparams"].items():
        assert np.isfinite(gradient.scale).all()
        assert np.asarray(gradient.scale).all(), name


def test_all_ways_to_differentiate(product):
    """Forward and reverse, a sweep, and a scan, in which every tangent is an array."""
    model, params = product

    def loss(weight: Any, x: Any) -> jax.Array:
        (y,) = model.apply({**params, "values": {"weight": weight}}, x)
        return jnp.square(y).sum()

    def scanned(weight: Any) -> jax.Array:
        def step(sum: jax.Array, x: Any) -> Any:
            return sum + loss(weight, x), None

        return jax.lax.scan(step, jnp.float32(0), X)[0]

    weight = params["values"]["weight"]
    one = jax.jit(jax.grad(loss))
    expected = sum(np.asarray(one(weight, x), np.float64) for x in X)
    for way in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(way(scanned))(weight), expected, rtol=1e-4)
    swept = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(weight, X)
    np.testing.assert_allclose(swept.sum(0), expected, rtol=1e-4)


def test_training(product):
    """Scales and weights together reach the loss of floats, but for rounding."""
    model, params = product
    x = X
    wanted = x @ uniform(9, 5, 3)

    def loss(outputs: Any, wanted: jax.Array) -> jax.Array:
        return jnp.square(outputs[0] - wanted).mean()

    optimizer = relative(optax.sign_sgd(optax.exponential_decay(0.1, 150, 0.01)))
    found = fit(model, params, [(x, wanted)], loss, steps=150, optimizer=optimizer, every=1)
    params = found.params
    assert found.history[-1].loss < 0.1 < 1 < found.history[0].loss
    fn, constants = tosajax.lower(model.freeze(params))
    for y, z in zip(jax.jit(model.apply)(params, x[0]), fn(constants, x[0]), strict=True):
        np.testing.assert_array_equal(y, z)


# Rules.


def dtypes(*rules: Any) -> dict[str, Any]:
    return {name: spec.dtype for name, spec in prepare(network(), rules).specs.items()}


def test_rules_choose_the_type_of_each_operand():
    found = dtypes(*everywhere(E4M3), rule("^relu$", act=QSpec(E5M2)))
    assert {name for name, dtype in found.items() if dtype is E5M2} == {"relu"}
    # The weights of a node by its location.
    found = dtypes(*everywhere(E4M3), rule("model/body", weight=QSpec(E5M2)))
    assert {name for name, dtype in found.items() if dtype is E5M2} == {"conv/weight"}


MIXES = {
    "weights alone": ((rule(".*", weight=QSpec(E4M3)),), "'(x|relu|rows|small|y)': INT8"),
    "activations alone": ((rule(".*", act=QSpec(E4M3)),), "'.*/weight': INT8, while '.*' is FP8"),
    "a layer of integers": (
        (*everywhere(), rule("^head$", weight=QSpec("i8"))),
        "'head/weight': INT8, while",
    ),
    "an operand of integers": ((*everywhere(), rule("^y$", act=QSpec("i16"))), "'y': INT16"),
    "one that nothing multiplies": (
        (rule("^moved$", act=QSpec(E5M2)),),
        "'moved': FP8E5M2, which is for operands",
    ),
}


@pytest.mark.parametrize(("rules", "message"), MIXES.values(), ids=MIXES)
def test_a_mix_with_integers_is_refused(rules, message):
    with pytest.raises(UnsupportedError, match=message):
        prepare(network(), rules)


def test_integers_are_of_no_matter_to_what_is_not_multiplied():
    """It is FP32, whatever rules give it."""
    rules = (*everywhere(), rule("^(moved|conv)$", act=QSpec("i8")))
    assert prepare(network(), rules).graph == prepare(network(), everywhere()).graph


def test_estimators_are_of_integers():
    with pytest.raises(ValueError, match="estimators are of integers"):
        prepare(network(), everywhere(), estimator=ste)
    with pytest.raises(ValueError, match="estimators are of integers"):
        prepare(network(), everywhere(), overrides={"RESCALE": ste})


# Tensors that are read in several ways.


def shared(transposed: str = "") -> Graph:
    """A constant that two products and a sum read, and an activation that both products do.

    Args:
      transposed: the product in which the constant is the first operand.
    """
    b = Builder()
    x = floats(b, "x", 1, 3, 3)
    weight = constant(b, uniform(11, 1, 3, 3), "x/float8")  # a name that x would have
    left, right = (
        b.op("MATMUL", *((weight, x) if name == transposed else (x, weight)), *zeros(b), name=name)
        for name in ("left", "right")
    )
    return legal(b.graph([b.op("ADD", left, weight, name="sum"), right]))


@pytest.mark.parametrize("transposed", ["", "left", "right"])
def test_constants_that_are_read_as_floats_too(transposed):
    model = prepare(shared(transposed), everywhere(per_channel=True))
    assert model.weights == ("x/float8",)
    params = calibrate(model, [uniform(12, 4, 1, 3, 3)])
    # Columns have scales where all products are by columns.
    shape = (1, 1, 1) if transposed else (1, 1, 3)
    assert params["qparams"]["x/float8"].scale.shape == shape
    frozen = model.freeze(params)
    casts = [node for node in frozen.nodes if node.op == "CAST"]
    assert len(casts) == 3  # x to FP8 and back, the constant back
    weight = frozen.tensors["x/float8"]
    assert weight.dtype is DType.FP32
    assert weight.values is not None
    np.testing.assert_array_equal(weight.values, uniform(11, 1, 3, 3))


def test_constants_that_are_read_as_floats_have_both_gradients():
    model = prepare(shared(), everywhere())
    params = calibrate(model, [uniform(12, 4, 1, 3, 3)])
    x = uniform(13, 1, 3, 3)
    total = compiled(model.freeze(params), ["sum"])(x)["sum"]
    for mode in ("exact", "fake_quant"):
        found = jax.jit(functools.partial(model.apply, mode=mode))(params, x)
        np.testing.assert_array_equal(found[0], total)
    gradients = jax.jit(jax.grad(lambda p: model.apply(p, x)[0].sum()))(params)
    rounded = np.asarray(fake_quant(jnp.asarray(x), params["qparams"]["x"]), np.float64)
    expected = 1 + np.broadcast_to(rounded.sum(1)[:, :, None], (1, 3, 3))
    np.testing.assert_allclose(gradients["values"]["x/float8"], expected, rtol=1e-5)


def test_one_tensor_of_both_types_is_refused():
    rules = (*everywhere(), rule("^left$", weight=QSpec(E5M2)))
    with pytest.raises(UnsupportedError, match="'x/float8': FP8E5M2 and FP8E4M3 for one tensor"):
        prepare(shared(), rules)


def test_integers_and_booleans_beside():
    """Indices, comparisons and conversions keep their types."""
    b = Builder()
    x, indices = floats(b, "x", 1, 4, 3), b.input("indices", DType.INT32, (1, 2))
    picked = b.op("GATHER", x, indices, name="picked")
    weight = constant(b, uniform(14, 1, 3, 3), "weight")
    y = b.op("MATMUL", picked, weight, *zeros(b), name="y")
    best = b.op("ARGMAX", y, axis=2, nan_mode=NanMode.PROPAGATE, name="best")
    counted = b.op("CAST", indices, dtype=DType.FP32, name="counted")
    is_large = b.op("GREATER", y, constant(b, [[[0.5]]]), name="is_large")
    model = prepare(legal(b.graph([counted, is_large, best])), everywhere())
    x, indices = uniform(15, 5, 1, 4, 3), np.array([[[0, 3]], [[1, 1]]] * 3, np.int32)[:5]
    params = calibrate(model, [(x, indices)])
    found = jax.jit(model.apply)(params, x, indices)
    program = compiled(model.freeze(params), ["counted", "is_large", "best"])
    wanted = [program(*each) for each in zip(x, indices, strict=True)]
    for y, name in zip(found, wanted[0], strict=True):
        np.testing.assert_array_equal(payload(y), np.stack([each[name] for each in wanted]))
    found = check_bit_exact(model, params, x, indices, against=("frozen",))
    # Sums are floats, of which the batch is another program than one example.
    assert {c.tensor for c in found.comparisons if c.mismatches} <= {"y"}
    assert max(c.largest for c in found.comparisons) < 1e-5


# Freezing, reports, bits.


@pytest.mark.parametrize("name", ["x", "weight"])
@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, 2.0**-127, 2.0**127])
def test_scales_that_no_product_has(product, name, scale):
    model, params = product
    known = params["qparams"][name]
    changed = dataclasses.replace(known, scale=jnp.full_like(known.scale, scale))
    message = rf"'{name}': a scale cannot be expressed|scale.* of '{name}' is {scale}, expected"
    with pytest.raises(ValueError, match=message):
        model.freeze({**params, "qparams": {**params["qparams"], name: changed}})


def test_the_report(case):
    found = report(case.model, case.params, *EXAMPLES)
    assert {row.tensor for row in found.rows} == set(case.model.activations)
    (row,) = (row for row in found.rows if row.tensor == "x")
    scale = np.asarray(case.params["qparams"]["x"].scale)
    values = stored(EXAMPLES[0], scale, E5M2)
    noise = values * scale.astype(np.float64) - EXAMPLES[0]
    expected = 10 * np.log10(
        np.square(EXAMPLES[0], dtype=np.float64).sum() / np.square(noise).sum()
    )
    assert row.sqnr == pytest.approx(expected, abs=1e-3)
    assert row.local_sqnr == pytest.approx(expected, abs=1e-3)
    assert (row.dtype, row.bits, row.saturated, row.acc_bits) == ("FP8E5M2", 8, 0, None)
    assert row.levels == len(np.unique(values))
    assert row.of_levels == 2 * len(finite_values(E5M2)) - 1
    assert row.mean_shift == pytest.approx(noise.mean() / scale, rel=1e-3)
    (small,) = (row for row in found.rows if row.tensor == "small")
    assert small.local_sqnr > small.sqnr + 1  # which has the noise of all before it
    assert "FP8E5M2" in str(found)
    assert f"worst: {found.worst.op} '{found.worst.tensor}'" in str(found)


def test_the_report_counts_what_saturates(product):
    """Values that would round beyond the largest finite value."""
    model, params = product
    x = np.array([448, 463, 465, -465, 0, 1, 2, 3, 4, 5], np.float32).reshape(1, 2, 5)
    known = {**params["qparams"], "x": qparams(E4M3, 1.0)}
    found = report(model, {**params, "qparams": known}, x)
    (row,) = found.rows
    assert (row.saturated, row.zeros, row.of_levels) == (0.2, 0.1, 253)
    assert found.worst is row
    assert "worst: input 'x'" in str(found)


def test_equalize(case):
    """Scales of channels go from one layer into the next, and the floats stay the same."""
    values = equalize(case.model)
    assert not np.allclose(values["conv/weight"], case.params["values"]["conv/weight"])
    params = calibrate(case.model, [EXAMPLES], values=values)
    floats = jax.jit(functools.partial(case.model.apply, mode="float"))
    wanted, moved = (floats(p, *EXAMPLES) for p in (case.params, params))
    for w, y, exact in zip(wanted, moved, case.apply(params, *EXAMPLES), strict=True):
        np.testing.assert_allclose(y, w, atol=1e-5 * np.abs(w).max())
        np.testing.assert_allclose(exact, w, atol=0.2 * np.abs(w).max())


def test_bits_are_of_integers(product):
    model, params = product
    for name in ("weight", "x"):
        with pytest.raises(ValueError, match="has no bits"):
            with_bits(model, params, {name: 4})
    for metric in ("loss", "hessian"):
        with pytest.raises(ValueError, match="has no bits"):
            sensitivity(model, params, X, metric=metric)
    assert mean_bits(model, params) == 8


def test_learned_rounding_is_of_integers(product):
    with pytest.raises(ValueError, match="has no bits and no integers to choose from"):
        learned_rounding(product[0], product[1], [X], steps=1)


@pytest.mark.parametrize("function", [gptq, reconstruct])
def test_blocks_are_of_integers(product, function):
    with pytest.raises(ValueError, match="is for integers, and this model is of FP8"):
        function(product[0], product[1], [X])


def test_mixed_precision_is_of_integers(product):
    with pytest.raises(ValueError, match="a model that is not of integers"):
        mixed_precision(product[0], product[1], X, budget=1e9)


# check_bit_exact.


@pytest.mark.parametrize(
    "program",
    ["frozen", pytest.param("reference_model", marks=needs_model)],
)
def test_mismatches_of_floats_are_counted(product, program):
    """Floats compare by value, and NaN equals NaN."""
    (model, params), x = product, X[:3].copy()
    frozen = model.freeze(params)
    weight = frozen.tensors["weight"].values
    assert weight is not None
    other = weight.copy()
    other[0, 0, 1] = weight[0, 0, 1].astype(np.float32) / 2
    tensor = dataclasses.replace(frozen.tensors["weight"], values=other)
    changed = dataclasses.replace(frozen, tensors={**frozen.tensors, "weight": tensor})
    with mock.patch("tosajax.quant.bit_exact.freeze", return_value=changed):
        found = check_bit_exact(model, params, x, against=(program,))
    counted = {c.tensor: c for c in found.comparisons}
    assert counted["x/float8"].mismatches == counted["x/rounded"].mismatches == 0
    half = abs(float(other[0, 0, 1]))
    assert counted["weight/wide"].mismatches == 3
    assert counted["weight/wide"].largest == half
    assert counted["weight/wide"].first == (0, 0, 0, 1)
    assert counted["y"].mismatches >= 6
    assert not found
    x[0, 0, 0, 0] = np.nan
    found = check_bit_exact(model, params, x, against=("frozen",), allow_nan=True)
    *rest, y = found.comparisons
    assert not any(c.mismatches for c in rest)
    # Three examples at once may be added up in another order than each alone: sums of 5 products
    # and a product by the scale, of values that FP8 made larger by 1/16 at most.
    magnitude = 5 * np.nanmax(abs(x)) * abs(params["values"]["weight"]).max() * (17 / 16) ** 2
    assert y.tensor == "y"
    assert y.largest <= 2 * (5 + 1) * 2**-24 * magnitude
