"""Mutants of charts and pictures."""

from __future__ import annotations

from mutation.changes import change, condition, skip
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "viz/charts.py",
        "viz/test_charts.py",
        {
            "share_axis": [change("-", "+", 2), condition("not _", 0)],
            "value_axis": [change(">=", ">", 0)],
            "spread_axis": [change("<=", "<")],
        },
    ),
    *mutants(
        "viz/charts.py",
        "viz/test_pages.py",
        {
            "_drawn": [condition("not _")],
        },
    ),
    *mutants(
        "viz/comparison.py",
        "viz/test_pages.py",
        {
            "_decibel_ticks": [condition("not _", 2)],
            "_layers_chart": [change("+", "-", 2)],
        },
    ),
    *mutants(
        "viz/graph.py",
        "viz/test_graph.py",
        {
            "_box": [change("-", "+", 3)],
            "_shape_text": [change("0", "1")],
        },
    ),
    *mutants(
        "viz/heat.py",
        "viz/test_pages.py",
        {
            "_map": [change("1", "2", 7)],
        },
    ),
    *mutants(
        "viz/layers.py",
        "viz/test_graph.py",
        {
            "_lines": [change("True", "False")],
            "_spread": [skip(".append", 1)],
        },
    ),
    *mutants(
        "viz/sweep.py",
        "viz/test_pages.py",
        {
            "_axis_chart": [change(">", ">=", 0), change(">", ">=", 1)],
        },
    ),
]
