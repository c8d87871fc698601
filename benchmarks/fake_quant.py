"""Contender of training: the network as usually trained, floats rounded to values of integers.

Written by hand in plain JAX, as a user would: straight-through rounding, learned scales and zero
points, one scale for each channel of weights.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import float_jax
from benchmarks.layers import Add, Conv, Network


def parameters(network: Network, weight_bits: int) -> dict[str, Any]:
    """Weights and biases, scales of weights by channel; a scale and a zero point of each value."""
    layers = float_jax.parameters(network)
    largest = 2.0 ** (weight_bits - 1) - 1
    scales = [_channel_scales(own[0], largest) if own else None for own in layers]
    values = [(np.float32(q.scale), np.float32(q.zero_point)) for q in network.quants]
    return jax.device_put({"layers": layers, "scales": scales, "values": values})


def run(network: Network, weight_bits: int, params: Any, images: jax.Array) -> jax.Array:
    """The network's last value."""
    largest = 2.0 ** (weight_bits - 1) - 1
    found = [_activation(images, params["values"][0])]
    for number, layer in enumerate(network.layers):
        own = params["layers"][number]
        if isinstance(layer, Conv):
            weight, bias = own
            scale = params["scales"][number].reshape((1,) * (weight.ndim - 1) + (-1,))
            own = (rounded(weight, scale, 0.0, -largest, largest), bias)
        sources = [found[i] for i in layer.sources]
        y = float_jax.apply(layer, own, sources, float_jax.grouped_depthwise)
        if isinstance(layer, Conv | Add):
            y = _activation(y, params["values"][number + 1])
        found.append(y)
    return found[-1]


def rounded(x: Any, scale: Any, zero_point: Any, low: Any, high: Any) -> Any:
    """x rounded to the values of integers, with gradients to the scale and the zero point."""
    value = straight(x / scale + zero_point)
    return (jnp.clip(value, low, high) - zero_point) * scale


def _activation(x: Any, value: tuple[Any, Any]) -> Any:
    scale, zero_point = value
    return rounded(x, scale, zero_point, -128.0, 127.0)


def straight(x: Any) -> Any:
    """x rounded, with the gradient of x."""
    return x + lax.stop_gradient(jnp.round(x) - x)


def _channel_scales(weight: np.ndarray, largest: float) -> np.ndarray:
    axes = tuple(range(weight.ndim - 1))
    return (np.abs(weight).max(axis=axes) / largest).astype(np.float32)
