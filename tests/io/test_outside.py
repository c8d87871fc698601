"""Constants beside a SPIR-V module."""

from __future__ import annotations

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.graph.alike import difference
from tosajax.io import outside
from tosajax.report import FormatError

MODULE = b"the content of a module"
DIGEST = np.frombuffer(hashlib.sha256(MODULE).digest(), np.uint8)
CONSTANTS = {
    0: np.array([[1, -128], [127, 0]], np.int8),
    3: np.array([0x7FC1, 0x8000, 1], np.uint16).view(ml_dtypes.bfloat16),
    4: np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2),
    7: np.array([0x7FA00001, 0x80000000], np.uint32).view(np.float32),
    12: np.array([2**47 - 1, -(2**47)], np.int64),
    13: np.array([True, False]),
    99: np.zeros((0, 3), np.float16),
}


@pytest.fixture
def model(tmp_path) -> Path:
    outside.write(CONSTANTS, tmp_path / "model.spv", MODULE)
    return tmp_path / "model.spv"


def graph(count: int) -> Graph:
    """x + 0 ... count - 1."""
    b = Builder()
    x = b.input("x", DType.FP32, (count,))
    return b.graph([b.op("ADD", x, b.const(np.arange(count), DType.FP32))])


def test_save_and_load_know_the_file(tmp_path):
    path = tmp_path / "model.spv"
    tosajax.save(graph(100), path)
    assert difference(tosajax.load(path), graph(100)) is None
    constants = outside.read(path, path.read_bytes())
    assert constants is not None
    content = path.read_bytes()
    assert difference(tosajax.load(content, constants=constants), graph(100)) is None
    # Constants that are given count, not those of the file beside it.
    ((key, values),) = constants.items()
    given = tosajax.load(path, constants={key: values + 1})
    (held,) = [t.values for t in given.tensors.values() if t.values is not None]
    np.testing.assert_array_equal(held, values + 1)
    (number,) = constants
    wrong = {number: np.zeros(99, np.float32)}
    for given in (None, {}, wrong):
        with pytest.raises(FormatError, match=f"constant {number}.*FP32"):
            tosajax.load(content, constants=given)
    tosajax.save(graph(3), path)  # small enough to be in the module
    assert [p.name for p in tmp_path.iterdir()] == ["model.spv"]
    assert difference(tosajax.load(path), graph(3)) is None


def test_bits_and_types_come_back(model):
    found = outside.read(model, MODULE)
    assert found is not None
    assert found.keys() == CONSTANTS.keys()
    for number, wanted in CONSTANTS.items():
        assert (found[number].dtype, found[number].shape) == (wanted.dtype, wanted.shape)
        assert found[number].tobytes() == wanted.tobytes()


def test_a_module_without_constants_has_no_file(model):
    outside.write({}, model, MODULE)
    assert not outside.path_of(model).exists()
    assert outside.read(model, MODULE) is None


def test_constants_of_another_module_are_refused(model):
    with pytest.raises(FormatError, match=r"model\.spv\.npz belongs to another content of model"):
        outside.read(model, MODULE + b" ")


def test_damaged_files_are_refused(model):
    content = outside.path_of(model).read_bytes()
    for end in range(0, len(content), 16):
        outside.path_of(model).write_bytes(content[:end])
        with pytest.raises(FormatError, match=r"model\.spv\.npz"):
            outside.read(model, MODULE)


@pytest.mark.parametrize(
    "arrays",
    [
        {"3:int8": np.zeros(2, np.int8)},  # of no module
        {"module": DIGEST, "x:int8": np.zeros(2, np.int8)},
        {"module": DIGEST, "3:no type": np.zeros(2, np.int8)},
        {"module": DIGEST, "3:float64": np.zeros(3, np.int8)},
        {"module": DIGEST, "3:": np.zeros(2, np.int8)},
        {"module": DIGEST, "3:object": np.zeros(1, np.int64)},
    ],
    ids=lambda arrays: " ".join(arrays),
)
def test_other_archives_are_refused(model, arrays):
    with open(outside.path_of(model), "wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(FormatError):
        outside.read(model, MODULE)
