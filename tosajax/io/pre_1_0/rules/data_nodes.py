"""Rule of "Data Nodes"."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import Step


def const(step: Step) -> None:
    """The values stay with the tensor."""
    step.emit("CONST", ())
