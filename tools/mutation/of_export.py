"""Mutants of `export`: the walk, the notes of a graph's names, tidying and checks."""

from __future__ import annotations

from mutation.changes import change, condition, left, right, skip, unsigned
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "from_jax/tidy/views.py",
        "from_jax/tidy/test_views.py",
        {
            "_Late._are_alike": [left("or"), change("!=", "=="), change("==", "!=")],
            "_Late._elementwise": [change("is", "is not", 1)],
            "_Late._along": [change("is not", "is"), change("in", "not in", 1)],
            "_keeps_order": [change("1", "0"), change("==", "!=")],
            "_moved_back": [change("1", "2", 0), condition("False", 2)],
            "_Late.finished": [left("or")],
        },
    ),
    *mutants(
        "from_jax/tidy/biases.py",
        "from_jax/tidy/test_biases.py",
        {
            "with_biases": [left("or", 0), change("1", "2", 0)],
            "_conv_and_bias": [left("or", 0), unsigned("not")],
            "_bias": [condition("False")],
        },
    ),
    *mutants(
        "from_jax/tidy/padding.py",
        "from_jax/tidy/test_padding.py",
        {
            "_padding": [condition("False", 0), condition("False", 2), change("<=", ">")],
        },
    ),
    *mutants(
        "from_jax/tidy/clamps.py",
        "from_jax/tidy/test_clamps.py",
        {
            "joined": [change("==", "!="), change("min()", "max(max(bound, low), high)")],
        },
    ),
    *mutants(
        "from_jax/tidy/factors.py",
        "from_jax/tidy/test_factors.py",
        {
            "with_single_factors": [change("1", "2")],
            "_joined": [left("or"), right("or"), change("*", "+")],
            "_is_nothing": [right("and", 0), left("and", 0)],
        },
    ),
    *mutants(
        "from_jax/dynamic.py",
        "from_jax/test_dynamic.py",
        {
            "merged": [condition("False", 0), condition("False", 1)],
            "_merged_constant": [left("or"), change(">", "<")],
        },
    ),
    *mutants(
        "from_jax/checking.py",
        "from_jax/test_checking.py",
        {
            "agreement": [condition("False", 1)],
            "_difference": [condition("False", 1), skip("raise", 1), change(">", "<")],
            "_mantissa": [change("min()", "0")],
        },
    ),
    *mutants(
        "from_jax/names.py",
        "from_jax/test_export.py",
        {"with_room": [left("and"), right("and")]},
    ),
    *mutants(
        "from_jax/scope.py",
        "from_jax/test_export.py",
        {"Scope.node": [condition("False", 0)]},
    ),
]
