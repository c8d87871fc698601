"""What networks are for, as one number: how near the answers of integers are to those in floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.ptq_zoo import metrics

Outputs = Sequence[np.ndarray]


class Task(NamedTuple):
    """A measure of answers, and what it should be.

    Args:
      name: for tables.
      measure: (outputs in floats, outputs of integers) -> a share.
      target: of the measure.
      at_most: whether less is better.
    """

    name: str
    measure: Callable[[Outputs, Outputs], float]
    target: float
    at_most: bool = False

    def is_met(self, value: float) -> bool:
        return value <= self.target if self.at_most else value >= self.target


def argmax() -> Task:
    """Classes, on the last axis of the first output."""
    return Task("argmax", lambda a, b: metrics.agreement(a[0], b[0]), 0.98)


def mask(threshold: float) -> Task:
    """Pixels of the first output that are on the same side of a threshold."""

    def measure(floats: Outputs, integers: Outputs) -> float:
        return float(((floats[0] > threshold) == (integers[0] > threshold)).mean())

    return Task("mask", measure, 0.98)


def landmarks(numbers: int, size: int) -> Task:
    """The mean distance of points of the first output, as a share of the image's side.

    Args:
      numbers: of each point; its x and y in pixels come first.
      size: the image's side in pixels.
    """

    def measure(floats: Outputs, integers: Outputs) -> float:
        a, b = (np.reshape(y[0], (-1, numbers))[:, :2] for y in (floats, integers))
        return float(np.linalg.norm(a.astype(np.float64) - b, axis=-1).mean() / size)

    return Task("landmarks", measure, 0.01, at_most=True)


def boxes() -> Task:
    """The mean error of boxes that are found, as a share of their sides.

    The first output has a box for each anchor: its center, its width and height in pixels, and
    points; the second the logit that there is something. Where no image has anything, the likeliest
    box of each counts.
    """

    def measure(floats: Outputs, integers: Outputs) -> float:
        count = len(floats[0])
        a, b = (np.reshape(y[0], (count, -1, y[0].shape[-1]))[..., :4] for y in (floats, integers))
        logits = np.reshape(floats[1], (count, -1))
        best = logits.argmax(-1)
        is_found = logits[np.arange(count), best] > 0
        chosen = np.flatnonzero(is_found) if is_found.any() else np.arange(count)
        a, b = (y[chosen, best[chosen]].astype(np.float64) for y in (a, b))
        sides = np.abs(a[:, 2:]).mean(-1, keepdims=True)
        return float((np.abs(a - b) / sides).mean())

    return Task("boxes", measure, 0.01, at_most=True)
