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
    assert (status, out) == (0, "out.tosa: 21 nodes, 2 RESCALE changed\n")
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


def test_weights_are_constants_with_other_values(command):
    arguments = ("rewrite", "model.tosa", "-o", "out.tosa", "--weight-bits", "4")
    both = "out.tosa: 21 nodes, other values of acc1/weight, acc2/weight\n"
    assert command(*arguments)[:2] == (0, both)
    one = "out.tosa: 21 nodes, other values of acc2/weight\n"
    assert command(*arguments, "--where", "second")[:2] == (0, one)


def test_new_and_changed_nodes_are_counted_by_operator(command):
    arguments = ("rewrite", "model.tosa", "-o", "out.tosa", "--bits", "6", "--where", "second")
    out = "out.tosa: 32 nodes, 1 CLAMP new, 2 RESCALE new, 1 RESCALE changed\n"
    assert command(*arguments)[:2] == (0, out)


def test_nodes_that_are_gone_are_counted(command):
    status, out, _ = command("rewrite", "model.tosa", "-o", "out.tosa", "--float", "first")
    assert status == 0
    assert ", 2 CAST new, " in out
    assert out.endswith(", 1 CLAMP gone, 1 CONV2D gone, 1 RESCALE gone\n")


@pytest.mark.filterwarnings("default:the graph was like this")
@pytest.mark.parametrize("option", [("--rounding", "single"), ("--weight-bits", "8")])
def test_a_rewrite_that_changes_nothing_is_said(folder, monkeypatch, capsys, option):
    monkeypatch.chdir(folder)
    assert main(["rewrite", "model.tosa", "-o", "out.tosa", *option]) == 0
    captured = capsys.readouterr()
    assert captured.out == "out.tosa: 21 nodes\n"
    wanted = "tosajax: warning: the graph was like this before: nothing has changed\n"
    assert captured.err == wanted
    assert tosajax.load("out.tosa") == tosajax.load("model.tosa")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--weight-bits", "4", "--where", "nowhere"], ["no constant weight", "'nowhere'"]),
        (["--float", "first", "--where", "second"], ["--where is for the other options"]),
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
