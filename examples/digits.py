"""Shared by the examples: 8x8 digits, a float network for them, and its training.

The digits come with scikit-learn (UCI "Optical Recognition of Handwritten Digits", CC BY 4.0),
without a download: `pip install -e '.[train]' scikit-learn`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tosajax import Builder, DType, Graph, Tensor
from tosajax import quant as tq


class Split(NamedTuple):
    """1,257 images for training and 540 held out; float32 [n, 8, 8, 1] in [0, 1]."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load() -> Split:
    """Loads the same split every time."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    images = (pixels / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    parts = train_test_split(images, labels, test_size=540, random_state=0, stratify=labels)
    train_images, test_images, train_labels, test_labels = map(np.asarray, parts)
    return Split(train_images, train_labels, test_images, test_labels)


def network(seed: int = 0) -> Graph:
    """A CNN of three convolutions, 3x3 to 16 channels, 3x3 to 32, 4x4 to 10; untrained."""
    rng = np.random.default_rng(seed)
    b = Builder("digits_cnn")
    x = b.input("image", DType.FP32, (1, 8, 8, 1))
    x = relu(b, convolution(b, rng, x, 16, 3, (1, 1, 1, 1), 1, "conv1"), "relu1")
    x = relu(b, convolution(b, rng, x, 32, 3, (0, 1, 0, 1), 2, "conv2"), "relu2")
    x = convolution(b, rng, x, 10, 4, (0, 0, 0, 0), 1, "conv3")
    scores = b.op("RESHAPE", x, b.const_shape((1, 10)), name="scores")
    return b.graph([scores])


def convolution(
    b: Builder,
    rng: np.random.Generator,
    x: Tensor,
    channels: int,
    size: int,
    pad: tuple[int, int, int, int],
    stride: int,
    name: str,
) -> Tensor:
    """A CONV2D with random weights."""
    assert x.shape is not None
    shape = (channels, size, size, x.shape[-1])
    weights = rng.normal(0, math.sqrt(2 / math.prod(shape[1:])), shape)
    zero = [b.const([0.0], DType.FP32) for _ in range(2)]
    return b.op(
        "CONV2D",
        x,
        b.const(weights, DType.FP32, name=f"{name}/weight"),
        b.const(np.zeros(channels), DType.FP32, name=f"{name}/bias"),
        *zero,
        pad=pad,
        stride=(stride, stride),
        dilation=(1, 1),
        acc_type=DType.FP32,
        name=name,
    )


def relu(b: Builder, x: Tensor, name: str) -> Tensor:
    """A CLAMP at 0."""
    limit = np.finfo(np.float32).max
    return b.op("CLAMP", x, min_val=np.float32(0), max_val=limit, name=name)


def rules(weight_bits: int, act_bits: int) -> list[tq.Rule]:
    """Rules with these bits of weights by channel and of activations; image and scores have 8.

    Ranges minimize the squared error, which matters below 8 bits.
    """
    weight = tq.QSpec(
        "i4" if weight_bits <= 4 and act_bits <= 8 else "i8",
        bits=weight_bits,
        per_channel=True,
        narrow_range=True,
        observer=tq.mse(),
    )
    wide = act_bits > 8
    act = tq.QSpec("i16" if wide else "i8", bits=act_bits, symmetric=wide, observer=tq.mse())
    ends = tq.QSpec("i16" if wide else "i8", symmetric=wide)
    return [tq.rule(".*", weight=weight, act=act), tq.rule("image|conv3", act=ends)]


def trained_float(split: Split, *, seed: int = 0, steps: int = 1500) -> Graph:
    """The network, trained in float32, as other programs would export it."""
    graph = network(seed)
    model = tq.prepare(graph)
    params = tq.calibrate(model, [split.train_images[:64]])
    params = train(model, params, split, steps=steps, mode="float", seed=seed)
    values = {name: np.asarray(value) for name, value in params["values"].items()}
    tensors = {
        name: dataclasses.replace(t, values=values.get(name, t.values))
        for name, t in graph.tensors.items()
    }
    return dataclasses.replace(graph, tensors=tensors)


def batches(
    split: Split, size: int, steps: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images and labels, `steps` times, in random order."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        rows = rng.choice(len(split.train_images), size, replace=False)
        yield split.train_images[rows], split.train_labels[rows].astype(np.int32)


def train(
    model: tq.QModel,
    params: Any,
    split: Split,
    *,
    steps: int,
    mode: tq.Mode = "exact",
    rate: float = 2e-3,
    size: int = 64,
    seed: int = 0,
    derive: Callable[[Any], Any] | None = None,
    penalty: Callable[[Any], jax.Array] | None = None,
) -> Any:
    """Minimizes the cross entropy of a model's scores, by Adam with a cosine schedule.

    `derive` makes the model's parameters from the trained ones, which are returned; a `penalty` of
    the model's parameters is added to the loss.
    """
    rates = optax.cosine_decay_schedule(rate, steps)

    def loss(outputs: tuple[jax.Array, ...], labels: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(outputs[0], labels).mean()

    result = tq.fit(
        model,
        params,
        batches(split, size, steps, seed),
        loss,
        steps=steps,
        optimizer=tq.relative(optax.adam(rates)),
        mode=mode,
        penalty=penalty,
        derive=derive,
    )
    return result.params


def accuracy(
    model: tq.QModel, params: Any, images: Any, labels: Any, mode: tq.Mode = "exact"
) -> float:
    """The share of images whose label has the highest score."""
    (scores,) = jax.jit(lambda p, x: model.apply(p, x, mode=mode))(params, images)
    return float((np.asarray(jnp.argmax(scores, -1)) == labels).mean())


def interval(share: float, count: int) -> str:
    """A share in percent, with half of its 95 % confidence interval (Wald)."""
    half = 1.96 * math.sqrt(max(share * (1 - share), 1e-9) / count)
    return f"{100 * share:.2f} % +- {100 * half:.2f}"
