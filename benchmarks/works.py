"""The works, by group and name; each is built when it is measured."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Iterable
from pathlib import Path

import jax
import numpy as np

import tosajax
from benchmarks import networks, operators, tosa_float, tosa_form
from benchmarks.layers import Network
from benchmarks.work import Work

ROOT = Path(__file__).resolve().parents[1]
# Third-party networks may lie beside the repository.
_FOLDERS = {"digits": ROOT / "tests" / "data", "corpus": ROOT.parent / "shared" / "corpus"}
_GENERATED: dict[str, tuple[Callable[[], Network], tuple[int, ...]]] = {
    "resnet8": (networks.resnet8, (1, 32, 256)),
    "mobilenet": (networks.mobilenet, (1, 32, 256)),
    "transformer": (networks.transformer, (1, 32, 256)),
    "residual-17": (functools.partial(networks.residual, 8), (8,)),
    "residual-65": (functools.partial(networks.residual, 32), (1, 8)),
    "residual-129": (functools.partial(networks.residual, 64), (8,)),
}
# Measured where JAX runs on a GPU or a TPU.
_ACCELERATED_LENGTH, _ACCELERATED_BATCH = 8192, 4096
# These are also measured as float32 graphs.
_FLOAT = {"resnet8": (1, 32, 256), "mobilenet": (1, 32, 256), "transformer": (32, 256)}
_FILE_BATCH = 32
# Contenders that would take minutes, by the batch and by the layers that are too many.
_LARGE_BATCH = {"Arm": 256, "plain": 256, "JAX f32, XLA depthwise": 256}
_DEEP = {"IREE": 150, "plain": 150}
_QUICK = (
    "matmul-1024",
    "conv-3x3-c64",
    "depthwise-3x3",
    "rescale",
    "resnet8-b1",
    "resnet8-b32",
    "resnet8-b256",
    "mobilenet-b1",
    "mobilenet-b32",
    "mobilenet-b256",
    "resnet8-f32-b32",
    "mobilenet-f32-b32",
    "residual-17-b8",
    "residual-65-b8",
)


def select(*, quick: bool, only: Iterable[str]) -> dict[str, Callable[[], Work]]:
    """Functions that make the works, by name.

    Args:
      quick: only the works with targets, and a few operators.
      only: names or patterns of names ("conv-*"); empty for all works.

    Raises:
      ValueError: no work has the name.
    """
    found = everything()
    if not only:
        return {n: make for n, make in found.items() if n in _QUICK} if quick else found
    chosen: dict[str, Callable[[], Work]] = {}
    for pattern in only:
        names = fnmatch.filter(found, pattern)
        if not names:
            raise ValueError(f"no work is named {pattern!r}; there are {', '.join(found)}")
        chosen.update({name: found[name] for name in names})
    return chosen


def everything() -> dict[str, Callable[[], Work]]:
    """Functions that make the works of this machine, by name."""
    accelerated = {} if jax.default_backend() == "cpu" else _accelerated()
    return {**operators.everything(), **accelerated, **_generated(), **_files()}


def absent() -> list[str]:
    """Works left out, as this machine lacks their files."""
    return [f"networks of {name}" for name, folder in _FOLDERS.items() if not folder.is_dir()]


def network_work(network: Network, name: str, batch: int, *, is_float: bool = False) -> Work:
    """A generated network on random images."""
    random = np.random.default_rng(batch)
    images = random.integers(-128, 128, (batch, *network.shape)).astype(np.int8)
    return Work(
        name,
        "networks",
        tosa_float.to_float_graph(network) if is_float else tosa_form.to_graph(network),
        (network.images(images) if is_float else images,),
        batch=batch,
        network=network,
        is_float=is_float,
        without=frozenset(
            (
                *(name for name, least in _LARGE_BATCH.items() if batch >= least),
                *(name for name, least in _DEEP.items() if len(network.layers) >= least),
            )
        ),
    )


def _accelerated() -> dict[str, Callable[[], Work]]:
    """What is too large for the cores of a CPU."""
    name, length = f"matmul-{_ACCELERATED_LENGTH}", _ACCELERATED_LENGTH

    def product() -> Work:
        work = operators.matmul(name, length, length, length)
        return dataclasses.replace(work, without=frozenset({"Arm", "onnxruntime"}))

    networks = {
        f"{network}-b{_ACCELERATED_BATCH}": functools.partial(
            _generate, network, _ACCELERATED_BATCH
        )
        for network in ("resnet8", "mobilenet")
    }
    return {name: product, **networks}


def _generated() -> dict[str, Callable[[], Work]]:
    exact = {
        f"{name}-b{batch}": functools.partial(_generate, name, batch)
        for name, (_, batches) in _GENERATED.items()
        for batch in batches
    }
    floats = {
        f"{name}-f32-b{batch}": functools.partial(_generate, name, batch, is_float=True)
        for name, batches in _FLOAT.items()
        for batch in batches
    }
    return {**exact, **floats}


def _generate(name: str, batch: int, *, is_float: bool = False) -> Work:
    title = f"{name}-f32-b{batch}" if is_float else f"{name}-b{batch}"
    return network_work(_network(name), title, batch, is_float=is_float)


@functools.cache
def _network(name: str) -> Network:
    make, _ = _GENERATED[name]
    return make()


def _files() -> dict[str, Callable[[], Work]]:
    found: dict[str, Callable[[], Work]] = {}
    for folder in _FOLDERS.values():
        for model in sorted(folder.glob("*/model.tosa")):
            name = f"{model.parent.name}-b{_FILE_BATCH}"
            found.setdefault(name, functools.partial(_load, model, name, _FILE_BATCH))
    return found


def _load(model: Path, name: str, batch: int) -> Work:
    """A network of a file, on the examples beside it, repeated."""
    graph = tosajax.load(model)
    examples = [np.load(p) for p in sorted(model.parent.glob("inputs_*.npy"))]
    inputs = []
    for tensor, stored in zip(graph.input_tensors, examples, strict=True):
        if not tensor.shape or tensor.shape[0] not in (1, -1):
            raise NotImplementedError(f"input {tensor.name!r} carries no batch")
        typed = stored.view(tensor.dtype.storage)
        pick = np.arange(batch) % len(typed)
        inputs.append(typed[pick].reshape(batch, *tensor.shape[1:]))
    return Work(name, "files", graph, tuple(inputs), batch=batch)
