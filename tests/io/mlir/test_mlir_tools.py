"""Other tools read the text that we write as we mean it, and we read what they print."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from oracle.legal_graphs import ROWS, legal_graph
from paths import CORPUS, DATA
from reference.growth import grow

from tosajax import io
from tosajax.graph import Graph
from tosajax.graph.alike import difference
from tosajax.io import mlir
from tosajax.io.mlir import bytecode

pytest.importorskip("xdsl")

# Prints each text in the custom form of the tool, and in the generic form with locations.
_PRINT = """
import json, sys
if sys.argv[1] == "torch_mlir":
    from torch_mlir import ir
    from torch_mlir.dialects import torch
    register = torch.register_dialect
else:
    from iree.compiler import ir
    register = lambda context: None
printed = []
for text in json.load(sys.stdin):
    with ir.Context() as context:
        register(context)
        module = ir.Module.parse(text)
        assert module.operation.verify()
        generic = dict(print_generic_op_form=True, enable_debug_info=True)
        printed.append([str(module), module.operation.get_asm(**generic)])
print(json.dumps(printed))
"""
_FORMS = {"torch_mlir": "attribute dictionaries", "iree.compiler": "strict properties"}


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("tool", _FORMS)
def test_other_tools(tool, small_graph, sample):
    if not _is_there(tool):
        pytest.skip(f"{tool} is not installed")
    graphs = [legal_graph(operator, row) for operator, row in ROWS]
    graphs += [grow(random.Random(seed)).graph for seed in range(20)]
    graphs += [mlir.read_text(sample(f"{name}.mlir")) for name in ("allops", "types", "cf")]
    texts = [mlir.to_text(graph) for graph in (*graphs, small_graph)]
    command = [sys.executable, "-c", _PRINT, tool]
    given = json.dumps(texts)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    versions = set()
    for text, printed in zip(texts, json.loads(done.stdout), strict=True):
        graph = mlir.read_text(text)
        for other in map(mlir.read_text, printed):
            assert difference(graph, other) is None
            versions.add(other.source.version)
    assert f"TOSA 1.0 dialect, {_FORMS[tool]}" in versions


# tosa-opt, between the text and .tosa files that it reads and writes itself.

_MXFP = "et_digits_vit_mxfp8_e4m3"  # of TOSA 1.1
_LARGEST = 100_000  # bytes


def _models() -> list[Path]:
    found = [*DATA.glob("*/*.tosa"), *CORPUS.glob("*/*.tosa")]
    small = (p for p in found if p.parent.name != _MXFP and p.stat().st_size < _LARGEST)
    return sorted({(p.parent.name, p.name): p for p in small}.values())


def _serialized(graph: Graph, path: Path) -> Graph:
    """The graph in the file that tosa-opt makes of our text."""
    option = f"--tosa-serialize=tosa-flatbuffer-filename={path}"
    command = [str(bytecode.program()), "-", option, "-o", "/dev/null"]
    text = mlir.to_text(graph)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return io.load(path)


def _deserialized(path: Path) -> Graph:
    """The graph in the text that tosa-opt makes of a file."""
    option = f"--tosa-deserialize=tosa-flatbuffer-filename={path}"
    command = [str(bytecode.program()), "-", option]
    done = subprocess.run(command, input="module {}", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (line for line in done.stdout.splitlines() if not line.startswith(("WARN", "INFO")))
    return mlir.read_text("\n".join(lines))


@pytest.mark.parametrize("path", _models(), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_files_of_tosa_opt(path, tosa_opt, tmp_path):
    graph = io.load(path)
    assert difference(graph, _deserialized(path)) is None
    assert difference(graph, _serialized(graph, tmp_path / "graph.tosa")) is None


def test_files_of_every_operator(tosa_opt, tmp_path):
    for operator, row in ROWS[1::5]:
        graph = legal_graph(operator, row)
        io.save(graph, tmp_path / "ours.tosa")
        graph = io.load(tmp_path / "ours.tosa")
        case = operator.name, row.mode
        assert difference(graph, _deserialized(tmp_path / "ours.tosa")) is None, case
        assert difference(graph, _serialized(graph, tmp_path / "theirs.tosa")) is None, case
