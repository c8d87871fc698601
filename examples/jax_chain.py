"""Shared by the examples of JAX frameworks: from a trained float network to integers and back.

pip install -e '.[train,reference]' scikit-learn
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import digits
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tosajax import quant as tq

Bits = tuple[int, int]


class Settings(NamedTuple):
    """How long to train, which bits of weights and activations, and how much to check."""

    float_steps: int
    steps: int
    bits: tuple[Bits, ...]
    checked: int


def settings(doc: str) -> Settings:
    """The settings that the command line asks for."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="W4A8, fewer steps")
    if parser.parse_args().quick:
        return Settings(150, 24, ((4, 8),), 2)
    return Settings(1000, 300, ((8, 8), (4, 8)), 64)


def cross_entropy(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean over a batch."""
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def trained(
    loss: Callable[..., tuple[jax.Array, Any]],
    params: Any,
    state: Any,
    split: digits.Split,
    steps: int,
) -> tuple[Any, Any]:
    """Trains a float network by Adam.

    Args:
      loss: of parameters, state, images and labels; a scalar, and the next state.
      params: pytree of what is trained.
      state: pytree of what is not, as the statistics of batch norms.
      split: the data.
      steps: of 64 images.
    """
    optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, steps))

    @jax.jit
    def step(params: Any, state: Any, memory: Any, images: Any, labels: Any) -> tuple[Any, ...]:
        gradient, state = jax.grad(loss, has_aux=True)(params, state, images, labels)
        updates, memory = optimizer.update(gradient, memory, params)
        return optax.apply_updates(params, updates), state, memory

    memory = optimizer.init(params)
    for images, labels in digits.batches(split, 64, steps, seed=0):
        params, state, memory = step(params, state, memory, images, labels)
    return params, state


def accuracy(scores: Any, labels: Any) -> float:
    """The share of labels with the highest score."""
    return float((np.asarray(scores).argmax(-1) == labels).mean())


def quantized(
    fn: Callable[..., Any],
    params: Any,
    example: np.ndarray,
    run: Callable[[Any, np.ndarray], Any],
    split: digits.Split,
    chosen: Settings,
) -> bool:
    """Quantizes a function, trains it on its integers and reads its parameters back.

    Args:
      fn: of the parameters and an image, or a module of an image.
      params: as for `prepare`.
      example: an image, as `fn` takes it.
      run: the scores of images, of what `QModel.pytree` gives.
      split: the data.
      chosen: what to do.

    Returns:
      Whether all integers are those of Arm's model, and what is read back computes the same.
    """
    images, labels = split.test_images, split.test_labels
    passes = True
    for weight, act in chosen.bits:
        spec = tq.QSpec(bits=weight, per_channel=True, narrow_range=True, observer=tq.mse())
        rules = [tq.rule(".*", weight=spec, act=tq.QSpec(bits=act, symmetric=False))]
        model = tq.prepare(fn, rules, example_args=(example,), params=params)
        start = tq.calibrate(model, [split.train_images[:128]])
        trained_params = tq.fit(
            model,
            start,
            digits.batches(split, 32, chosen.steps, seed=1),
            lambda outputs, labels: cross_entropy(outputs[0], labels),
            optimizer=tq.relative(optax.adam(optax.cosine_decay_schedule(1e-3, chosen.steps))),
            derive=model.readable,
        ).params
        apply = jax.jit(model.apply, static_argnames="mode")
        scores = apply(trained_params, images)[0]
        checked = images[: chosen.checked]
        equal = tq.check_bit_exact(model, trained_params, checked, against="reference_model")
        floats = apply(trained_params, images, mode="float")[0]
        back = run(model.pytree(trained_params), images)
        error = float(jnp.abs(back - floats).max() / jnp.abs(floats).max())
        print(
            f"W{weight}A{act}: trained on integers {100 * accuracy(scores, labels):.2f} %, "
            f"in Arm's model {equal}"
        )
        print(
            f"      read back, in floats {100 * accuracy(back, labels):.2f} %, "
            f"within {error:.1e} of the graph"
        )
        passes = passes and bool(equal) and error < 1e-4
    return passes
