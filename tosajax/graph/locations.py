"""Locations of nodes, in the user's own words.

Each producer has its own form: ExecuTorch writes a JSON object with the Python stack, TFLite's
converter an MLIR location with the name of the TFLite tensor.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import PurePosixPath
from typing import Any

from tosajax.graph import Graph, Node

# "name"("file":line:column), a named location of MLIR.
_NAMED = re.compile(r'"((?:[^"\\]|\\.)*)"\("[^"]*":\d+:\d+\)')
_PLACE = re.compile(r'"([^"]*)":(\d+):\d+')
_FRAME = re.compile(r'File "([^"]*)", line (\d+)')
_LIBRARY = ("site-packages/", "dist-packages/")


def described(location: str | None) -> str:
    """A location in a few words: a tensor's name, or "model.py:23 y = self.conv(x) [conv]"."""
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
    """The tensors computed at each named location, in order."""
    found: dict[str, list[str]] = {}
    for node in graph.ordered_nodes():
        if named := _NAMED.findall(node.location or ""):
            found.setdefault(named[-1], []).extend(node.outputs)
    return found


def matches(node: Node, where: str | None) -> bool:
    """Whether `where`, a regular expression, is found in the node's outputs or its location."""
    if where is None:
        return True
    texts = (*node.outputs, described(node.location))
    return any(re.search(where, text) for text in texts)


def _of_stack(location: str) -> str:
    """The innermost line of the user's code in a stack of ExecuTorch; "" without one."""
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
    paths = [entry[0] for entry in stack.values() if entry] if isinstance(stack, dict) else []
    return str(paths[-1]) if paths else ""


def _entry(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
