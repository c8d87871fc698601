"""Other programs accept our modules: spirv-val of SPIRV-Tools, and MLIR's reader of SPIR-V.

The first knows types, the second also the operands and attributes of each instruction. Versions
before 2025 lack graphs.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle.legal_graphs import OPERATORS, legal_graph
from paths import CORPUS
from spirv_graphs import complete

import tosajax
from tosajax import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.io import spirv
from tosajax.io.spirv.grammar import NUMBERS

_SAMPLE = Path(__file__).parent / "data" / "conv_int8.spv"
_COMMANDS = {
    "spirv-val": ("spirv-val", "--target-env", "vulkan1.3"),
    "mlir-translate": ("mlir-translate", "--no-implicit-module", "--deserialize-spirv"),
}
_MODELS = [p for p in sorted(CORPUS.glob("*/*.tosa")) if "mxfp8" not in p.parent.name]


def _error(program: str, path: Path) -> str:
    """What a program finds wrong in a module, "" for nothing."""
    command = [*_COMMANDS[program], str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{done.returncode}: {done.stderr[:1000]}" if done.returncode else ""


@functools.cache
def _lacking(program: str) -> str:
    """Why a program cannot check modules, "" if it can."""
    if shutil.which(program) is None:
        return f"{program} is not installed"
    return f"this {program} does not know graphs" if _error(program, _SAMPLE) else ""


@pytest.fixture(params=list(_COMMANDS))
def accepts(request, tmp_path) -> Callable[[Graph], None]:
    """Asserts that a program accepts a graph's module."""
    if _lacking(request.param):
        pytest.skip(_lacking(request.param))

    def check(graph: Graph) -> None:
        path = tmp_path / "module.spv"
        path.write_bytes(spirv.to_bytes(graph)[0])
        assert _error(request.param, path) == ""

    return check


_INSTRUCTIONS = [operator for operator in OPERATORS if operator.name in NUMBERS]


@pytest.mark.parametrize("operator", _INSTRUCTIONS, ids=lambda operator: operator.name)
def test_every_row(operator, accepts):
    for row in operator.types:
        graph = complete(legal_graph(operator, row))
        if operator.name != "TABLE" and DType.INT4 not in row.types.values():
            accepts(graph)


@pytest.mark.parametrize("path", _MODELS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_models(path, accepts):
    graph = tosajax.load(path)
    if graph.is_dynamic:
        pytest.skip("the model has open dimensions")
    accepts(graph)


def test_odd_ends(accepts):
    """Outputs twice, inputs as outputs, and a tensor of the graph's name."""
    tensors = {name: Tensor(name, DType.FP32, (2,)) for name in ("x", "main", "z")}
    nodes = (Node("ABS", ("x",), ("main",), location="a place"),)
    accepts(Graph(("x", "z"), ("main", "x", "main"), tensors, nodes))
