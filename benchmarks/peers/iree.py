"""Contender: IREE on this processor, from MLIR text that tosa-tools writes."""

# The packages of peers may be missing.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.metadata
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import tosajax
from benchmarks.work import Run, Work

_OPTIONS = ("--iree-opt-level=O3", "--iree-opt-data-tiling")


def prepare(work: Work) -> Run:
    """The graph for the whole batch, compiled for this processor, on all cores."""
    import iree.runtime

    code = _compiled(mlir_text(work.whole_graph))
    config = iree.runtime.Config("local-task")
    context = iree.runtime.SystemContext(config=config)
    module = iree.runtime.VmModule.copy_buffer(context.instance, code)
    context.add_vm_module(module)
    (name,) = (n for n in module.function_names if not n.startswith("__"))
    function = context.modules.module[name]
    tensors = work.graph.output_tensors
    inputs = [iree.runtime.asdevicearray(config.device, x) for x in work.inputs]

    def run() -> tuple[np.ndarray, ...]:
        result = function(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(_as_tosa(y.to_host(), t) for y, t in zip(results, tensors, strict=True))

    return run


def _compiled(text: str) -> bytes:
    import iree.compiler

    def compiled(processor: str) -> bytes:
        return iree.compiler.compile_str(
            text,
            target_backends=["llvm-cpu"],
            input_type="tosa",
            extra_args=[f"--iree-llvmcpu-target-cpu={processor}", *_OPTIONS],
        )

    try:
        return compiled("host")
    except iree.compiler.CompilerToolError:
        # Where a system withholds what this processor's name stands for, as AVX-512, LLVM fails.
        return compiled("x86-64-v3")


def _as_tosa(output: np.ndarray, tensor: tosajax.Tensor) -> np.ndarray:
    """An output; the upper 16 bits of an int48 are undefined."""
    if tensor.dtype is not tosajax.DType.INT48:
        return output
    return (output << np.int64(16)) >> np.int64(16)


def mlir_text(graph: tosajax.Graph) -> str:
    """The graph in MLIR's generic form, which every version of the dialect reads.

    Raises:
      NotImplementedError: tosa-tools is not installed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tosajax.save(graph, folder / "graph.tosa")
        (folder / "empty.mlir").write_text("module {}")
        command = [
            _tool("tosa-opt"),
            f"--tosa-deserialize=tosa-flatbuffer-filename={folder / 'graph.tosa'}",
            "--mlir-print-op-generic",
            str(folder / "empty.mlir"),
            *("-o", str(folder / "graph.mlir")),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"tosa-opt: {done.stderr.strip()[-500:]}")
        return (folder / "graph.mlir").read_text()


def _tool(name: str) -> str:
    try:
        files = importlib.metadata.files("tosa-tools") or []
    except importlib.metadata.PackageNotFoundError:
        raise NotImplementedError("needs tosa-tools, which writes MLIR") from None
    return str(next(f for f in files if str(f) == f"bin/{name}").locate())
