"""Depthwise convolutions of real numbers, whose gradients cost as much as the convolution.

XLA:CPU's gradients of grouped convolutions are several times slower, and JAX's gradients of a sum
over taps compile to two loops for each tap. The convolution, its gradient to the input and its
gradient to the weight are each linear in both operands, and the gradients of each one are the
remaining two. So they are three primitives.

Images are float32 [N, H, W, C], weights [taps, C], the taps in the order of `Window.offsets`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import core, lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tosajax.ops._window import Window, dynamic_window, pad_spatial, tap


def depthwise(x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    """The sum over taps of input elements times the tap's weights; [N, OH, OW, C]."""
    return _sums.bind(x, weight, window=window, size=tuple(x.shape[1:-1]))


def _of_taps(x: jax.Array, weight: jax.Array, *, window: Window, size: Sequence[int]) -> jax.Array:
    del size
    padded, out = pad_spatial(x, window.pad, jnp.float32(0)), window.out(x.shape)
    factors = weight.reshape(-1, *(1,) * (x.ndim - 1), x.shape[-1])
    pairs = zip(window.offsets(), factors, strict=True)
    return functools.reduce(jnp.add, (tap(padded, at, out, window.stride) * w for at, w in pairs))


def _to_input(y: jax.Array, weight: jax.Array, *, window: Window, size: Sequence[int]) -> jax.Array:
    """The input's cotangents, from cotangents of the result: convolves with reversed taps."""
    each = zip(y.shape[1:-1], size, *window, strict=True)
    pads = [
        ((taps - 1) * dilation - low, length - 1 + low - (n - 1) * stride, stride - 1)
        for n, length, taps, stride, dilation, (low, _) in each
    ]
    spread = lax.pad(lax.optimization_barrier(y), jnp.float32(0), [(0, 0, 0), *pads, (0, 0, 0)])
    ones = (1,) * len(size)
    reverse = Window(window.size, ones, window.dilation, ((0, 0),) * len(size))
    return _of_taps(lax.optimization_barrier(spread), weight[::-1], window=reverse, size=size)


def _to_weight(x: jax.Array, y: jax.Array, *, window: Window, size: Sequence[int]) -> jax.Array:
    """The weight's cotangents: for each tap, a sum of input elements times cotangents `y`."""
    del size
    padded, out = pad_spatial(x, window.pad, jnp.float32(0)), y.shape[1:-1]
    single_tap = window._replace(size=(1,) * len(out))

    def of_tap(start: jax.Array) -> jax.Array:
        values = dynamic_window(padded, list(start), single_tap, out)
        return (tap(values, (0,) * len(out), out, window.stride) * y).sum(range(y.ndim - 1))

    # A loop, so that the taps share one body.
    return lax.map(of_tap, jnp.array([*window.offsets()], jnp.int32))


_sums, _inputs, _weights = (Primitive(f"depthwise_{of}") for of in ("sums", "inputs", "weights"))
# For each primitive, its gradients to both operands, given cotangents and the remaining operand.
_RULES: dict[Primitive, tuple[Callable[..., jax.Array], ...]] = {
    _sums: (
        _of_taps,
        lambda ct, x, weight, **static: _inputs.bind(ct, weight, **static),
        lambda ct, x, weight, **static: _weights.bind(x, ct, **static),
    ),
    _inputs: (
        _to_input,
        lambda ct, y, weight, **static: _sums.bind(ct, weight, **static),
        lambda ct, y, weight, **static: _weights.bind(ct, y, **static),
    ),
    _weights: (
        _to_weight,
        lambda ct, x, y, **static: _inputs.bind(y, ct, **static),
        lambda ct, x, y, **static: _sums.bind(x, ct, **static),
    ),
}


def _batched(
    primitive: Primitive, operands: Sequence[jax.Array], axes: Sequence[int | None], **static: Any
) -> tuple[jax.Array, int]:
    """Merges a batch into the images or, if the weights are batched, into the channels."""
    first, second = operands
    if axes[1] is None and primitive is not _weights:
        assert axes[0] is not None
        rows = jnp.moveaxis(first, axes[0], 0)
        result = primitive.bind(rows.reshape(-1, *rows.shape[2:]), second, **static)
        return result.reshape(rows.shape[0], -1, *result.shape[1:]), 0
    count = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    wide = [_in_channels(x, axis, count) for x, axis in zip(operands, axes, strict=True)]
    result = primitive.bind(*wide, **static)
    return result.reshape(*result.shape[:-1], count, -1), result.ndim - 1


def _in_channels(x: jax.Array, axis: int | None, count: int) -> jax.Array:
    if axis is None:
        x = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], count, x.shape[-1]))
    else:
        x = jnp.moveaxis(x, axis, -2)
    return x.reshape(*x.shape[:-2], -1)


def _define(primitive: Primitive, function: Callable[..., jax.Array]) -> None:
    def shape(*operands: core.ShapedArray, **static: Any) -> core.ShapedArray:
        result = jax.eval_shape(functools.partial(function, **static), *operands)
        return core.ShapedArray(result.shape, result.dtype)

    primitive.def_impl(jax.jit(function, static_argnames=("window", "size")))
    primitive.def_abstract_eval(shape)
    batching.primitive_batchers[primitive] = functools.partial(_batched, primitive)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))


for _primitive, (_function, _by_first, _by_second) in _RULES.items():
    _define(_primitive, _function)
    ad.defbilinear(_primitive, _by_first, _by_second)
