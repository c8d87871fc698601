"""tosajax on a network: calibrated, frozen, run as integers, and compared with Arm's model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

import tosajax
from benchmarks.ptq_zoo import metrics
from benchmarks.ptq_zoo.row import Row
from benchmarks.ptq_zoo.schemes import Scheme
from tosajax import Graph, quant, reference_model, spec
from tosajax.graph.quantization import dequantize

# Examples of a batch of calibration.
_BATCH = 8


def measure(
    row: Row,
    graph: Graph,
    scheme: Scheme,
    calibration: np.ndarray,
    judged: np.ndarray,
    *,
    compared: int,
    every_tensor: bool = False,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Quantizes a float graph and runs the frozen one.

    Args:
      row: takes the seconds of each stage.
      graph: the float graph.
      scheme: how it is quantized.
      calibration: examples to calibrate with.
      judged: examples to run.
      compared: how many of them Arm's model runs as well.
      every_tensor: compares all tensors of these with Arm's model, not the outputs alone.

    Returns:
      The outputs of the float graph, and those of the frozen graph as real numbers.
    """
    with row.stage("float"):
        floats = [np.asarray(y) for y in tosajax.compile(graph, batch=len(judged))(judged)]
    batches = [calibration[at : at + _BATCH] for at in range(0, len(calibration), _BATCH)]
    if scheme.budget is None:
        with row.stage("prepare"):
            model = scheme.prepare(graph)
        with row.stage("calibrate"):
            params = quant.calibrate(model, batches)
    else:
        with row.stage("search"):
            result = scheme.search(graph, batches)
        model, params = result.model, result.params
        row.values["remedies"] = [dataclasses.asdict(remedy) for remedy in result.remedies]
        row.values["lifted"] = list(result.lifted)
        row.values["wide_macs"] = result.wide_macs
    with row.stage("freeze"):
        frozen = model.freeze(params)
        (integers,) = frozen.quantized(judged, clip=True)
    with row.stage("compile"):  # and the first run
        run = tosajax.compile(frozen, batch=len(judged))
        outputs = [np.asarray(y) for y in run(integers)]
    with row.stage("run"):
        outputs = [np.asarray(y) for y in run(integers)]
    real = [_real(frozen, *pair) for pair in zip(frozen.outputs, outputs, strict=True)]
    row.values["sqnr"] = metrics.sqnrs(floats, real)
    if compared:
        few = integers[:compared]
        with row.stage("arm"):
            ours = {name: y[:compared] for name, y in zip(frozen.outputs, outputs, strict=True)}
            row.values |= equality(frozen, few, ours)
        if every_tensor:
            with row.stage("every tensor"):
                row.values |= equality(frozen, few, _tensors(frozen, few))
    return floats, real


def equality(graph: Graph, inputs: np.ndarray, ours: Mapping[str, np.ndarray]) -> dict[str, int]:
    """How many integers are compared with Arm's model, and how many differ.

    Args:
      graph: an integer graph of one input.
      inputs: examples, (examples, *shape without its batch).
      ours: the tensors to compare, by name, of all these examples.
    """
    theirs = reference_model.run(graph, inputs[:, None], tensors=tuple(ours))
    pairs = [(values.ravel(), theirs[name].ravel()) for name, values in ours.items()]
    return {
        "elements": sum(a.size for a, _ in pairs),
        "mismatches": sum(int(np.count_nonzero(a != b)) for a, b in pairs),
    }


def _tensors(graph: Graph, inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Every tensor that a graph computes of examples, by a program that gives them all."""
    nodes = [node for node in graph.ordered_nodes() if node.op not in spec.CONSTANT_OPERATORS]
    names = tuple(name for node in nodes for name in node.outputs)
    run = tosajax.compile(dataclasses.replace(graph, outputs=names))
    rows = [run(example[None]) for example in inputs]
    return {n: np.stack([np.asarray(y) for y in ys]) for n, *ys in zip(names, *rows, strict=True)}


def _real(graph: Graph, name: str, values: np.ndarray) -> np.ndarray:
    """The real numbers of an output."""
    if name not in graph.quantization:
        return values
    return dequantize(values, graph.tensors[name], graph.quantization[name])
