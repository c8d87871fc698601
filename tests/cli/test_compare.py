"""`tosajax compare` and `tosajax rounding`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from paths import CORPUS

import tosajax
from tosajax import Builder, DType
from tosajax.cli import main

RESNET = CORPUS / "resnet8_int8"


def test_equal(command):
    status, out, _ = command("compare", "model.tosa", "--against", "ref", "--input", "x.npy")
    assert (status, out) == (0, "5 of 5 tensors are equal, on 6 examples\n")


def test_different(command):
    status, out, _ = command(
        "compare", "model.tosa", "--against", "twice.tosa", "--input", "x.npy", "--local",
        "--batch", "4", "--csv", "rows.csv", "--json", "rows.json",
    )  # fmt: skip
    assert status == 1
    assert "first divergent: RESCALE 'act1' (first;conv)" in out
    assert "worst by itself: RESCALE" in out
    with open("rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["tensor"] for row in rows] == ["acc1", "act1", "relu1", "acc2", "out"]
    assert {row["tensor"] for row in rows if int(row["local_mismatches"])} <= {"act1", "out"}
    assert json.loads(Path("rows.json").read_text())["examples"] == 6


@pytest.mark.parametrize(
    "line",
    [
        ("compare", "model.tosa", "--against", "twice.tosa", "--input", "x.npy", "--local"),
        ("explain", "model.tosa"),
    ],
)
def test_tables_fit_a_terminal_and_are_whole_elsewhere(command, monkeypatch, line):
    monkeypatch.setenv("COLUMNS", "64")
    piped = command(*line)[1]
    assert "\n(without " not in piped
    assert max(map(len, piped.splitlines())) > 64
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert command(*line, "--wide")[1] == piped
    table, left_out, _ = command(*line)[1].partition("\n(without ")
    assert left_out
    assert len(table.splitlines()) > 2
    assert all(len(text) <= 64 for text in table.splitlines())


def test_stored_outputs_and_tensors(command):
    assert command("run", "model.tosa", "--input", "x.npy", "--output", "y.npy")[0] == 0
    assert command("dump", "model.tosa", "--input", "x.npy", "-o", "all.npz")[0] == 0
    given = ("compare", "model.tosa", "--input", "x.npy", "--against")
    assert command(*given, "y.npy")[:2] == (0, "1 of 1 tensors are equal, on 6 examples\n")
    assert command(*given, "all.npz")[:2] == (0, "5 of 5 tensors are equal, on 6 examples\n")
    some = command(*given, "all.npz", "--tensors", "^a")
    assert some[:2] == (0, "3 of 3 tensors are equal, on 6 examples\n")
    outputs = command(
        "compare", "twice.tosa", "--input", "x.npy", "--against", "all.npz", "--outputs"
    )
    assert outputs[0] == 1
    assert "act1" not in outputs[1]


def test_random_examples(command):
    given = ("compare", "model.tosa", "--against", "twice.tosa", "--random", "9")
    status, out, _ = command(*given, "--seed", "4")
    assert (status, out.splitlines()[-1][-13:]) == (1, "on 9 examples")
    assert command(*given, "--seed", "5")[1] != out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against", "nowhere.tosa"], ["nowhere.tosa", "No such file"]),
        (["--against", "x.bin"], ["'x.bin' to compare with", "expected ref"]),
        (["--against", "ref", "--against", "model.tosa"], ["ref and model.tosa"]),
        (["--against", "tflite:a.tflite,fast"], ["'fast'", "reference, builtin, default"]),
        (["--against", "twice.tosa", "--csv", "away/rows.csv"], ["no folder", "away"]),
        (["--against", "twice.tosa", "--tensors", "nowhere"], ["'nowhere'"]),
    ],
)
def test_trouble_is_status_2(command, arguments, words):
    status, out, err = command("compare", "model.tosa", "--input", "x.npy", *arguments)
    assert (status, out) == (2, "")
    for word in words:
        assert word in err


def test_an_illegal_graph_is_trouble_too(command):
    b = Builder()
    tosajax.save(b.graph([b.op("REVERSE", b.input("x", DType.INT8, (1,)), axis=3)]), "bad.tosa")
    status, _, err = command("compare", "bad.tosa", "--against", "ref")
    assert status == 2
    assert "reverse.e1" in err


def test_nothing_is_written_of_trouble(command, folder):
    before = sorted(p.name for p in folder.iterdir())
    np.save("wrong.npy", np.zeros((6, 4, 4, 2), np.float32))
    command(
        "compare", "model.tosa", "--against", "ref", "--input", "wrong.npy", "--csv", "rows.csv"
    )
    assert sorted(p.name for p in folder.iterdir()) == sorted([*before, "wrong.npy"])


def test_misuse(capsys):
    for arguments in (
        ["compare", "m.tosa"],
        ["compare", "m.tosa", "--against", "ref", "--random", "0"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


def test_rounding(command):
    command("run", "twice.tosa", "--input", "x.npy", "--output", "y.npy")
    status, out, _ = command(
        "rounding", "model.tosa", "--input", "x.npy", "--against", "twice=y.npy",
        "--against", "model.tosa", "--against", "arm=ref",
    )  # fmt: skip
    assert status == 0
    assert out.splitlines()[0].split() == ["rounding", "twice", "model.tosa", "arm"]
    assert out.splitlines()[4:] == [
        "twice rounds twice in RESCALE",
        "model.tosa rounds once in RESCALE, as the graph does",
        "arm rounds once in RESCALE, as the graph does",
    ]


@pytest.mark.slow
@pytest.mark.skipif(not RESNET.is_dir(), reason="the corpus is not here")
def test_rounding_of_litert(capsys):
    pytest.importorskip("ai_edge_litert")
    against = [
        f"{k}=tflite:{RESNET}/source.tflite,{k}" for k in ("reference", "builtin", "default")
    ]
    arguments = [x for text in against for x in ("--against", text)]
    status = main(
        ["rounding", f"{RESNET}/model.tosa", "--input", f"{RESNET}/inputs_0.npy", *arguments]
    )
    assert status == 0
    reference, builtin, default = capsys.readouterr().out.splitlines()[4:]
    assert reference == "reference rounds twice in RESCALE, as the graph does"
    assert builtin.startswith("builtin equals none of these")
    assert default == "default rounds once in RESCALE"
