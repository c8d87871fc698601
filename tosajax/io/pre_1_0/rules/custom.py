"""Rule of "Custom Operators"."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import SIGNLESS, Step


def custom(step: Step) -> None:
    """Upgrades CUSTOM: unsigned tensors become signless."""
    types = {step.old(name).dtype for name in (*step.node.inputs, *step.node.outputs)}
    if unsigned := sorted(types & SIGNLESS.keys()):
        done = f"tensors of {' and '.join(unsigned)} are signless, of the same bits"
        step.note(done, "its function gets other types")
    step.keep()
