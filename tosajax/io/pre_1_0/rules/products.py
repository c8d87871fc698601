"""Rule of "Tensor Operators", MATMUL."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import Step


def matmul(step: Step) -> None:
    """Upgrades MATMUL: zero points become inputs."""
    a, b = step.input(0), step.input(1)
    step.emit("MATMUL", (a, b, step.zero_point("a_zp", a), step.zero_point("b_zp", b)))
