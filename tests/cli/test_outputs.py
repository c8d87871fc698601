"""Files that commands write with -o: their suffix decides, before any work is done."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType


def test_csv_has_a_row_of_numbers_for_each_example(command):
    arguments = ("run", "model.tosa", "--input", "x.npy", "-o")
    assert command(*arguments, "y.npy")[0] == 0
    status, out, err = command(*arguments, "y.csv")
    assert (status, err) == (0, "")
    assert out.endswith("y.csv: int8 (6, 4, 4, 2)\n")
    wanted = np.load("y.npy")
    np.testing.assert_array_equal(
        np.loadtxt("y.csv", np.int8, delimiter=","), wanted.reshape(6, -1)
    )


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (DType.FP32, np.array([[0.1, -np.inf], [np.nan, 3e-45]], np.float32)),
        (DType.BF16, np.array([[3.140625, -0.0], [65536, np.nan]], ml_dtypes.bfloat16)),
        (DType.BOOL, np.array([[True, False], [False, False]])),
        (DType.INT32, np.array([[-(2**31), 2**31 - 1], [0, 1]], np.int32)),
    ],
)
def test_csv_of_each_kind_of_number_is_exact(command, dtype, values):
    b = Builder()
    x = b.input("x", dtype, (1, 2))
    tosajax.save(b.graph([b.op("IDENTITY", x)]), "same.tosa")
    np.save("v.npy", values)
    assert command("run", "same.tosa", "--input", "v.npy", "-o", "y.csv")[0] == 0
    found = np.loadtxt("y.csv", np.float64, delimiter=",").astype(values.dtype)
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("arguments", "name", "words"),
    [
        (("run", "model.tosa", "--input", "x.npy"), "y.npz", "ends in .npy or .csv"),
        (("run", "model.tosa", "--input", "x.npy"), "y", "ends in .npy or .csv"),
        (("dump", "model.tosa", "--input", "x.npy"), "y.csv", "ends in .npz"),
        (("rewrite", "model.tosa", "--bits", "4"), "y.csv", "expected one of .tosa"),
        (("export", "nowhere:f"), "y.npy", "expected one of .tosa"),
        (("export", "nowhere:f"), "away/y.tosa", "no folder"),
    ],
)
def test_another_suffix_is_refused_before_any_work(
    command, folder, monkeypatch, arguments, name, words
):
    monkeypatch.setattr("tosajax.io.load", lambda *rest, **more: pytest.fail("loaded"))
    before = sorted(folder.iterdir())
    status, out, err = command(*arguments, "-o", name)
    assert (status, out) == (1, "")
    assert name in err
    assert words in err
    assert sorted(folder.iterdir()) == before


def test_convert_refuses_a_suffix_before_any_work(command, monkeypatch):
    monkeypatch.setattr("tosajax.io.load", lambda *rest, **more: pytest.fail("loaded"))
    assert "expected one of .tosa" in command("convert", "model.tosa", "other.npy")[2]


def test_a_device_takes_any_name(command):
    assert command("run", "model.tosa", "--input", "x.npy", "-o", "/dev/null")[0] == 0
