"""tosajax: TOSA operators and graphs in JAX, exact to the last bit.

graph = tosajax.load("model.tosa")
run = tosajax.compile(graph, batch=32)
outputs = run(images)
"""

from __future__ import annotations

import os

from tosajax import grad, ops
from tosajax import io as _io
from tosajax.bind import bind
from tosajax.builder import Builder
from tosajax.differentiable import differentiable
from tosajax.dtypes import DType
from tosajax.executable import Executable, compile
from tosajax.graph import Graph, Node, Source, Tensor
from tosajax.io import save
from tosajax.lower import lower
from tosajax.report import Finding, FormatError, Report, TosaError, UnsupportedError, Verdict
from tosajax.run_op import run_op
from tosajax.saved import SavedExecutable, load_executable
from tosajax.target import Target
from tosajax.typed import count
from tosajax.validate import validate
from tosajax.variables import Variable, initial_state

__version__ = "0.1.0"


def load(
    path_or_bytes: str | os.PathLike[str] | bytes | bytearray | memoryview,
    batch: int | None = None,
) -> Graph:
    """Reads a graph from a `.tosa` file, its JSON form, or the bytes of either.

    Args:
      path_or_bytes: a path, or the content of a file.
      batch: size of the inputs' first dimension where the file leaves it open (-1).

    Raises:
      FormatError: the content is not a well-formed file.
      UnsupportedError: the file's version, or something in it, is not supported.
      FileNotFoundError: there is no such file.
      TypeError: an argument is of another type.
    """
    batch = None if batch is None else count("batch", batch)
    graph = _io.load(path_or_bytes)
    return graph if batch is None else bind(graph, batch=batch)


__all__ = [
    "Builder",
    "DType",
    "Executable",
    "Finding",
    "FormatError",
    "Graph",
    "Node",
    "Report",
    "SavedExecutable",
    "Source",
    "Target",
    "Tensor",
    "TosaError",
    "UnsupportedError",
    "Variable",
    "Verdict",
    "bind",
    "compile",
    "differentiable",
    "grad",
    "initial_state",
    "load",
    "load_executable",
    "lower",
    "ops",
    "run_op",
    "save",
    "validate",
]
