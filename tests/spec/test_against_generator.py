"""The operator table against tosa-tools' generator of conformance tests.

The generator's list of operators gives the number of inputs, the compile-time constants and the
ranks. The tests that it writes for 1.0.1, and of later operators, give whole type rows with their
profiles and extensions, and shapes that must fit the table's names of dimensions. It does not give
the names of inputs and outputs, the accumulator of NEGATE (acc_t) or the arithmetic of RESIZE
(resize_t).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.spec import OPERATORS, Argument, Form, Operator, TypeRow

# The generator has no tests of these.
UNTESTED = {"CUSTOM", "VARIABLE", "VARIABLE_WRITE", "VARIABLE_READ"}
# Tests of these run other operators inside them; the rows of the two are "All".
CONTROL_FLOW = {"COND_IF", "WHILE_LOOP"}
# Operands of the generator that are not inputs of the operator, and their meaning.
OPERANDS = {
    "CONST": (1, "its values"),
    "CONST_SHAPE": (1, "its values"),
    "CONCAT": (2, "two tensors of its list"),
    "COND_IF": (2, "of its graphs; the condition is added elsewhere"),
    "WHILE_LOOP": (5, "of its graphs"),
}
# Operators listed from rank 0, of which the generator writes tests from rank 1 only.
LISTED_FROM_RANK_0 = {
    "CONCAT",
    "REDUCE_ALL",
    "REDUCE_ANY",
    "REDUCE_MAX",
    "REDUCE_MIN",
    "REDUCE_PRODUCT",
    "REDUCE_SUM",
    "REVERSE",
}
# Types that the generator lists for every version, and the suite's configuration from 1.1.0 only.
SINCE_1_1 = {("GATHER", "BOOL"), ("SCATTER", "BOOL")}
# Operators whose tests state the type of the accumulator.
STATES_ACCUMULATOR = {
    "AVG_POOL2D",
    "CONV2D",
    "CONV3D",
    "DEPTHWISE_CONV2D",
    "REDUCE_SUM",
    "TRANSPOSE_CONV2D",
}
# The modes of RESIZE that some of its rows are for.
RESIZE_MODES = ["BILINEAR", "NEAREST"]
ROUNDING_EXTENSIONS = set(spec.REQUIRED_EXTENSION.values())
# Limits of level 8K that the generator stays below.
SMALLER_LIMITS = {"MAX_SCALE": 64}  # 256 in the specification

COMPARED = [name for name in OPERATORS if name not in UNTESTED]
WHOLE = [name for name in COMPARED if name not in CONTROL_FLOW]


class Row(NamedTuple):
    """A type row as both sides can state it; None where one of them is silent."""

    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    accumulator: str | None
    mode: str | None
    needs: frozenset[frozenset[str]]


@pytest.fixture(scope="module")
def entries(generator) -> dict[str, list[dict[str, Any]]]:
    """The generator's entries for each operator, tests of what tosajax has only."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in generator["entries"]:
        name = entry["operator"]
        tests = [test for test in entry["tests"] if _is_ours(name, test)]
        found.setdefault(name, []).append({**entry, "tests": tests})
    return found


def test_operators(entries):
    assert set(entries) == set(COMPARED)


@pytest.mark.parametrize("name", COMPARED)
def test_number_of_inputs(entries, name):
    count, _ = OPERANDS.get(name, (len(OPERATORS[name].inputs), ""))
    assert {entry["operands"] for entry in entries[name]} == {count}


@pytest.mark.parametrize("name", COMPARED)
def test_compile_time_constants(entries, name):
    constant = [i for i, a in enumerate(OPERATORS[name].inputs) if a.constant_in]
    assert all(entry["constant"] == constant for entry in entries[name])


@pytest.mark.parametrize("name", [n for n in WHOLE if n != "CONST_SHAPE"])
def test_rank(entries, name):
    minimum, maximum = _ranks(OPERATORS[name].arguments[0])
    if name in LISTED_FROM_RANK_0:
        assert minimum == 1
        minimum = 0
    assert [entry["rank"] for entry in entries[name]] == [[minimum, maximum]]


@pytest.mark.parametrize("name", [n for n in WHOLE if n != "CONCAT"])
def test_ranks_in_tests(entries, name):
    """Tests are written from the least rank on."""
    (entry,) = entries[name]
    for position, argument in enumerate(_tensors(OPERATORS[name])):
        tensors = [(test["in"] + test["out"])[position] for test in entry["tests"]]
        form = Form.SHAPE if tensors[0][0] == "SHAPE" else Form.TENSOR
        assert argument.form is form
        if form is Form.TENSOR:
            ranks = {len(shape) for _, shape in tensors}
            minimum, maximum = _ranks(argument)
            assert min(ranks) == minimum
            assert max(ranks) <= maximum


@pytest.mark.parametrize("name", WHOLE)
def test_type_rows(entries, with_profile, name):
    operator = OPERATORS[name]
    (entry,) = entries[name]
    ours = [
        row._replace(needs=frozenset(n for need in row.needs for n in with_profile(need)))
        for types in operator.types
        for row in _our_rows(operator, types)
    ]
    assert set(ours) == {_their_row(operator, test) for test in entry["tests"]}
    assert len(set(ours)) == len(ours)


@pytest.mark.parametrize("name", WHOLE)
def test_shapes(entries, name):
    """Equal names stand for equal sizes, expressions for their values."""
    operator = OPERATORS[name]
    (entry,) = entries[name]
    for test in entry["tests"]:
        sizes = list(_sizes(operator, test))
        known: dict[str, Any] = {"rank": len}
        for text, size in sizes:
            if text.isidentifier():
                assert known.setdefault(text, size) == size, text
        for text, size in sizes:
            assert eval(text.replace("/", "//"), {}, known) == size, text
        lengths = [row.types["TABLE_SIZE"] for row in operator.types if _is_of_row(test, row)]
        assert lengths == ([known["TABLE_SIZE"]] if name == "TABLE" else [])


@pytest.mark.parametrize("name", WHOLE)
def test_names_of_shapes(entries, name):
    """Different names stand for shapes that may differ, here or in an operator with the same."""
    notation = _notation(OPERATORS[name])
    differing = {
        frozenset({text, other})
        for operator in (OPERATORS[n] for n in WHOLE if _notation(OPERATORS[n]) == notation)
        for test in entries[operator.name][0]["tests"]
        for (text, size), (other, its) in itertools.combinations(_sizes(operator, test), 2)
        if size != its
    }
    whole = {text for text in notation if text.isidentifier()}
    assert {frozenset(pair) for pair in itertools.combinations(whole, 2)} <= differing


def test_multiplier_of_rescale(entries):
    (entry,) = entries["RESCALE"]
    position = [a.name for a in OPERATORS["RESCALE"].inputs].index("multiplier")
    found = {(t["attributes"]["scale32"], t["in"][position][0]) for t in entry["tests"]}
    assert found == {(True, "INT32"), (False, "INT16")}


@pytest.mark.parametrize("mode", spec.RoundingMode, ids=lambda mode: mode.name)
def test_rounding_mode_needs_its_extension(entries, mode):
    (entry,) = entries["RESCALE"]
    wanted = {spec.REQUIRED_EXTENSION[mode]} if mode in spec.REQUIRED_EXTENSION else set()
    tests = [t for t in entry["tests"] if t["attributes"]["rounding_mode"] == mode.name]
    assert tests
    for test in tests:
        assert ROUNDING_EXTENSIONS.intersection(test["extensions"]) == wanted


@pytest.mark.parametrize("name", sorted(CONTROL_FLOW))
def test_control_flow_needs_its_extension(entries, name):
    needs = [need for row in OPERATORS[name].types for need in row.needs]
    assert needs == [frozenset({"EXT-CONTROLFLOW"})]
    tests = [test for entry in entries[name] for test in entry["tests"]]
    assert tests
    assert all("EXT-CONTROLFLOW" in test["extensions"] for test in tests)


def test_profiles(generator):
    assert tuple(generator["profiles"]) == spec.PROFILES


def test_extensions(generator):
    ours = {name: sorted(profiles) for name, profiles in spec.EXTENSIONS.items()}
    added = {name for name in generator["extensions"] if name not in ours}
    assert {n: p for n, p in generator["extensions"].items() if n not in added} == ours
    # 1.1 adds block-scaled types, 64-bit integers and arithmetic on shapes.
    assert all(n.startswith("EXT-MX") or n in {"EXT-INT64", "EXT-SHAPE"} for n in added)


def test_level_8k(generator):
    level = spec.LEVELS["8K"]
    ours = {name: getattr(level, name) for name in generator["limits"]}
    assert ours | SMALLER_LIMITS == generator["limits"]
    assert all(getattr(level, name) > limit for name, limit in SMALLER_LIMITS.items())


def _is_ours(name: str, test: dict[str, Any]) -> bool:
    """Whether a test is not of 1.1 or, of operators of 1.1, not of types of blocks."""
    if test["in"] is None:  # control flow; the types are those inside
        return True
    if any(extension.startswith("EXT-MX") for extension in test["extensions"]):
        return False
    types = [dtype for dtype, _ in test["in"] + test["out"]]
    return all(t in DType.__members__ and (name, t) not in SINCE_1_1 for t in types)


def _their_row(operator: Operator, test: dict[str, Any]) -> Row:
    inputs = [dtype for dtype, _ in test["in"]]
    if operator.name == "CONCAT":
        assert len(set(inputs)) == 1
        inputs = inputs[:1]
    types = zip(operator.inputs, inputs, strict=True)
    # The extensions of rounding modes belong to an attribute, not to types.
    extensions = set(test["extensions"]) - ROUNDING_EXTENSIONS
    return Row(
        inputs=tuple(None if a.name == "multiplier" else dtype for a, dtype in types),
        outputs=tuple(dtype for dtype, _ in test["out"]),
        accumulator=test["acc"] if operator.name in STATES_ACCUMULATOR else None,
        mode=test["attributes"]["mode"] if operator.name == "RESIZE" else None,
        needs=frozenset(frozenset({profile, *extensions}) for profile in test["profiles"]),
    )


def _our_rows(operator: Operator, row: TypeRow) -> Iterator[Row]:
    """The row, or for RESIZE one for each of its modes."""
    modes = [mode for mode in RESIZE_MODES if mode.lower() in row.mode] or RESIZE_MODES
    for mode in modes if operator.name == "RESIZE" else [None]:
        yield Row(
            inputs=tuple(_type(a, row) for a in operator.inputs),
            outputs=tuple(str(_type(a, row)) for a in operator.outputs),
            accumulator=_name(row.types["acc_t"]) if operator.name in STATES_ACCUMULATOR else None,
            mode=mode,
            needs=frozenset(row.needs),
        )


def _type(argument: Argument, row: TypeRow) -> str | None:
    """The name of its type; None for multipliers, whose type an attribute determines."""
    if argument.name == "multiplier":
        return None
    return _name(row.types[argument.dtype] if isinstance(argument.dtype, str) else argument.dtype)


def _name(dtype: object) -> str:
    assert isinstance(dtype, DType)
    return dtype.name


def _is_of_row(test: dict[str, Any], row: TypeRow) -> bool:
    """Whether a test of TABLE is of the row."""
    return "TABLE_SIZE" in row.types and row.types["in_t"] is DType[test["in"][0][0]]


def _tensors(operator: Operator) -> list[Argument]:
    """The arguments that are inputs and outputs of the operator in a file."""
    return [*operator.inputs, *operator.outputs]


def _notation(operator: Operator) -> list[str]:
    return [a.shape for a in _tensors(operator) if a.form is Form.TENSOR]


def _ranks(argument: Argument) -> tuple[int, int]:
    assert argument.rank is not None
    minimum, maximum = argument.rank
    if isinstance(maximum, spec.LevelBound):
        maximum = getattr(spec.LEVELS["8K"], maximum.name) + maximum.offset
    return minimum, maximum


def _sizes(operator: Operator, test: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each shape or dimension as written in the table, and its size in the test."""
    if operator.name == "CONCAT":  # "shapes1" is a list of shapes
        return
    tensors = zip(_tensors(operator), test["in"] + test["out"], strict=True)
    lists = [(a, test["attributes"][a.name]) for a in operator.attributes if a.form is Form.LIST]
    for argument, shape in [(a, shape) for a, (_, shape) in tensors] + [
        (a, [len(values)]) for a, values in lists
    ]:
        if argument.dims is not None:
            yield from zip(argument.dims, shape, strict=True)
        elif argument.shape:
            yield argument.shape, shape
