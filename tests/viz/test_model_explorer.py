"""Data for Model Explorer: its documented form, and keys that are those of the viewer's nodes."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import programs
import pytest
import small_networks as small

import tosajax
from tosajax import DType, rewrite
from tosajax.compare import Comparison, compare
from tosajax.viz import node_data

COLOUR = re.compile(r"#[0-9a-f]{6}")


@pytest.fixture(scope="module")
def found() -> Comparison:
    a = small.two_layers()
    return compare(a, rewrite.rounding(a, "double"), small.images(6), local=True)


def check_form(data) -> None:
    """The form of a file of custom node data for one graph."""
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert set(data) == {"results", "gradient"}
    assert [item["stop"] for item in data["gradient"]] == [0, 1]
    assert all(COLOUR.fullmatch(item["bgColor"]) for item in data["gradient"])
    for key, result in data["results"].items():
        assert key
        assert isinstance(key, str)
        assert {"value"} <= set(result) <= {"value", "bgColor"}
        if "bgColor" in result:
            assert COLOUR.fullmatch(result["bgColor"])
        assert isinstance(result["value"], int | float) is ("bgColor" not in result)


def nodes_of_file(graph, path) -> dict[str, list[str]]:
    """The nodes of Arm's adapter for .tosa: the region, and the operator's place in the file."""
    tosajax.save(graph, path)
    (first, *_) = json.loads(path.read_text())["regions"]
    (block,) = first["blocks"]
    return {
        f"{first['name']}/op{k}": operator.get("outputs") or []
        for k, operator in enumerate(block["operators"])
    }


@pytest.mark.parametrize("kind", ["plain", "variable", "open batch"])
def test_nodes_of_tosa_files(kind, tmp_path):
    graph = {
        "plain": small.two_layers,
        "variable": programs.accumulator,
        "open batch": lambda: small.two_layers(batch=-1),
    }[kind]()
    nodes = nodes_of_file(graph, tmp_path / "model.json")
    read = tosajax.load(tmp_path / "model.json")
    inputs = [] if kind == "variable" else [small.images(3)]
    comparison = compare(read, read, *inputs)
    results = node_data(comparison, "share", read)["results"]
    compared = {row.tensor for row in comparison.rows}
    want = {key for key, outputs in nodes.items() if compared & set(outputs)}
    assert want
    assert {key for key in results if key in nodes} == want
    assert {key for key in results if re.fullmatch("main/op[0-9]+", key)} == want


def test_values_of_nodes(found, tmp_path):
    graph = small.two_layers()
    nodes = nodes_of_file(graph, tmp_path / "model.json")
    rows = {row.tensor: row for row in found.rows}
    for column in ("sqnr", "cosine", "share", "mismatches", "max_error", "mean_abs_error"):
        for prefix in ("", "local_"):
            data = node_data(found, prefix + column, graph)
            check_form(data)
            for key, outputs in nodes.items():
                if outputs[0] in rows:
                    row = rows[outputs[0]]
                    want = getattr(row.local if prefix else row.total, column)
                    value = want if math.isfinite(want) else str(want)
                    assert data["results"][key]["value"] == value


def test_names_of_tflite_files(found):
    """The last tensor that a location has is the TFLite operator's own."""
    location = 'loc("first;conv"("model.tflite":1:2))'
    graph = small.two_layers()
    nodes = [
        dataclasses.replace(node, location=location)
        if {"acc1", "act1"} & set(node.outputs)
        else dataclasses.replace(node, location=None)
        for node in graph.nodes
    ]
    graph = dataclasses.replace(graph, nodes=nodes)
    results = node_data(found, "share", graph)["results"]
    rows = {row.tensor: row for row in found.rows}
    assert rows["act1"].total.share > 0
    assert results["first;conv"] == {"value": rows["act1"].total.share}
    assert "act1" not in results


def test_without_the_graph(found):
    data = node_data(found, "share")
    check_form(data)
    rows = {row.tensor: row for row in found.rows}
    for name, row in rows.items():
        assert data["results"][name] == {"value": row.total.share}
    last = [row for row in found.rows if row.location == rows["act1"].location][-1]
    assert data["results"][rows["act1"].location] == {"value": last.total.share}


def test_the_worst_is_dark(found):
    def darkness(colour: str) -> int:
        return -sum(bytes.fromhex(colour[1:]))

    for column, dark in (("sqnr", 0), ("cosine", 0), ("share", 1), ("local_max_error", 1)):
        ends = [darkness(item["bgColor"]) for item in node_data(found, column)["gradient"]]
        assert ends[dark] > ends[1 - dark]
    infinite = []
    for row, sqnr in zip(found.rows, (math.inf, -math.inf), strict=False):
        total = dataclasses.replace(row.total, sqnr=sqnr, max_error=math.inf)
        infinite.append(dataclasses.replace(row, total=total))
    comparison = Comparison(tuple(infinite), 1)
    data = node_data(comparison)
    check_form(data)
    low, high = (item["bgColor"] for item in data["gradient"])
    names = [row.tensor for row in infinite]
    assert data["results"][names[0]] == {"value": "inf", "bgColor": high}
    assert data["results"][names[1]] == {"value": "-inf", "bgColor": low}
    data = node_data(comparison, "max_error")
    assert data["results"][names[0]]["bgColor"] == data["gradient"][1]["bgColor"]


def test_what_has_no_number_is_left_out(found):
    (first, *rest) = found.rows
    first = dataclasses.replace(first, total=dataclasses.replace(first.total, sqnr=math.nan))
    rest[0] = dataclasses.replace(rest[0], local=None)
    comparison = Comparison((first, *rest), 1)
    assert first.tensor not in node_data(comparison)["results"]
    assert first.tensor in node_data(comparison, "cosine")["results"]
    assert rest[0].tensor not in node_data(comparison, "local_cosine")["results"]
    assert node_data(comparison, "max_ulp")["results"] == {}
    assert node_data(Comparison((), 1))["results"] == {}


def test_several_outputs_of_a_node():
    """The worst counts, which of SQNR is the least."""
    b = tosajax.Builder()
    x = b.input("x", DType.INT32, (1, 3))
    graph = b.graph([b.op("ADD", x, b.const(np.ones((1, 3)), DType.INT32), name="y")])
    (row,) = compare(graph, graph, np.zeros((2, 1, 3), np.int32)).rows
    rows = tuple(
        dataclasses.replace(
            row, tensor=t, total=dataclasses.replace(row.total, sqnr=s, mismatches=m)
        )
        for t, s, m in (("y", 30.0, 4), ("z", 20.0, 2))
    )
    both = dataclasses.replace(graph.nodes[-1], outputs=("y", "z"))
    graph = dataclasses.replace(graph, nodes=(*graph.nodes[:-1], both))
    key = f"main/op{len(graph.nodes) - 1}"
    for column, want in (("sqnr", 20.0), ("mismatches", 4)):
        assert node_data(Comparison(rows, 1), column, graph)["results"][key] == {"value": want}


def test_unknown_columns(found, tmp_path):
    for column in ("first", "range_a", "location", "local_", ""):
        with pytest.raises(KeyError, match=f"no column '{column}', expected one of sqnr, cosine"):
            found.to_model_explorer(tmp_path / "x.json", column=column)
    assert list(tmp_path.iterdir()) == []


def test_file(found, tmp_path):
    graph = small.two_layers()
    found.to_model_explorer(tmp_path / "x.json", graph, "local_sqnr")
    content = json.loads((tmp_path / "x.json").read_text(), parse_constant=pytest.fail)
    assert content == node_data(found, "local_sqnr", graph)
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
