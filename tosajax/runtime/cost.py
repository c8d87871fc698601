"""The cost of a graph: multiply-accumulates, bytes, and the route of each heavy operator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tosajax import html, spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.summary import macs_of
from tosajax.lowering.build import scope_name
from tosajax.lowering.fusions.products import is_integer_product
from tosajax.ops.routes.route import find, why_not_native
from tosajax.text_table import Column, text_table

# Patterns in the text of a compiled program: the op_name of an instruction, the head of a
# computation, a call of a fast kernel of XLA:CPU, and a dot or convolution that may lack one.
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(\S+) .*\{$")
_FAST = re.compile(r'calls=%?([\w.\-]+).*"kind":"__ynn_fusion"')
_PLAIN = re.compile(r"= ([a-z]+)\d+\S* (dot|convolution)\(")
# A node in an op_name, as `scope_name` writes it.
_SCOPE = re.compile(r"""[A-Z][A-Z0-9_]* (?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_COLUMNS = (
    Column("node", least=20),
    Column("output", drop=1),
    Column("MACs", right=True),
    Column("bytes", drop=3, right=True),
    Column("route", least=20),
    Column("why", least=16, drop=2),
)
_LINES, _WIDE = 40, 200  # the most lines, and characters of a line, in a repr


class NodeCost(NamedTuple):
    """The cost of one node."""

    title: str
    output: str  # type and shape of its first output
    macs: int
    bytes: int  # the size of all tensors that it reads and writes
    route: str = ""  # the route of a convolution or product
    reason: str = ""  # why it has this route, and why it is not native
    warning: str = ""  # set if XLA has no fast kernel for it


class Cost(NamedTuple):
    """The cost of one run of a graph; in a batch, of one example."""

    nodes: tuple[NodeCost, ...]
    peak_bytes: int  # the most bytes of live tensors, without constants
    not_native: str = ""  # why no native kernel computes products of int8 or int16

    @property
    def macs(self) -> int:
        return sum(node.macs for node in self.nodes)

    @property
    def bytes(self) -> int:
        return sum(node.bytes for node in self.nodes)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(f"{node.title}: {node.warning}" for node in self.nodes if node.warning)

    def __repr__(self) -> str:
        heavy = html.counted(sum(node.macs > 0 for node in self.nodes), "node")
        return (
            f"Cost({heavy} with {self.macs:,} MACs, {self.bytes:,} bytes, at most "
            f"{self.peak_bytes:,} at a time, {html.counted(len(self.warnings), 'warning')})"
        )

    def _repr_html_(self) -> str:
        facts = [
            ("multiply-accumulates", f"{self.macs:,}"),
            ("bytes", f"{self.bytes:,} read and written, at most {self.peak_bytes:,} at a time"),
            *([("not native", html.text(self.not_native))] if self.not_native else []),
            ("warnings", f"{len(self.warnings):,}"),
        ]
        head = ("node", "output", "MACs", "bytes", "route", "why", "warning")
        rows = [
            [n.title, n.output, n.macs, n.bytes, n.route, n.reason, n.warning]
            for n in self.nodes
            if n.macs
        ]
        return html.box("Cost of a run", facts, head, rows, noun="node", named_by=0)

    def __str__(self) -> str:
        """`table`, at full width."""
        return self.table()

    def table(self, width: int | None = None) -> str:
        """A table of the nodes that multiply, the totals, and the warnings.

        Args:
          width: the most characters of a line; a wider table loses columns. None for no limit.
        """
        rows = [
            (n.title, n.output, f"{n.macs:,}", f"{n.bytes:,}", n.route, n.reason)
            for n in self.nodes
            if n.macs
        ]
        total = ("all nodes", "", f"{self.macs:,}", f"{self.bytes:,}", "", "")
        lines = text_table(_COLUMNS, [*rows, total], width)
        lines.append(f"at most {self.peak_bytes:,} bytes of tensors at a time")
        if self.not_native:
            lines.append(f"not native: {self.not_native}")
        return "\n".join([*lines, *(f"warning: {w}" for w in self.warnings)])


class Explanation(str):
    """The text of a cost; notebooks show it as a table. See `Executable.explain`."""

    cost: Cost

    @classmethod
    def of(cls, cost: Cost) -> Explanation:
        """The text of a cost."""
        explanation = cls(cost)
        explanation.cost = cost
        return explanation

    def __repr__(self) -> str:
        lines = self.splitlines()
        cut = [line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…" for line in lines[:_LINES]]
        more = [f"and {len(lines) - _LINES} more lines: print it"] if len(lines) > _LINES else []
        return "\n".join([*cut, *more])

    def _repr_html_(self) -> str:
        return self.cost._repr_html_()


def cost(graph: Graph, program: str, not_native: str = "") -> Cost:
    """The cost of a legal graph of known dimensions.

    Args:
      graph: its subgraphs count once, however often they run.
      program: the text of the compiled graph, for the routes.
      not_native: why it has no native kernels; "" if it may have some.
    """
    routes, slow = _routes(program), _slow_kernels(program)
    nodes = tuple(
        _cost_of(node, part, routes, slow)
        for part in graph.walk()
        for node in part.ordered_nodes()
        if node.op not in spec.CONSTANT_OPERATORS
    )
    products = (
        is_integer_product(node, part.tensors) for part in graph.walk() for node in part.nodes
    )
    return Cost(nodes, peak_bytes(graph), not_native if any(products) else "")


def peak_bytes(graph: Graph) -> int:
    """The most bytes of live tensors of the main graph, without constants."""
    nodes = [n for n in graph.ordered_nodes() if n.op not in spec.CONSTANT_OPERATORS]
    left = Counter(name for node in nodes for name in set(node.inputs))
    left.update(graph.outputs)
    alive = {t.name: _bytes_of(t) for t in graph.input_tensors}
    peak = sum(alive.values())
    for node in nodes:
        alive |= {name: _bytes_of(graph.tensors[name]) for name in node.outputs}
        peak = max(peak, sum(alive.values()))
        left.subtract(set(node.inputs))
        alive = {name: size for name, size in alive.items() if left[name] > 0}
    return peak


def _cost_of(
    node: Node, graph: Graph, routes: dict[str, tuple[str, str]], slow: dict[str, str]
) -> NodeCost:
    name = scope_name(node)
    tensors = [graph.tensors[n] for n in (*node.inputs, *node.outputs)]
    output = str(graph.tensors[node.outputs[0]]) if node.outputs else ""
    macs, size = macs_of(node, graph), sum(map(_bytes_of, tensors))
    kernel = slow.get(name)
    warning = f"XLA has no fast kernel for this {kernel}" if kernel else ""
    return NodeCost(node.title, output, macs, size, *routes.get(name, ("", "")), warning)


def _bytes_of(tensor: Tensor) -> int:
    if tensor.dtype is DType.SHAPE:
        return 0
    return tensor.dtype.nbytes(tensor.shape or ())


def _routes(program: str) -> dict[str, tuple[str, str]]:
    """Routes and their reasons, by the scope names of the nodes."""
    routes = {}
    for op_name in _op_names(program):
        # The op_name of a fusion may name several nodes.
        for scope, behind in _scopes(op_name):
            if route := find(behind):
                name, reason = route
                why = why_not_native(behind)
                routes[scope] = name, f"{reason}; not native: {why}" if why else reason
    return routes


def _slow_kernels(program: str) -> dict[str, str]:
    """Each "dot" or "convolution" without a fast kernel in XLA:CPU, by scope name.

    These are all dots and convolutions of integers, and convolutions of floats inside a loop.
    """
    fast = set(_FAST.findall(program))
    slow, inside, in_main = {}, "", False
    for line in program.splitlines():
        if start := _COMPUTATION.match(line):
            inside, in_main = start[1], line.startswith("ENTRY")
        kernel = _PLAIN.search(line)
        if not kernel or inside in fast:
            continue
        if kernel[1] in ("s", "u") or (kernel[2] == "convolution" and not in_main):
            scopes = map(_scope_of, _op_names(line))
            slow |= {scope[0]: kernel[2] for scope in scopes if scope}
    return slow


def _op_names(text: str) -> Iterator[str]:
    for name in _OP_NAME.findall(text):
        yield re.sub(r"\\(.)", r"\1", name)


def _scopes(op_name: str) -> Iterator[tuple[str, str]]:
    """The nodes in an op_name, each with the text that follows it."""
    end = len(op_name)
    for scope in reversed([*_SCOPE.finditer(op_name)]):
        yield scope[0], op_name[scope.end() : end]
        end = scope.start()


def _scope_of(op_name: str) -> re.Match[str] | None:
    """The innermost node in an op_name."""
    return max(_SCOPE.finditer(op_name), key=re.Match.start, default=None)
