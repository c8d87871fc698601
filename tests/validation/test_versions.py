"""Operators, attributes, types and element types against the version of a target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph, Target, dtypes, spec
from tosajax.graph.type_rows import needed_version, node_version
from tosajax.report import TosaError
from tosajax.spec import NanMode, TypeRow
from tosajax.versions import V1_0, V1_1

OLD = Target.parse("PRO-INT+PRO-FP")
NEW = Target.parse("TOSA-1.1+PRO-INT+PRO-FP")


def maximum(dtype: DType = DType.FP32, nan_mode: NanMode = NanMode.PROPAGATE) -> Graph:
    b = Builder()
    x = b.input("x", dtype, (2,))
    return b.graph(outputs=[b.op("MAXIMUM", x, x, nan_mode=nan_mode, name="most")])


def change(monkeypatch: pytest.MonkeyPatch, **changes) -> None:
    """Changes columns of MAXIMUM."""
    changed = dataclasses.replace(spec.OPERATORS["MAXIMUM"], **changes)
    monkeypatch.setitem(spec.OPERATORS, "MAXIMUM", changed)


def version_errors(graph: Graph, target: Target) -> list[str]:
    report = tosajax.validate(graph, target)
    assert len(report.findings) == len(report.errors)
    return [str(finding) for finding in report.errors]


def test_operator_of_a_later_version(monkeypatch):
    change(monkeypatch, since=V1_1)
    (error,) = version_errors(maximum(), OLD)
    assert error == (
        "MAXIMUM 'most': MAXIMUM needs TOSA 1.1, target is PRO-INT+PRO-FP@8K of TOSA 1.0 "
        "[maximum.version]"
    )
    assert not version_errors(maximum(), NEW)
    assert not version_errors(maximum(), Target.everything())
    with pytest.raises(TosaError, match=r"MAXIMUM needs TOSA 1\.1, target is PRO-FP@8K"):
        tosajax.compile(maximum(), "PRO-FP")


def test_target_of_1_0_refuses_matmul_t():
    b = Builder()
    x, w = b.input("x", DType.INT8, (2, 3, 4)), b.input("w", DType.INT8, (1, 5, 4))
    zero = b.const([0], DType.INT8)
    graph = b.graph(outputs=[b.op("MATMUL_T", x, w, zero, zero, name="y")])
    (error,) = version_errors(graph, Target.parse("PRO-INT"))
    assert error == (
        "MATMUL_T 'y': MATMUL_T needs TOSA 1.1, target is PRO-INT@8K of TOSA 1.0 [matmul_t.version]"
    )
    ones, point = np.ones((1, 2, 3), np.int8), np.zeros(1, np.int8)
    with pytest.raises(TosaError, match="MATMUL_T needs TOSA"):
        tosajax.run_op("MATMUL_T", [ones, ones, point, point], target="PRO-INT")
    assert not version_errors(graph, Target.parse("TOSA-1.1+PRO-INT"))
    assert tosajax.validate(graph).version == V1_1
    # By default all that tosajax has is allowed.
    report = tosajax.compile(graph).report
    assert report is not None
    assert report.version == V1_1


def test_operator_of_an_earlier_version(monkeypatch):
    change(monkeypatch, until=V1_0)
    assert not version_errors(maximum(), OLD)
    (error,) = version_errors(maximum(), NEW)
    assert "MAXIMUM needs TOSA 1.0, target is TOSA-1.1+PRO-INT+PRO-FP@8K of TOSA 1.1" in error


def test_attribute_of_a_later_version(monkeypatch):
    *others, mode = spec.OPERATORS["MAXIMUM"].arguments[:3]
    assert mode.name == "nan_mode"
    rest = spec.OPERATORS["MAXIMUM"].arguments[3:]
    change(monkeypatch, arguments=(*others, dataclasses.replace(mode, since=V1_1), *rest))
    graph = maximum(nan_mode=NanMode.IGNORE)
    (error,) = version_errors(graph, OLD)
    assert "attribute nan_mode needs TOSA 1.1, target is PRO-INT+PRO-FP@8K of TOSA 1.0" in error
    assert not version_errors(graph, NEW)
    assert needed_version(graph) == V1_1
    # What all versions do is allowed in all of them.
    assert not version_errors(maximum(), OLD)
    assert needed_version(maximum()) == V1_0


def test_types_of_a_later_version(monkeypatch):
    def row(row: TypeRow) -> TypeRow:
        is_new = DType.FP32 in row.types.values()
        return dataclasses.replace(row, since=V1_1) if is_new else row

    change(monkeypatch, types=tuple(map(row, spec.OPERATORS["MAXIMUM"].types)))
    (error,) = version_errors(maximum(), OLD)
    wanted = "input1 FP32, input2 FP32, output FP32 needs TOSA 1.1, target is PRO-INT+PRO-FP@8K of"
    assert wanted in error
    assert not version_errors(maximum(), NEW)
    assert not version_errors(maximum(DType.FP16), OLD)
    assert (needed_version(maximum()), needed_version(maximum(DType.FP16))) == (V1_1, V1_0)


def test_needs_are_those_of_the_target_version(monkeypatch):
    """A row of a later version does not support a target of 1.0, nor does one that has ended."""
    (row,) = (r for r in spec.OPERATORS["MAXIMUM"].types if DType.FP32 in r.types.values())
    later = dataclasses.replace(row, needs=(frozenset({"PRO-INT"}),), since=V1_1)
    change(monkeypatch, types=(dataclasses.replace(row, until=V1_0), later))
    assert not version_errors(maximum(), Target.parse("PRO-FP"))
    assert not version_errors(maximum(), Target.parse("TOSA-1.1+PRO-INT"))
    (error,) = version_errors(maximum(), Target.parse("PRO-INT"))
    assert "needs PRO-FP, target is PRO-INT@8K" in error
    (error,) = version_errors(maximum(), Target.parse("TOSA-1.1+PRO-FP"))
    assert "needs PRO-INT, target is TOSA-1.1+PRO-FP@8K" in error
    assert needed_version(maximum()) == V1_0


def test_element_type_of_a_later_version(monkeypatch):
    formats = dtypes._FORMATS
    monkeypatch.setitem(formats, DType.FP16, formats[DType.FP16]._replace(since=V1_1))
    first, second = version_errors(maximum(DType.FP16), OLD)
    assert "tensor 'x' is FP16[2], which needs TOSA 1.1, target is PRO-INT+PRO-FP@8K of" in first
    assert "tensor 'most' is FP16[2], which needs" in second
    assert not version_errors(maximum(DType.FP16), NEW)
    assert needed_version(maximum(DType.FP16)) == V1_1


def test_version_of_a_graph_is_that_of_its_parts(monkeypatch):
    change(monkeypatch, since=V1_1)
    inner = dataclasses.replace(maximum(), name="inner")
    b = Builder()
    outer = b.graph(outputs=[b.op("ABS", b.input("x", DType.FP32, (2,)))])
    outer = dataclasses.replace(outer, subgraphs={"inner": inner})
    assert (needed_version(outer), tosajax.validate(outer).version) == (V1_1, V1_1)


def test_version_of_what_no_version_has():
    """An operator or types of no version need none."""
    node = tosajax.Node("NOISE", outputs=("n",))
    assert node_version(node, {}) == V1_0
    assert node_version(tosajax.Node("VARIABLE"), {}) == V1_0
    graph = maximum()
    x = dataclasses.replace(graph.tensors["x"], dtype=DType.INT48)
    graph = dataclasses.replace(graph, tensors={**graph.tensors, "x": x})
    assert needed_version(graph) == V1_0
    assert needed_version(dataclasses.replace(graph, tensors={})) == V1_0


def test_findings_about_versions_are_one_group(monkeypatch):
    change(monkeypatch, since=V1_1)
    b = Builder()
    x = b.input("x", DType.FP32, (2,))
    for _ in range(9):
        x = b.op("MAXIMUM", x, x)
    (group,) = tosajax.validate(b.graph(outputs=[x]), OLD).grouped()
    assert len(group) == 9
    assert group[0].rule == "needs TOSA 1.1, target is PRO-INT+PRO-FP@8K of TOSA 1.0"
