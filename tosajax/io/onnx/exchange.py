"""The files by which the reader and the process that prepares a model exchange content."""

from __future__ import annotations

from tosajax.report import FormatError, UnsupportedError

MODEL = "model.onnx"  # the file as it is
REQUEST = "request.json"  # batch and shapes
ANSWER = "answer.json"  # names and versions, or an error
IMPORTED = "torch.mlirbc"  # the prepared model
# The errors of an answer, by name.
ERRORS = {kind.__name__: kind for kind in (FormatError, UnsupportedError, ValueError)}
