"""The generated images of the examples, and the best accuracy that is possible on them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from paths import ROOT

sys.path.insert(0, str(ROOT))

from examples import textures


def test_the_same_seed_gives_the_same_images():
    pixels, labels = textures.images(300, seed=3)
    again, same = textures.images(300, seed=3)
    others, _ = textures.images(300, seed=4)
    assert (pixels.shape, pixels.dtype) == ((300, 64, 64, 3), np.uint8)
    assert (labels.shape, labels.dtype) == ((300,), np.int32)
    np.testing.assert_array_equal(pixels, again)
    np.testing.assert_array_equal(labels, same)
    assert (pixels != others).mean() > 0.9


def test_images_have_the_labels_of_their_latents():
    _, labels = textures.images(300, seed=3)
    np.testing.assert_array_equal(labels, textures.latents(300, seed=3).labels)
    np.testing.assert_array_equal(np.unique(labels), np.arange(len(textures.CLASSES)))


def test_the_best_accuracy_is_that_of_the_best_guess():
    drawn = textures.latents(1_000_000, seed=0)
    share = (textures.best_guess(drawn) == drawn.labels).mean()
    deviation = (textures.BEST_ACCURACY * (1 - textures.BEST_ACCURACY) / 1e6) ** 0.5
    assert abs(share - textures.BEST_ACCURACY) < 4 * deviation


def test_the_best_accuracy_is_the_integral_of_the_higher_density():
    points = np.linspace(0, 6, 100_001)
    densities = [[texture.pdf(x) for x in points] for texture in textures.WAVELENGTHS]
    integral = np.trapezoid(np.max(densities, axis=0), points) / 2
    assert abs(integral - textures.BEST_ACCURACY) < 1e-6


def test_no_other_border_is_better():
    drawn = textures.latents(200_000, seed=1)
    logarithm = np.log2(drawn.wavelength)
    borders = np.linspace(2.4, 3.0, 25)
    shares = [((logarithm > border) == drawn.texture).mean() for border in borders]
    assert max(shares) < textures.BEST_ACCURACY + 0.002


def test_stripes_have_the_wavelength_of_the_latents():
    """By the highest peak of their Fourier transform."""
    drawn = textures.latents(24, seed=5)
    rng = np.random.default_rng(5)
    waves = textures._waves(rng, drawn.wavelength).astype(np.float64)
    spectrum = np.abs(np.fft.rfft2(np.pad(waves, ((0, 0), (0, 448), (0, 448)))))
    peaks = np.argmax(spectrum.reshape(len(waves), -1), axis=1)
    y, x = np.divmod(peaks, spectrum.shape[2])
    frequencies = np.hypot(np.minimum(y, 512 - y), x) / 512
    np.testing.assert_allclose(1 / frequencies, drawn.wavelength, rtol=0.05)


def test_floats_are_from_minus_one_to_one():
    ends = textures.to_float(np.array([0, 255], np.uint8))
    assert ends.dtype == np.float32
    np.testing.assert_array_equal(ends, [-1, 1])


def test_the_picture(tmp_path):
    path = tmp_path / "sheet.png"
    command = [sys.executable, str(ROOT / "examples/textures.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(b"\x89PNG")
