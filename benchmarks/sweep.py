"""The cost of sweeps: `python -m benchmarks.sweep [--quick] [--check] [--json FILE]`.

Three comparisons, each of programs that take turns in one process:

- 64 settings of the digits CNN on 540 images, beside compiling for each setting;
- 10,000 synthetic images through generated networks, beside Arm's reference model and LiteRT, with
  peak memory for few and for many images and settings;
- the sensitivity of every layer of a network of 31, beside plain evaluations.

`--check` exits 1 if a figure misses its limit.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tosajax
from benchmarks import contenders, networks, tosa_float, tosa_form, works
from benchmarks.layers import Network
from tosajax import quant
from tosajax.sweep import Data, Sweep, grid, mean, of_model, one_at_a_time

sys.path.insert(0, str(works.ROOT / "examples"))
import digits  # pyright: ignore[reportMissingImports]

_NETWORKS = {"resnet8": networks.resnet8, "mobilenet_v2": networks.mobilenet_v2}
_PEERS = {"Arm": 2, "LiteRT 1 thread": 32, "LiteRT 2 threads": 32}  # examples of a call
_REPEATS = 5

# Limits of figures.
AT_LEAST = {"64 settings: re-jit / sweep": 50.0}
AT_MOST = {
    "64 settings: compilations": 1.0,
    "64 settings: rows that differ": 0.0,
    "sensitivity: a layer / a plain evaluation": 3.0,
    "memory: ten times the images": 1.1,
    "memory: eight times the settings": 1.1,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer settings and images")
    parser.add_argument("--check", action="store_true", help="exit 1 if a figure misses its limit")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--peak", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.peak:
        print(_peak(*options.peak))
        return 0
    figures: dict[str, float] = {}
    for part in (_settings, _sensitivity, _memory, _images):
        for name, value in part(options.quick):
            figures[name] = value
            print(f"{name:48} {value:12.4g}{_wanted(name)}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    short = [name for name, value in figures.items() if not _is_reached(name, value)]
    for name in short:
        print(f"misses its limit: {name}")
    return 1 if options.check and short else 0


def _wanted(name: str) -> str:
    if name in AT_LEAST:
        return f"   at least {AT_LEAST[name]:g}"
    return f"   at most {AT_MOST[name]:g}" if name in AT_MOST else ""


def _is_reached(name: str, value: float) -> bool:
    return AT_LEAST.get(name, value) <= value <= AT_MOST.get(name, value)


# 64 settings, one compilation.


def _settings(quick: bool) -> Iterator[tuple[str, float]]:
    split = digits.load()
    act = quant.QSpec("i8", symmetric=False, observer=quant.percentile(99.9))
    graph = tosajax.load(works.ROOT / "tests" / "data" / "et_digits_cnn_fp32" / "model.tosa")
    model = quant.prepare(graph, [quant.rule(".*", act=act)])
    observed = quant.observe(model, [split.train_images])
    subject = of_model(model, quant.settle(model, observed), observed=observed)
    examples = split.test_images, split.test_labels
    configs = grid(
        weight_bits=[2, 3, 4, 8], act_bits=[3, 4, 6, 8], percentile=[99.0, 99.5, 99.9, 100.0]
    )
    started = time.perf_counter()
    swept = Sweep(subject, examples, ["accuracy"], configs)
    found = swept.run()
    first = time.perf_counter() - started
    every = 8 if quick else 1
    anew = []
    for setting in configs[::every]:
        params = subject.settle(setting)
        started = time.perf_counter()
        run = jax.jit(lambda x, params=params: jnp.argmax(model.apply(params, x)[0], axis=-1))
        labels = np.asarray(run(split.test_images)).reshape(-1)
        anew.append((time.perf_counter() - started, float((labels == split.test_labels).mean())))
    warm = statistics.median(_timed(swept.run) for _ in range(_REPEATS))
    rejit = every * sum(seconds for seconds, _ in anew)
    differ = [a != row["accuracy"] for (_, a), row in zip(anew, found[::every], strict=True)]
    yield "64 settings: first run, seconds", first
    yield "64 settings: warm run, seconds", warm
    yield "64 settings: re-jit for each, seconds", rejit
    yield "64 settings: re-jit / sweep", rejit / warm
    yield "64 settings: compilations", swept.compilations
    yield "64 settings: rows that differ", sum(differ)


def _timed(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - started


# The sensitivity of every layer.


def _sensitivity(quick: bool) -> Iterator[tuple[str, float]]:
    network = networks.residual(15, size=8, channels=16)
    graph = tosa_float.to_float_graph(network)
    graph = tosajax.bind(graph, batch=1) if graph.is_dynamic else graph
    rng = np.random.default_rng(0)
    images = rng.normal(0, 1, (64 if quick else 256, *network.shape)).astype(np.float32)
    model = quant.prepare(graph, [quant.rule(".*")])
    params = quant.calibrate(model, [images[:64]])
    configs = one_at_a_time("bits", [f"^{name}$" for name in model.weights], [4])
    layered = Sweep((model, params), images, ["sqnr"], configs, reference="float")
    plain = Sweep((model, params), images, ["sqnr"], [{}], reference="float")
    for swept in (layered, plain):
        swept.run()
    samples = [(_timed(layered.run), _timed(plain.run)) for _ in range(_REPEATS)]
    ratios = [many / len(configs) / one for many, one in samples]
    yield "sensitivity: layers", len(configs)
    yield "sensitivity: a layer / a plain evaluation", statistics.median(ratios)


# Many images.


def _images(quick: bool) -> Iterator[tuple[str, float]]:
    count = 1000 if quick else 10_000
    for name, make in _NETWORKS.items():
        network = make()
        swept = _network_sweep(network, count, [{}])
        first = _timed(swept.run)
        warm = _timed(swept.run)
        yield f"{name}: first run, images/s", count / first
        yield f"{name}: images/s", count / warm
        for peer in contenders.everyone():
            if peer.name in _PEERS and peer.is_installed:
                rate = _peer_rate(peer, network, name, _PEERS[peer.name])
                yield f"{name}: {peer.name}, images/s", rate
                yield f"{name}: tosajax / {peer.name}", count / warm / rate
    yield "peak memory, MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _network_sweep(network: Network, count: int, configs: Sequence[dict[str, Any]]) -> Sweep:
    """A sweep over images, made batch by batch."""

    def batches() -> Iterator[np.ndarray]:
        for seed in range(-(-count // 250)):
            rng = np.random.default_rng(seed)
            size = min(250, count - 250 * seed)
            yield rng.integers(-128, 128, (size, *network.shape)).astype(np.int8)

    def first(outputs: Any) -> Any:
        return jnp.argmax(outputs[0].reshape(outputs[0].shape[0], -1), axis=1) == 0

    graph = tosa_form.to_graph(network)
    metric = mean("first class", lambda examples: first(examples.outputs))
    return Sweep(graph, Data(batches, name=f"{count}"), [metric], configs, batch=250)


def _peer_rate(peer: contenders.Contender, network: Network, name: str, batch: int) -> float:
    run = peer.prepare(works.network_work(network, name, batch))
    run()
    return batch / statistics.median(_timed(run) for _ in range(_REPEATS))


# Memory, of separate processes.


def _memory(quick: bool) -> Iterator[tuple[str, float]]:
    images, settings = (500, 2) if quick else (1000, 4)
    base = _peak_of(images, settings)
    yield "memory: peak, MiB", base
    yield "memory: ten times the images", _peak_of(10 * images, settings) / base
    yield "memory: eight times the settings", _peak_of(images, 8 * settings) / base


def _peak_of(images: int, settings: int) -> float:
    command = [sys.executable, "-m", "benchmarks.sweep", "--peak", str(images), str(settings)]
    done = subprocess.run(command, cwd=works.ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _peak(images: int, settings: int) -> float:
    """The peak memory, in MiB, of a sweep over multipliers of the first layer of ResNet-8."""
    network = networks.resnet8()
    graph = tosa_form.to_graph(network)
    name = next(n.inputs[1] for n in graph.nodes if n.op == "RESCALE")
    values = graph.tensors[name].values
    assert values is not None
    configs = [{name: values - values // (16 + k)} for k in range(settings)]
    _network_sweep(network, images, configs).run()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
