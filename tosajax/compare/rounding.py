"""Finds the rounding of RESCALE that a runtime uses, by comparing a graph in each rounding."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

import numpy as np

from tosajax import html, rewrite
from tosajax.compare.comparison import Comparison
from tosajax.compare.examples import example_rows
from tosajax.compare.pairs import Pairs
from tosajax.compare.programs import Other, named, program
from tosajax.graph import Graph
from tosajax.passes.binding import bind
from tosajax.runtime.rows import Progress, in_parts, silent
from tosajax.runtime.watch import Watch, computed_outputs

AS_IT_IS = "as it is"
_TIMES = {"single": "once", "double": "twice"}


@dataclasses.dataclass(frozen=True)
class RoundingTable:
    """Comparisons of a graph's outputs with references, for each rounding of its RESCALEs.

    Args:
      comparisons: comparisons by rounding ("as it is", "single" or "double") and name of the
        reference.

    Example:
      >>> import tosajax
      >>> from tosajax.compare import RoundingTable, compare
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> table = RoundingTable({("as it is", "itself"): compare(graph, graph)})
      >>> print(table)
      rounding          itself
      as it is          0.00 %
      itself equals the graph, whose RESCALEs cannot round twice
      >>> table.equal, table.answer("itself")
      ([('as it is', 'itself')], 'itself equals the graph, whose RESCALEs cannot round twice')
    """

    comparisons: Mapping[tuple[str, str], Comparison]

    @property
    def equal(self) -> list[tuple[str, str]]:
        """The pairs of rounding and reference that agree in every element."""
        return [pair for pair, comparison in self.comparisons.items() if comparison]

    def share(self, rounding: str, reference: str) -> float:
        """The share of output elements that differ."""
        rows = self.comparisons[rounding, reference].rows
        elements = sum(row.total.elements for row in rows)
        return sum(row.total.mismatches for row in rows) / max(1, elements)

    def __repr__(self) -> str:
        equal = html.listed([f"{mode} and {name}" for mode, name in self.equal]) or "none"
        return f"RoundingTable({len(self.comparisons)} comparisons, equal: {equal})"

    def __str__(self) -> str:
        """A table of the shares of elements that differ, then a sentence for each reference."""
        references = list(dict.fromkeys(name for _, name in self.comparisons))
        widths = {name: max(12, len(name)) for name in references}
        lines = [f"{'rounding':10}" + "".join(f"  {n:>{widths[n]}}" for n in references)]
        for rounding in dict.fromkeys(mode for mode, _ in self.comparisons):
            shares = (f"  {100 * self.share(rounding, n):{widths[n] - 2}.2f} %" for n in references)
            lines.append(f"{rounding:10}{''.join(shares)}")
        return "\n".join([*lines, *map(self.answer, references)])

    def answer(self, reference: str) -> str:
        """A sentence on how a reference rounds in RESCALE, or why the examples cannot tell.

        Raises:
          KeyError: there is no such reference.
        """
        shares = {
            mode: self.share(mode, reference)
            for mode, name in self.comparisons
            if name == reference
        }
        if not shares:
            raise KeyError(reference)
        equal = [mode for mode, share in shares.items() if share == 0]
        examples = self.comparisons[AS_IT_IS, reference].examples
        modes = [mode for mode in equal if mode != AS_IT_IS]
        if len(modes) == 2:
            return (
                f"{reference}: {html.counted(examples, 'example')} cannot tell: both roundings are "
                f"equal; give {max(32, 4 * examples)}"
            )
        if equal and "double" not in shares:
            return f"{reference} equals the graph, whose RESCALEs cannot round twice"
        if modes:
            own = ", as the graph does" if AS_IT_IS in equal else ""
            return f"{reference} rounds {_TIMES[modes[0]]} in RESCALE{own}"
        if equal:
            return f"{reference} equals the graph as it is, which rounds in more than one way"
        best = min(shares, key=lambda mode: shares[mode])
        return (
            f"{reference} equals none of these: {_rounding_phrase(best)} comes nearest, "
            f"{100 * shares[best]:.3g} % differ"
        )


def which_rounding(
    graph: Graph,
    references: Mapping[str, Other],
    *inputs: np.ndarray,
    batch: int = 32,
    examples: int = 16,
    seed: int = 0,
    clip: bool = False,
    progress: Progress = silent,
) -> RoundingTable:
    """Compares a graph as it is, and with every RESCALE rounding once or twice, with references.

    Args:
      graph: a graph with RESCALEs.
      references: programs to compare with, by a name for the table; see `compare`.
      inputs: the graph's inputs; random inputs if none are given.
      batch: the number of examples in a batch.
      examples: the number of random examples.
      seed: the seed of random examples.
      clip: whether to saturate real inputs silently, however many are out of the range of their
        scale; by default more than 1 % are an error, and fewer a warning.
      progress: wraps the loop over batches, given their number; its items have no meaning.

    Raises:
      ValueError: see `compare`; or the graph has no RESCALE.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> from tosajax.compare import which_rounding
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> graph = model.freeze(quant.calibrate(model, [example]))
      >>> table = which_rounding(graph, {"itself": graph})
      >>> ("single", "itself") in table.equal
      True
    """
    graph = bind(graph, batch=1)
    rows = example_rows(graph, inputs, examples, seed, clip=clip)
    count = len(rows[0]) if rows else 1
    size = min(batch, count)
    names = computed_outputs(graph)
    ours = {mode: Watch(g, names, size) for mode, g in _roundings(graph).items()}
    others = {name: program(named(b), graph, names, size, count) for name, b in references.items()}
    pairs = {
        (mode, name): Pairs(graph, other, names, {})
        for mode in ours
        for name, other in others.items()
    }
    for part in in_parts(rows, size, progress):
        mine = {mode: watch(part) for mode, watch in ours.items()}
        theirs = {name: other.run(part) for name, other in others.items()}
        for (mode, name), pair in pairs.items():
            pair.add(mine[mode], theirs[name])
    return RoundingTable({key: Comparison(pair.rows(), count) for key, pair in pairs.items()})


def _roundings(graph: Graph) -> dict[str, Graph]:
    """The graph in each rounding; "double" is left out if no RESCALE can round twice."""
    roundings = {AS_IT_IS: graph, "single": rewrite.rounding(graph, "single")}
    with contextlib.suppress(ValueError):
        roundings["double"] = rewrite.rounding(graph, "double")
    return roundings


def _rounding_phrase(rounding: str) -> str:
    return "the graph as it is" if rounding == AS_IT_IS else f"{rounding} rounding"
