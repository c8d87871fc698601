"""Reads and writes the external constants of a SPIR-V module, in `model.spv.npz` beside it.

A module cannot store large constants. The file has an array for each, named "<id>:<type>", such as
"3:bfloat16", and "module", the SHA-256 of the module to which they belong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes  # noqa: F401  NumPy knows its types by name
import numpy as np

from tosajax.arguments.arrays import load_arrays
from tosajax.atomic import replacing
from tosajax.dtypes import npy_type
from tosajax.report import FormatError

SUFFIX = ".npz"
_MODULE = "module"


def path_of(model: Path) -> Path:
    """The path of the file with a module's constants."""
    return model.with_name(model.name + SUFFIX)


def write(constants: Mapping[int, np.ndarray], model: Path, content: bytes) -> None:
    """Writes constants beside a module's file; without constants, removes an earlier file.

    Args:
      constants: the constants, by id in the module.
      model: the path of the module's file.
      content: the content of the module's file.
    """
    path = path_of(model)
    if not constants:
        path.unlink(missing_ok=True)
        return
    arrays = {
        f"{number}:{x.dtype.name}": x.view(npy_type(x.dtype)) for number, x in constants.items()
    }
    with replacing(path) as file:
        np.savez(file, **{_MODULE: _digest(content)}, **arrays)


def read(model: Path, content: memoryview | bytes) -> dict[int, np.ndarray] | None:
    """Reads the constants beside a module's file; None if there are none.

    Args:
      model: the path of the module's file.
      content: the content of the module's file.

    Raises:
      FormatError: the file of constants is damaged, or belongs to another module.
    """
    path = path_of(model)
    if not path.is_file():
        return None
    arrays = load_arrays(path)
    digest = arrays.pop(_MODULE, None)
    if digest is None or not np.array_equal(digest, _digest(content)):
        raise FormatError(f"{path} belongs to another content of {model.name}: save both again")
    return dict(_constant(path, name, array) for name, array in arrays.items())


def _constant(path: Path, name: str, array: np.ndarray) -> tuple[int, np.ndarray]:
    number, _, dtype = name.partition(":")
    try:
        return int(number), array.view(np.dtype(dtype))
    except (ValueError, TypeError) as error:
        raise FormatError(f"{path}: {name}: {error}, expected <number>:<type>") from None


def _digest(content: memoryview | bytes) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(content).digest(), np.uint8)
