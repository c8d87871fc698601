"""Writes docs/status.md: passed tests and XLA's routes, by operator and type.

    python tests/conformance/run.py --all --json results.json
    python tools/make_status.py results.json

Nothing in the table is written by hand: conformance is counted from the results, and the route is
read from the lowered graphs of the tests, so the suite must still exist.
"""

from __future__ import annotations

import argparse
import collections
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import jax
import numpy as np

import tosajax
from tosajax import grad
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64

Row = tuple[str, str]  # operator, element types


class Test(TypedDict):
    """A test in the results; element types by name."""

    operator: str
    kind: str  # "positive" or "ERROR_IF"
    status: str
    inputs: list[str]
    outputs: list[str]
    graph: str  # its file


class Suite(TypedDict):
    """The generated tests of a run."""

    tosa_version: str
    which: str
    seed: int


class Results(TypedDict):
    """The results of a run of the suite."""

    command: str
    versions: dict[str, str]
    suite: Suite
    tests: list[Test]


# Tests of a row whose graphs are read: kernels may choose by size.
_GRAPHS_READ = 3
# Operations of StableHLO that name a route, with the name.
_NAMED = {
    "dot_general": "dot",
    "convolution": "convolution",
    "fft": "FFT",
    "gather": "gather",
    "dynamic_gather": "gather",
    "scatter": "scatter",
    "sort": "sort",
    "while": "while loop",
    "case": "branch",
    "if": "branch",
    "reduce": "reduction",
    "reduce_window": "window reduction",
}
_MULTIPLY = {"dot", "convolution"}  # these are named with their types
# Operations that only move or repeat elements.
_MOVES = {
    "broadcast_in_dim",
    "builtin.module",
    "concatenate",
    "constant",
    "func.call",
    "func.func",
    "func.return",
    "optimization_barrier",
    "pad",
    "reshape",
    "return",
    "reverse",
    "slice",
    "transpose",
}
_HEAD = """\
# Status

Made by `python tools/make_status.py` from the results of `{command}`; not to be edited.
tosajax {tosajax}, jax {jax}, tosa-tools {tosa_tools}; conformance suite of TOSA {tosa_version},
{which}, seed {seed}: {passed} of {count} tests pass.

- **types**: of the first two inputs, shapes aside, then of the outputs; each type once.
- **positive**: of the suite's legal graphs, those that pass. **ERROR_IF**: of its illegal graphs,
  those that are rejected; they may have types or a number of inputs that no legal graph has.
- **gradient**: the derivative in `tosajax.differentiable`. The shadow of an integer is the float
  before rounding; the shadow of a float is the float itself.
- **route**: the operations that XLA gets, read from the StableHLO of tests' graphs. A semicolon
  separates routes that depend on shapes. "int64" is the scope that int48 needs.

| operator | types | positive | ERROR_IF | gradient | route |
|---|---|---|---|---|---|
"""
_GRADIENTS = grad.gradient_rules()


def main() -> None:
    """Reads the results, writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="from tests/conformance/run.py --json")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/status.md"))
    options = parser.parse_args()
    text = page(json.loads(options.results.read_text()))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)


def page(results: Results) -> str:
    """The page for the results of a run."""
    rows: dict[Row, list[Test]] = collections.defaultdict(list)
    for test in results["tests"]:
        rows[test["operator"], types(test)].append(test)
    lines = (_line(row, tests) for row, tests in sorted(rows.items()))
    return _head(results) + "".join(f"{line}\n" for line in lines)


def types(test: Test) -> str:
    """The element types of a test: "INT8, INT4 -> INT32"."""
    inputs = dict.fromkeys(dtype for dtype in test["inputs"][:2] if dtype != "SHAPE")
    outputs = dict.fromkeys(test["outputs"])
    return f"{', '.join(inputs) or 'none'} -> {', '.join(outputs) or 'none'}"


def route(graph: tosajax.Graph) -> str:
    """The operations that XLA gets for a graph, the heaviest first."""
    fn, params = tosajax.lower(graph)
    lowered = jax.jit(fn).lower(params, *map(_zeros, graph.input_tensors))
    operations = list(_operations([lowered.compiler_ir("stablehlo").operation]))
    names = {operation.name.removeprefix("stablehlo.") for operation in operations}
    named = {(operation.name, _title(operation)) for operation in operations if _title(operation)}
    titles = [title for _, title in sorted(named, key=_rank)]
    if not titles:
        titles = ["data movement" if names <= _MOVES else "elementwise"]
    if any("i64" in _elements(operation.results) for operation in operations):
        titles.append("int64")
    return ", ".join(dict.fromkeys(titles))


def _rank(named: tuple[str, str]) -> tuple[int, str]:
    """Orders titles as _NAMED does."""
    name, title = named
    return list(_NAMED).index(name.removeprefix("stablehlo.")), title


def _head(results: Results) -> str:
    suite, tests = results["suite"], results["tests"]
    return _HEAD.format(
        command=results["command"],
        tosajax=results["versions"]["tosajax"],
        jax=results["versions"]["jax"],
        tosa_tools=results["versions"]["tosa-tools"],
        tosa_version=suite["tosa_version"],
        which=suite["which"],
        seed=suite["seed"],
        passed=sum(test["status"] == "pass" for test in tests),
        count=len(tests),
    )


def _line(row: Row, tests: Sequence[Test]) -> str:
    positive = [test for test in tests if test["kind"] == "positive"]
    negative = [test for test in tests if test["kind"] == "ERROR_IF"]
    routes = dict.fromkeys(map(_route_of_test, _spread(positive)))
    gradient = _GRADIENTS.get(row[0], "") if positive else ""
    columns = *row, _share(positive), _share(negative), gradient, "; ".join(routes)
    return f"| {' | '.join(columns)} |"


def _share(tests: Sequence[Test]) -> str:
    passed = sum(test["status"] == "pass" for test in tests)
    return f"{passed}/{len(tests)}" if tests else ""


def _spread(tests: Sequence[Test]) -> Sequence[Test]:
    """A few passing tests, spread over a row."""
    passing = [test for test in tests if test["status"] == "pass"]
    return passing[:: max(1, -(-len(passing) // _GRAPHS_READ))]


def _route_of_test(test: Test) -> str:
    return route(tosajax.load(test["graph"]))


def _zeros(tensor: tosajax.Tensor) -> jax.Array | np.ndarray:
    zeros = np.zeros(tensor.shape or (), tensor.dtype.storage)
    return _x64.from_numpy(zeros) if tensor.dtype is DType.INT48 else zeros


def _operations(operations: Iterable[Any]) -> Iterator[Any]:
    """MLIR operations, and those inside them."""
    for operation in operations:
        yield operation
        for region in operation.regions:
            for block in region.blocks:
                yield from _operations(inner.operation for inner in block.operations)


def _title(operation: Any) -> str:
    """The name of an operation in a route, as "s8 dot"; "" if it has none."""
    name = _NAMED.get(operation.name.removeprefix("stablehlo."), "")
    if name not in _MULTIPLY:
        return name
    elements = (element.replace("i", "s") for element in _elements(operation.operands))
    return f"{' x '.join(elements)} {name}"


def _elements(values: Iterable[Any]) -> list[str]:
    """The element types of MLIR values, each once: "i8", "f32"."""
    return list(dict.fromkeys(str(getattr(v.type, "element_type", v.type)) for v in values))


if __name__ == "__main__":
    main()
