"""tosajax: TOSA operators and graphs in JAX, exact to the last bit.

graph = tosajax.load("model.tosa")
run = tosajax.compile(graph, batch=32)
outputs = run(images)
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from tosajax import grad, ops
    from tosajax.builder import Builder
    from tosajax.dtypes import DType
    from tosajax.graph import Graph, Node, Quantization, Source, Tensor
    from tosajax.io import save
    from tosajax.lowering.build import lower
    from tosajax.lowering.variables import Variable, initial_state
    from tosajax.passes.binding import bind
    from tosajax.report import Finding, FormatError, Report, TosaError, UnsupportedError, Verdict
    from tosajax.runtime.differentiable import differentiable
    from tosajax.runtime.executable import Executable, compile
    from tosajax.runtime.one_op import run_op
    from tosajax.runtime.saved import SavedExecutable, load_executable
    from tosajax.spec.target import Target
    from tosajax.validation import validate

__version__ = "0.1.0"

# The module of each public name, imported at its first use: most of them load JAX, which takes a
# second that a command such as `tosajax info` can save.
_SOURCES = {
    "builder": ("Builder",),
    "dtypes": ("DType",),
    "graph": ("Graph", "Node", "Quantization", "Source", "Tensor"),
    "io": ("save",),
    "lowering.build": ("lower",),
    "lowering.variables": ("Variable", "initial_state"),
    "passes.binding": ("bind",),
    "report": ("Finding", "FormatError", "Report", "TosaError", "UnsupportedError", "Verdict"),
    "runtime.differentiable": ("differentiable",),
    "runtime.executable": ("Executable", "compile"),
    "runtime.one_op": ("run_op",),
    "runtime.saved": ("SavedExecutable", "load_executable"),
    "spec.target": ("Target",),
    "validation": ("validate",),
}
_SOURCE_OF = {name: module for module, names in _SOURCES.items() for name in names}


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
    from tosajax import io
    from tosajax.arguments.types import count
    from tosajax.passes.binding import bind

    batch = None if batch is None else count("batch", batch)
    graph = io.load(path_or_bytes)
    return graph if batch is None else bind(graph, batch=batch)


def __getattr__(name: str) -> Any:
    if name in _SOURCE_OF:
        found = getattr(importlib.import_module(f"tosajax.{_SOURCE_OF[name]}"), name)
        globals()[name] = found
        return found
    if not name.startswith("_") and importlib.util.find_spec(f"tosajax.{name}") is not None:
        return importlib.import_module(f"tosajax.{name}")
    raise AttributeError(f"module 'tosajax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Builder",
    "DType",
    "Executable",
    "Finding",
    "FormatError",
    "Graph",
    "Node",
    "Quantization",
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
