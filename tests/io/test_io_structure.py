"""Files that are well-formed flatbuffers and no graphs: what is refused, and how it is named."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import numpy as np
import pytest

from tosajax import io, spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.io import flatbuffer, schema
from tosajax.io.attributes import read_attributes
from tosajax.io.versions import WRITTEN
from tosajax.report import FormatError, TosaError, UnsupportedError
from tosajax.validation import validate
from tosajax.versions import V1_0


def _block(root: dict, region: int = 0) -> dict[str, Any]:
    return root["regions"][region]["blocks"][0]


def _named(root: dict, name: str) -> dict[str, Any]:
    """The tensor, shape or operator of a name; an operator's is its first output."""
    block = _block(root)
    for entry in (*block["tensors"], *block["shapes"]):
        if entry["name"] == name:
            return entry
    return _operator(root, name)


def _operator(root: dict, output: str) -> dict[str, Any]:
    return next(o for o in _block(root)["operators"] if output in o["outputs"])


def _rejects(content: bytes, message: str, error: type[Exception] = FormatError) -> None:
    with pytest.raises(error, match=message):
        io.load(content)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("c", {"data": None}, r"tensor 'c': 0 bytes of data, expected 6 for INT8 of .*\(2, 3\)"),
        ("c", {"data": b"12345"}, "tensor 'c': 5 bytes of data, expected 6"),
        ("c", {"data": b"123456\0\1"}, "8 bytes of data, not zero beyond byte 6, expected 6"),
        ("c", {"shape": [-1, 3]}, "tensor 'c': 6 bytes of data for INT8"),
        ("c", {"is_unranked": True}, "tensor 'c': 6 bytes of data and no rank"),
        ("c", {"shape": [0] + [2147483647] * 9, "data": b""}, "tensor 'c': "),
        ("c", {"shape": [1] * 100, "data": b"\1"}, "tensor 'c': "),
        ("s", {"data": None}, "shape 's': 0 bytes of data, expected 8"),
        ("s", {"rank": 4294967295}, "shape 's': 8 bytes of data, expected 34359738360"),
        ("x", {"type": 0}, "tensor 'x': element type 0 is unknown"),
        ("x", {"type": 19}, "tensor 'x': element type 19 is unknown"),
        ("x", {"name": None}, "has no name"),
        ("x", {"name": ""}, "has no name"),
        ("x", {"name": "high", "shape": [1]}, "tensor 'high' is declared twice"),
        ("s", {"name": "c"}, "tensor 'c' is declared twice"),
        ("state", {"variable_name": ""}, "tensor 'state': the tensor is a variable of no name"),
    ],
)
def test_tensor(edited, name, change, message):
    _rejects(edited(lambda root: _named(root, name).update(change)), message)


@pytest.mark.parametrize("padding", [1, 2, 58])
def test_zeros_beyond_the_data_are_padding(edited, small_graph, padding):
    data = bytes(range(253, 256)) + bytes(3 + padding)

    graph = io.load(edited(lambda root: _named(root, "c").update(data=data)))
    assert graph.tensors["c"].values is not None
    np.testing.assert_array_equal(graph.tensors["c"].values, [[-3, -2, -1], [0, 0, 0]])


def test_data_of_other_tensors_has_no_meaning(edited, small_graph):
    """Real files have some on inputs of subgraphs; it need not even fit."""
    assert io.load(edited(lambda root: _named(root, "x").update(data=b"1"))) == small_graph


@pytest.mark.parametrize("offset", ["inside", "end", "huge"])
def test_data_outside_the_flatbuffer(edited, small_graph, offset):
    values = small_graph.tensors["c"].values.tobytes()
    size = 1 << 14  # beyond the flatbuffer, and to be found again
    places = {"inside": size, "end": size + 1, "huge": (1 << 64) - 1}

    def change(root):
        _named(root, "c").update(data=None, offset=places[offset], size=len(values))

    content = edited(change)
    assert len(content) < size
    content = content.ljust(size, b"\xee") + values
    if offset == "inside":
        assert io.load(content) == small_graph
    else:
        _rejects(content, f"tensor 'c': data at bytes {places[offset]} to .* beyond the {size + 6}")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("high", {"op": 0}, "UNKNOWN 'high': operator 0 is unknown"),
        ("high", {"op": 101}, "operator 101 'high': operator 101 is unknown"),
        ("high", {"attribute": None}, "MAXIMUM 'high': the attribute table is missing"),
        ("high", {"attribute_type": 27}, "is MinimumAttribute, expected MaximumAttribute"),
        ("high", {"op": 68}, "is MaximumAttribute, expected IdentityAttribute"),
        ("high", {"attribute": {"nan_mode": 3}}, "nan_mode: value 3 is unknown, expected one of"),
        ("high", {"inputs": ["x", "state"]}, "'state' is a variable, which only IDENTITY"),
        ("old", {"outputs": ["old", "state"]}, "'state' is a variable, which only IDENTITY"),
        ("old", {"inputs": ["c"]}, "expected the tensor of one variable"),
        ("old", {"inputs": []}, "expected the tensor of one variable"),
        ("clamped", {"inputs": [], "outputs": []}, "min_val: no tensor gives its element type"),
        ("chosen", {"attribute": {}}, "COND_IF 'chosen': then_graph: the file gives no value"),
    ],
)
def test_operator(edited, name, change, message):
    _rejects(edited(lambda root: _operator(root, name).update(change)), message)


@pytest.mark.parametrize(
    ("name", "change", "label"),
    [
        ("high", {"inputs": ["x", "lost"]}, "graph.undefined"),
        ("high", {"outputs": ["high", "lost"]}, "graph.undefined"),
        ("clamped", {"inputs": []}, "clamp.inputs"),
    ],
)
def test_what_breaks_rules_of_graphs_is_left_to_validation(edited, name, change, label):
    graph = io.load(edited(lambda root: _operator(root, name).update(change)))
    assert label in {finding.label for finding in validate(graph).errors}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("min_val", b"", "min_val: 0 bytes of data, expected 1"),
        ("min_val", b"\1\2", "min_val: 2 bytes of data, not zero beyond byte 1"),
        ("nan_mode", 4000000000, "nan_mode: value 4000000000 is unknown"),
    ],
)
def test_attribute(edited, field, value, message):
    def change(root):
        _operator(root, "clamped")["attribute"][field] = value

    _rejects(edited(change), f"CLAMP 'clamped': {message}")


def _pool(acc_type: int) -> bytes:
    tensors = {n: Tensor(n, DType.INT8, (1,)) for n in ("x", "xz", "yz", "y")}
    sizes = {"kernel": (1, 1), "stride": (1, 1), "pad": (0, 0, 0, 0)}
    node = Node("AVG_POOL2D", ("x", "xz", "yz"), ("y",), {**sizes, "acc_type": DType.INT32})
    content = io.to_bytes(Graph(("x",), ("y",), tensors, (node,)))
    root = flatbuffer.decode(memoryview(content), schema.GRAPH)
    _operator(root, "y")["attribute"]["acc_type"] = acc_type
    return flatbuffer.encode(root, schema.GRAPH, schema.IDENTIFIER)


def test_acc_type():
    assert io.load(_pool(7)).nodes[0].attributes["acc_type"] is DType.FP32
    _rejects(_pool(0), "AVG_POOL2D 'y': acc_type: element type 0 is unknown")
    _rejects(_pool(17), "acc_type: element type INT64 is of TOSA 1.1", UnsupportedError)


@pytest.mark.parametrize(("side", "name"), [("tensors", "x"), ("shapes", "s")])
def test_a_declaration_that_is_repeated(edited, side, name):
    _rejects(
        edited(lambda root: _block(root)[side].append(_named(root, name))),
        f"region 'main': tensor '{name}' is declared twice",
    )


def _enumerants():
    for operator in spec.OPERATORS.values():
        for argument in schema.file_attributes(operator):
            if isinstance(schema.attribute_type(argument), schema.Enumeration):
                yield pytest.param(operator, argument, id=f"{operator.name}-{argument.name}")


@pytest.mark.parametrize(("operator", "argument"), list(_enumerants()))
def test_an_enumerant_of_zero_is_refused(operator, argument):
    """Also where the specification has a default, as by Arm's model."""
    lists = {a.name for a in operator.attributes if a.form is spec.Form.LIST}
    given = {a.name: [1] if a.name in lists else 1 for a in schema.file_attributes(operator)}
    tensors = [Tensor("x", DType.INT8, (1,))]
    given |= {name: b"\1" for name in ("min_val", "max_val") if name in given}
    with pytest.raises(FormatError, match=f"{argument.name}: (the file gives|element type 0 is)"):
        read_attributes(operator, given | {argument.name: 0}, tensors)


@pytest.mark.parametrize("value", [None, 0, "UNKNOWN"])
def test_a_mode_that_a_json_file_does_not_give(small_graph, tmp_path, value):
    path = tmp_path / "graph.json"
    io.save(small_graph, path)
    root = json.loads(path.read_bytes())
    attributes = _operator(root, "high")["attribute"]
    del attributes["nan_mode"]
    attributes |= {} if value is None else {"nan_mode": value}
    _rejects(
        json.dumps(root).encode(),
        "MAXIMUM 'high': nan_mode: the file gives no value, expected one of PROPAGATE, IGNORE",
    )


def test_graph_ends_are_declared(edited):
    _rejects(edited(lambda root: _block(root).update(inputs=["lost"])), "graph inputs: .*'lost'")
    _rejects(edited(lambda root: _block(root).update(outputs=["lost"])), "graph outputs: .*'lost'")
    _rejects(edited(lambda root: _block(root).update(outputs=["state"])), "'state' is a variable")


def test_regions(edited):
    def again(root):
        root["regions"].append(copy.deepcopy(root["regions"][1]))

    def two_blocks(root):
        root["regions"][1]["blocks"] *= 2

    _rejects(edited(lambda root: root.update(regions=[])), "the file has no regions")
    _rejects(edited(lambda root: root.update(regions=None)), "the file has no regions")
    _rejects(edited(again), "region name 'first' is empty or used twice")
    _rejects(edited(lambda root: root["regions"][1].update(name=None)), "region name None is empty")
    _rejects(edited(lambda root: root["regions"][1].update(blocks=[])), "'first' has no block")
    _rejects(edited(two_blocks), "'first' has 2 blocks, expected one", UnsupportedError)
    _rejects(edited(lambda root: root["regions"].pop()), "region 'main' refers to region 'second'")


def _regions(names: list[str], calls: dict[str, list[str]]) -> bytes:
    """Regions that call others by COND_IF."""
    numbers = {"op": 70, "attribute_type": 70}
    empty = {"inputs": ["f"], "outputs": []}
    regions = []
    for name in names:
        operators = [
            {**numbers, **empty, "attribute": {"then_graph": a, "else_graph": b}}
            for a, b in zip(calls.get(name, [])[::2], calls.get(name, [])[1::2], strict=True)
        ]
        tensors = [{"name": "f", "shape": [1], "type": 1}]
        block = {"name": name, "operators": operators, "tensors": tensors, **empty}
        regions.append({"name": name, "blocks": [block]})
    root = {"version": WRITTEN[V1_0], "regions": regions}
    return flatbuffer.encode(root, schema.GRAPH, schema.IDENTIFIER)


def test_region_that_contains_itself():
    _rejects(_regions(["main", "a"], {"main": ["a", "a"], "a": ["main", "a"]}), "contains itself")
    _rejects(_regions(["main", "a"], {"a": ["a", "a"]}), "region 'a' contains itself")


def test_regions_too_deep():
    names = [f"r{i}" for i in range(400)]
    calls = {a: [b, b] for a, b in itertools.pairwise(names)}
    _rejects(_regions(names, calls), "more than 256 deep", UnsupportedError)


def test_regions_that_fan_out():
    """Each of 60 regions leads to the next by two ways: 2**60 of them to walk through."""
    names = [f"{side}{i}" for i in range(60) for side in "ab"]
    calls = {n: [f"a{int(n[1:]) + 1}", f"b{int(n[1:]) + 1}"] for n in names[:-2]}
    _rejects(_regions(names, calls), "more than 4096 graphs", UnsupportedError)


def test_variables_agree(edited):
    def differ(root):
        state = copy.deepcopy(_named(root, "state"))
        _block(root, 1)["tensors"].append(state | {"data": bytes(6)})

    def twice(root):
        _block(root)["tensors"].append(_named(root, "state") | {"name": "other"})

    def odd_type(root):
        _named(root, "state").update(type=6, data=None)
        _named(root, "old").update(type=6)

    _rejects(edited(differ), "variable 'memory' is declared twice, differently")
    _rejects(edited(twice), "variable 'memory' has two tensors in 'main'")
    _rejects(edited(odd_type), r"variable 'memory' is INT48\[2,3\], which no variable can be")


def _as_numbered(root: dict) -> None:
    """Gives the accesses the operators' own numbers, and adds the declaration."""
    operators = _block(root)["operators"]
    for operator in operators:
        operator["op"] = operator["attribute_type"]
    declaration = {"op": 72, "attribute_type": 72, "attribute": {}, "outputs": ["state"]}
    operators.insert(0, declaration)


def test_variable_operators_by_their_own_numbers(edited, small_graph):
    assert io.load(edited(_as_numbered)) == small_graph


@pytest.mark.parametrize("outputs", [["x"], ["nowhere"], [], ["state", "state"]])
def test_variable_operator_of_another_tensor(edited, outputs):
    def change(root):
        _as_numbered(root)
        _block(root)["operators"][0]["outputs"] = outputs

    _rejects(edited(change), "VARIABLE has outputs .*expected one variable")


def test_cycle_is_found_when_nodes_are_ordered():
    tensors = {n: Tensor(n, DType.FP32, (1,)) for n in "abx"}
    nodes = (Node("ADD", ("x", "b"), ("a",)), Node("ADD", ("x", "a"), ("b",)))
    graph = io.load(io.to_bytes(Graph(("x",), ("b",), tensors, nodes)))
    with pytest.raises(TosaError, match="depends on itself"):
        graph.ordered_nodes()
