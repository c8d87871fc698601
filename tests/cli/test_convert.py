"""`tosajax convert`, and other commands on what it writes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax.cli.convert import HELP
from tosajax.graph.alike import difference
from tosajax.io.formats import WRITTEN

# MLIR bytecode is written through tosa-opt, SPIR-V and VGF by hand.
SUFFIXES = ("json", "mlir", "mlirbc", "spv", "vgf")


@pytest.fixture(params=SUFFIXES)
def converted(request, command) -> str:
    """The name of the model in another format."""
    pytest.importorskip(
        {"mlir": "xdsl", "mlirbc": "xdsl", "vgf": "vgfpy"}.get(request.param, "numpy")
    )
    name = f"other.{request.param}"
    status, out, err = command("convert", "model.tosa", name)
    assert (status, err) == (0, "")
    assert out.startswith(f"{name}: ")
    assert out.endswith("nodes, from TOSA flatbuffer 1.0.0\n")
    return name


def test_the_graph_is_the_same(converted, folder):
    assert difference(tosajax.load(folder / "model.tosa"), tosajax.load(folder / converted)) is None


def test_and_back(converted, command, folder):
    assert command("convert", converted, "again.tosa")[0] == 0
    graphs = [tosajax.load(folder / name) for name in ("model.tosa", "again.tosa")]
    assert difference(*graphs) is None


def test_commands_take_it(converted, command, folder):
    assert command("run", converted, "--input", "x.npy", "--output", "other.npy")[0] == 0
    assert command("run", "model.tosa", "--input", "x.npy", "--output", "own.npy")[0] == 0
    np.testing.assert_array_equal(np.load(folder / "other.npy"), np.load(folder / "own.npy"))
    for line in ("check", "explain", "info"):
        assert command(line, converted)[0] == 0
    assert command("dump", converted, "--input", "x.npy", "--output", "all.npz")[0] == 0
    assert command("rewrite", converted, "--rounding", "double", "-o", "double.mlir")[0] == 0
    status, out, _ = command("compare", converted, "--against", "double.mlir", "--random", "4")
    assert status in (0, 1)
    assert out


def test_info_names_the_format(converted, command):
    out = command("info", converted)[1]
    (line,) = (line for line in out.splitlines() if line.startswith("format"))
    wanted = {"json": "TOSA JSON 1.0.0", "mlir": "MLIR text", "mlirbc": "MLIR bytecode"}
    wanted |= {"spv": "SPIR-V", "vgf": "VGF"}
    assert line.removeprefix("format").strip().startswith(wanted[converted.split(".")[1]])


def test_scales_go_along(command, folder):
    scales = "0.5,3"
    line = ("convert", "model.tosa", "scaled.mlir", "--input-quant", scales)
    assert command(*line)[0] == 0
    found = tosajax.load(folder / "scaled.mlir")
    (scale,) = (found.quantization[name] for name in found.inputs)
    assert (scale.scale, scale.zero_point) == ((0.5,), (3,))


def test_an_illegal_graph_is_refused_unless_it_is_wanted(command, folder):
    graph = small.two_layers()
    nodes = tuple(n for n in graph.nodes if n.op != "CONST")
    tosajax.save(dataclasses.replace(graph, nodes=nodes), folder / "illegal.tosa")
    status, _, err = command("convert", "illegal.tosa", "other.json")
    assert status == 1
    assert "illegal.tosa" in err
    assert not (folder / "other.json").exists()
    assert command("convert", "illegal.tosa", "other.json", "--force")[0] == 0


@pytest.mark.parametrize("name", ["other.onnx", "other", "nowhere/other.mlir"])
def test_no_such_place_or_format(command, folder, name):
    status, _, err = command("convert", "model.tosa", name)
    assert status == 1
    assert name in err
    assert not (folder / name).exists()


def test_help_names_the_suffixes_of_all_formats():
    named = HELP.partition(": ")[2].replace(" or ", ", ").split(", ")
    assert sorted(named) == sorted(known.suffix for known in WRITTEN)
