"""Layers that leave as operators of TOSA have the bits of the layers, in Arm's model as well."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators
from oracle.hifi_oracle import draw

import tosajax
from tosajax import Graph, UnsupportedError
from tosajax.hifi import kernels
from tosajax.hifi.kernels.activations import FIXED
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
    gru_step,
    lstm_scan,
    lstm_step,
)
from tosajax.hifi.layers.cnn import STAGES, array_shapes, types_of

pytestmark = pytest.mark.usefixtures("quick")

IN, OUT = 8, 12
RECURRENT = (Precision.P16bx16b, Precision.P8bx16b)
# The largest and the least shifts of sums and of biases, the defaults, and some between.
FORMATS = [(15, 12), (0, 0), (15, 15), (7, 0), (0, 15), (9, 11)]
EACH = [
    pytest.param(precision, *formats, marks=() if formats == FORMATS[0] else pytest.mark.slow)
    for precision in RECURRENT
    for formats in FORMATS
]


def exported(fn: Callable[..., Any], *args: Any, **options: Any) -> Graph:
    return agrees(fn, *args, model=True, hifi_layers="operators", **options)


def weights_of(kind: Any, config: Any, seed: int) -> Any:
    """Weights of all sizes, so that some sums saturate and others do not."""
    rng = np.random.default_rng(seed)
    types = {1: np.int16, 2: config.weight_type}
    found = {}
    for name in kind._fields:
        ndim = 1 if name.startswith("b_") else 2
        columns = IN if name.startswith("w_" if kind is GRUWeights else "w_x") else OUT
        drawn: Any = draw(rng, types[ndim], (OUT,) if ndim == 1 else (OUT, columns))
        scale = rng.integers(0, 12, (OUT,) + (1,) * (ndim - 1))
        found[name] = (drawn >> scale.astype(drawn.dtype)).astype(types[ndim])
    return kind(**found)


def drawn(seed: int, dtype: type, *shape: int) -> np.ndarray:
    return draw(np.random.default_rng(seed), dtype, shape)


@pytest.mark.parametrize(("precision", "coefficients", "io"), EACH)
def test_gru_step(precision: int, coefficients: int, io: int):
    config = GRUConfig(
        in_feats=IN, out_feats=OUT, precision=precision, coeff_Qformat=coefficients, io_Qformat=io
    )
    weights = weights_of(GRUWeights, config, io)

    def step(h: jax.Array, x: jax.Array) -> Any:
        library = gru_step(config, weights, GRUState(h), x)
        return library, gru_step(config, weights, GRUState(h), x, update="guide")

    graph = exported(step, drawn(1, np.int16, OUT), drawn(2, np.int16, IN))
    assert "CUSTOM" not in operators(graph)


@pytest.mark.parametrize(("precision", "coefficients", "io"), EACH)
def test_lstm_step(precision: int, coefficients: int, io: int):
    config = LSTMConfig(
        in_feats=IN, out_feats=OUT, precision=precision, coeff_Qformat=coefficients, io_Qformat=io
    )
    weights = weights_of(LSTMWeights, config, io)

    def step(h: jax.Array, c: jax.Array, x: jax.Array) -> Any:
        return lstm_step(config, weights, LSTMState(h, c), x)

    state = drawn(3, np.int16, OUT), drawn(4, np.int32, OUT)
    graph = exported(step, *state, drawn(5, np.int16, IN))
    assert "CUSTOM" not in operators(graph)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:cell_Qformat")
@pytest.mark.parametrize("cell", [0, 12])
def test_cells_of_other_formats(cell: int):
    config = LSTMConfig(in_feats=IN, out_feats=OUT, cell_Qformat=cell)
    weights = weights_of(LSTMWeights, config, cell)
    state = drawn(3, np.int16, OUT), drawn(4, np.int32, OUT)
    exported(lambda h, c, x: lstm_step(config, weights, LSTMState(h, c), x), *state,
             drawn(5, np.int16, IN))  # fmt: skip


GRU = GRUConfig(in_feats=IN, out_feats=OUT, coeff_Qformat=11)
GRU_WEIGHTS = weights_of(GRUWeights, GRU, 7)
LSTM = LSTMConfig(in_feats=IN, out_feats=OUT, precision=Precision.P8bx16b, coeff_Qformat=6)
LSTM_WEIGHTS = weights_of(LSTMWeights, LSTM, 8)


def gru_of(h: jax.Array, xs: jax.Array, **options: Any) -> Any:
    return gru_scan(GRU, GRU_WEIGHTS, GRUState(h), xs, **options)


def lstm_of(h: jax.Array, c: jax.Array, xs: jax.Array) -> Any:
    return lstm_scan(LSTM, LSTM_WEIGHTS, LSTMState(h, c), xs)


@pytest.mark.parametrize("unrolled", [True, False])
def test_sequences(unrolled: bool):
    steps = 3 if unrolled else 40
    options = {"max_unroll": 64 if unrolled else 1}
    h, c, xs = drawn(1, np.int16, OUT), drawn(4, np.int32, OUT), drawn(6, np.int16, steps, IN)
    gru, lstm = exported(gru_of, h, xs, **options), exported(lstm_of, h, c, xs, **options)
    assert [g.subgraphs != {} for g in (gru, lstm)] == [not unrolled] * 2


@pytest.mark.slow
def test_a_batch_has_the_products_of_one():
    xs, h = drawn(6, np.int16, 5, 2, IN), drawn(1, np.int16, 5, OUT)
    one = exported(gru_of, h[0], xs[0])
    many = exported(jax.vmap(gru_of), h, xs)
    of_one_state = exported(jax.vmap(gru_of, (None, 0)), h[0], xs)
    counts = [operators(graph).count("CONV2D") for graph in (one, many, of_one_state)]
    assert counts == [2 * 2 * 4] * 3  # Steps, and products of z and r, and of g, by their bytes.


@pytest.mark.slow
def test_coefficients_of_ones_own():
    arrays = FIXED._replace(
        exponential=np.asarray(FIXED.exponential, np.int32),
        reciprocal=np.asarray([694136129, -1735340322, 2125791800], np.int32),
    )
    numbers = FIXED._replace(sigmoid_scale=774541001, reciprocal=(2**29, -(2**30), 2**31 - 1))
    h, xs = drawn(1, np.int16, OUT), drawn(6, np.int16, 2, IN)
    for coefficients in (arrays, numbers):
        exported(lambda h, xs, c=coefficients: gru_of(h, xs, activation=c), h, xs)


def test_ideal_activations_stay_custom():
    h, xs = drawn(1, np.int16, OUT), drawn(6, np.int16, 2, IN)

    def ideal(h: jax.Array, xs: jax.Array) -> Any:
        return gru_of(h, xs, activation="ideal")

    with pytest.raises(UnsupportedError, match="'ideal' takes float64, expected 'fixed' or coeff"):
        tosajax.export(ideal, h, xs, hifi_layers="operators")
    assert "CUSTOM" in operators(tosajax.export(ideal, h, xs))


def test_weights_that_are_inputs():
    h, xs = drawn(1, np.int16, OUT), drawn(6, np.int16, 2, IN)

    def fn(weights: GRUWeights, h: jax.Array, xs: jax.Array) -> Any:
        return gru_scan(GRU, weights, GRUState(h), xs)

    graph = exported(fn, GRU_WEIGHTS, h, xs)
    assert len(graph.inputs) == len(GRU_WEIGHTS) + 2


def test_a_target():
    """Moves of int16 alone take the extension."""
    h, xs = drawn(1, np.int16, OUT), drawn(6, np.int16, 2, IN)
    exported(gru_of, h, xs, target="PRO-INT+EXT-INT16@8K")


@pytest.mark.parametrize("wanted", ["tosa", None, True])
def test_ways_that_there_are_not(wanted: Any):
    with pytest.raises(ValueError, match=r"hifi_layers is .*, expected 'custom' or 'operators'"):
        tosajax.export(gru_of, drawn(1, np.int16, OUT), drawn(6, np.int16, 2, IN),
                       hifi_layers=wanted)  # fmt: skip


# Convolutions.

WINDOW = {"input_size": (7, 6, 4), "kernel_size": (3, 2), "output_size": (3, 4)}
CNNS = {
    "rows": conv1d_std_config(
        input_size=(7, 3, 4), kernel_height=3, output_height=4, output_channels=5, padding=1
    ),
    "rows first": conv1d_std_config(
        input_size=(7, 3, 4), kernel_height=3, output_height=2, output_channels=5, stride=2,
        output_format=1,
    ),
    "standard": conv2d_std_config(**WINDOW, output_channels=5, padding=(1, 0), strides=(2, 1)),
    "channels first": conv2d_std_config(**WINDOW, output_channels=5, output_format=1),
    "of two": conv2d_ds_config(**WINDOW, output_channels=8, channels_multiplier=2, padding=(0, 1)),
}  # fmt: skip
SHIFTS = [(-7, 7), (-31, 31), (-16, 0), (0, -31), (3, 15), (31, 16)]


def of_cnn(config: Any, seed: int) -> tuple[CNNWeights, np.ndarray]:
    rng, types = np.random.default_rng(seed), types_of(config)
    shape, kernels_of = array_shapes(config)
    found: dict[str, np.ndarray] = {}
    for (kernel, bias), of_kernel in zip(STAGES, kernels_of, strict=False):
        found[kernel] = draw(rng, types.weight, of_kernel)
        found[bias] = draw(rng, types.bias, of_kernel[:1])
    return CNNWeights(**found), draw(rng, types.input, shape)


# The others are slow.
QUICK = {
    "rows": Precision.P8bx16b,
    "rows first": Precision.F32xF32,
    "standard": Precision.P16bx16b,
    "channels first": Precision.P8bx8b,
    "of two": Precision.P16bx16b,
}


@pytest.mark.parametrize(
    ("name", "precision", "acc_shift", "bias_shift"),
    [
        pytest.param(
            *(name, p, *shifts),
            marks=() if QUICK[name] == p and shifts in SHIFTS[:2] else pytest.mark.slow,
        )
        for name in CNNS
        for p in Precision
        for shifts in SHIFTS[: 1 if p == Precision.F32xF32 else None]
    ],
)
def test_cnn(name: str, precision: Precision, acc_shift: int, bias_shift: int):
    shifts = {"acc_shift": acc_shift, "bias_shift": bias_shift}
    config = dataclasses.replace(CNNS[name], precision=precision, **shifts)
    weights, x = of_cnn(config, acc_shift + 40)
    graph = exported(lambda x: cnn_apply(config, weights, x), x, ulp=4)
    assert "CUSTOM" not in operators(graph)


def test_a_batch_of_images_has_the_convolutions_of_one():
    config = dataclasses.replace(CNNS["of two"], precision=Precision.P16bx16b)
    weights, x = of_cnn(config, 3)
    images = np.stack([x, x[::-1], -(x // 2)])
    graph = exported(jax.vmap(lambda x: cnn_apply(config, weights, x)), images)
    counts = [operators(graph).count(op) for op in ("DEPTHWISE_CONV2D", "CONV2D")]
    assert counts == [4, 4]


def test_an_image_that_windows_do_not_cover():
    config = conv2d_std_config(
        input_size=(9, 9, 4), kernel_size=(2, 2), output_size=(2, 2), output_channels=4
    )
    weights, x = of_cnn(config, 5)
    exported(lambda x: cnn_apply(config, weights, x), x)


# Kernels of fixed point that are not layers.


def test_kernels_of_fixed_point():
    matrix, x, bias = drawn(1, np.int16, 4, 8), drawn(2, np.int16, 8), drawn(3, np.int16, 4)

    def fn(x: jax.Array) -> Any:
        shifts: Any = {"acc_shift": -9, "bias_shift": 3}
        both = kernels.matXvec(matrix, x, matrix, x, bias, precision="16x16_32", **shifts)
        fused = kernels.matXvec_fused(matrix, x, bias=bias, function="tanh", acc_shift=-5)
        dense = kernels.fully_connected(matrix, x, bias, precision="16x16_16", **shifts)
        return both, fused, dense, kernels.sigmoid(both), kernels.tanh(both, precision="32_8")

    exported(fn, x)
    wide = np.asarray([-(2**31), 2**31 - 1, 0, -1, 1 << 25, -(1 << 25)], np.int32)
    edges = jnp.asarray(np.concatenate([wide, drawn(4, np.int32, 500) >> 3]))
    exported(lambda x: (kernels.sigmoid(x), kernels.tanh(x)), edges)
