"""Exact integer arithmetic shared by the operators: scaling, saturation, table lookup."""

from __future__ import annotations

from tosajax.fixedpoint.saturation import saturate
from tosajax.fixedpoint.scale import apply_scale_16, apply_scale_32, reciprocal_scale
from tosajax.fixedpoint.table import apply_lookup

__all__ = ["apply_lookup", "apply_scale_16", "apply_scale_32", "reciprocal_scale", "saturate"]
