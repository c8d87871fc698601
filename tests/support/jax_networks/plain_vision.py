"""A detector and an int8 network in plain JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_networks._network import Network, Size, example, normal

FRAMEWORK = "jax"
_NHWC = ("NHWC", "HWIO", "NHWC")


def _kernel(rng: np.random.Generator, side: int, inputs: int, outputs: int) -> dict[str, Any]:
    scale = (2 / (side * side * inputs)) ** 0.5
    return {
        "kernel": normal(rng, side, side, inputs, outputs, scale=scale),
        "bias": normal(rng, outputs, scale=0.1),
    }


def _conv(layer: Any, x: Any, stride: int = 1) -> Any:
    y = lax.conv_general_dilated(
        x, layer["kernel"], (stride, stride), "SAME", dimension_numbers=_NHWC
    )
    return y + layer["bias"]


def _anchors(side: int, strides: tuple[int, ...], ratios: tuple[float, ...]) -> np.ndarray:
    """Centre row, centre column, height, width, in pixels."""
    boxes = []
    for stride in strides:
        centres = (np.arange(-(-side // stride)) + 0.5) * stride
        for row in centres:
            for column in centres:
                for ratio in ratios:
                    height, width = 4 * stride * ratio**0.5, 4 * stride / ratio**0.5
                    boxes.append((row, column, height, width))
    return np.asarray(boxes, np.float32)


def _boxes(offsets: Any, anchors: np.ndarray, side: int) -> Any:
    """Corners of boxes that differ from anchors by `offsets`."""
    centres = offsets[..., :2] / 10 * anchors[:, 2:] + anchors[:, :2]
    sizes = jnp.exp(jnp.minimum(offsets[..., 2:] / 5, 4.0)) * anchors[:, 2:]
    corners = jnp.concatenate([centres - sizes / 2, centres + sizes / 2], axis=-1)
    return jnp.clip(corners, 0.0, side)


class _Detector(NamedTuple):
    side: int
    widths: tuple[int, ...]
    levels: int
    classes: int
    kept: int


_DETECTORS = {
    "small": _Detector(32, (8, 12, 16), 2, 3, 10),
    "full": _Detector(320, (32, 64, 128, 256, 512), 3, 80, 100),
}
_RATIOS = (0.5, 1.0, 2.0)


def _levels(params: Any, images: Any, levels: int) -> list[Any]:
    features, x = [], images
    for layer in params["backbone"]:
        x = jax.nn.relu6(_conv(layer, x, 2))
        features.append(x)
    return [
        jax.nn.relu6(_conv(layer, feature))
        for layer, feature in zip(params["neck"], features[-levels:], strict=True)
    ]


def _head(layer: Any, features: list[Any], last: int) -> Any:
    """Values of all levels in one row: [N, anchors, last]."""
    values = [_conv(layer, x).reshape(x.shape[0], -1, last) for x in features]
    return jnp.concatenate(values, axis=1)


def detector(size: Size = "small") -> Network:
    """Anchors, decoded boxes, sigmoid scores, the best of them; full: 320x320, 80 classes."""
    s = _DETECTORS[size]
    rng = np.random.default_rng(0)
    inputs, neck, ratios = (3, *s.widths), s.widths[-s.levels], len(_RATIOS)
    params = {
        "backbone": [
            _kernel(rng, 3, before, width) for before, width in zip(inputs, s.widths, strict=False)
        ],
        "neck": [_kernel(rng, 1, width, neck) for width in s.widths[-s.levels :]],
        "scores": _kernel(rng, 3, neck, ratios * s.classes),
        "boxes": _kernel(rng, 3, neck, ratios * 4),
    }
    strides = tuple(2 ** (i + 1) for i in range(len(s.widths)))[-s.levels :]
    anchors = _anchors(s.side, strides, _RATIOS)

    def run(params, images):
        features = _levels(params, images, s.levels)
        scores = jax.nn.sigmoid(_head(params["scores"], features, s.classes))
        boxes = _boxes(_head(params["boxes"], features, 4), anchors, s.side)
        best, kept = lax.top_k(scores.max(axis=-1), s.kept)
        labels = jnp.take_along_axis(scores.argmax(axis=-1), kept, axis=1)
        return jnp.take_along_axis(boxes, kept[..., None], axis=1), best, labels

    return Network(
        "detector", FRAMEWORK, run, params, (example(1, s.side, s.side, 3),), ("images",)
    )


def _int8(rng: np.random.Generator, *shape: int) -> jax.Array:
    """Every weight but -128, as symmetric quantization leaves them."""
    return jnp.asarray(rng.integers(-127, 128, shape, np.int8))


def _int_layer(rng: np.random.Generator, side: int, inputs: int, outputs: int) -> dict[str, Any]:
    # Sums of random int8 products have some sqrt(count) * 73**2; shifts bring them to 8 bits.
    shift = int(np.log2((side * side * inputs) ** 0.5 * 73 * 73 / 50))
    return {
        "kernel": _int8(rng, side, side, inputs, outputs),
        "bias": jnp.asarray(rng.integers(-(2**12), 2**12, outputs, np.int32)),
        "shift": jnp.asarray(rng.integers(shift - 1, shift + 2, outputs, np.int32)),
    }


def _requantized(acc: Any, shift: Any) -> Any:
    """acc / 2**shift, rounded half up, in int8."""
    half = jnp.left_shift(jnp.int32(1), shift - 1)
    return jnp.clip(jnp.right_shift(acc + half, shift), -128, 127).astype(jnp.int8)


def _int_conv(layer: Any, x: Any, zero_point: int, stride: int = 1) -> Any:
    """A convolution padded with the input's zero point, which the bias accounts for."""
    pad = layer["kernel"].shape[0] // 2
    around = (pad, pad, 0)
    x = lax.pad(x, jnp.int8(zero_point), ((0, 0, 0), around, around, (0, 0, 0)))
    acc = lax.conv_general_dilated(
        x, layer["kernel"], (stride, stride), "VALID", dimension_numbers=_NHWC,
        preferred_element_type=jnp.int32,
    )  # fmt: skip
    sums = layer["kernel"].astype(jnp.int32).sum(axis=(0, 1, 2))
    return _requantized(acc + (layer["bias"] - zero_point * sums), layer["shift"])


def _saturating_add(x: Any, y: Any) -> Any:
    total = x.astype(jnp.int32) + y.astype(jnp.int32)
    return jnp.clip(total, -128, 127).astype(jnp.int8)


def int8_network(size: Size = "small") -> Network:
    """int8 convolutions, a residual, pools and a product, exact integers; full: 96x96."""
    small = size == "small"
    side, width, blocks, classes = (16, 8, 1, 5) if small else (96, 64, 6, 10)
    rng = np.random.default_rng(0)
    params = {
        "stem": _int_layer(rng, 3, 3, width),
        "blocks": [_int_layer(rng, 3, width, width) for _ in range(blocks)],
        "reduce": _int_layer(rng, 1, width, 2 * width),
        "head": _int8(rng, 2 * width, classes),
        "head_bias": jnp.asarray(rng.integers(-5000, 5000, classes, np.int32)),
    }

    def run(params, images):
        x = jnp.maximum(_int_conv(params["stem"], images, -3, 2), jnp.int8(0))
        for layer in params["blocks"]:
            x = jnp.maximum(_saturating_add(x, _int_conv(layer, x, 0)), jnp.int8(0))
        x = _int_conv(params["reduce"], x, 0)
        x = lax.reduce_window(x, jnp.int8(-128), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        total = x.astype(jnp.int32).sum(axis=(1, 2))
        mean = (total // (x.shape[1] * x.shape[2])).astype(jnp.int8)
        scores = lax.dot_general(
            mean, params["head"], (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32
        )
        scores = scores + params["head_bias"]
        return scores, jnp.argmax(scores, axis=-1)

    images = jnp.asarray(rng.integers(-128, 128, (2, side, side, 3), np.int8))
    return Network("int8_network", FRAMEWORK, run, params, (images,), ("images",))
