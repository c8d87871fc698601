"""Pages of comparisons: which tensors differ, from which layer on, and histograms of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tosajax import html
from tosajax.viz import charts
from tosajax.viz.pages import page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tosajax.compare import Comparison, Histogram, Measured, Row

_HISTOGRAMS = 6
_NAME, _NARROW_NAME = 26, 18  # characters of a tensor's name in a chart
_BARS = 80  # the most bars of a chart; more tensors are drawn as steps, with smaller marks
_OUTPUTS = 8  # the most outputs in a summary
_PLACE = 120  # the most characters of a location
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_HEAD = (
    "#", "tensor", "operator", "type", "elements", "differ (%)", "max |a − b|", "mean |a − b|",
    "SQNR (dB)", "cosine", "range of a", "range of b", "a at limits (%)", "b at limits (%)",
)  # fmt: skip
NAMED_BY = _HEAD.index("tensor")
_LOCAL_HEAD = ("local: differ (%)", "local: max |a − b|", "local: SQNR (dB)")
_TABLE_NOTE = (
    "Tensors in the order of execution; a click on a head sorts. LSB: steps of an integer. "
    "SQNR: of b to a − b, inf where they are equal. At limits: share of values at the ends of the "
    "type, or of CLAMP."
)
_NOTHING = html.note("All tensors are equal: there is nothing to draw.")
_LOCAL_NOTE = "Local: the layer by itself, on b's values of the layers before."


def comparison_page(comparison: Comparison, command: str | None = None) -> str:
    """A page: the first and the worst difference, charts by layer, histograms, and all tensors.

    Args:
      comparison: the comparison to show.
      command: the command that made it, for the page's footer.

    Returns:
      An HTML document that needs no other file.

    Raises:
      ImportError: matplotlib is not installed.

    Example:
      >>> import tosajax
      >>> from tosajax import compare, viz
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> viz.comparison_page(compare.compare(graph, graph))[:15]
      '<!DOCTYPE html>'
    """
    charts.check_installed()
    rows = comparison.rows
    sections = [("Summary", html.definitions(summary(comparison)))]
    worst = sorted(filter(_differs, rows), key=_badness)[:_HISTOGRAMS]
    if worst:
        sections.append(("By layer", _layers_chart(rows)))
        sections.append(("Values of the worst tensors", _histograms_chart(rows, worst)))
    elif rows:
        sections.append(("By layer", _NOTHING))
    if rows:
        notes = html.note(_TABLE_NOTE) + (html.note(_LOCAL_NOTE) if _with_local(rows) else "")
        table = html.table(*tensor_table(rows), sortable=True, named_by=NAMED_BY)
        sections.append(("All tensors", notes + table))
    return page("Comparison of two programs", sections, command=command)


def comparison_box(comparison: Comparison) -> str:
    """The HTML of a comparison in a notebook: its summary and its tensors."""
    head, cells = tensor_table(comparison.rows)
    title = "Comparison of two programs"
    return html.box(title, summary(comparison), head, cells, noun="tensor", named_by=NAMED_BY)


def tensor_table(rows: Sequence[Row]) -> tuple[list[str], list[list[object]]]:
    """The head and the cells of a table of a comparison's rows."""
    with_local = _with_local(rows)
    head = [*_HEAD, *(_LOCAL_HEAD if with_local else ())]
    cells = []
    for number, row in enumerate(rows, 1):
        name = f"{row.tensor} (output)" if row.is_output else row.tensor
        named = html.Named(name, html.shortened(row.location, _PLACE))
        cells.append([number, named, row.operator, row.dtype, *_numbers(row)])
        if with_local:
            cells[-1] += _local_numbers(row)
    return head, cells


# Words and numbers.


def summary(comparison: Comparison) -> list[tuple[str, str]]:
    """The programs and their differences: terms, with the HTML of each."""
    rows = comparison.rows
    differ = sum(row.total.mismatches > 0 for row in rows)
    sentence = f"{differ} of {len(rows)} tensors differ" if differ else f"all {len(rows)} are equal"
    roles = ("a", "b (reference)")
    named = zip(roles, comparison.names, strict=True)
    facts = [(role, f"<code>{html.text(name)}</code>") for role, name in named if name]
    facts += [("examples", f"{comparison.examples:,}"), ("tensors", html.text(sentence))]
    facts += [("note", html.text(note)) for note in comparison.notes]
    if (row := comparison.first_divergent) is not None:
        m = row.total
        sentence = f"{_percent(m.share)} % of its elements, by up to {_error(row, m.max_error)}"
        facts.append(("first that differs", f"{_title(row)}: {html.text(sentence)}"))
    if (row := comparison.worst) is not None:
        how = " by itself" if row.local else ""
        sqnr = _decibels((row.local or row.total).sqnr)
        facts.append((f"worst{how}", f"{_title(row)}: SQNR {sqnr}"))
    outputs = comparison.outputs
    for row in outputs[:_OUTPUTS]:
        m = row.total
        error = f"by up to {_error(row, m.max_error)}, SQNR {_decibels(m.sqnr)}"
        sentence = f"{_percent(m.share)} % differ, {error}" if m.mismatches else "equal"
        facts.append(("output", f"{_title(row)}: {sentence}"))
    if len(outputs) > _OUTPUTS:
        facts.append(("", f"and {html.counted(len(outputs) - _OUTPUTS, 'output')} more"))
    return facts


def _title(row: Row) -> str:
    place = f", {html.text(html.shortened(row.location, _PLACE))}" if row.location else ""
    return f"{html.text(row.operator)} <code>{html.wrappable(row.tensor)}</code>{place}"


def _numbers(row: Row) -> list[int | html.Cell | None]:
    m = row.total
    return [
        m.elements, _share_cell(m.share), _error_cell(row, m.max_error),
        _error_cell(row, m.mean_abs_error), _sqnr_cell(m), html.Cell(f"{m.cosine:.5f}", m.cosine),
        _range_cell(m.range_a), _range_cell(m.range_b),
        _share_cell(m.clipped_a), _share_cell(m.clipped_b),
    ]  # fmt: skip


def _local_numbers(row: Row) -> list[html.Cell | None]:
    m = row.local
    if m is None:
        return [None, None, None]
    return [_share_cell(m.share), _error_cell(row, m.max_error), _sqnr_cell(m)]


def _sqnr_cell(m: Measured) -> html.Cell:
    return html.Cell(f"{m.sqnr:.1f}", m.sqnr)


def _range_cell(ends: tuple[float, float] | None) -> html.Cell | None:
    """A cell with the smallest and the largest value, which sorts by their difference."""
    if ends is None:
        return None
    low, high = (f"{v:,}" if isinstance(v, int) else f"{v:.4g}" for v in ends)
    return html.Cell(f"{low} … {high}", ends[1] - ends[0])


def _share_cell(share: float | None) -> html.Cell | None:
    return None if share is None else html.Cell(_percent(share), share)


def _percent(share: float) -> str:
    """A percentage with few digits; "100" only for all, "0" only for none."""
    return f"{100 * share:.3g}" if share < 0.999 or share == 1 else f"{100 * share:.6g}"


def _error_cell(row: Row, value: float) -> html.Cell:
    return html.Cell(_error(row, value), float(value))


def _error(row: Row, value: float) -> str:
    """An error with its unit; the largest error is an int if errors are whole steps."""
    number = f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
    return f"{number} LSB" if isinstance(row.total.max_error, int) else number


def _decibels(value: float) -> str:
    return "equal" if value == math.inf else f"{value:.1f} dB"


def _with_local(rows: Sequence[Row]) -> bool:
    return any(row.local is not None for row in rows)


def _differs(row: Row) -> bool:
    return any(m.mismatches for m in (row.total, row.local) if m is not None)


def _badness(row: Row) -> tuple[float, ...]:
    """A sort key, smaller for worse rows: the SQNR, then the share of values within limits."""
    ratios = [m.sqnr for m in (row.local or row.total, row.total)]
    clipped = [share for share in (row.total.clipped_a, row.total.clipped_b) if share is not None]
    sortable = [-math.inf if math.isnan(sqnr) else sqnr for sqnr in ratios]
    return *sortable, -max(clipped, default=0.0)


# Charts.


class _Series(NamedTuple):
    """A series of numbers, one for each tensor, with the style in which a chart draws it."""

    label: str
    measured: Sequence[Measured | None]
    colour: str
    marker: str
    dashes: str
    hatch: str | None


def _series(rows: Sequence[Row]) -> list[_Series]:
    totals, locals_ = ([r.total for r in rows], [r.local for r in rows])
    series = [_Series("with all layers before", totals, charts.FIRST, "o", "-", None)]
    if _with_local(rows):
        local = "the layer by itself (local)"
        series.append(_Series(local, locals_, charts.SECOND, "s", "none", "////"))
    return series


def _label(number: int, row: Row, narrow: bool = False) -> str:
    """The label of a tensor in a chart: its number in the table, and its name."""
    return f"{html.shortened(row.tensor, _NARROW_NAME if narrow else _NAME)} #{number}"


def _layers_chart(rows: Sequence[Row]) -> str:
    """A chart of SQNR above a chart of mismatches, in the order of execution."""
    series = _series(rows)

    def paint(figure: Figure, narrow: bool) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True)
        _paint_sqnr(upper, series)
        _paint_mismatches(lower, series)
        names = [_label(number, row, narrow) for number, row in enumerate(rows, 1)]
        charts.name_axis(lower, names, narrow)
        order = "tensors in the order of execution"
        lower.set_xlabel(order if narrow else f"{order}, with their numbers in the table")
        if len(series) > 1:  # colours have the same meaning in both charts
            figure.legend(
                *upper.get_legend_handles_labels(), loc="outside upper left", ncols=1 + (not narrow)
            )

    differing = [(row.total.sqnr, at) for at, row in enumerate(rows, 1) if row.total.mismatches]
    about = f"{len(differing)} of {html.counted(len(rows), 'tensor')} differ"
    if differing:
        sqnr, number = min(differing)
        about += f"; the lowest SQNR is {_decibels(sqnr)}, of {_label(number, rows[number - 1])}"
    about += ". The table below has the numbers."
    title = "SQNR and mismatches by layer"
    return charts.chart(title, about, paint, wide=(11.5, 7.2), narrow=(5.0, 7.2))


def _paint_sqnr(axes: Axes, series: Sequence[_Series]) -> None:
    values = [[math.nan if m is None else float(m.sqnr) for m in s.measured] for s in series]
    finite = [v for line in values for v in line if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    room = max(5.0, 0.1 * (high - low))
    for s, line in zip(series, values, strict=True):
        size = 3.5 if len(line) <= _BARS else 2
        style: dict[str, Any] = {"color": s.colour, "marker": s.marker, "markersize": size}
        finite_only = [v if math.isfinite(v) else math.nan for v in line]
        axes.plot(range(len(line)), finite_only, label=s.label, ls=s.dashes, lw=0.9, **style)
        equal = [high + room if v == math.inf else math.nan for v in line]
        axes.plot(range(len(line)), equal, linestyle="none", fillstyle="none", **style)
        lost = [low - room if v == -math.inf else math.nan for v in line]
        axes.plot(range(len(line)), lost, linestyle="none", **{**style, "marker": "x"})
    axes.set_ylim(low - 1.6 * room, high + 1.6 * room)
    _decibel_ticks(axes, (low, high), room, [v for line in values for v in line])
    axes.set_title("Signal to quantization noise")
    axes.set_ylabel("SQNR (dB)")
    axes.grid(axis="x", visible=False)


def _decibel_ticks(
    axes: Axes, ends: tuple[float, float], room: float, values: Sequence[float]
) -> None:
    """Sets ticks for finite numbers, and beyond them for infinite values."""
    low, high = ends
    if any(math.isfinite(v) for v in values):
        places = axes.yaxis.get_major_locator().tick_values(low - room / 2, high + room / 2)
        ticks = {float(t): f"{t:g}" for t in places if low - room / 3 <= t <= high + room / 3}
    else:
        ticks = {}
    beyond = {math.inf: (high + room, "equal"), -math.inf: (low - room, "no signal")}
    ticks |= {place: name for v, (place, name) in beyond.items() if v in values}
    axes.set_yticks(list(ticks), list(ticks.values()))


def _paint_mismatches(axes: Axes, series: Sequence[_Series]) -> None:
    heights = [[100 * m.share if m is not None else 0.0 for m in s.measured] for s in series]
    paint = _paint_bars if len(heights[0]) <= _BARS else _paint_steps
    for at, (s, line) in enumerate(zip(series, heights, strict=True)):
        paint(axes, line, (at, len(series)), s)
    shares = [height for line in heights for height in line if height]
    scale = charts.spread_axis(axes.yaxis, shares)
    if not scale:
        axes.set_ylim(0, 1.1 * max(shares, default=1.0))
    axes.set_title("Elements that differ")
    axes.set_ylabel(f"elements (%){scale}")


def _paint_bars(axes: Axes, heights: Sequence[float], place: tuple[int, int], s: _Series) -> None:
    """Draws the bars of one series; place: the index of the series, and their number."""
    at, count = place
    width = 0.8 / count
    places = [i + (at - (count - 1) / 2) * width for i in range(len(heights))]
    fill: dict[str, Any] = (
        {"facecolor": "none", "hatch": s.hatch} if s.hatch else {"color": s.colour}
    )
    axes.bar(places, heights, width, edgecolor=s.colour, linewidth=0.5, **fill)


def _paint_steps(axes: Axes, heights: Sequence[float], place: tuple[int, int], s: _Series) -> None:
    """Draws a series as steps, for charts with too many bars; the first series is filled."""
    ends = np.arange(len(heights) + 1) - 0.5
    shown = [height or math.nan for height in heights]
    if place[0] == 0:
        axes.stairs(shown, ends, color=s.colour, fill=True, alpha=0.4, linewidth=0)
    axes.stairs(shown, ends, color=s.colour, linewidth=1.1, baseline=None)


def _histograms_chart(rows: Sequence[Row], worst: Sequence[Row]) -> str:
    """A chart of histograms of the values of both programs, for a few tensors."""
    numbers = {id(row): number for number, row in enumerate(rows, 1)}
    across = 2 if len(worst) > 1 else 1
    down = math.ceil(len(worst) / across)

    def paint(figure: Figure, narrow: bool) -> None:
        shape = (len(worst), 1) if narrow else (down, across)
        grid = figure.subplots(*shape, squeeze=False).ravel()
        for axes, row in zip(grid, worst, strict=False):
            _paint_histogram(axes, numbers[id(row)], row, narrow)
        for axes in grid[len(worst) :]:
            axes.set_axis_off()

    named = (f"{_label(numbers[id(row)], row)} {_decibels(row.total.sqnr)}" for row in worst)
    about = f"How often each value occurs in a and in b, of {', '.join(named)}"
    wide, narrow = (5.75 * across, 2.7 * down), (5.0, 2.7 * len(worst))
    return charts.chart("Histograms of values", about, paint, wide=wide, narrow=narrow)


def _paint_histogram(axes: Axes, number: int, row: Row, narrow: bool) -> None:
    m = row.total
    sides: list[tuple[Histogram, str, float | None, dict[str, Any]]] = [
        (m.values_a, "a", m.clipped_a, {"color": charts.FIRST, "fill": True, "alpha": 0.5}),
        (m.values_b, "b", m.clipped_b, {"color": charts.SECOND, "linewidth": 1.2}),
    ]
    shares = [100 * np.asarray(h.counts, np.float64) / max(1, sum(h.counts)) for h, *_ in sides]
    is_powers = m.values_a.kind == "powers"
    bins = _bins_of_powers(shares) if is_powers else np.arange(len(shares[0]))
    for share, (histogram, name, clipped, style) in zip(shares, sides, strict=True):
        label = name if clipped is None else f"{name}: {_percent(clipped)} % at limits"
        ends = np.arange(len(bins) + 1.0) if is_powers else histogram.edges
        axes.stairs(share[bins], ends, label=label, **style)
    counted = [v for share in shares for v in share if v > 0]
    axes.set_ylabel(f"values (%){charts.spread_axis(axes.yaxis, counted)}")
    if is_powers:
        _power_axis(axes, m.values_a.edges, bins)
    else:
        _integer_axis(axes, (m.values_a, m.values_b))
    alone = f", by itself {_decibels(row.local.sqnr)}" if row.local else ""
    axes.set_title(f"{_label(number, row, narrow)}: {_decibels(m.sqnr)}{alone}", pad=19)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.1, fontsize=7.5,
        handlelength=1 if narrow else 1.5, columnspacing=0.8 if narrow else 1.2,
    )  # fmt: skip


def _integer_axis(axes: Axes, histograms: Sequence[Histogram]) -> None:
    """Sets the x axis to the whole range of the type, which shows unused values."""
    kinds = dict.fromkeys(histogram.kind for histogram in histograms)
    low = min(histogram.edges[0] for histogram in histograms)
    high = max(histogram.edges[-1] for histogram in histograms) - 1
    for at, label in ((low, "limits of the type"), (high, None)):
        axes.axvline(at, color=charts.GREY, linestyle=":", linewidth=1.2, label=label)
    room = (high - low) / 40
    axes.set_xlim(low - room, high + room)
    axes.set_xlabel(f"value ({', '.join(kinds)})")


def _bins_of_powers(shares: Sequence[np.ndarray]) -> np.ndarray:
    """The bins to show: from the first to the last bin with values, including 0.

    Bins next to 0 that are empty for both signs are left out: integers have no values there.
    """
    zero = len(shares[0]) // 2
    used = np.flatnonzero(np.sum(shares, axis=0))
    shown = np.arange(min([zero, *used]), max([zero, *used]) + 1)
    gap = min([abs(b - zero) for b in used if b != zero], default=1)
    return shown[(shown == zero) | (abs(shown - zero) >= gap)]


def _power_axis(axes: Axes, edges: np.ndarray, bins: np.ndarray) -> None:
    """Labels the shown bins with powers of two of both signs, and 0."""
    step = max(1, math.ceil(len(bins) / 10))
    zero = int(np.searchsorted(bins, (len(edges) - 1) // 2))
    places = range(zero % step, len(bins), step)
    names = [_power_label(*map(float, edges[bins[i] : bins[i] + 2])) for i in places]
    axes.set_xticks([i + 0.5 for i in places], names)
    axes.set_xlim(-0.5, len(bins) + 0.5)
    axes.set_xlabel("value (nearest power of two)")


def _power_label(low: float, high: float) -> str:
    """The label of a bin: the power of two at its middle, or 0."""
    if low < 0 < high:
        return "0"
    inner = low if low > 0 else high
    exponent = str(round(math.log2(abs(inner)) + 0.5)).translate(_SUPERSCRIPTS)
    return f"{'' if low > 0 else '−'}2{exponent}"
