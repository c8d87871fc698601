"""The page of `quant.auto`: what was tried, what each remedy gained, and what is left."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tosajax import html
from tosajax.viz import charts
from tosajax.viz.pages import page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tosajax.quant import Auto, Remedy

_HEAD = ("remedy", "seconds", "SQNR (dB)", "held back (dB)", "score", "kept", "note")
_NOTE = (
    "Each remedy is added to those that were kept before it. SQNR: signal to quantization noise of "
    "the integers, before a final softmax; on the examples that choose, and on those held back."
)
_KEPT = charts.COLOURS[0]
_LEFT = "Tensors in INT8 whose lift to INT16 would help most, beyond the budget."


def auto_page(result: Auto, command: str | None = None) -> str:
    """A page: the result, a chart and a table of the remedies, the outputs, and what is left.

    Args:
      result: the result of `quant.auto`.
      command: the command that made it, for the page's footer.

    Returns:
      An HTML document that needs no other file.

    Raises:
      ImportError: matplotlib is not installed.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant, viz
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1], [2, 0.5]])
      >>> result = quant.auto(lambda x: x @ w, [example], example_args=[example])
      >>> viz.auto_page(result)[:15]
      '<!DOCTYPE html>'
    """
    charts.check_installed()
    facts = [(term, html.text(value)) for term, value in result.summary()]
    tried = _chart(result.remedies) + html.note(_NOTE)
    tried += html.table(_HEAD, map(_cells, result.remedies), sortable=True, named_by=0)
    outputs = [[name, *map(_decibels, pair)] for name, pair in result.outputs.items()]
    head = ("output", "by defaults (dB)", "now (dB)")
    sections = [
        ("Result", html.definitions(facts)),
        ("Remedies", tried),
        ("Outputs", html.table(head, outputs, sortable=True, named_by=0)),
    ]
    if result.lifted:
        rows = [[name] for name in result.lifted]
        sections.append(("In INT16", html.table(("tensor",), rows, sortable=True, named_by=0)))
    if result.left:
        rows = [[name, _decibels(sqnr)] for name, sqnr in result.left.items()]
        table = html.table(("tensor", "SQNR then (dB)"), rows, sortable=True, named_by=0)
        sections.append(("What is left", html.note(_LEFT) + table))
    return page("Quantization by quant.auto", sections, command=command)


def _cells(remedy: Remedy) -> list[object]:
    score = None if remedy.score is None else html.Cell(f"{remedy.score:.6g}", remedy.score)
    seconds = html.Cell(f"{remedy.seconds:.1f}", remedy.seconds)
    sqnrs = map(_decibels, (remedy.sqnr, remedy.held_back))
    return [remedy.name, seconds, *sqnrs, score, "yes" if remedy.is_kept else "no", remedy.note]


def _decibels(value: float) -> html.Cell | None:
    """None of a remedy that raised an error."""
    return None if value == -math.inf else html.Cell(f"{value:.2f}", value)


def _chart(remedies: tuple[Remedy, ...]) -> str:
    """SQNR on the held-back examples after each remedy, marked where it was kept."""

    def paint(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        drawn = [(n, r) for n, r in enumerate(remedies) if math.isfinite(r.held_back)]
        for is_kept, marker, colour in ((True, "o", _KEPT), (False, "x", charts.GREY)):
            at = [n for n, remedy in drawn if remedy.is_kept is is_kept]
            values = [remedies[n].held_back for n in at]
            label = "kept" if is_kept else "not kept"
            axes.plot(at, values, marker, color=colour, markersize=7, label=label)
        levels = [(n, remedy.held_back) for n, remedy in drawn if remedy.is_kept]
        if levels:
            levels.append((len(remedies) - 1, levels[-1][1]))
            axes.step(*zip(*levels, strict=True), where="post", color=_KEPT, linewidth=1)
        charts.name_axis(axes, [remedy.name for remedy in remedies], narrow)
        axes.set_ylabel("SQNR of held-back examples (dB)")
        axes.legend()

    kept = [remedy for remedy in remedies if remedy.is_kept]
    about = f"{len(kept)} of {len(remedies)} were kept. The table below has the numbers."
    return charts.chart("SQNR after each remedy", about, paint, wide=(9.5, 4.6), narrow=(5.0, 4.6))
