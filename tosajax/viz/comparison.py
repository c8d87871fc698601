"""Pages of comparisons: which tensors differ, from which layer on, and how their values lie.

A comparison is one of `tosajax.compare`, which calls this; nothing of it is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tosajax.viz import charts, html

_HISTOGRAMS = 6
_NAME = 26  # characters of a tensor's name in a chart
_PLACE = 120  # characters of a location
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_HEAD = (
    "#", "tensor", "operator", "type", "elements", "differ (%)", "max |a − b|", "mean |a − b|",
    "SQNR (dB)", "cosine", "min of a", "max of a", "min of b", "max of b", "a at limits (%)",
    "b at limits (%)",
)  # fmt: skip
_LOCAL_HEAD = ("local: differ (%)", "local: max |a − b|", "local: SQNR (dB)")
_TABLE_NOTE = (
    "Tensors in the order of execution; a click on a head sorts. b is what a is judged by. LSB: "
    "steps of an integer. SQNR: of b to a − b, inf where they are equal. At limits: share of "
    "values at the ends of the type, or of CLAMP."
)
_NOTHING = html.note("No tensor differs: there is nothing to draw.")
_LOCAL_NOTE = "Local: what a layer does by itself, given b's values of the layers before."


def comparison_page(comparison: Any) -> str:
    """A page: what differs first and most, charts by layer, histograms, and all tensors.

    Args:
      comparison: a `tosajax.compare.Comparison`.

    Returns:
      An HTML document that needs no other file.

    Raises:
      ImportError: matplotlib is not installed.
    """
    charts.check_installed()
    rows = comparison.rows
    sections = [("Summary", _summary(comparison))]
    if rows:
        sections.append(("By layer", _layers_chart(rows) if _differs(rows) else _NOTHING))
        worst = sorted(rows, key=_badness)[:_HISTOGRAMS]
        sections.append(("Values of the worst tensors", _histograms_chart(rows, worst)))
        notes = html.note(_TABLE_NOTE) + (html.note(_LOCAL_NOTE) if _with_local(rows) else "")
        sections.append(("All tensors", notes + tensor_table(rows, sortable=True)))
    return html.page("Comparison of two programs", sections)


def tensor_table(rows: Sequence[Any], *, sortable: bool = False) -> str:
    """The rows of a comparison as an HTML table; locations are left out where none is known."""
    located, with_local = any(row.location for row in rows), _with_local(rows)
    head = [*_HEAD, *(_LOCAL_HEAD if with_local else ()), *(("location",) if located else ())]
    cells = []
    for number, row in enumerate(rows, 1):
        name = f"{row.tensor} (output)" if row.is_output else row.tensor
        cells.append([number, name, row.operator, row.dtype, *_numbers(row)])
        if with_local:
            cells[-1] += _local_numbers(row)
        if located:
            cells[-1].append(html.shortened(row.location, _PLACE))
    return html.table(head, cells, sortable=sortable)


# What is said in words and numbers.


def _summary(comparison: Any) -> str:
    rows = comparison.rows
    differ = sum(row.total.mismatches > 0 for row in rows)
    found = f"{differ} of {len(rows)} tensors differ" if differ else f"all {len(rows)} are equal"
    said = [("examples", f"{comparison.examples:,}"), ("tensors", html.text(found))]
    if comparison.first_divergent is not None:
        row = comparison.first_divergent
        what = f"{_percent(row.total.share)} % of its elements, by up to {_error(row, row.total)}"
        said.append(("first that differs", f"{_title(row)}: {html.text(what)}"))
    if comparison.worst is not None:
        row = comparison.worst
        how = " by itself" if row.local else ""
        said.append(
            (f"worst{how}", f"{_title(row)}: SQNR {_decibels((row.local or row.total).sqnr)}")
        )
    for row in comparison.outputs:
        m = row.total
        what = f"{_percent(m.share)} % differ, by up to {_error(row, m)}, SQNR {_decibels(m.sqnr)}"
        said.append(("output", f"{_title(row)}: {what if m.mismatches else 'equal'}"))
    return html.definitions(said)


def _title(row: Any) -> str:
    place = f", {html.text(html.shortened(row.location, _PLACE))}" if row.location else ""
    return f"{html.text(row.operator)} <code>{html.text(row.tensor)}</code>{place}"


def _numbers(row: Any) -> list[Any]:
    m = row.total
    ends = [*(m.range_a or (None, None)), *(m.range_b or (None, None))]
    limits = [
        None if share is None else _percent_cell(share) for share in (m.clipped_a, m.clipped_b)
    ]
    return [
        m.elements, _percent_cell(m.share), _error_cell(row, m.max_error),
        _error_cell(row, m.mean_abs_error), html.Cell(f"{m.sqnr:.1f}", m.sqnr),
        html.Cell(f"{m.cosine:.5f}", m.cosine), *ends, *limits,
    ]  # fmt: skip


def _local_numbers(row: Any) -> list[Any]:
    m = row.local
    if m is None:
        return [None, None, None]
    sqnr = html.Cell(f"{m.sqnr:.1f}", m.sqnr)
    return [_percent_cell(m.share), _error_cell(row, m.max_error), sqnr]


def _percent_cell(share: float) -> html.Cell:
    return html.Cell(_percent(share), share)


def _percent(share: float) -> str:
    """Four digits at most; what is not all, or not none, never looks as if it were."""
    return f"{100 * share:.3g}" if share < 0.999 or share == 1 else f"{100 * share:.6g}"


def _error_cell(row: Any, value: float) -> html.Cell:
    return html.Cell(_with_unit(row, value), float(value))


def _error(row: Any, measured: Any) -> str:
    return _with_unit(row, measured.max_error)


def _with_unit(row: Any, value: float) -> str:
    number = f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
    return f"{number} LSB" if _whole(row) else number


def _whole(row: Any) -> bool:
    """Whether a row's errors are whole steps, not real numbers."""
    return isinstance(row.total.max_error, int)


def _decibels(value: float) -> str:
    return "equal" if value == math.inf else f"{value:.1f} dB"


def _with_local(rows: Sequence[Any]) -> bool:
    return any(row.local is not None for row in rows)


def _differs(rows: Sequence[Any]) -> bool:
    return any(m.mismatches for row in rows for m in (row.total, row.local) if m is not None)


def _badness(row: Any) -> tuple[float, ...]:
    """Less is worse: SQNR, and among equal tensors how many values are at their limits."""
    found = [m.sqnr for m in (row.local or row.total, row.total)]
    clipped = [share for share in (row.total.clipped_a, row.total.clipped_b) if share is not None]
    known = [-math.inf if math.isnan(sqnr) else sqnr for sqnr in found]
    return *known, -max(clipped, default=0.0)


# What is drawn.


def _label(number: int, row: Any) -> str:
    """A tensor in a chart: its number in the table, and its name."""
    return f"{html.shortened(row.tensor, _NAME)} #{number}"


def _layers_chart(rows: Sequence[Any]) -> str:
    """SQNR and mismatches in the order of execution, one above the other."""
    names = [_label(number, row) for number, row in enumerate(rows, 1)]
    totals = [row.total for row in rows]
    locals_ = [row.local for row in rows] if _with_local(rows) else None

    def paint(figure: Any) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True)
        _paint_sqnr(upper, totals, locals_)
        _paint_mismatches(lower, totals, locals_)
        charts.name_axis(lower, names)
        lower.set_xlabel("tensors in the order of execution, with their numbers in the table")

    return charts.chart("SQNR and mismatches by layer", (11.5, 7.2), paint)


def _paint_sqnr(axes: Any, totals: Sequence[Any], locals_: Sequence[Any] | None) -> None:
    series = [("with all layers before", totals, charts.FIRST, "o", "-")]
    if locals_:
        series.append(("the layer by itself (local)", locals_, charts.SECOND, "s", "none"))
    values = [
        [math.nan if m is None else float(m.sqnr) for m in measured]
        for _, measured, *_ in series
    ]  # fmt: skip
    finite = [v for line in values for v in line if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    room = max(5.0, 0.1 * (high - low))
    for (label, _, colour, marker, dashes), line in zip(series, values, strict=True):
        style = {"color": colour, "marker": marker, "markersize": 3.5}
        known = [v if math.isfinite(v) else math.nan for v in line]
        axes.plot(range(len(line)), known, label=label, linestyle=dashes, linewidth=1, **style)
        equal = [high + room if v == math.inf else math.nan for v in line]
        axes.plot(range(len(line)), equal, linestyle="none", fillstyle="none", **style)
        lost = [low - room if v == -math.inf else math.nan for v in line]
        axes.plot(range(len(line)), lost, linestyle="none", **{**style, "marker": "x"})
    axes.set_ylim(low - 1.6 * room, high + 1.6 * room)
    _decibel_ticks(axes, (low, high), room, [v for line in values for v in line])
    axes.set_title("Signal to quantization noise")
    axes.set_ylabel("SQNR (dB)")
    axes.grid(axis="x", visible=False)
    if locals_:
        _legend(axes)


def _decibel_ticks(
    axes: Any, ends: tuple[float, float], room: float, values: Sequence[float]
) -> None:
    """Ticks for numbers, and for what lies beyond them."""
    low, high = ends
    if any(math.isfinite(v) for v in values):
        found = axes.yaxis.get_major_locator().tick_values(low - room / 2, high + room / 2)
        ticks = {float(t): f"{t:g}" for t in found if low - room / 3 <= t <= high + room / 3}
    else:
        ticks = {}
    beyond = {math.inf: (high + room, "equal"), -math.inf: (low - room, "no signal")}
    ticks |= {place: name for v, (place, name) in beyond.items() if v in values}
    axes.set_yticks(list(ticks), list(ticks.values()))


def _paint_mismatches(axes: Any, totals: Sequence[Any], locals_: Sequence[Any] | None) -> None:
    series: list[tuple[str, Sequence[Any], str, str | None]] = [
        ("with all layers before", totals, charts.FIRST, None)
    ]
    if locals_:
        series.append(("the layer by itself (local)", locals_, charts.SECOND, "////"))
    width = 0.8 / len(series)
    seen: list[float] = []
    for at, (label, measured, colour, hatch) in enumerate(series):
        places = [i + (at - (len(series) - 1) / 2) * width for i in range(len(measured))]
        heights = [100 * m.share if m is not None else 0.0 for m in measured]
        seen += [h for h in heights if h > 0]
        style = {"edgecolor": colour, "linewidth": 0.5, "hatch": hatch}
        fill = {"facecolor": "none"} if hatch else {"color": colour}
        axes.bar(places, heights, width, label=label, **fill, **style)
    scale = charts.spread_axis(axes.yaxis, seen)
    if not scale:
        axes.set_ylim(0, 1.1 * max(seen, default=1.0))
    axes.set_title("Elements that differ")
    axes.set_ylabel(f"elements (%){scale}")
    if locals_:
        _legend(axes)


def _legend(axes: Any) -> None:
    """Above the axes, to the right of the title."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.2)


def _histograms_chart(rows: Sequence[Any], worst: Sequence[Any]) -> str:
    """Values of both programs, for a few tensors."""
    numbers = {id(row): number for number, row in enumerate(rows, 1)}
    across = 2 if len(worst) > 1 else 1
    down = math.ceil(len(worst) / across)

    def paint(figure: Any) -> None:
        grid = figure.subplots(down, across, squeeze=False).ravel()
        for axes, row in zip(grid, worst, strict=False):
            _paint_histogram(axes, numbers[id(row)], row)
        for axes in grid[len(worst) :]:
            axes.set_axis_off()

    return charts.chart("Histograms of values", (5.75 * across, 2.7 * down), paint)


def _paint_histogram(axes: Any, number: int, row: Any) -> None:
    m = row.total
    sides = ((m.values_a, "a", m.clipped_a), (m.values_b, "b", m.clipped_b))
    shares = [100 * np.asarray(h.counts, np.float64) / max(1, sum(h.counts)) for h, *_ in sides]
    for share, (histogram, name, clipped) in zip(shares, sides, strict=True):
        label = name if clipped is None else f"{name}: {_percent(clipped)} % at limits"
        style = (
            {"color": charts.FIRST, "fill": True, "alpha": 0.5}
            if name == "a"
            else {"color": charts.SECOND, "linewidth": 1.2}
        )
        axes.stairs(share, _places(histogram), label=label, **style)
    counted = [v for share in shares for v in share if v > 0]
    axes.set_ylabel(f"values (%){charts.spread_axis(axes.yaxis, counted)}")
    if m.values_a.kind == "powers":
        _power_axis(axes, m.values_a.edges, shares)
    else:
        _integer_axis(axes, sides)
    alone = f", by itself {_decibels(row.local.sqnr)}" if row.local else ""
    axes.set_title(f"{_label(number, row)}: {_decibels(m.sqnr)}{alone}", pad=19)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.1, fontsize=7.5,
        handlelength=1.5, columnspacing=1.2,
    )  # fmt: skip


def _places(histogram: Any) -> np.ndarray:
    """Where bins begin and end on the x axis: values, or for powers of two their numbers."""
    if histogram.kind == "powers":
        return np.arange(len(histogram.counts) + 1, dtype=np.float64)
    return histogram.edges


def _integer_axis(axes: Any, sides: Sequence[tuple[Any, str, float | None]]) -> None:
    """The whole range of the type, so that what is not used shows, too."""
    kinds = dict.fromkeys(histogram.kind for histogram, *_ in sides)
    low = min(histogram.edges[0] for histogram, *_ in sides)
    high = max(histogram.edges[-1] for histogram, *_ in sides) - 1
    for at, label in ((low, "limits of the type"), (high, None)):
        axes.axvline(at, color=charts.GREY, linestyle=":", linewidth=1.2, label=label)
    room = (high - low) / 40
    axes.set_xlim(low - room, high + room)
    axes.set_xlabel(f"value ({', '.join(kinds)})")


def _power_axis(axes: Any, edges: np.ndarray, shares: Sequence[np.ndarray]) -> None:
    """Powers of two of either sign, from the first bin that holds values to the last."""
    used = np.flatnonzero(np.sum(shares, axis=0))
    first, last = (int(used[0]), int(used[-1])) if used.size else (0, len(edges) - 2)
    step = max(1, math.ceil((last - first + 1) / 10))
    bins = range(first, last + 1, step)
    axes.set_xticks([b + 0.5 for b in bins], [_power(edges[b], edges[b + 1]) for b in bins])
    axes.set_xlim(first - 0.5, last + 1.5)
    axes.set_xlabel("value (nearest power of two)")


def _power(low: float, high: float) -> str:
    """The power of two in the middle of a bin, or 0."""
    if low < 0 < high:
        return "0"
    inner = low if low > 0 else high
    exponent = str(round(math.log2(abs(inner)) + 0.5)).translate(_SUPERSCRIPTS)
    return f"{'' if low > 0 else '−'}2{exponent}"
