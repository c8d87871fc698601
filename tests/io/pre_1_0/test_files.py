"""Files of 0.60, 0.80 and 0.90: versions, regions and blocks, constants, variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from old_graphs import Old, legal, nested, to_flatbuffer, to_json
from paths import SAMPLES
from upgraded import result

import tosajax
from tosajax import DType, FormatError, Graph, UnsupportedError
from tosajax.graph.alike import difference
from tosajax.io import json_form, pre_1_0
from tosajax.io.pre_1_0.schema import LAYOUTS

DATA = Path(__file__).with_name("data")
SAMPLE = DATA / "int8_convnet_v080.tosa"


def read(root: dict[str, Any], version: tuple[int, int] = (0, 80)) -> Graph:
    """Reads both forms of a file, which give one graph."""
    graph = pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(root, version)))
    from_json = pre_1_0.read_json(json_form.parse(to_json(root, version)))
    assert from_json == graph
    assert from_json.source == dataclasses.replace(graph.source, format="TOSA JSON")
    return graph


def refused(root: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(root)))
    with pytest.raises(error, match=match):
        pre_1_0.read_json(json_form.parse(to_json(root)))


def small() -> Any:
    """The nested form of y = x + x."""
    return nested(legal("ADD", ("INT32",)))


def block(root: dict[str, Any]) -> dict[str, Any]:
    return root["regions"][0]["blocks"][0]


# Samples.


@pytest.mark.parametrize("name", [SAMPLE.name, "int8_convnet_v080.json"])
def test_sample(name):
    graph = tosajax.load(DATA / name)
    assert tosajax.validate(graph).findings == ()
    wanted = np.load(DATA / "out.npy")  # of Arm's model, for the same graph by hand in 1.0
    np.testing.assert_array_equal(result(graph, np.load(DATA / "in.npy")), wanted)


def test_sample_is_its_twin_of_1_0():
    """The twin has a second part, of floats."""
    graph = tosajax.load(SAMPLE)
    twin = tosajax.load(DATA / "pre10_upgraded_to_1_0.tosa")
    assert twin.source.version.startswith("1.")
    part = dataclasses.replace(twin, inputs=twin.inputs[:1], outputs=twin.outputs[:1])
    read: set[str] = set(part.outputs)
    kept = []
    for node in reversed(part.ordered_nodes()):
        if not read.isdisjoint(node.outputs):
            kept.append(node)
            read.update(node.inputs)
    part = dataclasses.replace(part, nodes=tuple(kept[::-1]))
    assert difference(graph, part) is None


def test_both_forms_of_the_sample_are_one_graph():
    graphs = [tosajax.load(SAMPLE), tosajax.load(SAMPLE.with_suffix(".json"))]
    assert graphs[0] == graphs[1]
    assert [g.source.format for g in graphs] == ["TOSA flatbuffer", "TOSA JSON"]
    assert {g.source.version for g in graphs} == {"0.80.1"}


def test_sample_becomes_a_file_of_1_0(tmp_path):
    graph = tosajax.load(SAMPLE)
    tosajax.save(graph, tmp_path / "new.tosa")
    assert tosajax.load(tmp_path / "new.tosa") == graph


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
@pytest.mark.parametrize("suffix", [".tosa", ".json"])
def test_samples_are_those_of_the_collection(suffix):
    name = f"int8_convnet_v080{suffix}"
    assert (DATA / name).read_bytes() == (SAMPLES / name).read_bytes()


# Versions.


@pytest.mark.parametrize("version", LAYOUTS)
@pytest.mark.parametrize(("patch", "draft"), [(0, False), (1, False), (7, True)])
def test_versions(version, patch, draft):
    root = nested(legal("ADD", ("INT32",)), version, _patch=patch, _draft=draft)
    stated = f"{version[0]}.{version[1]}.{patch}{'-draft' if draft else ''}"
    graph = read(root, version)
    assert graph.source.version == stated
    places = [rewrite.place for rewrite in graph.source.rewrites]
    assert places == ["version"] * (stated == "0.60.0") + [f"TOSA {stated}"]


@pytest.mark.parametrize(
    ("major", "minor"), [(0, 0), (0, 23), (0, 59), (0, 61), (0, 70), (0, 81), (0, 100), (-2, 80)]
)
def test_other_versions(major, minor):
    root = nested(legal("ADD", ("INT32",)), _major=major, _minor=minor)
    refused(
        root,
        UnsupportedError,
        rf"TOSA version {major}\.{minor}\.0 is not supported, expected 0\.60, 0\.80, 0\.90",
    )


def test_no_version():
    root = small()
    del root["version"]
    refused(root, FormatError, "the file states no version")


@pytest.mark.parametrize("numbers", [{}, {"_patch": 0}])
def test_numbers_that_are_defaults_of_0_60(numbers):
    """Writers of 0.60.0 leave them all out, and so did those of earlier versions."""
    root = nested(legal("ADD", ("INT32",)), (0, 60))
    root["version"] = numbers
    for graph in (
        pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(root, (0, 60)))),
        pre_1_0.read_json(json_form.parse(to_json(root, (0, 60)))),
    ):
        assert graph.source.version == "0.60.0"
        assert graph.source.rewrites[0].place == "version"
        assert "before 0.60" in graph.source.rewrites[0].differs


def test_all_numbers_of_0_60():
    """What the text leaves out has the default of 0.60."""
    raw = json_form.parse(to_json(nested(legal("ADD", ("INT32",)), (0, 60)), (0, 60)))
    stated = {**raw, "version": {"_major": 0, "_minor": 60, "_patch": 0}}
    graph = pre_1_0.read_json(stated)
    assert graph.source.version == "0.60.0"
    assert not any(rewrite.place == "version" for rewrite in graph.source.rewrites)


def test_some_numbers_that_are_defaults_of_0_60():
    root = nested(legal("ADD", ("INT32",)), (0, 60))
    root["version"] = {"_patch": 1, "_draft": True}
    graph = pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(root, (0, 60))))
    assert graph.source.version == "0.60.1-draft"
    assert not any(rewrite.place == "version" for rewrite in graph.source.rewrites)
    root["version"] = {"_minor": 70}
    with pytest.raises(UnsupportedError, match=r"version 0\.70\.0 is not supported"):
        pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(root, (0, 60))))


def test_fields_of_later_versions():
    """A flag of 0.80 in a file that states 0.60."""
    root = nested(legal("CONV2D", ("FP32",) * 3))
    block(root)["operators"][-1]["attribute"]["local_bound"] = True
    root["version"] |= {"_minor": 60}
    with pytest.raises(UnsupportedError, match="ConvAttribute has 1 fields of a later version"):
        pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(root)))
    with pytest.raises(FormatError, match="ConvAttribute has no field 'local_bound'"):
        pre_1_0.read_json(json_form.parse(to_json(root)))


def test_fields_of_1_0_before_it():
    root = nested(legal("ADD", ("INT32",)), (0, 80))
    text = to_json(root).replace(b'"regions"', b'"compatibility": {}, "regions"')
    with pytest.raises(FormatError, match="TosaGraph has no field 'compatibility'"):
        pre_1_0.read_json(json_form.parse(text))


# Operators and attributes.


@pytest.mark.parametrize(
    ("version", "number", "match"),
    [
        ((0, 80), 0, "operator 0 is unknown"),
        ((0, 80), 11, "operator 11 is unknown"),
        ((0, 80), 73, "operator 73 is unknown"),
        ((0, 90), 79, "operator 79 is unknown"),
        ((0, 60), 71, "operator 71 is unknown"),
    ],
)
def test_numbers_of_no_operator(version, number, match):
    root = nested(legal("ADD", ("INT32",)), version)
    block(root)["operators"][0]["op"] = number
    content = to_flatbuffer(root, version)
    with pytest.raises(FormatError, match=match):
        pre_1_0.read_flatbuffer(memoryview(content))


def test_operator_with_the_attributes_of_another():
    root = nested(legal("REVERSE", ("INT8",)))
    operator = block(root)["operators"][0]
    operator["op"] = LAYOUTS[0, 80].op.numbers["TILE"]
    refused(root, FormatError, "TILE 'y1': the attribute table is AxisAttribute, expected TileAttr")
    operator["op"] = LAYOUTS[0, 80].op.numbers["ABS"]
    refused(root, FormatError, "ABS 'y1': the attribute table is AxisAttribute, expected none")


def test_unknown_attribute_table():
    root = nested(legal("REVERSE", ("INT8",)))
    content = bytearray(to_flatbuffer(root))
    at = _number_of_the_table(content)
    content[at] = 99
    with pytest.raises(FormatError, match="the attribute table is of unknown type 99, expected"):
        pre_1_0.read_flatbuffer(memoryview(content))


def _number_of_the_table(content: bytearray) -> int:
    """Where a file of one REVERSE has the number 5, of AxisAttribute."""
    for at, number in enumerate(content):
        if number == 5:
            changed = bytearray(content)
            changed[at] = 99
            try:
                pre_1_0.read_flatbuffer(memoryview(changed))
            except FormatError as error:
                if "unknown type 99" in str(error):
                    return at
            except UnsupportedError:
                pass
    raise AssertionError("the file has no such number")


def test_attribute_table_that_is_missing():
    root = nested(legal("REVERSE", ("INT8",)))
    del block(root)["operators"][0]["attribute"]
    refused(root, FormatError, "REVERSE 'y1': the attribute table is missing")


def test_operator_without_its_attribute_table():
    root = nested(legal("REVERSE", ("INT8",)))
    block(root)["operators"][0] |= {"attribute_type": 0, "attribute": None}
    refused(root, FormatError, "REVERSE 'y1': attribute axis is missing")


def test_numbers_of_no_member():
    root = nested(legal("RESIZE", ("INT8", "INT8")))
    block(root)["operators"][-1]["attribute"]["mode"] = 9
    refused(root, FormatError, "RESIZE 'y1': mode: value 9 is unknown")
    block(root)["operators"][-1]["attribute"]["mode"] = 0
    refused(root, FormatError, "RESIZE 'y1': attribute mode is missing")


@pytest.mark.parametrize("data", [b"\0\0\xc0", b"\0\0\xc0?\0\0\0\1"])
def test_numbers_that_are_not_float32(data):
    root = nested(legal("CLAMP", ("FP32",)))
    block(root)["operators"][-1]["attribute"]["min_fp"] = data
    refused(root, FormatError, r"CLAMP 'y1': min_fp: \d bytes of data")


@pytest.mark.parametrize("data", [b"\0\0\xc0?", b"\0\0\xc0?\0\0\0\0"])
def test_numbers_of_halves_are_float32(data):
    root = nested(legal("CLAMP", ("FP16",)))
    block(root)["operators"][-1]["attribute"] |= {"max_fp": data}
    (node,) = read(root).nodes
    assert node.attributes["max_val"] == np.float16(1.5)


def test_numbers_that_the_type_does_not_need():
    root = nested(legal("CLAMP", ("INT8",)))
    block(root)["operators"][-1]["attribute"] |= {"min_fp": b"", "max_fp": None}
    assert read(root).nodes[0].attributes["min_val"] == -5


@pytest.mark.parametrize("version", LAYOUTS)
def test_names_of_custom_operators(version):
    """0.60 has other names for two of them."""
    root = nested(legal("CUSTOM", ("INT8",)), version)
    text = to_json(root, version)
    assert (b'"identifier": "spin"' in text) == (version == (0, 60))
    (node,) = read(root, version).nodes
    assert node.attributes["operator_name"] == "spin"
    assert node.attributes["domain_name"] == "test"
    assert node.attributes["implementation_attrs"] == b"\0\1\xff"


def test_shapes_of_0_90():
    b = Old()
    x = b.input("INT8", (2, 3))
    parts = [b.const("SHAPE", [n]) for n in (1, 5)]
    b.nodes = [dataclasses.replace(n, op="CONST_SHAPE") for n in b.nodes]
    total = b.op("ADD_SHAPE", parts, "SHAPE", (1,))
    shape = b.op("CONCAT_SHAPE", [total, parts[0]], "SHAPE", (2,))
    old = b.graph(b.op("RESHAPE", [x, shape], "INT8", (6, 1)))
    graph = read(nested(old, (0, 90)), (0, 90))
    assert [node.op for node in graph.nodes] == ["CONST_SHAPE", "RESHAPE"]
    assert list(np.asarray(graph.tensors[graph.nodes[0].outputs[0]].values)) == [6, 1]


# Tensors.


@pytest.mark.parametrize("number", [0, 13, 99])
def test_numbers_of_no_type(number):
    root = small()
    block(root)["tensors"][0]["type"] = number
    refused(root, FormatError, f"tensor 'x0': element type {number} is unknown")


def test_shapes_are_no_type_of_0_60():
    root = nested(legal("ADD", ("INT32",)), (0, 60))
    block(root)["tensors"][0]["type"] = 12
    with pytest.raises(FormatError, match="element type 12 is unknown"):
        pre_1_0.read_flatbuffer(memoryview(to_flatbuffer(root, (0, 60))))


def test_types_of_constants():
    b = Old()
    names = {
        "UINT8": b.const("UINT8", [0, 200, 255]),
        "UINT16": b.const("UINT16", [0, 40000, 65535]),
        "BOOL": b.const("BOOL", [True, False, True]),
        "BF16": b.const("BF16", [1.5, -2.0, 0.25]),
    }
    graph = read(nested(b.graph(*names.values())))
    found = {dtype: np.asarray(graph.tensors[n].values) for dtype, n in names.items()}
    np.testing.assert_array_equal(found["UINT8"], np.asarray([0, -56, -1], np.int8))
    np.testing.assert_array_equal(found["UINT16"], np.asarray([0, -25536, -1], np.int16))
    np.testing.assert_array_equal(found["BOOL"], [True, False, True])
    np.testing.assert_array_equal(found["BF16"].astype(float), [1.5, -2.0, 0.25])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"data": b"\1\2"}, "tensor 'c0': 2 bytes of data, expected 6"),
        ({"data": b"\1\2\3\4\5\6\7"}, "tensor 'c0': 7 bytes of data, not zero beyond byte 6"),
        ({"data": None}, "tensor 'c0': 0 bytes of data, expected 6"),
        ({"shape": [2, -1]}, r"tensor 'c0': 8 bytes of data for INT8 of shape \(2, -1\)"),
        ({"is_unranked": True}, "tensor 'c0': it has data and no rank"),
        ({"name": ""}, "a tensor has no name"),
        ({"name": None}, "a tensor has no name"),
    ],
)
def test_constants_that_do_not_fit(change, match):
    root = nested(legal("CONST", ("INT8",)))
    tensor = block(root)["tensors"][0]
    if "name" in change:
        block(root)["operators"] = []
    tensor |= change
    refused(root, FormatError, match)


def test_tensor_declared_twice():
    root = small()
    block(root)["tensors"].append(block(root)["tensors"][0])
    refused(root, FormatError, "tensor 'x0' is declared twice")


def test_data_of_what_is_not_constant_is_left_out():
    root = small()
    block(root)["tensors"][0]["data"] = b"\1\2\3"
    assert read(root).tensors["x0"].values is None


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_end_that_is_not_declared(side):
    root = small()
    block(root)[side] = ["nothing"]
    refused(root, FormatError, f"graph {side}: tensor 'nothing' is not declared")


def test_tensors_without_rank():
    root = small()
    block(root)["tensors"][0] |= {"is_unranked": True, "shape": None}
    assert read(root).tensors["x0"].shape is None


# Regions and blocks.


def test_no_regions():
    refused({"version": small()["version"]}, FormatError, "the file has no regions")


def test_region_without_blocks():
    root = small()
    root["regions"][0]["blocks"] = []
    refused(root, FormatError, "region 'main' has no block")


@pytest.mark.parametrize("name", ["main", "", None])
def test_names_of_regions(name):
    root = small()
    root["regions"].append({**root["regions"][0], "name": name})
    refused(root, FormatError, f"region or block name {name!r} is empty or used twice")


def _as_blocks(root: Any) -> Any:
    """The same with blocks of one region, as files had before regions were of use."""
    first, *others = root["regions"]
    blocks = [*first["blocks"], *(b for region in others for b in region["blocks"])]
    return {**root, "regions": [{**first, "blocks": blocks}]}


@pytest.mark.parametrize("op", ["COND_IF", "WHILE_LOOP"])
def test_control_flow_by_blocks(op):
    root = nested(legal(op, ("INT8",)))
    assert read(_as_blocks(root)) == read(root)


def test_control_flow_to_nothing():
    root = nested(legal("COND_IF", ("INT8",)))
    root["regions"].pop()
    refused(root, FormatError, "region 'main' refers to region 'second', which is not there")


def test_control_flow_to_itself():
    root = nested(legal("COND_IF", ("INT8",)))
    attribute = block(root)["operators"][-1]["attribute"]
    attribute["then_branch"] = "main"
    refused(root, FormatError, "region 'main' contains itself")


def test_control_flow_nested_deep():
    chain = [f"g{i}" for i in range(400)]
    root = nested(legal("WHILE_LOOP", ("INT8",)))
    main, condition, body = root["regions"]
    block(root)["operators"][-1]["attribute"]["body_branch"] = chain[0]
    regions = [main, condition]
    for name, after in zip(chain, [*chain[1:], body["name"]], strict=True):
        operator = dict(block(root)["operators"][-1])
        operator["attribute"] = {"cond_branch": "condition", "body_branch": after}
        regions.append({"name": name, "blocks": [{**block(root), "operators": [operator]}]})
    refused({**root, "regions": [*regions, body]}, UnsupportedError, "nested more than 256 deep")


# Variables.


def stateful(**change: Any) -> Any:
    """Reads a variable and writes an input to it, by IDENTITY."""
    numbers = LAYOUTS[0, 80].op.numbers
    identity = {"op": numbers["IDENTITY"], "attribute_type": 0}
    state = {"name": "v", "type": 4, "shape": [2], "variable": True, "variable_name": "state"}
    plain = {"type": 4, "shape": [2]}
    body = {
        "name": "main",
        "tensors": [
            {"data": b"\x05\xfb\0\0\0\0\0\0"} | state | change,
            {"name": "x", **plain},
            {"name": "y", **plain},
        ],
        "operators": [
            {**identity, "inputs": ["v"], "outputs": ["y"]},
            {**identity, "inputs": ["x"], "outputs": ["v"]},
        ],
        "inputs": ["x"],
        "outputs": ["y"],
    }
    version = {"_major": 0, "_minor": 80, "_patch": 1, "_draft": False}
    return {"version": version, "regions": [{"name": "main", "blocks": [body]}]}


def test_variables():
    graph = read(stateful())
    assert tosajax.validate(graph).findings == ()
    assert [node.op for node in graph.nodes] == ["VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"]
    assert graph.tensors["v"].variable == "state"
    np.testing.assert_array_equal(np.asarray(graph.tensors["v"].values), [5, -5])
    assert graph == tosajax.load(tosajax.io.to_bytes(graph))


@pytest.mark.parametrize("data", [None, b""])
def test_variables_without_an_initial_value(data):
    graph = read(stateful(data=data))
    assert graph.tensors["v"].values is None
    assert graph.tensors["v"].dtype is DType.INT8


def _with_branch(root: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    """The variable in a second region, which control flow would name."""
    other = stateful()["regions"][0]["blocks"][0]
    other["name"] = "other"
    change(other)
    root["regions"].append({"name": "other", "blocks": [other]})
    return root


def test_variable_of_two_regions():
    graph = read(_with_branch(stateful(), lambda body: None))
    declared = [n for g in graph.walk() for n in g.nodes if n.op == "VARIABLE"]
    assert len(declared) == 1
    assert [n.op for n in graph.subgraphs["other"].nodes] == ["VARIABLE_READ", "VARIABLE_WRITE"]


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ({}, {"data": b"\x05\xfa"}),
        ({}, {"data": None}),
        ({"data": None}, {"shape": [1], "data": None}),
        ({"data": None}, {"type": 10, "data": None}),
    ],
)
def test_variable_of_two_regions_that_differs(given, change):
    root = _with_branch(stateful(**given), lambda body: body["tensors"][0].update(change))
    refused(root, FormatError, "variable 'state' is declared twice, differently")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"variable_name": None}, "tensor 'v' is a variable of no name"),
        ({"data": b"\5"}, "tensor 'v': 1 bytes of data, expected 2"),
    ],
)
def test_variables_that_are_broken(change, match):
    refused(stateful(**change), FormatError, match)


def test_variable_of_another_type():
    refused(
        stateful(type=6, data=None),
        UnsupportedError,
        "VARIABLE 'v': variable 'state' is INT32, expected INT8|FP16",
    )


def test_variable_of_two_tensors():
    root = stateful()
    block(root)["tensors"].append({**block(root)["tensors"][0], "name": "w"})
    refused(root, FormatError, "variable 'state' has two tensors")


@pytest.mark.parametrize("ends", [{"outputs": []}, {"inputs": ["v", "x"]}])
def test_identity_that_reads_a_variable_and_more(ends):
    root = stateful()
    block(root)["operators"][0] |= ends
    refused(root, FormatError, "'v' is a variable")


def test_identity_of_nothing():
    root = stateful()
    block(root)["operators"][0] |= {"inputs": []}
    assert tosajax.validate(read(root)).errors


def test_only_identity_reads_variables():
    root = stateful()
    block(root)["operators"][0]["op"] = LAYOUTS[0, 80].op.numbers["BITWISE_NOT"]
    refused(root, FormatError, "BITWISE_NOT 'y': 'v' is a variable, which only IDENTITY reads and")
    root = stateful()
    block(root)["outputs"] = ["v"]
    refused(root, FormatError, "graph outputs: 'v' is a variable")
    root = stateful()
    block(root)["operators"][0]["outputs"] = ["v"]
    refused(root, FormatError, "IDENTITY 'v': 'v' is a variable")
