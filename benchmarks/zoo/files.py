"""Network files: the graph of one, and its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

import tosajax
from tosajax import Graph, Tensor, spec

SUFFIXES = (".tflite", ".onnx", ".tosa", ".mlir")


def find(paths: Iterable[Path]) -> list[Path]:
    """The network files among files and folders, in order.

    Raises:
      FileNotFoundError: a path is not there, or a folder has none.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES)
            if not files:
                raise FileNotFoundError(f"{path} has no file that ends in {', '.join(SUFFIXES)}")
            found += files
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"{path} is not there")
    return found


def load(path: Path) -> Graph:
    """The graph of a file; open dimensions are a batch, and 1 here."""
    graph = tosajax.load(path)
    return tosajax.bind(graph, batch=1) if graph.is_dynamic else graph


def is_float(graph: Graph) -> bool:
    """Whether products are of floats; integer networks may have floats at their ends."""
    products = [node for node in graph.nodes if spec.OPERATORS[node.op].is_product]
    kinds = [graph.tensors[node.inputs[0]].dtype for node in products]
    return 2 * sum(not kind.is_integer for kind in kinds) > len(kinds)


def examples(graph: Graph, count: int) -> tuple[np.ndarray, ...]:
    """Random inputs of so many examples: all integers of a type, floats from 0 to 1."""
    rng = np.random.default_rng(0)
    return tuple(_drawn(rng, tensor, count) for tensor in graph.input_tensors)


def _drawn(rng: np.random.Generator, tensor: Tensor, count: int) -> np.ndarray:
    assert tensor.shape is not None
    shape = (count, *tensor.shape[1:])
    dtype = np.dtype(tensor.dtype.storage)
    if dtype.kind == "f":
        return rng.random(shape, np.float32).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
