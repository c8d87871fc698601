"""The operator table against the configuration of tosa-tools' conformance suite.

The configuration lists the profiles and extensions that an operator's tests of an input type need.
An operator with several rows of one input type (CAST) is compared by the least that one of them
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.spec import OPERATORS, Operator, TypeRow
from tosajax.versions import V1_0, VERSIONS, Version, is_in

Needs = set[frozenset[str]]
WithProfile = Callable[[frozenset[str]], list[frozenset[str]]]

# The suite has no tests of these on their own.
UNTESTED = {"CUSTOM", "VARIABLE", "VARIABLE_WRITE", "VARIABLE_READ", "CONST_SHAPE"}
# Their tests' types are those of the operators inside; the rows of the two are "All".
CONTROL_FLOW = {"COND_IF", "WHILE_LOOP"}
# Slips of the configuration: its value, and that of all other statements.
SLIPS = {
    # Copied from the group before it; the generator writes tests that need EXT-FP8E5M2.
    ("TRANSPOSE", "tosa-ext-fp8e5m2"): ["tosa-ext-fp8e5m2"],
}

# Types of blocks of values with one scale, of 1.1, which tosajax does not have.
BLOCKS = "bs32_"

COMPARED = [name for name in OPERATORS if name not in UNTESTED]


def test_operators(conformance):
    of_1_0 = {name for name, entry in conformance.items() if _is_of(V1_0, entry)}
    assert of_1_0 == {name for name in COMPARED if OPERATORS[name].since == V1_0}
    for name in COMPARED:
        versions = [v for v in VERSIONS if _is_of(v, conformance[name])]
        assert versions == [v for v in VERSIONS if is_in(OPERATORS[name], v)]


@pytest.mark.parametrize("name", [n for n in COMPARED if n not in CONTROL_FLOW])
def test_needs_of_each_input_type(conformance, with_profile, name):
    ours: dict[str, Needs] = {}
    for row in OPERATORS[name].types:
        ours.setdefault(_type_tested(OPERATORS[name], row), set()).update(row.needs)
    theirs: dict[str, Needs] = {}
    for group, entry in _groups(conformance, name):
        for dtype in _types(entry):
            theirs.setdefault(dtype, set()).update(_needs(name, group, entry))
    assert _least(ours, with_profile) == _least(theirs, with_profile)


@pytest.mark.parametrize("name", sorted(CONTROL_FLOW))
def test_control_flow_needs_its_extension(conformance, name):
    needs = [need for row in OPERATORS[name].types for need in row.needs]
    assert needs == [frozenset({"EXT-CONTROLFLOW"})]
    for _, entry in _groups(conformance, name):
        assert "tosa-ext-controlflow" in entry["supports_all"]


def test_slips_are_still_there(conformance):
    for (name, group), wanted in SLIPS.items():
        assert conformance[name]["generation"][group]["supports_all"] != wanted


def _groups(conformance: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for group, entry in conformance[name]["generation"].items():
        if _is_of(OPERATORS[name].since, entry):
            yield group, entry


def _is_of(version: Version, entry: dict[str, Any]) -> bool:
    first = Version.parse(entry.get("from_version", "0.0.0"))
    last = Version.parse(entry.get("to_version", "99.0.0"))
    return first <= version <= last


def _types(entry: dict[str, Any]) -> set[str]:
    """The types after each --target-dtype."""
    found = set()
    for arguments in entry["generator_args"]:
        option = ""
        for word in arguments:
            if word.startswith("--"):
                option = word
            elif option == "--target-dtype" and not word.startswith(BLOCKS):
                found.add(word.upper())
    return found


def _needs(name: str, group: str, entry: dict[str, Any]) -> Iterator[frozenset[str]]:
    every = SLIPS.get((name, group), entry.get("supports_all"))
    needs = [every] if every else [[one] for one in entry["supports_any"]]
    for need in needs:
        names = frozenset(one.removeprefix("tosa-").upper() for one in need)
        # A group for 1.0 may name an extension of 1.1 as another way to have it.
        if names <= {*spec.PROFILES, *spec.EXTENSIONS}:
            yield names


def _type_tested(operator: Operator, row: TypeRow) -> str:
    """The type the suite files a row under: int4 weights, else the first variable type."""
    types = [t for t in row.types.values() if isinstance(t, DType)]
    if DType.INT4 in types:
        return DType.INT4.name
    variables = [a.dtype for a in operator.arguments if isinstance(a.dtype, str)]
    found = row.types[variables[0]]
    assert isinstance(found, DType)
    return found.name


def _least(needs: dict[str, Needs], with_profile: WithProfile) -> dict[str, Needs]:
    """Of each type's needs, profiles included, those that contain no other."""
    found = {
        dtype: {n for need in some for n in with_profile(need)} for dtype, some in needs.items()
    }
    return {
        dtype: {a for a in some if not any(b < a for b in some)} for dtype, some in found.items()
    }
