"""Storages: integers and FP8."""

from tosajax.dtypes import DType
from tosajax.quant.storages.float8 import Float8
from tosajax.quant.storages.integers import Integers, zero_point_integer
from tosajax.quant.storages.protocol import Grid, OperandStorage, Storage

__all__ = [
    "Float8",
    "Grid",
    "Integers",
    "OperandStorage",
    "Storage",
    "storage_of",
    "zero_point_integer",
]


def storage_of(dtype: DType | Storage) -> Storage:
    """The storage of an element type; a storage as it is."""
    if not isinstance(dtype, DType):
        return dtype
    return Float8(dtype) if dtype.is_float else Integers(dtype)
