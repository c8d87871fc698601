"""Elementwise quantization, addition and multiplication as TOSA graphs."""

from __future__ import annotations

from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Tensor
from tosajax.hifi import kernels
from tosajax.hifi.to_tosa._nodes import (
    HALF_Q31,
    check,
    clamp,
    filled,
    multiply,
    rescale,
)
from tosajax.report import UnsupportedError

_SIGNED = "asym8sxasym8s_asym8s"


def elm_quantize(
    b: Builder,
    inp: Tensor,
    *,
    precision: str = "asym16s_asym8s",
    inp_zero_bias: int,
    out_zero_bias: int,
    out_shift: int,
    out_multiplier: int,
) -> Tensor:
    """Adds xa_nn_elm_quantize_asym16s_asym8s, as RESCALE.

    Args:
      b: the Builder to which nodes are added.
      inp: INT16, any shape.
      precision: "asym16s_asym8s".
      inp_zero_bias: the zero point of the input; CAST and SUB subtract it if it is not 0.
      out_zero_bias: the zero point of the output.
      out_shift: bits in [-31, 29], positive to the left.
      out_multiplier: Q31, above 0.

    Returns:
      INT8, the shape of `inp`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import to_tosa
      >>> x = jax.ShapeDtypeStruct((4,), np.int16)
      >>> half = {"out_multiplier": 2**30, "out_shift": 0}
      >>> zeros = {"inp_zero_bias": 0, "out_zero_bias": 3}
      >>> to_tosa.to_graph(to_tosa.elm_quantize, x, **zeros, **half)
      Graph('main', (inp: INT16[4]) -> (rescale_5: INT8[4]), 5 nodes)
    """
    out = {"out_shift": out_shift, "out_multiplier": out_multiplier}
    zero_biases = {"inp_zero_bias": inp_zero_bias, "out_zero_bias": out_zero_bias}
    precisions = ("asym16s_asym8s",)
    check(kernels.elm_quantize, precisions, (), b, inp, precision=precision, **out, **zero_biases)
    if inp_zero_bias:
        # The zero point of signed INT16 inputs of RESCALE must be 0.
        wide = b.op("CAST", inp, dtype=DType.INT32)
        inp = b.op("SUB", wide, filled(b, inp_zero_bias, wide))
    return rescale(b, inp, out_multiplier, out_shift, DType.INT8, output_zp=out_zero_bias)


def elm_add(
    b: Builder,
    inp1: Tensor,
    inp2: Tensor,
    *,
    precision: str = _SIGNED,
    out_zero_bias: int,
    out_shift: int,
    out_multiplier: int,
    out_activation_min: int,
    out_activation_max: int,
    inp1_zero_bias: int,
    inp1_shift: int,
    inp1_multiplier: int,
    inp2_zero_bias: int,
    inp2_shift: int,
    inp2_multiplier: int,
    left_shift: int,
) -> Tensor:
    """Adds xa_nn_elm_add_asym8sxasym8s_asym8s, as RESCALE, ADD and CLAMP.

    Args:
      b: the Builder to which nodes are added.
      inp1: INT8, any shape.
      inp2: INT8, the shape of `inp1`.
      precision: "asym8sxasym8s_asym8s".
      out_zero_bias: the zero point of the output.
      out_shift: bits in [-31, 29], positive to the left.
      out_multiplier: Q31, above 0.
      out_activation_min: the smallest result.
      out_activation_max: the largest result, above out_activation_min.
      inp1_zero_bias: minus a zero point.
      inp1_shift: shift of the first input; see out_shift.
      inp1_multiplier: multiplier of the first input; see out_multiplier.
      inp2_zero_bias: see inp1_zero_bias.
      inp2_shift: shift of the second input; see out_shift.
      inp2_multiplier: multiplier of the second input; see out_multiplier.
      left_shift: left shift of both inputs before scaling; bits, at most 21. TFLite uses 20.

    Returns:
      INT8, the shape of `inp1`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import to_tosa
      >>> x = jax.ShapeDtypeStruct((4,), np.int8)
      >>> scales = {f"{name}_multiplier": 2**30 for name in ("inp1", "inp2", "out")}
      >>> shifts = {"inp1_shift": 1, "inp2_shift": 1, "out_shift": -19, "left_shift": 20}
      >>> zeros = {f"{name}_zero_bias": 0 for name in ("inp1", "inp2", "out")}
      >>> limits = {"out_activation_min": -128, "out_activation_max": 127}
      >>> to_tosa.to_graph(to_tosa.elm_add, x, x, **scales, **shifts, **zeros, **limits)
      Graph('main', (inp1: INT8[4], inp2: INT8[4]) -> (clamp_28: INT8[4]), 27 nodes)
    """
    out = {"out_zero_bias": out_zero_bias, "out_shift": out_shift, "out_multiplier": out_multiplier}
    bounds = {"out_activation_min": out_activation_min, "out_activation_max": out_activation_max}
    check(
        kernels.elm_add,
        (_SIGNED,),
        (),
        b,
        inp1,
        inp2,
        precision=precision,
        **out,
        **bounds,
        inp1_zero_bias=inp1_zero_bias,
        inp1_shift=inp1_shift,
        inp1_multiplier=inp1_multiplier,
        inp2_zero_bias=inp2_zero_bias,
        inp2_shift=inp2_shift,
        inp2_multiplier=inp2_multiplier,
        left_shift=left_shift,
    )
    if left_shift > 21:
        # Values have 9 bits, for which RESCALE needs a shift of at least 9.
        raise UnsupportedError(f"elm_add: left_shift is {left_shift}, expected at most 21")
    scaled = []
    for inp, zero_bias, multiplier, shift in (
        (inp1, inp1_zero_bias, inp1_multiplier, inp1_shift),
        (inp2, inp2_zero_bias, inp2_multiplier, inp2_shift),
    ):
        # Shifts and scales separately, because scaling rounds at a bit of the shifted value.
        shifted = _centred(b, inp, zero_bias, left_shift)
        scaled.append(rescale(b, shifted, multiplier, shift, DType.INT32))
    return _finish_elementwise(b, b.op("ADD", *scaled), out, bounds)


def elm_mul(
    b: Builder,
    inp1: Tensor,
    inp2: Tensor,
    *,
    precision: str = _SIGNED,
    out_zero_bias: int,
    out_shift: int,
    out_multiplier: int,
    out_activation_min: int,
    out_activation_max: int,
    inp1_zero_bias: int,
    inp2_zero_bias: int,
) -> Tensor:
    """Adds xa_nn_elm_mul_asym8sxasym8s_asym8s, as RESCALE, MUL and CLAMP.

    Args:
      b: the Builder to which nodes are added.
      inp1: INT8, any shape.
      inp2: INT8, the shape of `inp1`.
      precision: "asym8sxasym8s_asym8s".
      out_zero_bias: the zero point of the output.
      out_shift: bits in [-31, 29], positive to the left.
      out_multiplier: Q31, above 0.
      out_activation_min: the smallest result.
      out_activation_max: the largest result, above out_activation_min.
      inp1_zero_bias: minus a zero point.
      inp2_zero_bias: see inp1_zero_bias.

    Returns:
      INT8, the shape of `inp1`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import to_tosa
      >>> x = jax.ShapeDtypeStruct((4,), np.int8)
      >>> zeros = {f"{name}_zero_bias": 0 for name in ("inp1", "inp2", "out")}
      >>> out = {"out_multiplier": 2**30, "out_shift": -6}
      >>> limits = {"out_activation_min": -128, "out_activation_max": 127}
      >>> to_tosa.to_graph(to_tosa.elm_mul, x, x, **zeros, **out, **limits)
      Graph('main', (inp1: INT8[4], inp2: INT8[4]) -> (clamp_19: INT8[4]), 18 nodes)
    """
    out = {"out_zero_bias": out_zero_bias, "out_shift": out_shift, "out_multiplier": out_multiplier}
    bounds = {"out_activation_min": out_activation_min, "out_activation_max": out_activation_max}
    check(
        kernels.elm_mul,
        (_SIGNED,),
        (),
        b,
        inp1,
        inp2,
        precision=precision,
        **out,
        **bounds,
        inp1_zero_bias=inp1_zero_bias,
        inp2_zero_bias=inp2_zero_bias,
    )
    first, second = _centred(b, inp1, inp1_zero_bias), _centred(b, inp2, inp2_zero_bias)
    return _finish_elementwise(b, multiply(b, first, second), out, bounds)


def _centred(b: Builder, x: Tensor, zero_bias: int, left_shift: int = 0) -> Tensor:
    """Computes (x + zero_bias) * 2**left_shift for INT8 x, as INT32."""
    return rescale(b, x, HALF_Q31, 1 + left_shift, DType.INT32, input_zp=-int(zero_bias))


def _finish_elementwise(
    b: Builder, x: Tensor, out: dict[str, int], bounds: dict[str, int]
) -> Tensor:
    multiplier, shift = out["out_multiplier"], out["out_shift"]
    scaled = rescale(b, x, multiplier, shift, DType.INT8, output_zp=out["out_zero_bias"])
    return clamp(b, scaled, *bounds.values())
