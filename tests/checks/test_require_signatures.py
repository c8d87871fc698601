"""Each run-time rule function has the signature of its operator."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable

import pytest

from tosajax import ops
from tosajax.spec import OPERATORS

# Those whose pseudocode, or a helper function of it, requires something of values.
WITH_RULES = {
    *("ABS", "ADD", "ARITHMETIC_RIGHT_SHIFT", "AVG_POOL2D", "CAST", "CLAMP", "CONV2D", "CONV3D"),
    *("DEPTHWISE_CONV2D", "GATHER", "INTDIV", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"),
    *("MATMUL", "MATMUL_T", "MUL", "NEGATE", "POW", "REDUCE_SUM", "RESCALE", "SCATTER", "SUB"),
    *("TABLE", "TRANSPOSE_CONV2D"),
}


def _functions() -> dict[str, Callable]:
    found = {}
    for operator in OPERATORS.values():
        module = f"tosajax.checks.require.{operator.chapter}"
        if importlib.util.find_spec(module) is not None:
            chapter = importlib.import_module(module)
            name = f"{operator.name.lower()}_require"
            if hasattr(chapter, name):
                found[operator.name] = getattr(chapter, name)
    return found


FUNCTIONS = _functions()


def test_the_operators_that_have_rules():
    # Those of variables are about the graph, not about values.
    variables = {"VARIABLE", "VARIABLE_WRITE", "VARIABLE_READ"}
    assert FUNCTIONS.keys() - variables == WITH_RULES


@pytest.mark.parametrize("name", sorted(WITH_RULES))
def test_signature(name):
    wanted = inspect.signature(getattr(ops, name.lower()))
    assert inspect.signature(FUNCTIONS[name]).parameters == wanted.parameters
    assert "r1" in (inspect.getdoc(FUNCTIONS[name]) or "")
