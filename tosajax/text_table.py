"""Tables of text that fit a terminal: columns are shortened first, and then left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tosajax import html

_GAP = "  "


class Column(NamedTuple):
    """A column of text.

    Args:
      head: its title.
      least: the fewest characters that it may be shortened to, in the middle; None for all of them.
      drop: columns are left out where there is no room, the highest first; 0 stays.
      right: whether to align right, as numbers.
    """

    head: str
    least: int | None = None
    drop: int = 0
    right: bool = False


def text_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None
) -> list[str]:
    """The lines of a table, and of the columns that have been left out.

    Args:
      columns: from left to right.
      rows: a text for each column.
      width: the most characters of a line; None for any. Columns that have to stay may take more.
    """
    shown = list(range(len(columns)))
    whole = [max(len(line[at]) for line in (_heads(columns), *rows)) for at in shown]
    widths = _fitting(columns, whole, shown, width)
    while width is not None and _total(widths, shown) > width:
        last = max(shown, key=lambda at: columns[at].drop)
        if not columns[last].drop:
            break
        shown.remove(last)
        widths = _fitting(columns, whole, shown, width)
    lines = []
    for row in (_heads(columns), *rows):
        cells = (html.shortened(row[at], widths[at]) for at in shown)
        pairs = zip(cells, shown, strict=True)
        line = _GAP.join(
            c.rjust(widths[at]) if columns[at].right else c.ljust(widths[at]) for c, at in pairs
        )
        lines.append(line.rstrip())
    if gone := [column.head for at, column in enumerate(columns) if at not in shown]:
        lines.append(f"(without {', '.join(gone)})")
    return lines


def _heads(columns: Sequence[Column]) -> list[str]:
    return [column.head for column in columns]


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1)


def _fitting(
    columns: Sequence[Column], whole: Sequence[int], shown: Sequence[int], width: int | None
) -> list[int]:
    """The width of each column, with those that may be shortened as wide as there is room."""
    widths = list(whole)
    if width is None:
        return widths
    for at in sorted(shown, key=lambda at: -columns[at].drop):
        over = _total(widths, shown) - width
        least = columns[at].least
        if over > 0 and least is not None:
            widths[at] = max(min(least, whole[at]), len(columns[at].head), widths[at] - over)
    return widths
