"""One trial: a random graph, judged unchanged and after each of some random edits."""

from __future__ import annotations

import random as python_random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import tosajax
from reference import edits, judge, known
from reference.arm import Status
from reference.growth import OPERATORS, Case, grow
from tosajax import Graph, Node, spec
from tosajax.graph import arguments

_ENDS = 4  # one graph in so many is compiled again, with its ends as outputs


class Trial(NamedTuple):
    """A judged case, and the disagreements that no known difference explains."""

    title: str  # "seed/index", and the edit
    case: Case
    status: Status
    unexplained: list[judge.Difference]
    explained: list[str]  # the reasons that explain the others


def trials(seed: int, index: int, changes: int) -> Iterator[Trial]:
    """The graph of a seed and index, then the same after each of so many edits."""
    random = python_random.Random(f"{seed}/{index}")
    case = grow(random)
    verdict = judge.judge(case)
    if index % _ENDS == 0 and not verdict.differences:
        verdict.differences.extend(judge.judge_ends(case))
    yield _trial(f"{seed}/{index}", case, verdict)
    for _ in range(changes):
        name, edited = edits.apply(random, case)
        yield _trial(f"{seed}/{index} {name}", edited, judge.judge_edited(edited))


def _trial(title: str, case: Case, verdict: judge.Verdict) -> Trial:
    reasons = [known.reason(d) for d in verdict.differences]
    paired = list(zip(verdict.differences, reasons, strict=True))
    unexplained = [d for d, why in paired if why is None]
    return Trial(title, case, verdict.status, unexplained, [why for why in reasons if why])


def operators(case: Case) -> Counter[str]:
    """How often each operator occurs."""
    return Counter(n.op for n in case.graph.nodes)


def rows(case: Case) -> Counter[str]:
    """How often each type row occurs."""
    return Counter(row for node in case.graph.nodes for row in _row(node, case.graph))


def every_row() -> set[str]:
    """All type rows of the operators that grow."""
    return {f"{op.name} {row.mode}" for op in OPERATORS for row in op.types}


def _row(node: Node, graph: Graph) -> Iterator[str]:
    operator = spec.OPERATORS[node.op]
    found = arguments(operator, node.inputs, spec.Kind.INPUT)
    found |= arguments(operator, node.outputs, spec.Kind.OUTPUT)
    names = {a.name: a.dtype for a in operator.arguments}
    types = {
        (names[argument], graph.tensors[n].dtype)
        for argument, value in found.items()
        for n in (value if isinstance(value, tuple) else (value,))
    } | {("acc_t", dtype) for key, dtype in node.attributes.items() if key == "acc_type"}
    for row in operator.types:
        if all(row.types.get(str(name), dtype) is dtype for name, dtype in types):
            yield f"{operator.name} {row.mode}"


def types(case: Case) -> Counter[str]:
    """How often tensors have each element type."""
    return Counter(t.dtype.name for t in case.graph.tensors.values())


def never_grown(found: Counter[str]) -> list[str]:
    """Operators that do not occur."""
    return [name for name in spec.OPERATORS if not found[name]]


def save(trial: Trial, folder: Path) -> Path:
    """Writes the files that repeat the first disagreement; of one node alone, if it has one.

    Returns:
      The `.tosa` file; beside it lie the inputs, `.npz`, and the disagreements, `.txt`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{trial.title.replace('/', '-').replace(' ', '-')}.tosa"
    case, node = trial.case, trial.unexplained[0].node
    if node is not None:
        case = judge.only(case.graph, node, judge.run(case))
    lines = [trial.title]
    lines += (
        f"{d.kind.value}: {d.node.title if d.node else ''} {d.why}" for d in trial.unexplained
    )
    lines += (f"{tensor.name}: {tensor}" for tensor in case.graph.tensors.values())
    lines += map(repr, case.graph.nodes)
    try:
        tosajax.save(case.graph, path)
    except (ValueError, OverflowError) as error:
        lines.append(f"no file holds this graph: {error}")
    np.savez(path.with_suffix(".npz"), **{name: _plain(x) for name, x in case.inputs.items()})
    path.with_suffix(".txt").write_text("\n".join([*lines, ""]))
    return path


def _plain(values: np.ndarray) -> np.ndarray:
    """Elements in NumPy's own types; narrow floats as their bits."""
    known = values.dtype.kind in "biuf" and values.dtype.isbuiltin == 1
    return values if known else values.view(f"u{values.dtype.itemsize}")
