"""The element types of the precisions in the library's names, and quantization parameters."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.hifi.kernels._check import (
    SHIFT,
    check,
    check_array,
    check_range,
    check_shift,
    check_type,
)

# A NumPy array is a constant, which a kernel may preprocess during tracing.
Array = jax.Array | np.ndarray
# Parameters of kernels: numbers or arrays, which may be traced.
Shift = int | Array
Integers = np.integer | Shift
Reals = np.floating | float | Integers


def as_int32(value: Integers) -> Array:
    """Converts a number or an array to int32: to NumPy, unless it is a JAX array."""
    is_numpy = not isinstance(value, jax.Array)
    return np.asarray(value, np.int32) if is_numpy else value.astype(jnp.int32)


class Precision(NamedTuple):
    """The element types of a kernel that computes sums of products."""

    weight: type
    input: type
    bias: type
    out: type

    @property
    def is_float(self) -> bool:
        return self.weight is np.float32

    @property
    def is_quantized(self) -> bool:
        """Whether integers have zero points and a scale, not a Q format."""
        return self.bias is np.int32


_FLOAT = Precision(np.float32, np.float32, np.float32, np.float32)
_ASYM8U = Precision(np.uint8, np.uint8, np.int32, np.uint8)
_SYM8S = Precision(np.int8, np.int8, np.int32, np.int8)

# The names are <weight>x<input>, for most kernels with _<output>.
PRECISIONS = {
    "16x16_16": Precision(np.int16, np.int16, np.int16, np.int16),
    "16x16_32": Precision(np.int16, np.int16, np.int16, np.int32),
    "16x16_64": Precision(np.int16, np.int16, np.int16, np.int64),
    "8x16_16": Precision(np.int8, np.int16, np.int16, np.int16),
    "8x16_32": Precision(np.int8, np.int16, np.int16, np.int32),
    "8x16_64": Precision(np.int8, np.int16, np.int16, np.int64),
    "8x8_8": Precision(np.int8, np.int8, np.int8, np.int8),
    "8x8_16": Precision(np.int8, np.int8, np.int8, np.int16),
    "8x8_32": Precision(np.int8, np.int8, np.int8, np.int32),
    "f32xf32_f32": _FLOAT,
    "asym8uxasym8u_asym8u": _ASYM8U,
    "sym8sxasym8s_asym8s": _SYM8S,
    "sym8sxasym8s_16": _SYM8S._replace(out=np.int16),
    "per_chan_sym8sxasym8s_asym8s": _SYM8S,
    "16x16": Precision(np.int16, np.int16, np.int16, np.int16),
    "8x16": Precision(np.int8, np.int16, np.int16, np.int16),
    "8x8": Precision(np.int8, np.int8, np.int8, np.int8),
    "f32": _FLOAT,
    "asym8uxasym8u": _ASYM8U,
    "per_chan_sym8sxasym8s": _SYM8S,
}


class Quant(NamedTuple):
    """The quantization parameters of a kernel; all may be traced.

    The zero bias is added to an operand, so it is minus the zero point. The result is
    sum * out_multiplier / 2**31 * 2**out_shift + out_zero_bias.

    Args:
      input_zero_bias: zero bias of the input or the first vector; in [-255, 0], or [-127, 128] if
        signed.
      weight_zero_bias: zero bias of the weights or the first matrix; in [-255, 0], or 0 if signed.
      out_multiplier: Q31, above 0; a scalar, or [channels] in per_chan kernels, where it may be 0.
      out_shift: bits in [-31, 31], positive to the left; a scalar, or [channels] in per_chan
        kernels.
      out_zero_bias: zero point of the output, in its range.
      input2_zero_bias: zero bias of the second vector.
      weight2_zero_bias: zero bias of the second matrix.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> quant = kernels.Quant(0, 0, 2**30, 1, 0)  # a scale of 2**30 / 2**31 * 2 = 1
      >>> weight, x = np.ones((1, 4), np.int8), np.int8([1, 2, 3, 4])
      >>> kernels.matXvec_out_stride(weight, x, quant=quant).tolist()
      [10]
    """

    input_zero_bias: Integers
    weight_zero_bias: Integers
    out_multiplier: Integers
    out_shift: Integers
    out_zero_bias: Integers
    input2_zero_bias: Integers = 0
    weight2_zero_bias: Integers = 0


def check_outputs(
    kernel: str,
    precision: str,
    bias: Array | None,
    channels: int,
    acc_shift: Shift,
    bias_shift: Shift,
    quant: Quant | None,
    *,
    needs_bias: bool = True,
) -> None:
    """Checks the bias of a kernel with `channels` outputs, and its shifts or its Quant."""
    types = PRECISIONS[precision]
    if needs_bias or bias is not None:
        check_array(kernel, "p_bias", bias, types.bias, (channels,))
    per_channel = precision.startswith("per_chan")
    shifts = {"acc_shift": acc_shift, "bias_shift": bias_shift}
    check_parameters(kernel, types, channels, **shifts, quant=quant, per_channel=per_channel)


def check_parameters(
    kernel: str,
    precision: Precision,
    channels: int,
    *,
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    quant: Quant | None = None,
    per_channel: bool = False,
) -> None:
    """Checks the shifts of a fixed-point kernel, or the Quant of a quantized kernel."""
    low, high = (0, 0) if precision.is_float or precision.is_quantized else SHIFT
    check_range(kernel, "acc_shift", acc_shift, low, high)
    check_range(kernel, "bias_shift", bias_shift, low, high)
    check((quant is not None) == precision.is_quantized, kernel, "quant", quant, _wanted(precision))
    if quant is None:
        return
    check_type(kernel, "quant", quant, Quant)
    signed = precision.input is np.int8
    low, high = (-127, 128) if signed else (-255, 0)
    info = np.iinfo(precision.out)
    check_range(kernel, "input_zero_bias", quant.input_zero_bias, low, high)
    check_range(kernel, "vec2_zero_bias", quant.input2_zero_bias, low, high)
    low = 0 if signed else -255
    check_range(kernel, "weight_zero_bias", quant.weight_zero_bias, low, 0)
    check_range(kernel, "mat2_zero_bias", quant.weight2_zero_bias, low, 0)
    check_range(kernel, "out_zero_bias", quant.out_zero_bias, info.min, info.max)
    check_shift(kernel, "out_shift", quant.out_shift)
    # A channel whose weights are all 0 has a scale of 0.
    least = 0 if per_channel else 1
    check_range(kernel, "out_multiplier", quant.out_multiplier, least, 2**31 - 1)
    for name in ("out_multiplier", "out_shift"):
        shape = np.shape(getattr(quant, name))
        wanted = "a scalar" + f" or [{channels}]" * per_channel
        fits = shape == () or (per_channel and shape == (channels,))
        check(fits, kernel, name, f"of shape {list(shape)}", wanted)


def _wanted(precision: Precision) -> str:
    return "a Quant" if precision.is_quantized else "None, as nothing is quantized"
