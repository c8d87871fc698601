"""Contender: the same network in float32 or bfloat16, in plain JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import plain
from benchmarks.layers import (
    Add,
    AveragePool,
    Conv,
    Gelu,
    Layer,
    MatMul,
    Network,
    Reshape,
    Softmax,
    Transpose,
    same_padding,
)
from benchmarks.work import DoesNotApply, Run, Work
from tosajax import spec

Depthwise = Callable[[jax.Array, jax.Array, int], jax.Array]


def prepare(work: Work, *, grouped: bool = False, dtype: Any = np.float32) -> Run:
    """The work in floats of a type; `grouped` leaves depthwise convolutions to XLA's own."""
    if work.network is None:
        return _operator(work, grouped, dtype)
    if grouped and not any(isinstance(x, Conv) and x.depthwise for x in work.network.layers):
        raise DoesNotApply("no depthwise convolution")
    (images,) = work.inputs
    if not work.is_float:
        images = work.network.images(images)
    params = jax.tree.map(lambda value: jnp.asarray(value, dtype), parameters(work.network))
    depthwise = grouped_depthwise if grouped else shifted_depthwise
    compiled = jax.jit(functools.partial(run, work.network, depthwise=depthwise))
    x = jnp.asarray(images, dtype)
    return lambda: (jax.block_until_ready(compiled(params, x)),)


def reals(work: Work, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs as the real numbers that the float network approximates."""
    if work.is_float:
        return [np.asarray(y, np.float64) for y in outputs]
    if work.network is None:
        return [np.asarray(y, np.float64) - _output_zero_point(work) for y in outputs]
    quant = work.network.quants[-1]
    return [(np.asarray(y, np.float64) - quant.zero_point) * quant.scale for y in outputs]


def _output_zero_point(work: Work) -> float:
    assert work.operator is not None
    names = [a.name for a in spec.OPERATORS[work.operator.op].inputs]
    if "output_zp" not in names:
        return 0.0
    return float(work.constants[work.operator.inputs[names.index("output_zp")]][0])


def parameters(network: Network) -> list[tuple[np.ndarray, ...]]:
    """Weights and biases of every layer, empty where there are none."""
    quants = network.quants
    return [layer_parameters(x, quants[x.sources[0]].scale) for x in network.layers]


def layer_parameters(layer: Layer, source_scale: float) -> tuple[np.ndarray, ...]:
    """Weight [OC, KH, KW, IC] or [KH, KW, C] as [KH, KW, IC, OC] or [KH, KW, C], and bias."""
    if not isinstance(layer, Conv):
        return ()
    bias = layer.bias * (source_scale * layer.weight_scale)
    if layer.depthwise:
        weight = layer.weight[..., 0] * layer.weight_scale
    else:
        weight = layer.weight.transpose(1, 2, 3, 0) * layer.weight_scale
    return weight.astype(np.float32), bias.astype(np.float32)


def run(network: Network, params: Sequence[Any], x: jax.Array, *, depthwise: Depthwise):
    """The network's last value."""
    values = [x]
    for layer, own in zip(network.layers, params, strict=True):
        values.append(apply(layer, own, [values[i] for i in layer.sources], depthwise))
    return values[-1]


def apply(
    layer: Layer,
    params: Sequence[Any],
    sources: Sequence[Any],
    depthwise: Depthwise | None = None,
) -> jax.Array:
    """The result of one layer, float32."""
    x = sources[0]
    match layer:
        case Conv():
            chosen = depthwise or shifted_depthwise
            return _activate(_conv(layer, x, params, chosen), layer.relu)
        case Add():
            return _activate(x + sources[1], layer.relu)
        case AveragePool():
            return jnp.mean(x, axis=(1, 2), keepdims=True)
        case Reshape():
            return x.reshape(layer.shape)
        case Transpose():
            return x.transpose(layer.perms)
        case MatMul():
            return x @ sources[1]
        case Softmax():
            return jax.nn.softmax(x, axis=-1)
        case Gelu():
            return jax.nn.gelu(x, approximate=False)
    raise NotImplementedError(type(layer).__name__)


def shifted_depthwise(x: jax.Array, weight: jax.Array, stride: int) -> jax.Array:
    """Depthwise convolution of padded x as a sum of slices, one for each tap."""
    kh, kw, _ = weight.shape
    oh, ow = (x.shape[1] - kh) // stride + 1, (x.shape[2] - kw) // stride + 1
    total = jnp.zeros((), x.dtype)
    for i in range(kh):
        for j in range(kw):
            last = (i + (oh - 1) * stride + 1, j + (ow - 1) * stride + 1)
            taps = x[:, i : last[0] : stride, j : last[1] : stride]
            total = total + taps * weight[i, j][None, None, None]
    return total


def grouped_depthwise(x: jax.Array, weight: jax.Array, stride: int) -> jax.Array:
    """Depthwise convolution of padded x as XLA's grouped convolution."""
    return lax.conv_general_dilated(
        x,
        weight[:, :, None],
        (stride, stride),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=weight.shape[-1],
    )


def _conv(
    layer: Conv, x: jax.Array, params: Sequence[jax.Array], depthwise: Depthwise
) -> jax.Array:
    weight, bias = params
    pads = [
        same_padding(size, k, layer.stride)
        for size, k in zip(x.shape[1:3], layer.kernel, strict=True)
    ]
    if layer.depthwise:
        y = depthwise(jnp.pad(x, ((0, 0), *pads, (0, 0))), weight, layer.stride)
    else:
        y = lax.conv_general_dilated(
            x,
            weight,
            (layer.stride, layer.stride),
            pads,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
    return y + bias[None, None, None]


def _activate(x: jax.Array, relu: bool) -> jax.Array:
    return jnp.maximum(x, 0) if relu else x


# Operators whose plain kernel also does the float32 work.
_FLOAT_OPERATORS = {
    "ARGMAX",
    "AVG_POOL2D",
    "CONV2D",
    "CONV3D",
    "DEPTHWISE_CONV2D",
    "MATMUL",
    "MAX_POOL2D",
    "REDUCE_SUM",
    "TRANSPOSE_CONV2D",
}
_WEIGHTS_LAST = {"CONV2D": "HWIO", "CONV3D": "DHWIO"}


def _operator(work: Work, grouped: bool, dtype: Any) -> Run:
    """A graph of one operator: the plain kernel on floats that have no zero points."""
    node = work.operator
    if node is None or node.op not in _FLOAT_OPERATORS:
        raise DoesNotApply("not written in floats")
    if grouped and node.op != "DEPTHWISE_CONV2D":
        raise DoesNotApply("no depthwise convolution")
    is_shifted = node.op == "DEPTHWISE_CONV2D" and not grouped
    kernel = _shifted_operator if is_shifted else plain.kernel_of(node.op)
    given = work.constants | dict(zip(work.graph.inputs, work.inputs, strict=True))
    arguments = spec.OPERATORS[node.op].inputs
    values = {a.name: given[n] for a, n in zip(arguments, node.inputs, strict=True)}
    options = dict(node.attributes)
    if node.op in _WEIGHTS_LAST:  # XLA's fast order
        values["weight"] = np.moveaxis(values["weight"], 0, -1)
        options["weights"] = _WEIGHTS_LAST[node.op]
    reals = (_real(name, values) for name in values)
    arrays = [None if real is None else jnp.asarray(real, dtype) for real in reals]

    def call(*arrays: jax.Array | None) -> jax.Array:
        return kernel(*arrays, out=np.dtype(dtype), **options)

    compiled = jax.jit(call)
    return lambda: (jax.block_until_ready(compiled(*arrays)),)


def _real(name: str, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """An argument minus its zero point as float32; None for a zero point."""
    if name.endswith("_zp"):
        return None
    zero_point = values.get(f"{name}_zp", np.zeros(1))
    return (values[name] - zero_point.astype(np.float64)).astype(np.float32)


def _shifted_operator(x, weight, bias, x_zp, weight_zp, *, pad, stride, **_):
    padded = jnp.pad(x, ((0, 0), tuple(pad[:2]), tuple(pad[2:]), (0, 0)))
    return shifted_depthwise(padded, weight[..., 0], stride[0]) + bias[None, None, None]
