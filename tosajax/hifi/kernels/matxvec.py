"""Matrix times vector, and its variants ("Matrix X Vector Multiplication Kernels", guide 3.1).

In fixed point, sums are exact; the bias is shifted by bias_shift and added, the total is shifted by
acc_shift, rounded half away from zero and saturated; 64-bit results are floored. Quantized sums are
scaled with two roundings, as in TFLite.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.hifi.kernels._check import check, check_array, check_in, check_multiple, check_range
from tosajax.hifi.kernels._narrow import Wide
from tosajax.hifi.kernels._precision import (
    PRECISIONS,
    Array,
    Precision,
    Quant,
    Shift,
    check_outputs,
    check_parameters,
)
from tosajax.hifi.kernels._sums import added, dot, finish
from tosajax.hifi.kernels.activations import ActivationCoefficients, sigmoid, tanh
from tosajax.ops.recording import recorded_as

MATXVEC = (
    "16x16_16",
    "16x16_32",
    "16x16_64",
    "8x16_16",
    "8x16_32",
    "8x16_64",
    "8x8_8",
    "8x8_16",
    "8x8_32",
    "f32xf32_f32",
    "asym8uxasym8u_asym8u",
    "sym8sxasym8s_asym8s",
)
FUSED = ("16x16_16", "8x16_16", "8x8_8", "f32xf32_f32")
BATCH = ("16x16_64", "8x16_64", "8x8_32", "f32xf32_f32")
MATMUL = ("8x8_8", "asym8uxasym8u_asym8u", "per_chan_sym8sxasym8s_asym8s")
OUT_STRIDE = ("sym8sxasym8s_16",)


def matXvec(
    mat1: Array,
    vec1: Array,
    mat2: Array | None = None,
    vec2: Array | None = None,
    bias: Array | None = None,
    *,
    precision: str = "16x16_16",
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    quant: Quant | None = None,
) -> jax.Array:
    """Computes mat1 * vec1 + mat2 * vec2 + bias (xa_nn_matXvec_*, guide 3.1.1).

    Args:
      mat1: the matrix type of `precision`, [rows, cols1].
      vec1: the vector type, [cols1].
      mat2: the type of mat1, [rows, cols2]; both mat2 and vec2 are None for a single product.
      vec2: the type of vec1, [cols2].
      bias: [rows]; int16 for 16-bit vectors, int8 for 8-bit vectors, int32 quantized, or float32.
        None is legal for quantized and float kernels only.
      precision: matrix x vector _ output, one of MATXVEC.
      acc_shift: shift of the sum, bits in [-31, 31], positive to the left; fixed point only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.
      quant: for quantized precisions.

    Returns:
      The output type of `precision`, [rows].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> weight, x = np.ones((1, 4), np.int16), np.int16([1, 2, 3, 4])
      >>> kernels.matXvec(weight, x, bias=np.int16([10])).tolist()
      [20]
    """
    name = f"matXvec {precision}"
    check_in(name, "precision", precision, MATXVEC)
    types = PRECISIONS[precision]
    rows = _check_operands(name, types, mat1, vec1, mat2, vec2)
    needs_bias = not (types.is_quantized or types.is_float)
    numbers = acc_shift, bias_shift, quant
    check_outputs(name, precision, bias, rows, *numbers, needs_bias=needs_bias)
    acc = _sums(mat1, vec1, mat2, vec2, quant)
    return finish(acc, bias, types, acc_shift, bias_shift, quant)[0]


def matXvec_fused(
    mat1: Array,
    vec1: Array,
    mat2: Array | None = None,
    vec2: Array | None = None,
    bias: Array | None = None,
    *,
    function: str,
    precision: str = "16x16_16",
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    activation: str | ActivationCoefficients = "fixed",
) -> jax.Array:
    """Computes `matXvec` in Q6.25, then an activation (guide 3.1.2).

    These are the library's functions xa_nn_matXvec_*_tanh and xa_nn_matXvec_*_sigmoid.

    Args:
      mat1: the matrix type of `precision`, [rows, cols1].
      vec1: the vector type, [cols1].
      mat2: the type of mat1, [rows, cols2]; both mat2 and vec2 are None for a single product.
      vec2: the type of vec1, [cols2].
      bias: [rows]; int16 or int64 for 16-bit vectors, int8 or int32 for 8-bit vectors, or float32.
      function: "tanh" or "sigmoid".
      precision: matrix x vector _ output, one of FUSED.
      acc_shift: shift from the sum to Q6.25, bits in [-31, 31], positive to the left; fixed point
        only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.
      activation: the method of computing fixed-point activations; see `kernels.activations`.

    Returns:
      int16 in Q15, int8 in Q7, or float32; [rows].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> weight, x = np.ones((1, 4), np.int16), np.zeros(4, np.int16)
      >>> kernels.matXvec_fused(weight, x, bias=np.int16([0]), function="tanh").tolist()
      [0]
    """
    name = f"matXvec {precision} {function}"
    check_in(name, "precision", precision, FUSED)
    check_in(name, "function", function, ("tanh", "sigmoid"))
    apply = tanh if function == "tanh" else sigmoid
    types = PRECISIONS[precision]
    rows = _check_operands(name, types, mat1, vec1, mat2, vec2)
    wide = np.int32 if types.bias is np.int8 else np.int64
    is_wide = not types.is_float and getattr(bias, "dtype", None) == wide
    check_array(name, "p_bias", bias, wide if is_wide else types.bias, (rows,))
    check_parameters(name, types, rows, acc_shift=acc_shift, bias_shift=bias_shift)
    acc = _sums(mat1, vec1, mat2, vec2, None)
    if types.is_float:
        total = finish(acc, bias, types, acc_shift, bias_shift, None)[0]
        return apply(total, precision="f32_f32", activation=activation)
    total = finish(acc, bias, types._replace(out=np.int32), acc_shift, bias_shift, None)[0]
    bits = np.iinfo(types.out).bits
    return apply(total, precision=f"32_{bits}", activation=activation)


def matXvec_batch(
    mat1: Array,
    vec1: Array,
    bias: Array,
    *,
    precision: str = "16x16_64",
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
) -> jax.Array:
    """Computes mat1 * vector + bias for each vector (xa_nn_matXvec_batch_*, guide 3.1.3).

    Args:
      mat1: the matrix type of `precision`, [rows, cols1]; cols1 is a multiple of 4, or of 2 for
        floats.
      vec1: the vector type, [vec_count, cols1].
      bias: [rows]; int16 for 16-bit vectors, int8 for 8-bit vectors, or float32.
      precision: matrix x vector _ output, one of BATCH.
      acc_shift: shift of the sum, bits in [-31, 31], positive to the left; fixed point only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.

    Returns:
      The output type of `precision`, [vec_count, rows].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> weight, x = np.ones((1, 4), np.float32), np.float32([[1, 2, 3, 4], [5, 6, 7, 8]])
      >>> kernels.matXvec_batch(weight, x, np.float32([10]), precision="f32xf32_f32").tolist()
      [[20.0], [36.0]]
    """
    name = f"matXvec_batch {precision}"
    check_in(name, "precision", precision, BATCH)
    types = PRECISIONS[precision]
    check_array(name, "p_mat1", mat1, types.weight, (-1, -1))
    rows, cols = mat1.shape
    check_multiple(name, "cols1", cols, 2 if types.is_float else 4)
    check_array(name, "p_vec1", vec1, types.input, (-1, cols))
    check_outputs(name, precision, bias, rows, acc_shift, bias_shift, None)
    return finish(dot(mat1, vec1), bias, types, acc_shift, bias_shift, None)


@recorded_as("hifi.kernels.matmul")
def matmul(
    mat1: Array,
    mat2: Array,
    bias: Array | None = None,
    *,
    precision: str = "8x8_8",
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    quant: Quant | None = None,
) -> jax.Array:
    """Computes mat1 * mat2 + bias, with a bias for each row (xa_nn_matmul_*, guide 3.1.4).

    Args:
      mat1: the matrix type of `precision`, [rows, cols].
      mat2: the vector type, [cols, vec_count]; the library stores it column-major.
      bias: [rows]; int8, or for quantized precisions int32 or None.
      precision: one of MATMUL; per_chan_* has a multiplier and a shift for each row.
      acc_shift: shift of the sum, bits in [-31, 31], positive to the left; fixed point only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.
      quant: for quantized precisions.

    Returns:
      The output type of `precision`, [rows, vec_count].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> a, b = np.int8([[1, 2, 3, 4]]), np.int8([[1, 0], [1, 0], [1, 0], [1, 1]])
      >>> kernels.matmul(a, b, np.int8([10])).tolist()
      [[20, 14]]
    """
    name = f"matmul {precision}"
    check_in(name, "precision", precision, MATMUL)
    types = PRECISIONS[precision]
    check_array(name, "p_mat1", mat1, types.weight, (-1, -1))
    rows, cols = mat1.shape
    check_array(name, "p_mat2", mat2, types.input, (cols, -1))
    numbers = acc_shift, bias_shift, quant
    check_outputs(name, precision, bias, rows, *numbers, needs_bias=not types.is_quantized)
    acc = dot(mat1, jnp.asarray(mat2).T, quant)
    return finish(acc, bias, types, acc_shift, bias_shift, quant).T


def matXvec_out_stride(
    mat1: Array,
    vec1: Array,
    bias: Array | None = None,
    *,
    precision: str = "sym8sxasym8s_16",
    quant: Quant,
) -> jax.Array:
    """Computes mat1 * vec1 + bias, scaled to int16 (xa_nn_matXvec_out_stride_*, guide 3.1.5).

    The library's out_stride determines where it stores results, and does not affect values.

    Args:
      mat1: int8, [rows, cols1].
      vec1: int8, [cols1].
      bias: int32, [rows], or None.
      precision: the only one of OUT_STRIDE.
      quant: the zero bias of the output must be 0.

    Returns:
      int16, [rows].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> quant = kernels.Quant(0, 0, 2**30, 1, 0)
      >>> weight, x = np.ones((1, 4), np.int8), np.int8([1, 2, 3, 4])
      >>> kernels.matXvec_out_stride(weight, x, quant=quant).tolist()
      [10]
    """
    name = f"matXvec_out_stride {precision}"
    check_in(name, "precision", precision, OUT_STRIDE)
    types = PRECISIONS[precision]
    rows = _check_operands(name, types, mat1, vec1)
    check_outputs(name, precision, bias, rows, 0, 0, quant, needs_bias=False)
    check_range(name, "out_zero_bias", quant.out_zero_bias, 0, 0)
    return finish(dot(mat1, vec1[None], quant), bias, types, 0, 0, quant)[0]


def _check_operands(
    name: str,
    types: Precision,
    mat1: Array,
    vec1: Array,
    mat2: Array | None = None,
    vec2: Array | None = None,
) -> int:
    """Checks one or two matrices and vectors; returns the number of rows."""
    check_array(name, "p_mat1", mat1, types.weight, (-1, -1))
    rows, cols = mat1.shape
    check_array(name, "p_vec1", vec1, types.input, (cols,))
    if mat2 is None:
        check(vec2 is None, name, "p_mat2", "missing", "an array, as vec2 is one")
        return rows
    check_array(name, "p_mat2", mat2, types.weight, (rows, -1))
    check_array(name, "p_vec2", vec2, types.input, mat2.shape[1:])
    return rows


def _sums(
    mat1: Array, vec1: Array, mat2: Array | None, vec2: Array | None, quant: Quant | None
) -> jax.Array | Wide:
    """Computes the sum of one or two products, [1, rows]."""
    first = dot(mat1, vec1[None], quant)
    if mat2 is None or vec2 is None:
        return first
    if quant is not None:
        quant = quant._replace(
            weight_zero_bias=quant.weight2_zero_bias, input_zero_bias=quant.input2_zero_bias
        )
    second = dot(mat2, vec2[None], quant)
    return added(first, second)
