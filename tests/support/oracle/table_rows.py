"""Test parameters and integer test data that follow from the operator table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tosajax import spec
from tosajax.dtypes import DType

Types = dict[str, DType]


def type_rows(*names: str, where: Callable[[Types], bool] | None = None) -> list[tuple[str, Types]]:
    """The operator and its types by variable, for each type row that `where` accepts."""
    found = [
        (name, {key: t for key, t in row.types.items() if isinstance(t, DType)})
        for name in names
        for row in spec.OPERATORS[name].types
    ]
    return [row for row in found if where is None or where(row[1])]


def rows(*names: str, where: Callable[[Types], bool] | None = None):
    """One test parameter (operator, types) per type row that `where` accepts."""
    return [pytest.param(*row, id=row_id(*row)) for row in type_rows(*names, where=where)]


def row_id(name: str, types: Types) -> str:
    return "-".join([name, *(t.name for key, t in types.items() if key != "acc_t")]).lower()


def integer_rows(*names: str):
    return rows(*names, where=lambda types: all(t.is_integer for t in types.values()))


def float_rows(*names: str):
    """Rows whose first type, that of the input, is a float."""
    return rows(*names, where=lambda types: next(iter(types.values())).is_float)


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
