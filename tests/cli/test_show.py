"""`tosajax show`."""

from __future__ import annotations

import io
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import tosajax
from tosajax.cli import main
from tosajax.viz import graph_page, graph_svg, graph_text


def test_text(command):
    status, out, err = command("show", "model.tosa")
    assert (status, err) == (0, "")
    assert out == graph_text(tosajax.load("model.tosa")) + "\n"


@pytest.mark.parametrize(("more", "width"), [((), 50), (("--wide",), None)])
def test_text_in_a_terminal_fits_it(command, monkeypatch, more, width):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    out = command("show", "model.tosa", *more)[1]
    assert out == graph_text(tosajax.load("model.tosa"), width) + "\n"


def test_an_output_without_lines_of_boxes(folder, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    assert main(["show", str(folder / "model.tosa")]) == 0
    sys.stdout.flush()
    lines = written.getvalue().decode("ascii").splitlines()
    assert lines[0].startswith("o input")
    assert lines[1].startswith("* CONV2D 3x3")


def test_an_output_without_an_encoding_takes_every_character(folder, monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(sys, "stdout", written)
    assert main(["show", str(folder / "model.tosa")]) == 0
    assert written.getvalue() == graph_text(tosajax.load(folder / "model.tosa")) + "\n"


def test_a_picture(command):
    assert command("show", "model.tosa", "-o", "a.svg")[:2] == (0, "a.svg: 21 nodes\n")
    graph = tosajax.load("model.tosa")
    assert Path("a.svg").read_text() == graph_svg(graph)
    ET.parse("a.svg")
    assert command("show", "model.tosa", "-o", "a.html")[0] == 0
    assert Path("a.html").read_text() == graph_page(graph, "tosajax show model.tosa -o a.html")


@pytest.mark.parametrize(
    ("name", "words"), [("a.png", "ends in .svg or .html"), ("away/a.svg", "no folder")]
)
def test_trouble(command, monkeypatch, name, words):
    monkeypatch.setattr("tosajax.load", lambda *rest, **more: pytest.fail("loaded"))
    status, out, err = command("show", "model.tosa", "-o", name)
    assert (status, out) == (1, "")
    assert words in err
