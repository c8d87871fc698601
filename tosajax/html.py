"""HTML of objects for notebooks and pages, and short texts for reprs."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

ROWS = 500  # the most rows of a table in a notebook
_NAME = 40  # the most characters of a name in a repr
_NAMES = 4  # the most items of a list in a repr
_NUMBER = ' class="number"'
_SHORT = 20  # the most characters of a cell that is not wrapped
_CELL = 80  # the most characters of a cell in a notebook
# The colours of notebooks, by the names that JupyterLab, VS Code and Colab have for them; they may
# differ from the system's, which count elsewhere.
_INKS = ("--jp-content-font-color0", "--vscode-editor-foreground", "--colab-primary-text-color")
_BACKS = ("--jp-layout-color0", "--vscode-editor-background", "--colab-primary-surface-color")


def _first(names: Sequence[str], otherwise: str) -> str:
    """A CSS value: the first of some variables that is defined."""
    return "".join(f"var({name}," for name in names) + otherwise + ")" * len(names)


def theme(selector: str) -> str:
    """CSS that sets the variables --ink and --back of elements: to the colours of a notebook, and
    elsewhere light or dark like the system.
    """
    light, dark = (
        f"{selector}{{--ink:{_first(_INKS, ink)};--back:{_first(_BACKS, back)}}}"
        for ink, back in (("#1b1d21", "#ffffff"), ("#e4e6ea", "#15171a"))
    )
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


_BOX_STYLE = (
    f"{theme('.tosajax')}.tosajax{{color:var(--ink);background:var(--back)}}"
    ".tosajax{font:13px/1.45 system-ui,sans-serif;max-width:100%;padding:4px}"
    ".tosajax>strong{font-size:14px}"
    ".tosajax dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:1px 12px;"
    "margin:4px 0 8px}"
    ".tosajax dt{opacity:.75;font-weight:normal;margin:0}"
    ".tosajax dd{margin:0;overflow-wrap:anywhere}"
    ".tosajax p{opacity:.75;margin:4px 0}"
    ".tosajax div.table{overflow:auto;max-height:26em;border:1px solid rgba(128,128,128,.4)}"
    ".tosajax table{border-collapse:collapse;font-size:12px;margin:0;"
    "font-variant-numeric:tabular-nums}"
    ".tosajax th,.tosajax td{padding:2px 8px;text-align:left;white-space:nowrap;"
    "border-bottom:1px solid rgba(128,128,128,.25)}"
    ".tosajax tbody th{font-weight:normal}"
    ".tosajax small{display:block;opacity:.75;font-size:11px}"
    ".tosajax thead th{position:sticky;top:0;font-weight:600;"
    "background:var(--back)}"
    ".tosajax .number{text-align:right}"
)


class Cell(NamedTuple):
    """A number in a table that is shown as another text.

    Args:
      text: the text shown.
      order: the number to sort by; None and NaN come last.
    """

    text: str
    order: float | None


class Named(NamedTuple):
    """The name of a row, with a note in smaller letters; plain text."""

    text: str
    more: str


# Plain text.


def printable(value: str) -> str:
    """A value as text on one line."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in value)


def shortened(value: str, length: int) -> str:
    """A value as text of at most `length` characters; longer texts lose their middle."""
    value = printable(value)
    if len(value) <= length:
        return value
    tail = (length - 1) * 2 // 3  # names differ at their ends more often than at their starts
    return f"{value[: length - 1 - tail]}…{value[len(value) - tail :]}"


def quoted(name: str) -> str:
    """A quoted name for a repr; long names lose their middle."""
    return repr(shortened(name, _NAME))


def listed(items: Sequence[str], most: int = _NAMES) -> str:
    """The first items of a list, and the number of further items."""
    shown = [shortened(item, 2 * _NAME) for item in items[:most]]
    more = len(items) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more > 0 else ())])


def signature(inputs: Sequence[tuple[str, object]], outputs: Sequence[tuple[str, object]]) -> str:
    """The first inputs and outputs, pairs of a name and a type, for a repr."""
    ends = ([f"{shortened(n, _NAME)}: {kind}" for n, kind in side] for side in (inputs, outputs))
    return " -> ".join(f"({listed(end)})" for end in ends)


def counted(count: int, noun: str) -> str:
    """A number with a noun, whose plural ends with s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# HTML.


def text(value: str) -> str:
    """Plain text as HTML, with U+FFFD for unprintable characters."""
    return html.escape(printable(value))


def wrappable(value: str) -> str:
    """Plain text as HTML that may wrap after punctuation, and otherwise within a word."""
    parts = re.split(r"(?<=[_/.:;,)\]-])(?=[^\W\d])", printable(value))
    return "<wbr>".join(map(html.escape, parts))


def note(value: str) -> str:
    """A paragraph that explains a part of a page."""
    return f'<p class="note">{text(value)}</p>'


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """A definition list of terms, plain text, and the HTML of each."""
    items = "".join(f"<dt>{text(term)}</dt><dd>{facts}</dd>" for term, facts in pairs)
    return f"<dl>{items}</dl>"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    sortable: bool = False,
    named_by: int | None = None,
) -> str:
    """A table in a scrolling box.

    Args:
      head: the column heads, plain text.
      rows: rows of plain text, numbers, `Cell`s, `Named`, None and JSON values.
      sortable: for pages, whether a click on a column's head sorts the rows, and a form filters
        them.
      named_by: the column that names the rows.
    """
    rows = [list(row) for row in rows]
    numeric = _numeric(rows, len(head))
    top = "".join(
        f'<th scope="col"{_NUMBER if at in numeric else ""}>'
        + (f"<button>{text(title)}</button>" if sortable else text(title))
        + "</th>"
        for at, title in enumerate(head)
    )
    body = "\n".join(_row(row, sortable, named_by) for row in rows)
    kind = ' class="sortable"' if sortable else ""
    content = f"<table{kind}><thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table>"
    # Focusable, so that keys can scroll it.
    reach = ' tabindex="0" role="region" aria-label="table"' if sortable else ""
    return f'{_filter(head, numeric) if sortable else ""}<div class="table"{reach}>{content}</div>'


def box(
    title: str,
    facts: Iterable[tuple[str, str]] = (),
    head: Sequence[str] | None = None,
    rows: Sequence[Sequence[object]] = (),
    *,
    noun: str = "row",
    named_by: int | None = None,
) -> str:
    """The HTML of an object in a notebook, light or dark like the notebook.

    Args:
      title: the title, plain text.
      facts: terms, plain text, and the HTML of each.
      head: the column heads of a table, if there is one.
      rows: the rows of the table, of which at most `ROWS` are shown.
      noun: the noun for a row.
      named_by: see `table`.
    """
    pairs = list(facts)
    parts = [f"<style>{_BOX_STYLE}</style>", f"<strong>{text(title)}</strong>"]
    if pairs:
        parts.append(definitions(pairs))
    if head is not None:
        cut = [[_short(value) for value in row] for row in rows[:ROWS]]
        parts.append(table(head, cut, named_by=named_by))
        if len(rows) > ROWS:
            parts.append(note(f"and {counted(len(rows) - ROWS, noun)} more"))
    return f'<div class="tosajax">{"".join(parts)}</div>'


def _short(value: object) -> object:
    if isinstance(value, Named):
        return Named(shortened(value.text, _CELL), shortened(value.more, _CELL))
    return shortened(value, _CELL) if isinstance(value, str) else value


def _row(values: Sequence[object], sortable: bool, named_by: int | None) -> str:
    cells = (_cell(value, sortable, at == named_by) for at, value in enumerate(values))
    return f"<tr>{''.join(cells)}</tr>"


def _cell(value: object, sortable: bool, names: bool) -> str:
    shown, order = _shown(value)
    if names:
        more = value.more if isinstance(value, Named) else ""
        plain = wrappable if sortable else text
        tip = f' title="{text(more)}"' if sortable else ""  # a page may cut it
        below = f" <small{tip}>{plain(more)}</small>" if more else ""
        return f'<th scope="row">{plain(shown)}{below}</th>'
    if order is None:
        # Only long texts may break anywhere; short texts keep their columns wide enough.
        if sortable and len(shown) > _SHORT:
            return f'<td class="text">{wrappable(shown)}</td>'
        return f"<td>{text(shown)}</td>"
    key = f' data-order="{order}"' if sortable else ""
    return f"<td{_NUMBER}{key}>{text(shown)}</td>"


def _shown(value: object) -> tuple[str, str | None]:
    """The text of a cell, and the sort key of a number."""
    match value:
        case None:
            return "", None
        case Named():
            return value.text, None
        case Cell():
            return value.text, "" if value.order is None else _order(value.order)
        case bool():
            return json.dumps(value), None
        case int():
            return f"{value:,}", str(value)
        case float():
            return f"{value:.6g}", _order(value)
        case str():
            return value, None
        case _:
            return json.dumps(value), None


def _order(value: float) -> str:
    """A number as JavaScript reads it; "" for NaN."""
    if math.isnan(value):
        return ""
    return repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _numeric(rows: Sequence[Sequence[object]], columns: int) -> list[int]:
    """The columns that hold numbers."""
    kinds = [[_shown(value)[1] is not None for value in row] for row in rows]
    return [at for at in range(columns) if any(at < len(kind) and kind[at] for kind in kinds)]


def _filter(head: Sequence[str], numeric: Sequence[int]) -> str:
    """A form for the script of a page: words, and a bound of a number."""
    options = "".join(f'<option value="{at}">{text(head[at])}</option>' for at in numeric)
    bound = (
        f'<label>Column <select name="column"><option value="">any</option>{options}</select>'
        '</label><label>is <select name="side"><option value="most">at most</option>'
        '<option value="least">at least</option></select></label>'
        '<label>Value <input type="number" name="bound" step="any"></label>'
    )
    return (
        '<form class="filter" role="search" aria-label="Filter the table" hidden>'
        '<label>Text <input type="search" name="words" autocomplete="off" '
        'placeholder="words of a row"></label>'
        f'{bound if numeric else ""}<button type="reset">Show all</button>'
        '<output aria-live="polite"></output></form>'
    )
