"""`tosajax rewrite`."""

from __future__ import annotations

from collections import Counter

import pytest

import tosajax
from tosajax import Builder, DType
from tosajax.cli import main


def operators(path: str) -> Counter[str]:
    graph = tosajax.load(path)
    tosajax.validate(graph).raise_errors()
    return Counter(n.op for n in graph.nodes)


def test_rounding(command):
    status, out, _ = command("rewrite", "model.tosa", "-o", "out.tosa", "--rounding", "double")
    assert (status, out) == (0, "out.tosa: 2 of 21 nodes are new\n")
    assert tosajax.load("out.tosa") == tosajax.load("twice.tosa")


def test_several_at_once(command):
    arguments = ("--bits", "6", "--weight-bits", "4", "--scale", "16", "--where", "second")
    assert command("rewrite", "model.tosa", "-o", "out.tosa", *arguments)[0] == 0
    assert operators("out.tosa")["RESCALE"] == 4
    scales = {
        n.outputs[0]: n.attributes["scale32"]
        for n in tosajax.load("out.tosa").nodes
        if n.op == "RESCALE"
    }
    assert (scales["act1"], scales["out/all_bits"]) == (True, False)


def test_floats(command):
    assert command("rewrite", "model.tosa", "-o", "out.tosa", "--float", "first")[0] == 0
    assert operators("out.tosa")["CAST"] == 2


def test_tables(command):
    b = Builder()
    table = b.const(range(-128, 128), DType.INT8)
    tosajax.save(b.graph([b.op("TABLE", b.input("x", DType.INT8, (1, 4)), table)]), "table.tosa")
    assert command("rewrite", "table.tosa", "-o", "out.tosa", "--table-bits", "3")[0] == 0
    assert operators("out.tosa")["TABLE"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["nothing to rewrite"]),
        (["--bits", "4", "--where", "nowhere"], ["'nowhere'"]),
        (["--table-bits", "4"], ["no TABLE"]),
        (["--float", "nowhere"], ["'nowhere'"]),
        (["--rounding", "single", "-o", "away/out.tosa"], ["no folder"]),
        (["--rounding", "single", "-o", "out.txt"], ["'.txt', expected one of .tosa"]),
    ],
)
def test_trouble(command, folder, arguments, words):
    before = sorted(p.name for p in folder.iterdir())
    status, out, err = command("rewrite", "model.tosa", "-o", "out.tosa", *arguments)
    assert (status, out) == (1, "")
    for word in words:
        assert word in err
    assert sorted(p.name for p in folder.iterdir()) == before


def test_misuse(capsys):
    for extra in (["--scale", "8"], ["--rounding", "up"], ["--bits", "0"]):
        with pytest.raises(SystemExit) as caught:
            main(["rewrite", "m.tosa", "-o", "o.tosa", *extra])
        assert caught.value.code == 2
