"""Heat maps: a metric of a sweep over two axes of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tosajax import html
from tosajax.viz import charts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

_MAPS = 6  # the most maps on a page
_VALUES = 24  # the most values of an axis
_WRITTEN = 12  # the most values of an axis for which cells show their numbers


def maps(
    axes: Sequence[str],
    rows: Sequence[Sequence[Row]],
    metric: str,
    best: Callable[[list[float]], float],
) -> str:
    """A heat map for each pair of axes of which most combinations were tried.

    Args:
      axes: columns of numbers.
      rows: for each pair of axes, in the order of `itertools.combinations`, the rows that have
        both axes and the metric.
      metric: a column of numbers.
      best: `min` or `max`, which chooses among the values of a cell.

    Returns:
      HTML; "" if no pair has a map.
    """
    pairs = zip(itertools.combinations(axes, 2), rows, strict=True)
    drawn = [
        (pair, cells) for pair, measured in pairs if (cells := _cells(pair, measured, metric, best))
    ]
    shown = [_map(pair, cells, metric) for pair, cells in drawn[:_MAPS]]
    if not shown:
        return ""
    note = "Each cell is the best of all settings there."
    if len(drawn) > len(shown):
        note += f" {html.counted(len(drawn) - len(shown), 'more pair')} of axes not drawn."
    return html.note(note) + "\n".join(shown)


def _cells(
    pair: tuple[str, str], rows: Sequence[Row], metric: str, best: Callable[[list[float]], float]
) -> dict[tuple[float, float], float]:
    """The metric by the values of both axes; empty if most combinations lack a value."""
    values_at: dict[tuple[float, float], list[float]] = {}
    for row in rows:
        values_at.setdefault((row[pair[0]], row[pair[1]]), []).append(row[metric])
    sides = [len({place[side] for place in values_at}) for side in (0, 1)]
    if min(sides) < 2 or max(sides) > _VALUES or 2 * len(values_at) < math.prod(sides):
        return {}
    return {place: best(values) for place, values in values_at.items()}


def _map(pair: tuple[str, str], cells: Mapping[tuple[float, float], float], metric: str) -> str:
    xs, ys = (sorted({place[side] for place in cells}) for side in (0, 1))

    def paint(figure: Figure, narrow: bool) -> None:
        import matplotlib

        axes = figure.subplots()
        grid = [[cells.get((x, y), math.nan) for x in xs] for y in ys]
        # With more than 50 colours the colour bar would be a bitmap.
        colours = matplotlib.colormaps["cividis"].resampled(32)
        mesh = axes.pcolormesh(grid, cmap=colours, edgecolors=charts.GREY, linewidth=0.4)
        for side, values in ((axes.xaxis, xs), (axes.yaxis, ys)):
            names = [f"{v:g}" for v in values]
            side.set_ticks([at + 0.5 for at in range(len(values))], names)
        if len(xs) > (8 if narrow else 16):
            axes.tick_params(axis="x", rotation=90)
        axes.grid(visible=False)
        if max(len(xs), len(ys)) <= (_WRITTEN // 2 if narrow else _WRITTEN):
            for place, value in _cell_middles(xs, ys, cells):
                shade = mesh.norm(value)  # pyright: ignore[reportArgumentType]  # a float is one
                red, green, blue, _ = mesh.cmap(shade)
                dark = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.18
                ink = "white" if dark else "black"
                axes.text(*place, f"{value:.3g}", ha="center", va="center", color=ink)
        axes.set_xlabel(pair[0])
        axes.set_ylabel(pair[1])
        axes.set_title(f"{metric} by {pair[0]} and {pair[1]}")
        bar = figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.02)
        bar.outline.set_visible(False)

    (low_at, low), (high_at, high) = (
        of(cells.items(), key=lambda item: item[1]) for of in (min, max)
    )
    about = (
        f"From {low:.4g} at {pair[0]} {low_at[0]:g} and {pair[1]} {low_at[1]:g} to {high:.4g} at "
        f"{pair[0]} {high_at[0]:g} and {pair[1]} {high_at[1]:g}"
    )
    height = min(6.0, 1.4 + 0.36 * len(ys))
    title = f"{metric} by {pair[0]} and {pair[1]}"
    return charts.chart(title, about, paint, wide=(9.5, height), narrow=(5.0, height))


def _cell_middles(
    xs: Sequence[float], ys: Sequence[float], cells: Mapping[tuple[float, float], float]
) -> Iterator[tuple[tuple[float, float], float]]:
    """The middle of each cell, and its value."""
    for (x, y), value in cells.items():
        yield (xs.index(x) + 0.5, ys.index(y) + 0.5), value
