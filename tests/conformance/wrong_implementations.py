"""Implementations with one fault each, which the runner has to notice."""

from __future__ import annotations

import os
import time

import numpy as np
from suite_run import run_with_tosajax
from suite_tests import SuiteTest

import tosajax
from tosajax.dtypes import DType


def one_element_off(test: SuiteTest) -> list[np.ndarray]:
    """Another value for the last element, unless that is a half."""
    (output,) = run_with_tosajax(test)
    wrong = output.copy()
    wrong.flat[-1] = np.ones((), output.dtype) - output.flat[-1]
    return [wrong]


def accepts_all(test: SuiteTest) -> list[np.ndarray]:
    """Zeros of the right types and shapes, even for illegal graphs."""
    details = test.description["test_details"]
    return [
        np.zeros([max(size, 0) for size in shape], DType[dtype].storage)
        for dtype, shape in zip(details["output_types"], details["output_shapes"], strict=True)
    ]


def wider_type(test: SuiteTest) -> list[np.ndarray]:
    """The right values as float64."""
    return [output.astype(np.float64) for output in run_with_tosajax(test)]


def another_shape(test: SuiteTest) -> list[np.ndarray]:
    """The right values, with a dimension of 1 in front."""
    return [output[None] for output in run_with_tosajax(test)]


def output_twice(test: SuiteTest) -> list[np.ndarray]:
    """One output too many."""
    return run_with_tosajax(test) * 2


def no_output(test: SuiteTest) -> list[np.ndarray]:
    """One output too few."""
    return []


def raises_value_error(test: SuiteTest) -> list[np.ndarray]:
    """Raises as a fault in a shape computation does; TosaError is also a ValueError."""
    raise ValueError("shapes do not fit")


def raises_format_error(test: SuiteTest) -> list[np.ndarray]:
    """Takes a well-formed file for a broken one."""
    raise tosajax.FormatError("broken")


def raises_unsupported_error(test: SuiteTest) -> list[np.ndarray]:
    """Has no operator."""
    raise tosajax.UnsupportedError("no operator yet")


def rejects_all(test: SuiteTest) -> list[np.ndarray]:
    """Finds a rule broken in every graph."""
    finding = tosajax.Finding(tosajax.Verdict.ERROR, "all.e1", "graph is not liked")
    raise tosajax.TosaError(tosajax.Report((finding,)))


def aborts_or_hangs(test: SuiteTest) -> list[np.ndarray]:
    """Ends the process on illegal graphs, sleeps on a single element, else works."""
    if test.error_if is not None:
        print("last words", flush=True)
        os.abort()
    if test.work == 1:
        time.sleep(3600)
    return run_with_tosajax(test)
