"""Layers as CUSTOM operators have the bits of the layers, after a graph is saved and loaded."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType
from tosajax.hifi import custom
from tosajax.hifi.kernels import activations
from tosajax.hifi.layers import (
    CNNWeights,
    GRUConfig,
    GRUState,
    GRUWeights,
    LSTMConfig,
    LSTMState,
    LSTMWeights,
    Precision,
    cnn_apply,
    conv1d_std_config,
    conv2d_ds_config,
    conv2d_std_config,
    gru_scan,
    lstm_scan,
)

IN, OUT, STEPS, BATCH = 4, 8, 3, 2


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def integers(rng, dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def matrices(rng, dtype, gates):
    """Matrices of the input and of the state, in turn."""
    return [integers(rng, dtype, OUT, columns) for _ in range(gates) for columns in (IN, OUT)]


def compiled(b, outputs, path, **more):
    graph = b.graph(outputs)
    assert tosajax.validate(graph).findings == ()
    tosajax.save(graph, path / "layer.tosa")
    loaded = tosajax.load(path / "layer.tosa")
    return tosajax.compile(loaded, custom_ops=custom.OPERATORS, **more)


@pytest.mark.parametrize(
    ("precision", "update", "activation"),
    [
        (Precision.P16bx16b, "library", "fixed"),
        (Precision.P8bx16b, "guide", "ideal"),
        (Precision.P8bx16b, "library", activations.FIXED._replace(sigmoid_scale=774541000)),
    ],
)
def test_gru(precision, update, activation, rng, tmp_path):
    dtype = np.int16 if precision == Precision.P16bx16b else np.int8
    config = GRUConfig(in_feats=IN, out_feats=OUT, precision=precision, coeff_Qformat=9)
    biases = [integers(rng, np.int16, OUT) for _ in range(3)]
    weights = GRUWeights(*matrices(rng, dtype, 3), *biases)
    b = Builder()
    h = b.input("h", DType.INT16, (BATCH, OUT))
    x = b.input("x", DType.INT16, (BATCH, STEPS, IN))
    how = {"update": update, "activation": activation}
    last, ys = custom.gru(b, config, weights, GRUState(h), x, **how)
    run = compiled(b, [last.prev_h, ys], tmp_path)
    start, xs = integers(rng, np.int16, BATCH, OUT), integers(rng, np.int16, BATCH, STEPS, IN)
    found_h, found = run(start, xs)

    def layer(h, xs):
        return gru_scan(config, weights, GRUState(h), xs, **how)

    (expected_h,), expected = jax.jit(jax.vmap(layer))(start, xs)
    np.testing.assert_array_equal(found_h, expected_h)
    np.testing.assert_array_equal(found, expected)
    assert np.unique(found).size > 10


def test_lstm_beside_operators_of_tosa(rng, tmp_path):
    """Between operators, of a graph of one example that is compiled for a batch."""
    config = LSTMConfig(in_feats=IN, out_feats=OUT)
    biases = [integers(rng, np.int16, OUT) for _ in range(4)]
    shapes = [(OUT, IN)] * 4 + [(OUT, OUT)] * 4
    weights = LSTMWeights(*(integers(rng, np.int16, *shape) for shape in shapes), *biases)
    b = Builder()
    x = b.input("x", DType.INT16, (1, STEPS, IN))
    h = b.const(np.zeros((1, OUT)), DType.INT16)
    cell = integers(rng, np.int32, 1, OUT)
    c = b.const(cell, DType.INT32)
    reversed_x = b.op("REVERSE", x, axis=1)
    last, ys = custom.lstm(b, config, weights, LSTMState(h, c), reversed_x, activation="ideal")
    clamped = b.op("CLAMP", ys, min_val=-2000, max_val=2000)
    run = compiled(b, [clamped, last.prev_c], tmp_path, batch=5)
    xs = integers(rng, np.int16, 5, STEPS, IN)
    found, found_c = run(xs)

    def layer(xs):
        state = LSTMState(jnp.zeros(OUT, jnp.int16), jnp.asarray(cell[0]))
        return lstm_scan(config, weights, state, xs[::-1], activation="ideal")

    last, expected = jax.jit(jax.vmap(layer))(xs)
    np.testing.assert_array_equal(found, np.clip(expected, -2000, 2000))
    np.testing.assert_array_equal(found_c, last.prev_c)
    assert np.unique(found).size > 10


CONFIGS = {
    "1d": conv1d_std_config(
        input_size=(6, 3, 2), kernel_height=3, output_height=4, output_channels=5, acc_shift=-9
    ),
    "2d": conv2d_std_config(
        input_size=(5, 6, 3), kernel_size=(3, 2), output_size=(3, 5), output_channels=4
    ),
    "ds": conv2d_ds_config(
        input_size=(5, 6, 4), kernel_size=(3, 2), output_size=(3, 5), output_channels=6
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_cnn(name, rng, tmp_path):
    config = CONFIGS[name]
    x_shape, *shapes = {
        "1d": [(6, 3, 2), (5, 3, 3, 2), (5,)],
        "2d": [(5, 6, 3), (4, 3, 2, 3), (4,)],
        "ds": [(4, 5, 6), (4, 3, 2), (4,), (6, 4), (6,)],
    }[name]
    weights = CNNWeights(
        *(integers(rng, np.int16 if len(shape) == 1 else np.int8, *shape) for shape in shapes)
    )
    b = Builder()
    x = b.input("x", DType.INT16, (BATCH, *x_shape))
    run = compiled(b, [custom.cnn(b, config, weights, x)], tmp_path)
    images = integers(rng, np.int16, BATCH, *x_shape)
    (found,) = run(images)
    expected = jax.jit(jax.vmap(lambda x: cnn_apply(config, weights, x)))(images)
    np.testing.assert_array_equal(found, expected)
    assert np.unique(found).size > 10


@pytest.mark.parametrize(
    "attributes", ["", "[]", "{}", '{"config": []}', '{"config": {"feats": 4}}', b"\xff"]
)
def test_attributes_that_no_layer_has(attributes):
    h, x = jnp.zeros((1, OUT), jnp.int16), jnp.zeros((1, STEPS, IN), jnp.int16)
    for name in ("gru", "lstm", "cnn"):
        with pytest.raises(ValueError, match=f"CUSTOM {name}: implementation_attrs"):
            custom.OPERATORS[custom.DOMAIN, name](x, h, h, implementation_attrs=attributes)
