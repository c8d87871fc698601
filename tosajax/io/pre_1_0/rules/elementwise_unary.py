"""Rule of "Elementwise Unary Operators"."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import Step


def negate(step: Step) -> None:
    """Upgrades NEGATE: zero points become inputs."""
    x = step.input(0)
    step.emit(
        "NEGATE", (x, step.zero_point("input1_zp", x), step.zero_point("output_zp", step.output))
    )
