"""Mutants of HiFi: arithmetic of its kernels and layers, scratch sizes, graphs of kernels."""

from __future__ import annotations

from mutation.changes import change, condition, left, right, skip, swap, unsigned, unwrap
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "hifi/kernels/_q15.py",
        "hifi/test_basic.py hifi/layers/test_gru.py hifi/layers/test_recurrent.py",
        {"multiply_floor": [change("15", "14"), unwrap("jnp.minimum")]},
    ),
    *mutants(
        "hifi/kernels/_q31.py",
        "hifi/test_activations.py",
        {
            "multiply_floor": [change("31", "30")],
            "multiply_add": [left("+", 0), change("30", "29"), left("+", 1)],
            "polynomial": [swap("multiply_add", places=(1, 2))],
            "reciprocal_of_one_plus": [change("_NEWTON_STEPS", "1"), unsigned("-")],
            "one_less": [change("31", "30")],
        },
    ),
    *mutants(
        "hifi/kernels/_gemmlowp.py",
        "hifi/test_activations.py -k asym or bytes or bit or logistic",
        {
            "logistic": [swap("-"), change("30", "29")],
            "exp_of_negative": [left("-", 2), change("!=", "=="), change("==", "!=")],
            "one_over_one_plus": [change("3", "2"), change("2", "1", 1), change("48", "47")],
            "_exp_within_quarter": [left("+", 0), change("3", "2"), change("8", "4")],
        },
    ),
    *mutants(
        "hifi/kernels/_geometry.py",
        "hifi/test_conv.py hifi/test_pool.py",
        {
            "check_window": [change("<=", "<"), change(">=", ">", 0)],
            "geometry_of": [left("-", 0), change("+", "-"), change("1", "0", 0)],
        },
    ),
    *mutants(
        "hifi/kernels/_sums.py",
        "hifi/test_matxvec.py",
        {
            "as_int8": [change("^", "&")],
            "zero_points": [swap("_zero_point", 0)],
            "finish_quantized": [left("+"), change("-", "+"), change("lax.clamp()", "scaled")],
            "finish": [condition("not _", 0)],
            "_zero_point": [change("128", "127"), left("-"), unsigned("-")],
        },
    ),
    *mutants(
        "hifi/kernels/pool.py",
        "hifi/test_pool.py",
        {
            "_extents": [left("-", 0), change("np.minimum", "np.maximum"), change("0", "1", 0)],
            "_reciprocals": [change("31", "30", 0), change("31", "30", 1), change("1", "2", 2)],
        },
    ),
    *mutants(
        "hifi/kernels/activations.py",
        "hifi/test_activations.py",
        {
            "relu": [change("25", "24"), change("15", "14", 1), condition("False", 0)],
            "_exponential": [change("23", "22", 0), change("lax.abs()", "x")],
            "_sigmoid_q31": [change("<", ">")],
            "_tanh_q31": [unsigned("-"), left("-")],
            "_ideal": [left("+"), change("lax.clamp()", "value")],
            "_softmax_fixed": [change("31", "30", 0), left("&")],
            "_sigmoid_asym8u": [change("8", "7"), change("<", "<="), change(">", ">=")],
            "_softmax_quantized": [left("-", 0), change(">=", ">"), change("12", "11", 1)],
        },
    ),
    *mutants(
        "hifi/kernels/scratch.py",
        "hifi/test_names.py -k size or bounds",
        {
            "conv1d_std_getsize": [change("19", "18"), left("*", 0)],
            "extent": [change("max", "min"), left("-")],
            "_bound": [change("4", "2")],
        },
    ),
    *mutants(
        "hifi/kernels/_padding.py",
        "hifi/capi/test_memory.py -k sizes_of_memory",
        {"padded": [change("4", "8"), change("2", "4")], "round_up": [unsigned("-", 0)]},
    ),
    *mutants(
        "hifi/layers/_recurrent.py",
        "hifi/layers/test_recurrent.py",
        {
            "RecurrentConfig.acc_shift": [change("+", "-")],
            "RecurrentConfig.bias_shift": [left("-")],
            "RecurrentConfig._faults": [
                change("4", "2", 1),
                change("4", "8", 0),
                change("<=", "<", 3),
            ],
            "pre_activation": [swap("finish_fixed", places=(2, 3))],
        },
    ),
    *mutants(
        "hifi/layers/gru.py",
        "hifi/layers/test_gru.py hifi/layers/test_recurrent.py",
        {
            "mixed": [change("==", "!=")],
            "_step": [left("-"), change("reset", "h"), change(">>", "<<")],
        },
    ),
    *mutants(
        "hifi/layers/shape.py",
        "hifi/layers/test_cnn.py hifi/capi/test_cnn.py hifi/capi/test_every_layer.py",
        {
            "cube_dwh": [left("*"), condition("not _", 0)],
            "cube_whd": [left("*"), condition("not _", 0)],
            "matrix": [change("cols", "rows", 0)],
        },
    ),
    *mutants(
        "hifi/capi/_plan.py",
        "hifi/capi",
        {
            "check_pointer": [skip("check", 0), skip("check", 1), skip("check_memory")],
            "_packed": [left("+")],
        },
    ),
    *mutants(
        "hifi/capi/_sums.py",
        "hifi/capi/test_calls.py",
        {"numbers_of": [change("a.acc_shift", "a.bias_shift")]},
    ),
    *mutants(
        "hifi/capi/layers/_recurrent.py",
        "hifi/capi/test_recurrent.py hifi/capi/test_every_layer.py",
        {"_layout": [left("+")], "_scratch": [change("3", "2")], "_Layer._fits": [left("or")]},
    ),
    *mutants(
        "hifi/to_tosa/_nodes.py",
        "hifi/test_to_tosa.py",
        {
            "crop": [change("min", "max", 0), change("<", "<="), change("max()", "bottom", 0)],
            "rescale": [change("31", "30", 0), change("<", "<="), change(">", ">=", 0)],
            "filled": [left("*")],
        },
    ),
    *mutants(
        "hifi/kernels/_narrow.py",
        "hifi/test_narrow.py",
        {
            "multiply_floor": [change("30", "29", 0), left("+", 1), condition("True", 2)],
            "multiply_q31_half_away": [left("&"), change(">", ">=")],
            "saturating_add": [change(">=", "<", 0), change("+", "-", 0)],
            "_but_minima": [left("&"), right("&")],
            "products": [change(">", ">="), change("+", "-", 1)],
            "_shifted": [change("<", ">", 0), change(">>", "<<")],
            "_rounded": [change("31", "30"), change(">=", "<", 1), right("+", 2)],
            "_narrowed": [change("1", "2", 0), change("<", ">")],
            "_shifted_left": [condition("True"), change(">", "<")],
        },
    ),
]
