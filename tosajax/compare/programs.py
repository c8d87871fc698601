"""Builds the Program that a graph is compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from tosajax import io, reference_model
from tosajax.compare.litert import Kernels, TFLite, of_tflite, tflite
from tosajax.compare.matching import match
from tosajax.compare.program import Program
from tosajax.compare.scales import scales_in
from tosajax.compare.stored import Stored, of_stored
from tosajax.graph import Graph
from tosajax.io.formats import FORMATS
from tosajax.passes.binding import bind
from tosajax.runtime.watch import Watch

REFERENCE_MODEL = "reference_model"
Other = Graph | TFLite | Stored  # for strings and paths see `named`


def named(b: Other) -> Other:
    """Resolves a string or a path, in the forms of the command line; others stay as they are.

    Raises:
      ValueError: the string has none of these forms.
      FormatError: the file of a graph is damaged.
      OSError: the file cannot be read.
    """
    if not isinstance(b, str | os.PathLike):
        return b
    text = os.fspath(b)
    if text in ("ref", REFERENCE_MODEL):
        return REFERENCE_MODEL
    if text.startswith("tflite:"):
        path, comma, kernels = text.removeprefix("tflite:").rpartition(",")
        return tflite(path, cast("Kernels", kernels)) if comma else tflite(kernels)
    suffix = Path(text).suffix
    if suffix == ".tflite":
        return tflite(text)
    if suffix in (".npy", ".npz"):
        return text
    if suffix in {format.suffix for format in FORMATS}:
        return io.load(text)
    raise ValueError(
        f"{text!r} to compare with, expected ref (Arm's reference model), or a graph's file, a "
        ".tflite model (tflite:MODEL.tflite,KERNELS), or .npz or .npy files"
    )


def program(b: Other, a: Graph, names: Sequence[str], batch: int, count: int) -> Program:
    """The Program of b in a comparison.

    Args:
      b: b of `compare`, after `named`.
      a: the graph to compare.
      names: tensors of a.
      batch: the number of examples in a batch.
      count: the number of examples.

    Raises:
      TypeError: b is neither a graph, nor a program, nor arrays.
    """
    if isinstance(b, Graph):
        return _of_graph(bind(b, batch=1), a, names, batch)
    if isinstance(b, TFLite):
        return of_tflite(b, a, names)
    if isinstance(b, str) and b == REFERENCE_MODEL:
        return _of_reference(a, names)
    if isinstance(b, Mapping | str | os.PathLike | list | tuple):
        return of_stored(b, a, names, count)
    raise TypeError(f"{type(b).__name__} to compare with, expected a graph, a program or arrays")


def title(b: Other, path: str = "") -> str:
    """The title of the other program on a page.

    Args:
      b: b of `program`.
      path: the path of the graph's file, if the user gave a path.
    """
    if isinstance(b, Graph):
        return path or f"graph {b.name!r}"
    if isinstance(b, TFLite):
        return f"{b.path} on LiteRT's {b.kernels} kernels"
    if isinstance(b, Mapping):
        return "stored arrays"
    if isinstance(b, str | os.PathLike):
        return "Arm's reference model" if b == REFERENCE_MODEL else os.fspath(b)
    return ", ".join(str(path) for path in b)


def _of_graph(graph: Graph, like: Graph, names: Sequence[str], batch: int) -> Program:
    """The Program of another graph, which the emulator runs."""
    pairs = match(like, graph, names)
    watch = Watch(graph, tuple(pairs.values()), batch)

    def run(rows: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        values = watch(rows)
        return {mine: values[theirs] for mine, theirs in pairs.items()}

    tensors = {mine: graph.tensors[theirs] for mine, theirs in pairs.items()}
    missing = [name for name in names if name not in pairs]
    why = (
        f"the other graph has no tensor of the name and shape of {missing[0]!r}, nor, in order, an "
        "equal operator"
        if missing
        else ""
    )
    return Program(graph, tensors, run, scales_in(graph), unmatched=why)


def _of_reference(graph: Graph, names: Sequence[str]) -> Program:
    """The Program of the same graph on Arm's reference model."""
    reference_model.check_installed()

    def run(rows: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        values = reference_model.run(graph, *rows, tensors=names)
        return values if rows else {name: array[None] for name, array in values.items()}

    tensors = {name: graph.tensors[name] for name in names}
    return Program(graph, tensors, run, scales_in(graph))
