"""Runs the TFLite model that a graph was converted from on LiteRT."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from tosajax.compare.program import Program
from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.graph.locations import tensors_at
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.lowering.inputs import holds

Kernels = Literal["reference", "builtin", "default"]


@dataclasses.dataclass(frozen=True)
class TFLite:
    """A .tflite file, and the choice of kernels to run it.

    Example:
      >>> from tosajax.compare import tflite
      >>> tflite("model.tflite", "reference")
      TFLite(path='model.tflite', kernels='reference')
    """

    path: str
    kernels: Kernels


def tflite(path: str | os.PathLike[str], kernels: Kernels = "reference") -> TFLite:
    """A TFLite model on LiteRT (`pip install 'tosajax[litert]'`), to compare a graph with.

    Args:
      path: the path of the .tflite file.
      kernels: "reference", plain C++; "builtin", optimised for the processor; "default", builtin
        kernels and XNNPACK, as LiteRT chooses.

    Raises:
      ValueError: kernels is none of these.

    Example:
      >>> import tosajax
      >>> from tosajax.compare import compare, tflite
      >>> graph = tosajax.load("model.tosa")  # doctest: +SKIP
      >>> print(compare(graph, tflite("model.tflite")))  # doctest: +SKIP
    """
    if kernels not in get_args(Kernels):
        raise ValueError(f"kernels {kernels!r}, expected one of {', '.join(get_args(Kernels))}")
    return TFLite(os.fspath(path), kernels)


def of_tflite(model: TFLite, graph: Graph, names: Sequence[str]) -> Program:
    """The Program of a TFLite model; matches tensors by the names in the graph's locations.

    Args:
      model: the model to run.
      graph: the graph converted from it, for one example.
      names: tensors of the graph; if all are outputs, LiteRT does not keep inner tensors.

    Raises:
      ImportError: LiteRT is not installed.
      ValueError: the file is not a model, or its inputs or outputs are not the graph's.
    """
    interpreter = _interpreter(model, preserve=not set(names) <= set(graph.outputs))
    entries = _paired(graph.input_tensors, interpreter.get_input_details(), "input", model.path)
    ends = _paired(graph.output_tensors, interpreter.get_output_details(), "output", model.path)
    located = _located(graph, interpreter.get_tensor_details())
    located |= dict(zip(graph.outputs, ends, strict=True))
    matched = {name: located[name] for name in names if name in located}
    unsigned = unsigned_tensors(graph)

    def run_one(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for tensor, details, x in zip(graph.input_tensors, entries, inputs, strict=True):
            if details["dtype"] == np.uint8 and tensor.dtype is DType.INT8:
                x = _other_sign(x, tensor.name in unsigned).view(np.uint8)
            interpreter.set_tensor(details["index"], x.reshape(details["shape"]))
        interpreter.invoke()
        return [value_of(name) for name in matched]

    def value_of(name: str) -> np.ndarray:
        tensor, value = graph.tensors[name], interpreter.get_tensor(matched[name]["index"])
        if value.dtype == np.uint8 and tensor.dtype is DType.INT8:
            value = _other_sign(value.view(np.int8), name in unsigned)
        return value.reshape(tensor.shape or ())

    def run(rows: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        examples = [run_one(row) for row in zip(*rows, strict=True)]
        return dict(zip(matched, map(np.stack, zip(*examples, strict=True)), strict=True))

    tensors = {name: graph.tensors[name] for name in matched}
    called = {name: str(details["name"]) for name, details in matched.items()}
    why = (
        "no other location of a node names a tensor of the model (tosa-converter-for-tflite "
        "--emit-debug-info writes them)"
    )
    # No scales: the integers of the model have the graph's scales.
    return Program(graph, tensors, run, {}, called, why)


def _interpreter(model: TFLite, *, preserve: bool) -> Any:
    try:
        from ai_edge_litert.interpreter import (  # pyright: ignore[reportMissingImports]
            Interpreter,
            OpResolverType,
        )
    except ImportError:
        raise ImportError("LiteRT is not installed: pip install 'tosajax[litert]'") from None
    resolvers = {
        "reference": OpResolverType.BUILTIN_REF,
        "builtin": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        "default": OpResolverType.AUTO,
    }
    with open(model.path, "rb") as file:
        content = file.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LiteRT warns of the memory for preserved tensors
        interpreter = Interpreter(
            model_content=content,
            num_threads=1,
            experimental_op_resolver_type=resolvers[model.kernels],
            experimental_preserve_all_tensors=preserve,
        )
    interpreter.allocate_tensors()
    return interpreter


def _paired(
    tensors: Sequence[Tensor], entries: Sequence[dict[str, Any]], role: str, path: str
) -> list[dict[str, Any]]:
    """The model's inputs or outputs in the graph's order; an error if they do not fit."""
    if len(entries) != len(tensors):
        raise ValueError(f"{path} has {len(entries)} {role}s, the graph has {len(tensors)}")
    for tensor, details in zip(tensors, entries, strict=True):
        if not _fits(tensor, details):
            shape = tuple(int(d) for d in details["shape"])
            model = f"{np.dtype(details['dtype'])} {shape}"
            raise ValueError(f"{path}: {role} {details['name']!r} is {model}, the graph's {tensor}")
    return list(entries)


def _located(graph: Graph, entries: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The model's tensors whose names occur in locations, by the graph's names."""
    at = tensors_at(graph)
    located = {}
    for details in entries:
        # A TFLite operator becomes several nodes: the last one whose type and shape fit computes
        # the operator's output.
        fitting = [n for n in at.get(details["name"], []) if _fits(graph.tensors[n], details)]
        if fitting:
            located[fitting[-1]] = details
    return located


def _fits(tensor: Tensor, details: Mapping[str, Any]) -> bool:
    same_shape = tuple(int(d) for d in details["shape"]) == tensor.shape
    # Signedness may differ: `_other_sign` converts.
    return same_shape and holds(np.dtype(details["dtype"]), tensor.dtype, is_unsigned=True)


def _other_sign(x: np.ndarray, is_unsigned: bool) -> np.ndarray:
    """Converts the bytes of int8 to uint8 or back: adds 128, unless the graph reads unsigned."""
    return x if is_unsigned else x ^ np.int8(-128)
