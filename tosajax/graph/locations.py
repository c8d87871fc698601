"""Locations of nodes: short descriptions, and lookup of tensors by them.

The form depends on the producer: ExecuTorch writes a JSON object with the Python stack, TFLite's
converter an MLIR location with the name of the TFLite tensor.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Set
from pathlib import PurePosixPath
from typing import Any

from tosajax.graph import Graph, Node

# "name"("file":line:column), a named location of MLIR.
_NAMED = re.compile(r'"((?:[^"\\]|\\.)*)"\("[^"]*":\d+:\d+\)')
_PLACE = re.compile(r'"([^"]*)":(\d+):\d+')
_FRAME = re.compile(r'File "([^"]*)", line (\d+)')
# The nodes of PyTorch's programs that a node was lowered from, oldest first: pairs of the node's
# name and the pass that followed.
Trace = tuple[tuple[str, str], ...]
_LIBRARY = ("site-packages/", "dist-packages/")


def described(location: str | None) -> str:
    """A short form of a location: a tensor's name, or "model.py:23 y = self.conv(x) [conv]"."""
    if not location:
        return ""
    if location.startswith("{"):
        return _of_stack(location) or location
    if named := _NAMED.findall(location):
        return named[-1]
    if place := _PLACE.search(location):
        return f"{place[1]}:{place[2]}"
    return location.removeprefix("loc(").removesuffix(")").strip('"')


def tensors_at(graph: Graph) -> dict[str, list[str]]:
    """The tensors computed at each named MLIR location, in order."""
    tensors: dict[str, list[str]] = {}
    for node in graph.ordered_nodes():
        if named := _NAMED.findall(node.location or ""):
            tensors.setdefault(named[-1], []).extend(node.outputs)
    return tensors


def tensors_by_names(graph: Graph) -> list[dict[str, list[str]]]:
    """The tensors computed at each location, by the names that users may know it by.

    Returns:
      A dictionary for each kind of name, in this order: names in the locations of TFLite's
      converter; node names in PyTorch's exported program; node names in the programs lowered from
      it; paths of modules, with all tensors computed inside; texts of `described`. Tensors are in
      order.
    """
    kinds: list[dict[str, list[str]]] = [tensors_at(graph), {}, {}, {}, {}]
    for node in graph.ordered_nodes():
        if not node.location:
            continue
        names: list[list[str]] = [[], [], [], [described(node.location)]]
        if node.location.startswith("{"):
            names[:3] = _names_of_torch(node.location)
        for kind, own in zip(kinds[1:], names, strict=True):
            for name in dict.fromkeys(own):
                kind.setdefault(name, []).extend(node.outputs)
    return kinds


def trace_of(entries: Any) -> Trace:
    """The Trace of a `node_trace`, ExecuTorch's list of PyTorch nodes, newest first."""
    passes = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    return tuple((str(e.get("name")), str(e.get("pass_name"))) for e in reversed(passes))


def tensors_by_traces(graph: Graph, traces: Set[Trace]) -> dict[Trace, list[str]]:
    """The tensors that each node of PyTorch was lowered to, in order.

    Args:
      graph: a graph of ExecuTorch, with locations.
      traces: the traces to find. Programs of later passes have longer traces with the same start.
    """
    lengths = sorted({len(trace) for trace in traces})
    tensors: dict[Trace, list[str]] = {}
    for node in graph.ordered_nodes():
        trace = _trace(node.location)
        for length in lengths:
            if length <= len(trace) and trace[:length] in traces:
                tensors.setdefault(trace[:length], []).extend(node.outputs)
    return tensors


def _trace(location: str | None) -> Trace:
    if not location or not location.startswith("{"):
        return ()
    try:
        info = json.loads(location)
    except (ValueError, RecursionError):
        return ()
    return trace_of(_entry(_entry(info, "torch_info"), "node_trace"))


def matches(node: Node, where: str | None) -> bool:
    """Whether `where`, a regular expression, is found in the node's outputs or its location."""
    if where is None:
        return True
    texts = (*node.outputs, described(node.location))
    return any(re.search(where, text) for text in texts)


def _names_of_torch(location: str) -> list[list[str]]:
    """Names in a location of ExecuTorch: exported node, nodes lowered from it, module paths."""
    try:
        info = json.loads(location)
    except ValueError:
        return [[], [], []]
    torch = _entry(info, "torch_info")
    # Newest first. A TOSA node's own name is its tensor's name.
    nodes = [name for name, _ in trace_of(_entry(torch, "node_trace"))[::-1]]
    stack = _entry(torch, "nn_module_stack")
    return [nodes[-1:], nodes[:-1], [path for path in _modules(stack) if path]]


def _of_stack(location: str) -> str:
    """The innermost line of the user's code in a stack of ExecuTorch; "" if there is none."""
    try:
        info = json.loads(location)
    except ValueError:
        return ""
    torch = _entry(info, "torch_info")
    stack = _entry(torch, "stack_trace")
    lines = [str(x) for x in stack] if isinstance(stack, list) else []
    place = ""
    for line, source in itertools.pairwise([*lines, ""]):
        frame = _FRAME.search(line)
        if frame and not any(part in frame[1] for part in _LIBRARY):
            place = f"{PurePosixPath(frame[1]).name}:{frame[2]} {source.strip()}".strip()
    module = _module(_entry(torch, "nn_module_stack"))
    return f"{place} [{module}]" if place and module else place or module


def _module(stack: Any) -> str:
    """The path of the innermost module: "features.3"."""
    return (_modules(stack) or [""])[-1]


def _modules(stack: Any) -> list[str]:
    """The paths of modules, the outermost first."""
    entries = stack.values() if isinstance(stack, dict) else ()
    return [str(entry[0]) for entry in entries if entry]


def _entry(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
