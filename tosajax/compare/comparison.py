"""What a comparison has found: a row for each tensor, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
from typing import Any

from tosajax import html
from tosajax.atomic import replacing
from tosajax.compare.measure import Histogram, Measured, edges
from tosajax.compare.tolerance import EQUAL, Allowed
from tosajax.graph import Graph

_LINES = 60  # of a table
_HEAD = (
    f"{'tensor':32} {'operator':16} {'type':8} {'elements':>11} {'differ %':>9} {'max':>9} "
    f"{'mean':>9} {'SQNR':>6} {'cosine':>8}"
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor in both programs.

    Args:
      tensor: its name in a.
      other: its name in b.
      operator: what computes it in a.
      location: where that comes from, in the user's words; "" where the file does not say.
      dtype: its element type in a.
      is_output: whether it is an output of the graph.
      as_real: whether integers were compared as the real numbers they stand for.
      total: how the values differ, by all that comes before and by the operator.
      local: how they differ by what lies between this tensor and the ones of other rows before
        it: a, given b's values of those, beside b. None where that was not asked for.
      allowed: how far `total` may be off.
      allowed_local: how far `local` may be.
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
        """Whether the tensor is equal, or within the tolerance."""
        return self.allowed.holds(self.total)

    @property
    def is_local_within(self) -> bool:
        """Whether the layer by itself is, if that is known."""
        return self.local is None or self.allowed_local.holds(self.local)

    def __repr__(self) -> str:
        m = self.total
        return (
            f"Row({self.operator} {html.quoted(self.tensor)}, {self.dtype}, {m.mismatches} of "
            f"{m.elements} elements differ, by up to {m.max_error:g}, SQNR {m.sqnr:.1f} dB)"
        )

    @property
    def title(self) -> str:
        """How messages name the row: operator, tensor, and where it comes from."""
        place = f" ({self.location})" if self.location else ""
        return f"{self.operator} {self.tensor!r}{place}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Every tensor that two programs share, in the order in which they are computed.

    Args:
      rows: one for each tensor.
      examples: how many were run.
      names: what a and b are, for pages; "" where that is not known.
    """

    rows: tuple[Row, ...]
    examples: int
    names: tuple[str, str] = ("", "")

    @property
    def first_divergent(self) -> Row | None:
        """The earliest tensor that differs by more than the tolerance."""
        return next((r for r in self.rows if not r.is_within), None)

    @property
    def worst(self) -> Row | None:
        """The tensor with the lowest SQNR, by itself where local errors are known."""
        measured = [(r.local or r.total, r) for r in self.rows]
        found = [(m.sqnr, r) for m, r in measured if m.mismatches]
        return min(found, key=lambda pair: pair[0])[1] if found else None

    @property
    def outputs(self) -> tuple[Row, ...]:
        """The rows of the graph's outputs."""
        return tuple(r for r in self.rows if r.is_output)

    def __bool__(self) -> bool:
        """Whether all tensors are equal, or within the tolerance."""
        return self.first_divergent is None

    def __str__(self) -> str:
        """A table of tensors beyond the tolerance, and which is the first and the worst."""
        differ = [r for r in self.rows if not (r.is_within and r.is_local_within)]
        text = self._summary()
        if not differ:
            return text
        with_local = any(r.local for r in self.rows)
        head = f"{_HEAD} {'local %':>8} {'local':>6}" if with_local else _HEAD
        lines = [f"{head}  location", *map(_line, differ[:_LINES])]
        if len(differ) > _LINES:
            lines.append(f"and {len(differ) - _LINES} more")
        if self.first_divergent:
            lines.append(f"first divergent: {self.first_divergent.title}")
        if self.worst:
            kind = "worst by itself" if with_local else "worst"
            measured = self.worst.local or self.worst.total
            lines.append(f"{kind}: {self.worst.title}, {measured.sqnr:.1f} dB")
        return "\n".join([*lines, text])

    def _summary(self) -> str:
        equal = sum(not r.total.mismatches for r in self.rows)
        within = sum(r.is_within for r in self.rows)
        found = f"{equal} of {len(self.rows)} tensors are equal"
        if within > equal:
            found = f"{within} of {len(self.rows)} tensors are within tolerance, {equal} are equal"
        return f"{found}, on {self.examples} examples"

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
        """One flat dictionary of plain values a tensor, without the histograms."""
        return [_plain(row, histograms=False) for row in self.rows]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_rows` as CSV, whole or not at all."""
        rows = self.to_rows()
        with replacing(path, "w") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Writes everything as JSON, histograms and their edges included, whole or not at all.

        JSON has no infinity and no NaN: they are the strings "inf", "-inf" and "nan".
        """
        rows = [_plain(row, histograms=True) for row in self.rows]
        kinds = {h.kind for r in self.rows for h in _histograms(r.total).values()}
        content = {
            "examples": self.examples,
            "rows": rows,
            "edges": {kind: edges(kind).tolist() for kind in sorted(kinds)},
        }
        with replacing(path, "w") as file:
            json.dump(_finite(content), file, indent=1, allow_nan=False)

    def to_html(self, path: str | os.PathLike[str], *, command: str | None = None) -> None:
        """Writes a page to look at, with charts and all tensors, whole or not at all.

        Args:
          path: of the file.
          command: what made the comparison, for the page's foot.

        Raises:
          ImportError: matplotlib is not installed, which the charts need.
          OSError: the file cannot be written.
        """
        from tosajax.viz.comparison import comparison_page

        page = comparison_page(self, command)
        with replacing(path, "w") as file:
            file.write(page)

    def to_model_explorer(
        self, path: str | os.PathLike[str], graph: Graph | None = None, column: str = "sqnr"
    ) -> None:
        """Writes what Model Explorer lays over the graph of a, whole or not at all.

        Args:
          path: of a JSON file.
          graph: a, as it was read from its file; needed for .tosa files, whose nodes have no names.
          column: which number; see `viz.node_data`, which also says how nodes are found.

        Raises:
          KeyError: there is no such column.
          OSError: the file cannot be written.
        """
        from tosajax.viz.model_explorer import node_data

        content = node_data(self, column, graph)
        with replacing(path, "w") as file:
            json.dump(content, file, indent=1, allow_nan=False)


def _line(row: Row) -> str:
    name = row.tensor if len(row.tensor) <= 32 else f"...{row.tensor[-29:]}"
    m = row.total
    line = (
        f"{name:32} {row.operator:16.16} {row.dtype:8} {m.elements:11,} {100 * m.share:9.4f} "
        f"{_short(m.max_error):>9} {_short(m.mean_abs_error):>9} {m.sqnr:6.1f} {m.cosine:8.5f}"
    )
    if row.local:
        line += f" {100 * row.local.share:8.4f} {row.local.sqnr:6.1f}"
    place = row.location if len(row.location) <= 60 else f"{row.location[:57]}..."
    return f"{line}  {place}".rstrip()


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**6 else f"{value:.3g}"


def _plain(row: Row, *, histograms: bool) -> dict[str, Any]:
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
    plain |= _numbers(row.total, "")
    if row.local:
        plain |= _numbers(row.local, "local_")
    if histograms:
        plain["histograms"] = {
            name: dataclasses.asdict(h) for name, h in _histograms(row.total).items()
        }
    return plain


def _numbers(m: Measured, prefix: str) -> dict[str, Any]:
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


def _finite(value: Any) -> Any:
    """The same with strings for floats that JSON has no words for."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
