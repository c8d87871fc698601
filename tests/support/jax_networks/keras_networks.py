"""Networks in Keras 3 on JAX, called without state."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_networks._network import Network, Size, drawn, example

os.environ.setdefault("KERAS_BACKEND", "jax")  # read once, at import

import keras
from keras import layers

FRAMEWORK = "keras"


def _network(name: str, build: Callable[[Any], Any], x: jax.Array, argument: str) -> Network:
    model = _built(build, keras.Input(x.shape[1:], batch_size=x.shape[0]))

    def apply(params, *args):
        return model.stateless_call(*params, *args, training=False)[0]

    rng = np.random.default_rng(0)
    params = tuple(
        [_seeded(rng, v) for v in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    )
    return Network(name, FRAMEWORK, apply, params, (x,), (argument,))


def _built(build: Callable[[Any], keras.Model], inputs: Any) -> keras.Model:
    """The model, without the seconds that it takes to compile its initializers.

    Its variables never have values, which calls without state don't need.
    """
    models: list[keras.Model] = []
    jax.eval_shape(lambda: models.append(build(inputs)))
    return models[0]


def _seeded(rng: np.random.Generator, variable: Any) -> jax.Array:
    if not jnp.issubdtype(variable.dtype, jnp.floating):
        return jnp.zeros(variable.shape, variable.dtype)
    return jnp.asarray(drawn(rng, variable.path.split("/"), variable.shape), variable.dtype)


def keras_cnn(size: Size = "small") -> Network:
    """Plain and separable convolutions, pools, dropout; full: a batch of 8 at 96x96."""
    small = size == "small"
    width, side, batch = (8, 16, 2) if small else (64, 96, 8)

    def build(images):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False)(images)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.MaxPooling2D(2)(x)
        x = layers.SeparableConv2D(2 * width, 3, padding="same", activation="leaky_relu")(x)
        x = layers.AveragePooling2D(3, strides=2, padding="same")(x)
        x = layers.Conv2D(2 * width, 3, strides=2, activation="elu")(x)
        x = layers.Dropout(0.3)(layers.GlobalAveragePooling2D()(x))
        return keras.Model(images, layers.Dense(10, activation="softmax")(x))

    return _network("keras_cnn", build, example(batch, side, side, 3), "images")


def keras_attention_lstm(size: Size = "small") -> Network:
    """Attention, layer norm and an LSTM; full: 100 frames of 64 features, width 256."""
    small = size == "small"
    width, heads = (16, 2) if small else (256, 8)

    def build(frames):
        x = layers.Dense(width, activation="gelu")(frames)
        attended = layers.MultiHeadAttention(heads, width // heads)(x, x, use_causal_mask=True)
        x = layers.LayerNormalization()(layers.Add()([x, attended]))
        x = layers.Bidirectional(layers.LSTM(width, return_sequences=True))(x)
        x = layers.GlobalMaxPooling1D()(x)
        return keras.Model(frames, layers.Dense(5)(x))

    x = example(2, 6, 8) if small else example(1, 100, 64)
    return _network("keras_attention_lstm", build, x, "frames")


class _Row(NamedTuple):
    kernel: int
    hidden: int
    features: int
    gate: bool
    activation: str
    stride: int


_ROWS = {
    "small": (
        _Row(3, 8, 8, False, "relu", 1), _Row(5, 24, 12, True, "relu", 2),
        _Row(5, 32, 12, True, "hard_swish", 1),
    ),
    "full": (
        _Row(3, 16, 16, False, "relu", 1), _Row(3, 64, 24, False, "relu", 2),
        _Row(3, 72, 24, False, "relu", 1), _Row(5, 72, 40, True, "relu", 2),
        _Row(5, 120, 40, True, "relu", 1), _Row(5, 120, 40, True, "relu", 1),
        _Row(3, 240, 80, False, "hard_swish", 2), _Row(3, 200, 80, False, "hard_swish", 1),
        _Row(3, 184, 80, False, "hard_swish", 1), _Row(3, 184, 80, False, "hard_swish", 1),
        _Row(3, 480, 112, True, "hard_swish", 1), _Row(3, 672, 112, True, "hard_swish", 1),
        _Row(5, 672, 160, True, "hard_swish", 2), _Row(5, 960, 160, True, "hard_swish", 1),
        _Row(5, 960, 160, True, "hard_swish", 1),
    ),
}  # fmt: skip


def _normed(x: Any, layer: layers.Layer, activation: str | None) -> Any:
    x = layers.BatchNormalization(epsilon=1e-3)(layer(x))
    return x if activation is None else layers.Activation(activation)(x)


def _gated(x: Any) -> Any:
    channels = x.shape[-1]
    gate = layers.GlobalAveragePooling2D(keepdims=True)(x)
    gate = layers.Conv2D(-(-channels // 32) * 8, 1, activation="relu")(gate)
    gate = layers.Conv2D(channels, 1, activation="hard_sigmoid")(gate)
    return layers.Multiply()([x, gate])


def _inverted_residual(x: Any, row: _Row) -> Any:
    inputs, y = x.shape[-1], x
    if row.hidden != inputs:
        y = _normed(y, layers.Conv2D(row.hidden, 1, use_bias=False), row.activation)
    depthwise = layers.DepthwiseConv2D(row.kernel, row.stride, padding="same", use_bias=False)
    y = _normed(y, depthwise, row.activation)
    y = _gated(y) if row.gate else y
    y = _normed(y, layers.Conv2D(row.features, 1, use_bias=False), None)
    return layers.Add()([x, y]) if row.stride == 1 and inputs == row.features else y


def mobilenet_v3(size: Size = "small") -> Network:
    """Hard-swish and squeeze-excite; full: MobileNetV3-Large at 224x224."""
    small = size == "small"
    stem, last, head, classes = (8, 32, 48, 10) if small else (16, 960, 1280, 1000)

    def build(images):
        first = layers.Conv2D(stem, 3, strides=2, padding="same", use_bias=False)
        x = _normed(images, first, "hard_swish")
        for row in _ROWS[size]:
            x = _inverted_residual(x, row)
        x = _normed(x, layers.Conv2D(last, 1, use_bias=False), "hard_swish")
        x = layers.GlobalAveragePooling2D(keepdims=True)(x)
        x = layers.Conv2D(head, 1, activation="hard_swish")(x)
        return keras.Model(images, layers.Dense(classes)(layers.Flatten()(x)))

    side = 32 if small else 224
    return _network("mobilenet_v3", build, example(1, side, side, 3), "images")


def video(size: Size = "small") -> Network:
    """3-D convolutions and pools; full: 16 frames of 112x112 through 8 convolutions."""
    small = size == "small"
    widths = ((4,), (8,)) if small else ((64,), (128,), (256, 256), (512, 512), (512, 512))

    def build(clip):
        x = clip
        for i, group in enumerate(widths):
            for width in group:
                x = layers.Conv3D(width, 3, padding="same", use_bias=False)(x)
                x = layers.ReLU(max_value=6.0)(layers.BatchNormalization()(x))
            x = layers.MaxPooling3D((2, 2, 2) if i else (1, 2, 2), padding="same")(x)
        x = layers.GlobalAveragePooling3D()(x)
        return keras.Model(clip, layers.Dense(10 if small else 400)(x))

    x = example(1, 4, 12, 12, 3) if small else example(1, 16, 112, 112, 3)
    return _network("video", build, x, "clip")
