"""ARGMAX has no gradient."""

from __future__ import annotations

from tosajax import ops
from tosajax.grad._exact import without_gradient

argmax = without_gradient(ops.argmax)
