"""The table of instructions follows from the operator table; here it is beside the real one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from paths import SAMPLES

from tosajax import spec
from tosajax.io.spirv import grammar
from tosajax.spec import Form
from tosajax.versions import V1_0

_TABLE = SAMPLES.parent / "spirv_tosa_ops.json"
_ROWS = json.loads(_TABLE.read_text())["operators"] if _TABLE.exists() else []
_LACKING = [pytest.param(None, marks=pytest.mark.skip(reason=f"no table {_TABLE}"))]
_ABSENT = {
    *("CONST", "CONST_SHAPE", "IDENTITY", "CUSTOM"),
    *("COND_IF", "WHILE_LOOP", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"),
}


def test_numbers():
    assert len(grammar.INSTRUCTIONS) == 66
    of_1_0 = {name for name, operator in spec.OPERATORS.items() if operator.since == V1_0}
    assert of_1_0 - grammar.NUMBERS.keys() == _ABSENT
    assert grammar.NUMBERS.keys() <= of_1_0
    some = {"ARGMAX": 0, "CONV2D": 2, "FFT2D": 5, "MAX_POOL2D": 7, "TRANSPOSE_CONV2D": 9}
    some |= {"CLAMP": 10, "ADD": 14, "TABLE": 30, "ABS": 31, "SELECT": 44, "EQUAL": 45}
    some |= {"REDUCE_ALL": 48, "CONCAT": 54, "GATHER": 61, "RESIZE": 63, "CAST": 64, "RESCALE": 65}
    assert some.items() <= grammar.NUMBERS.items()


@pytest.mark.parametrize("row", _ROWS or _LACKING, ids=lambda row: row and row["name"])
def test_row(row: dict[str, Any]):
    name = row["name"]
    assert grammar.NUMBERS[name] == row["opcode"]
    operator = spec.OPERATORS[name]
    operands = [a.name for a in (*operator.attributes, *operator.inputs)]
    # The operator table has lower case for the matrices of MATMUL.
    assert operands == [operand.lower() for operand in row["operand_order"]]
    for argument, stated in zip(operator.inputs, row["inputs"], strict=True):
        assert bool(argument.constant_in) == stated["must_be_constant"]
        assert (argument.form is Form.TENSOR_LIST) == stated["variadic"]
    for argument, stated in zip(operator.attributes, row["attributes"], strict=True):
        assert (argument.form is Form.LIST) == (stated["shape"] is not None)
        assert (argument.dtype is bool) == (stated["type"] == ["OpTypeBool"])
    assert (len(operator.outputs) > 1) == (row["result"] == "OpTypeStruct")


def test_enumerations():
    if not _TABLE.exists():
        pytest.skip(f"no table {_TABLE}")
    known = {"resize_mode_t": spec.ResizeMode, "acc_type_t": spec.AccType}
    known |= {"nan_propagation_mode_t": spec.NanMode, "rounding_mode_t": spec.RoundingMode}
    stated = json.loads(_TABLE.read_text())["enums"]
    assert stated == {name: {m.name: m.value for m in kind} for name, kind in known.items()}


def test_types():
    if not _TABLE.exists():
        pytest.skip(f"no table {_TABLE}")
    encodings = {"BFloat16KHR": 0, "Float8E4M3EXT": 4214, "Float8E5M2EXT": 4215}
    stated = json.loads(_TABLE.read_text())["type_mapping"]
    floats = {
        grammar.Width(int(words[1]), *(encodings[word] for word in words[2:]))
        for words in (text.split() for text in stated.values())
        if words[0] == "OpTypeFloat"
    }
    integers = {int(t.split()[1]) for t in stated.values() if t.startswith("OpTypeInt")}
    assert floats == grammar.FLOATS.keys()
    assert integers == grammar.INTEGERS.keys()
