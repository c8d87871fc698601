"""Parts that need no matplotlib: tables, shortened names, and the error where it is missing."""

from __future__ import annotations

import dataclasses
import math
import re
import sys

import pytest
import small_networks as small

from tosajax import rewrite
from tosajax.compare import Comparison, compare
from tosajax.html import ROWS, Cell, Named, shortened, table, wrappable
from tosajax.sweep import Results

RESULTS = Results(({"bits": 4, "accuracy": 0.5, "error": None},), ("accuracy",))


@pytest.fixture(scope="module")
def found() -> Comparison:
    a = small.two_layers()
    return compare(a, rewrite.rounding(a, "double"), small.images(6))


def test_notebooks_get_a_table(found):
    row = found.rows[1]
    many = dataclasses.replace(found, rows=tuple([row] * (ROWS + 15)))
    content = many._repr_html_()
    assert content.count("<tr>") == ROWS + 1
    assert "and 15 tensors more" in content
    assert "<svg" not in content
    assert "<script" not in content
    exactly = dataclasses.replace(found, rows=many.rows[:ROWS])
    assert "tensors more" not in exactly._repr_html_()
    assert '<th scope="row">act1 <small>' in content
    assert f"<code>{found.names[0]}</code>" in content.replace("&#x27;", "'")
    assert '<td class="number">4</td>' in RESULTS._repr_html_()
    assert "highest accuracy" in RESULTS._repr_html_()
    assert "error" not in RESULTS._repr_html_()


def test_long_names_lose_their_middle():
    name = "block_1/" + "x" * 80 + "/conv2d_17"
    assert shortened(name, 20) == "block_1…xx/conv2d_17"
    assert shortened("short", 5) == "short"
    for length in range(2, 9):
        assert len(shortened("abcdefgh", length)) == min(8, length)


def test_names_on_pages_break_after_punctuation():
    rows = [[Named("aten_conv2d/default_1", "model.py:23 f(x)"), "x" * 15 + "_default"]]
    content = table(["name", "text"], rows, sortable=True, named_by=0)
    assert '<th scope="row">aten_<wbr>conv2d/<wbr>default_1 <small' in content
    assert 'title="model.py:23 f(x)">model.<wbr>py:23 f(x)</small>' in content
    assert f'<td class="text">{"x" * 15}_<wbr>default</td>' in content
    assert "<wbr>" not in table(["name", "text"], rows, named_by=0)
    assert wrappable("<a>_b, 4,000 1.5 -2") == "&lt;a&gt;_<wbr>b, 4,000 1.5 -2"


def test_sorting_knows_numbers():
    head = ["text", "value"]
    rows = [["1 LSB", Cell("1 LSB", 1.0)], [None, Cell("inf", math.inf)], ["x", math.nan]]
    content = table(head, rows, sortable=True)
    assert re.findall(r'data-order="([^"]*)"', content) == ["1.0", "Infinity", ""]
    assert content.count("<button>") == 2
    assert "<button>" not in table(head, rows)


def test_without_matplotlib(found, tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = r"matplotlib is not installed: pip install 'tosajax\[viz\]'"
    for write in (found.to_html, RESULTS.to_html):
        with pytest.raises(ImportError, match=message):
            write(tmp_path / "x.html")
    assert list(tmp_path.iterdir()) == []
    assert "<table>" in RESULTS._repr_html_()
    assert "<table>" in found._repr_html_()
    found.to_model_explorer(tmp_path / "x.json")
