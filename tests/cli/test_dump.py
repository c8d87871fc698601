"""`tosajax dump`."""

from __future__ import annotations

import numpy as np


def test_dump(command):
    status, out, _ = command(
        "dump", "model.tosa", "--input", "x.npy", "-o", "all.npz", "--tensors", "^a", "--batch", "4"
    )
    assert (status, out) == (0, "all.npz: 3 tensors of 6 examples\n")
    with np.load("all.npz") as file:
        assert file.files == ["acc1", "act1", "acc2"]
        assert file["acc1"].shape == (6, 4, 4, 3)


def test_trouble(command, folder):
    before = sorted(p.name for p in folder.iterdir())
    given = ("dump", "model.tosa", "--input")
    for arguments, word in (
        (("x.npy", "-o", "all.npy"), "expected a name that ends in .npz"),
        (("x.npy", "-o", "away/all.npz"), "there is no folder"),
        (("nowhere.npy", "-o", "all.npz"), "No such file"),
        (("x.npy", "-o", "all.npz", "--tensors", "nowhere"), "'nowhere'"),
        (("x.npy", "--input", "x.npy", "-o", "all.npz"), "2 inputs, the graph has 1"),
    ):
        status, out, err = command(*given, *arguments)
        assert (status, out) == (1, "")
        assert word in err
    assert sorted(p.name for p in folder.iterdir()) == before
