"""The operator table agrees with itself."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import itertools
from pathlib import Path

import pytest

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.spec import OPERATORS, REQUIRED, Form, Kind, LevelBound, Operator
from tosajax.spec.target import Target
from tosajax.versions import V1_0, V1_1, VERSIONS

# Type variables without a column in the type rows, and the source of each.
WITHOUT_COLUMN = {
    ("RESCALE", "mul_t"): "scale32",
    ("COND_IF", "tosa_graph_t"): "the graph itself",
    ("WHILE_LOOP", "tosa_graph_t"): "the graph itself",
}
# Columns that type no argument, and their meaning.
OF_NO_ARGUMENT = {
    "acc_t": "the accumulator, by acc_type or alone",
    "resize_t": "the arithmetic inside",
    "TABLE_SIZE": "a length",
}


ARGUMENTS = [(o.name, a) for o in OPERATORS.values() for a in o.arguments]
each_operator = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)


def test_counts():
    of_1_0 = [operator for operator in OPERATORS.values() if operator.since == V1_0]
    assert (len(of_1_0), len(OPERATORS)) == (75, 76)
    assert len(ARGUMENTS) == 285
    assert sum(len(operator.types) for operator in of_1_0) == 389
    assert sum(len(operator.types) for operator in OPERATORS.values()) == 432


def test_versions():
    """Nothing of 1.0 has gone, and no part of an operator is older than the operator."""
    assert {o.name for o in OPERATORS.values() if o.since == V1_1} == {"MATMUL_T"}
    for operator in OPERATORS.values():
        for part in (operator, *operator.arguments, *operator.types):
            assert (part.since in VERSIONS, part.until) == (True, None)
        assert operator.instruction is None or operator.since == V1_0  # of TOSA.001000.1
    assert {dtype.since for dtype in DType} == {V1_0}
    assert {dtype.until for dtype in DType} == {None}


def test_every_chapter_is_listed():
    """No operator of a module in spec/ is left out of OPERATORS, none is there twice."""
    folder = Path(str(spec.__file__)).parent
    modules = [importlib.import_module(f"tosajax.spec.{p.stem}") for p in folder.glob("[a-z]*.py")]
    chapters = [module.OPERATORS for module in modules if hasattr(module, "OPERATORS")]
    assert sorted(o.name for chapter in chapters for o in chapter) == sorted(OPERATORS)


@each_operator
def test_name_and_place(operator: Operator):
    chapter = importlib.import_module(f"tosajax.spec.{operator.chapter}")
    assert operator in chapter.OPERATORS
    assert getattr(chapter, operator.name) is operator
    assert OPERATORS[operator.name] is operator
    assert operator.name == operator.name.upper()


def test_sections_are_numbered_without_gaps():
    """Those of later versions are between them, as their numbers are of those versions."""
    numbers = sorted(
        tuple(map(int, o.section.split("."))) for o in OPERATORS.values() if o.since == V1_0
    )
    for chapter, sections in itertools.groupby(numbers, key=lambda number: number[:-1]):
        found = [section[-1] for section in sections]
        assert found == list(range(1, len(found) + 1)), chapter


@each_operator
def test_a_chapter_of_the_specification_is_one_module(operator: Operator):
    """Except "Tensor Operators" (2.3), split by family."""
    number = operator.section.rpartition(".")[0]
    if number != "2.3":
        same = {o.chapter for o in OPERATORS.values() if o.section.startswith(f"{number}.")}
        assert same == {operator.chapter}


@each_operator
def test_arguments_are_in_order_of_kind(operator: Operator):
    kinds = [kind for kind, _ in itertools.groupby(a.kind for a in operator.arguments)]
    assert kinds == [kind for kind in Kind if kind in kinds]


@each_operator
def test_argument_names(operator: Operator):
    names = [argument.name for argument in operator.arguments]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)


@each_operator
def test_type_variables_have_a_column(operator: Operator):
    for argument in operator.arguments:
        variable = argument.dtype
        if variable == "":  # tensors of any type
            assert argument.form is Form.TENSOR_LIST
        elif isinstance(variable, str) and (operator.name, variable) not in WITHOUT_COLUMN:
            assert all(isinstance(row.types[variable], DType) for row in operator.types)


def test_exceptions_are_needed():
    for name, variable in WITHOUT_COLUMN:
        assert variable in [a.dtype for a in OPERATORS[name].arguments]
        assert all(variable not in row.types for row in OPERATORS[name].types)


@each_operator
def test_every_column_types_an_argument(operator: Operator):
    used = {a.dtype for a in operator.arguments if isinstance(a.dtype, str)}
    for row in operator.types:
        assert set(row.types) - used <= set(OF_NO_ARGUMENT)


@each_operator
def test_accumulator_types(operator: Operator):
    """Each row's acc_t is one that acc_type can name."""
    if any(a.name == "acc_type" for a in operator.attributes):
        allowed = [member.dtype for member in spec.AccType]
        assert all(row.types["acc_t"] in allowed for row in operator.types)


@each_operator
def test_type_rows_are_distinct(operator: Operator):
    assert operator.types
    rows = [(row.mode, tuple(row.types.items())) for row in operator.types]
    assert len(set(rows)) == len(rows)
    assert len({tuple(row.types) for row in operator.types}) == 1
    assert len({row.mode for row in operator.types}) == len(rows)


@each_operator
def test_needs(operator: Operator):
    """Names are known, and each alternative makes a legal target with a profile added."""
    for need in (need for row in operator.types for need in row.needs):
        assert need
        assert need <= {*spec.PROFILES, *spec.EXTENSIONS}
        extensions = need & set(spec.EXTENSIONS)
        profiles = need - extensions or set(spec.PROFILES)
        Target(frozenset(profiles), extensions)


def test_variables_are_of_the_same_types():
    names = ("VARIABLE", "VARIABLE_WRITE", "VARIABLE_READ")
    first, *others = (
        [(row.needs, row.mode, tuple(row.types.values())) for row in OPERATORS[name].types]
        for name in names
    )
    assert others == [first, first]
    assert all("EXT-VARIABLE" in need for needs, _, _ in first for need in needs)


@each_operator
def test_everything_has_every_row(operator: Operator):
    assert all(row.supported_by(Target.everything().names) for row in operator.types)
    assert not any(row.supported_by(frozenset()) for row in operator.types)


@each_operator
def test_compile_time_constants(operator: Operator):
    """Shapes, and arguments with a row at compile time, are constant in each profile with a row."""
    names = {name for row in operator.types for need in row.needs for name in need}
    profiles = names.union(*(spec.EXTENSIONS.get(name, ()) for name in names))
    everywhere = tuple(profile for profile in spec.PROFILES if profile in profiles)
    for argument in operator.arguments:
        if argument.constant_in or (argument.form is Form.SHAPE and argument.kind is Kind.INPUT):
            assert argument.constant_in == everywhere
        if argument.kind is Kind.ATTRIBUTE:  # constant by nature
            assert not argument.constant_in
        if argument.kind is Kind.OUTPUT:  # of CONST and CONST_SHAPE, always constant
            assert not argument.constant_in or not operator.inputs
        dynamic = argument.constant_in and argument.kind is Kind.INPUT
        assert argument.dynamic_with == ("EXT-DYNAMIC" if dynamic else None)


@each_operator
def test_ranks(operator: Operator):
    for argument in operator.arguments:
        if argument.dims is not None:
            dims = len(argument.dims) if argument.form is Form.TENSOR else 1
            assert argument.rank == (dims, dims)
        if argument.rank is None:
            assert argument.form is not Form.TENSOR
            continue
        for level in spec.LEVELS.values():
            minimum, maximum = argument.rank
            if isinstance(maximum, LevelBound):
                maximum = getattr(level, maximum.name) + maximum.offset
            assert 0 <= minimum <= maximum <= level.MAX_RANK


def test_optional_attributes():
    optional = {(a.name, a.default) for _, a in ARGUMENTS if a.default is not REQUIRED}
    assert optional == {
        ("nan_mode", spec.NanMode.PROPAGATE),
        ("local_bound", False),
        ("initial_value", None),
    }
    # Optional wherever they appear.
    names = {name for name, _ in optional}
    assert all(a.default is not REQUIRED for _, a in ARGUMENTS if a.name in names)


def test_tensors_of_fixed_type():
    """All other tensors are of a type that the rows vary."""
    fixed = {f"{o}.{a.name}": a.dtype for o, a in ARGUMENTS if a.form is Form.TENSOR}
    assert {name: dtype for name, dtype in fixed.items() if isinstance(dtype, DType)} == {
        "SELECT.input1": DType.BOOL,
        "COND_IF.condition": DType.BOOL,
        "MUL.shift": DType.INT8,
        "RESCALE.shift": DType.INT8,
    }


def test_operators_that_must_be_told_their_output_type():
    told = {operator.name for operator in OPERATORS.values() if operator.needs_out_type}
    # CONST and VARIABLE_READ have no input at all; RESCALE has output_zp.
    assert told == {"MATMUL", "MATMUL_T", "RESIZE", "CAST", "CONST", "VARIABLE_READ"}


@pytest.mark.parametrize(
    "members",
    [spec.ResizeMode, spec.NanMode, spec.RoundingMode, spec.AccType, spec.VarType],
    ids=lambda members: members.__name__,
)
def test_enumerations_count_from_one(members: type[enum.IntEnum]):
    assert [member.value for member in members] == list(range(1, len(members) + 1))


def test_extensions():
    assert set(spec.EXTENSIONS).isdisjoint(spec.PROFILES)
    for profiles in spec.EXTENSIONS.values():
        assert profiles
        assert set(profiles) <= set(spec.PROFILES)
    assert set(spec.REQUIRED_EXTENSION.values()) <= set(spec.EXTENSIONS)


def test_levels():
    assert [level.name for level in spec.LEVELS.values()] == list(spec.LEVELS)
    least, most = (dataclasses.asdict(spec.LEVELS[name]) for name in ("8K", "none"))
    assert least == {
        "name": "8K",
        "MAX_RANK": 6,
        "MAX_KERNEL": 8192,
        "MAX_STRIDE": 8192,
        "MAX_SCALE": 256,
        "MAX_LOG2_SIZE": 31,
        "MAX_NESTING": 6,
        "MAX_TENSOR_LIST_SIZE": 64,
    }
    assert all(least[name] < most[name] for name in least if name != "name")


@pytest.mark.parametrize(
    ("names", "supported"),
    [
        ("PRO-FP", False),
        ("PRO-FP EXT-BF16", False),
        ("PRO-FP EXT-FP8E4M3", False),
        ("PRO-FP EXT-BF16 EXT-FP8E4M3", True),
    ],
    ids=lambda value: value.replace(" ", "+") if isinstance(value, str) else str(value),
)
def test_a_row_may_need_several(names: str, supported: bool):
    (row,) = [r for r in OPERATORS["CAST"].types if r.mode == "bf16 to fp8e4m3"]
    assert row.supported_by(frozenset(names.split())) is supported


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("CONV2D", (3,), (0,)),
        ("CONV3D", (4,), (0,)),
        ("DEPTHWISE_CONV2D", (2,), (2, 3)),
        ("TRANSPOSE_CONV2D", (3,), (0,)),
        ("MATMUL", (1,), (2,)),
        ("MATMUL_T", (2,), (1,)),
    ],
)
def test_channel_axes(name, inputs, outputs):
    operator = spec.OPERATORS[name]
    assert operator.channel_axes == (inputs, outputs)
    # Products are added up along channels and windows, not along batches.
    assert operator.summed_axes == tuple(sorted({*inputs, *operator.window_axes} - {*outputs}))


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("CONV2D", (1, 2)),
        ("CONV3D", (1, 2, 3)),
        ("DEPTHWISE_CONV2D", (0, 1)),
        ("TRANSPOSE_CONV2D", (1, 2)),
        ("MATMUL", ()),
        ("MATMUL_T", ()),
        ("AVG_POOL2D", ()),
    ],
)
def test_window_axes(name, axes):
    assert spec.OPERATORS[name].window_axes == axes


def test_data():
    """Inputs of one value for each example and element; others are parameters."""
    functions = [operator for operator in OPERATORS.values() if operator.is_function]
    data = {(o.name, a.name) for o in functions for a in o.inputs if a.is_data}
    parameters = {(o.name, a.name) for o in functions for a in o.inputs} - data
    assert {name for _, name in data} == {
        *("a", "b", "input", "input1", "input2", "input3", "input_real", "input_imag"),
        *("indices", "values", "values_in"),
    }
    assert {name for _, name in parameters} == {
        *("weight", "bias", "weight_zp", "a_zp", "b_zp", "input_zp", "output_zp", "input1_zp"),
        *("border", "multiplier", "multiples", "offset", "pad_const", "padding", "scale", "shape"),
        *("shift", "size", "start", "table"),
    }


def test_accuracy():
    """Bounds of ULP as the specification states them; others by the operators that have them."""
    rules = {name: o.accuracy for name, o in OPERATORS.items() if o.accuracy != spec.EXACT}
    ulps = {name: rule.ulps for name, rule in rules.items() if rule.name == "ULP"}
    assert ulps == {
        **dict.fromkeys(("ADD", "SUB", "MUL", "CAST", "CEIL", "FLOOR"), 0.5),
        "RECIPROCAL": 1.0,
        "RSQRT": 2.0,
        "ERF": 5.0,
    }
    products = {name for name, operator in OPERATORS.items() if operator.is_product}
    sums = {"AVG_POOL2D", "REDUCE_SUM", "FFT2D", "RFFT2D"}
    assert {n for n, rule in rules.items() if rule.name == "DOT_PRODUCT"} == products | sums
    special = {"COS", "EXP", "LOG", "SIGMOID", "SIN", "TANH"}
    assert {n for n, rule in rules.items() if rule.special} == special
    assert {n for n, rule in rules.items() if rule.name == "ABS_ERROR"} == special | {"POW"}
    assert {n for n, rule in rules.items() if rule.suite_bf16} == {"ADD", "MUL", "SUB"}
    rest = {"RESIZE": "MAX_RELATIVE", "REDUCE_PRODUCT": "REDUCE_PRODUCT"}
    assert {n: rules.pop(n).name for n in rest} == rest
    assert {rule.name for rule in rules.values()} == {"ABS_ERROR", "DOT_PRODUCT", "ULP"}


def test_what_is_told_of_an_operator():
    told = {
        what: {name for name, operator in spec.OPERATORS.items() if getattr(operator, what)}
        for what in (
            *("is_elementwise", "moves", "is_function", "is_singular"),
            *("keeps_scale", "keeps_order", "is_homogeneous", "is_product"),
            *("is_signless", "rearranges", "is_extreme", "has_batch"),
        )
    }
    assert told["is_singular"] == {"LOG", "POW", "RECIPROCAL", "RSQRT"}
    assert {"ADD", "TABLE", "SELECT", "EXP", "CAST", "RESCALE", "CLAMP"} <= told["is_elementwise"]
    assert told["moves"] == {
        *("CONCAT", "PAD", "RESHAPE", "REVERSE", "SLICE", "TILE", "TRANSPOSE"),
        *("GATHER", "SCATTER"),
    }
    assert not told["moves"] & told["is_elementwise"]
    assert told["rearranges"] == {"RESHAPE", "REVERSE", "SLICE", "TILE", "TRANSPOSE"}
    assert told["is_extreme"] == {"REDUCE_MAX", "REDUCE_MIN"}
    assert told["is_signless"] == told["moves"] | {
        *("COND_IF", "CONST", "CUSTOM", "IDENTITY", "SELECT", "WHILE_LOOP"),
    }
    data_layout = {"CONCAT", "PAD", "RESHAPE", "REVERSE", "SLICE", "TILE", "TRANSPOSE"}
    selecting = {"CLAMP", "GATHER", "IDENTITY", "MAX_POOL2D", "REDUCE_MAX", "REDUCE_MIN"}
    assert told["keeps_scale"] == data_layout | selecting
    assert told["keeps_order"] == {"CONCAT", "IDENTITY", "PAD", "RESHAPE", "SLICE", "TILE"}
    elementwise = {"ABS", "ADD", "IDENTITY", "MAXIMUM", "MINIMUM", "NEGATE", "SUB"}
    assert told["is_homogeneous"] == elementwise | {"AVG_POOL2D", "MAX_POOL2D", "RESIZE"}
    convolutions = {"CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D"}
    assert told["is_product"] == {"MATMUL", "MATMUL_T", *convolutions}
    of_images = {"AVG_POOL2D", "MAX_POOL2D", "RESIZE", "FFT2D", "RFFT2D", "GATHER", "SCATTER"}
    assert told["has_batch"] == told["is_product"] | of_images
    of_weights = {(op, name) for op in convolutions for name in ("input_zp", "weight", "weight_zp")}
    assert {
        (operator.name, argument.name)
        for operator in spec.OPERATORS.values()
        for argument in operator.arguments
        if argument.prepared
    } == {
        *of_weights,
        *((op, name) for op in ("MATMUL", "MATMUL_T") for name in ("a_zp", "b", "b_zp")),
        *(("AVG_POOL2D", name) for name in ("input_zp", "output_zp")),
        *(("RESCALE", name) for name in ("input_zp", "output_zp", "shift")),
        *(("MUL", "shift"), ("NEGATE", "output_zp")),
    }
    assert spec.OPERATORS.keys() - told["is_function"] == {
        *("COND_IF", "WHILE_LOOP", "CUSTOM", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"),
    }
    with pytest.raises(ValueError, match="ADD is not a product"):
        _ = spec.OPERATORS["ADD"].channel_axes
