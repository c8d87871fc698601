"""Images that a program makes: five shapes, of fine or coarse stripes, on a background of waves.

    from textures import BEST_ACCURACY, images, to_float
    pixels, labels = images(20_000, seed=0)  # uint8 [20000, 64, 64, 3], and ten classes

A class is a shape and a texture. Position, size, rotation, colors, background, light and noise are
random. The wavelength of the stripes is drawn from one of two overlapping densities, and which of
the two it was is the texture. Hence nobody is right more often than `BEST_ACCURACY`, even one who
knows the shape and the wavelength: the best guess is the density that is higher there.

    pip install -e '.[viz]'
    python examples/textures.py sheet.png  # shows images of each class
"""

from __future__ import annotations

import sys
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

SIZE = 64  # pixels
SHAPES = ("disc", "square", "triangle", "cross", "ring")
TEXTURES = ("fine", "coarse")
CLASSES = tuple(f"{texture} {shape}" for shape in SHAPES for texture in TEXTURES)
# Of each texture, the logarithm (base 2) of the wavelength in pixels.
WAVELENGTHS = (NormalDist(2.3, 0.23), NormalDist(3.1, 0.23))
_BORDER = (WAVELENGTHS[0].mean + WAVELENGTHS[1].mean) / 2  # where the densities cross
BEST_ACCURACY = WAVELENGTHS[0].cdf(_BORDER)  # 95.9 %

_AT_ONCE = 128  # images, whose arrays then fit into a cache
_NOISE = 0.04  # standard deviation, of a range of 1


class Latents(NamedTuple):
    """What a class is about, of each image."""

    shape: np.ndarray  # int64, index into SHAPES
    texture: np.ndarray  # int64, index into TEXTURES
    wavelength: np.ndarray  # float64, pixels

    @property
    def labels(self) -> np.ndarray:
        """int32, indices into CLASSES."""
        return _label(self.shape, self.texture)


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and their labels.

    Args:
      count: of images.
      seed: of all that is random; the same gives the same images.

    Returns:
      uint8 [count, 64, 64, 3] and int32 [count].
    """
    drawn = latents(count, seed)
    rng = np.random.default_rng([seed, 1])
    pixels = np.empty((count, SIZE, SIZE, 3), np.uint8)
    for start in range(0, count, _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        pixels[rows] = _render(rng, drawn.shape[rows], drawn.wavelength[rows])
    return pixels, drawn.labels


def latents(count: int, seed: int) -> Latents:
    """The latents of the same images."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(len(SHAPES), size=count)
    texture = rng.integers(len(TEXTURES), size=count)
    means, deviations = np.array([(d.mean, d.stdev) for d in WAVELENGTHS]).T
    logarithm = rng.normal(means[texture], deviations[texture])
    return Latents(shape, texture, np.exp2(logarithm))


def best_guess(latents: Latents) -> np.ndarray:
    """The most probable label of one who knows the shape and the wavelength."""
    return _label(latents.shape, np.log2(latents.wavelength) > _BORDER)


def to_float(pixels: np.ndarray) -> np.ndarray:
    """Pixels as networks take them: float32 in [-1, 1]."""
    return pixels.astype(np.float32) / np.float32(127.5) - np.float32(1)


def _label(shape: np.ndarray, texture: np.ndarray) -> np.ndarray:
    return (shape * len(TEXTURES) + texture).astype(np.int32)


def _render(rng: np.random.Generator, shape: np.ndarray, wavelength: np.ndarray) -> np.ndarray:
    """uint8 images of these shapes, with stripes of these wavelengths."""
    count = len(shape)
    inside = _inside(rng, shape)
    stripes = _waves(rng, wavelength)
    coarse, fine = (_waves(rng, rng.uniform(low, 2.5 * low, count)) for low in (15.0, 5.0))
    light = 1 + _slope(rng, rng.uniform(0, 0.35, count))
    middle, apart = _color(rng, count, 0.08), _color(rng, count, 0.22)
    back_coarse, back_fine, front = (_color(rng, count, size) for size in (0.1, 0.08, 0.16))
    planes = np.empty((3, count, SIZE, SIZE), np.float32)
    for plane, *parts in zip(planes, middle, apart, back_coarse, back_fine, front, strict=True):
        mean, half, one, two, three = (part[:, None, None] for part in parts)
        behind = one * coarse + two * fine - half
        before = three * stripes + half
        plane[:] = (0.5 + mean + behind + inside * (before - behind)) * light
    images = np.moveaxis(planes, 0, -1).copy()
    images += rng.standard_normal(images.shape, np.float32) * np.float32(_NOISE)
    return (np.clip(images, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8)


def _inside(rng: np.random.Generator, shape: np.ndarray) -> np.ndarray:
    """1 inside of shapes of any position, size and rotation, 0 outside, less on the edge."""
    count = len(shape)
    size, angle = rng.uniform(14, 22, count), rng.uniform(0, 2 * np.pi, count)
    x, y = (_axis() - rng.uniform(-9, 9, (count, 1)) for _ in range(2))
    along, across = (f(angle)[:, None] / size[:, None] for f in (np.cos, np.sin))
    u = _outer(x * along, y * across)
    v = _outer(-x * across, y * along)
    distances = np.empty_like(u)
    for index, distance in enumerate(_DISTANCES):
        rows = shape == index
        distances[rows] = distance(u[rows], v[rows])
    return np.clip(0.5 - distances * size[:, None, None].astype(np.float32), 0, 1)


# How far outside of a shape of about size 1 points are, negative inside, each of its kind.


def _disc(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.hypot(u, v) - np.float32(0.95)


def _square(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(u), np.abs(v)) - np.float32(0.85)


def _triangle(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    slant = np.abs(u) * np.float32(3**0.5 / 2) + v * np.float32(0.5)
    return np.maximum(slant, -v) - np.float32(0.65)


def _cross(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    u, v = np.abs(u), np.abs(v)
    return np.maximum(np.minimum(u, v) - np.float32(0.38), np.maximum(u, v) - np.float32(1.05))


def _ring(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.abs(np.hypot(u, v) - np.float32(0.75)) - np.float32(0.32)


_DISTANCES = (_disc, _square, _triangle, _cross, _ring)


def _waves(rng: np.random.Generator, wavelength: np.ndarray) -> np.ndarray:
    """Plane waves of any direction and phase, in [-1, 1]."""
    angle, phase = rng.uniform(0, 2 * np.pi, (2, len(wavelength), 1))
    turns = 2 * np.pi * _axis() / wavelength[:, None]
    x, y = turns * np.cos(angle) + phase, turns * np.sin(angle)
    # sin(x + y), of sines of single axes.
    return _times(np.sin(x), np.cos(y)) + _times(np.cos(x), np.sin(y))


def _slope(rng: np.random.Generator, height: np.ndarray) -> np.ndarray:
    """Planes of any direction, about in [-height, height]."""
    angle = rng.uniform(0, 2 * np.pi, (len(height), 1))
    along = _axis() * (2 / SIZE) * height[:, None]
    return _outer(along * np.cos(angle), along * np.sin(angle))


def _color(rng: np.random.Generator, count: int, size: float) -> np.ndarray:
    """Differences of color in any direction, of about this root mean square; [3, count]."""
    offsets = rng.normal(size=(count, 3))
    offsets *= np.sqrt(3) / np.linalg.norm(offsets, axis=1, keepdims=True)
    return (offsets * size * rng.uniform(0.75, 1.25, (count, 1))).astype(np.float32).T


def _axis() -> np.ndarray:
    """Pixels from the middle."""
    return np.arange(SIZE) - (SIZE - 1) / 2


def _outer(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x + y of each pixel, float32 [count, y, x]."""
    return x.astype(np.float32)[:, None, :] + y.astype(np.float32)[:, :, None]


def _times(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x * y of each pixel."""
    return x.astype(np.float32)[:, None, :] * y.astype(np.float32)[:, :, None]


def main() -> int:
    """Writes a picture with images of each class."""
    if len(sys.argv) != 2:
        print("usage: textures.py PICTURE", file=sys.stderr)
        return 2
    from matplotlib.figure import Figure

    pixels, labels = images(200, seed=0)
    figure = Figure((12, 7.6), layout="constrained")
    for column, name in enumerate(CLASSES):
        for row, image in enumerate(pixels[labels == column][:6]):
            axes = figure.add_subplot(6, len(CLASSES), row * len(CLASSES) + column + 1)
            axes.imshow(image)
            axes.set_axis_off()
            if row == 0:
                axes.set_title(name, fontsize=9)
    figure.savefig(sys.argv[1], dpi=150)
    return 0


if __name__ == "__main__":
    sys.exit(main())
