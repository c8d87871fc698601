"""torch-mlir and IREE read the text that we write, and we read all that they print of it."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys

import pytest
from oracle.legal_graphs import ROWS, legal_graph
from reference.growth import grow

from tosajax.graph.alike import difference
from tosajax.io import mlir

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
