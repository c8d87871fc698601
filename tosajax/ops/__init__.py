"""Every TOSA operator as a plain function of JAX arrays, named as the operator in lower case.

Inputs are positional in the specification's order, attributes keyword-only. Shapes, attributes
and shape_t inputs are static; everything else may be traced. Nothing is checked here:
`tosajax.validate` does that for graphs.
"""

from __future__ import annotations

from tosajax.ops.activation import clamp, erf, sigmoid, tanh
from tosajax.ops.comparison import equal, greater, greater_equal
from tosajax.ops.control_flow import cond_if, while_loop
from tosajax.ops.conv import conv2d, conv3d, depthwise_conv2d, transpose_conv2d
from tosajax.ops.data_layout import concat, pad, reshape, reverse, slice, tile, transpose
from tosajax.ops.data_nodes import identity
from tosajax.ops.elementwise_binary import (
    add,
    arithmetic_right_shift,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    intdiv,
    logical_and,
    logical_left_shift,
    logical_or,
    logical_right_shift,
    logical_xor,
    maximum,
    minimum,
    mul,
    pow,
    sub,
    table,
)
from tosajax.ops.elementwise_ternary import select
from tosajax.ops.elementwise_unary import (
    abs,
    bitwise_not,
    ceil,
    clz,
    cos,
    exp,
    floor,
    log,
    logical_not,
    negate,
    reciprocal,
    rsqrt,
    sin,
)
from tosajax.ops.fft import fft2d, rfft2d
from tosajax.ops.image import resize
from tosajax.ops.indices import argmax
from tosajax.ops.pool import avg_pool2d, max_pool2d
from tosajax.ops.products import matmul, matmul_t
from tosajax.ops.reduction import (
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_product,
    reduce_sum,
)
from tosajax.ops.scatter_gather import gather, scatter
from tosajax.ops.type_conversion import cast, rescale

__all__ = [
    "abs",
    "add",
    "argmax",
    "arithmetic_right_shift",
    "avg_pool2d",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cast",
    "ceil",
    "clamp",
    "clz",
    "concat",
    "cond_if",
    "conv2d",
    "conv3d",
    "cos",
    "depthwise_conv2d",
    "equal",
    "erf",
    "exp",
    "fft2d",
    "floor",
    "gather",
    "greater",
    "greater_equal",
    "identity",
    "intdiv",
    "log",
    "logical_and",
    "logical_left_shift",
    "logical_not",
    "logical_or",
    "logical_right_shift",
    "logical_xor",
    "matmul",
    "matmul_t",
    "max_pool2d",
    "maximum",
    "minimum",
    "mul",
    "negate",
    "pad",
    "pow",
    "reciprocal",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_min",
    "reduce_product",
    "reduce_sum",
    "rescale",
    "reshape",
    "resize",
    "reverse",
    "rfft2d",
    "rsqrt",
    "scatter",
    "select",
    "sigmoid",
    "sin",
    "slice",
    "sub",
    "table",
    "tanh",
    "tile",
    "transpose",
    "transpose_conv2d",
    "while_loop",
]


def __dir__() -> list[str]:
    return __all__
