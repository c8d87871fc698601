"""Tables of CONTRIBUTING.md name the places that the last operator, kernel and format are in."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from paths import ROOT

_FOLDERS = ("tosajax", "tests", "tools", "benchmarks", "docs")
_SUFFIXES = {".py", ".md", ".txt"}
_ITSELF = {"CONTRIBUTING.md", "tests/test_contributing.py"}


class Added(NamedTuple):
    """What was added: words for the placeholders of a table, and what files of it have in them."""

    words: dict[str, str]
    pattern: str


ADDED = {
    "To add an operator": Added({"chapter": "products"}, r"(?i:\bmatmul_t(?!_block))(?![a-z0-9])"),
    "To add a kernel of the HiFi library": Added({"family": "basic"}, r"elm_quantize"),
    "To add a file format": Added({"format": "vgf"}, r"\bvgf\b|is_vgf"),
}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The text of each file, by its path."""
    paths = [*ROOT.glob("*.md"), *(p for folder in _FOLDERS for p in (ROOT / folder).rglob("*"))]
    names = {p.relative_to(ROOT).as_posix(): p for p in paths if p.suffix in _SUFFIXES}
    return {name: p.read_text(errors="replace") for name, p in names.items() if name not in _ITSELF}


def _places(title: str) -> list[str]:
    """The files and folders that the table of a section names."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[-1] for line in section.splitlines() if line.startswith("| ")]
    found = [place for cell in cells for place in re.findall(r"`([\w.<>/]+)`", cell)]
    for name, word in ADDED[title].words.items():
        found = [place.replace(f"<{name}>", word) for place in found]
    return found


def _is_in(path: str, place: str) -> bool:
    return path.startswith(place) if place.endswith("/") else path == place


@pytest.mark.parametrize("title", ADDED)
def test_every_file_is_in_a_place_of_the_table(title, texts):
    places = _places(title)
    assert len(places) > 8
    touched = [path for path, text in texts.items() if re.search(ADDED[title].pattern, text)]
    assert len(touched) > 8
    unnamed = [path for path in touched if not any(_is_in(path, place) for place in places)]
    assert unnamed == []


@pytest.mark.parametrize("title", ADDED)
def test_every_place_of_the_table_was_touched(title, texts):
    touched = [path for path, text in texts.items() if re.search(ADDED[title].pattern, text)]
    for place in _places(title):
        assert (ROOT / place).exists(), place
        assert any(_is_in(path, place) for path in touched), place
