"""Pages of sweeps: all rows, what accuracy costs, and what each axis does.

Results are those of `tosajax.sweep`, which calls this; nothing of it is imported here.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tosajax.viz import charts, html

Row = Mapping[str, Any]

_COST = "mean_bits"
_LINES = len(charts.COLOURS)  # of one chart
_LISTED = 14  # points of a front that a chart names


def results_page(results: Any, cost: str | None = None) -> str:
    """A page: the best settings, metric against cost and axes, all rows, errors.

    Args:
      results: `tosajax.sweep.Results`.
      cost: a column of numbers of which less is better; by default mean_bits, where rows have it.

    Returns:
      An HTML document that needs no other file.

    Raises:
      ImportError: matplotlib is not installed.
      KeyError: there is no such column.
    """
    charts.check_installed()
    if cost is None and _COST in results.columns:
        cost = _COST
    settings = _settings(results, cost)
    sections = [("Summary", _summary(results, _settings(results, None)))]
    gain = _gain(results)
    if cost is not None and gain is not None:
        front = _front(results, cost, gain)
        if front:
            chart = _front_chart(results, settings, front, cost, gain)
            sections.append((f"{gain} against {cost}", chart))
    if (axes := [c for c in settings if _is_axis(results, c)]) and results.metrics:
        drawn = [_axis_chart(results, settings, axis, results.metrics[0]) for axis in axes]
        sections.append((f"{results.metrics[0]} by axis", "\n".join(drawn)))
    sections.append(("All settings", _table(results, results.rows)))
    if results.errors:
        columns = [*settings, "error"]
        rows = [[row.get(c) for c in columns] for row in results.errors]
        sections.append(("Errors", html.table(columns, rows)))
    return html.page("Sweep", sections)


def results_table(results: Any) -> str:
    """All rows as an HTML table; errors only where there are any."""
    return _table(results, results.rows, sortable=False)


def _table(results: Any, rows: Sequence[Row], *, sortable: bool = True) -> str:
    columns = [c for c in results.columns if c != "error" or results.errors]
    return html.table(columns, [[r.get(c) for c in columns] for r in rows], sortable=sortable)


def _settings(results: Any, cost: str | None) -> list[str]:
    """The columns that say what a row is the result of."""
    others = {*results.metrics, "error", cost}
    return [c for c in results.columns if c not in others]


def _gain(results: Any) -> str | None:
    """The first metric of which more is better."""
    return next((m for m in results.metrics if not _is_error(m)), None)


def _is_error(metric: str) -> bool:
    return metric.startswith(("mean_lsb", "max_lsb"))


def _summary(results: Any, settings: Sequence[str]) -> str:
    failed = f", of which {len(results.errors)} failed" if results.errors else ""
    said = [("settings", f"{len(results):,}{failed}")]
    for metric in results.metrics:
        known = _known(results, metric)
        if known:
            best = (min if _is_error(metric) else max)(known, key=lambda row: row[metric])
            name = "lowest" if _is_error(metric) else "highest"
            value = f"{best[metric]:.6g}"
            said.append((f"{name} {metric}", f"{value}: {html.text(_named(best, settings))}"))
    return html.definitions(said)


def _named(row: Row, settings: Sequence[str]) -> str:
    """A setting in words."""
    parts = (f"{c} {_plain(row[c])}" for c in settings if row.get(c) is not None)
    return ", ".join(parts) or "the only setting"


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else html.printable(str(value))


def _known(results: Any, *columns: str) -> list[Row]:
    """Rows that have a finite number in each of the columns."""
    return [row for row in results.rows if all(_is_finite(row.get(c)) for c in columns)]


def _is_finite(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


# The metric against the cost.


def _front(results: Any, cost: str, gain: str) -> list[tuple[float, float, list[Row]]]:
    """The points of the front, by their cost, with the rows that have each."""
    rows = [r for r in results.pareto(cost, gain) if _is_finite(r[cost]) and _is_finite(r[gain])]
    points = itertools.groupby(rows, key=lambda row: (row[cost], row[gain]))
    return [(x, y, list(same)) for (x, y), same in points]


def _front_chart(
    results: Any,
    settings: Sequence[str],
    front: Sequence[tuple[float, float, list[Row]]],
    cost: str,
    gain: str,
) -> str:
    known = _known(results, cost, gain)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        xs = [row[cost] for row in known]
        axes.plot(
            xs, [row[gain] for row in known], "o", color=charts.GREY, markersize=4, alpha=0.6,
            label="settings",
        )  # fmt: skip
        axes.step(
            [x for x, *_ in front], [y for _, y, _ in front], where="post", marker="D",
            color=charts.SECOND, markersize=5, linewidth=1.2, label="no other is better",
        )  # fmt: skip
        for number, (x, y, _) in enumerate(front[:_LISTED], 1):
            axes.annotate(
                str(number), (x, y), xytext=(5, -5), textcoords="offset points", va="top",
                fontweight="bold",
            )  # fmt: skip
        charts.value_axis(axes.xaxis, xs)
        axes.margins(0.06)
        axes.set_xlabel(_with_unit(cost))
        axes.set_ylabel(_with_unit(gain))
        axes.set_title(f"{gain} against {cost}, {len(known)} settings")
        handles, labels = axes.get_legend_handles_labels()
        for number, (_, _, rows) in enumerate(front[:_LISTED], 1):
            more = f" (and {len(rows) - 1} equal)" if len(rows) > 1 else ""
            name = html.shortened(_named(rows[0], settings), 60)
            handles.append(axes.plot([], [], linestyle="none")[0])
            labels.append(f"{number}: {name}{more}")
        figure.legend(handles, labels, loc="outside lower left", ncols=2)

    return charts.chart(f"{gain} against {cost}", (9.5, 5.8), paint)


def _with_unit(column: str) -> str:
    """A column as the label of an axis."""
    share = ("accuracy", "top_", "agreement")
    if column.startswith("sqnr"):
        return f"{column} (dB)"
    if column.startswith(("mean_lsb", "max_lsb")):
        return f"{column} (LSB)"
    return f"{column} (share of examples)" if column.startswith(share) else column


# The metric against an axis.


def _is_axis(results: Any, column: str) -> bool:
    """Whether a column holds different numbers."""
    values = {row.get(column) for row in _known(results, column)}
    return len(values) > 1


def _axis_chart(results: Any, settings: Sequence[str], axis: str, metric: str) -> str:
    """A line for each combination of the other settings, or, where those are many, a summary."""
    known = _known(results, axis, metric)
    others = [c for c in settings if c != axis and len({str(r.get(c)) for r in known}) > 1]
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in known:
        lines.setdefault(_named(row, others) if others else metric, []).append(
            (row[axis], row[metric])
        )

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        if len(lines) <= _LINES and len(lines) < len(known):
            _paint_lines(axes, lines)
        else:
            _paint_spread(axes, [point for line in lines.values() for point in line], metric)
        if known:
            charts.value_axis(axes.xaxis, [row[axis] for row in known])
        axes.set_xlabel(_with_unit(axis))
        axes.set_ylabel(_with_unit(metric))
        axes.set_title(f"{metric} by {axis}")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")

    return charts.chart(f"{metric} by {axis}", (9.5, 3.4), paint)


def _paint_lines(axes: Any, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    styles = zip(charts.COLOURS, charts.MARKERS, strict=True)
    for (name, points), (colour, marker) in zip(lines.items(), styles, strict=False):
        points = sorted(points)
        xs, ys = [x for x, _ in points], [y for _, y in points]
        label = html.shortened(name, 40)
        axes.plot(xs, ys, color=colour, marker=marker, markersize=4, linewidth=1.2, label=label)


def _paint_spread(axes: Any, points: Sequence[tuple[float, float]], metric: str) -> None:
    """All points; where several share their place on the axis, their best and their median."""
    axes.plot(
        [x for x, _ in points], [y for _, y in points], "o", color=charts.GREY, markersize=3.5,
        alpha=0.6, label="settings",
    )  # fmt: skip
    at = {x: [y for place, y in points if place == x] for x in sorted({x for x, _ in points})}
    if len(at) == len(points):
        return
    best = min if _is_error(metric) else max
    for label, of, colour, marker, dashes in (
        ("the best of each", best, charts.SECOND, "D", "-"),
        ("their median", statistics.median, charts.FIRST, "s", "--"),
    ):
        axes.plot(
            list(at), [of(values) for values in at.values()], color=colour, marker=marker,
            markersize=4, linewidth=1.2, linestyle=dashes, label=label,
        )  # fmt: skip
