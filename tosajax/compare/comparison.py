"""The result of a comparison: one row for each tensor, as a table, CSV, JSON or HTML."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from tosajax import html
from tosajax.atomic import write_csv, write_json, write_text
from tosajax.compare.measure import Histogram, Measured, edges
from tosajax.compare.tolerance import EQUAL, Allowed
from tosajax.graph import Graph
from tosajax.text_table import Column, text_table

_LINES = 60  # the most rows of a table
_NAME = 60  # the most characters of a tensor's name, and of its location
_COLUMNS = (
    Column("tensor", least=20),
    Column("operator", least=10),
    Column("type", drop=2),
    Column("elements", drop=4, right=True),
    Column("differ %", right=True),
    Column("max", right=True),
    Column("mean", drop=3, right=True),
    Column("SQNR", right=True),
    Column("cosine", drop=5, right=True),
)
_LOCAL_COLUMNS = (Column("local %", drop=1, right=True), Column("local", right=True))
_LOCATION = Column("location", least=16, drop=6)


@dataclasses.dataclass(frozen=True)
class Row:
    """The comparison of one tensor in programs a and b.

    Args:
      tensor: the tensor's name in a.
      other: the tensor's name in b.
      operator: the operator that computes the tensor in a.
      location: the operator's origin, in the user's words; "" if the file has none.
      dtype: the element type in a.
      is_output: whether the tensor is an output of the graph.
      as_real: whether integers were compared as the real numbers they stand for. If the tensor is
        a float in one program, errors are in steps of the integers even so.
      total: the difference between a and b.
      local: the difference of this layer alone: a computes it from b's values of the tensors in
        earlier rows. None if it was not requested.
      allowed: the tolerance for `total`.
      allowed_local: the tolerance for `local`.

    Example:
      >>> import tosajax
      >>> from tosajax.compare import compare
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 4))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> (row,) = compare(graph, graph).rows
      >>> row.tensor, row.operator, row.is_within
      ('y', 'REVERSE', True)
    """

    tensor: str
    other: str
    operator: str
    location: str
    dtype: str
    is_output: bool
    as_real: bool
    total: Measured
    local: Measured | None = None
    allowed: Allowed = EQUAL
    allowed_local: Allowed = EQUAL

    @property
    def is_within(self) -> bool:
        """Whether the tensor is equal or within the tolerance."""
        return self.allowed.holds(self.total)

    @property
    def is_local_within(self) -> bool:
        """Whether `local` is equal or within the tolerance, or was not measured."""
        return self.local is None or self.allowed_local.holds(self.local)

    def __repr__(self) -> str:
        m = self.total
        return (
            f"Row({self.operator} {html.quoted(self.tensor)}, {self.dtype}, {m.mismatches} of "
            f"{m.elements} elements differ, by up to {m.max_error:g}, SQNR {m.sqnr:.1f} dB)"
        )

    @property
    def title(self) -> str:
        """The row's name in messages: operator, tensor and location."""
        place = f" ({self.location})" if self.location else ""
        return f"{self.operator} {self.tensor!r}{place}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The comparison of every tensor that two programs share.

    Args:
      rows: one row for each tensor, in the order of computation.
      examples: the number of examples that were run.
      names: titles of a and b, for pages; "" for none.
      notes: remarks on the comparison, as sentences for users.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax.compare import compare
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 4))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> comparison = compare(graph, graph)  # on random inputs
      >>> bool(comparison), [row.tensor for row in comparison.rows]
      (True, ['y'])
    """

    rows: tuple[Row, ...]
    examples: int
    names: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()

    @property
    def first_divergent(self) -> Row | None:
        """The row of the first tensor that differs by more than the tolerance."""
        return next((r for r in self.rows if not r.is_within), None)

    @property
    def worst(self) -> Row | None:
        """The row with the lowest SQNR: of `local` if it was measured, else of `total`."""
        measured = [(r.local or r.total, r) for r in self.rows]
        differing = [(m.sqnr, r) for m, r in measured if m.mismatches]
        return min(differing, key=lambda pair: pair[0])[1] if differing else None

    @property
    def outputs(self) -> tuple[Row, ...]:
        """The rows of the graph's outputs."""
        return tuple(r for r in self.rows if r.is_output)

    def __bool__(self) -> bool:
        """Whether all tensors are equal or within the tolerance."""
        return self.first_divergent is None

    def __str__(self) -> str:
        """`table` without a limit on its width."""
        return self.table()

    def table(self, width: int | None = None) -> str:
        """A text table of the tensors out of tolerance, then the first and the worst of them.

        Args:
          width: the most characters in a line of the table, which drops columns to fit; None for
            no limit.
        """
        differ = [r for r in self.rows if not (r.is_within and r.is_local_within)]
        text = "\n".join([*self.notes, *self._top_1(), self._summary()])
        if not differ:
            return text
        with_local = any(r.local for r in self.rows)
        columns = (*_COLUMNS, *(_LOCAL_COLUMNS if with_local else ()), _LOCATION)
        rows = [_cells(row, with_local) for row in differ[:_LINES]]
        lines = text_table(columns, rows, width)
        if len(differ) > _LINES:
            lines.append(f"and {len(differ) - _LINES} more")
        if self.first_divergent:
            lines.append(f"first divergent: {self.first_divergent.title}")
        if self.worst:
            kind = "worst by itself" if with_local else "worst"
            measured = self.worst.local or self.worst.total
            lines.append(f"{kind}: {self.worst.title}, {measured.sqnr:.1f} dB")
        return "\n".join([*lines, text])

    def _top_1(self) -> list[str]:
        """A line for each output of scores: the number of examples with the same argmax."""
        lines = []
        for row in self.outputs:
            if (same := row.total.same_top) is not None:
                share = 100 * same / self.examples
                lines.append(
                    f"same argmax of {html.quoted(row.tensor)}: {same} of {self.examples} examples "
                    f"({share:.4g} %)"
                )
        return lines

    def _summary(self) -> str:
        equal = sum(not r.total.mismatches for r in self.rows)
        within = sum(r.is_within for r in self.rows)
        sentence = f"{equal} of {len(self.rows)} tensors are equal"
        if within > equal:
            sentence = (
                f"{within} of {len(self.rows)} tensors are within tolerance, {equal} are equal"
            )
        return f"{sentence}, on {self.examples} examples"

    def __repr__(self) -> str:
        differ = sum(r.total.mismatches > 0 for r in self.rows)
        beyond = sum(not r.is_within for r in self.rows)
        text = f"{differ} of {len(self.rows)} tensors differ, {beyond} beyond tolerance"
        text += f", {self.examples} examples"
        first = self.first_divergent
        if first:
            text += f", first: {first.operator} {html.quoted(first.tensor)}"
        return f"Comparison({text})"

    def _repr_html_(self) -> str:
        from tosajax.viz.comparison import comparison_box

        return comparison_box(self)

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat dictionary of Python values for each tensor, without the histograms."""
        return [_row_values(row, histograms=False) for row in self.rows]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_rows` as CSV, atomically."""
        rows = self.to_rows()
        write_csv(path, list(rows[0]), rows)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Writes everything as JSON, histograms and their edges included, atomically.

        Infinities and NaN, which JSON lacks, are the strings "inf", "-inf" and "nan".
        """
        rows = [_row_values(row, histograms=True) for row in self.rows]
        kinds = {h.kind for r in self.rows for h in _histograms(r.total).values()}
        content = {
            "examples": self.examples,
            "notes": list(self.notes),
            "rows": rows,
            "edges": {kind: edges(kind).tolist() for kind in sorted(kinds)},
        }
        write_json(path, content)

    def to_html(self, path: str | os.PathLike[str], *, command: str | None = None) -> None:
        """Writes an HTML page with charts and all tensors, atomically.

        Args:
          path: the path of the file.
          command: the command that made the comparison, for the page's footer.

        Raises:
          ImportError: matplotlib, which the charts need, is not installed.
          OSError: the file cannot be written.
        """
        from tosajax.viz.comparison import comparison_page

        write_text(path, comparison_page(self, command))

    def to_model_explorer(
        self, path: str | os.PathLike[str], graph: Graph | None = None, column: str = "sqnr"
    ) -> None:
        """Writes node data that Model Explorer overlays on the graph of a, atomically.

        Args:
          path: the path of the JSON file.
          graph: a, as read from its file; required for .tosa files, whose nodes have no names.
          column: the number to show; see `viz.node_data`, also on how nodes are found.

        Raises:
          KeyError: there is no such column.
          OSError: the file cannot be written.
        """
        from tosajax.viz.model_explorer import node_data

        write_json(path, node_data(self, column, graph))


def _cells(row: Row, with_local: bool) -> list[str]:
    m = row.total
    local = ["", ""]
    if row.local:
        local = [f"{100 * row.local.share:.4f}", f"{row.local.sqnr:.1f}"]
    return [
        html.shortened(row.tensor, _NAME), row.operator, row.dtype, f"{m.elements:,}",
        f"{100 * m.share:.4f}", _brief(m.max_error), _brief(m.mean_abs_error), f"{m.sqnr:.1f}",
        f"{m.cosine:.5f}", *(local if with_local else ()), html.shortened(row.location, _NAME),
    ]  # fmt: skip


def _brief(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**6 else f"{value:.3g}"


def _row_values(row: Row, *, histograms: bool) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "tensor": row.tensor,
        "other": row.other,
        "operator": row.operator,
        "location": row.location,
        "dtype": row.dtype,
        "is_output": row.is_output,
        "as_real": row.as_real,
        "within": row.is_within,
        "allowed_error": row.allowed.error,
    }
    plain |= _measured_values(row.total, "")
    if row.local:
        plain |= _measured_values(row.local, "local_")
    if histograms:
        plain["histograms"] = {
            name: dataclasses.asdict(h) for name, h in _histograms(row.total).items()
        }
    return plain


def _measured_values(m: Measured, prefix: str) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(m):
        value = getattr(m, field.name)
        if field.name.startswith("range_"):
            side = field.name.removeprefix("range_")
            low, high = value or (None, None)
            plain |= {f"{prefix}min_{side}": low, f"{prefix}max_{side}": high}
        elif field.name == "first":
            plain[f"{prefix}first"] = None if value is None else " ".join(map(str, value))
        elif not isinstance(value, Histogram):
            plain[prefix + field.name] = value
    return plain


def _histograms(m: Measured) -> dict[str, Histogram]:
    return {"values_a": m.values_a, "values_b": m.values_b, "errors": m.errors}
