"""Judges outputs as the official checker does: by its library, against its reference model.

The reference model computes floats in float64. Where the tolerance of an element depends on the
size of its terms, it computes a second time, on absolute values.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from suite_generate import tools_folder
from suite_tests import SuiteTest

from tosajax.dtypes import DType

_LEVEL = "EIGHTK"  # the level that the suite is made for
# tosa_datatype_t in the header `types.h` of tosa-tools.
_CODES = {
    DType.BF16: 0,
    DType.BOOL: 1,
    DType.FP16: 2,
    DType.FP32: 3,
    DType.INT16: 4,
    DType.INT32: 5,
    DType.INT48: 6,
    DType.INT4: 7,
    DType.INT8: 8,
    DType.SHAPE: 11,
    DType.FP8E4M3: 12,
    DType.FP8E5M2: 13,
}
_FLOAT64 = 99


class JudgeError(Exception):
    """No verdict: the reference model failed, or had an unexpected output."""


class Judge:
    """The checker's library, loaded once for a process."""

    def __init__(self) -> None:
        folder = tools_folder()
        self._model = folder / "bin" / "tosa_reference_model"
        self._schema = folder / "bin" / "tosa.fbs"
        verifier = folder / "tosa_reference_model" / "libtosa_reference_verify_lib.so"
        self._verify = ctypes.CDLL(str(verifier)).tvf_verify_data
        self._verify.argtypes = [ctypes.POINTER(_CTensor)] * 3 + [ctypes.c_char_p]
        self._verify.restype = ctypes.c_bool

    def objections(self, test: SuiteTest, outputs: Sequence[np.ndarray]) -> list[str]:
        """The faults of the outputs of a legal graph; none when the test passes.

        Raises:
          JudgeError: the reference model failed.
        """
        names = test.description["ofm_name"]
        if len(outputs) != len(names):
            return [f"{len(outputs)} outputs, expected {len(names)}"]
        if found := [o for n, y in zip(names, outputs, strict=True) for o in _form(test, n, y)]:
            return found
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            self._run_model(test, Path(folder))
            return [
                objection
                for name, file, output in zip(
                    names, test.description["ofm_file"], outputs, strict=True
                )
                for objection in self._values(test, name, output, Path(folder) / file)
            ]

    def _run_model(self, test: SuiteTest, folder: Path) -> None:
        options = {
            "--tosa_level": _LEVEL,
            "--operator_fbs": self._schema,
            "--test_desc": test.folder / "desc.json",
            "--output_dir": folder,
        }
        words = [str(word) for option in options.items() for word in option]
        done = subprocess.run(
            [str(self._model), *words, "--precise_mode=1"],
            capture_output=True,
            text=True,
            check=False,
            # Otherwise it starts a debugger on itself for an illegal graph.
            env={**os.environ, "TOSA_MODEL_NO_BACKTRACE": "1"},
        )
        if done.returncode != 0:
            raise JudgeError(f"reference model: status {done.returncode}: {done.stderr[-500:]}")

    def _values(self, test: SuiteTest, name: str, output: np.ndarray, file: Path) -> list[str]:
        dtype = DType[test.compliance["tensors"][name]["data_type"]]
        reference = _load(file, dtype)
        bounds = None
        if test.description["test_requirements"]["bounds_file_required"]:
            bounds = _load(file.with_name(f"bounds_{file.name}"), dtype)
        code = _FLOAT64 if dtype.is_float else _CODES[dtype]
        good = self._verify(
            _tensor(name, reference, code),
            bounds if bounds is None else _tensor(name, bounds, code),
            _tensor(name, output, _CODES[dtype]),
            json.dumps(test.compliance).encode(),
        )
        if good:
            return []
        mode = test.compliance["tensors"][name]["mode"]
        return [f"{name} does not comply ({mode}): {_furthest(output, reference)}"]


class _CTensor(ctypes.Structure):
    """tosa_tensor_t in the header `types.h` of tosa-tools."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int32)),
        ("num_dims", ctypes.c_int32),
        ("data_type", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
    )


def _tensor(name: str, array: np.ndarray, code: int) -> _CTensor:
    shape = (ctypes.c_int32 * max(array.ndim, 1))(*array.shape)
    flat = np.ascontiguousarray(array)
    tensor = _CTensor(name.encode(), shape, array.ndim, code, flat.ctypes.data, flat.nbytes)
    tensor.keeps_alive = flat
    return tensor


def _form(test: SuiteTest, name: str, output: np.ndarray) -> list[str]:
    """The fault of an output's type or shape."""
    wanted = test.compliance["tensors"][name]
    storage = DType[wanted["data_type"]].storage
    if output.dtype != storage:
        return [f"{name} has type {output.dtype}, expected {storage}"]
    if list(output.shape) != wanted["shape"]:
        return [f"{name} has shape {list(output.shape)}, expected {wanted['shape']}"]
    return []


def _load(file: Path, dtype: DType) -> np.ndarray:
    wanted = np.dtype(np.float64) if dtype.is_float else dtype.storage
    if not file.is_file():
        raise JudgeError(f"reference model wrote no {file.name}")
    array = np.load(file, allow_pickle=False)
    if array.dtype != wanted:
        raise JudgeError(f"{file.name} has type {array.dtype}, expected {wanted}")
    return array


def _furthest(output: np.ndarray, reference: np.ndarray) -> str:
    """The number of elements that differ from the reference, and the one that differs most."""
    got, want = (np.atleast_1d(a).astype(np.float64) for a in (output, reference))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0, np.abs(got - want))
    worst = np.nan_to_num(error, nan=np.inf).argmax()
    place = [int(i) for i in np.unravel_index(worst, got.shape)]
    count = np.count_nonzero(error)
    found, wanted = np.atleast_1d(output).flat[worst], np.atleast_1d(reference).flat[worst]
    return f"{count} of {got.size} differ from the reference, at {place}: {found}, not {wanted}"


def _memory() -> str | None:
    """A folder in memory for the reference's outputs, if the machine has one."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None
