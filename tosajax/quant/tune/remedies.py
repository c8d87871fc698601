"""What `auto` tried and what it made: the result, as text, JSON and HTML."""

from __future__ import annotations

import dataclasses
import os
import textwrap

import numpy as np

from tosajax import html
from tosajax.atomic import write_json, write_text
from tosajax.graph import Graph
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import PreparedModel


@dataclasses.dataclass(frozen=True)
class Remedy:
    """One remedy that `auto` tried.

    Args:
      name: what was done.
      seconds: that it took.
      sqnr: signal to quantization noise with it, in dB, on examples that it was chosen by, of which
        each counts alike; of the outputs, before a final softmax or other elementwise functions.
        Ranges are measured on each half of the examples with those of all others; "all examples
        seen" is what was chosen, with the ranges of all.
      held_back: the same on other examples, which have a say only in the set of INT16 tensors.
      score: the user's metric; None without one.
      is_kept: whether the result has it.
      note: details, as how many tensors changed; or the error that it raised.

    Example:
      >>> from tosajax import quant
      >>> quant.Remedy("equalize", 2.5, sqnr=31.2, held_back=30.8, score=None, is_kept=True).name
      'equalize'
    """

    name: str
    seconds: float
    sqnr: float
    held_back: float
    score: float | None
    is_kept: bool
    note: str = ""


@dataclasses.dataclass(frozen=True, repr=False)
class Auto:
    """The result of `auto`.

    Args:
      model: the model; with `params` it can be trained, reported on and tuned further.
      params: its parameters.
      graph: the frozen graph, to save and to ship.
      remedies: all that was tried, the defaults first.
      outputs: the SQNR of each output in dB on held-back examples: by defaults, and now.
      lifted: the tensors in INT16 where the rules ask for INT8.
      wide_macs: the share of multiply-accumulates that read them.
      left: tensors whose lift to INT16 would still help most, with the SQNR that it would give.
      observers: the kind of range of each tensor that has another one than by default.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1], [2, 0.5]])
      >>> result = quant.auto(lambda x: x @ w, [example], example_args=[example])
      >>> result.remedies[0].name, result.lifted
      ('defaults', ())
    """

    model: PreparedModel
    params: Params
    graph: Graph
    remedies: tuple[Remedy, ...]
    outputs: dict[str, tuple[float, float]]
    lifted: tuple[str, ...] = ()
    wide_macs: float = 0.0
    left: dict[str, float] = dataclasses.field(default_factory=dict)
    observers: dict[str, str] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Auto({', '.join(f'{label} {value}' for label, value in self.summary())})"

    def __str__(self) -> str:
        """The result, the remedies in the order of trial, the outputs, and what is left."""
        lines = [repr(self), f"{'remedy':28} {'seconds':>8} {'SQNR':>7} {'held back':>10}  kept"]
        for r in self.remedies:
            score = "" if r.score is None else f"  {r.score:.6g}"
            lines.append(
                f"{r.name:28} {r.seconds:8.1f} {r.sqnr:7.2f} {r.held_back:10.2f}  "
                f"{'yes' if r.is_kept else 'no':4}{score}  {r.note}".rstrip()
            )
        for name, (before, after) in self.outputs.items():
            lines.append(f"output {name}: {before:.2f} dB by defaults, {after:.2f} dB now")
        if self.lifted:
            names = f"lifted to INT16: {', '.join(self.lifted)}"
            lines += textwrap.wrap(names, 100, subsequent_indent="  ", break_on_hyphens=False)
        lines += [f"left: {name} in INT16 would give {db:.2f} dB" for name, db in self.left.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = [field.name.replace("_", " ") for field in dataclasses.fields(Remedy)]
        rows = [list(dataclasses.astuple(remedy)) for remedy in self.remedies]
        return html.box("Auto", self.summary(), head, rows, noun="remedy", named_by=0)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Writes all but the model, its parameters and the graph as JSON, atomically.

        Infinities, which JSON lacks, are the strings "inf" and "-inf".
        """
        parts = ("remedies", "outputs", "lifted", "wide_macs", "left")
        content = {name: getattr(self, name) for name in parts}
        remedies = [dataclasses.asdict(remedy) for remedy in self.remedies]
        write_json(path, {**content, "remedies": remedies})

    def to_html(self, path: str | os.PathLike[str], *, command: str | None = None) -> None:
        """Writes an HTML page with a chart and all remedies, atomically.

        Args:
          path: the path of the file.
          command: the command that made the result, for the page's footer.

        Raises:
          ImportError: matplotlib, which the chart needs, is not installed.
          OSError: the file cannot be written.
        """
        from tosajax.viz.automatic import auto_page

        write_text(path, auto_page(self, command))

    def summary(self) -> list[tuple[str, str]]:
        """What was gained, lifted and spent: pairs of a word and a text."""
        before, after = np.mean(list(self.outputs.values()), axis=0)
        seconds = sum(remedy.seconds for remedy in self.remedies)
        return [
            ("SQNR", f"{before:.2f} to {after:.2f} dB, the mean of outputs on held-back examples"),
            ("lifted", f"{html.counted(len(self.lifted), 'tensor')}, {self.wide_macs:.1%} of MACs"),
            ("seconds", f"{seconds:.0f}"),
        ]
