"""Mutants of comparisons, and of the scales of other programs."""

from __future__ import annotations

from mutation.changes import change, condition, right, skip
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "io/stored.py",
        "compare/test_etrecord_scales.py",
        {
            "Stored.quantization": [change("-", "+", 1)],
        },
    ),
    *mutants(
        "compare/comparison.py",
        "compare/test_compare.py",
        {
            "Comparison.table": [change(">", ">="), condition("not _", 6)],
        },
    ),
    *mutants(
        "compare/etrecord.py",
        "compare/test_etrecord_scales.py",
        {
            "_entries": [skip("raise", 2)],
            "_value": [change("==", "!=")],
        },
    ),
    *mutants(
        "compare/etrecord_scales.py",
        "compare/test_etrecord_scales.py",
        {
            "scales_of_etrecord": [skip("raise", 1)],
        },
    ),
    *mutants(
        "compare/executorch_scales.py",
        "compare/test_executorch_scales.py",
        {
            "_scales": [right("and")],
            "_checked_item": [change("<", "<=")],
        },
    ),
    *mutants(
        "compare/model_scales.py",
        "compare/test_etrecord_scales.py",
        {
            "scales_of_model": [condition("not _", 0)],
        },
    ),
    *mutants(
        "compare/pairs.py",
        "compare/test_compare.py",
        {
            "Pairs.inputs": [change("*", "+")],
        },
    ),
    *mutants(
        "compare/rounding.py",
        "compare/test_rounding.py",
        {
            "RoundingTable.__repr__": [change("or", "and")],
            "RoundingTable.answer": [change("not in", "in")],
        },
    ),
    *mutants(
        "compare/stored.py",
        "compare/test_stored.py",
        {
            "_dtype": [change("==", "!=", 0)],
        },
    ),
    *mutants(
        "io/tflite/scales.py",
        "compare/test_tflite_scales.py",
        {
            "_quantization": [change("0", "1", 2)],
            "scales_of": [change("!=", "==")],
        },
    ),
    *mutants(
        "compare/tolerance.py",
        "compare/test_tolerance.py",
        {
            "_terms": [right("or")],
        },
    ),
]
