"""Rule of "Data Nodes"."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import Step


def const(step: Step) -> None:
    """Upgrades CONST; the tensor keeps the values."""
    step.emit("CONST", ())
