"""The rows of `benchmarks.zoo` as text, and their targets."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.report import machine_lines, result
from benchmarks.targets import Target, Verdict
from benchmarks.zoo.worker import OURS

_HEAD = """# Networks that others made

Made by `python -m benchmarks.zoo FOLDER -o docs/zoo.md`; not to be edited. Files as their authors
published them; `.tflite` runs beside LiteRT with XNNPACK, `.onnx` beside onnxruntime, both with as
many threads as there are cores. A ratio is the peer's time divided by that of tosajax: the median
of rounds in which both take turns within one process, with the quartiles in brackets. A peer that
cannot resize its batch runs examples one by one. Before anything was timed, integers were compared
with Arm's reference model, bit by bit, and floats with the peer's. A network of integers with
parts in floats has an error beside the peer where random inputs leave its answers to chance. The
first result is the time of a process, from its start: ours converts the file.
"""
Rows = Mapping[str, Mapping[str, Any]]


def line(name: str, row: Mapping[str, Any]) -> str:
    """A row in a line, as it was measured."""
    if "error" in row:
        return f"{name}: {row['error']}"
    parts = [_bits(row), f"{row['native']} of {row['products']} products native"]
    for key, timed in row.items():
        if key.startswith("batch"):
            parts.append(f"{key}: {_time(timed)}, ratio {_ratio(timed)}")
    return f"{name}: {'; '.join(filter(None, parts))}"


def page(rows: Rows, batches: Sequence[int], verdicts: Sequence[Verdict]) -> str:
    """A page in Markdown: what was measured, where, and the targets."""
    date = datetime.datetime.now(tz=datetime.UTC).date()
    targets = [f"| {v.target.name} | {result(v)} |" for v in verdicts]
    parts = [
        _HEAD,
        f"## Machine, {date}\n",
        *(f"- {text}" for text in machine_lines(machine.describe())),
        "\n## Networks\n",
        table(rows, batches),
        *(f"\n{line(name, row)}" for name, row in rows.items() if "error" in row),
        "\n## Targets\n",
        "| target | |",
        "|---|---|",
        *targets,
        "",
    ]
    return "\n".join(parts)


def table(rows: Rows, batches: Sequence[int]) -> str:
    """The networks as a table in Markdown."""
    heads = ["network", "type", "bits", "native products"]
    for count in batches:
        heads += [f"{count} image{'s' * (count > 1)}", "ratio"]
    heads += ["first result, peer's"] * any("first" in row for row in rows.values())
    lines = [heads, ["---"] * len(heads)]
    for name, row in rows.items():
        if "error" in row:
            continue
        kind = "float" if row["is_float"] else "integer"
        cells = [name, kind, _bits(row), f"{row['native']}/{row['products']}"]
        for count in batches:
            timed = row.get(f"batch {count}", {})
            cells += [_time(timed), _ratio(timed)]
        if len(heads) > len(cells):
            cells.append(", ".join(f"{s:.1f} s" for s in row.get("first", {}).values()))
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _bits(row: Mapping[str, Any]) -> str:
    if "mismatches" in row:
        return "same bits" if not row["mismatches"] else f"{row['mismatches']} differ"
    errors = row.get("error of outputs")
    return f"error {max(errors):.0e}" if errors else ""


def _time(timed: Mapping[str, Any]) -> str:
    return f"{timed[OURS]['seconds'] * 1e3:.3g} ms" if OURS in timed else ""


def _ratio(timed: Mapping[str, Any]) -> str:
    if "peer" not in timed:
        return ""
    low, median, high = timed["peer"]["ratio"]
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def _ratios(rows: Rows, batch: int, *, is_float: bool) -> dict[str, float]:
    """The ratios of the networks of a type, by name."""
    key = f"batch {batch}"
    return {
        name: row[key]["peer"]["ratio"][1]
        for name, row in rows.items()
        if "peer" in row.get(key, {}) and row["is_float"] == is_float
    }


def _least(batch: int, *, is_float: bool) -> Callable[[Rows], float | None]:
    return lambda rows: min(_ratios(rows, batch, is_float=is_float).values(), default=None)


def _mean(batch: int, *, is_float: bool) -> Callable[[Rows], float | None]:
    """The geometric mean."""

    def find(rows: Rows) -> float | None:
        found = list(_ratios(rows, batch, is_float=is_float).values())
        return math.exp(sum(map(math.log, found)) / len(found)) if found else None

    return find


def _mismatches(rows: Rows) -> float | None:
    found = [row["mismatches"] for row in rows.values() if "mismatches" in row]
    return float(sum(found)) if found else None


def _failures(rows: Rows) -> float:
    return float(sum("error" in row for row in rows.values()))


def judge(rows: Rows) -> list[Verdict]:
    """Every target, in the order of the table."""
    is_avx2 = machine.kind(machine.describe()) == "AVX2"
    of_16, mean_of_16 = (1.0, 1.3) if is_avx2 else (1.1, 1.4)
    ours = [
        Target("networks that failed", _failures, 0, unit="", at_most=True),
        Target("integers that differ from Arm's", _mismatches, 0, unit="", at_most=True),
        Target("integers, 1 image, the least", _least(1, is_float=False), 0.9),
        Target("integers, 1 image, mean", _mean(1, is_float=False), 1.1),
        Target("integers, 16 images, the least", _least(16, is_float=False), of_16),
        Target("integers, 16 images, mean", _mean(16, is_float=False), mean_of_16),
        Target("floats, 1 image, the least", _least(1, is_float=True), 0.8),
        Target("floats, 1 image, mean", _mean(1, is_float=True), 1.0),
        Target("floats, 16 images, mean", _mean(16, is_float=True), 1.0),
    ]
    return [target.judge(rows) for target in ours]
