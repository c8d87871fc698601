"""The file of a network with closed shapes, as `tosajax.load` and the other quantizers take it."""

# The converters are in the extra "ptq".
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.ptq_zoo import tflite_file
from benchmarks.ptq_zoo.networks import Network


def source_file(network: Network, content: bytes, folder: Path) -> Path:
    """Writes the network with closed shapes; its path."""
    path = folder / f"model{Path(network.path).suffix}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if network.is_onnx:
            _close_onnx(content, network.shape, path)
        else:
            path.write_bytes(tflite_file.plain(content))
    return path


def _close_onnx(content: bytes, shape: Sequence[int], path: Path) -> None:
    """Closes the shape of the first input, raises the opset, and folds what depends on shapes."""
    import onnx

    from tosajax.io.onnx import preparation

    model = preparation.checked(content)
    preparation.close(model, None, {model.graph.input[0].name: shape})
    onnx.save(preparation.folded(preparation.raised(model), path.parent), path)
