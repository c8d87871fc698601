"""Reads ONNX models as graphs, by torch-mlir.

`pip install "tosajax[from-onnx]"` brings it.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tosajax.graph import Graph, Rewrite, Source
from tosajax.io import naming, programs
from tosajax.io.leftovers import left_over, of_int64
from tosajax.io.onnx.exchange import ANSWER, ERRORS, IMPORTED, MODEL, REQUEST
from tosajax.io.onnx.floors import with_floors
from tosajax.io.programs import Program
from tosajax.report import UnsupportedError

__all__ = ["read"]

_EXTRA = "from-onnx"
_CONVERTER = Program("torch-mlir-opt", "torch-mlir", _EXTRA)
_WORKER = "tosajax.io.onnx.worker"
_RESULT = "model.mlir"
_PIPELINE = (
    "builtin.module(torch-onnx-to-torch-backend-pipeline{backend-legal-ops="
    "aten.flatten.using_ints,aten.adaptive_avg_pool1d},torch-backend-to-tosa-backend-pipeline)"
)
_Shapes = Mapping[str, Sequence[int]]


def read(data: memoryview, batch: int | None = None, shapes: _Shapes | None = None) -> Graph:
    """Reads an ONNX model as a graph.

    Inputs and outputs have the model's names. QuantizeLinear and DequantizeLinear are floats that
    are rounded to the same steps, as `tosajax.quant.prepare` reads them.

    Args:
      data: the content of a file.
      batch: the size of an open first dimension of inputs.
      shapes: complete shapes of inputs, by name.

    Raises:
      FormatError: the file is broken.
      UnsupportedError: an operator or a type has no TOSA.
      ValueError: a dimension of an input stays open, or a shape contradicts the model.
      ImportError: a package of the extra is not installed.
    """
    from tosajax.io import mlir

    for distribution in ("onnx", "onnxruntime"):
        programs.version_of(distribution, _EXTRA)
    version = _CONVERTER.version
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = _prepared(data, batch, shapes or {}, folder)
        text = _converted(facts, folder, len(data))
    graph = naming.with_ends(mlir.read_text(text), facts["inputs"], facts["outputs"])
    graph = with_floors(graph, facts["floors"])
    rewrites = (*(Rewrite("model", done) for done in facts["done"]), *graph.source.rewrites)
    version = f"{facts['version']}, converted by {version}"
    source = Source("ONNX model", version, facts["producer"], rewrites)
    return dataclasses.replace(graph, name="main", source=source)


def _prepared(data: memoryview, batch: int | None, shapes: _Shapes, folder: Path) -> dict[str, Any]:
    """What the worker says about the model that it writes.

    Raises:
      FormatError: the file is broken.
      UnsupportedError: the worker refuses it, or ended.
      ValueError: an input's shape stays open, or contradicts the model.
    """
    (folder / MODEL).write_bytes(data)
    request = {
        "batch": batch,
        "shapes": {name: [int(size) for size in shape] for name, shape in shapes.items()},
    }
    (folder / REQUEST).write_text(json.dumps(request))
    failure = programs.run_module(_WORKER, folder, len(data))
    if failure is not None:
        raise UnsupportedError(f"the ONNX model cannot be prepared: {failure.message}")
    facts = json.loads((folder / ANSWER).read_text())
    if error := facts.get("error"):
        raise ERRORS[error[0]](error[1])
    return facts


def _converted(facts: Mapping[str, Any], folder: Path, size: int) -> bytes:
    """The MLIR text of the model that the worker wrote.

    Raises:
      UnsupportedError: an operator of ONNX has no TOSA; the message names it.
    """
    command = [
        *(_CONVERTER.path, IMPORTED, "-o", _RESULT, f"--pass-pipeline={_PIPELINE}"),
        *("--mlir-print-debuginfo", "--mlir-disable-threading"),
    ]
    failure = programs.run(command, folder, size)
    if failure is not None:
        why = f"has no TOSA in {_CONVERTER.version} ({failure.message})"
        raise _refusal(facts, failure.place, why)
    text = (folder / _RESULT).read_bytes()
    if found := left_over(text, "torch"):
        raise _refusal(facts, found.place, f"has no TOSA in {_CONVERTER.version}")
    if found := of_int64(text):
        raise _refusal(facts, found.place, "computes in int64, which TOSA 1.0 does not have")
    return text


def _refusal(facts: Mapping[str, Any], name: str, why: str) -> UnsupportedError:
    helps = "change it, or cut this part of the ONNX model"
    return UnsupportedError(f"{_place(facts, name)} {why}: {helps}")


def _place(facts: Mapping[str, Any], name: str) -> str:
    """The operator of a node, and its name in the file."""
    if name not in facts["operators"]:
        return f"node {name!r}" if name else "the ONNX model"
    operator, node = facts["operators"][name]
    return f"operator {operator} of node {node!r}"
