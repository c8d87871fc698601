"""Every operator of 0.80, in every row of its types: upgraded, the graph is legal and the same."""

from __future__ import annotations

import numpy as np
import pytest
from old_graphs import (
    CASE_IDS,
    CASES,
    LATER,
    NOT_IN_FILES,
    TYPES,
    legal,
    nested,
    to_flatbuffer,
    to_json,
)

import tosajax
from tosajax import Graph, Source
from tosajax.graph.alike import difference
from tosajax.io import json_form, pre_1_0
from tosajax.io.pre_1_0 import schema
from tosajax.io.pre_1_0.model import OldGraph
from tosajax.io.pre_1_0.upgrade import upgrade

VERSIONS = [(0, 60), (0, 80), (0, 90)]


def upgraded(graph: OldGraph) -> Graph:
    return upgrade(graph, Source("test", "0.80.0"))


def load(graph: OldGraph, version: tuple[int, int]) -> Graph:
    return pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(nested(graph, version), version)))


def test_the_table_has_all_operators():
    assert len(TYPES) == 74
    assert {*TYPES} - {*NOT_IN_FILES} == {*schema.LAYOUTS[0, 80].op.numbers} - {
        "UNKNOWN",
        "RESERVED",
    }


@pytest.mark.parametrize(("op", "row"), CASES, ids=CASE_IDS)
def test_upgraded_graph_is_legal(op, row):
    graph = upgraded(legal(op, row))
    assert tosajax.validate(graph).findings == ()


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v[0]}.{v[1]}")
@pytest.mark.parametrize(("op", "row"), CASES, ids=CASE_IDS)
def test_files_give_the_same_graph(op, row, version):
    if op in NOT_IN_FILES:
        pytest.skip("no file has operators of variables")
    if version == (0, 60) and (op in LATER or "SHAPE" in row):
        pytest.skip("0.60 has neither")
    old = legal(op, row)
    wanted = upgraded(old)
    root = nested(old, version)
    read = pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(root, version)))
    assert difference(read, wanted) is None
    assert difference(pre_1_0.read_json(json_form.parse(to_json(root, version))), wanted) is None
    assert [t.name for t in read.input_tensors] == [*old.inputs]
    assert [t.name for t in read.output_tensors] == [*old.outputs]
    assert read.source.version == f"{version[0]}.{version[1]}.0"


@pytest.mark.parametrize(("op", "row"), CASES, ids=CASE_IDS)
def test_rewrites_say_where_results_may_differ(op, row):
    rewrites = upgraded(legal(op, row)).source.rewrites
    assert len({str(rewrite) for rewrite in rewrites}) == len(rewrites)
    doubts = {r.place.partition(" ")[0] for r in rewrites if r.differs} - {"floats"}
    floats = row[0] in ("FP16", "BF16", "FP32")
    half_products = row[0] in ("FP16", "BF16") and len(row) == 3 and row[-1] == "FP32"
    wanted = (
        half_products
        or op == "POW"
        or (op in ("ARGMAX", "TRANSPOSE_CONV2D") and floats)
        or (op.startswith("LOGICAL_") and op.endswith("SHIFT") and row[0] != "INT32")
        or (op == "CAST" and floats and row[-1].startswith("INT"))
        or (op == "REDUCE_SUM" and row[0] == "BF16")
    )
    assert doubts == ({op} if wanted else set())


def test_values_of_constants_are_kept():
    graph = upgraded(legal("CONST", ("INT16",)))
    (name,) = graph.outputs
    wanted = legal("CONST", ("INT16",)).tensors[name].values
    np.testing.assert_array_equal(np.asarray(graph.tensors[name].values), np.asarray(wanted))
