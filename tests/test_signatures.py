"""Each operator is a function with the signature of its row."""

from __future__ import annotations

import inspect
import re

import pytest

from tosajax import ops
from tosajax.spec import OPERATORS, REQUIRED, Operator

# Data and state of the graph, and functions of the user: we compute nothing.
NOT_FUNCTIONS = {
    *("CONST", "CONST_SHAPE", "CUSTOM"),
    *("VARIABLE", "VARIABLE_WRITE", "VARIABLE_READ"),
}
# These have the type of the data.
NEVER_TOLD_OUT_TYPE = {"CONST", "VARIABLE_READ"}

FUNCTIONS = [o for o in OPERATORS.values() if o.name not in NOT_FUNCTIONS]
each = pytest.mark.parametrize("operator", FUNCTIONS, ids=lambda operator: operator.name)


def _parameters(operator: Operator) -> list[inspect.Parameter]:
    function = getattr(ops, operator.name.lower())
    return list(inspect.signature(function).parameters.values())


def test_exactly_the_operators_are_exported():
    exported = {name.upper() for name in ops.__all__}
    assert exported == {operator.name for operator in FUNCTIONS}
    assert exported.isdisjoint(NOT_FUNCTIONS)
    assert OPERATORS.keys() >= NOT_FUNCTIONS


@each
def test_place(operator: Operator):
    function = getattr(ops, operator.name.lower())
    assert function.__module__ == f"tosajax.ops.{operator.chapter}"
    assert function.__name__ == operator.name.lower()


@each
def test_inputs(operator: Operator):
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    found = [p for p in _parameters(operator) if p.kind in positional]
    assert [p.name for p in found] == [a.name for a in operator.inputs]
    assert all(p.default is inspect.Parameter.empty for p in found)


@each
def test_attributes(operator: Operator):
    wanted: dict[str, object] = {a.name: a.default for a in operator.attributes}
    if operator.needs_out_type and operator.name not in NEVER_TOLD_OUT_TYPE:
        wanted["out_type"] = REQUIRED
    found = [p for p in _parameters(operator) if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert [p.name for p in found] == list(wanted)
    for parameter in found:
        default = wanted[parameter.name]
        assert parameter.default == (inspect.Parameter.empty if default is REQUIRED else default)


@each
def test_no_other_parameters(operator: Operator):
    variadic = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    assert not [p.name for p in _parameters(operator) if p.kind in variadic]


@each
def test_documented(operator: Operator):
    """The first line names the operator, and each parameter has a line."""
    text = inspect.getdoc(getattr(ops, operator.name.lower())) or ""
    assert operator.name in text.partition("\n")[0]
    for parameter in _parameters(operator):
        assert re.search(rf"^\s+(\w+, )*{parameter.name}(, \w+)*:", text, re.MULTILINE)
