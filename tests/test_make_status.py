"""The status page counts the results, and reads routes from graphs."""

from __future__ import annotations

import json
import sys
from typing import Any

import make_status
import numpy as np
import pytest

import tosajax
from tosajax.dtypes import DType
from tosajax.grad import gradient_rules


def graph(
    op: str,
    dtype: DType,
    *constants: tuple[np.ndarray, DType],
    inputs: int = 1,
    to: DType | None = None,
    **attributes: Any,
) -> tosajax.Graph:
    """One operator on inputs of one type and shape, then constants."""
    builder = tosajax.Builder()
    names = [builder.input(f"x{i}", dtype, (1, 3, 3)) for i in range(inputs)]
    names += [builder.const(*constant) for constant in constants]
    y = builder.op(op, *names, shape=(1, 3, 3), dtype=to or dtype, **attributes)
    return builder.graph(outputs=[y])


def zeros(dtype: DType) -> list[tuple[np.ndarray, DType]]:
    return [(np.zeros(1, dtype.storage), dtype)] * 2


FP32, INT8, INT16, INT48 = DType.FP32, DType.INT8, DType.INT16, DType.INT48
GRAPHS = {
    "data movement": graph("REVERSE", FP32, axis=1),
    "elementwise": graph("ADD", FP32, inputs=2),
    "f32 dot": graph("MATMUL", FP32, *zeros(FP32), inputs=2),
    "gather": graph("TABLE", INT8, (np.arange(-128, 128), INT8)),
}


@pytest.mark.parametrize("route", list(GRAPHS))
def test_route(route):
    assert make_status.route(GRAPHS[route]) == route


def test_route_names_the_scope_of_64_bit_types():
    wide = make_status.route(graph("MATMUL", INT16, *zeros(INT16), inputs=2, to=INT48))
    narrow = make_status.route(graph("MATMUL", INT8, *zeros(INT8), inputs=2, to=DType.INT32))
    assert wide.endswith(", int64")
    assert "int64" not in narrow


def test_page(tmp_path, monkeypatch):
    tosajax.save(GRAPHS["gather"], tmp_path / "table.tosa")
    tosajax.save(GRAPHS["elementwise"], tmp_path / "add.tosa")

    def record(operator, kind, status, inputs, outputs, file):
        return {
            "operator": operator,
            "kind": kind,
            "status": status,
            "inputs": inputs,
            "outputs": outputs,
            "graph": str(tmp_path / file),
        }

    two, one = ["INT8", "INT8"], ["INT8"]
    tests = [
        record("TABLE", "positive", "pass", two, one, "table.tosa"),
        record("TABLE", "positive", "fail", two, one, "never.tosa"),
        record("TABLE", "ERROR_IF", "wrongly_accepted", two, one, "never.tosa"),
        record("TABLE", "ERROR_IF", "pass", [], one, "never.tosa"),
        record("ADD", "positive", "pass", ["FP32", "FP32"], ["FP32"], "add.tosa"),
        record("MUL", "positive", "crash", ["INT8", "INT32"], ["INT32"], "never.tosa"),
    ]
    results = {
        "command": "the command",
        "versions": {"tosajax": "1.2", "jax": "3.4", "tosa-tools": "5.6"},
        "suite": {"tosa_version": "1.0.2", "which": "all tests", "seed": 42},
        "tests": tests,
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    page = tmp_path / "docs" / "status.md"
    monkeypatch.setattr(
        sys, "argv", ["make_status", str(tmp_path / "results.json"), "-o", str(page)]
    )
    make_status.main()
    text = page.read_text()
    assert [line for line in text.splitlines() if line.startswith("| ")][1:] == [
        "| ADD | FP32 -> FP32 | 1/1 |  | Linear | elementwise |",
        "| MUL | INT8, INT32 -> INT32 | 0/1 |  | The product rule, times 2**-shift |  |",
        f"| TABLE | INT8 -> INT8 | 1/2 | 0/1 | {gradient_rules()['TABLE']} | gather |",
        "| TABLE | none -> INT8 |  | 1/1 |  |  |",
    ]
    assert "tosajax 1.2, jax 3.4, tosa-tools 5.6" in text
    assert "all tests, seed 42: 3 of 6 tests pass" in text
    assert "`the command`" in text
