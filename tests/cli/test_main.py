"""The command line as a user meets it: output, exit status, one clear line for bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import programs
import pytest

import tosajax
from tosajax import Builder, DType
from tosajax.cli import main


@pytest.fixture
def model(data) -> str:
    return str(data / "et_digits_cnn_a8w8" / "model.tosa")


@pytest.fixture
def illegal(tmp_path) -> str:
    b = Builder()
    x = b.input("x", DType.INT32, (2, 3))
    b.op("REVERSE", x, axis=5, name="one")
    graph = b.graph(outputs=[b.op("REVERSE", x, axis=7, name="two")])
    path = tmp_path / "illegal.tosa"
    tosajax.save(graph, path)
    return str(path)


def test_info(model, capsys):
    assert main(["info", model]) == 0
    out = capsys.readouterr().out
    for line in (
        "TOSA flatbuffer 1.0.0",
        "quantized_decomposed_quantize_per_tensor_default: INT8[1,8,8,1]",
        "tosa_reshape_default: INT8[1,10]",
        "PRO-INT",
        "CONV2D 3",
        "5,796",
        "108,864",
        "arena       3.0 KiB of activations at once",
    ):
        assert line in out
    assert "cycles" not in out
    assert main(["info", model, "--target", "ethos-u55-128"]) == 0
    assert re.search(r"^cycles      \d,\d{3} of ethos-u55-128$", capsys.readouterr().out, re.M)
    assert main(["info", model, "--target", "ethos"]) == 1
    assert "expected one of ethos-u55-32, " in capsys.readouterr().err


def test_info_of_variables_and_control_flow(tmp_path, capsys):
    state = {"TOSA        1.0", "variable    sum: INT8[3]", "needs       PRO-INT + EXT-VARIABLE"}
    branches = {"nodes       14", "needs       PRO-INT + EXT-CONTROLFLOW"}
    for graph, lines in ((programs.accumulator(), state), (programs.nested(2), branches)):
        tosajax.save(graph, tmp_path / "graph.tosa")
        assert main(["info", str(tmp_path / "graph.tosa")]) == 0
        assert set(capsys.readouterr().out.splitlines()) >= lines


def test_info_of_an_illegal_graph(illegal, capsys):
    assert main(["info", illegal]) == 0
    assert "2 errors" in capsys.readouterr().out


def test_check_of_a_legal_graph(model, capsys):
    assert main(["check", model, "--target", "pro-int@8k"]) == 0
    assert "VALID (0 errors, 0 unpredictable)" in capsys.readouterr().out


def test_check_lists_every_finding(illegal, capsys):
    assert main(["check", illegal]) == 1
    out = capsys.readouterr().out
    assert "REVERSE 'one'" in out
    assert "REVERSE 'two'" in out
    assert "ERROR (2 errors, 0 unpredictable)" in out


def test_check_of_a_target(model, capsys):
    assert main(["check", model, "--target", "PRO-FP"]) == 1
    assert "needs PRO-INT" in capsys.readouterr().out


def test_check_groups_what_many_nodes_break(data, tmp_path, capsys):
    model, path = str(data / "et_digits_cnn_fp32" / "model.tosa"), tmp_path / "found.json"
    arguments = ["check", model, "--target", "PRO-INT"]
    assert main([*arguments, "--json", str(path)]) == 1
    first, *rest, last = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "ERROR: needs PRO-FP, target is PRO-INT@8K: 36 times (21 CONST, 4 CLAMP"
    )
    assert len(rest) == 4
    assert last == f"{model}: ERROR (36 errors, 0 unpredictable; --verbose lists all)"
    found = json.loads(path.read_text())
    assert (found["verdict"], found["needs"], len(found["findings"])) == ("ERROR", ["PRO-FP"], 36)
    assert main([*arguments, "--verbose"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 36
    assert last == f"{model}: ERROR (36 errors, 0 unpredictable)"
    told = (
        f"{f['verdict']}: {f['node']}: {f['message']} [{f['label']}]" for f in found["findings"]
    )
    assert lines == list(told)


@pytest.mark.parametrize("batch", [1, 7, 32, 600])
def test_run(model, data, tmp_path, capsys, batch):
    folder, output = data / "digits_test", tmp_path / "y.npy"
    images = ["--input", str(folder / "inputs_0.npy")]
    small = tmp_path / "x.npy"
    if batch == 1:
        np.save(small, np.load(folder / "inputs_0.npy")[:9])
        images = ["--input", str(small)]
    assert main(["run", model, *images, "--batch", str(batch), "--output", str(output)]) == 0
    result = np.load(output)
    np.testing.assert_array_equal(result, np.load(folder / "expected_ref_0.npy")[: len(result)])
    assert f"{len(result)} examples" in capsys.readouterr().out


def test_run_of_whole_examples_keeps_their_axis(data, tmp_path):
    folder, output = data / "et_digits_cnn_bf16", tmp_path / "y.npy"
    status = main(
        ["run", str(folder / "model.tosa"), "--input", str(folder / "inputs_0.npy"),
         "--batch", "5", "--output", str(output)]
    )  # fmt: skip
    assert status == 0
    assert np.load(output).shape == (16, 1, 10)


def test_run_of_a_graph_that_cannot_carry_a_batch(data, tmp_path):
    folder, output = data / "jax_gather", tmp_path / "y.npy"
    status = main(
        ["run", str(folder / "model.tosa"), "--input", str(folder / "inputs_0.npy"),
         "--output", str(output)]
    )  # fmt: skip
    assert status == 0
    np.testing.assert_array_equal(np.load(output), np.load(folder / "expected_ref_0.npy"))


def bad(arguments: list[str], capsys, *words: str) -> None:
    """Ends in one line on stderr that holds all words, and status 1."""
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("tosajax: error: ")
    assert captured.err.count("\n") == 1
    for word in words:
        assert word in captured.err


def test_missing_file(capsys):
    bad(["info", "nowhere.tosa"], capsys, "nowhere.tosa", "No such file")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x20\0\0\0TOSA", b"{}"])
def test_broken_file(tmp_path, capsys, content):
    path = tmp_path / "broken.tosa"
    path.write_bytes(content)
    for command in ("info", "check"):
        bad([command, str(path)], capsys, "broken.tosa")


def test_run_of_an_illegal_graph(illegal, tmp_path, capsys):
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, np.zeros((1, 2, 3), np.int32))
    arguments = ["run", illegal, "--input", str(x), "--output", str(y)]
    bad(arguments, capsys, "REVERSE 'one'", "reverse.e1", "1 more")
    assert not y.exists()


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 8, 8, 1), np.float32), ("float32", "int8")),
        (np.zeros((4, 9, 8, 1), np.int8), ("(4, 9, 8, 1)", "(count, 8, 8, 1)")),
        (np.zeros((0, 8, 8, 1), np.int8), ("no examples",)),
        (np.array([None]), ("pickle",)),
    ],
    ids=["type", "shape", "empty", "objects"],
)
def test_run_of_bad_data(model, tmp_path, capsys, array, words):
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, array)
    bad(["run", model, "--input", str(x), "--output", str(y)], capsys, *words)
    assert not y.exists()


def test_run_with_a_wrong_number_of_files(model, tmp_path, capsys):
    y = str(tmp_path / "y.npy")
    arguments = ["run", model, "--input", "a.npy", "--input", "b.npy", "--output", y]
    bad(arguments, capsys, "2 --input", "has 1")


def test_run_into_a_folder_that_is_not_there(model, tmp_path, capsys):
    y = str(tmp_path / "away" / "y.npy")
    bad(["run", model, "--input", "x.npy", "--output", y], capsys, "away")


def test_run_leaves_no_partial_file(model, data, tmp_path, monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "save", fail)
    images = str(data / "digits_test" / "inputs_0.npy")
    bad(["run", model, "--input", images, "--output", str(tmp_path / "y.npy")], capsys, "disk full")
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(illegal):
    with pytest.raises(FileNotFoundError):
        main(["info", "nowhere.tosa", "--debug"])


@pytest.mark.parametrize(
    "arguments", [[], ["run"], ["check", "m", "--target", "PRO-X"], ["info", "m", "--batch", "0"]]
)
def test_misuse_is_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: tosajax" in capsys.readouterr().err


def test_as_a_process(model):
    done = subprocess.run(
        [sys.executable, "-m", "tosajax", "info", model], capture_output=True, text=True, check=True
    )
    assert "CONV2D" in done.stdout
    assert done.stderr == ""
    installed = Path(sys.executable).with_name("tosajax")
    version = subprocess.run([installed, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"tosajax {tosajax.__version__}\n"


@pytest.mark.parametrize(("shape", "batch"), [((1, 3), 4), ((-1, 3), 4), ((3,), None)])
def test_explain_compiles_a_batch_where_inputs_carry_one(tmp_path, monkeypatch, shape, batch):
    b = Builder()
    x = b.input("x", DType.INT32, shape)
    tosajax.save(b.graph([b.op("ABS", x)]), tmp_path / "g.tosa")
    batches, compile_graph = [], tosajax.compile

    def noted(graph, batch):
        batches.append(batch)
        return compile_graph(graph, batch=batch)

    monkeypatch.setattr("tosajax.compile", noted)
    assert main(["explain", str(tmp_path / "g.tosa"), "--batch", "4"]) == 0
    assert batches == [batch]


def test_help_names_the_files_that_a_command_takes(capsys):
    for command, words in (("info", "a TOSA file"), ("export", "package.module:name")):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        positional = capsys.readouterr().out.partition("positional arguments:")[2]
        assert words in positional.partition("options:")[0]


def test_explain(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TOSAJAX_NATIVE", "0")
    assert main(["explain", model, "--batch", "4"]) == 0
    out = capsys.readouterr().out
    for text in ("convolution", "slices", "constant weights", "108,864", "bytes of tensors"):
        assert text in out
    # No input can carry a batch: it is explained as it stands.
    b = Builder()
    x = b.input("x", DType.INT8, (2, 8, 8))
    zero = b.const([0], DType.INT8)
    tosajax.save(b.graph([b.op("MATMUL", x, x, zero, zero)]), tmp_path / "graph.tosa")
    assert main(["explain", str(tmp_path / "graph.tosa")]) == 0
    assert "1,024" in capsys.readouterr().out
