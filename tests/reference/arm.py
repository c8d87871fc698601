"""Arm's reference model as an oracle, by its executable.

The executable takes some milliseconds, has every element type, computes floats in float64, and
gives the sum of magnitudes for error bounds. The Python binding lacks the types, the float64 and
the sums, and a crash of it ends the whole process.
"""

from __future__ import annotations

import enum
import functools
import importlib.metadata
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tosajax import DType, Graph, save

_SECONDS = 60.0
_MEMORY = Path("/dev/shm")  # files of a run live for milliseconds
_REQUIREMENTS = {"test_requirements": {"bounds_file_required": True}}


class Status(enum.IntEnum):
    """The model's verdict on a graph, by its exit status."""

    VALID = 0
    UNPREDICTABLE = 1
    ERROR = 2
    CRASH = 3


class Outcome(NamedTuple):
    """The model's result for a graph; arrays by tensor name, none unless the graph is valid."""

    status: Status
    outputs: dict[str, np.ndarray]
    bounds: dict[str, np.ndarray]  # the outputs for the magnitudes of all inputs
    message: str


def is_installed() -> bool:
    """Whether tosa-tools is installed."""
    try:
        return bool(importlib.metadata.files("tosa-tools"))
    except importlib.metadata.PackageNotFoundError:
        return False


def run(graph: Graph, inputs: Mapping[str, np.ndarray], *, precise: bool = False) -> Outcome:
    """Runs a graph at level 8K.

    Args:
      graph: legal or not, in a form that a file can hold.
      inputs: by tensor name, in the element type's storage.
      precise: computes in float64, gives float64 outputs, and bounds.

    Raises:
      ValueError: a file cannot hold the graph.
    """
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        folder = Path(name)
        save(graph, folder / "graph.tosa")
        (folder / "desc.json").write_text(json.dumps(_description(graph, precise)))
        for number, tensor in enumerate(graph.inputs):
            np.save(folder / f"in_{number}.npy", _file_form(inputs[tensor], graph, tensor))
        status, message = _execute(folder, precise)
        if status is not Status.VALID:
            return Outcome(status, {}, {}, message)
        try:
            outputs = _read(graph, folder, "out")
        except FileNotFoundError:
            # With a cycle in the graph the model ends without an error and without a result.
            return Outcome(Status.CRASH, {}, {}, f"no outputs: {message}")
        return Outcome(status, outputs, _read(graph, folder, "bounds_out") if precise else {}, "")


def _description(graph: Graph, precise: bool) -> dict[str, Any]:
    return {
        "tosa_file": "graph.tosa",
        "ifm_name": graph.inputs,
        "ifm_file": [f"in_{n}.npy" for n in range(len(graph.inputs))],
        "ofm_name": graph.outputs,
        "ofm_file": [f"out_{n}.npy" for n in range(len(graph.outputs))],
        "expected_failure": False,
        **(_REQUIREMENTS if precise else {}),
    }


def _execute(folder: Path, precise: bool) -> tuple[Status, str]:
    command = [
        _tool("bin/tosa_reference_model"),
        "--tosa_level=EIGHTK",
        f"--operator_fbs={_tool('bin/tosa.fbs')}",
        f"--test_desc={folder / 'desc.json'}",
        f"--output_dir={folder}",
        f"--precise_mode={int(precise)}",
    ]
    environment = {**os.environ, "TOSA_MODEL_NO_BACKTRACE": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Status.CRASH, f"no end within {_SECONDS} s"
    message = _shorten(done.stderr)
    if done.returncode == Status.UNPREDICTABLE and "ERROR_IF() fails" in done.stderr:
        return Status.ERROR, message  # the status is that of the first check that failed
    if done.returncode < 0 and "REQUIRE() fails" in message:
        return Status.UNPREDICTABLE, message  # some operators abort, others continue
    known = done.returncode in tuple(Status)[:3]
    return Status(done.returncode) if known else Status.CRASH, message


def _shorten(text: str) -> str:
    """Messages without the notes on file versions at the start of every run."""
    lines = text.strip().splitlines()
    return "\n".join(x for x in lines if x and "serializer version" not in x and "SerLib" not in x)


def _file_form(values: np.ndarray, graph: Graph, name: str) -> np.ndarray:
    is_e5m2 = graph.tensors[name].dtype is DType.FP8E5M2
    return values.view(np.uint8) if is_e5m2 else values


def _read(graph: Graph, folder: Path, stem: str) -> dict[str, np.ndarray]:
    return {name: np.load(folder / f"{stem}_{n}.npy") for n, name in enumerate(graph.outputs)}


@functools.cache
def _tool(path: str) -> str:
    """A file of tosa-tools; beside each program lies a slow script of the same name."""
    files = importlib.metadata.files("tosa-tools") or []
    return str(next(f for f in files if str(f) == path).locate())
