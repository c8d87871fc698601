"""The results of `benchmarks.quant_study` as a table, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

# Rows by "network/seed/float" and "network/seed/setting/way".
Rows = Mapping[str, Mapping[str, Any]]
WAYS = ("nearest", "learned", "fake", "exact")
_TITLES = {
    "nearest": "rounded to nearest",
    "learned": "reconstructed by blocks",
    "fake": "fake-quantized training, converted",
    "exact": "exact training",
}


def table(rows: Rows) -> str:
    """Accuracies in percent in Markdown, each the mean of the seeds, plus or minus their spread."""
    head = [
        "network",
        "bits",
        *(_TITLES[way] for way in WAYS),
        "before conversion",
        "changed by it",
    ]
    head.append("integers that differ")
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for network in _parts(rows, 0):
        floats = _values(rows, network, "float", "accuracy")
        lines.append("| " + " | ".join([network, "float", _percent(floats)]) + " |" * 7)
        for setting in _settings(rows, network):
            keys = [*((way, "accuracy") for way in WAYS), ("fake", "before"), ("fake", "changed")]
            cells = [
                _percent(_values(rows, network, f"{setting}/{w}", key), len(floats))
                for w, key in keys
            ]
            cells.append(_identity(rows, network, setting))
            lines.append("| " + " | ".join([network, setting, *cells]) + " |")
    return "\n".join(lines)


def plot(rows: Rows, best: float, path: Path) -> None:
    """A picture of the accuracies, a panel for each network.

    Args:
      rows: from the study.
      best: the accuracy that is possible.
      path: of a PNG or SVG file.
    """
    from matplotlib.figure import Figure

    networks = _parts(rows, 0)
    figure = Figure((5 * len(networks), 4), layout="constrained")
    panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    for panel, network in zip(panels, networks, strict=True):
        settings = _settings(rows, network)
        floats = _values(rows, network, "float", "accuracy")
        labels = [setting.replace(" ", "\n") for setting in settings]
        for way, marker in zip(WAYS, "vs^o", strict=True):
            found = [_values(rows, network, f"{s}/{way}", "accuracy") for s in settings]
            # Seeds differ by more than ways: a mean of some is not beside one of all.
            means = [100 * np.mean(v) if v and len(v) >= len(floats) else np.nan for v in found]
            panel.plot(labels, means, marker=marker, label=_TITLES[way])
        if floats:
            panel.axhline(100 * np.mean(floats), color="gray", ls="--", label="float32")
        panel.axhline(100 * best, color="black", ls=":", label="the best possible")
        panel.set(title=network, ylim=(0, 100))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy of the integer graph, %")
    panels[0].legend(loc="lower left", fontsize=8)
    figure.savefig(path, dpi=150)


def _parts(rows: Rows, at: int) -> list[str]:
    return list(dict.fromkeys(name.split("/")[at] for name in rows))


def _settings(rows: Rows, network: str) -> list[str]:
    names = [name.split("/") for name in rows]
    return list(dict.fromkeys(n[2] for n in names if n[0] == network and len(n) == 4))


def _values(rows: Rows, network: str, row: str, key: str) -> list[float]:
    """Of all seeds."""
    found = [(name.split("/", 2), values) for name, values in rows.items()]
    return [values[key] for (own, _, rest), values in found if (own, rest) == (network, row)]


def _percent(shares: list[float], seeds: int = 0) -> str:
    """The mean and its spread; how many seeds it is of, if there are more."""
    if not shares:
        return ""
    spread = f" ± {100 * np.std(shares, ddof=1):.1f}" if len(shares) > 1 else ""
    found = f" ({len(shares)} of {seeds} seeds)" if len(shares) < seeds else ""
    return f"{100 * np.mean(shares):.1f}{spread}{found}"


def _identity(rows: Rows, network: str, setting: str) -> str:
    elements, mismatches = (
        sum(_values(rows, network, f"{setting}/exact", key)) for key in ("elements", "mismatches")
    )
    return f"{mismatches} of {elements / 1e6:.0f} M" if elements else ""
