"""The surrogate gradients are derivatives: of the exact loss, averaged over dithers.

The loss of integers is a staircase of the parameters, level almost everywhere. Its average over
parameters that are moved at random, by up to half a step each, is smooth: rounding is then the
identity on average. Finite differences of that average need no surrogate, and are what surrogates
are compared with.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from paths import ROOT

from tosajax.quant import QModel, calibrate, prepare, relative, with_bits

sys.path.insert(0, str(ROOT))

from examples import digits

DITHERS, DIRECTIONS, IMAGES, TRAINING_STEPS = 24, 56, 64, 200
CORRELATION = 0.75
# The convolutions, and the tensors in whose units they end.
OUTPUTS = {"conv1": "relu1", "conv2": "relu2", "conv3": "conv3"}
Draw = Callable[[jax.Array, tuple[int, ...]], jax.Array]


# One quantization step of each parameter; 0 for those that are not to move.


def nothing(params: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, params)


def weight_steps(params: Any) -> Any:
    values, qparams = nothing(params)["values"], params["qparams"]
    for name in (f"{conv}/weight" for conv in OUTPUTS):
        values[name] = values[name] + qparams[name].scale
    return {**nothing(params), "values": values}


def bias_steps(params: Any) -> Any:
    """Steps of the output, in which a bias is lost by rounding."""
    values, qparams = nothing(params)["values"], params["qparams"]
    for conv, output in OUTPUTS.items():
        values[f"{conv}/bias"] = values[f"{conv}/bias"] + qparams[output].scale
    return {**nothing(params), "values": values}


def activation_scale_steps(params: Any) -> Any:
    """Parameters that move the ends of the range by one step."""
    moved = nothing(params)["qparams"]
    for name in ("image", *OUTPUTS.values()):
        qparams = params["qparams"][name]
        step = qparams.scale / 2 ** (qparams.bits - 1)
        moved[name] = dataclasses.replace(moved[name], scale=step)
    return {**nothing(params), "qparams": moved}


# Not the scales of weights: but for saturation the dithers average their effect away, and the rest
# is within the noise of so few. Not zero points, for the same reason.
KINDS = {
    "weights": weight_steps,
    "biases": bias_steps,
    "activation scales": activation_scale_steps,
}


def drawn(key: jax.Array, steps: Any, draw: Draw) -> Any:
    """The steps, each times a random number."""
    leaves, structure = jax.tree.flatten(steps)
    # All at once: each draw is a large program.
    numbers = draw(key, (sum(leaf.size for leaf in leaves),))
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1].tolist()
    parts = zip(jnp.split(numbers, ends), leaves, strict=True)
    moved = [part.reshape(leaf.shape) * leaf for part, leaf in parts]
    return jax.tree.unflatten(structure, moved)


def uniform(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.random.uniform(key, shape, jnp.float32, -0.5, 0.5)


def sign(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.random.rademacher(key, shape, jnp.float32)


def added(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


@jax.jit
def dithered(params: Any, key: jax.Array) -> Any:
    """With every weight and bias moved by up to half a step."""
    return added(params, drawn(key, added(weight_steps(params), bias_steps(params)), uniform))


class Problem(NamedTuple):
    """A loss of parameters, and programs for it; the bits are data, so that all bits share them."""

    model: QModel
    split: digits.Split
    calibrated: Any
    train: Callable[..., Any]
    gradient: Callable[..., Any]
    differences: Callable[..., Any]


@pytest.fixture(scope="module")
def problem() -> Problem:
    split, model = digits.load(), prepare(digits.network())
    optimizer = relative(optax.adam(2e-3))

    def loss(params, images, labels):
        (scores,) = model.apply(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    gradient = jax.jit(jax.grad(loss))

    @jax.jit
    def update(gradients, state, params):
        updates: Any
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def train(params):
        state = optimizer.init(params)
        for images, labels in digits.batches(split, IMAGES, TRAINING_STEPS, seed=0):
            gradients = gradient(params, images, labels.astype(np.int32))
            with jax.numpy_dtype_promotion("standard"):  # optax's Adam asks for it
                params, state = update(gradients, state, params)
        return params

    @jax.jit
    def differences(params, images, labels, directions, dithers):
        """The derivative of the dithered loss along each of the directions."""
        starts = jax.vmap(dithered, (None, 0))(params, dithers)

        def along(direction):
            def moved(start, half):
                # To both sides with the same dithers, one whole step from side to side.
                there = jax.tree.map(lambda p, d: p + half * d, start, direction)
                return loss(there, images, labels)

            sides = jnp.asarray([0.5, -0.5], jnp.float32)
            both = jax.vmap(moved, (None, 0))
            # Some at a time: all of them take three times as long, and so does one after another.
            ends = lax.map(lambda start: both(start, sides), starts, batch_size=DITHERS // 2)
            return (ends[:, 0] - ends[:, 1]).mean()

        return lax.map(along, directions)

    calibrated = calibrate(model, [split.train_images[:256]])
    return Problem(model, split, calibrated, train, gradient, differences)


def mean_gradient(problem: Problem, params: Any, dithers: jax.Array, *batch: Any) -> Any:
    """The mean gradient over the same dithers: of a smooth loss, the derivative of its mean."""
    gradients = [problem.gradient(dithered(params, key), *batch) for key in dithers]
    return jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *gradients)


def flat(tree: Any, axes: int = 0) -> np.ndarray:
    """The leaves side by side, but for the first axes."""
    leaves = map(np.asarray, jax.tree.leaves(tree))
    return np.concatenate([x.reshape(*x.shape[:axes], -1) for x in leaves], axis=-1)


@jax.jit
def drawn_signs(keys: jax.Array, steps: Any) -> Any:
    """The steps in many directions, up or down at random."""
    return jax.vmap(partial(drawn, steps=steps, draw=sign))(keys)


def correlation(a: Any, b: Any) -> float:
    return float(np.corrcoef(a, b)[0, 1])


@pytest.mark.parametrize(
    "bits",
    [
        pytest.param((8, 8), id="w8a8", marks=pytest.mark.slow),
        pytest.param((4, 8), id="w4a8", marks=pytest.mark.slow),
        pytest.param((4, 4), id="w4a4"),
    ],
)
def test_surrogates_are_gradients_of_the_dithered_loss(problem, bits):
    model, split = problem.model, problem.split
    widths = dict.fromkeys(model.weights, bits[0]) | dict.fromkeys(model.activations, bits[1])
    params = problem.train(jax.jit(partial(with_bits, model))(problem.calibrated, widths))
    batch = split.test_images[:IMAGES], split.test_labels[:IMAGES].astype(np.int32)
    dithers = jax.random.split(jax.random.key(1), DITHERS)
    gradient = flat(mean_gradient(problem, params, dithers, *batch))
    for kind, steps in KINDS.items():
        keys = jax.random.split(jax.random.key(2), DIRECTIONS)
        directions = drawn_signs(keys, steps(params))
        want = np.asarray(problem.differences(params, *batch, directions, dithers))
        moving = np.flatnonzero(flat(steps(params)))
        along = flat(directions, axes=1)[:, moving]
        found = gradient[moving]
        expected = along @ found
        assert correlation(expected, want) >= CORRELATION, kind
        # The slope of the line through them: gradients are of the right size as well.
        assert 2 / 3 < (expected @ want) / (expected @ expected) < 3 / 2, kind
        # The same numbers, for other parameters of the kind.
        wrong = np.roll(found, found.size // 2)
        assert correlation(along @ wrong, want) < CORRELATION, kind
