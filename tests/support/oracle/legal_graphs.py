"""One-node graphs of every operator, built from the legal arguments in tests/checks."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from typing import Any

import numpy as np
from paths import TESTS

from tosajax import spec
from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.spec import ResizeMode

Arguments = Mapping[str, Any]

# These need more than arguments (subgraphs, state, an implementation), and have tests of their own.
NOT_HERE = {"CUSTOM", "COND_IF", "WHILE_LOOP", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"}
OPERATORS = [op for op in spec.OPERATORS.values() if op.name not in NOT_HERE]
ROWS = [(op, row) for op in OPERATORS for row in op.types]
ROW_IDS = [f"{op.name}-{row.mode}" for op, row in ROWS]

_CHECKS = TESTS / "checks"
CHAPTERS = [
    runpy.run_path(str(_CHECKS / f"test_{chapter}.py"))
    for chapter in sorted({op.chapter for op in OPERATORS})
]
# Legal arguments of each operator; CONST and CONST_SHAPE have none.
LEGAL = {op: arguments for chapter in CHAPTERS for op, arguments in chapter["LEGAL"].items()}


def legal_graph(operator: spec.Operator, row: spec.TypeRow, **changes: Any) -> Graph:
    """A small legal graph of one node of these types, some arguments changed."""
    if operator.name == "CONST_SHAPE":
        b = Builder()
        b.const_shape([1, 2])  # no graph may output it
        return b.graph(outputs=[])
    if operator.name == "CONST":
        b = Builder()
        return b.graph(outputs=[b.const(np.zeros(2), DType(row.types["out_t"]))])
    return graph_of(operator.name, LEGAL[operator.name] | of_row(operator, row) | changes)


def of_row(operator: spec.Operator, row: spec.TypeRow) -> dict[str, Any]:
    """Arguments that depend on the types of a legal graph."""
    types: dict[str, Any] = {"types": row.mode}
    if operator.name == "CLAMP":
        storage = DType(row.types["in_out_t"]).storage.type
        return types | {"min_val": storage(-1), "max_val": storage(1)}
    if operator.name == "RESIZE":
        nearest = row.mode.endswith("nearest")
        return types | {"mode": ResizeMode.NEAREST_NEIGHBOR if nearest else ResizeMode.BILINEAR}
    if operator.name == "RESCALE" and row.mode.startswith("48"):
        return types | {"scale32": False, "multiplier": np.ones(1, np.int16)}
    if operator.name == "TABLE":
        return types | {"table": (row.types["TABLE_SIZE"],)}
    return types


def graph_of(op: str, arguments: Arguments) -> Graph:
    """Builds a graph of one operator from its arguments.

    A tensor is a tuple, its shape, for an input of the graph or an array for a constant; a
    shape_t input is a list; a tensor list is a list of tuples. "types" names a type row by its
    mode and stands for acc_type too; without it the first row is taken. Without an output shape
    the graph serves to derive one.
    """
    operator = spec.OPERATORS[op]
    row = _row(operator, arguments)
    b = Builder()
    inputs: list[Tensor] = []
    for argument in operator.inputs:
        value = arguments[argument.name]
        if argument.form is spec.Form.TENSOR_LIST:
            dtype = _dtype(argument, row)
            inputs += [b.input(f"{argument.name}_{i}", dtype, s) for i, s in enumerate(value)]
        elif argument.form is spec.Form.SHAPE:
            inputs.append(b.const_shape(value))
        elif isinstance(value, tuple):
            inputs.append(b.input(argument.name, _dtype(argument, row), value))
        else:
            inputs.append(b.const(value, _dtype(argument, row, value)))
    attributes = {a.name: arguments[a.name] for a in operator.attributes if a.name in arguments}
    if "acc_type" in (a.name for a in operator.attributes):
        attributes["acc_type"] = row.types["acc_t"]
    results = b.ops(
        op,
        *inputs,
        shapes=[arguments.get(output.name, ()) for output in operator.outputs],
        dtypes=[_dtype(output, row) for output in operator.outputs],
        **attributes,
    )
    return b.graph(outputs=results)


def _row(operator: spec.Operator, arguments: Arguments) -> spec.TypeRow:
    rows = {row.mode: row for row in operator.types}
    return rows[arguments["types"]] if "types" in arguments else operator.types[0]


def _dtype(argument: spec.Argument, row: spec.TypeRow, values: Any = None) -> DType:
    """The row's type, or that of the values where the row leaves it open."""
    found = (
        argument.dtype if isinstance(argument.dtype, DType) else row.types.get(str(argument.dtype))
    )
    return found if isinstance(found, DType) else DType[np.asarray(values).dtype.name.upper()]
