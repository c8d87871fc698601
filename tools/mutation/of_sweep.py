"""Mutants of sweeps: exact sums, metrics, spaces, digests and plans."""

from __future__ import annotations

from mutation.changes import change, condition, left, right, skip, swap
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "sweep/exact.py",
        "sweep/test_exact.py",
        {
            "add": [change("_MOST_TERMS", "1 << 30", 0)],
            "join": [left("+", 2), left("&"), change(">>", "<<")],
            "value": [change("12", "11"), change("1", "0", 0), change("149", "148")],
            "_as_float32": [change("16", "15", 0), change("0xFFFF", "0x7FFF"), change(">>", "<<")],
            "_halves": [
                change("23", "22", 0),
                left("|"),
                change(">", ">="),
                change("<", ">"),
                change("12", "11"),
                change("==", "!="),
            ],
            "_words": [left("&"), left(">>")],
        },
    ),
    *mutants(
        "sweep/metrics.py",
        "sweep/test_metrics.py",
        {
            "top_k": [change("1", "0"), change("output", "0", 0)],
            "agreement": [left("&"), change("==", "!="), change("theirs", "ours", 2)],
            "sqnr": [
                swap("/"),
                change("10", "20"),
                change("math.inf", "0.0", 0),
                change("theirs", "ours", 1),
                change("or", "and"),
            ],
            "cosine": [change("min()", "size"), change("math.copysign()", "min(size, 1.0)")],
            "mean_lsb": [change("1", "0", 0), change("max()", "count")],
            "named": [left("<"), left("or")],
            "_is_among": [
                left("|"),
                change("<", "<=", 1),
                change("==", "!=", 1),
                change("<", "<=", 2),
                left("&", 0),
                left("&", 2),
                right("&", 3),
            ],
            "_difference": [change("jnp.abs()", "ours"), change("jnp.minimum", "jnp.maximum")],
            "_fits": [change(">=", "<="), left("and")],
            "_mean_of": [left("/")],
        },
    ),
    *mutants(
        "sweep/accumulation.py",
        "sweep/test_metrics.py",
        {
            "join": [change("jnp.maximum", "jnp.minimum")],
            "_take_in": [change("mask", "True"), change("jnp.maximum", "jnp.minimum")],
        },
    ),
    *mutants(
        "sweep/metrics.py",
        "sweep/test_checks.py",
        {
            "check_classes": [
                change("<", "<="),
                change(">=", ">", 0),
                left("|"),
                left("and"),
                change("start", "0"),
            ],
            "check_kind_of_labels": [left("and", 0), left("and", 1)],
        },
    ),
    *mutants(
        "sweep/space.py",
        "sweep/test_space.py",
        {
            "uniform.__post_init__": [change("<", "<=", 0), change("<=", "<"), left("and", 0)],
            "uniform.draw": [condition("not _"), change("math.exp()", "1.0")],
            "integers.__post_init__": [change(">", ">=")],
            "integers.draw": [change("True", "False")],
            "_Choice.draw": [change("len()", "1")],
            "_Either.draw": [change("len()", "1")],
            "Space.__mul__": [condition("False"), swap("itertools.product")],
            "Space.__add__": [swap("_merged_axes")],
            "grid": [change("dict", "tuple")],
            "zip_": [condition("False")],
            "random": [change("<", "<="), change("seed", "0")],
            "_axis": [condition("False", 2), change("Mapping", "bytes")],
            "_merged_axis": [left("and"), condition("not _", 1)],
        },
    ),
    *mutants(
        "sweep/digest.py",
        "sweep/test_digest.py",
        {
            "of_arrays": [change("array.dtype", "0", 1), change("array.shape", "0"), skip("raise")],
            "canonical": [change("True", "False")],
            "plain": [left("|", 0), change("12", "0"), change("0", "1")],
        },
    ),
    *mutants(
        "sweep/plan.py",
        "sweep/test_plan.py",
        {
            "Program.of": [change("1", "2"), change("value", "name", 1)],
            "Plan.differences": [change("!=", "==")],
            "Plan.__str__": [change("2", "3", 0)],
            "_first_lines": [change("<=", "<")],
            "_listed": [change(">", ">=", 1), change("2", "1")],
        },
    ),
    *mutants(
        "sweep/sweep.py",
        "sweep/test_plan.py",
        {
            "Sweep.plan": [change("*", "+", 1)],
            "Sweep._varying_bytes": [condition("not _")],
            "Sweep._batch_size": [condition("not _", 2), condition("not _", 3)],
        },
    ),
]
