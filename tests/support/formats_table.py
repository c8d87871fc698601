"""The table of docs/formats.md: what each format keeps, of a graph of every operator and type.

    python tests/support/formats_table.py  # writes it

`tests/io/test_every_format.py` compares the page with it.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import programs
from oracle.legal_graphs import ROWS, legal_graph
from paths import ROOT

from tosajax import Builder, DType, Graph, Node, Tensor, UnsupportedError, spec
from tosajax.graph.alike import difference
from tosajax.io.formats import WRITTEN, Asked, Format

PAGE = ROOT / "docs" / "formats.md"
_PLACE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end of table -->)", re.DOTALL)
_HEAD = """
| format | suffix | operators | types | refuses |
|---|---|---|---|---|
"""
# A call of tosa-opt takes long, so that one graph of each operator and of each type has to do.
_SLOW = {"MLIR bytecode"}


class Example(NamedTuple):
    """A graph of one operator and of certain types."""

    operator: str
    graph: Graph


def examples(known: Format) -> list[Example]:
    """Graphs to try: of each type row of each operator."""
    rows = [row for row in ROWS if row[0].name != "CONST_SHAPE"]  # alone it leads to no output
    found = [Example(row[0].name, _with_constants(legal_graph(*row))) for row in rows]
    found += [
        Example("CONST_SHAPE", _reshaped()),
        Example("COND_IF", programs.choice(programs.plus(1, "more"), programs.plus(-1, "less"))),
        Example("WHILE_LOOP", programs.loop(programs.below(9), programs.doubled())),
        Example("CUSTOM", _custom()),
    ]
    found += [
        Example(op, programs.accumulator([1, 2, 3]))
        for op in ("VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE")
    ]
    return _few(found) if known.name in _SLOW else found


def _few(found: Sequence[Example]) -> list[Example]:
    """Examples that have an operator or a type more than those before them."""
    kept: list[Example] = []
    seen: set[str] = set()
    for example in found:
        has = {example.operator, *_types([example])}
        if not has <= seen:
            kept.append(example)
            seen |= has
    return kept


def refusal(known: Format, graph: Graph) -> str | None:
    """Why a format cannot keep a graph; None if the same graph comes back.

    Raises:
      AssertionError: another graph comes back.
    """
    try:
        content = known.written(graph)
    except UnsupportedError as error:
        return str(error)
    back = known.read(memoryview(content.data), Asked(constants=content.outside))
    if [node.op for node in graph.nodes] == ["IDENTITY"] and not back.nodes:
        return None  # the result is the input
    assert (found := difference(graph, back)) is None, f"{known.name}: {found}"
    return None


def line(known: Format) -> str:
    """The row of the table for a format."""
    tried = examples(known)
    kept = [example for example in tried if refusal(known, example.graph) is None]
    lost = [example for example in tried if example not in kept]
    whole = {example.operator for example in kept}
    operators = [op for op in spec.OPERATORS if op in {e.operator for e in lost} - whole]
    types = _types(kept)
    refused = [t for t in _types(lost) if t not in types]
    cells = (
        known.name,
        f"`{known.suffix}`",
        f"{len(whole)} of {len(spec.OPERATORS)}",
        ", ".join(types),
        ", ".join([*operators, *refused]) or "nothing",
    )
    return f"| {' | '.join(cells)} |\n"


def table() -> str:
    return _HEAD + "".join(map(line, WRITTEN)) + "\n"


def written() -> str:
    """The table on the page."""
    found = _PLACE.search(PAGE.read_text())
    assert found is not None
    return found[0]


def _types(found: Sequence[Example]) -> list[str]:
    """The types of tensors, in the order of the specification."""
    types = {t.dtype for e in found for part in e.graph.walk() for t in part.tensors.values()}
    return [t.name for t in DType if t in types]


def _with_constants(graph: Graph) -> Graph:
    """The graph with constants where a target may ask for them, as for tables."""
    node = graph.nodes[-1]
    operator = spec.OPERATORS[node.op]
    fixed = {
        name
        for argument, name in zip(operator.inputs, node.inputs, strict=False)
        if argument.constant_in and name in graph.inputs
    }
    tensors = {n: _constant(t) if n in fixed else t for n, t in graph.tensors.items()}
    nodes = (*(Node("CONST", (), (name,)) for name in sorted(fixed)), *graph.nodes)
    inputs = tuple(name for name in graph.inputs if name not in fixed)
    return dataclasses.replace(graph, inputs=inputs, tensors=tensors, nodes=nodes)


def _constant(tensor: Tensor) -> Tensor:
    return dataclasses.replace(tensor, values=np.zeros(tensor.shape or (), tensor.dtype.storage))


def _reshaped() -> Graph:
    b = Builder()
    x = b.input("x", DType.FP32, (2, 3))
    return b.graph([b.op("RESHAPE", x, b.const_shape([3, 2]))])


def _custom() -> Graph:
    b = Builder()
    attributes = {"operator_name": "spin", "domain_name": "test", "implementation_attrs": b"\0\xff"}
    x = b.input("x", DType.FP32, (2, 3))
    return b.graph([b.op("CUSTOM", x, dtype=DType.FP32, shape=(2, 3), **attributes)])


def main() -> None:
    PAGE.write_text(_PLACE.sub(lambda _: table(), PAGE.read_text()))


if __name__ == "__main__":
    main()
