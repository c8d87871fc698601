"""Runs of Arm's reference model, each in a process of its own."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tosajax.arguments.types import check_count
from tosajax.dtypes import DType, to_storage
from tosajax.graph import Graph, Tensor
from tosajax.io import to_bytes

_DISTRIBUTION = "tosa-tools"
_WORKER = Path(__file__).with_name("_worker.py")
_STATUSES = ("VALID", "UNPREDICTABLE", "ERROR")  # in the order of the model's numbers
_LINES = 8  # of a message, which may name every element of a tensor
_NOT_IN_BINDING = (DType.INT4, DType.INT48)
# The types that the two forms of the model take for the bits of an element type.
_BINDING_BITS = {DType.BF16: np.uint16, DType.FP8E4M3: np.uint8, DType.FP8E5M2: np.uint8}
_FILE_BITS = {DType.FP8E5M2: np.uint8}


class _Answer(NamedTuple):
    """The model's answer to one example."""

    status: str  # one of _STATUSES, or how the process ended
    outputs: list[np.ndarray]
    message: str


def is_installed() -> bool:
    """Whether tosa-tools is installed.

    Example:
      >>> from tosajax import reference_model
      >>> reference_model.is_installed()  # doctest: +SKIP
      True
    """
    try:
        importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def check_installed() -> None:
    """Raises ImportError where tosa-tools is not installed.

    Example:
      >>> from tosajax import reference_model
      >>> reference_model.check_installed()  # doctest: +SKIP
    """
    if not is_installed():
        raise ImportError("tosa-tools is not installed: pip install 'tosajax[reference]'")


def run(
    graph: Graph,
    *inputs: np.ndarray,
    tensors: Sequence[str] | None = None,
    processes: int = 1,
) -> dict[str, np.ndarray]:
    """Runs a graph on Arm's reference model, example by example, with no limits on levels.

    Every example starts from the variables' initial values. Calls with int4 or int48 among the
    graph's inputs or the tensors to compute run on the executable, all others on the binding.

    Args:
      graph: legal, every dimension known. It is not validated here, and the model runs some illegal
        graphs.
      inputs: in the graph's order and in `dtype.storage`, each (*shape) or (examples, *shape);
        one without the axis of examples is the same for all of them.
      tensors: names of tensors of the main graph; its outputs by default. Inputs and constants
        come back as they are.
      processes: of the model, to share the examples.

    Returns:
      Arrays by name, in `dtype.storage`, each (*shape), or (examples, *shape) where an input is.

    Raises:
      ImportError: tosa-tools is not installed.
      TypeError: the number of inputs or an element type is wrong.
      ValueError: a shape, a name or the number of processes is wrong, a dimension is open, or a
        file cannot hold the graph; or the model finds the graph illegal, or an example
        unpredictable.
      UnsupportedError: a tensor has a type that files do not have.
      RuntimeError: the model crashed.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import reference_model
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> reference_model.run(graph, np.int8([[1, 2, 3]]))["y"].tolist()  # doctest: +SKIP
      [[3, 2, 1]]
    """
    check_installed()
    if processes < 1:
        raise ValueError(f"processes is {processes}, expected at least 1")
    if graph.is_dynamic:
        raise ValueError(f"graph {graph.name!r} has open dimensions: bind it first")
    names = tuple(dict.fromkeys(graph.outputs if tensors is None else tensors))
    for name in names:
        _check_name(graph, name)
    constants = {n: v for n in names if (v := graph.tensors[n].values) is not None}
    outputs = tuple(n for n in names if n not in constants and n not in graph.inputs)
    # The executable crashes on a graph of another name.
    part = dataclasses.replace(graph, outputs=outputs, name="main")
    content = to_bytes(part)  # before the inputs are looked at: it refuses types that files lack
    examples, count = _examples(graph, inputs)
    total = 1 if count is None else count
    values = {n: np.broadcast_to(v, (total, *v.shape)) for n, v in constants.items()}
    values |= dict(zip(graph.inputs, examples, strict=True))
    values |= _computed(part, content, examples, total, processes)
    pick = slice(None) if count is not None else 0
    return {name: values[name][pick, ...] for name in names}


def _check_name(graph: Graph, name: str) -> None:
    tensor = graph.tensors.get(name)
    if tensor is None:
        raise ValueError(f"graph {graph.name!r} has no tensor {name!r}")
    if tensor.variable is not None:
        variable = f"variable {tensor.variable!r}"
        raise ValueError(f"tensor {name!r} stands for {variable}: name a VARIABLE_READ of it")


def _examples(graph: Graph, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], int | None]:
    """The inputs with an axis of examples, and the size of that axis, None if no input has it."""
    check_count(graph.inputs, inputs)
    tensors = graph.input_tensors
    arrays = [_accepted(t, x) for t, x in zip(tensors, inputs, strict=True)]
    counts = {
        tensor.name: len(array)
        for tensor, array in zip(tensors, arrays, strict=True)
        if array.ndim > len(tensor.shape or ())
    }
    if len(set(counts.values())) > 1:
        raise ValueError(f"inputs have different numbers of examples: {counts}")
    count = next(iter(counts.values()), None)
    shapes = [(1 if count is None else count, *(t.shape or ())) for t in tensors]
    return [np.broadcast_to(x, s) for x, s in zip(arrays, shapes, strict=True)], count


def _accepted(tensor: Tensor, value: np.ndarray) -> np.ndarray:
    """An input, row major as the model reads it, or an error that names it."""
    array = np.asarray(value, order="C")
    shape = tensor.shape or ()
    if not tensor.dtype.accepts(array):
        raise TypeError(
            f"input {tensor.name!r} has type {array.dtype}, expected {tensor.dtype.storage} "
            f"({tensor.dtype.name})"
        )
    if shape not in (array.shape, array.shape[1:]):
        more = "".join(f", {size}" for size in shape)
        raise ValueError(
            f"input {tensor.name!r} has shape {array.shape}, expected {shape} or (examples{more})"
        )
    try:
        return to_storage(array, tensor.dtype)
    except ValueError as error:
        raise ValueError(f"input {tensor.name!r}: {error}") from None


def _computed(
    graph: Graph, content: bytes, examples: Sequence[np.ndarray], count: int, processes: int
) -> dict[str, np.ndarray]:
    """The outputs of a graph, each (count, *shape); `content` is the graph in a file."""
    ends = (*graph.input_tensors, *graph.output_tensors)
    answer = _by_executable if any(t.dtype in _NOT_IN_BINDING for t in ends) else _by_binding
    arrays = {t.name: t.dtype.zeros((count, *(t.shape or ()))) for t in graph.output_tensors}

    def compute(rows: np.ndarray) -> None:
        inputs = [[x[row, ...] for x in examples] for row in rows]
        for row, answered in zip(rows, answer(graph, content, inputs), strict=True):
            _check(answered, row)
            for array, output in zip(arrays.values(), answered.outputs, strict=True):
                array[row, ...] = _typed(output, array, row)

    shares = [rows for rows in np.array_split(np.arange(count), processes) if rows.size]
    with ThreadPoolExecutor(processes) as threads:
        for _ in threads.map(compute, shares):
            pass
    return arrays


def _check(answer: _Answer, row: int) -> None:
    if answer.status not in _STATUSES:
        ended = f"example {row}: Arm's model ended with {answer.status}"
        raise RuntimeError(f"{ended}: {answer.message}")
    if answer.status != "VALID":
        raise ValueError(f"example {row}: Arm's model gave {answer.status}: {answer.message}")


def _typed(output: np.ndarray, wanted: np.ndarray, row: int) -> np.ndarray:
    """An output in its storage; some types come as bits."""
    shape, kind = wanted.shape[1:], wanted.dtype
    if output.shape != shape or output.dtype.itemsize != kind.itemsize:
        gave = f"{output.dtype} of shape {output.shape}"
        raise RuntimeError(f"example {row}: Arm's model gave {gave}, expected {kind} of {shape}")
    return output.view(kind)


def _by_binding(
    graph: Graph, content: bytes, examples: Sequence[Sequence[np.ndarray]]
) -> Iterator[_Answer]:
    """Answers of the binding; examples after one that is not valid are not run."""
    request = [_with_bits(graph, inputs, _BINDING_BITS) for inputs in examples]
    # Without -P, modules of this folder would hide others of the same name.
    command = [sys.executable, "-P", str(_WORKER)]
    done = _finished(command, pickle.dumps((content, request)))
    message = _message(done.stderr)
    answers = io.BytesIO(done.stdout)
    for _ in examples:
        try:
            status, outputs = pickle.load(answers)
        except (EOFError, pickle.UnpicklingError):
            status, outputs = _end(done.returncode), []
        yield _Answer(status, outputs, message)


def _by_executable(
    graph: Graph, content: bytes, examples: Sequence[Sequence[np.ndarray]]
) -> Iterator[_Answer]:
    for inputs in examples:
        with tempfile.TemporaryDirectory() as folder:
            yield _execute(graph, content, inputs, Path(folder))


def _execute(graph: Graph, content: bytes, inputs: Sequence[np.ndarray], folder: Path) -> _Answer:
    """Runs one example with files in an empty folder."""
    (folder / "graph.tosa").write_bytes(content)
    (folder / "desc.json").write_text(json.dumps(_description(graph)))
    for n, array in enumerate(_with_bits(graph, inputs, _FILE_BITS)):
        np.save(folder / f"in_{n}.npy", array)
    tools = importlib.metadata.distribution(_DISTRIBUTION)
    command = [
        str(tools.locate_file("bin/tosa_reference_model")),
        f"--operator_fbs={tools.locate_file('bin/tosa.fbs')}",
        f"--test_desc={folder / 'desc.json'}",
        "--tosa_level=NONE",
    ]
    done = _finished(command)
    ended = done.returncode
    status = _STATUSES[ended] if ended in range(len(_STATUSES)) else _end(ended)
    files = [folder / f"out_{n}.npy" for n in range(len(graph.outputs))]
    if status == "VALID" and not all(file.exists() for file in files):
        status = "ERROR"  # no node makes one of the tensors
    outputs = [np.load(file) for file in files] if status == "VALID" else []
    return _Answer(status, outputs, _message(done.stdout + done.stderr))


def _description(graph: Graph) -> dict[str, Any]:
    return {
        "tosa_file": "graph.tosa",
        "ifm_name": graph.inputs,
        "ifm_file": [f"in_{n}.npy" for n in range(len(graph.inputs))],
        "ofm_name": graph.outputs,
        "ofm_file": [f"out_{n}.npy" for n in range(len(graph.outputs))],
        "expected_failure": False,
    }


def _with_bits(
    graph: Graph, inputs: Sequence[np.ndarray], bits: Mapping[DType, type]
) -> list[np.ndarray]:
    """The inputs in the types that the model takes."""
    kinds = [bits.get(t.dtype, t.dtype.storage) for t in graph.input_tensors]
    return [x.view(kind) for x, kind in zip(inputs, kinds, strict=True)]


def _finished(command: Sequence[str], request: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    # Without this variable the model starts a debugger at each rejected graph.
    environment = {**os.environ, "TOSA_MODEL_NO_BACKTRACE": "1"}
    return subprocess.run(command, input=request, capture_output=True, env=environment, check=False)


def _end(returncode: int) -> str:
    return signal.Signals(-returncode).name if returncode < 0 else f"exit status {returncode}"


def _message(output: bytes) -> str:
    """The first lines of a run's messages, without notes on file versions."""
    notes = ("serializer version", "SerLib")
    lines = output.decode(errors="replace").splitlines()
    kept = [x for x in lines if x.strip() and not any(note in x for note in notes)]
    return "\n".join(kept[:_LINES])
