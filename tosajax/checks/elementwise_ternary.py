"""Rules of "Elementwise Ternary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.checks._common import broadcast_errors, broadcast_shape

select_shape = broadcast_shape
select_errors = broadcast_errors
