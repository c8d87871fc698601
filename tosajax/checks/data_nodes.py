"""Rules of "Data Nodes" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.checks._common import constant_shape, input1_shape

const_shape = constant_shape
identity_shape = input1_shape
