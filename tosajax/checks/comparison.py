"""Rules of "Comparison Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.checks._common import broadcast_errors, broadcast_shape

equal_shape = greater_shape = greater_equal_shape = broadcast_shape
equal_errors = greater_errors = greater_equal_errors = broadcast_errors
