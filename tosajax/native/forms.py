"""CONV3D, TRANSPOSE_CONV2D and MATMUL by a constant, as convolutions over height and width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.fixedpoint import _x64
from tosajax.native.call import convolve, run
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.operands import Epilogue, FloatSteps, Operands
from tosajax.ops._window import Window
from tosajax.ops.conv import phases
from tosajax.ops.routes.constant import depth_to_channels

_ONE = Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))


def convolve_3d(
    isa: InstructionSet, o: Operands, window: Window, epilogue: Epilogue | None = None
) -> jax.Array:
    """CONV3D: x is [N, D, H, W, IC], the weight [OC, KD, KH, KW, IC]; see `convolve`.

    Returns:
      [N, OD, OH, OW, OC].
    """
    shape = o.x.shape
    x, weight, window_2d = depth_to_channels(jnp.asarray(o.x), o.weight, o.x_zp, window)
    planes = run(convolve(isa, o._replace(x=x, weight=weight), window_2d, epilogue))
    return planes.reshape(shape[0], *window.out(shape), -1)


def multiply_by_constant(
    isa: InstructionSet, o: Operands, epilogue: Epilogue | FloatSteps | None = None
) -> jax.Array:
    """MATMUL by a constant matrix: x is [N, H, C], the weight [W, 1, C]; see `convolve`.

    It is a 1x1 convolution, one pixel for each row.

    Returns:
      [N, H, W].
    """
    pixels = o._replace(x=jnp.asarray(o.x)[:, :, None], weight=o.weight[:, :, None])
    if isinstance(epilogue, FloatSteps):
        rows = o.x.shape[1]
        epilogue = epilogue.of_images(lambda y: jnp.asarray(y).reshape(-1, rows, 1, y.shape[-1]))
    return run(convolve(isa, pixels, _ONE, epilogue))[:, :, 0]


def convolve_transposed(
    isa: InstructionSet,
    o: Operands,
    stride: Sequence[int],
    out_pad: Sequence[int],
    epilogue: Epilogue | FloatSteps | None = None,
) -> jax.Array:
    """TRANSPOSE_CONV2D: spreads each element over the output by the weight, [OC, KH, KW, IC].

    The output has stride y * stride x phases, each a convolution of the input. One convolution
    computes them all as channels, which are then interleaved.

    Args:
      isa: the instruction set.
      o: the operands.
      stride: y, x; elements of the output.
      out_pad: top, bottom, left, right; elements, negative values crop.
      epilogue: RESCALE and CLAMP of the accumulators; None returns them. Of float32, no steps.

    Returns:
      [N, OH, OW, OC], of the type that `convolve` returns.
    """
    oc, *kernel, _ = o.weight.shape
    weight, reach = phases(o.weight, np.zeros(1, np.int8), stride)
    pads, crops = [], []
    for low, high, size, step, taps in zip(
        out_pad[0::2], out_pad[1::2], kernel, stride, reach, strict=True
    ):
        # Where the window is no multiple of the stride, its last phases lack the last tap.
        ends = low, high - (taps * step - size)
        # Output padding is the bias alone, as windows further out, over padding only, give it.
        further = [max(0, -(-end // step)) for end in ends]
        pads.append((taps - 1 + further[0], taps - 1 + further[1]))
        crops.append([more * step - end for more, end in zip(further, ends, strict=True)])
    window = Window(reach, (1, 1), (1, 1), tuple(pads))
    xp: Any = np if isinstance(o.bias, np.ndarray) else jnp
    with _x64.scope_of(o.bias.dtype):
        bias = o.bias if o.bias.size == 1 else xp.tile(o.bias, stride[0] * stride[1])
    parts = run(convolve(isa, o._replace(weight=weight, bias=bias), window, epilogue))
    n, height, width, _ = parts.shape
    split = parts.reshape(n, height, width, *stride, oc).transpose(0, 1, 3, 2, 4, 5)
    whole = split.reshape(n, height * stride[0], width * stride[1], oc)
    (top, bottom), (left, right) = crops
    return whole[:, top : whole.shape[1] - bottom, left : whole.shape[2] - right]
