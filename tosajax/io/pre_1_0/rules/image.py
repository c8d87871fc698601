"""Rule of "Image Operators"."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import Step, member
from tosajax.spec import ResizeMode

_MODES = {"NEAREST": "NEAREST_NEIGHBOR"}


def resize(step: Step) -> None:
    """Upgrades RESIZE: scale, offset and border become inputs."""
    mode = step.get("mode")
    lists = (
        step.list_input(name, position)
        for position, name in enumerate(("scale", "offset", "border"), 1)
    )
    mode = member("mode", ResizeMode, _MODES.get(mode, mode))
    step.emit("RESIZE", (step.input(0), *lists), mode=mode)
