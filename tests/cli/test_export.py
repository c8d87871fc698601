"""`tosajax export`: a function of a module becomes a file."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tosajax
from tosajax import DType

MODULE = """
import jax.numpy as jnp
import numpy as np

weights = {"w": np.float32(2.5)}

def make():
    return {"w": np.float32(0.5)}

def scaled(params, x):
    return jnp.tanh(x * params["w"])

def both(x, y):
    return {"sum": x + y, "flag": x > 0}

def gru(x):
    from tosajax.hifi.layers import GRUConfig, GRUWeights, gru_init, gru_step

    config = GRUConfig(in_feats=4, out_feats=4)
    matrices = [np.full((4, 4), 99 * i, np.int16) for i in range(6)]
    weights = GRUWeights(*matrices, *(np.full(4, i, np.int16) for i in range(3)))
    return gru_step(config, weights, gru_init(config), x)[1]

class holder:
    def inner(x):
        return jnp.abs(x)
"""


@pytest.fixture(autouse=True)
def module(folder, monkeypatch) -> str:
    """The name of a module in the working directory, unlike that of any other test."""
    name = f"jax_functions_{folder.name.replace('-', '_')}"
    (folder / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    return name


@pytest.mark.parametrize(("params", "factor"), [("weights", 2.5), ("make", 0.5)])
def test_a_function_with_parameters(command, folder, module, params, factor):
    line = ("--params", f"{module}:{params}", "--input", "f32[2,3]", "-o", "out.tosa")
    status, out, err = command("export", f"{module}:scaled", *line)
    assert (status, err) == (0, "")
    assert out == f"out.tosa: 4 nodes, from {module}:scaled\n"
    graph = tosajax.load(folder / "out.tosa")
    x = np.asarray([[1, -2, 0.5]] * 2, np.float32)
    np.testing.assert_allclose(tosajax.compile(graph)(x)[0], np.tanh(x * factor), rtol=1e-6)


def test_modules_of_the_working_directory_can_be_imported(command, folder, module, monkeypatch):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(folder))])
    assert command("export", f"{module}:both", *["--input", "f32[1]"] * 2, "-o", "o.tosa")[0] == 0


def test_inputs_of_several_types(command, folder, module):
    line = ("--input", "i32[4]", "--input", "i32[]", "-o", "out.json")
    assert command("export", f"{module}:both", *line)[0] == 0
    graph = tosajax.load(folder / "out.json")
    assert [(t.name, t.dtype, t.shape) for t in graph.input_tensors] == [
        ("x", DType.INT32, (4,)), ("y", DType.INT32, ()),
    ]  # fmt: skip
    assert graph.outputs == ("flag", "sum")


def test_an_open_batch(command, folder, module):
    line = ("--input", "bf16[3,2]", "--dynamic-batch", "-o", "out.tosa")
    assert command("export", f"{module}:holder.inner", *line)[0] == 0
    assert tosajax.load(folder / "out.tosa").tensors["x"].shape == (-1, 2)


def test_a_run_of_both(command, module):
    line = ("--input", "f32[8]", "--check", "3", "-o", "out.tosa")
    _, out, _ = command("export", f"{module}:holder.inner", *line)
    assert out.splitlines()[1:] == ["  output: equal"]


def test_a_target(command, folder, module):
    line = ("--input", "bf16[8]", "--target", "PRO-FP@8K", "-o", "out.tosa")
    status, _, err = command("export", f"{module}:holder.inner", *line)
    assert status == 1
    assert "EXT-BF16" in err
    assert not (folder / "out.tosa").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{}", "expected package.module:name"),
        ("{}:nothing", "has no 'nothing'"),
        ("no_such_module_at_all:f", "No module named 'no_such_module_at_all'"),
    ],
)
def test_a_function_that_is_not_there(command, module, name, words):
    status, _, err = command("export", name.format(module), "--input", "f32[1]", "-o", "out.tosa")
    assert status == 1
    assert words in err


@pytest.mark.parametrize("text", ["f32", "f33[1]", "f32[1,]", "f32[-1]", "[1]"])
def test_an_input_that_is_not_one(command, capsys, module, text):
    with pytest.raises(SystemExit):
        command("export", f"{module}:both", "--input", text, "-o", "out.tosa")
    assert (
        "expected f32[1,32,32,3]; types are bool, i4, i8, i16, i32, f32" in capsys.readouterr().err
    )


@pytest.mark.parametrize(("way", "has_custom"), [("custom", True), ("operators", False)])
def test_layers_of_hifi(command, folder, module, way, has_custom):
    line = ("--input", "i16[4]", "--hifi-layers", way, "-o", "out.tosa")
    assert command("export", f"{module}:gru", *line)[0] == 0
    operators = {node.op for node in tosajax.load(folder / "out.tosa").nodes}
    assert ("CUSTOM" in operators) == has_custom
