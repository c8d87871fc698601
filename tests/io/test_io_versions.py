"""Which versions, features, operators and types are read, and what errors say of the others."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tosajax import Builder, DType, io, spec
from tosajax.io import flatbuffer, schema, tosa_file
from tosajax.report import FormatError, UnsupportedError
from tosajax.versions import V1_1


def _stamped(edited, *version: int | bool) -> bytes:
    names = ("_major", "_minor", "_patch", "_draft")
    return edited(lambda root: root.update(version=dict(zip(names, version, strict=True))))


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ((1, 0, 0, False), "1.0.0"),
        ((1, 0, 0, True), "1.0.0-draft"),
        ((1, 0, 2, True), "1.0.2-draft"),
        ((1, 1, 0, True), "1.1.0-draft"),
    ],
)
def test_version_is_read(edited, small_graph, version, name):
    graph = io.load(_stamped(edited, *version))
    assert graph == small_graph
    assert graph.source.version == name


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ((1, 1, 0, False), "1.1.0"),
        ((1, 1, 1, True), "1.1.1-draft"),
        ((1, 2, 0, True), "1.2.0-draft"),
        ((2, 0, 0, False), "2.0.0"),
    ],
)
def test_version_is_refused(edited, version, name):
    with pytest.raises(UnsupportedError, match=rf"{name} is not .* 1\.0\.x and 1\.1\.0-draft"):
        io.load(_stamped(edited, *version))


@pytest.mark.parametrize(
    ("version", "name"),
    [((0, 70, 1, False), "0.70.1"), ((0, 100, 0, True), "0.100.0-draft")],
)
def test_version_before_1_0_is_refused(edited, version, name):
    wanted = r"expected 0\.60, 0\.80, 0\.90"
    with pytest.raises(UnsupportedError, match=rf"{name} is not supported, {wanted}"):
        io.load(_stamped(edited, *version))


def test_version_is_looked_at_before_all_else(edited):
    """Other versions have other layouts, of which nothing can be told."""
    broken = bytearray(_stamped(edited, 1, 2, 0, False))
    root = flatbuffer.decode(memoryview(broken), schema.GRAPH)
    assert root["regions"]
    at = broken.index(b"layer/") - 4
    broken[at : at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(UnsupportedError, match=r"1\.2\.0"):
        io.load(bytes(broken))
    with pytest.raises(UnsupportedError, match=r"1\.2\.0"):
        io.load(b'{"version": {"_major": 1, "_minor": 2, "_patch": 0, "_draft": false}, "x": 1}')


def test_version_is_missing(edited):
    with pytest.raises(FormatError, match="states no version"):
        io.load(edited(lambda root: root.update(version=None)))


@pytest.mark.parametrize(
    ("features", "named"),
    [
        (1 << 1, r"bit 1 \(MXFP\)"),
        (1 << 7 | 1 << 63, r"bit 7 \(unknown\), bit 63 \(unknown\)"),
        (1, r"bit 0"),
    ],
)
def test_feature_is_refused(edited, features, named):
    compatibility = {"min_reader_version": None, "features": features}
    with pytest.raises(UnsupportedError, match=named):
        io.load(edited(lambda root: root.update(compatibility=compatibility)))


def test_producer_is_kept(edited):
    version = {"_major": 2026, "_minor": 8, "_micro": 0, "_modifier": "rc1"}
    compatibility = {"min_reader_version": version, "features": 0}
    content = edited(
        lambda root: root.update(software_version=version, compatibility=compatibility)
    )
    assert io.load(content).source.producer == "2026.8.0rc1"


def test_written_version_is_the_one_that_the_graph_needs(small_graph, monkeypatch):
    old = io.to_bytes(small_graph)
    assert io.load(old).source.version == "1.0.0"
    later = dataclasses.replace(spec.OPERATORS["CLAMP"], since=V1_1)
    monkeypatch.setitem(spec.OPERATORS, "CLAMP", later)
    for write in (tosa_file.to_flatbuffer, tosa_file.to_json):
        graph = io.load(write(small_graph))
        assert (graph, graph.source.version) == (small_graph, "1.1.0-draft")


def test_operators_of_1_1_are_written_as_the_draft(tmp_path):
    """MATMUL_T in each format, and refused by name in those that have TOSA 1.0 only."""
    b = Builder()
    x, w = b.input("x", DType.INT8, (2, 3, 4)), b.input("w", DType.INT8, (1, 5, 4))
    zero = b.const([0], DType.INT8)
    graph = b.graph(outputs=[b.op("MATMUL_T", x, w, zero, zero, name="y")])
    for name in ("graph.tosa", "graph.json", "graph.mlir"):
        io.save(graph, tmp_path / name)
        assert io.load(tmp_path / name) == graph
    assert io.load(tmp_path / "graph.tosa").source.version == "1.1.0-draft"
    assert io.load(tmp_path / "graph.json").source.version == "1.1.0-draft"
    for name in ("graph.spv", "graph.vgf"):
        with pytest.raises(UnsupportedError, match=r"MATMUL_T .y. needs TOSA 1\.1: the"):
            io.save(graph, tmp_path / name)
        assert not (tmp_path / name).exists()


def _first(root: dict, kind: str) -> dict:
    return root["regions"][0]["blocks"][0][kind][0]


@pytest.mark.parametrize("name", schema.DRAFT_OPERATORS)
def test_operator_of_1_1_is_refused(edited, name):
    number = schema.OP.numbers[name]

    def change(root):
        _first(root, "operators").update(op=number, attribute_type=number, attribute=None)

    with pytest.raises(UnsupportedError, match=f"{name} 'c': operator {name} is of TOSA 1.1"):
        io.load(edited(change))


@pytest.mark.parametrize("name", schema.DRAFT_DTYPES)
def test_dtype_of_1_1_is_refused(edited, name):
    content = edited(lambda root: _first(root, "tensors").update(type=schema.DTYPE.numbers[name]))
    with pytest.raises(UnsupportedError, match=f"tensor 'x': element type {name} is of TOSA 1.1"):
        io.load(content)


@pytest.mark.parametrize(
    "scale", [{"scale_type": 12}, {"block_shape": 32}, {"scale_data": b"\1"}, {"scale_size": 4}]
)
def test_block_scale_is_refused(edited, scale):
    with pytest.raises(UnsupportedError, match="tensor 'x': the tensor is block scaled"):
        io.load(edited(lambda root: _first(root, "tensors").update(scale)))


def test_model_of_1_1_names_an_operator(data):
    with pytest.raises(UnsupportedError, match="operator CAST_TO_BLOCK_SCALED is"):
        io.load(data / "et_digits_vit_mxfp8_e4m3" / "model.tosa")


def test_json_of_1_1_names_an_operator(small_graph, tmp_path):
    io.save(small_graph, tmp_path / "graph.json")
    root = json.loads((tmp_path / "graph.json").read_text())
    _first(root, "operators").update(
        op="DIM", attribute_type="DimAttribute", attribute={"later": 1}
    )
    with pytest.raises(UnsupportedError, match="operator DIM is"):
        io.load(json.dumps(root).encode())


def test_field_of_a_later_version_is_refused():
    longer = schema.Table(
        "OpLocation", (*schema.LOCATION.fields, schema.Field("line", schema.Scalar.INT32, 0))
    )
    fields = tuple(
        schema.Field("location", longer) if f.name == "location" else f
        for f in schema.OPERATOR.fields
    )
    operator = schema.Table("TosaOperator", fields)
    value = {"op": 1, "location": {"text": "here", "line": 3}}
    content = memoryview(flatbuffer.encode(value, operator, schema.IDENTIFIER))
    assert flatbuffer.decode(content, operator)["location"] == {"text": "here", "line": 3}
    with pytest.raises(UnsupportedError, match="location: OpLocation has 1 fields of a later"):
        flatbuffer.decode(content, schema.OPERATOR)
