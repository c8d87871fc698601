"""The programs that --against selects: another graph, a runtime, or stored outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tosajax.compare.programs import Other

HELP = (
    "ref (Arm's reference model), a graph's file, tflite:MODEL.tflite[,reference|builtin|default], "
    "an .npz file of tensors by name, or .npy files, one for each output"
)


def reference(texts: Sequence[str]) -> Other:
    """The program to compare with.

    Args:
      texts: one of the texts of HELP; or several .npy files.

    Raises:
      ValueError: a text is none of these.
    """
    from tosajax.compare.programs import named

    if all(text.endswith(".npy") for text in texts):
        return list(texts)
    if len(texts) > 1:
        raise ValueError(f"--against {' and '.join(texts)}, expected one program or .npy files")
    return named(texts[0])
