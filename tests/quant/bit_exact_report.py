"""Prints whether networks compute the same integers while they are trained as when they ship.

    python tests/quant/bit_exact_report.py [--images 540] [SETTING ...]

For each setting ("cnn W4A8": bits of weights and of activations) a model is calibrated, trained
for some steps on its own integers, and frozen. Every tensor of the forward of training must then
equal, for every image, what three programs make of the frozen graph: an interpreter in NumPy
(tests/support/oracle/numpy_graph.py), `tosajax.lower`, and Arm's reference model. Exits 1 when one
differs.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from oracle import numpy_graph
from quant import digit_networks
from quick_programs import QUICKLY

from tosajax import Graph
from tosajax.grad.qtensor import payload
from tosajax.quant import (
    Comparison,
    QSpec,
    calibrate,
    check_bit_exact,
    prepare,
    relative,
    rule,
    with_bits,
)

PROGRAMS = ("numpy", "frozen", "reference_model")
_STEPS, _BATCH, _RATE = 8, 64, 5e-3


class Setting(NamedTuple):
    """A network, with the types and the bits of its weights and activations."""

    network: Callable[[], Graph]
    weight_bits: int = 8
    act_bits: int = 8
    weight: str = "i8"
    act: str = "i8"

    def __str__(self) -> str:
        return f"{self.network.__name__} W{self.weight_bits}A{self.act_bits}"


SETTINGS = {
    str(setting): setting
    for setting in (
        Setting(digit_networks.cnn),
        Setting(digit_networks.cnn, 4, 8, weight="i4"),
        Setting(digit_networks.cnn, 4, 4, weight="i4"),
        Setting(digit_networks.cnn, 3, 3, weight="i4"),
        Setting(digit_networks.cnn, 2, 4),
        Setting(digit_networks.cnn, 2, 2),
        Setting(digit_networks.cnn, 8, 16, act="i16"),
        Setting(digit_networks.separable),
        Setting(digit_networks.autoencoder),
        Setting(digit_networks.attention),
    )
}


def main(arguments: list[str]) -> int:
    """Prints the table; returns the exit status."""
    options = _parser().parse_args(arguments)
    programs = "".join(f"{program:>17}" for program in PROGRAMS)
    print(f"{'elements that differ':<22}{'tensors':>8}{'elements':>10}{programs}", flush=True)
    wrong: list[str] = []
    for name in options.settings or SETTINGS:
        found = compare(SETTINGS[name], options.images).comparisons
        wrong += [f"{name}, {comparison}" for comparison in found if comparison.mismatches]
        parts = [[c for c in found if c.against == program] for program in PROGRAMS]
        sizes = f"{len(parts[0]):>8}{sum(c.elements for c in parts[0]):>10}"
        counts = "".join(f"{sum(c.mismatches for c in part):>17}" for part in parts)
        print(f"{name:<22}{sizes}{counts}", flush=True)
    print("\n".join(wrong) or f"all equal, for {min(options.images, 540)} images")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=", ".join(SETTINGS))
    parser.add_argument("--images", type=int, default=540, help="of the 540; all by default")
    return parser


class Compared(NamedTuple):
    """A frozen graph, each of its tensors as training computes it, and how that compares."""

    frozen: Graph
    values: dict[str, np.ndarray]  # without constants
    comparisons: tuple[Comparison, ...]


def compare(setting: Setting, images: int) -> Compared:
    """Compares every tensor with each of PROGRAMS, for the first of the images.

    Arm's model takes a millisecond for an image, but some 20 where there is an INT48 tensor.
    """
    shared = models(setting)
    params = shared.trained(setting.weight_bits, setting.act_bits)
    x = digit_networks.digits()[0][:images, None]
    found = {name: np.asarray(payload(y)) for name, y in shared.forward(params, x).items()}
    frozen = shared.model.freeze(params)
    expected = numpy_graph.run(frozen, *(found[name] for name in frozen.inputs))
    computed = [name for node in frozen.nodes if node.inputs for name in node.outputs]
    report = check_bit_exact(shared.model, params, x)
    comparisons = [_numpy(name, found[name], expected[name]) for name in computed]
    values = {name: found[name] for name in (*frozen.inputs, *computed)}
    return Compared(frozen, values, (*comparisons, *report.comparisons))


def _numpy(name: str, found: np.ndarray, expected: np.ndarray) -> Comparison:
    # A tensor that depends on no input has one example there.
    wanted = np.broadcast_to(expected, found.shape).astype(np.int64)
    error = np.abs(found.astype(np.int64) - wanted)
    wrong = np.argwhere(error)
    first = tuple(wrong[0].tolist()) if len(wrong) else None
    return Comparison(name, "numpy", found.size, len(wrong), int(error.max()), first)


def models(setting: Setting) -> Models:
    return _models(setting.network, setting.weight, setting.act)


class Models:
    """The compiled functions of settings that differ in bits alone, which are parameters."""

    def __init__(self, network: Callable[[], Graph], weight: str, act: str) -> None:
        weights = QSpec(weight, per_channel=True, narrow_range=True)
        activations = QSpec(act, symmetric=act == "i16")
        self.model = prepare(network(), [rule(".*", weight=weights, act=activations)])
        self.images, self.labels = digit_networks.digits()
        self.calibrated = calibrate(self.model, [self.images[:_BATCH, None]])
        self.optimizer = relative(optax.adam(_RATE))
        self.with_bits = jax.jit(self._with_bits)
        # Compiling takes longer than all runs; check_bit_exact compiles the forward as users do.
        self.step = jax.jit(self._step, compiler_options=QUICKLY)
        self.forward = jax.jit(self._forward, compiler_options=QUICKLY)

    def trained(self, weight_bits: int, act_bits: int) -> Any:
        """Parameters a few steps away from calibration, with no special values."""
        params = self.with_bits(np.float32(weight_bits), np.float32(act_bits))
        state = self.optimizer.init(params)
        for n in range(0, _STEPS * _BATCH, _BATCH):
            batch = self.images[n : n + _BATCH, None], self.labels[n : n + _BATCH]
            params, state = self.step(params, state, *batch)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))
        return params

    def _with_bits(self, weight_bits: jax.Array, act_bits: jax.Array) -> Any:
        bits = dict.fromkeys(self.model.weights, weight_bits)
        bits |= dict.fromkeys(self.model.activations, act_bits)
        return with_bits(self.model, self.calibrated, bits)

    def _step(self, params: Any, state: Any, x: jax.Array, labels: jax.Array) -> tuple[Any, Any]:
        gradient = jax.grad(self._loss)(params, x, labels)
        with jax.numpy_dtype_promotion("standard"):  # which optax counts on
            steps: Any
            steps, state = self.optimizer.update(gradient, state, params)
        return optax.apply_updates(params, steps), state

    def _loss(self, params: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
        (y,) = self.model.apply(params, x)
        if y.shape == x.shape:  # an image again
            return jnp.square(y - x).mean()
        scores = y.reshape(labels.size, -1)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    def _forward(self, params: Any, x: jax.Array) -> dict[str, Any]:
        """Every tensor that is not a constant."""
        tensors = self.model.graph.tensors
        names = [name for name in tensors if tensors[name].values is None]
        values = self.model.with_outputs(*names).integers(params, x)
        return dict(zip(names, values, strict=True))


_models = functools.cache(Models)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
