"""Bad arrays at the command line: one line that names the array, and no traceback."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

import tosajax
from tosajax.cli import main

# Where each command takes an array, and the status of trouble.
PLACES = [
    (("run", "model.tosa", "--output", "out.npy", "--input"), 1),
    (("dump", "model.tosa", "-o", "out.npz", "--input"), 1),
    (("compare", "model.tosa", "--against", "twice.tosa", "--input"), 2),
    (("compare", "model.tosa", "--input", "x.npy", "--against"), 2),
    (("rounding", "model.tosa", "--against", "twice.tosa", "--input"), 1),
    (("sweep", "model.tosa", "--labels", "labels.npy", "--data"), 1),
    (("sweep", "model.tosa", "--data", "x.npy", "--labels"), 1),
    (("sweep", "model.tosa", "--data", "x.npy", "--reference"), 1),
]


@pytest.fixture
def damaged(folder) -> list[str]:
    whole = (folder / "x.npy").read_bytes()
    np.savez(folder / "whole.npz", x=np.zeros((6, 4, 4, 2), np.int8))
    archive = (folder / "whole.npz").read_bytes()
    contents = {
        "text.npy": b"not an array",
        "empty.npy": b"",
        "short.npy": whole[:-1],
        "tokens.npy": whole[:10] + b"(" * 60 + whole[70:],
        "huge.npy": whole.replace(b"(6, 4, 4, 2), }            ", b"(600000000000, 4, 4, 2), } "),
        "short.npz": archive[:-30],
        "text.npz": b"not an archive",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    np.save(folder / "objects.npy", np.array([None]))
    np.save(folder / "labels.npy", np.zeros(6, np.int32))
    (folder / "folder.npy").mkdir()
    return [*contents, "objects.npy", "folder.npy"]


@pytest.mark.parametrize(("arguments", "trouble"), PLACES)
def test_damage_is_blamed_on_its_file(command, damaged, arguments, trouble):
    for name in damaged:
        status, out, err = command(*arguments, name)
        assert (status, out) == (trouble, "")
        assert name in err
        assert "model.tosa" not in err
        assert "defect" not in err
    assert not Path("out.npy").exists()


def test_what_fits_no_input_is_of_the_model(command):
    np.save("wrong.npy", np.zeros((6, 4, 4, 3), np.int8))
    status, _, err = command("run", "model.tosa", "--input", "wrong.npy", "--output", "y.npy")
    assert status == 1
    assert err.startswith("tosajax: error: model.tosa: input 'x': the data has shape")


def test_a_defect_is_one_line(command, monkeypatch):
    def fail(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr(tosajax, "load", fail)
    status, _, err = command("info", "model.tosa")
    assert status == 1
    assert "model.tosa: KeyError: 'lost' (a defect of tosajax: --debug shows where)" in err
    with pytest.raises(KeyError):
        main(["info", "model.tosa", "--debug"])


def test_misuse(capsys):
    for extra in (["--tensors", "("], ["--batch", "many"], ["--input-quant", "0,1"]):
        with pytest.raises(SystemExit) as caught:
            main(["dump", "m.tosa", "--input", "x.npy", "-o", "o.npz", *extra])
        assert caught.value.code == 2
        assert f"argument {extra[0]}" in capsys.readouterr().err


@pytest.fixture
def piped(monkeypatch):
    """Sets what standard input holds."""

    def pipe(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return pipe


def test_standard_input(command, piped):
    content, array = Path("model.tosa").read_bytes(), Path("x.npy").read_bytes()
    for name in ("info", "check"):
        piped(content)
        status, out, _ = command(name, "-")
        assert status == 0
        assert "PRO-INT" in out or "VALID" in out
    piped(content)
    assert command("run", "-", "--input", "x.npy", "--output", "y.npy")[0] == 0
    piped(array)
    assert command("run", "model.tosa", "--input", "-", "--output", "z.npy")[0] == 0
    assert Path("y.npy").read_bytes() == Path("z.npy").read_bytes()


def test_trouble_of_standard_input(command, piped):
    content = Path("model.tosa").read_bytes()
    for given, arguments, words in (
        (b"", ["info", "-"], "the model is to come from standard input, which is empty"),
        (b"hello", ["info", "-"], "error: standard input: the content looks like"),
        (content, ["run", "-", "--input", "-", "--output", "y.npy"], "empty, or read already"),
        (b"x", ["run", "model.tosa", "--input", "-", "--output", "y.npy"], "standard input: "),
    ):
        piped(given)
        status, out, err = command(*arguments)
        assert (status, out) == (1, "")
        assert words in err
