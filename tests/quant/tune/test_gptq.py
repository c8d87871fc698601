"""gptq: against the elimination of one input after another, and on a network."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_of

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.quant.tune import gptq as gptq_file
from tosajax.quant.tune.gptq import round_in_order

RNG = np.random.default_rng(0)


def nearest(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values / scales), -7, 7) * scales


def eliminated(
    weights: np.ndarray, scales: np.ndarray, moments: np.ndarray, damping: float
) -> np.ndarray:
    """Each weight is rounded, and the best others are found anew by the normal equations."""
    moments = moments + np.eye(len(moments)) * damping * np.diag(moments).mean()
    left, rest = weights.copy(), list(np.argsort(-np.diag(moments), kind="stable"))
    found = np.empty_like(weights)
    while rest:
        first, *rest = rest
        found[first] = nearest(left[first], scales[first])
        if rest:
            error = left[first] - found[first]
            left[rest] += np.linalg.solve(
                moments[np.ix_(rest, rest)], np.outer(moments[rest, first], error)
            )
    return found


@pytest.mark.parametrize(
    ("matrices", "inputs", "outputs"), [(1, 1, 3), (1, 7, 1), (3, 9, 2), (2, 24, 5), (1, 150, 4)]
)
def test_rounding_in_order_is_elimination(matrices, inputs, outputs):
    """More inputs than a block has, and fewer examples than inputs."""
    rng = np.random.default_rng(inputs)
    x = rng.normal(0, 1, (matrices, 100, inputs)) @ rng.normal(0, 1, (matrices, inputs, inputs))
    weights = rng.normal(0, 0.7, (matrices, inputs, outputs))
    scales = rng.uniform(0.3, 0.6, weights.shape)
    moments = x.swapaxes(1, 2) @ x
    found = round_in_order(weights, scales, nearest, moments, 0.01)
    for w, scale, own, result in zip(weights, scales, moments, found, strict=True):
        np.testing.assert_array_equal(result, eliminated(w, scale, own, 0.01))


def test_inputs_that_are_always_0():
    weights = RNG.normal(0, 0.7, (2, 4, 3))
    scales = np.full(weights.shape, 0.5)
    found = round_in_order(weights, scales, nearest, np.zeros((2, 4, 4)), 0.01)
    np.testing.assert_array_equal(found, nearest(weights, scales))


PATTERNS = RNG.normal(0, 1, (4, 6, 6, 3))
IMAGES = (0.5 + np.einsum("np,pijc->nijc", RNG.normal(0, 1, (64, 4)), PATTERNS)).astype(np.float32)
BATCHES = np.split(IMAGES, 4)


def network() -> Graph:
    """A 3x3 convolution with a stride, a depthwise and a dilated one, then two MATMULs."""
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
    w = b.const(rng.normal(0.2, 0.3, (3, 3, 8, 1)), DType.FP32, name="depthwise/w")
    static = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    bias = const("depthwise/b", 8)
    x = b.op("DEPTHWISE_CONV2D", x, w, bias, zero, zero, name="depthwise", **static)
    x = conv(x, "conv2", 8, 8, pad=(2, 2, 2, 2), stride=(1, 1), dilation=(2, 2))
    x = b.op("RESHAPE", x, b.const_shape([1, 9, 8]), name="rows")
    for name in ("first", "second"):
        x = b.op("MATMUL", x, const(f"{name}/w", 1, 8, 8), zero, zero, name=name)
    return b.graph([x])


@functools.cache
def prepared() -> tuple[tq.QModel, dict]:
    weight = tq.QSpec("i8", bits=4, narrow_range=True, per_channel=True)
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
    assert error(found) < 0.5 * error(params)
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


def patches(images: np.ndarray, pad: tuple[int, int], stride: int) -> np.ndarray:
    """What a 3x3 kernel sees at each place: (places, 9, channels)."""
    padded = np.pad(images.astype(np.float64), ((0, 0), pad, pad, (0, 0)))
    last = padded.shape[1] - 2
    parts = [padded[:, i : i + last : stride, j : j + last : stride] for i, j in np.ndindex(3, 3)]
    return np.stack(parts, 3).reshape(-1, 9, images.shape[-1])


def rounded_to_integers(params, name: str) -> np.ndarray:
    return np.asarray(jax.jit(prepared()[0].constants)(params)[name].q)


def test_the_first_layer_is_rounded_for_its_inputs():
    """By hand: patches of the images, all channels together."""
    model, params = prepared()
    found = tq.gptq(model, params, BATCHES, names=["conv1/w"], damping=0.1)
    scale = np.asarray(params["qparams"]["conv1/w"].scale, np.float64).reshape(8)
    x = patches(IMAGES, (0, 1), 2).reshape(-1, 27)
    weights = np.asarray(params["values"]["conv1/w"], np.float64).reshape(8, 27).T
    scales = np.broadcast_to(scale, weights.shape)
    moments = (x.T @ x)[None]
    wanted = round_in_order(weights[None], scales[None], nearest, moments, 0.1)
    wanted = (wanted[0] / scale).T.reshape(8, 3, 3, 3)
    np.testing.assert_array_equal(rounded_to_integers(found, "conv1/w"), np.rint(wanted))


def test_each_channel_of_a_depthwise_convolution_is_rounded_for_its_own_inputs():
    """By hand: patches of the activations in floats."""
    model, params = prepared()
    found = tq.gptq(model, params, BATCHES, names=["depthwise/w"], damping=0.1)
    (x,) = model.with_outputs("conv1/relu").apply(params, IMAGES, mode="float")
    seen = patches(np.asarray(x), (1, 1), 1)
    weights = np.asarray(params["values"]["depthwise/w"], np.float64).reshape(9, 8)
    scale = np.asarray(params["qparams"]["depthwise/w"].scale, np.float64).reshape(8)
    made = rounded_to_integers(found, "depthwise/w").reshape(9, 8)
    for channel, s in enumerate(scale):
        moments = (seen[..., channel].T @ seen[..., channel])[None]
        w = weights[:, channel].reshape(1, 9, 1)
        wanted = round_in_order(w, np.full_like(w, s), nearest, moments, 0.1) / s
        np.testing.assert_array_equal(made[:, channel], np.rint(wanted[0, :, 0]))


def test_weights_with_a_zero_point_that_do_not_all_fit():
    """By hand: what is clipped counts as an error, which the other weights make up for."""
    w = RNG.uniform(0.5, 2, (8, 4)).astype(np.float32)
    x = RNG.normal(0.5, 1, (32, 8)).astype(np.float32)
    weight = tq.QSpec("i8", bits=4, symmetric=False)
    model = tq.prepare(lambda x: x @ w, [tq.rule(".*", weight=weight)], example_args=[x])
    params = tq.calibrate(model, [x])
    (name,) = model.weights
    own = params["qparams"][name]
    zero_point = round(float(own.zero_point))
    small = dataclasses.replace(own, scale=own.scale * 0.8)
    params = {**params, "qparams": {**params["qparams"], name: small}}
    found = tq.gptq(model, params, [x])["corrections"]

    def clipped(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        return (np.clip(np.rint(values / scales) + zero_point, -8, 7) - zero_point) * scales

    values = np.asarray(params["values"][name])
    weights = values.reshape(4, 8).T[None].astype(np.float64)
    scales = np.full(weights.shape, small.scale.item(), np.float64)
    moments = np.einsum("ni,nj->ij", x, x, dtype=np.float64)[None]
    wanted = round_in_order(weights, scales, clipped, moments, 0.01)
    made = np.asarray(values + found[name]).reshape(4, 8).T[None]
    assert np.abs(weights - clipped(weights, scales)).max() > scales.max()  # of one that is clipped
    np.testing.assert_allclose(made, wanted, rtol=1e-5)


def test_products_of_computed_tensors_are_left_alone():
    w = RNG.normal(0, 0.3, (8, 4)).astype(np.float32)
    x = RNG.normal(0.5, 1, (6, 8)).astype(np.float32)

    def of(x: jax.Array) -> jax.Array:
        return (x @ w) @ (x @ w).T

    model = tq.prepare(of, example_args=[x])
    params = tq.calibrate(model, [x])
    assert {*tq.gptq(model, params, [x])["corrections"]} == {*model.weights}


def test_without_such_weights_nothing_changes():
    example = np.array([[-1, 1]], np.float32)
    model = tq.prepare(lambda x: x + x, example_args=[example])
    params = tq.calibrate(model, [example])
    assert tq.gptq(model, params, [example]) is params


def test_programs_of_one_layer_and_one_example_give_the_same(monkeypatch):
    """As for networks whose moments, or images, do not fit into memory together."""
    model, params = prepared()
    together = tq.gptq(model, params, BATCHES[:1])
    monkeypatch.setattr(gptq_file, "_MOST_MOMENTS", 1)
    monkeypatch.setattr(gptq_file, "most_at_once", lambda elements: 1)
    alone = tq.gptq(model, params, BATCHES[:1])
    assert set(alone["corrections"]) == set(together["corrections"])
    for name in model.weights:
        a, b = (rounded_to_integers(each, name) for each in (alone, together))
        assert np.abs(a - b).max() <= 1  # sums in another order
        assert (a != b).mean() < 0.05


def test_the_moments_of_other_parameters_are_of_the_same_program():
    model, params = prepared()
    tq.gptq(model, params, BATCHES)
    values = {n: -x for n, x in params["values"].items()}
    assert compiled_of(lambda: tq.gptq(model, {**params, "values": values}, BATCHES)) == 0


def test_a_weight_of_two_nodes_is_rounded_for_both():
    def of(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        return x @ w, y @ w

    w = RNG.normal(0, 0.3, (8, 4)).astype(np.float32)
    x = RNG.normal(0.5, 1, (2, 32, 8)).astype(np.float32)
    x[1] = x[1] @ RNG.normal(0, 0.5, (8, 8)).astype(np.float32)
    weight = tq.QSpec("i8", bits=4, narrow_range=True)
    model = tq.prepare(of, [tq.rule(".*", weight=weight)], example_args=tuple(x))
    params = tq.calibrate(model, [tuple(x)])
    found = tq.gptq(model, params, [tuple(x)])
    (name,) = found["corrections"]
    own = params["values"][name]  # of a convolution: outputs come first
    made = np.asarray(own + found["corrections"][name]).reshape(4, 8).T[None]
    scales = np.full(made.shape, params["qparams"][name].scale.item(), np.float64)
    moments = np.einsum("xni,xnj->ij", x, x, dtype=np.float64)[None]
    wanted = round_in_order(w[None].astype(np.float64), scales, nearest, moments, 0.01)
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


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
