"""Constants beside a SPIR-V module."""

from __future__ import annotations

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

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
