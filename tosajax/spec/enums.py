"""Enumerations, with the specification's numbers ("Enumerations", TOSA 1.0.1)."""

from __future__ import annotations

import enum

from tosajax.dtypes import DType


class ResizeMode(enum.IntEnum):
    """resize_mode_t of the specification."""

    NEAREST_NEIGHBOR = 1
    BILINEAR = 2


class NanMode(enum.IntEnum):
    """nan_propagation_mode_t of the specification."""

    PROPAGATE = 1
    IGNORE = 2


class RoundingMode(enum.IntEnum):
    """rounding_mode_t of the specification."""

    SINGLE_ROUND = 1
    INEXACT_ROUND = 2
    DOUBLE_ROUND = 3


class AccType(enum.IntEnum):
    """acc_type_t; graphs and kernels carry it as the DType of the same name."""

    INT32 = 1
    FP16 = 2
    FP32 = 3
    INT48 = 4

    @property
    def dtype(self) -> DType:
        return DType[self.name]


class VarType(enum.IntEnum):
    """var_t of the specification."""

    BOOLEAN = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    FP16 = 5
    BF16 = 6
    FP32 = 7

    @property
    def dtype(self) -> DType:
        return DType.BOOL if self is VarType.BOOLEAN else DType[self.name]

    @classmethod
    def of(cls, dtype: DType) -> VarType | None:
        """The var_t of an element type; None if a variable cannot have the type."""
        return next((v for v in cls if v.dtype is dtype), None)


# The extensions that enumerants need; enumerants not listed are always available.
REQUIRED_EXTENSION = {
    RoundingMode.INEXACT_ROUND: "EXT-INEXACTROUND",
    RoundingMode.DOUBLE_ROUND: "EXT-DOUBLEROUND",
}
