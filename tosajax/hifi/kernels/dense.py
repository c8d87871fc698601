"""Fully connected layers ("Fully Connected Kernel", guide 3.5.1)."""

from __future__ import annotations

import jax

from tosajax.hifi.kernels._check import check_array, check_in, check_multiple
from tosajax.hifi.kernels._precision import PRECISIONS, Array, Quant, Shift, check_outputs
from tosajax.hifi.kernels._sums import dot, finish
from tosajax.ops.recording import recorded_as

FULLY_CONNECTED = (
    "16x16_16",
    "8x16_16",
    "8x8_8",
    "f32",
    "asym8uxasym8u_asym8u",
    "sym8sxasym8s_asym8s",
)


@recorded_as("hifi.kernels.fully_connected")
def fully_connected(
    weight: Array,
    inp: Array,
    bias: Array,
    *,
    precision: str = "16x16_16",
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    quant: Quant | None = None,
) -> jax.Array:
    """Computes weight * inp + bias (xa_nn_fully_connected_*), as `matXvec` with one product.

    Args:
      weight: the weight type of `precision`, [out_depth, weight_depth]; weight_depth is a multiple
        of 4 in fixed point, of 2 for floats.
      inp: the input type, [weight_depth].
      bias: [out_depth]; int16 for 16-bit inputs, int8 for 8-bit inputs, int32 quantized, or
        float32.
      precision: one of FULLY_CONNECTED.
      acc_shift: shift of the sum, bits in [-31, 31], positive to the left; fixed point only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.
      quant: for quantized precisions.

    Returns:
      The output type of `precision`, [out_depth].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> weight, x = np.ones((1, 4), np.int16), np.int16([1, 2, 3, 4])
      >>> kernels.fully_connected(weight, x, np.int16([10])).tolist()
      [20]
    """
    name = f"fully_connected {precision}"
    check_in(name, "precision", precision, FULLY_CONNECTED)
    types = PRECISIONS[precision]
    check_array(name, "p_weight", weight, types.weight, (-1, -1))
    out_depth, weight_depth = weight.shape
    if not types.is_quantized:
        check_multiple(name, "weight_depth", weight_depth, 2 if types.is_float else 4)
    check_array(name, "p_inp", inp, types.input, (weight_depth,))
    check_outputs(name, precision, bias, out_depth, acc_shift, bias_shift, quant)
    return finish(dot(weight, inp[None], quant), bias, types, acc_shift, bias_shift, quant)[0]
