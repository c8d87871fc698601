"""Rules of "Shape Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.checks._common import constant_shape

const_shape_shape = constant_shape
