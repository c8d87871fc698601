"""The programs that --against names: another graph, a runtime, or stored outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import tosajax

if TYPE_CHECKING:
    from tosajax.compare.litert import Kernels
    from tosajax.compare.programs import Other

HELP = (
    "ref (Arm's reference model), a graph's file, tflite:MODEL.tflite[,reference|builtin|default], "
    "an .npz file of tensors by name, or .npy files, one for each output"
)


def reference(texts: Sequence[str]) -> Other:
    """The program to compare with.

    Args:
      texts: as in HELP; several are .npy files.

    Raises:
      ValueError: a text is not one of these.
    """
    from tosajax.compare.programs import REFERENCE_MODEL
    from tosajax.io.formats import FORMATS

    if all(text.endswith(".npy") for text in texts):
        return list(texts)
    if len(texts) > 1:
        raise ValueError(f"--against {' and '.join(texts)}, expected one program or .npy files")
    (text,) = texts
    if text in ("ref", REFERENCE_MODEL):
        return REFERENCE_MODEL
    if text.startswith("tflite:"):
        return _tflite(text.removeprefix("tflite:"))
    if text.endswith(".npz"):
        return text
    if Path(text).suffix in {known.suffix for known in FORMATS}:
        return tosajax.load(text)
    raise ValueError(f"--against {text}, expected {HELP}")


def _tflite(text: str) -> Other:
    from tosajax.compare import tflite

    path, comma, kernels = text.rpartition(",")
    return tflite(path, cast("Kernels", kernels)) if comma else tflite(text)
