"""Graphs and tools that the tests of `tosajax.io` share."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.io import flatbuffer, schema, to_bytes

Edit = Callable[[Callable[[dict[str, Any]], None]], bytes]


@pytest.fixture(scope="session")
def tosa_tools() -> Callable[[str], Path]:
    """Finds a file of tosa-tools by the end of its path."""
    try:
        files = importlib.metadata.files("tosa-tools") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tosa-tools is not installed")

    def find(ending: str) -> Path:
        return Path(str(next(f for f in files if str(f).endswith(ending)).locate()))

    return find


@pytest.fixture(scope="session")
def small_graph() -> Graph:
    """A bit of everything: constants, a shape, a bound, a variable, a subgraph, a location."""
    tensors = (
        Tensor("x", DType.INT8, (2, 3)),
        Tensor("c", DType.INT8, (2, 3), np.arange(-3, 3).reshape(2, 3)),
        Tensor("flag", DType.BOOL, (1,), np.array([True])),
        Tensor("s", DType.SHAPE, (1,), np.array([6])),
        Tensor("high", DType.INT8, (2, 3)),
        Tensor("clamped", DType.INT8, (2, 3)),
        Tensor("state", DType.INT8, (2, 3), np.full((2, 3), 7), "memory"),
        Tensor("old", DType.INT8, (2, 3)),
        Tensor("chosen", DType.INT8, (2, 3)),
        Tensor("y", DType.INT8, (6,)),
        Tensor("own", DType.INT8, (6,)),
    )
    bounds = {"min_val": np.int8(-5), "max_val": np.int8(9), "nan_mode": spec.NanMode.IGNORE}
    variable = {"name": "memory", "var_shape": (2, 3), "type": spec.VarType.INT8}
    custom = {"operator_name": "spin", "domain_name": "test", "implementation_attrs": b"\0\1\xff"}
    nodes = (
        Node("VARIABLE", (), ("state",), variable),
        Node("CONST", (), ("c",)),
        Node("CONST", (), ("flag",)),
        Node("CONST_SHAPE", (), ("s",)),
        Node("MAXIMUM", ("x", "c"), ("high",), {"nan_mode": spec.NanMode.PROPAGATE}, "layer/ü"),
        Node("CLAMP", ("high",), ("clamped",), bounds, ""),
        Node("VARIABLE_READ", (), ("old",), {"name": "memory"}),
        Node("VARIABLE_WRITE", ("clamped",), (), {"name": "memory"}),
        Node(
            "COND_IF",
            ("flag", "clamped", "old"),
            ("chosen",),
            {"then_graph": "first", "else_graph": "second"},
        ),
        Node("RESHAPE", ("chosen", "s"), ("y",)),
        Node("CUSTOM", ("y",), ("own",), custom),
    )
    subgraphs = {name: branch(name, kept) for name, kept in (("first", "a"), ("second", "b"))}
    return Graph(("x",), ("own",), {t.name: t for t in tensors}, nodes, subgraphs)


def branch(name: str, kept: str) -> Graph:
    """A graph that returns one of its inputs, a and b."""
    tensors = {n: Tensor(n, DType.INT8, (2, 3)) for n in ("a", "b", "out")}
    return Graph(("a", "b"), ("out",), tensors, (Node("IDENTITY", (kept,), ("out",)),), name=name)


@pytest.fixture(scope="session")
def edited(small_graph: Graph) -> Edit:
    """Writes the small graph with changes to its nested form."""

    def edit(change: Callable[[dict[str, Any]], None]) -> bytes:
        root = flatbuffer.decode(memoryview(to_bytes(small_graph)), schema.GRAPH)
        change(root)
        return flatbuffer.encode(root, schema.GRAPH, schema.IDENTIFIER)

    return edit
