"""Mutants of REQUIRE rules."""

from __future__ import annotations

from mutation.changes import (
    change,
    condition,
    drop,
    exchange,
    forget,
    keyword,
    left,
    result,
    right,
    swap,
    unsigned,
    unwrap,
)
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "checks/require/_common.py",
        "checks/test_require_elementwise.py checks/test_require_accumulators.py -k arithmetic or "
        "(mul_int32 and not many) or digits or rules or matmul or transpose_conv2d",
        {
            "flags": [change("jnp.any", "jnp.all")],
            "add_overflows": [
                change("8", "4"),
                change("DType.INT48.bits", "DType.INT48.bits + 1"),
                change("&", "|"),
                change("total", "b", 1),
            ],
            "sub_overflows": [change("&", "|"), change("a", "b", 1)],
            "has_lost_bits": [unwrap("jnp.abs"), change("-", "+"), change("31", "32")],
            "scale_estimate": [
                change("np.float32", "np.float16"),
                unsigned("-"),
                left("*", 0),
                change("shift", "shift - 1", 0),
            ],
            "outside": [left("-"), change("<", "<="), right("|"), left("|"), change(">=", ">")],
            "reach": [
                change("255", "256"),
                change("255", "128"),
                change("15", "14"),
                change("==", "!="),
            ],
            "widen": [change("-", "+"), left("-")],
            "sum_overflows": [
                change("9", "7"),
                change("is", "is not"),
                change("31", "32"),
                change("1", "2", 0),
                left("-", 2),
                left("+", 0),
                change("digit", "digit + 1", 4),
                left("-", 3),
                right("+", 0),
                change("-", "+", 1),
            ],
        },
    ),
    *mutants(
        "checks/require/activation.py",
        "checks/test_require_elementwise.py -k activation or clamp",
        {
            "clamp_require": [
                change("<=", "<"),
                condition("not _"),
                change("|", "&"),
                change("jnp.isnan", "jnp.isinf", 1),
            ],
        },
    ),
    *mutants(
        "checks/require/conv.py",
        "checks/test_require_accumulators.py -k conv or products",
        {
            "conv2d_require": [swap("_Window", places=(1, 2)), change("weight_zp", "input_zp")],
            "depthwise_conv2d_require": [change("weight_zp", "-weight_zp"), change("2", "3")],
            "transpose_conv2d_require": [
                left("-"),
                change("+", "-"),
                drop("stride"),
                change("kernel", "(1, 1)", 0),
            ],
            "_sum_flags": [
                change("bias", "-bias", 1),
                left("*", 1),
                change("gain", "1", 1),
                unwrap("jnp.abs"),
                right("//", 0),
                unwrap("jnp.maximum"),
                unwrap("jnp.maximum", argument=1),
                change("jnp.any", "jnp.all"),
                left("//", 1),
            ],
            "_sums": [
                change("window.dilation", "window.stride"),
                left("-", 2),
                change("0", "-1", 1),
                change("+", "-", 1),
            ],
            "_by_channel": [change("products", "jnp.swapaxes(products, -1, -2)")],
            "_padded": [left("-", 1), exchange("low", "high", 0)],
        },
    ),
    *mutants(
        "checks/require/elementwise_binary.py",
        "checks/test_require_elementwise.py -k not clamp and not abs and not negate",
        {
            "add_require": [change("add_overflows", "sub_overflows"), keyword("flags", "r1", "r2")],
            "sub_require": [swap("sub_overflows"), change("==", "!=")],
            "arithmetic_right_shift_require": [forget("arithmetic_right_shift_require")],
            "logical_right_shift_require": [change("logical_left_shift_require", "add_require")],
            "intdiv_require": [
                change("&", "|"),
                unsigned("-"),
                change("np.iinfo(np.int32).min", "np.iinfo(np.int32).max"),
            ],
            "mul_require": [left("&", 0), right("&", 0), right("&", 1)],
            "pow_require": [left("|"), right("|"), unsigned("~")],
            "table_require": [change("!=", "=="), change("32768", "32767"), change("7", "8")],
        },
    ),
    *mutants(
        "checks/elementwise_binary.py",
        "checks/test_require_elementwise.py validation/test_constants.py -k not clamp and not abs "
        "and not negate",
        {
            "shift_values": [change("8", "16"), change("0", "1")],
            "intdiv_values": [change("==", "<=")],
            "mul_values": [change("63", "62"), change("!=", "==", 0), change("!=", ">", 1)],
            "pow_values": [left("|"), right("|"), unsigned("-"), unsigned("~")],
            "table_undefined": [left("and", 0), change("is_steep(c.table.values, np).all", "any")],
            "is_steep": [left("|"), right("|"), change(">=", ">"), change("<", "<=")],
            "is_positive": [change(">", ">="), left("&"), result("value > 0")],
        },
    ),
    *mutants(
        "checks/require/elementwise_unary.py",
        "checks/test_require_elementwise.py -k unary or abs or negate",
        {
            "_MINIMUM": [
                change("np.iinfo(np.int32).min", "np.iinfo(np.int32).max"),
                change("np.iinfo(np.int32).min", "np.iinfo(np.int32).min + 1"),
            ],
            "negate_require": [
                change("!=", "=="),
                change("-", "+"),
                left("-"),
                change("sub_overflows", "add_overflows"),
                change("value", "input1", 0),
                unsigned("-"),
                change("zero_out", "-zero_out"),
                exchange("zero_in", "zero_out"),
            ],
        },
    ),
    *mutants(
        "checks/require/products.py",
        "checks/test_require_accumulators.py -k matmul",
        {
            "matmul_require": [
                condition("not _", 0),
                left("*", 0),
                change("1", "2", 0),
                left("*", 1),
                change("gain", "gain * 2", 0),
                change("b_zp", "a_zp"),
                change("a_zp", "-a_zp"),
                change("wide_b", "-wide_b"),
                change("gain", "1", 1),
                change("out_type", "DType.INT32", 4),
                keyword("flags", "r1", "r2"),
            ],
        },
    ),
    *mutants(
        "checks/require/pool.py",
        "checks/test_require_accumulators.py -k pool",
        {
            "avg_pool2d_require": [
                condition("not _", 0),
                change("min", "max", 0),
                unwrap("min", argument=1, at=1),
                left("*", 1),
                change("acc_type.maximum", "2 * acc_type.maximum"),
                change("stride", "stride[::-1]"),
                change("lax.add", "lax.max"),
                change("input_zp", "output_zp"),
                change("count", "1", 1),
                change("16", "8"),
                exchange("top", "bottom", 0),
                exchange("left", "right", 0),
            ],
        },
    ),
    *mutants(
        "checks/require/reduction.py",
        "checks/test_require_accumulators.py -k reduc",
        {
            "reduce_sum_require": [
                change("or", "and"),
                left("or"),
                change("axis", "-1", 0),
                result("jnp.max(values, axis)", 1),
                change("axis", "0", 1),
                change("length", "1", 1),
                change("32", "16"),
                change("1", "2"),
            ],
        },
    ),
    *mutants(
        "checks/scatter_gather.py",
        "checks/test_require_values.py validation/test_constants.py -k scatter or gather or indic",
        {
            "gather_values": [change("1", "0")],
            "scatter_values": [
                change("1", "0", 1),
                left("&", 0),
                left("&", 1),
                right("&", 1),
                change("<", "<="),
                change(">=", ">"),
            ],
            "scatter_undefined": [change(">", ">=", 0)],
        },
    ),
    *mutants(
        "checks/require/type_conversion.py",
        "checks/test_require_values.py -k conversion or cast or rescale",
        {
            "rescale_require": [
                swap("+"),
                change("|", "&"),
                change("input_unsigned", "output_unsigned", 1),
                change("-", "+", 1),
                change("32", "31"),
                left("-", 2),
                left("&", 1),
                right("&", 0),
                change(">=", ">"),
                right("&", 2),
                change("zero_out", "-zero_out"),
                change("'r4'", "'r5'"),
            ],
            "_extend": [condition("not _")],
        },
    ),
]
