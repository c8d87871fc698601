"""Mutants of the command line."""

from __future__ import annotations

from mutation.changes import change, condition, left, skip
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "cli/__init__.py",
        "cli/test_interrupt.py",
        {
            "process": [skip(".flush")],
        },
    ),
    *mutants(
        "cli/__init__.py",
        "cli/test_main.py",
        {
            "_add_model": [left("or")],
        },
    ),
    *mutants(
        "cli/_common.py",
        "cli/test_common.py",
        {
            "bytes_in_words": [condition("not _", 1)],
            "quantization": [change("<", "<=", 1)],
        },
    ),
    *mutants(
        "cli/dump.py",
        "cli/test_outputs.py",
        {
            "run": [condition("not _")],
        },
    ),
    *mutants(
        "cli/explain.py",
        "cli/test_main.py",
        {
            "run": [change("or", "and"), skip("print", 1)],
        },
    ),
    *mutants(
        "cli/export.py",
        "cli/test_examples.py",
        {
            "add_options": [skip(".add_argument", 5)],
        },
    ),
    *mutants(
        "cli/rewrite.py",
        "cli/test_rewrite.py",
        {
            "run": [condition("not _", 1)],
        },
    ),
    *mutants(
        "cli/run.py",
        "cli/test_main.py",
        {
            "run": [change("0", "1", 1)],
            "_check_path": [change("and", "or")],
        },
    ),
    *mutants(
        "cli/show.py",
        "cli/test_show.py",
        {
            "_encodable": [left("or")],
        },
    ),
    *mutants(
        "cli/sweep.py",
        "cli/test_sweep.py",
        {
            "_check_cost": [change("is", "is not")],
            "add_options": [skip("add_forms")],
        },
    ),
]
