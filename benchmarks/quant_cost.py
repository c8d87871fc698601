"""The cost of training on exact integers: `python -m benchmarks.quant_cost`.

The CNN of `examples/digits.py`, batch 64, W4A4. Compares a training step on the exact graph with
one of the same network, fake-quantized in plain JAX, and one in float32; and inference through
QTensors with the frozen integer graph. The programs take turns in one process.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tosajax
from benchmarks import timing
from tosajax import quant as tq
from tosajax.grad import QTensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import digits  # pyright: ignore[reportMissingImports]

BATCH = 64
TARGETS = {"exact / fake-quant step": 1.15, "QTensor / integer inference": 1.05}


def main() -> int:
    """Prints the ratios; returns 1 if one misses its target."""
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.random((BATCH, 8, 8, 1)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, 10, BATCH), jnp.int32)
    model = tq.prepare(digits.network(), digits.rules(4, 4))
    params = tq.calibrate(model, [images])
    frozen = model.freeze(params)
    plain, weights = tosajax.lower(frozen)
    shadowed, constants = tosajax.differentiable(frozen)
    (image,) = model.input_integers(params, images)
    assert isinstance(image, QTensor)
    integers = image.q

    def step(forward: Callable[[Any, jax.Array], jax.Array]) -> Callable[[], Any]:
        def loss(params: Any, images: jax.Array) -> jax.Array:
            scores = jax.nn.log_softmax(forward(params, images))
            return -jnp.take_along_axis(scores, labels[:, None], 1).mean()

        @jax.jit
        def run(params: Any, images: jax.Array) -> Any:
            slopes = jax.grad(loss)(params, images)
            return jax.tree.map(lambda p, g: p - 1e-3 * g, params, slopes)

        return lambda: run(params, images)

    through = jax.jit(lambda p, x: jax.vmap(lambda image: shadowed(p, image[None])[0].q)(x))
    alone = jax.jit(lambda p, x: jax.vmap(lambda image: plain(p, image[None])[0])(x))
    programs = {
        "float step": step(lambda p, x: _network(p, x, quantized=False)),
        "fake-quant step": step(lambda p, x: _network(p, x, quantized=True)),
        "exact step": step(lambda p, x: model.apply(p, x)[0]),
        "QTensor inference": lambda: through(constants, integers),
        "integer inference": lambda: alone(weights, integers),
    }
    runs = {name: _blocking(program) for name, program in programs.items()}
    samples = timing.measure(runs, timing.FULL)
    seconds = {name: statistics.median(s.wall for s in found) for name, found in samples.items()}
    for name, found in seconds.items():
        print(f"{name:28} {1e3 * found:8.3f} ms")
    ratios = {
        "exact / fake-quant step": seconds["exact step"] / seconds["fake-quant step"],
        "QTensor / integer inference": seconds["QTensor inference"] / seconds["integer inference"],
    }
    for name, ratio in ratios.items():
        print(f"{name:28} {ratio:8.2f}, at most {TARGETS[name]}")
    return 0 if all(ratio <= TARGETS[name] for name, ratio in ratios.items()) else 1


def _blocking(program: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        return jax.block_until_ready(program())

    run()  # compiles
    return run


# The same network as usually trained: floats, rounded to the values of integers.


def _network(params: Any, x: jax.Array, *, quantized: bool) -> jax.Array:
    values, qparams = params["values"], params["qparams"]

    def rounded(x: jax.Array, name: str) -> jax.Array:
        return _fake_quant(x, qparams[name]) if quantized else x

    x = rounded(x, "image")
    layers = (("conv1", 1, (1, 1)), ("conv2", 2, (0, 1)), ("conv3", 1, (0, 0)))
    for number, (name, stride, pad) in enumerate(layers, start=1):
        weight = rounded(values[f"{name}/weight"], f"{name}/weight")
        x = lax.conv_general_dilated(
            x, weight, (stride, stride), (pad, pad), dimension_numbers=("NHWC", "OHWI", "NHWC")
        )
        x = x + values[f"{name}/bias"]
        x = rounded(x, name) if number == 3 else rounded(jax.nn.relu(x), f"relu{number}")
    return x.reshape(BATCH, 10)


def _fake_quant(x: jax.Array, qparams: tq.QParams) -> jax.Array:
    low, high = (lax.stop_gradient(end) for end in qparams.grid)
    zero_point = 0.0 if qparams.symmetric else _straight(qparams.zero_point)
    value = x / qparams.scale + zero_point
    return (jnp.clip(_straight(value), low, high) - zero_point) * qparams.scale


def _straight(x: jax.Array) -> jax.Array:
    return x + lax.stop_gradient(jnp.round(x) - x)


if __name__ == "__main__":
    sys.exit(main())
