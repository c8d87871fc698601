"""Loading and saving files: what is accepted, how formats are told, what errors say."""

from __future__ import annotations

import dataclasses
import io as streams
import json
import os
import resource
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
from limits import most_steps

from tosajax import io
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.io import flatbuffer, json_form, schema
from tosajax.io.formats import of_content
from tosajax.report import FormatError, UnsupportedError


@pytest.fixture
def saved(small_graph, tmp_path) -> Path:
    io.save(small_graph, tmp_path / "graph.tosa")
    return tmp_path / "graph.tosa"


@pytest.fixture
def text(small_graph, tmp_path) -> str:
    io.save(small_graph, tmp_path / "graph.json")
    return (tmp_path / "graph.json").read_text()


def test_what_load_takes(saved, small_graph):
    content = saved.read_bytes()
    odd = memoryview(b"?" + content)[1:]  # data is not aligned in memory
    for source in (saved, str(saved), content, bytearray(content), memoryview(content), odd):
        assert io.load(source) == small_graph


def test_content_decides_not_the_name(saved, text, small_graph, tmp_path):
    (tmp_path / "binary.json").write_bytes(saved.read_bytes())
    (tmp_path / "text.tosa").write_text(text)
    assert io.load(tmp_path / "binary.json") == io.load(tmp_path / "text.tosa") == small_graph


@pytest.mark.parametrize("start", ["", " \n\t\r\n", "\ufeff"], ids=["plain", "space", "mark"])
def test_json_may_start_with_space(text, small_graph, start):
    assert io.load((start + text).encode()) == small_graph


def test_values_do_not_follow_the_buffer(saved, small_graph):
    content = bytearray(saved.read_bytes())
    graph = io.load(content)
    content[:] = bytes(len(content))
    assert graph == small_graph


def test_data_is_not_copied_by_the_reader(saved):
    content = memoryview(saved.read_bytes())
    root = flatbuffer.decode(content, schema.GRAPH)
    tensor = root["regions"][0]["blocks"][0]["tensors"][1]
    assert np.shares_memory(tensor["data"], np.frombuffer(content, np.uint8))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file"),
        (b"\x93NUMPY\x01\0v\0", "a NumPy array"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\xde\xad\xbe\xef", "an unknown format that starts with de ad be ef"),
        (b"TOSA", "text, neither JSON nor MLIR, that starts with 'TOSA'"),
        (b"[1, 2]", r"text, neither JSON nor MLIR, that starts with '\[1, 2\]'"),
        (b"# Title\n\nRead `tosa.add` with func.func @main.", "text, .* starts with '# Title'"),
        (b"```\nfunc.func @main() {\n", "text, .* starts with '```'"),
        (b"<html>\n func.func @f() {", "text, .* starts with '<html>'"),
        (b"import x  # func.func @f\nfunc.func(3)", "text, .* starts with 'import x"),
        (b"3c func.func", "text, .* starts with '3c func.func'"),
        (b"\xff\xfe#\0 \0", "an unknown format that starts with ff fe"),
    ],
)
def test_other_content_is_named(content, what):
    with pytest.raises(
        FormatError, match=f"looks like {what}.* expected one of TOSA flatbuffer, MLIR"
    ):
        io.load(content)


def _archive(*names: str) -> bytes:
    content = streams.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, b"1")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "what", "helps"),
    [
        (b"<\0\0\0ET12eh00", "an ExecuTorch program", "--scales reads it beside"),
        (b"\x93NUMPY\x01\0v\0", "a NumPy array", "arrays are inputs of a graph"),
        (_archive("x.npy"), "a NumPy archive", "arrays are inputs"),
        (_archive("m/data.pkl", "m/data/0"), "a PyTorch file", "it has weights, and no graph"),
        (_archive("ETRECORD_V0"), "an ETRecord of ExecuTorch", "--scales reads it"),
        (_archive("m/models/model.json"), "a program of torch.export", "converted to TOSA"),
        (_archive("config.json", "model.weights.h5"), "a Keras model", "converted to TOSA"),
        (_archive("a"), "a ZIP archive", "unpacked"),
        (b"\x1f\x8b\x08", "a gzip archive", "unpacked"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "it has weights"),
        (b'\x10\0\0\0\0\0\0\0{"a":1}', "a safetensors file", "it has weights"),
        (b"\x80\x04\x95", "a Python pickle", "it has weights"),
        (b"\x89PNG\r\n", "an image", "arrays are inputs"),
        (b"\xff\xd8\xff\xe0", "an image", "arrays are inputs"),
    ],
)
def test_what_helps_with_other_files(content, what, helps):
    with pytest.raises(FormatError, match=f"looks like {what}, expected one of .*; .*{helps}"):
        io.load(content)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\x10\0\0\0TOSA", "TOSA flatbuffer"),
        (b"ML\xefR\x0d\x01\x04", "MLIR bytecode"),
        (b"\x03\x02\x23\x07\x00\x05\x01\x00", "SPIR-V"),
        (b"\x07\x23\x02\x03\x00\x01\x06\x00", "SPIR-V"),
        (b"VGF1\0\0\0\0", "VGF"),
        (b' {"version": 1}', "TOSA JSON"),
        (b"module {\n  func.func @main() {\n  }\n}\n", "MLIR text"),
        (b'// comment\n"builtin.module"() ({ "tosa.const"() }) : () -> ()', "MLIR text"),
        (b"\xef\xbb\xbf// a\n\n  module @x attributes {a} {}", "MLIR text"),
        (b"{-# dialect_resources: {} #-}\nmodule {}", "MLIR text"),
        (b"%0 = tosa.abs %a : tensor<1xf32>", "MLIR text"),
        (b"tosa.variable @v : tensor<1xf32>", "MLIR text"),
        (b"!t = tensor<1xf32>\n#map = 1", "MLIR text"),
        (b"unknown.op\n  func.func @main() {", "MLIR text"),
        (b"\x1c\0\0\0TFL3\0\0\0\0", "TFLite flatbuffer"),
        (b"\x08\x07\x12\x07pytorch", "ONNX model"),
        (b"\x08\x08\x3a\x04", "ONNX model"),
        (b'#loc = loc("x")\n' + b" " * 70000 + b"func.func", "MLIR text"),
    ],
)
def test_content_shows_the_format(content, name):
    assert of_content(memoryview(content)).name == name


def test_wrong_magic(saved):
    content = saved.read_bytes()
    with pytest.raises(FormatError, match="unknown format"):
        io.load(content[:4] + b"TOSB" + content[8:])


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "some file.tosa"
    path.write_bytes(b"")
    with pytest.raises(FormatError, match=r"some file\.tosa: the content looks like an empty"):
        io.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        io.load(tmp_path / "nothing.tosa")
    with pytest.raises(FileNotFoundError):
        io.load(str(tmp_path / "nothing.tosa"))


# Saving.


def test_data_is_aligned(saved):
    content = np.frombuffer(saved.read_bytes(), np.uint8)
    root = flatbuffer.decode(content.data, schema.GRAPH)
    block = root["regions"][0]["blocks"][0]
    found = [t["data"] for t in (*block["tensors"], *block["shapes"]) if t["data"] is not None]
    assert len(found) == 4
    assert not any((data.ctypes.data - content.ctypes.data) % 8 for data in found)


@pytest.mark.parametrize("name", ["graph", "graph.onnx", "graph.tosa.gz", ".tosa"])
def test_suffix_is_needed(small_graph, tmp_path, name):
    with pytest.raises(ValueError, match=r"expected one of \.tosa, \.mlirbc, "):
        io.save(small_graph, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_save_replaces_and_leaves_nothing_else(small_graph, tmp_path):
    path = tmp_path / "graph.tosa"
    path.write_bytes(b"old")
    io.save(small_graph, os.fspath(path))
    assert [p.name for p in tmp_path.iterdir()] == ["graph.tosa"]
    assert io.load(path) == small_graph


def test_saved_file_has_the_usual_permissions(saved, tmp_path):
    (tmp_path / "other").write_bytes(b"")
    assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_failed_save_keeps_the_old_file(small_graph, tmp_path, monkeypatch):
    path = tmp_path / "graph.tosa"
    path.write_bytes(b"old")

    def fail(file: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        io.save(small_graph, path)
    assert [p.name for p in tmp_path.iterdir()] == ["graph.tosa"]
    assert path.read_bytes() == b"old"


def test_save_to_a_missing_folder(small_graph, tmp_path):
    with pytest.raises(FileNotFoundError):
        io.save(small_graph, tmp_path / "nowhere" / "graph.tosa")


def _changed(graph: Graph, *tensors: Tensor, **changes) -> Graph:
    known = {**graph.tensors, **{t.name: t for t in tensors}}
    return dataclasses.replace(graph, tensors=known, **changes)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Node("FOO", ("x",), ("y",)), "'FOO' is not an operator of TOSA 1.0"),
        (Node("ABS", ("lost",), ("y",)), "ABS 'y': tensor 'lost' is not declared"),
        (Node("TRANSPOSE", ("x",), ("y",)), "TRANSPOSE 'y': attribute perms is missing"),
        (Node("TRANSPOSE", ("x",), ("y",), {"perms": 3}), "perms cannot be 3"),
        (Node("TRANSPOSE", ("x",), ("y",), {"perms": ("a",)}), r"'y': perms cannot be \('a',\)"),
        (Node("RESIZE", ("x",), ("y",), {"mode": 7}), "RESIZE 'y': mode cannot be 7"),
        (Node("VARIABLE_READ", (), ("y",), {"name": "lost"}), "no tensor stands for .*'lost'"),
        (Node("CLAMP", (), (), {"min_val": 0, "max_val": 1}), "min_val cannot be 0"),
        (Node("CLAMP", ("x",), ("y",), {"min_val": -129, "max_val": 1}), "min_val cannot be -129"),
        (Node("CLAMP", ("x",), ("y",), {"min_val": 0, "max_val": 0.5}), "max_val cannot be 0.5"),
    ],
    ids=str,
)
def test_node_that_cannot_be_written(small_graph, node, message):
    with pytest.raises(ValueError, match=message):
        io.to_bytes(_changed(small_graph, nodes=(node,)))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (Tensor("c", DType.INT8, (2,), np.zeros(3)), r"values of shape \(3,\), expected \(2,\)"),
        (Tensor("s", DType.SHAPE, None), r"shape 's' is SHAPE\[\*\], expected a list"),
        (Tensor("s", DType.SHAPE, (1, 2)), "shape 's' is .*expected a list"),
    ],
)
def test_tensor_that_cannot_be_written(small_graph, tensor, message):
    with pytest.raises(ValueError, match=message):
        io.to_bytes(_changed(small_graph, tensor))


def test_graphs_that_cannot_be_written(small_graph):
    first, second = small_graph.subgraphs.values()
    twice = dataclasses.replace(small_graph, name="first")
    swapped = dataclasses.replace(small_graph, subgraphs={"first": second, "second": first})
    renamed = dataclasses.replace(small_graph, tensors={"x": Tensor("z", DType.INT8, (1,))})
    with pytest.raises(ValueError, match="two graphs are named 'first'"):
        io.to_bytes(twice)
    with pytest.raises(ValueError, match="by another name"):
        io.to_bytes(swapped)
    with pytest.raises(ValueError, match="has tensor 'z' under 'x'"):
        io.to_bytes(renamed)


def test_too_large(small_graph, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise flatbuffer.flatbuffers.builder.BuilderSizeError

    monkeypatch.setattr(flatbuffer.flatbuffers.Builder, "Finish", fail)
    with pytest.raises(UnsupportedError, match="larger than 2 GB"):
        io.to_bytes(small_graph)


# JSON.


def _edited(text: str, **changes: object) -> bytes:
    """Changes fields of the first tensor."""
    root = json.loads(text)
    root["regions"][0]["blocks"][0]["tensors"][0].update(changes)
    return json.dumps(root).encode()


def test_json_reads_like_flatc_writes(text):
    root = json.loads(text)
    operators = root["regions"][0]["blocks"][0]["operators"]
    maximum = next(o for o in operators if o["op"] == "MAXIMUM")
    assert maximum["attribute_type"] == "MaximumAttribute"
    assert maximum["attribute"] == {"nan_mode": "PROPAGATE"}
    assert root["version"] == {"_major": 1, "_minor": 0, "_patch": 0, "_draft": False}


def test_json_keeps_lists_on_one_line(text):
    assert '"data": [253, 254, 255, 0, 1, 2]' in text
    assert '\n  "regions": [\n' in text


def test_json_takes_numbers_for_names(text, small_graph):
    assert io.load(_edited(text, type=3)) == small_graph


def test_json_takes_null_for_what_is_absent(text, small_graph):
    assert io.load(_edited(text, data=None, scale_type=None)) == small_graph


def test_json_has_the_schemas_defaults():
    """_draft is true where it is left out, and numbers of the version are -1."""
    root = {"version": {"_major": 1, "_minor": 1}, "regions": []}
    with pytest.raises(UnsupportedError, match=r"1\.1\.-1-draft"):
        io.load(json.dumps(root).encode())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, "TosaTensor has no field 'colour', expected name, shape, type"),
        ({"name": 1}, "name: found 1, expected a string"),
        ({"name": "\ud800"}, "half of a surrogate pair"),
        ({"shape": 3}, "shape: found 3, expected a list"),
        ({"shape": [1, 2.5]}, r"shape\[1\]: found 2.5, expected an integer"),
        ({"shape": [1 << 31]}, r"shape\[0\]: 2147483648 is not a int32"),
        ({"shape": [True]}, r"shape\[0\]: found True, expected an integer"),
        ({"type": "INT7"}, "type: DType has no value 'INT7'"),
        ({"type": -1}, "type: -1 is not a uint32"),
        ({"type": {}}, "type: found an object, expected an integer"),
        ({"data": [256]}, "data: a value is not an integer from 0 to 255"),
        ({"data": ["1"]}, "data: a value is not an integer"),
        ({"data": "AAAA"}, "data: found 'AAAA', expected a list of bytes"),
        ({"variable": 2}, "variable: found 2, expected true or false"),
        ({"offset": 1 << 70}, r"offset: an integer of about 10\*\*21 is not a uint64"),
        ({"offset": 2, "size": 1, "name": "c2"}, "beyond the 0 bytes of the file"),
    ],
)
def test_json_field(text, changes, message):
    with pytest.raises(FormatError, match=rf"tensor.*{message}"):
        io.load(_edited(text, **changes))


@pytest.mark.parametrize("content", [b"{", b'{"a": }', b"{a: 1}", b'{"version": "\xff"}'])
def test_json_that_is_none(content):
    with pytest.raises(FormatError, match="not JSON"):
        io.load(content)


def test_json_root():
    with pytest.raises(FormatError, match="root: found a list, expected an object"):
        json_form.parse(b"[]")
    with pytest.raises(FormatError, match="root: TosaGraph has no field 'x', expected version"):
        io.load(b'{"version": {"_major": 1, "_minor": 0}, "x": 1}')
    with pytest.raises(FormatError, match="version: found 3, expected an object"):
        io.load(b'{"version": 3}')
    with pytest.raises(FormatError, match="states no version"):
        io.load(b"{}")


@pytest.mark.parametrize("start", [b"", b"\x14\0\0\0TOSA", b"{"], ids=["zeros", "TOSA", "JSON"])
def test_a_sparse_file_of_5_gb_is_refused_at_once(tmp_path, start):
    """Of it little is read, so that neither memory nor time grows with its size."""
    path = tmp_path / "large.tosa"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(5 * 2**30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = pytest.raises((FormatError, UnsupportedError), match=r"large\.tosa: ")
    with most_steps(20_000), refused:
        io.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB
