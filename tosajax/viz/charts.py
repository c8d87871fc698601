"""Charts as SVG elements of a page, by matplotlib; the same data gives the same bytes.

Each chart is drawn for wide and for narrow windows, and the page shows one of the two drawings.
Colours follow Okabe and Ito, for any colour vision, with a shade for light and one for dark pages;
lines that differ in colour also differ in their marks or dashes. Text and axes take the page's text
colour.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tosajax import html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Colours of lines, then of the background. Each has a contrast of 3 to 1 with the page.
LIGHT = (
    *("#0072b2", "#cb5200", "#00825e", "#ad5588", "#9c6b00", "#2c86ba", "#74777c", "#6b5b00"),
    "#7b818a",
)
DARK = (
    *("#59aee6", "#f28a45", "#33c295", "#e29bc6", "#e6b23c", "#93d3f7", "#adb2ba", "#c9b84a"),
    "#8d939c",
)
COLOURS, GREY = LIGHT[:-1], LIGHT[-1]
FIRST, SECOND = COLOURS[:2]
MARKERS = "osD^vPX*"
Paint = Callable[["Figure", bool], None]  # draws on a figure; True for a narrow one
# Ticks for shares, on a logarithmic scale of 1 - share.
_SHARES = (0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999)
_LABELS, _NARROW_LABELS = 40, 14  # the most labels on an axis of names
_INK = "#010203"  # placeholder for the page's text colour
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
_NARROW_RC = {"axes.titlesize": 10.5, "font.size": 9.5}


def check_installed() -> None:
    """Raises ImportError, with the command to install it, if matplotlib is not installed.

    Example:
      >>> from tosajax import viz
      >>> viz.check_installed()  # doctest: +SKIP
    """
    _matplotlib()


def css(colours: Sequence[str]) -> str:
    """CSS variables of colours."""
    return " ".join(f"--c{at}: {colour};" for at, colour in enumerate(colours))


def chart(
    title: str,
    about: str,
    paint: Paint,
    *,
    wide: tuple[float, float],
    narrow: tuple[float, float],
) -> str:
    """A chart as a <figure> of two <svg>, one of which the page shows.

    Args:
      title: the title of the chart, unique on its page.
      about: a description of the chart, for screen readers.
      paint: draws the chart.
      wide: width and height on wide pages, in inches of 72 points.
      narrow: width and height on narrow pages.

    Raises:
      ImportError: matplotlib is not installed.
    """
    drawn = _drawn(title, "wide", paint, wide) + _drawn(title, "narrow", paint, narrow)
    label = html.text(f"{title}. {about}")
    return f'<figure><div role="img" aria-label="{label}">{drawn}</div></figure>'


def _drawn(title: str, kind: str, paint: Paint, size: tuple[float, float]) -> str:
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure

    drawn = io.StringIO()
    rc = _RC | (_NARROW_RC if kind == "narrow" else {}) | {"svg.hashsalt": f"{kind} {title}"}
    with matplotlib.rc_context(rc), warnings.catch_warnings():
        # The reader's fonts may have glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained")
        paint(figure, kind == "narrow")
        figure.savefig(drawn, format="svg")
    return _inline(drawn.getvalue(), kind)


def name_axis(axes: Axes, names: Sequence[str], narrow: bool) -> None:
    """Labels 0, 1, ... on the x axis with names; only each n-th if there are too many."""
    step = max(1, math.ceil(len(names) / (_NARROW_LABELS if narrow else _LABELS)))
    at = range(0, len(names), step)
    axes.set_xticks(list(at), [names[i] for i in at], rotation=90, fontsize=8 if narrow else 7)
    middle, half = (len(names) - 1) / 2, max(len(names), 6) / 2 + 0.2  # keeps few bars narrow
    axes.set_xlim(middle - half, middle + half)
    axes.grid(axis="x", visible=False)


def spread_axis(axis: Axis, values: Sequence[float]) -> str:
    """Makes the y axis of positive values logarithmic if their range is wide.

    Returns:
      The suffix of the axis label: ", log scale", or "".
    """
    if not values or max(values) <= 100 * min(values):
        return ""
    axis.axes.set_yscale("log")
    axis.set_major_formatter(_tick_text)
    axis.axes.set_ylim(min(values) / 2, 2 * max(values))
    return ", log scale"


def share_axis(axis: Axis, values: Sequence[float]) -> str:
    """Makes the y axis of shares logarithmic in 1 - share, if the range of that is wide.

    Accuracies of 0.97 and 0.98 then differ visibly beside one of 0.1.

    Args:
      axis: the axis to set.
      values: finite values; if one is outside [0, 1], the axis does not change.

    Returns:
      The suffix of the axis label: ", log scale of the rest", or "".
    """
    rests = sorted({1 - v for v in values if 0 <= v < 1})
    if len(rests) < 3 or not all(0 <= v <= 1 for v in values) or rests[-1] < 10 * rests[0]:
        return ""
    low = rests[0] / 3  # replaces 0
    axis.axes.set_yscale(
        "function",
        functions=(lambda y: -_log10(1 - y, low), lambda y: 1 - 10.0**-y),
    )
    shown = [y for y in _SHARES if low <= 1 - y <= 1.5 * rests[-1]]
    if max(values) == 1:
        shown.append(1.0)
    axis.set_ticks(shown, [f"{y:g}" for y in shown])
    axis.axes.set_ylim(max(0.0, 1 - 1.3 * rests[-1]), 1 if max(values) == 1 else 1 - 0.8 * rests[0])
    return ", log scale of the rest"


def _log10(values: Any, low: float) -> Any:
    import numpy as np

    return np.log10(np.maximum(values, low))


def value_axis(axis: Axis, values: Sequence[float]) -> None:
    """Sets an x axis of settings: a tick for each of a few values; logarithmic for wide ranges.

    Args:
      axis: the axis to set.
      values: finite, at least one.
    """
    distinct = sorted(set(values))
    if distinct[0] > 0 and distinct[-1] >= 100 * distinct[0]:
        axis.axes.set_xscale("log")
        axis.set_major_formatter(_tick_text)
    elif len(distinct) <= 10:
        apart = (distinct[-1] - distinct[0]) / 25
        shown = [distinct[0]]
        shown += [v for v in distinct[1:] if v - shown[-1] >= apart]
        axis.set_ticks(shown, [f"{v:g}" for v in shown])


def _tick_text(value: float, position: float) -> str:
    return f"{value:g}"


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ImportError("matplotlib is not installed: pip install 'tosajax[viz]'") from None
    return matplotlib


def _inline(drawing: str, kind: str) -> str:
    """An SVG file as an element of a page, without its metadata and unused ids."""
    drawing = drawing[drawing.index("<svg") :]
    head, rest = drawing.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    rest = re.sub(r"<metadata>.*?</metadata>\s*", "", rest, flags=re.DOTALL)
    referred = set(re.findall(r'(?:url\(|href=")#([^")]*)', rest))

    def kept(match: re.Match[str]) -> str:
        return match[0] if match[2] in referred else f"<{match[1]}"

    # Unreferenced ids are the same in all charts; on a page, ids must be unique.
    rest = re.sub(r'<(\w+) id="([^"]*)"', kept, rest)
    names = {_INK: "currentColor"} | {c: f"var(--c{at})" for at, c in enumerate(LIGHT)}
    rest = re.sub(r": (#[0-9a-f]{6})", lambda m: f": {names.get(m[1], m[1])}", rest)
    return f'<svg class="{kind}" aria-hidden="true" {box[0] if box else ""}>{rest.strip()}'
