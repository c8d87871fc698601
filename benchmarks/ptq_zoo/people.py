"""Photographs of people, their faces and hands, from the wheel of ultralytics.

Two photographs: one of two men in a street, in whole, and one of two trainers of a football club,
of whom one points. Each is cut out in other places, sizes, turns and lights.
"""

# Images are in the extra "ptq".
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.ptq_zoo.networks import from_wheel

_WHEEL = "ultralytics==8.4.190"


class _Place(NamedTuple):
    """A part of a photograph: the row and column of its centre, its side in pixels.

    `turn` is the angle, in degrees anticlockwise, that makes it upright.
    """

    photo: str
    row: int
    column: int
    side: int
    turn: float = 0.0


_PERSONS = (
    _Place("bus", 648, 131, 640),
    _Place("bus", 625, 285, 580),
    _Place("zidane", 430, 457, 760),
    _Place("zidane", 402, 987, 760),
)
_HEADS = (
    _Place("bus", 437, 131, 70),
    _Place("bus", 447, 285, 70),
    _Place("zidane", 338, 567, 240),
    _Place("zidane", 183, 984, 220),
)
# The first is clear, so that it is in two thirds of the examples.
_HANDS = (
    _Place("zidane", 442, 1060, 240, 90),
    _Place("zidane", 442, 1060, 240, 90),
    _Place("bus", 522, 262, 80, 210),
)


def persons(rng: np.random.Generator, shape: Sequence[int], count: int, cache: Path) -> np.ndarray:
    """Whole and half persons in [0, 1]."""
    return _cut(rng, _PERSONS, shape, count, cache, sizes=(0.85, 1.2))


def persons_around_0(
    rng: np.random.Generator, shape: Sequence[int], count: int, cache: Path
) -> np.ndarray:
    """The same in [-1, 1]."""
    return 2 * persons(rng, shape, count, cache) - 1


def heads(rng: np.random.Generator, shape: Sequence[int], count: int, cache: Path) -> np.ndarray:
    """Faces with some space around them in [-1, 1]."""
    return 2 * _cut(rng, _HEADS, shape, count, cache, sizes=(1.3, 3)) - 1


def hands(rng: np.random.Generator, shape: Sequence[int], count: int, cache: Path) -> np.ndarray:
    """Upright hands in [0, 1], left and right ones."""
    return _cut(rng, _HANDS, shape, count, cache, sizes=(0.9, 1.3))


def palms(rng: np.random.Generator, shape: Sequence[int], count: int, cache: Path) -> np.ndarray:
    """Hands with much space around them in [0, 1]."""
    return _cut(rng, _HANDS, shape, count, cache, sizes=(1.3, 3), turns=40)


def _cut(
    rng: np.random.Generator,
    places: Sequence[_Place],
    shape: Sequence[int],
    count: int,
    cache: Path,
    sizes: tuple[float, float],
    turns: float = 15,
) -> np.ndarray:
    """Parts of photographs, each moved by a tenth, of a random size, turned and mirrored."""
    images = []
    for number in range(count):
        place = places[number % len(places)]
        side = place.side * rng.uniform(*sizes)
        row, column = (at + rng.uniform(-0.1, 0.1) * side for at in (place.row, place.column))
        turn = math.radians(place.turn + rng.uniform(-turns, turns))
        image = _window(_photo(place.photo, cache), row, column, side, turn, shape)
        image = image[:, ::-1] if rng.random() < 0.5 else image
        images.append(np.clip(image * rng.uniform(0.7, 1.2) + rng.uniform(-0.1, 0.1), 0, 1))
    return np.stack(images).astype(np.float32)


def _window(
    photo: np.ndarray, row: float, column: float, side: float, turn: float, shape: Sequence[int]
) -> np.ndarray:
    """A square of a photograph, turned about its centre; black beyond the edges."""
    from skimage import filters, transform

    size = shape[0]
    scale = side / size
    center = transform.SimilarityTransform(translation=(-size / 2, -size / 2))
    there = transform.SimilarityTransform(scale=scale, rotation=turn, translation=(column, row))
    smooth = filters.gaussian(photo, max(0, (scale - 1) / 2), channel_axis=-1)
    return transform.warp(smooth, center + there, output_shape=(size, size))


@functools.cache
def _photo(name: str, cache: Path) -> np.ndarray:
    """A photograph in RGB, in [0, 1]."""
    from PIL import Image

    content = from_wheel(_WHEEL, f"ultralytics/assets/{name}.jpg", cache)
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), np.float32) / 255
