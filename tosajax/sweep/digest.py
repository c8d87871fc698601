"""Digests: names of arrays and settings that are the same in every process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tosajax.dtypes import DType


def of_arrays(tree: Any) -> str:
    """A digest of the arrays of a pytree: their values, types, shapes and paths.

    Returns:
      64 hexadecimal digits.

    Raises:
      TypeError: a leaf is not an array of numbers or strings.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    hasher = hashlib.sha256(str(structure).encode())
    for path, leaf in leaves:
        array = np.asarray(leaf)
        if array.dtype.hasobject:
            raise TypeError(f"{jax.tree_util.keystr(path)} is {type(leaf).__name__}, not an array")
        hasher.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


def of_text(*parts: str) -> str:
    """A digest of texts, in order; 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def canonical(value: Any) -> str:
    """A setting as canonical text, with arrays as digests.

    The order of keys does not count, and tuples equal lists; 1, 1.0 and True differ, as they have
    different types in a program.

    Raises:
      TypeError: a value is neither a number, a string, a bool, None, an array, an element type,
        nor a list or a dictionary of these.
    """
    return json.dumps(plain(value), sort_keys=True)


def plain(value: Any) -> Any:
    """Converts a value to types of Python's `json`, which has NaN and infinities.

    Raises:
      TypeError: see `canonical`.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, DType):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.ndim == 0 and array.dtype.kind in "iufb":
            return array.item()
        shape = ",".join(map(str, array.shape))
        return f"{array.dtype}[{shape}]:{of_arrays(array)[:12]}"
    raise TypeError(
        f"a setting has {value!r} ({type(value).__name__}), expected a number, a string, a bool, "
        "None, an array, or a list or dictionary of these"
    )
