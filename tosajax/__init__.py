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
    import collections.abc
    import os

    import numpy as np

    from tosajax import grad, ops
    from tosajax.builder import Builder
    from tosajax.dtypes import DType
    from tosajax.from_jax.export import export
    from tosajax.graph import Agreement, Graph, Node, Quantization, Rewrite, Source, Tensor
    from tosajax.io import save
    from tosajax.lowering.build import lower
    from tosajax.lowering.kernel_plan import plan_kernels
    from tosajax.lowering.variables import Variable, initial_state
    from tosajax.passes.binding import bind
    from tosajax.report import Finding, FormatError, Report, TosaError, UnsupportedError, Verdict
    from tosajax.runtime.dataset import run
    from tosajax.runtime.differentiable import differentiable
    from tosajax.runtime.dump import dump
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
    "from_jax.export": ("export",),
    "graph": ("Agreement", "Graph", "Node", "Quantization", "Rewrite", "Source", "Tensor"),
    "io": ("save",),
    "lowering.build": ("lower",),
    "lowering.kernel_plan": ("plan_kernels",),
    "lowering.variables": ("Variable", "initial_state"),
    "passes.binding": ("bind",),
    "report": ("Finding", "FormatError", "Report", "TosaError", "UnsupportedError", "Verdict"),
    "runtime.dataset": ("run",),
    "runtime.differentiable": ("differentiable",),
    "runtime.dump": ("dump",),
    "runtime.executable": ("Executable", "compile"),
    "runtime.one_op": ("run_op",),
    "runtime.saved": ("SavedExecutable", "load_executable"),
    "spec.target": ("Target",),
    "validation": ("validate",),
}
_SOURCE_OF = {name: module for module, names in _SOURCES.items() for name in names}
# Parts with public names of their own, imported at their first use as well.
_PARTS = (
    *("compare", "compliance", "grad", "graph", "hifi", "io", "ops", "quant", "reference_model"),
    *("rewrite", "spec", "sweep", "viz"),
)


def load(
    path_or_bytes: str | os.PathLike[str] | bytes | bytearray | memoryview,
    batch: int | None = None,
    *,
    function: str | None = None,
    constants: collections.abc.Mapping[int, np.ndarray] | None = None,
    shapes: collections.abc.Mapping[str, collections.abc.Sequence[int]] | None = None,
    as_floats: bool = False,
) -> Graph:
    """Reads a graph from a file or the bytes of one; a converter makes TOSA of what is none.

    The content shows the format: `.tosa` files and their JSON form, MLIR text and bytecode of the
    `tosa` dialect, SPIR-V graph modules, VGF, TFLite, ONNX. Graphs of TOSA before 1.0 are rewritten
    as 1.0.1; `Graph.source` has the format and the rewrites.

    Args:
      path_or_bytes: a path, or the content of a file.
      batch: size of the inputs' first dimension where the file leaves it open (-1).
      function: the name of one of several in the file; by default the only one, or `main`.
      constants: the constants of a SPIR-V module that are outside of it, by number; by default from
        the `.npz` file beside it.
      shapes: complete shapes of inputs by name, where the file leaves other dimensions open.
      as_floats: whether a quantized TFLite file becomes the graph of its real numbers: constants
        times their scales, and what operators compute rounded to the values of its integers.
        `quant.prepare` takes this rounding for the quantization that it is.

    Raises:
      FormatError: the content is not a well-formed file.
      UnsupportedError: the file's version, or something in it, is not supported.
      ImportError: the format needs a package that is not installed; the message says which.
      ValueError: the file has no such function, an input cannot have a shape, or as_floats is asked
        of a file of TOSA.
      FileNotFoundError: there is no such file.
      TypeError: an argument is of another type.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (-1, 4))
      >>> data = tosajax.io.to_bytes(b.graph([b.op("REVERSE", x, axis=1)]))
      >>> tosajax.load(data, batch=8)
      Graph('main', (x: INT8[8,4]) -> (reverse_1: INT8[8,4]), 1 node)
    """
    from tosajax import io
    from tosajax.arguments.types import count
    from tosajax.passes.binding import bind

    batch = None if batch is None else count("batch", batch)
    graph = io.load(
        path_or_bytes,
        function=function,
        constants=constants,
        batch=batch,
        shapes=shapes,
        as_floats=as_floats,
    )
    is_asked = batch is not None or shapes
    return bind(graph, batch=batch, shapes=shapes) if is_asked else graph


def __getattr__(name: str) -> Any:
    if name in _SOURCE_OF:
        value = getattr(importlib.import_module(f"tosajax.{_SOURCE_OF[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and importlib.util.find_spec(f"tosajax.{name}") is not None:
        return importlib.import_module(f"tosajax.{name}")
    raise AttributeError(f"module 'tosajax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PARTS, *(name for name in globals() if name.startswith("__"))})


__all__ = [
    "Agreement",
    "Builder",
    "DType",
    "Executable",
    "Finding",
    "FormatError",
    "Graph",
    "Node",
    "Quantization",
    "Report",
    "Rewrite",
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
    "dump",
    "export",
    "grad",
    "initial_state",
    "load",
    "load_executable",
    "lower",
    "ops",
    "plan_kernels",
    "run",
    "run_op",
    "save",
    "validate",
]
