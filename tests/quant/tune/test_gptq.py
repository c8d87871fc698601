"""gptq: against the elimination of one input after another, and on a network."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.quant.tune.gptq import round_in_order

RNG = np.random.default_rng(0)


def to_halves(row: int, values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(2 * values), -3, 3) / 2


def eliminated(weights: np.ndarray, moments: np.ndarray, damping: float) -> np.ndarray:
    """Each weight is rounded, and the best others are found anew by the normal equations."""
    moments = moments + np.eye(len(moments)) * damping * np.diag(moments).mean()
    left, rest = weights.copy(), list(np.argsort(-np.diag(moments), kind="stable"))
    found = np.empty_like(weights)
    while rest:
        first, *rest = rest
        found[first] = to_halves(first, left[first])
        if rest:
            error = left[first] - found[first]
            left[rest] += np.linalg.solve(
                moments[np.ix_(rest, rest)], np.outer(moments[rest, first], error)
            )
    return found


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 3), (7, 1), (24, 5), (150, 4)])
def test_rounding_in_order_is_elimination(inputs, outputs):
    """More inputs than a block has, and fewer examples than inputs."""
    rng = np.random.default_rng(inputs)
    x = rng.normal(0, 1, (100, inputs)) @ rng.normal(0, 1, (inputs, inputs))
    weights = rng.normal(0, 0.7, (inputs, outputs))
    found = round_in_order(weights, to_halves, x.T @ x, 0.01)
    np.testing.assert_array_equal(found, eliminated(weights, x.T @ x, 0.01))


def test_inputs_that_are_always_0():
    weights = RNG.normal(0, 0.7, (4, 3))
    found = round_in_order(weights, to_halves, np.zeros((4, 4)), 0.01)
    np.testing.assert_array_equal(found, to_halves(0, weights))


PATTERNS = RNG.normal(0, 1, (4, 6, 6, 3))
IMAGES = (0.5 + np.einsum("np,pijc->nijc", RNG.normal(0, 1, (64, 4)), PATTERNS)).astype(np.float32)
BATCHES = np.split(IMAGES, 4)


def network() -> Graph:
    """A 3x3 convolution with a stride and a dilated one, then two MATMULs."""
    rng = np.random.default_rng(1)
    b = Builder()
    zero = b.const([0.0], DType.FP32, name="zero")
    limit = np.finfo(np.float32).max

    def const(name: str, *shape: int):
        return b.const(rng.normal(0, 0.3, shape), DType.FP32, name=name)

    def conv(x, name: str, inputs: int, outputs: int, **static):
        w, bias = const(f"{name}/w", outputs, 3, 3, inputs), const(f"{name}/b", outputs)
        y = b.op("CONV2D", x, w, bias, zero, zero, name=name, acc_type=DType.FP32, **static)
        return b.op("CLAMP", y, min_val=np.float32(0), max_val=limit, name=f"{name}/relu")

    x = b.input("x", DType.FP32, (1, 6, 6, 3))
    x = conv(x, "conv1", 3, 8, pad=(0, 1, 0, 1), stride=(2, 2), dilation=(1, 1))
    x = conv(x, "conv2", 8, 8, pad=(2, 2, 2, 2), stride=(1, 1), dilation=(2, 2))
    x = b.op("RESHAPE", x, b.const_shape([1, 9, 8]), name="rows")
    for name in ("first", "second"):
        x = b.op("MATMUL", x, const(f"{name}/w", 1, 8, 8), zero, zero, name=name)
    return b.graph([x])


@functools.cache
def prepared() -> tuple[tq.QModel, dict]:
    weight = tq.QSpec("i8", bits=3, narrow_range=True, per_channel=True)
    model = tq.prepare(network(), [tq.rule(".*", weight=weight)])
    return model, tq.calibrate(model, BATCHES)


@functools.partial(jax.jit, static_argnums=1)
def outputs(params, mode: tq.Mode) -> jax.Array:
    return prepared()[0].apply(params, IMAGES, mode=mode)[0]


def error(params) -> float:
    return float(jnp.square(outputs(params, "exact") - outputs(params, "float")).mean())


def test_gptq_lowers_the_error_of_the_integers():
    model, params = prepared()
    found = tq.gptq(model, params, BATCHES)
    assert set(found["corrections"]) == set(model.weights)
    assert error(found) < 0.6 * error(params)
    np.testing.assert_array_equal(outputs(params, "float"), outputs(found, "float"))
    for name in model.specs:
        np.testing.assert_array_equal(found["qparams"][name].scale, params["qparams"][name].scale)
    assert tq.check_bit_exact(model, found, IMAGES, against=("frozen",))


@pytest.mark.slow
def test_each_kind_of_layer_helps_by_itself():
    model, params = prepared()
    for name in model.weights:
        found = tq.gptq(model, params, BATCHES, names=[name])
        assert set(found["corrections"]) == {name}
        assert error(found) < error(params)


def test_the_first_layer_is_rounded_for_its_inputs():
    """By hand: patches of the images that the integers stand for."""
    model, params = prepared()
    found = tq.gptq(model, params, BATCHES, names=["conv1/w"], damping=0.1)
    own = params["qparams"]["conv1/w"]
    images = np.asarray(tq.fake_quant(jnp.asarray(IMAGES), params["qparams"]["x"]), np.float64)
    padded = np.pad(images, ((0, 0), (0, 1), (0, 1), (0, 0)))
    patches = np.stack(
        [padded[:, i : i + 6 : 2, j : j + 6 : 2] for i in range(3) for j in range(3)], 3
    )
    x = patches.reshape(-1, 27)
    weights = np.asarray(params["values"]["conv1/w"], np.float64).reshape(8, 27).T
    scale = np.asarray(own.scale, np.float64).reshape(8)

    def nearest(row: int, values: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(values / scale), -3, 3) * scale

    wanted = round_in_order(weights, nearest, x.T @ x, 0.1).T.reshape(8, 3, 3, 3)
    made = jax.jit(model.constants)(found)["conv1/w"].q
    np.testing.assert_array_equal(made, np.rint(wanted / scale.reshape(8, 1, 1, 1)))


def test_wrong_arguments():
    model, params = prepared()
    with pytest.raises(ValueError, match="damping is 0, expected a positive number"):
        tq.gptq(model, params, BATCHES, damping=0)
    with pytest.raises(ValueError, match="names has 'conv1/b', which is not a quantized weight"):
        tq.gptq(model, params, BATCHES, names=["conv1/b"])
    with pytest.raises(TypeError, match="names is 'conv1/w'"):
        tq.gptq(model, params, BATCHES, names="conv1/w")
    with pytest.raises(ValueError, match="no examples"):
        tq.gptq(model, params, [])
