"""Results: one row for each setting."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from tosajax.atomic import write_csv, write_json, write_text
from tosajax.sweep import metrics as measures
from tosajax.text_table import Column, text_table

_LEAST = 12  # the fewest characters that a cell is shortened to

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Results(Sequence[Row]):
    """Rows in the order of the settings: setting, other columns, metrics, and the error if any.

    Args:
      rows: dictionaries with the same keys; None stands for a missing value. Values are JSON
        values, NaN or infinities.
      metrics: the columns that are metrics.
      examples: the number of measured examples; None if unknown.
      costs: the columns in which less is better.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> data = np.eye(2, dtype=np.float32), np.arange(2)
      >>> configs = sweep.grid(k=[-1.0, 2.0])
      >>> run = sweep.Sweep(lambda setting, x: x * setting["k"], data, configs=configs)
      >>> results = run.run()
      >>> results.best("accuracy")["k"]
      2.0
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    examples: int | None = None
    costs: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> Results: ...

    def __getitem__(self, at: int | slice) -> Row | Results:
        if isinstance(at, slice):
            return dataclasses.replace(self, rows=self.rows[at])
        return self.rows[at]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of all rows, in order of appearance."""
        return tuple(dict.fromkeys(key for row in self.rows for key in row))

    @property
    def errors(self) -> tuple[Row, ...]:
        """The rows of settings that failed."""
        return tuple(row for row in self.rows if row.get("error"))

    def by_layer(self) -> Results:
        """The same rows, with a column for each layer whose values differ.

        Settings such as {"weight_bits": {"conv1": 4, "fc": 8}} get the columns
        "weight_bits[conv1]" and "weight_bits[fc]". If each setting names one layer, the column
        "weight_bits of" has its name.
        """
        axes = [c for c in self.columns if c not in self.metrics]
        if not any(isinstance(row.get(c), Mapping) for row in self.rows for c in axes):
            return self
        return dataclasses.replace(self, rows=_by_layer(self.rows, self.columns, axes))

    def best(self, metric: str | None = None, *, least: bool = False) -> Row:
        """The row with the highest metric, the first of equal rows; NaN is ignored.

        Args:
          metric: a column of numbers; by default the first metric.
          least: whether the lowest value is best.

        Raises:
          KeyError: there is no such column.
          ValueError: no row has a value.
        """
        name = self.metrics[0] if metric is None else metric
        rows = self._rows_with_numbers(name)
        if not rows:
            raise ValueError(f"no row has a value of {name}")
        return (min if least else max)(rows, key=lambda row: row[name])

    def pareto(self, cost: str, gain: str | None = None) -> Results:
        """The Pareto front: rows for which no row is better in one value and no worse in both.

        Rows are sorted by cost; rows of equal cost are in the order of the settings. Rows with a
        missing value or NaN are left out.

        Args:
          cost: a column in which less is better.
          gain: a column in which more is better; by default the first metric.

        Raises:
          KeyError: there is no such column.
        """
        name = self.metrics[0] if gain is None else gain

        def point(row: Row) -> tuple[float, float]:
            return row[cost], -row[name]

        front: list[Row] = []
        for row in sorted(self._rows_with_numbers(cost, name), key=point):
            if not front or row[name] > front[-1][name] or point(row) == point(front[-1]):
                front.append(row)
        return dataclasses.replace(self, rows=tuple(front))

    def is_share(self, column: str) -> bool:
        """Whether a column is a metric that is a share of examples, such as accuracy."""
        return column in self.metrics and measures.is_share(column)

    def interval(self, row: Row, metric: str | None = None, *, level: float = 0.95) -> Interval:
        """Wilson's score interval of a share, for the population of the measured examples.

        It assumes that the examples are a random sample, independent for each row. Rows share their
        examples, so `mcnemar` is the better test of whether two rows differ.

        Args:
          row: a row of these results.
          metric: a share of examples, such as accuracy; by default the first metric.
          level: the share of such intervals that hold the true value.

        Raises:
          ValueError: the metric is not a share of examples, the row has no value of it, the number
            of examples is unknown, or the level is not between 0 and 1.
        """
        name = self.metrics[0] if metric is None else metric
        if not self.is_share(name):
            raise ValueError(f"{name} is not a share of examples, as accuracy is: no interval")
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, expected a number between 0 and 1")
        if self.examples is None or not _is_number(row.get(name)):
            missing = "number of examples" if self.examples is None else f"value of {name}"
            raise ValueError(f"no {missing} is known: no interval")
        return _wilson(row[name], self.examples, level)

    def ties(self, metric: str | None = None, *, level: float = 0.95) -> Results:
        """The rows whose share lies in the interval of the best row, including the best row.

        Args:
          metric: the metric, as for `interval`.
          level: the level, as for `interval`.

        Raises:
          ValueError: as for `interval`, or no row has a value.
        """
        name = self.metrics[0] if metric is None else metric
        low, _ = self.interval(self.best(name), name, level=level)
        rows = tuple(row for row in self._rows_with_numbers(name) if row[name] >= low)
        return dataclasses.replace(self, rows=rows)

    def _rows_with_numbers(self, *columns: str) -> list[Row]:
        """The rows that have a number in each of the columns."""
        for column in columns:
            if column not in self.columns:
                raise KeyError(f"no column {column!r}, expected one of {', '.join(self.columns)}")
        return [row for row in self.rows if all(_is_number(row.get(c)) for c in columns)]

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each setting.

        Raises:
          ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("pandas is not installed: pip install 'tosajax[sweep]'") from None

        return pandas.DataFrame(list(self.rows), columns=list(self.columns))

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes a CSV file, which appears when it is complete.

        None is an empty cell; lists and dictionaries are JSON.

        Raises:
          OSError: the file cannot be written.
        """
        write_csv(path, self.columns, self.rows)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Writes a JSON list of objects to a file, which appears when it is complete.

        NaN and infinities become "nan", "inf" and "-inf", as JSON has no numbers for them.

        Raises:
          OSError: the file cannot be written.
          TypeError: JSON cannot hold a value.
        """
        write_json(path, self.rows)

    def to_html(
        self,
        path: str | os.PathLike[str],
        cost: str | None = None,
        *,
        about: Mapping[str, str] | None = None,
        command: str | None = None,
    ) -> None:
        """Writes a page with charts and all rows to a file, which appears when it is complete.

        Args:
          path: the path of the file.
          cost: a column in which less is better, for a chart of the Pareto front; by default
            mean_bits, if rows have it.
          about: lines of the page's summary: {"model": "m.tosa"}.
          command: the command that made the results, for the page's footer.

        Raises:
          ImportError: matplotlib, which the charts need, is not installed.
          KeyError: there is no such column.
          OSError: the file cannot be written.
        """
        from tosajax.viz.sweep import results_page

        write_text(path, results_page(self, cost, about, command))

    def __str__(self) -> str:
        """`table`, at full width."""
        return self.table()

    def table(self, width: int | None = None) -> str:
        """A table of settings and metrics, followed by the certainty of shares of examples.

        Args:
          width: the most characters of a line; long cells are shortened. None for no limit.
        """
        shown = self.by_layer()
        names = shown._shown()
        columns = [Column(name, least=_LEAST, right=True) for name in names]
        rows = [[_cell_text(row.get(name)) for name in names] for row in shown.rows]
        return "\n".join([*text_table(columns, rows, width), *self.certainty()])

    def certainty(self) -> list[str]:
        """For each metric that is a share, a sentence on how far the best row stands out."""
        shares = [
            m for m in self.metrics if self.is_share(m) and any(map(_is_number, self._values(m)))
        ]
        return [self._certainty_of(m) for m in shares] if self.examples and len(self) > 1 else []

    def _values(self, column: str) -> list[Any]:
        return [row.get(column) for row in self.rows]

    def _certainty_of(self, metric: str) -> str:
        best, ties = self.best(metric), len(self.ties(metric))
        low, high = self.interval(best, metric)
        return (
            f"{metric}: one of {self.examples:,} examples is {1 / (self.examples or 1):.2g}; "
            f"the 95 % interval of the best is {low:.4g} to {high:.4g}, "
            + (f"and holds {ties} of {len(self)} settings" if ties > 1 else "and holds no other")
        )

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"Results({len(self)} settings{failed})"

    def _repr_html_(self) -> str:
        from tosajax.viz.sweep import results_box

        return results_box(self)

    def _shown(self) -> list[str]:
        return [c for c in self.columns if c != "error" or self.errors]


class Interval(NamedTuple):
    """The ends of an interval, both included."""

    low: float
    high: float


def _wilson(share: float, count: int, level: float) -> Interval:
    """Wilson's score interval of a share of `count` examples."""
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    weight = z * z / count
    middle = share + weight / 2
    reach = z * math.sqrt((share * (1 - share) + weight / 4) / count)
    # At the ends, rounding may leave [0, 1] or exclude the share.
    low = min(share, max(0.0, (middle - reach) / (1 + weight)))
    high = max(share, min(1.0, (middle + reach) / (1 + weight)))
    return Interval(low, high)


def _by_layer(rows: Sequence[Row], columns: Sequence[str], axes: Sequence[str]) -> tuple[Row, ...]:
    result: list[Row] = [{} for _ in rows]
    for column in columns:
        values = [row.get(column) for row in rows]
        parts = _parts_of(column, values) if column in axes else {column: values}
        for name, cells in parts.items():
            for row, cell in zip(result, cells, strict=True):
                row[name] = cell
    return tuple(result)


def _parts_of(column: str, values: Sequence[Any]) -> dict[str, list[Any]]:
    """Splits a column of dictionaries by keys whose values differ; other columns stay whole."""
    mappings = [v for v in values if isinstance(v, Mapping)]
    layers = list(dict.fromkeys(layer for m in mappings for layer in m))
    rest = [None if isinstance(v, Mapping) else v for v in values]
    if len(layers) > 1 and all(len(m) == 1 for m in mappings):
        pairs = [(*v.items(),)[0] if isinstance(v, Mapping) else (None, v) for v in values]
        return {f"{column} of": [p[0] for p in pairs], column: [p[1] for p in pairs]}
    parts = {column: rest} if not mappings or any(v is not None for v in rest) else {}
    for layer in layers:
        cells = [v.get(layer) if isinstance(v, Mapping) else None for v in values]
        if len(rest) == 1 or any(cell != cells[0] for cell in cells):
            parts[f"{column}[{layer}]"] = cells
    return parts


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _cell_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.6g}"
        case str():
            return " ".join(value.splitlines())
        case _:
            return json.dumps(value)
