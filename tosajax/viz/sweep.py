"""Pages of sweeps: all rows, and charts of the metric against cost, one axis, and two axes."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tosajax import html
from tosajax.viz import charts, heat
from tosajax.viz.heat import Row
from tosajax.viz.pages import page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tosajax.sweep.results import Results

Point = tuple[float, float]

_COST = "mean_bits"
_LINES = len(charts.COLOURS)  # the most lines of a chart
_LISTED = 14  # the most points of a front that a chart names
_CATEGORIES = 12  # the most names on an axis of names


class _FrontPoint(NamedTuple):
    """A point of the Pareto front, and its rows."""

    cost: float
    gain: float
    rows: list[Row]


def results_page(
    results: Results,
    cost: str | None = None,
    about: Mapping[str, str] | None = None,
    command: str | None = None,
) -> str:
    """A page: the best settings, metric against cost and axes, all rows, errors.

    Args:
      results: the results to show.
      cost: a column of numbers in which less is better; by default mean_bits or the first of the
        results' costs, if rows have it.
      about: names of the model and the data, for the summary: {"model": "m.tosa"}.
      command: the command that made the results, for the page's footer.

    Returns:
      An HTML document that needs no other file.

    Raises:
      ImportError: matplotlib is not installed.
      KeyError: there is no such column.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep, viz
      >>> data = np.eye(2, dtype=np.float32), np.arange(2)
      >>> configs = sweep.grid(k=[-1.0, 2.0])
      >>> run = sweep.Sweep(lambda setting, x: x * setting["k"], data, configs=configs)
      >>> viz.results_page(run.run())[:15]
      '<!DOCTYPE html>'
    """
    charts.check_installed()
    results = results.by_layer()
    if cost is None:
        cost = next((c for c in (_COST, *results.costs) if c in results.columns), None)
    settings = _settings(results, cost)
    named = [(term, f"<code>{html.text(name)}</code>") for term, name in (about or {}).items()]
    sections = [("Summary", html.definitions([*named, *summary(results)]))]
    gain = _gain(results)
    if cost is not None and gain is not None:
        front = _front(results, cost, gain)
        if front:
            chart = _front_chart(results, settings, front, cost, gain)
            sections.append((f"{gain} against {cost}", chart))
    metric = results.metrics[0] if results.metrics else None
    axes = [c for c in settings if _is_axis(results, c)]
    if axes and metric:
        chosen = settings if _is_computed(results, settings, cost) else _settings(results, None)
        drawn = [_axis_chart(results, chosen, axis, metric) for axis in axes]
        sections.append((f"{metric} by axis", "\n".join(drawn)))
        numeric = [c for c in chosen if _is_numeric(results, c)]
        measured = [
            _rows_with_numbers(results, *pair, metric)
            for pair in itertools.combinations(numeric, 2)
        ]
        maps = heat.maps(numeric, measured, metric, _best_of(metric))
        if maps:
            sections.append((f"{metric} by two axes", maps))
    columns, rows = _columns(results), results.rows
    sections.append(("All settings", _table(columns, rows)))
    if results.errors:
        sections.append(("Errors", _table([*settings, "error"], results.errors)))
    return page("Sweep", sections, command=command)


def results_box(results: Results) -> str:
    """The HTML of results in a notebook: the best of each metric, and the rows."""
    results = results.by_layer()
    columns = _columns(results)
    rows = [[row.get(c) for c in columns] for row in results.rows[: html.ROWS]]
    rows += [[]] * (len(results) - len(rows))  # only the number of rows matters
    return html.box("Results of a sweep", summary(results), columns, rows, noun="setting")


def _table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    return html.table(columns, [[row.get(c) for c in columns] for row in rows], sortable=True)


def _columns(results: Results) -> list[str]:
    """All columns; the column of errors only if there are errors."""
    return [c for c in results.columns if c != "error" or results.errors]


def _settings(results: Results, cost: str | None) -> list[str]:
    """The columns of settings."""
    others = {*results.metrics, *results.costs, "error", cost}
    return [c for c in results.columns if c not in others]


def _is_computed(results: Results, settings: Sequence[str], cost: str | None) -> bool:
    """Whether the settings determine the cost; if not, the cost is itself a setting."""
    if cost is None:
        return False
    places = {
        (*(str(row.get(c)) for c in settings), row.get(cost))
        for row in _rows_with_numbers(results, cost)
    }
    return len({place[:-1] for place in places}) == len(places)


def _gain(results: Results) -> str | None:
    """The first metric in which more is better."""
    return next((m for m in results.metrics if _best_of(m) is max), None)


def _is_error(metric: str) -> bool:
    return metric.startswith(("mean_lsb", "max_lsb"))


def _best_of(metric: str) -> Any:
    """`min` for a metric that is an error, else `max`."""
    return min if _is_error(metric) else max


def summary(results: Results) -> list[tuple[str, str]]:
    """The number of settings, and the best setting by each metric: terms and their HTML."""
    settings = _settings(results, None)
    failed = f", of which {len(results.errors)} failed" if results.errors else ""
    facts = [("settings", f"{len(results):,}{failed}")]
    for metric in results.metrics:
        measured = _rows_with_numbers(results, metric)
        if measured:
            best = _best_of(metric)(measured, key=lambda row: row[metric])
            name = "lowest" if _is_error(metric) else "highest"
            value = f"{best[metric]:.6g}"
            setting = html.shortened(_setting_text(best, settings), 200)
            facts.append((f"{name} {metric}", f"{value}: {html.text(setting)}"))
    facts += [("certainty", html.text(sentence)) for sentence in results.certainty()]
    return facts


def _setting_text(row: Row, settings: Sequence[str]) -> str:
    """The text of a setting."""
    parts = (f"{c} {_value_text(row[c])}" for c in settings if row.get(c) is not None)
    return ", ".join(parts) or "the only setting"


def _value_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else html.printable(str(value))


def _rows_with_numbers(results: Results, *columns: str) -> list[Row]:
    """Rows that have a finite number in each of the columns."""
    return [row for row in results.rows if all(_is_finite(row.get(c)) for c in columns)]


def _is_finite(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value)


# The metric against the cost.


def _front(results: Results, cost: str, gain: str) -> list[_FrontPoint]:
    """The points of the Pareto front, sorted by cost."""
    rows = [r for r in results.pareto(cost, gain) if _is_finite(r[cost]) and _is_finite(r[gain])]
    points = itertools.groupby(rows, key=lambda row: (row[cost], row[gain]))
    return [_FrontPoint(x, y, list(same)) for (x, y), same in points]


def _front_chart(
    results: Results, settings: Sequence[str], front: Sequence[_FrontPoint], cost: str, gain: str
) -> str:
    measured = _rows_with_numbers(results, cost, gain)
    scale = functools.partial(_scaled, results, gain)

    def paint(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        xs = [row[cost] for row in measured]
        axes.plot(
            xs, [row[gain] for row in measured], "o", color=charts.GREY, markersize=4, alpha=0.6,
            label="settings",
        )  # fmt: skip
        axes.step(
            [p.cost for p in front], [p.gain for p in front], where="post", marker="D",
            color=charts.SECOND, markersize=5, linewidth=1.2, label="no other is better",
        )  # fmt: skip
        for number, point in enumerate(front[:_LISTED], 1):
            axes.annotate(
                str(number), point[:2], xytext=(5, -5), textcoords="offset points", va="top",
                fontweight="bold",
            )  # fmt: skip
        charts.value_axis(axes.xaxis, xs)
        axes.margins(0.06)
        axes.set_xlabel(_labelled(results, cost))
        axes.set_ylabel(_labelled(results, gain) + scale(axes, [row[gain] for row in measured]))
        axes.set_title(f"{gain} against {cost}, {len(measured)} settings")
        handles, labels = axes.get_legend_handles_labels()
        for number, point in enumerate(front[:_LISTED], 1):
            more = f" (and {len(point.rows) - 1} equal)" if len(point.rows) > 1 else ""
            name = html.shortened(_setting_text(point.rows[0], settings), 44 if narrow else 60)
            handles.append(axes.plot([], [], linestyle="none")[0])
            labels.append(f"{number}: {name}{more}")
        figure.legend(handles, labels, loc="outside lower left", ncols=1 if narrow else 2)

    first, last = front[0], front[-1]
    alt = (
        f"{html.counted(len(measured), 'setting')}, of which no other is better at "
        f"{html.counted(len(front), 'point')}: {gain} from {first.gain:.4g} at {cost} "
        f"{first.cost:.4g} to {last.gain:.4g} at {cost} {last.cost:.4g}"
    )
    title, lines = f"{gain} against {cost}", min(_LISTED, len(front)) + 2
    size = {"wide": (9.5, 4.3 + 0.1 * lines), "narrow": (5.0, 3.6 + 0.2 * lines)}
    return charts.chart(title, alt, paint, **size)


def _scaled(results: Results, metric: str, axes: Axes, values: Sequence[float]) -> str:
    """Scales the y axis of a metric; returns the suffix of its label."""
    return charts.share_axis(axes.yaxis, values) if results.is_share(metric) else ""


def _labelled(results: Results, column: str) -> str:
    """The axis label of a column, with its unit."""
    if column.startswith("sqnr"):
        return f"{column} (dB)"
    if _is_error(column):
        return f"{column} (LSB)"
    return f"{column} (share of examples)" if results.is_share(column) else column


# The metric against an axis.


def _is_axis(results: Results, column: str) -> bool:
    """Whether a column can be an axis: it holds different numbers, or a few names."""
    if _is_numeric(results, column):
        return True
    return 1 < len(_categories(results.rows, column)) <= _CATEGORIES


def _is_numeric(results: Results, column: str) -> bool:
    return len({row[column] for row in _rows_with_numbers(results, column)}) > 1


def _categories(rows: Sequence[Row], column: str) -> list[str]:
    """The names in a column, in order, without numbers and failed rows."""
    values = (row.get(column) for row in rows if not row.get("error"))
    names = [None if v is None or _is_finite(v) else _value_text(v) for v in values]
    return list(dict.fromkeys(name for name in names if name is not None))


def _axis_chart(results: Results, settings: Sequence[str], axis: str, metric: str) -> str:
    """A chart with a line for each combination of other settings; a summary if they are many."""
    names = [] if _is_numeric(results, axis) else _categories(results.rows, axis)
    if names:
        measured = [
            r for r in _rows_with_numbers(results, metric) if _value_text(r.get(axis)) in names
        ]
        place = [names.index(_value_text(row[axis])) for row in measured]
    else:
        measured = _rows_with_numbers(results, axis, metric)
        place = [row[axis] for row in measured]
    others = [c for c in settings if c != axis and len({str(r.get(c)) for r in measured}) > 1]
    lines: dict[str, list[Point]] = {}
    for at, row in zip(place, measured, strict=True):
        lines.setdefault(_setting_text(row, others) if others else metric, []).append(
            (at, row[metric])
        )
    points = [point for line in lines.values() for point in line]
    scale = functools.partial(_scaled, results, metric)

    def paint(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        if len(lines) <= _LINES and len(lines) < len(measured):
            _paint_lines(axes, lines, ":" if names else "-")
        else:
            _paint_spread(axes, points, metric, joined=not names)
        if names:
            shown = [html.shortened(name, 12 if narrow else 24) for name in names]
            axes.set_xticks(range(len(names)), shown, rotation=90 if len(names) > 5 else 0)
            axes.set_xlim(-0.5, len(names) - 0.5)
        elif measured:
            charts.value_axis(axes.xaxis, place)
        axes.set_xlabel(_labelled(results, axis))
        axes.set_ylabel(_labelled(results, metric) + scale(axes, [y for _, y in points]))
        axes.set_title(f"{metric} by {axis}")
        where = "outside lower left" if narrow else "outside right upper"
        figure.legend(*axes.get_legend_handles_labels(), loc=where)

    ends = _best_by_place(points, _best_of(metric))
    listed = "; ".join(f"{names[int(x)] if names else f'{x:g}'}: {y:.4g}" for x, y in ends)
    alt = f"The best {metric} by {axis}: {html.shortened(listed, 300)}" if listed else "No values"
    narrow = (5.0, 3.2 + 0.2 * min(len(lines), _LINES))
    return charts.chart(f"{metric} by {axis}", alt, paint, wide=(9.5, 3.4), narrow=narrow)


def _best_by_place(points: Sequence[Point], best: Callable[[list[float]], float]) -> list[Point]:
    """The best point at each position, in order."""
    places = sorted({x for x, _ in points})
    return [(x, best([y for at, y in points if at == x])) for x in places]


def _paint_lines(axes: Axes, lines: Mapping[str, Sequence[Point]], dashes: str) -> None:
    styles = zip(charts.COLOURS, charts.MARKERS, strict=True)
    for (name, points), (colour, marker) in zip(lines.items(), styles, strict=False):
        points = sorted(points)
        xs, ys = [x for x, _ in points], [y for _, y in points]
        axes.plot(
            xs, ys, color=colour, marker=marker, markersize=4, linewidth=1.2, linestyle=dashes,
            label=html.shortened(name, 40),
        )  # fmt: skip


def _paint_spread(axes: Axes, points: Sequence[Point], metric: str, *, joined: bool) -> None:
    """Draws all points; at positions with several points, also their best and their median."""
    axes.plot(
        [x for x, _ in points], [y for _, y in points], "o", color=charts.GREY, markersize=3.5,
        alpha=0.6, label="settings",
    )  # fmt: skip
    if len({x for x, _ in points}) == len(points):
        return
    for label, of, colour, marker, dashes in (
        ("the best of each", _best_of(metric), charts.SECOND, "D", "-"),
        ("their median", statistics.median, charts.FIRST, "s", "--"),
    ):
        ends = _best_by_place(points, of)
        axes.plot(
            [x for x, _ in ends], [y for _, y in ends], color=colour, marker=marker,
            markersize=4, linewidth=1.2, linestyle=dashes if joined else "none", label=label,
        )  # fmt: skip
