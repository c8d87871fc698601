"""The kinds of attacks: how each makes a case at random, and runs it.

`make_<kind>` gives files by name; `run_<kind>` reads them from a folder, and returns or raises one
of REFUSALS. Everything else is a finding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import random as python_random
import tempfile
import warnings
from pathlib import Path

import jax
import numpy as np
from reference import edits, growth

import tosajax
from fuzz import damage
from tosajax import Builder, DType, FormatError, Graph, Quantization, TosaError, UnsupportedError
from tosajax import io as files
from tosajax.io import mlir, sidecar, spirv, vgf
from tosajax.sweep.store import Store

Random = python_random.Random
Files = dict[str, bytes]

_TESTS = Path(__file__).resolve().parents[1]
_DATA, _SAMPLES = _TESTS / "data", _TESTS / "io" / "pre_1_0" / "data"
_MODELS = ("jax_gather", "jax_mlp", "jax_ln")


class Finding(Exception):
    """A result that is neither right nor a refusal."""


class Refused(Exception):
    """A refusal that is not one of our exceptions."""


def check_graph(graph: Graph) -> None:
    """Validates a graph, and traces it where its dimensions are known."""
    report = tosajax.validate(graph)
    str(report)
    report.raise_errors()
    if any(-1 in (t.shape or ()) for t in graph.tensors.values()):
        return
    function, params = tosajax.lower(graph)
    inputs = [t.dtype.struct(t.shape or ()) for t in graph.input_tensors]
    with jax.enable_x64(True):  # else JAX narrows the int64 that int48 is held in
        jax.eval_shape(function, params, *inputs)


REFUSALS = (FormatError, TosaError, UnsupportedError, Refused)


# Graphs in files.


def _content(random: Random) -> bytes:
    if random.random() < 0.5:
        return (_DATA / random.choice(_MODELS) / "model.tosa").read_bytes()
    return files.to_bytes(growth.grow(random).graph)


def make_tosa(random: Random) -> Files:
    return {"x.tosa": damage.of_bytes(random, _content(random))}


def run_tosa(folder: Path) -> None:
    check_graph(tosajax.load(folder / "x.tosa"))


def make_json(random: Random) -> Files:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.json"
        files.save(growth.grow(random).graph, path)
        return {"x.json": damage.of_json(random, path.read_bytes())}


def run_json(folder: Path) -> None:
    check_graph(tosajax.load(folder / "x.json"))


# Graphs in other formats.


def make_old(random: Random) -> Files:
    """A file of TOSA 0.80, or its JSON."""
    name = random.choice(("int8_convnet_v080.tosa", "int8_convnet_v080.json"))
    damaged = damage.of_json if name.endswith("json") else damage.of_bytes
    return {"x.tosa": damaged(random, (_SAMPLES / name).read_bytes())}


def make_mlir(random: Random) -> Files:
    return {"x.mlir": damage.of_bytes(random, mlir.to_text(growth.grow(random).graph).encode())}


def make_spirv(random: Random) -> Files:
    """A module, and its constants under other names than those that bind them to it."""
    try:
        content, constants = spirv.to_bytes(growth.grow(random).graph)
    except UnsupportedError:  # int4 above all
        return {}
    data = io.BytesIO()
    np.savez(data, **{str(n): _saved(x) for n, x in constants.items()})
    return {"x.spv": damage.of_bytes(random, content), "constants.npz": data.getvalue()}


def _saved(x: np.ndarray) -> np.ndarray:
    """The bits of bf16 and fp8, which NumPy cannot save."""
    return x if x.dtype.isbuiltin == 1 else x.view(f"u{x.dtype.itemsize}")


def make_vgf(random: Random) -> Files:
    try:
        return {"x.vgf": damage.of_bytes(random, vgf.to_bytes(growth.grow(random).graph))}
    except UnsupportedError:
        return {}


run_old = run_tosa


def run_mlir(folder: Path) -> None:
    check_graph(tosajax.load(folder / "x.mlir"))


def run_spirv(folder: Path) -> None:
    if (folder / "x.spv").exists():
        with np.load(folder / "constants.npz") as file:
            constants = {int(name): file[name] for name in file.files}
        check_graph(tosajax.load((folder / "x.spv").read_bytes(), constants=constants))


def run_vgf(folder: Path) -> None:
    if (folder / "x.vgf").exists():
        check_graph(tosajax.load(folder / "x.vgf"))


# Scales.


def make_scales(random: Random) -> Files:
    """A model of int8 with the file of its scales."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.tosa"
        files.save(_with_scales(), path)
        scales = sidecar.path_of(path)
        damaged = damage.of_json(random, scales.read_bytes())
        return {path.name: path.read_bytes(), scales.name: damaged}


def _with_scales() -> Graph:
    b = Builder()
    x, table = b.input("x", DType.INT8, (2,)), b.const(np.arange(-128, 128), DType.INT8)
    graph = b.graph([b.op("TABLE", x, table)])
    ends = (*graph.inputs, *graph.outputs)
    return dataclasses.replace(graph, quantization=dict.fromkeys(ends, Quantization((0.5,), (3,))))


def run_scales(folder: Path) -> None:
    """Scales for other content are left out with a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = tosajax.load(folder / "x.tosa")
    if any(not q.fits(graph.tensors[name]) for name, q in graph.quantization.items()):
        raise Finding(f"scales that fit no tensor: {graph.quantization}")


# Graphs.


def make_edit(random: Random) -> Files:
    """A file of a graph after one to three edits, if a file can hold it."""
    case = growth.grow(random)
    for _ in range(random.choice([1, 2, 3])):
        _, case = edits.apply(random, case)
    # The writer or the rules refuse a graph that no file can hold.
    try:
        return {"x.tosa": files.to_bytes(case.graph)}
    except (ValueError, OverflowError):
        check_graph(case.graph)
        return {}


def run_edit(folder: Path) -> None:
    if (folder / "x.tosa").exists():
        run_tosa(folder)


# Executables.


def small_graph() -> Graph:
    b = Builder()
    x = b.input("x", DType.FP32, (1, 4))
    weight = b.const(np.arange(4, dtype=np.float32).reshape(1, 4), DType.FP32)
    return b.graph([b.op("ADD", x, weight, name="y")])


@functools.cache
def _executable() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.tjx"
        tosajax.compile(small_graph()).save(path)
        return path.read_bytes()


def make_tjx(random: Random) -> Files:
    return {"x.tjx": damage.of_zip(random, _executable())}


def run_tjx(folder: Path) -> None:
    """A program that loads has to run, or to refuse its inputs."""
    saved = tosajax.load_executable(folder / "x.tjx")
    inputs = [np.zeros(t.shape or (), t.dtype.storage) for t in saved.inputs]
    saved(*inputs)


# Stores of sweeps.


@functools.cache
def _store() -> bytes:
    settings = ({"weight_bits": n, "rounding": "single"} for n in (4, 6, 8))
    rows = [
        {"key": f"{n:064x}", "settings": s, "accuracy": n / 3, "error": None, "count": 100}
        for n, s in enumerate(settings)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def make_store(random: Random) -> Files:
    return {"x.jsonl": damage.of_lines(random, _store())}


def run_store(folder: Path) -> None:
    """A broken store may raise any ValueError that names the file."""
    path = folder / "x.jsonl"
    try:
        rows = Store(path).read()
    except ValueError as error:
        if path.name not in str(error):
            raise
        raise Refused(str(error)) from None
    for key, row in rows.items():
        if not isinstance(key, str) or row["key"] != key:
            raise Finding(f"row {key!r} has the key {row['key']!r}")


# Commands.


def _npy(values: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def _examples(random: Random) -> np.ndarray:
    dtype = random.choice([np.float32] * 4 + [np.float64, np.int8, np.int32, np.uint16, np.bool_])
    shape = random.choice([(3, 4)] * 4 + [(3, 1, 4), (4,), (0, 4), (3, 5), ()])
    values = np.random.default_rng(random.getrandbits(32)).integers(0, 9, shape).astype(dtype)
    if values.size and values.dtype.kind == "f" and random.random() < 0.2:
        values.flat[0] = random.choice([np.nan, np.inf])
    return values


def make_array(random: Random) -> Files:
    """Arrays for a small model; `argv` is the command, and @ the folder."""
    name = random.choice(["run", "run", "sweep"])
    model = files.to_bytes(small_graph())
    if name == "run":
        argv = ["run", "@/m.tosa", "--input", "@/x.npy", "--output", "@/y.npy"]
        array, content = "x.npy", damage.of_npy(random, _npy(_examples(random)))
    else:
        argv = ["sweep", "@/m.tosa", "--data", "@/x.npz", "--plan"]
        packed = io.BytesIO()
        np.savez(packed, inputs=_examples(random), labels=np.arange(3))
        array, content = "x.npz", damage.of_zip(random, packed.getvalue())
    return {"argv.json": json.dumps(argv).encode(), "m.tosa": model, array: content}


def make_model(random: Random) -> Files:
    """A damaged model for a command that does not run it."""
    argv = [random.choice(["info", "check"]), "@/m.tosa"]
    return {
        "argv.json": json.dumps(argv).encode(),
        "m.tosa": damage.of_bytes(random, _content(random)),
    }


def run_array(folder: Path) -> None:
    argv = json.loads((folder / "argv.json").read_bytes())
    _command([argument.replace("@", str(folder)) for argument in argv])


run_model = run_array


def _command(argv: list[str]) -> None:
    """A command ends with a status and at most one line of error."""
    # Commands import this at their first call.
    from tosajax import cli

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(argv)
        except SystemExit as end:
            status = end.code
    lines = err.getvalue().splitlines()
    if status not in (0, 1, 2):
        raise Finding(f"exit status {status}")
    if len(lines) > 1 or not all(line.startswith("tosajax: error: ") for line in lines):
        raise Finding(f"standard error holds {err.getvalue()[:500]!r}")
    if lines and (status == 0 or len(lines[0]) > 2000):
        raise Finding(f"status {status} and {len(lines[0])} characters of error")
    if status != 0:
        raise Refused(*lines or ["no error, but a status"])
