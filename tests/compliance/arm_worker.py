"""Runs Arm's verify and generate libraries in a process of their own.

They print, and can end the process they are in. Requests come pickled on stdin as (function,
arguments) and are answered on stdout; what C code prints is dropped.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np

# DType name -> the number of its type in the C interface, and the type of its bytes there.
_TYPES = {
    "BF16": (0, "u2"),
    "BOOL": (1, "?"),
    "FP16": (2, "f2"),
    "FP32": (3, "f4"),
    "INT16": (4, "i2"),
    "INT32": (5, "i4"),
    "INT48": (6, "i8"),
    "INT8": (8, "i1"),
    "FP8E4M3": (12, "u1"),
    "FP8E5M2": (13, "u1"),
    "FP64": (99, "f8"),
}
_NAME = "tensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int32)),
        ("num_dims", ctypes.c_int32),
        ("data_type", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
    )


@functools.cache
def _library(name: str) -> ctypes.CDLL:
    found = importlib.util.find_spec("tosa_reference_model")
    assert found is not None
    assert found.origin is not None
    return ctypes.CDLL(str(Path(found.origin).parent / f"libtosa_reference_{name}_lib.so"))


def _tensor(values: np.ndarray, dtype: str) -> tuple[_Tensor, object]:
    """A C tensor, and what must live as long as it does."""
    number, raw = _TYPES[dtype]
    data = np.ascontiguousarray(values).view(raw) if values.ndim else values.reshape(1).view(raw)
    dims = values.shape or (1,)
    shape = (ctypes.c_int32 * len(dims))(*dims)
    tensor = _Tensor(_NAME.encode(), shape, len(dims), number, data.ctypes.data, data.nbytes)
    return tensor, (data, shape)


def verify(dtype: str, rule: dict, reference, bounds, result) -> bool:
    """Whether `result` of type `dtype` meets a rule, given as in a test description."""
    function = _library("verify").tvf_verify_data
    function.argtypes, function.restype = [ctypes.c_void_p] * 3 + [ctypes.c_char_p], ctypes.c_bool
    wide = "FP64" if dtype.startswith(("FP", "BF")) else dtype
    pairs = [(reference, wide), (bounds, wide), (result, dtype)]
    tensors = [None if v is None else _tensor(v, t) for v, t in pairs]
    description = {"tensors": {_NAME: {"data_type": dtype, "shape": list(result.shape), **rule}}}
    pointers = [None if t is None else ctypes.byref(t[0]) for t in tensors]
    return function(*pointers, json.dumps({"version": "1.2", **description}).encode())


def verify_each(dtype: str, rule: dict, reference, bounds, result) -> list[bool]:
    """The same of each element as a tensor of its own."""
    return [
        verify(
            dtype, rule, reference[i : i + 1], None if bounds is None else bounds[i : i + 1], one
        )
        for i, one in enumerate(np.split(result, result.size))
    ]


def generate(dtype: str, shape: tuple[int, ...], description: dict) -> bytes:
    """The bytes of a test tensor, described as in a test description."""
    function = _library("generate").tgd_generate_data
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
    function.restype = ctypes.c_bool
    data = np.zeros(shape, _TYPES[dtype][1])
    tensor = {"data_type": dtype, "shape": list(shape), "input_type": "VARIABLE", **description}
    text = json.dumps({"version": "1.2", "tensors": {_NAME: tensor}}).encode()
    if not function(text, _NAME.encode(), data.ctypes.data, data.nbytes):
        raise ValueError("refused")
    return data.tobytes()


_FUNCTIONS = {"verify": verify, "verify_each": verify_each, "generate": generate}


def _main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = _FUNCTIONS[name](*arguments)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    _main()
