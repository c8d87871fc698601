"""Matrix times vector, and its variants (guide 3.1).

Pointers are aligned to elements, in the batch functions to 8 bytes. If p_mat2 or p_vec2 is NULL,
the second product is omitted, and its arguments are ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tosajax.hifi.capi._function import Arguments, Prototype
from tosajax.hifi.capi._plan import Operand, Plan, check_pointer, given, operand
from tosajax.hifi.capi._sums import SCALE, SCALES, SHIFTS, numbers_of
from tosajax.hifi.kernels import matxvec
from tosajax.hifi.kernels._check import check, check_multiple
from tosajax.hifi.kernels._precision import PRECISIONS, Precision

_PRODUCTS = "p_out p_mat1 p_mat2 p_vec1 p_vec2 p_bias rows cols1 cols2 row_stride1 row_stride2"
_MATMUL = "p_out p_mat1 p_mat2 p_bias rows cols row_stride"
_VECTORS = "vec_count vec_offset out_offset out_stride"
_BATCH = "p_out p_mat1 p_vec1 p_bias rows cols1 row_stride1"
_WEIGHT_BIASES, _VECTOR_BIASES = "mat1_zero_bias mat2_zero_bias", "vec1_zero_bias vec2_zero_bias"
_BATCH_ALIGNMENT = 8
# The bias type, by bias_precision and the bias type of the precision.
_WIDE_BIAS = {(64, np.int16): np.int64, (32, np.int8): np.int32}


def _matXvec(a: Arguments, precision: str) -> Plan:
    types = PRECISIONS[precision]
    products = _products(a, types, precision)
    numbers = numbers_of(a, types, a.rows, inp="vec1", weight="mat1")
    if types.is_quantized and "mat2" in products:
        quant = numbers["quant"]._replace(
            input2_zero_bias=a.vec2_zero_bias, weight2_zero_bias=getattr(a, "mat2_zero_bias", 0)
        )
        numbers = {"quant": quant}
    bias = operand(a, "p_bias", types.bias, (a.rows,))
    may_be_null = types.is_quantized or types.is_float
    biases = given(bias=bias) if may_be_null else {"bias": bias}
    return Plan(products | biases, [operand(a, "p_out", types.out, (a.rows,))], numbers)


def _fused(a: Arguments, precision: str) -> Plan:
    types = PRECISIONS[precision]
    # An unknown bias_precision means the precision of the vectors.
    bias = _WIDE_BIAS.get((getattr(a, "bias_precision", 0), types.bias), types.bias)
    check_pointer("p_scratch", a.p_scratch, 4)
    return Plan(
        _products(a, types, precision) | {"bias": operand(a, "p_bias", bias, (a.rows,))},
        [operand(a, "p_out", types.out, (a.rows,))],
        numbers_of(a, types, a.rows),
    )


def _batch(a: Arguments, precision: str) -> Plan:
    types = PRECISIONS[precision]
    check_multiple("", "row_stride1", a.row_stride1, 2 if types.is_float else 4)
    aligned = {"alignment": _BATCH_ALIGNMENT}
    vectors = {"by_row": True, **aligned}
    return Plan(
        {
            "mat1": _matrix(a, "p_mat1", types.weight, a.cols1, "row_stride1", **aligned),
            "vec1": operand(a, "p_vec1", types.input, (a.vec_count, a.cols1), **vectors),
            "bias": operand(a, "p_bias", types.bias, (a.rows,), **aligned),
        },
        [operand(a, "p_out", types.out, (a.vec_count, a.rows), **vectors)],
        numbers_of(a, types, a.rows),
    )


def _matmul(a: Arguments, precision: str) -> Plan:
    types = PRECISIONS[precision]
    for name in ("vec_offset", "out_offset", "out_stride"):
        check(getattr(a, name) != 0, "", name, 0, "another number")
    columns, out = (1, a.vec_offset), (a.out_stride, a.out_offset)
    bias = operand(a, "p_bias", types.bias, (a.rows,))
    return Plan(
        {
            "mat1": _matrix(a, "p_mat1", types.weight, a.cols, "row_stride"),
            "mat2": operand(a, "p_mat2", types.input, (a.cols, a.vec_count), strides=columns),
            **(given(bias=bias) if types.is_quantized else {"bias": bias}),
        },
        [operand(a, "p_out", types.out, (a.rows, a.vec_count), strides=out)],
        numbers_of(a, types, a.rows, inp="vec1", weight="mat1"),
    )


def _out_stride(a: Arguments, precision: str) -> Plan:
    types = PRECISIONS[precision]
    return Plan(
        {
            "mat1": _matrix(a, "p_mat1", types.weight, a.cols1, "row_stride1"),
            "vec1": operand(a, "p_vec1", types.input, (a.cols1,)),
            **given(bias=operand(a, "p_bias", types.bias, (a.rows,))),
        },
        [operand(a, "p_out", types.out, (a.rows,), strides=(a.out_stride,))],
        numbers_of(a, types, a.rows, inp="vec1"),
    )


def _products(a: Arguments, types: Precision, precision: str) -> dict[str, Operand]:
    """The operands of one or two products."""
    first = {
        "mat1": _matrix(a, "p_mat1", types.weight, a.cols1, "row_stride1"),
        "vec1": operand(a, "p_vec1", types.input, (a.cols1,)),
    }
    if precision.startswith("asym8u") and a.p_mat2 is not None:
        check_pointer("p_vec2", a.p_vec2, 1)
    if a.p_mat2 is None or a.p_vec2 is None:
        return first
    return first | {
        "mat2": _matrix(a, "p_mat2", types.weight, a.cols2, "row_stride2"),
        "vec2": operand(a, "p_vec2", types.input, (a.cols2,)),
    }


def _matrix(
    a: Arguments, argument: str, dtype: type, cols: int, stride: str, **more: Any
) -> Operand:
    """Makes the operand of a matrix of a.rows rows; the argument `stride` has the row stride."""
    row_stride = getattr(a, stride)
    check(row_stride >= cols, "", stride, row_stride, f"at least the columns, {cols}")
    return operand(a, argument, dtype, (a.rows, cols), strides=(row_stride, 1), **more)


PROTOTYPES = (
    *(
        Prototype("xa_nn_matXvec_{}", f"{_PRODUCTS} {numbers}", _matXvec, precisions)
        for numbers, precisions in (
            (SHIFTS, matxvec.MATXVEC[:9]),
            ("", ("f32xf32_f32",)),
            (f"{_WEIGHT_BIASES} {_VECTOR_BIASES} {SCALE}", ("asym8uxasym8u_asym8u",)),
            (f"{_VECTOR_BIASES} {SCALE}", ("sym8sxasym8s_asym8s",)),
        )
    ),
    *(
        Prototype(f"xa_nn_matXvec_{{}}_{function}", f"{_PRODUCTS} {rest}", _fused, precisions)
        for function in ("tanh", "sigmoid")
        for rest, precisions in (
            (f"{SHIFTS} bias_precision p_scratch", matxvec.FUSED[:3]),
            ("p_scratch", matxvec.FUSED[3:]),
        )
    ),
    *(
        Prototype("xa_nn_matXvec_batch_{}", f"{_BATCH} {numbers} vec_count", _batch, precisions)
        for numbers, precisions in ((SHIFTS, matxvec.BATCH[:3]), ("", matxvec.BATCH[3:]))
    ),
    *(
        Prototype("xa_nn_matmul_{}", f"{_MATMUL} {numbers}", _matmul, precisions)
        for numbers, precisions in (
            (f"{SHIFTS} {_VECTORS}", matxvec.MATMUL[:1]),
            (f"{_VECTORS} mat1_zero_bias vec1_zero_bias {SCALE}", matxvec.MATMUL[1:2]),
            (f"{_VECTORS} vec1_zero_bias {SCALES}", matxvec.MATMUL[2:]),
        )
    ),
    Prototype(
        "xa_nn_matXvec_out_stride_{}",
        f"{_BATCH} out_stride vec1_zero_bias out_multiplier out_shift",
        _out_stride,
        matxvec.OUT_STRIDE,
    ),
)
