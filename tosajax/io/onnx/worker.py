"""Prepares an ONNX model and writes it in torch-mlir's dialect, in a process of its own.

    python -m tosajax.io.onnx.worker

The process reads and writes the files of `exchange` in its folder.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

from tosajax.io.onnx.exchange import ANSWER, ERRORS, IMPORTED, MODEL, REQUEST
from tosajax.io.onnx.preparation import Prepared, prepared
from tosajax.report import UnsupportedError


def main(folder: Path) -> None:
    request = json.loads((folder / REQUEST).read_text())
    try:
        found = prepared((folder / MODEL).read_bytes(), request["batch"], request["shapes"], folder)
        (folder / IMPORTED).write_bytes(_imported(found.model))
        answer: dict[str, Any] = _facts(found)
    except tuple(ERRORS.values()) as error:
        answer = {"error": [type(error).__name__, str(error)]}
    (folder / ANSWER).write_text(json.dumps(answer))


def _facts(found: Prepared) -> dict[str, Any]:
    return {
        "inputs": found.inputs,
        "outputs": found.outputs,
        "operators": found.operators,
        "floors": found.floors,
        "done": found.done,
        "version": found.version,
        "producer": found.producer,
    }


def _imported(model: Any) -> bytes:
    """MLIR bytecode of a model, with the names of nodes in locations.

    Raises:
      UnsupportedError: torch-mlir does not import it.
    """
    from torch_mlir.dialects import torch
    from torch_mlir.extras import onnx_importer
    from torch_mlir.ir import Context  # pyright: ignore[reportAttributeAccessIssue]

    context = Context()
    torch.register_dialect(context)
    try:
        info = onnx_importer.ModelInfo(model, config=onnx_importer.Config())
        module = info.create_module(context=context).operation
        onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
    except Exception as error:  # of types and attributes that it does not know
        message = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UnsupportedError(f"torch-mlir does not import the model: {message}") from None
    content = io.BytesIO()
    module.write_bytecode(content)
    return content.getvalue()


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
