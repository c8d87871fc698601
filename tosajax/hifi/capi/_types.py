"""The element types in the names of kernels."""

from __future__ import annotations

import numpy as np

TYPES: dict[str, type] = {
    "8": np.int8,
    "16": np.int16,
    "32": np.int32,
    "f32": np.float32,
    "asym8u": np.uint8,
    "asym8s": np.int8,
    "asym16s": np.int16,
}
