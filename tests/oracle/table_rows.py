"""Test parameters and integer test data that follow from the operator table."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax import spec
from tosajax.dtypes import DType


def rows(*names: str, **only: str):
    """One parameter (operator, types) per type row; `only` keeps rows with a type of that name."""
    return [
        pytest.param(name, row.types, id="-".join([name, *_type_names(row)]).lower())
        for name in names
        for row in spec.OPERATORS[name].types
        if all(row.types[key].name == value for key, value in only.items())
    ]


def integer_rows(*names: str):
    return [p for p in rows(*names) if all(t.is_integer for t in _types(p.values[1]))]


def float_rows(*names: str):
    return [p for p in rows(*names) if next(iter(_types(p.values[1]))).is_float]


def boundaries(dtype) -> np.ndarray:
    """The limits of an integer type, zero, and the neighbourhood of every power of two."""
    info = np.iinfo(dtype)
    near = {n + d for k in range(info.bits - 1) for n in (2**k, -(2**k)) for d in (-1, 0, 1)}
    near |= {info.min, info.min + 1, info.max}
    return np.array(sorted(near), dtype)


def integers(dtype, count: int, rng: np.random.Generator) -> np.ndarray:
    """Boundaries first, then uniform random values."""
    info = np.iinfo(dtype)
    edge = boundaries(dtype)
    random = rng.integers(info.min, info.max, max(count - edge.size, 0), dtype, endpoint=True)
    return np.concatenate([edge, random])[:count]


def pairs(dtype, rng: np.random.Generator, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Two operands: all pairs of int8, else all pairs of boundaries and random ones."""
    info = np.iinfo(dtype)
    grid = np.arange(-128, 128, dtype=dtype) if info.bits == 8 else boundaries(dtype)
    first, second = (x.reshape(-1) for x in np.meshgrid(grid, grid))
    random = rng.integers(info.min, info.max, (2, count), dtype, endpoint=True)
    return np.concatenate([first, random[0]]), np.concatenate([second, random[1]])


def _types(types: dict) -> list:
    return [t for t in types.values() if isinstance(t, DType)]


def _type_names(row) -> list[str]:
    return [t.name for key, t in row.types.items() if isinstance(t, DType) and key != "acc_t"]
