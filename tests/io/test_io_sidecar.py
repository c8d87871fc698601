"""Scales beside a file: what was saved is read, and nothing that is not of the file."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, FormatError, Graph, Quantization
from tosajax.io import sidecar

SCALES = {
    "x": Quantization((0.1,), (-128,)),
    "w": Quantization((0.5, 0.25, 2.0), (0,), (0,), (-127, 127)),
}


def graph(**scales: Quantization) -> Graph:
    b = Builder()
    x = b.input("x", DType.INT8, (2, 3))
    w = b.const(np.arange(9).reshape(3, 3), DType.INT8, name="w")
    y = b.op("CONCAT", x, w, axis=0, name="y")
    return dataclasses.replace(b.graph([y]), quantization=scales)


@pytest.mark.parametrize("suffix", [".tosa", ".json"])
def test_travels(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    before = graph(**SCALES)
    tosajax.save(before, path)
    assert dict(tosajax.load(path).quantization) == SCALES
    assert tosajax.load(path.read_bytes()).quantization == {}
    tosajax.save(graph(), path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert tosajax.load(path).quantization == {}


def test_is_a_part_of_the_graph():
    one, other = graph(**SCALES), graph(x=SCALES["x"])
    assert one == graph(**SCALES)
    assert one != other
    assert hash(one) == hash(other)
    for again in (copy.deepcopy(one), pickle.loads(pickle.dumps(one)), dataclasses.replace(one)):
        assert again == one
        assert dict(again.quantization) == SCALES
    assert tosajax.bind(one, batch=1).quantization == one.quantization


def test_what_no_tensor_can_have_is_left_out():
    known = graph(
        x=SCALES["x"],
        gone=SCALES["x"],
        w=Quantization((1.0, 2.0), (0,), (0,)),  # of 3 channels
        y=Quantization((1.0,), (300,)),
    )
    assert dict(known.quantization) == {"x": SCALES["x"]}
    floats = dataclasses.replace(known.tensors["x"], dtype=DType.FP32)
    later = dataclasses.replace(known, tensors={**known.tensors, "x": floats})
    assert later.quantization == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((0.0,),), "expected positive finite numbers"),
        (((float("nan"),),), "expected positive finite numbers"),
        (((1e-60,),), "of float32"),
        (((),), "expected positive finite numbers"),
        (((1.0, 2.0),), "expected the axes of their channels"),
        (((1.0, 2.0), (0, 0, 0), (0,)), "3 zero points of 2 scales"),
        (((1.0, 2.0), (0,), (1, 0)), "expected ascending ones"),
        (((1.0,), (0,), (), (5, 5)), "bounds are 5 and 5"),
    ],
)
def test_numbers_that_do_not_fit_each_other(arguments, words):
    with pytest.raises(ValueError, match=words):
        Quantization(*arguments)


def test_another_content_of_the_model(tmp_path):
    path = tmp_path / "model.tosa"
    tosajax.save(graph(**SCALES), path)
    path.write_bytes(tosajax.io.to_bytes(_other()))
    with pytest.warns(UserWarning, match=r"model\.tosa\.quant\.json belongs to another content"):
        assert tosajax.load(path).quantization == {}


def _other() -> Graph:
    b = Builder()
    return b.graph([b.op("ABS", b.input("x", DType.INT32, (1,)), name="y")])


@pytest.mark.parametrize(
    "change",
    [
        lambda root: [],
        lambda root: {**root, "kind": "other"},
        lambda root: {**root, "version": 2},
        lambda root: {**root, "tensors": 3},
        lambda root: {**root, "tensors": {"x": []}},
        lambda root: {**root, "tensors": {"x": {"scale": 1}}},
        lambda root: {**root, "tensors": {"x": {"scale": [1], "zero_point": [0.5]}}},
        lambda root: {**root, "tensors": {"x": {"scale": ["a"]}}},
        lambda root: {**root, "tensors": {"x": {"scale": [1], "unit": ["V"]}}},
        lambda root: {**root, "tensors": {"x": {"scale": [1], "is_mask": 1}}},
        lambda root: {**root, "tensors": {"nowhere": {"scale": [1]}}},
        lambda root: {**root, "tensors": {"x": {"scale": [1, 2], "axes": [5]}}},
    ],
)
def test_damage(tmp_path, change):
    path = tmp_path / "model.tosa"
    tosajax.save(graph(**SCALES), path)
    beside = sidecar.path_of(path)
    beside.write_text(json.dumps(change(json.loads(beside.read_text()))))
    with pytest.raises(FormatError, match=r"model\.tosa\.quant\.json"):
        tosajax.load(path)


def test_text_that_is_not_json(tmp_path):
    path = tmp_path / "model.tosa"
    tosajax.save(graph(**SCALES), path)
    for text in (b"", b"\xff", b"[" * 200_000, b"NaN"):
        sidecar.path_of(path).write_bytes(text)
        with pytest.raises(FormatError, match="holds no scales"):
            tosajax.load(path)
