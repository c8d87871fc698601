"""Mutants of native kernels of elementwise operators."""

from __future__ import annotations

from mutation.changes import change, condition, left, right, unsigned, unwrap
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "native/codegen/integers.py",
        "native/test_elementwise_kernels.py",
        {
            "wrapped": [left(">>"), change("32", "31")],
            "unsigned": [condition("False")],
            "saturated": [left("-", 0), left("-", 2), condition("False", 1)],
            "rounded_shift": [left("+"), change("1", "2", 1)],
            "scale": [change("31", "30"), change("<", ">"), condition("False")],
            "scale_by_upper_words": [
                change("<", ">"),
                change("32", "33"),
                left("+", 1),
                left("-", 2),
            ],
            "looked_up": [left("+")],
            "interpolated": [left("+", 1), left("+", 2), left("-")],
            "shift_right": [unwrap("unsigned")],
            "arithmetic_shift": [left("-"), change(">", "<"), left("+")],
        },
    ),
    *mutants(
        "native/codegen/floats.py",
        "native/test_elementwise_kernels.py",
        {
            "bits_of_infinity": [change("0xFF", "0x7F")],
            "equal": [change("'oeq'", "'ueq'")],
        },
    ),
    *mutants(
        "native/codegen/transcendental.py",
        "native/test_elementwise_kernels.py",
        {
            "exponential": [left("+"), change("_LEAST", "_LARGEST"), change("math.inf", "0.0")],
            "_split": [unwrap("multiply", 0)],
            "sigmoid": [unwrap("floats.negate")],
            "tanh": [change("2.0", "1.0"), unwrap("floats.with_sign")],
            "erf": [unwrap("floats.with_sign"), unwrap("floats.negate")],
            "_power_of_two": [left("+")],
        },
    ),
    *mutants(
        "native/codegen/steps.py",
        "native/test_elementwise_kernels.py",
        {
            "Rescale.apply": [
                condition("False", 0),
                condition("False", 1),
                left("-"),
                left("+"),
            ],
            "identity": [condition("False", 1), left("-", 1)],
            "_cast": [condition("False", 2), unwrap("integers.wrapped")],
            "first_or": [change(">=", ">"), left("+")],
        },
    ),
    *mutants(
        "native/kernels/elementwise.py",
        "native/test_elementwise_kernels.py",
        {
            "_stages_of": [left("+", 0), right("and", 0), left("-", 1), left("-", 2)],
            "_Item.write": [left("-", 0), unwrap("(row * plan['length']).smin", argument=0)],
            "_Row._prepare": [left("*", 0), condition("False", 0)],
            "_Row.write": [condition("False"), left("+")],
            "_Row._compute": [condition("False", 1), condition("False", 3)],
            "_Row._reduced": [change("^", "|"), condition("False", 0)],
            "_Row.kept": [left("+")],
            "_Row._store": [left("*", 1)],
        },
    ),
    *mutants(
        "native/kernels/elementwise.py",
        "native/test_resize.py",
        {
            "_Sample.__init__": [
                left("//", 0),
                left("%", 0),
                left("%", 1),
                left("+"),
                left("*", 1),
            ],
            "_Sample.value": [left("+", 0), left("+", 1), left("+", 2), condition("False")],
            "_Sample._mixed": [condition("False", 1), left("+")],
        },
    ),
    *mutants(
        "native/elementwise.py",
        "native/test_resize.py",
        {
            "grid_of": [condition("False", 0), condition("False", 1), left("-", 0), left("-", 1)],
        },
    ),
    *mutants(
        "native/elementwise.py",
        "native/test_elementwise_kernels.py",
        {
            "_plan": [condition("True", 0), left("%"), left("*", 1)],
            "_words": [condition("False")],
            "compute": [condition("False", 0)],
        },
    ),
    *mutants(
        "lowering/fusions/elementwise.py",
        "lowering/test_elementwise_fusions.py",
        {
            "Elementwise.shape": [condition("False")],
            "_Finder.find": [left("or", 0), right("or", 0)],
            "_Finder._from": [left("and", 0), right("and", 0), left("or"), right("or"), left("-")],
            "_Finder._joins": [left("or"), right("or"), left("and"), right("and")],
            "_Finder._is_worth": [condition("False", 1), left("and"), left("*"), left("or", 1)],
            "_Finder._is_step": [condition("False", 1), left("and", 0), condition("False", 3)],
            "_has_step": [condition("False", 1), condition("False", 2)],
            "_kind": [condition("False", 0), condition("False", 1), condition("False", 2)],
            "_needs": [condition("False"), left("or"), right("or"), right("and")],
            "_shifts": [left("and"), right("or")],
            "_is_multiple": [unsigned("not")],
        },
    ),
]
