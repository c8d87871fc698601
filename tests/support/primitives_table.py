"""The table of docs/exporting.md: each primitive of JAX that can be exported, by chapter.

    python tests/support/primitives_table.py  # writes it

`tests/from_jax/test_primitives.py` compares the page with it.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from paths import ROOT

from tosajax.from_jax.rules import CHAPTERS, Rule

PAGE = ROOT / "docs" / "exporting.md"
_PLACE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end of table -->)", re.DOTALL)


def table() -> str:
    """A row for each rule: the primitives that have it, and the first line of its docstring."""
    rows = ["", "| chapter | primitives | become |", "|---|---|---|"]
    for chapter in CHAPTERS:
        name = chapter.__name__.rpartition(".")[2]
        rules: dict[Rule, list[str]] = {}
        for primitive, rule in chapter.RULES.items():
            whole = rule.func if isinstance(rule, functools.partial) else rule
            rules.setdefault(whole, []).append(f"`{primitive}`")
        for rule, primitives in rules.items():
            rows.append(f"| {name} | {', '.join(primitives)} | {_told(rule)} |")
    return "\n".join([*rows, "", ""])


def _told(rule: Rule) -> str:
    text = (inspect.getdoc(rule) or "").partition("\n")[0]
    return text.replace("|", "\\|")


def page_with(text: str) -> str:
    """The page with another table."""
    return _PLACE.sub(lambda _: text, PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page_with(table()))
