"""Charts as SVG for the inside of a page, by matplotlib; the same data gives the same bytes.

Colours are Okabe and Ito's, which people of any colour vision tell apart; lines that differ in
colour differ in their marks or dashes, too. Text and axes take the page's own colour.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tosajax.viz import html

FIRST, SECOND = "#0072B2", "#D55E00"
# Of more lines than two; the eighth, black, would not be seen on a dark page.
COLOURS = (FIRST, SECOND, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#A0A0A0", "#8F7A00")
MARKERS = "osD^vPX*"
GREY = "#808080"
_LABELS = 40  # on an axis of names
_INK = "#010203"  # stands for the page's colour of text
_RC = {
    "axes.edgecolor": _INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "grid.alpha": 0.3,
    "grid.color": GREY,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def check_installed() -> None:
    """Raises ImportError, saying what to do, where there is no matplotlib."""
    _matplotlib()


def chart(title: str, size: tuple[float, float], paint: Callable[[Any], None]) -> str:
    """A chart as an <svg> element.

    Args:
      title: what it shows, for those who cannot see it; no two charts of a page have the same.
      size: width and height in inches of 72 points.
      paint: draws on a matplotlib Figure.

    Raises:
      ImportError: matplotlib is not installed.
    """
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure

    drawn = io.StringIO()
    with matplotlib.rc_context(_RC | {"svg.hashsalt": title}), warnings.catch_warnings():
        # The reader's fonts may have what matplotlib's own has not.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        figure.savefig(drawn, format="svg")
    return _inline(drawn.getvalue(), title)


def name_axis(axes: Any, names: Sequence[str]) -> None:
    """Labels 0, 1, ... of the x axis: each name, or each n-th where there are too many."""
    step = max(1, math.ceil(len(names) / _LABELS))
    at = range(0, len(names), step)
    axes.set_xticks(list(at), [names[i] for i in at], rotation=90, fontsize=7)
    middle, half = (len(names) - 1) / 2, max(len(names), 6) / 2 + 0.2  # bars of a few stay narrow
    axes.set_xlim(middle - half, middle + half)
    axes.grid(axis="x", visible=False)


def spread_axis(axis: Any, values: Sequence[float]) -> str:
    """Makes the y axis of positive values logarithmic where they spread wide.

    Returns:
      What its label says of that.
    """
    if not values or max(values) <= 100 * min(values):
        return ""
    axis.axes.set_yscale("log")
    axis.set_major_formatter(_plain)
    axis.axes.set_ylim(min(values) / 2, 2 * max(values))
    return ", log scale"


def value_axis(axis: Any, values: Sequence[float]) -> None:
    """An x axis of settings: a tick for each of a few values, logarithmic where they spread wide.

    Args:
      axis: of matplotlib.
      values: finite, at least one.
    """
    known = sorted(set(values))
    if known[0] > 0 and known[-1] >= 100 * known[0]:
        axis.axes.set_xscale("log")
        axis.set_major_formatter(_plain)
    elif len(known) <= 10:
        apart = (known[-1] - known[0]) / 25
        shown = [known[0]]
        shown += [v for v in known[1:] if v - shown[-1] >= apart]
        axis.set_ticks(shown, [f"{v:g}" for v in shown])


def _plain(value: float, position: int) -> str:
    return f"{value:g}"


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ImportError("matplotlib is not installed: pip install 'tosajax[viz]'") from None
    return matplotlib


def _inline(drawing: str, title: str) -> str:
    """An SVG file as an element of a page, without what names files or other parts of the page."""
    drawing = drawing[drawing.index("<svg") :]
    head, rest = drawing.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    rest = re.sub(r"<metadata>.*?</metadata>\s*", "", rest, flags=re.DOTALL)
    referred = set(re.findall(r'(?:url\(|href=")#([^")]*)', rest))

    def kept(found: re.Match[str]) -> str:
        return found[0] if found[2] in referred else f"<{found[1]}"

    # All charts have the ids that nothing refers to; on a page they have to differ.
    rest = re.sub(r'<(\w+) id="([^"]*)"', kept, rest)
    rest = rest.replace(f": {_INK}", ": currentColor")
    label = html.text(title)
    return f'<svg role="img" aria-label="{label}" {box[0] if box else ""}>{rest.strip()}'
