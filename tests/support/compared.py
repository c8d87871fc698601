"""Rows of comparisons, made without running anything."""

from __future__ import annotations

import math

import numpy as np

from tosajax.compare import Histogram, Measured, Row, edges


def measured(sqnr=40.0, mismatches=3, kind="INT8", **more) -> Measured:
    counts = np.zeros(len(edges(kind)) - 1, int)
    counts[[0, len(counts) // 2, -1]] = 1, 90, 9
    histogram = Histogram(kind, tuple(counts.tolist()))
    values = {
        "elements": 100, "mismatches": mismatches, "max_error": 2, "max_ulp": None,
        "mean_error": 0.1, "mean_abs_error": 0.25, "sqnr": sqnr, "cosine": 0.999, "first": (0, 1),
        "range_a": (-128, 127), "range_b": (-128, 126), "clipped_a": 0.1, "clipped_b": 0.05,
        "values_a": histogram, "values_b": histogram, "errors": histogram,
    }  # fmt: skip
    return Measured(**(values | more))


def row(tensor="t", total=None, local=None, **more) -> Row:
    fields = {
        "tensor": tensor, "other": tensor, "operator": "RESCALE", "dtype": "INT8",
        "location": "model.py:3 y = f(x)", "is_output": False, "as_real": False,
        "total": total or measured(), "local": local,
    }  # fmt: skip
    return Row(**(fields | more))


EQUAL = measured(math.inf, 0, max_error=0, mean_abs_error=0.0, first=None)
