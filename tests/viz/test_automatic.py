"""The page of `quant.auto`, with all that a result may hold."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import pytest

from tosajax import quant, viz

pytest.importorskip("matplotlib")
DEFAULTS = quant.Remedy("defaults", 2.0, 20.0, 18.0, None, is_kept=True)


def auto(*remedies: quant.Remedy, **fields: Any) -> quant.Auto:
    nothing = cast(Any, None)  # the page reads neither the model nor its graph
    outputs = fields.pop("outputs", {"y": (18.0, 21.5)})
    return quant.Auto(nothing, nothing, nothing, (DEFAULTS, *remedies), outputs, **fields)


def test_all_parts():
    remedies = (
        quant.Remedy("mse", 1.0, 23.0, 21.5, 0.875, is_kept=True),
        quant.Remedy("gptq", 3.0, -math.inf, -math.inf, None, is_kept=False, note="no <place>"),
    )
    page = viz.auto_page(
        auto(*remedies, lifted=("conv<1>",), wide_macs=0.05, left={"conv2": 22.0}), "tosajax x"
    )
    for text in ("SQNR after each remedy", "18.00 to 21.50 dB", "In INT16", "What is left"):
        assert text in page
    assert "conv&lt;1&gt;" in page.replace("<wbr>", "")
    assert "no &lt;place&gt;" in page
    assert "inf" not in page.partition("<table")[2].partition("</table>")[0]
    assert "2 of 3 were kept" in page
    assert "tosajax x" in page


def test_parts_that_are_empty_are_left_out():
    page = viz.auto_page(auto())
    assert "In INT16" not in page
    assert "What is left" not in page


def test_integers_without_noise():
    """Nothing can be drawn; the table says inf."""
    exact = quant.Remedy("mse", 1.0, math.inf, math.inf, None, is_kept=True)
    result = dataclasses.replace(auto(outputs={"y": (math.inf, math.inf)}), remedies=(exact,))
    assert ">inf<" in viz.auto_page(result)


def test_files(tmp_path):
    auto().to_html(tmp_path / "page.html", command="a command")
    assert "a command" in (tmp_path / "page.html").read_text()
    failed = quant.Remedy("gptq", 3.0, -math.inf, -math.inf, None, is_kept=False)
    auto(failed).to_json(tmp_path / "auto.json")
    assert '"held_back": "-inf"' in (tmp_path / "auto.json").read_text()
