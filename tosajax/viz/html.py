"""Pages in one file: nothing is loaded from elsewhere, and the only script sorts tables."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --ink: #1b1b1b; --faint: #5f5f5f;
  --line: #d0d0d0; --head: #f1f1f1; }
@media (prefers-color-scheme: dark) {
  :root { --back: #161616; --ink: #e6e6e6; --faint: #a0a0a0; --line: #3c3c3c; --head: #262626; }
}
body { background: var(--back); color: var(--ink); margin: 1.5rem auto; max-width: 76rem;
  padding: 0 1rem; font: 0.95rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
p.note, span.tag { color: var(--faint); }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0.25rem 1rem; }
dt { color: var(--faint); } dd { margin: 0; }
div.table { overflow: auto; max-height: 85vh; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
th { position: sticky; top: 0; background: var(--head); }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid; }
th[aria-sort=ascending] button::after { content: " \\25b2"; }
th[aria-sort=descending] button::after { content: " \\25bc"; }
.number { text-align: right; }
svg { width: 100%; height: auto; }
"""
# Cells without a value stay at the end, whichever way the others go.
_SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending", sign = up ? 1 : -1;
    heads.forEach(h => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => row.cells[column].dataset.order ?? row.cells[column].textContent;
    const compare = (x, y) => {
      if (x === "" || y === "") return (x === "") - (y === "");
      const a = Number(x), b = Number(y);
      if (Number.isNaN(a) || Number.isNaN(b)) return sign * x.localeCompare(y);
      return a === b ? 0 : a < b ? -sign : sign;
    };
    body.append(...[...body.rows].sort((p, q) => compare(key(p), key(q))));
  }));
}
"""


class Cell(NamedTuple):
    """A number in a table, written in its own way.

    Args:
      text: what is shown.
      order: what it sorts by; None, like NaN, comes last.
    """

    text: str
    order: float | None


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """An HTML document, light or dark as the reader's system is.

    Args:
      title: plain text.
      sections: the heading of each, plain text, and its HTML.
    """
    body = "\n".join(f"<h2>{text(head)}</h2>\n{content}" for head, content in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{text(title)}</h1>
{body}
<script>{_SCRIPT}</script>
</body>
</html>
"""


def text(value: str) -> str:
    """Plain text as HTML, in which a character that cannot be printed is U+FFFD."""
    return html.escape(printable(value))


def printable(value: str) -> str:
    """Text on one line."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in value)


def shortened(value: str, length: int) -> str:
    """Text of at most so many characters: what is too long loses its middle."""
    value = printable(value)
    if len(value) <= length:
        return value
    tail = (length - 1) * 2 // 3  # names differ at their ends more often than at their starts
    return f"{value[: length - 1 - tail]}…{value[len(value) - tail :]}"


def note(value: str) -> str:
    """A paragraph that explains what stands before or after it."""
    return f'<p class="note">{text(value)}</p>'


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Terms, plain text, and what is said of each, HTML."""
    items = "".join(f"<dt>{text(term)}</dt><dd>{said}</dd>" for term, said in pairs)
    return f"<dl>{items}</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, sortable: bool = False) -> str:
    """A table.

    Args:
      head: plain text.
      rows: of text, numbers, `Cell`s, None and what JSON holds; text and cells are plain text.
      sortable: whether a click on a column's head sorts the rows, on a page.
    """
    titles = [f"<button>{text(h)}</button>" if sortable else text(h) for h in head]
    top = "".join(f'<th scope="col">{title}</th>' for title in titles)
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    kind = ' class="sortable"' if sortable else ""
    content = f"<table{kind}><thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="table">{content}</div>'


def _cell(value: Any) -> str:
    match value:
        case None:
            return "<td></td>"
        case Cell():
            order = "" if value.order is None else _order(value.order)
            return f'<td class="number" data-order="{order}">{text(value.text)}</td>'
        case bool():
            return f"<td>{json.dumps(value)}</td>"
        case int():
            return f'<td class="number" data-order="{value}">{value:,}</td>'
        case float():
            return f'<td class="number" data-order="{_order(value)}">{value:.6g}</td>'
        case str():
            return f"<td>{text(value)}</td>"
        case _:
            return f"<td>{text(json.dumps(value))}</td>"


def _order(value: float) -> str:
    """A number as JavaScript reads it; nothing for NaN."""
    if math.isnan(value):
        return ""
    return repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
