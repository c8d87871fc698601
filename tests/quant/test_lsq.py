"""Gradients of the exact integers are those of LSQ and LSQ+, written by hand.

LSQ: "Learned Step Size Quantization" (Esser et al., 2020); LSQ+ (Bhalgat et al., 2020) has zero
points too. Nothing in the integer graph knows of them: they are what the chain rule makes of
RESCALE, CLAMP and the convolutions.
"""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from paths import ROOT
from quick_programs import QUICKLY

from tosajax.quant import (
    QModel,
    QSpec,
    calibrate,
    percentile,
    prepare,
    relative,
    rule,
    with_bits,
)

sys.path.insert(0, str(ROOT))

from examples import digits

# Of weights and activations.
BITS = [(8, 8), (4, 4), (2, 2)]
STEPS, BATCH = 60, 8
LIMIT = 1e-5
# Pads (before and after, both axes) and strides of the convolutions of `digits.network`.
CONVOLUTIONS = {"conv1": ((1, 1), 1), "conv2": ((0, 1), 2), "conv3": ((0, 0), 1)}
ACTIVATIONS = {"conv1": "relu1", "conv2": "relu2", "conv3": "conv3"}


# LSQ+ by hand, in floats.


@jax.custom_vjp
def lsq(x, scale, zero_point, low, high):
    """x rounded to scale * (integer - zero_point), of integers from low to high."""
    return scale * (jnp.clip(jnp.round(x / scale) + zero_point, low, high) - zero_point)


def _forward(x, scale, zero_point, low, high):
    return lsq(x, scale, zero_point, low, high), (x, scale, zero_point, low, high)


def _backward(saved, gradient):
    x, scale, zero_point, low, high = saved
    value = x / scale + zero_point
    end = jnp.where(value < low, low, high) - zero_point
    inside = (value >= low) & (value <= high)
    by_scale = jnp.where(inside, jnp.round(value) - value, end)
    by_zero_point = jnp.where(inside, 0.0, -scale)
    return (
        jnp.where(inside, gradient, 0.0),
        total(gradient * by_scale, scale.shape),
        total(gradient * by_zero_point, ()),
        None,
        None,
    )


lsq.defvjp(_forward, _backward)


def total(x, shape):
    """The sum over the axes that a parameter of that shape is broadcast along."""
    kept = [axis for axis, size in enumerate(shape) if size > 1]
    return x.sum(tuple(axis for axis in range(x.ndim) if axis not in kept)).reshape(shape)


def straight_through(x, low, high):
    """x rounded and saturated, with derivative 1 for low <= x <= high."""
    passing = jnp.where((x >= low) & (x <= high), x, lax.stop_gradient(x))
    return passing + lax.stop_gradient(jnp.clip(jnp.round(x), low, high) - x)


def rounded_activation(x, qparams):
    highest = 2 ** (lax.stop_gradient(qparams.bits) - 1) - 1
    low, high = -highest - 1, highest
    zero_point = straight_through(qparams.zero_point, low, high)
    return lsq(x, qparams.scale, zero_point, low, high)


def rounded_weight(x, qparams):
    highest = 2 ** (lax.stop_gradient(qparams.bits) - 1) - 1
    return lsq(x, qparams.scale, jnp.float32(0), -highest, highest)


def rounded_bias(x, scale):
    """In units of input times weight, as in the integer graph; saturates nowhere."""
    return lsq(x, scale, jnp.float32(0), -jnp.inf, jnp.inf)


def scores_by_hand(params, x):
    """The digits CNN, fake-quantized."""
    values, qparams = params["values"], params["qparams"]
    x, scale = rounded_activation(x, qparams["image"]), qparams["image"].scale
    for name, (pad, stride) in CONVOLUTIONS.items():
        weight, activation = qparams[f"{name}/weight"], qparams[ACTIVATIONS[name]]
        x = lax.conv_general_dilated(
            x,
            rounded_weight(values[f"{name}/weight"], weight),
            (stride, stride),
            (pad, pad),
            dimension_numbers=("NHWC", "OHWI", "NHWC"),
            precision=lax.Precision.HIGHEST,
        )
        unit = scale * weight.scale.reshape(1, 1, 1, -1)
        x = x + rounded_bias(values[f"{name}/bias"].reshape(1, 1, 1, -1), unit)
        # Sums of 0 are common with few bits, and must not be 1e-9 or -1e-9 by chance.
        x = x + lax.stop_gradient(unit * jnp.round(x / unit) - x)
        if ACTIVATIONS[name].startswith("relu"):
            x = jnp.where(x >= 0, x, 0.0)
        x, scale = rounded_activation(x, activation), activation.scale
    return x.reshape(-1, 10)


# Both, along a training run.


def entropy(scores, labels):
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def groups(gradient: Any) -> dict[str, list[jax.Array]]:
    values, qparams = gradient["values"], gradient["qparams"]
    activations = [qparams[name] for name in ("image", *ACTIVATIONS.values())]
    return {
        "weights": [values[f"{name}/weight"] for name in CONVOLUTIONS],
        "biases": [values[f"{name}/bias"] for name in CONVOLUTIONS],
        "weight scales": [qparams[f"{name}/weight"].scale for name in CONVOLUTIONS],
        "activation scales": [qparams.scale for qparams in activations],
        "zero points": [qparams.zero_point for qparams in activations],
    }


def difference(found, want):
    """|found - want| / |want|; 0 where both are 0."""
    error = jnp.linalg.norm((found - want).ravel())
    return jnp.where(error == 0, error, error / jnp.linalg.norm(want.ravel()))


def make_step(model: QModel, optimizer: optax.GradientTransformation):
    """A training step of the exact graph, and how far its gradients are from those by hand."""

    def loss(scores_of, params, images, labels):
        return entropy(scores_of(params, images), labels)

    def exact(params, images):
        return model.apply(params, images)[0]

    @partial(jax.jit, compiler_options=QUICKLY)
    def step(params, state, images, labels):
        found = jax.grad(partial(loss, exact))(params, images, labels)
        want = jax.grad(partial(loss, scores_by_hand))(params, images, labels)
        updates: Any
        with jax.numpy_dtype_promotion("standard"):  # optax's Adam asks for it
            updates, state = optimizer.update(found, state, params)
        differences = jax.tree.map(difference, groups(found), groups(want))
        params = optax.apply_updates(params, updates)
        return params, state, differences

    return step


bits_changed = jax.jit(with_bits, static_argnums=0)


def start(model: QModel, params: Any, weight_bits: int, act_bits: int) -> Any:
    """Parameters where something saturates in every tensor.

    Zero points are within their range, so that both of its ends are in use, but that of relu2,
    which is beyond the lower one: it is held there, and has no gradient.
    """
    bits = dict.fromkeys(model.weights, weight_bits) | dict.fromkeys(model.activations, act_bits)
    params = bits_changed(model, params, bits)
    qparams = dict(params["qparams"])
    half = 2 ** (act_bits - 1)
    for name in model.activations:
        zero_point = float(qparams[name].zero_point)
        moved = jnp.float32(zero_point + 0.3 * half if name != "relu2" else -half - 0.3)
        qparams[name] = dataclasses.replace(qparams[name], zero_point=moved)
    return {**params, "qparams": qparams}


@pytest.mark.slow
def test_gradients_are_those_of_lsq():
    """The median of each tensor: a value that one of both rounds the other way is not a defect."""
    split = digits.load()
    model = prepare(
        digits.network(),
        [
            rule(
                ".*",
                weight=QSpec(per_channel=True, narrow_range=True, observer=percentile(98)),
                act=QSpec(symmetric=False, observer=percentile(98)),
            )
        ],
    )
    calibrated = calibrate(model, [split.train_images[:256]])
    optimizer = relative(optax.adam(2e-3))
    step = make_step(model, optimizer)
    far = {}
    for bits in BITS:
        params = start(model, calibrated, *bits)
        state = optimizer.init(params)
        steps = []
        for images, labels in digits.batches(split, BATCH, STEPS, seed=0):
            params, state, differences = step(params, state, images, labels.astype(np.int32))
            steps.append(jax.tree.map(np.asarray, differences))
        medians = jax.tree.map(lambda *values: float(np.median(values)), *steps)
        far |= {(bits, k): v for k, v in medians.items() if not np.max(v) <= LIMIT}
    assert far == {}
