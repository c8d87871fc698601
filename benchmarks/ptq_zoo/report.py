"""The results of the study as tables in Markdown, and judged by its targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.ptq_zoo.networks import NETWORKS
from benchmarks.ptq_zoo.schemes import PEER, SCHEMES
from benchmarks.targets import Target, Verdict

Rows = Mapping[str, Mapping[str, Any]]
_JUDGED = next(iter(SCHEMES))
_AUTO = "auto"
_LEAST_NETWORKS = 8
# dB between the float graph and its file: below, the converter made another network of it.
_LEAST_CONVERSION = 60
_SEARCHES = tuple(name for name, scheme in SCHEMES.items() if scheme.budget is not None)

TARGETS = (
    Target(
        "networks that W8A8 runs",
        lambda rows: len(_of_scheme(rows, _JUDGED)),
        _LEAST_NETWORKS,
        unit="networks",
    ),
    Target(
        "W8A8 against the peer, the worst network",
        lambda rows: min(leads(rows), default=None),
        0,
        unit="dB",
    ),
    Target(
        "W8A8 against the peer, the mean of networks",
        lambda rows: float(np.mean(leads(rows))) if leads(rows) else None,
        3,
        unit="dB",
    ),
    Target(
        "networks whose answers by auto are not those in floats",
        lambda rows: len(missed) if (missed := missed_tasks(rows)) is not None else None,
        0,
        unit="networks",
        at_most=True,
    ),
    Target(
        "multiply-accumulates in INT16 by auto, the largest share",
        lambda rows: max(
            (row["wide_macs"] for row in _of_scheme(rows, _AUTO).values()), default=None
        ),
        0.1,
        at_most=True,
    ),
    Target(
        "search by auto, the longest",
        lambda rows: max((row["seconds"]["search"] for row in _searches(rows)), default=None),
        600,
        unit="s",
        at_most=True,
    ),
    Target(
        "memory of a process that searches, the largest",
        lambda rows: max(filter(None, (r.get("peak_mib") for r in _searches(rows))), default=None),
        4e9 / 2**20,
        unit="MiB",
        at_most=True,
    ),
    Target(
        "integers that differ from Arm's model",
        lambda rows: mismatches(rows),
        0,
        unit="integers",
        at_most=True,
    ),
)


def judge(rows: Rows) -> list[Verdict]:
    """Every target, in the order of the table."""
    return [target.judge(rows) for target in TARGETS]


def leads(rows: Rows) -> list[float]:
    """How many dB W8A8 is ahead of the peer, the mean of all outputs, of each network both run."""
    own, theirs = (_of_scheme(rows, scheme) for scheme in (_JUDGED, PEER))
    return [
        float(np.mean(own[name]["sqnr"]) - np.mean(theirs[name]["sqnr"]))
        for name in own
        if name in theirs
    ]


def missed_tasks(rows: Rows) -> list[str] | None:
    """The networks whose answers miss their target with `quant.auto`; None if none was measured."""
    own = {name: row for name, row in _of_scheme(rows, _AUTO).items() if "task" in row}
    measured = {name: (NETWORKS[name].task, row["task"]) for name, row in own.items()}
    missed = [name for name, (task, value) in measured.items() if task and not task.is_met(value)]
    return missed if measured else None


def _searches(rows: Rows) -> list[Mapping[str, Any]]:
    """The rows of `quant.auto`, of whatever types."""
    return [row for scheme in _SEARCHES for row in _of_scheme(rows, scheme).values()]


def mismatches(rows: Rows) -> int | None:
    """The integers that differ from Arm's model, in all rows; None if none were compared."""
    counts = [row["mismatches"] for row in rows.values() if "mismatches" in row]
    return sum(counts) if counts else None


def accuracy_table(rows: Rows) -> str:
    """SQNR in dB of each output, and how near answers are to those in floats (`tasks`)."""
    schemes = _names(rows, 1)
    lines = []
    for network in _names(rows, 0):
        own = [rows.get(f"{network}/{scheme}", {}) for scheme in schemes]
        first = next((row for row in own if "conversion" in row), {})
        cells = [network, _decibels(first.get("conversion", []))]
        cells += [_accuracy(network, row) for row in own]
        compared = [row for row in own if "mismatches" in row]
        differ, of = (sum(row[key] for row in compared) for key in ("mismatches", "elements"))
        lines.append([*cells, f"{differ} of {of:,}" if compared else ""])
    return _table(["network", "conversion", *schemes, "differ from Arm"], lines)


def time_table(rows: Rows) -> str:
    """Seconds of each stage, and the peak memory."""
    stages = list(dict.fromkeys(name for row in rows.values() for name in row["seconds"]))
    lines = []
    for name, row in rows.items():
        seconds = [row["seconds"].get(stage) for stage in stages]
        peak = row.get("peak_mib")
        cells = ["" if s is None else f"{s:.1f}" for s in seconds]
        lines.append([name, *cells, "" if peak is None else f"{peak:.0f}"])
    return _table(["seconds", *stages, "peak MiB"], lines)


def remedies_table(rows: Rows) -> str:
    """What `quant.auto` tried: seconds, SQNR on examples held back, kept or not."""
    lines = [
        [
            network,
            remedy["name"],
            f"{remedy['seconds']:.1f}",
            f"{float(remedy['held_back']):.1f}",  # a string if infinite, as JSON has it
            "yes" if remedy["is_kept"] else "no",
            remedy["note"],
        ]
        for network, row in rows.items()
        for remedy in row.get("remedies", ())
    ]
    head = ["network", "remedy", "seconds", "SQNR", "kept", "note"]
    return _table(head, lines) if lines else ""


def errors(rows: Rows) -> str:
    """What each network did not survive."""
    lines = [
        [name, row.get("stage", ""), row["error"]] for name, row in rows.items() if "error" in row
    ]
    return _table(["failed", "stage", "error"], lines) if lines else ""


def _of_scheme(rows: Rows, scheme: str) -> dict[str, Mapping[str, Any]]:
    """Rows with accuracies by network, of networks that were converted as they are."""
    measured = {name: row for name, row in rows.items() if "sqnr" in row}
    pairs = (
        (name.rsplit("/", 1), row)
        for name, row in measured.items()
        if min(row.get("conversion", [_LEAST_CONVERSION])) >= _LEAST_CONVERSION
    )
    return {network: row for (network, own), row in pairs if own == scheme}


def _names(rows: Rows, at: int) -> list[str]:
    return list(dict.fromkeys(name.rsplit("/", 1)[at] for name in rows))


def _accuracy(network: str, row: Mapping[str, Any]) -> str:
    if "sqnr" not in row:
        return f"failed: {row['stage']}" if "error" in row else ""
    task = NETWORKS[network].task if network in NETWORKS else None
    answers = f", {task.name} {row['task']:.2%}" if task is not None and "task" in row else ""
    return f"{_decibels(row['sqnr'])}{answers}"


def _decibels(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
