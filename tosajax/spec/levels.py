"""Profiles, extensions and levels ("Profiles" and "Levels", TOSA 1.0.1)."""

from __future__ import annotations

import dataclasses

PROFILES = ("PRO-INT", "PRO-FP")

# Extension -> the profiles that may have it.
EXTENSIONS = {
    "EXT-INT16": ("PRO-INT",),
    "EXT-INT4": ("PRO-INT",),
    "EXT-BF16": ("PRO-FP",),
    "EXT-FP8E4M3": ("PRO-FP",),
    "EXT-FP8E5M2": ("PRO-FP",),
    "EXT-FFT": ("PRO-FP",),
    "EXT-VARIABLE": ("PRO-INT", "PRO-FP"),
    "EXT-CONTROLFLOW": ("PRO-INT", "PRO-FP"),
    "EXT-DYNAMIC": ("PRO-INT", "PRO-FP"),
    "EXT-DOUBLEROUND": ("PRO-INT",),
    "EXT-INEXACTROUND": ("PRO-INT",),
}


@dataclasses.dataclass(frozen=True)
class Level:
    """The largest arguments that an implementation must support."""

    name: str
    MAX_RANK: int
    MAX_KERNEL: int
    MAX_STRIDE: int
    MAX_SCALE: int
    MAX_LOG2_SIZE: int
    MAX_NESTING: int
    MAX_TENSOR_LIST_SIZE: int


LEVELS = {
    "none": Level("none", 32, 2147483647, 2147483647, 2048, 63, 256, 256),
    "8K": Level("8K", 6, 8192, 8192, 256, 31, 6, 64),
}
