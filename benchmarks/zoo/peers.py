"""Runs a network file by the program that it was made for: LiteRT or onnxruntime."""

# The packages of peers may be missing.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.quiet import silent
from benchmarks.work import Run


def litert(path: Path, inputs: Sequence[np.ndarray], threads: int) -> Run:
    """LiteRT with XNNPACK; a batch that it cannot resize to runs one by one."""
    from ai_edge_litert.interpreter import Interpreter

    count = len(inputs[0])
    with silent():
        interpreter = Interpreter(model_path=str(path), num_threads=threads)
        batched = count == 1 or _resized(interpreter, count)
        if not batched:
            interpreter = Interpreter(model_path=str(path), num_threads=threads)
        interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    places = [detail["index"] for detail in details]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    # TOSA has unsigned bytes as int8 of the same bits.
    arrays = [x.view(detail["dtype"]) for x, detail in zip(inputs, details, strict=True)]

    def one(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        for place, x in zip(places, arrays, strict=True):
            interpreter.set_tensor(place, x)
        interpreter.invoke()
        return [interpreter.get_tensor(place) for place in outputs]

    if batched:
        return lambda: tuple(one(arrays))
    return _one_by_one(one, arrays, count)


def onnxruntime(path: Path, inputs: Sequence[np.ndarray], threads: int) -> Run:
    """onnxruntime on its default provider for CPUs; a closed batch runs one by one."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def one(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return list(map(np.asarray, session.run(None, dict(zip(names, arrays, strict=True)))))

    count = len(inputs[0])
    if count == 1 or all(not isinstance(i.shape[0], int) for i in session.get_inputs()):
        return lambda: tuple(one(inputs))
    return _one_by_one(one, inputs, count)


# By suffix: makes the call that is timed, of a file, inputs of some examples, and threads.
PEERS: dict[str, Callable[[Path, Sequence[np.ndarray], int], Run]] = {
    ".tflite": litert,
    ".onnx": onnxruntime,
}


def _resized(interpreter: Any, count: int) -> bool:
    """Whether LiteRT takes so many examples at once, and gives as many."""
    try:
        for detail in interpreter.get_input_details():
            interpreter.resize_tensor_input(detail["index"], [count, *detail["shape"][1:]])
        interpreter.allocate_tensors()
        interpreter.invoke()
    except (RuntimeError, ValueError):
        return False
    return all(
        len(interpreter.get_tensor(detail["index"])) == count
        for detail in interpreter.get_output_details()
    )


def _one_by_one(
    one: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]],
    arrays: Sequence[np.ndarray],
    count: int,
) -> Run:
    def run() -> tuple[np.ndarray, ...]:
        parts = [one([x[n : n + 1] for x in arrays]) for n in range(count)]
        return tuple(np.concatenate(rows) for rows in zip(*parts, strict=True))

    return run
