"""What training on exact integers costs: `python -m benchmarks.quant_cost [--check] [NETWORK ...]`

Networks of 3 to 56 convolutions, W8A8. Compares a training step on the exact graph with a
hand-written fake-quantized one: seconds to trace and compile it, seconds a step, bytes of
temporary arrays. And inference through QTensors with the frozen integer graph. Programs take turns
in one process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tosajax
from benchmarks import fake_quant, networks, timing, tosa_float
from benchmarks.layers import Network
from tosajax import quant as tq
from tosajax.grad import QTensor
from tosajax.passes.binding import bind

_BITS = 8
_RATE = 1e-6  # of gradient descent: small, so that times are those of one network
# By name: the network, and examples of a batch.
NETWORKS: dict[str, tuple[Callable[[], Network], int]] = {
    "residual-3": (lambda: networks.residual(1), 64),
    "residual-17": (lambda: networks.residual(8, 16, 16), 64),
    "mobilenet_v2": (lambda: networks.mobilenet_v2(96), 16),
    "resnet50": (lambda: networks.resnet50(64), 16),
}
# The most that an exact step may take of a fake-quantized one, and QTensors of plain integers.
TARGETS = {"step": 1.2, "compile": 1.5, "memory": 1.5, "inference": 1.05}


class Program(NamedTuple):
    """A compiled program: seconds to make it, bytes of temporary arrays, and a call."""

    seconds: float
    memory: int
    run: Callable[[], Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; with --check, returns 1 if a ratio misses its target."""
    parser = argparse.ArgumentParser(description="What training on exact integers costs.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    if unknown := set(options.networks) - set(NETWORKS):
        parser.error(f"no network {', '.join(sorted(unknown))}")
    print(f"{'network':14} {'what':10} {'fake-quant':>11} {'exact':>11} {'ratio':>6} {'most':>6}")
    missed = 0
    for name in options.networks or NETWORKS:
        for what, (fake, exact, unit) in measure(name).items():
            ratio, most = exact / fake, TARGETS[what]
            missed += ratio > most
            figures = f"{fake:8.4g} {unit:2} {exact:8.4g} {unit:2}"
            print(f"{name:14} {what:10} {figures} {ratio:6.2f} {most:6.2f}", flush=True)
    return 1 if options.check and missed else 0


def measure(name: str) -> dict[str, tuple[float, float, str]]:
    """By what is measured: of the usual program, of ours, and the unit."""
    make, batch = NETWORKS[name]
    network = make()
    rng = np.random.default_rng(0)
    images = network.images(rng.integers(-128, 128, (batch, *network.shape)).astype(np.int8))
    images = jnp.asarray(images)
    fake = _fake_step(network, images)
    model, params = _model(network, images)
    exact = _step(lambda p, x: model.apply(p, x)[0], params, images)
    alone, through = _inference(model, params, images)
    runs = {"fake": fake.run, "exact": exact.run, "alone": alone.run, "through": through.run}
    samples = timing.measure(runs, timing.FULL)
    wall = {key: statistics.median(s.wall for s in found) for key, found in samples.items()}
    return {
        "compile": (fake.seconds, exact.seconds, "s"),
        "memory": (fake.memory / 1e6, exact.memory / 1e6, "MB"),
        "step": (1e3 * wall["fake"], 1e3 * wall["exact"], "ms"),
        "inference": (1e3 * wall["alone"], 1e3 * wall["through"], "ms"),
    }


def _model(network: Network, images: jax.Array) -> tuple[tq.QModel, Any]:
    graph = bind(tosa_float.to_float_graph(network), batch=1)
    weight = tq.QSpec("i8", bits=_BITS, per_channel=True, narrow_range=True)
    model = tq.prepare(graph, [tq.rule(".*", weight=weight, act=tq.QSpec("i8"))])
    return model, tq.calibrate(model, [images[:4]])


def _fake_step(network: Network, images: jax.Array) -> Program:
    params = fake_quant.parameters(network, _BITS)
    return _step(lambda p, x: fake_quant.run(network, _BITS, p, x), params, images)


def _step(
    forward: Callable[[Any, jax.Array], jax.Array], params: Any, images: jax.Array
) -> Program:
    """Gradient descent of the mean square of the outputs."""

    def loss(params: Any, images: jax.Array) -> jax.Array:
        return jnp.square(forward(params, images)).mean()

    def step(params: Any, images: jax.Array) -> Any:
        slopes = jax.grad(loss)(params, images)
        return jax.tree.map(lambda p, slope: p - _RATE * slope, params, slopes)

    return _compiled(step, params, images)


def _inference(model: tq.QModel, params: Any, images: jax.Array) -> tuple[Program, Program]:
    frozen = model.freeze(params)
    plain, weights = tosajax.lower(frozen)
    shadowed, constants = tosajax.differentiable(frozen)
    (integers,) = model.input_integers(params, images)
    assert isinstance(integers, QTensor)

    def alone(weights: Any, x: jax.Array) -> jax.Array:
        return jax.vmap(lambda image: plain(weights, image[None])[0])(x)

    def through(constants: Any, x: jax.Array) -> jax.Array:
        return jax.vmap(lambda image: shadowed(constants, image[None])[0].q)(x)

    return _compiled(alone, weights, integers.q), _compiled(through, constants, integers.q)


def _compiled(function: Callable[..., Any], *arguments: Any) -> Program:
    started = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    seconds = time.perf_counter() - started
    memory = compiled.memory_analysis()
    assert memory is not None

    def run() -> Any:
        return jax.block_until_ready(compiled(*arguments))

    run()
    return Program(seconds, memory.temp_size_in_bytes, run)


if __name__ == "__main__":
    sys.exit(main())
