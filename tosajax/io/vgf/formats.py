"""The numbers of Vulkan formats, and their element types."""

from __future__ import annotations

from tosajax.dtypes import DType

NUMBERS = {
    DType.INT8: 14,
    DType.INT16: 75,
    DType.FP16: 76,
    DType.INT32: 99,
    DType.FP32: 100,
    DType.INT48: 111,  # eight bytes
    DType.BOOL: 1000460000,
    DType.BF16: 1000460001,
    DType.FP8E4M3: 1000460002,
    DType.FP8E5M2: 1000460003,
}
_UNSIGNED = {13: DType.INT8, 74: DType.INT16, 98: DType.INT32, 110: DType.INT48}
DTYPES = {number: dtype for dtype, number in NUMBERS.items()} | _UNSIGNED
