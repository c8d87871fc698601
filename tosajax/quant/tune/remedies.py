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
from tosajax.vela import Estimate


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


@dataclasses.dataclass(frozen=True)
class Spent:
    """What a result takes of the processor that runs it: by defaults, and now.

    Args:
      arena_bytes: of activations at once, those of one batch of the graph, without striping.
      cycles: of the target, without those that wait for memory; None without a target.
      npu: the name of the target if it is an NPU.
      errors: of the graph, by `validate` for the NPU.
      vela: Vela's own estimate of the graph, where it is installed.

    Example:
      >>> from tosajax import quant
      >>> print(quant.Spent((262144, 294912), (1_000_000, 1_040_000), "ethos-u85-256"))
      288 KiB of activations (256 by defaults), 1,040,000 cycles of ethos-u85-256 (+4.0%)
    """

    arena_bytes: tuple[int, int] = (0, 0)
    cycles: tuple[int, int] | None = None
    npu: str | None = None
    errors: int = 0
    vela: Estimate | None = None

    def __str__(self) -> str:
        before, after = (f"{size / 1024:,.4g}" for size in self.arena_bytes)
        texts = [f"{after} KiB of activations ({before} by defaults)"]
        if self.cycles is not None:
            more = self.cycles[1] / max(1, self.cycles[0]) - 1
            processor = self.npu or "the target"
            texts.append(f"{self.cycles[1]:,} cycles of {processor} ({more:+.1%})")
        if self.errors:
            texts.append(f"{html.counted(self.errors, 'error')} by `tosajax check`")
        if self.vela is not None:
            texts.append(f"by Vela {self.vela}")
        return ", ".join(texts)


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
      spent: what the graph takes of the processor that runs it.

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
    spent: Spent = Spent()

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
        content["spent"] = dataclasses.asdict(self.spent)
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
            ("takes", str(self.spent)),
            ("seconds", f"{seconds:.0f}"),
        ]
