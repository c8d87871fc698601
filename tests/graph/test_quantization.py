"""Real numbers as integers: rounding, limits, and inputs that do not fit their scale."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax import DType, Quantization, Tensor
from tosajax.graph.quantization import Clipping, dequantize, integers_of, quantize

X = Tensor("x", DType.INT8, (1, 200))
UNIT = Quantization((1 / 256,), (-128,))  # [0, 255/256]
COUNT = 200


def values(*others: float) -> np.ndarray:
    """200 elements, all of them in range but these."""
    found = np.linspace(0, 0.99, COUNT, dtype=np.float32)
    found[: len(others)] = others
    return found[None]


def test_rounding_and_limits():
    real = np.array([[-1, 0, 0.5 / 256, 1.5 / 256, 255 / 256, 1, np.inf, -np.inf]], np.float32)
    found = quantize(real, Tensor("x", DType.INT8, (1, 8)), UNIT)
    np.testing.assert_array_equal(found, [[-128, -128, -128, -126, 127, 127, 127, -128]])
    assert found.dtype == np.int8
    np.testing.assert_array_equal(
        dequantize(found, X, UNIT), [[0, 0, 0, 2 / 256, *[255 / 256] * 3, 0]]
    )


def test_what_fits_is_taken_without_a_word():
    np.testing.assert_array_equal(integers_of(values(), X, UNIT), quantize(values(), X, UNIT))
    assert integers_of(np.zeros((0, 200), np.float32), X, UNIT).shape == (0, 200)


@pytest.mark.parametrize("far", [1.5, -0.5, np.inf, -np.inf])
def test_a_small_share_beyond_the_range_is_a_warning(far):
    """Of 200 elements, 2 are 1 %."""
    with pytest.warns(UserWarning, match=r"input 'x': 1 % of the elements are beyond") as caught:
        found = integers_of(values(far, far), X, UNIT)
    np.testing.assert_array_equal(found, quantize(values(far, far), X, UNIT))
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "INT8 of scale 0.00390625 and zero point -128 holds [0, 0.996094]" in message
    assert f"{far:.6g}" in message


def test_a_large_share_is_an_error_unless_it_is_to_be_clipped():
    three = values(1.5, 1.5, 1.5)
    with pytest.raises(ValueError, match=r"1.5 % of the elements .* clip=True, --clip"):
        integers_of(three, X, UNIT)
    np.testing.assert_array_equal(integers_of(three, X, UNIT, clip=True), quantize(three, X, UNIT))


def test_many_elements_just_outside_are_a_warning():
    """1.0 where the scale ends at 255/256, as where a scale was rounded; and 1 % of the range."""
    near = values(*[1.0] * 100)
    with pytest.warns(UserWarning, match="50 % of the elements are beyond"):
        integers_of(near, X, UNIT)


@pytest.mark.parametrize(("end", "step"), [(255 / 256, 1 / 256), (0.0, -1 / 256)])
def test_one_percent_of_the_range_is_near(end, step):
    """That is 2.55 steps, on both sides; the ends themselves are inside."""
    inside = [0.0, 255 / 256] * 20
    with pytest.warns(UserWarning, match=": 50 % of"):
        integers_of(values(*inside, *[end + 2 * step] * 100), X, UNIT)
    with pytest.raises(ValueError, match=": 50 % of"):
        integers_of(values(*inside, *[end + 3 * step] * 100), X, UNIT)
    assert integers_of(values(*inside), X, UNIT).shape == (1, COUNT)


IMAGES = np.arange(200, dtype=np.float32)[None]


@pytest.mark.parametrize(
    ("quantization", "hint"),
    [
        (Quantization((0.0039,), (-128,)), "which networks take as x / 255;"),
        (Quantization((1 / 128,), (0,)), "which networks take as x / 127.5 - 1;"),
    ],
)
def test_images_of_bytes_get_a_hint(quantization, hint):
    with pytest.raises(ValueError, match=r"they look like images of 0..255, ") as caught:
        integers_of(IMAGES, X, quantization)
    assert hint in str(caught.value)
    for other in (IMAGES + 0.5, IMAGES - 100, 10 * IMAGES):
        with pytest.raises(ValueError, match="beyond the range") as caught:
            integers_of(other, X, quantization)
        assert "images" not in str(caught.value)


def test_unsigned_integers_bounds_and_channels_have_their_own_ranges():
    wide = Quantization((1.0,), (0,))
    assert integers_of(IMAGES, X, wide, unsigned=True).view(np.uint8).max() == 199
    with pytest.raises(ValueError, match=r"holds \[-128, 127\]"):
        integers_of(IMAGES, X, wide)
    with pytest.raises(ValueError, match=r"holds \[-1, 1\]"):
        integers_of(IMAGES, X, Quantization((1.0,), (0,), bounds=(-1, 1)))
    channels = Tensor("x", DType.INT8, (1, 2))
    both = Quantization((1.0, 100.0), (0,), axes=(1,))
    assert integers_of(np.array([[100.0, 1000.0]] * 9), channels, both).max() == 100
    with pytest.raises(ValueError, match=r"INT8 holds \[-12800, 12700\]"):
        integers_of(np.array([[1000.0, 1000.0]] * 9), channels, both)


def test_parts_count_together():
    """A large share of one part may be a small one of all."""
    own = Clipping(X, UNIT)
    quantize(values(), X, UNIT, clipping=own)
    quantize(values(2, 2, 2), X, UNIT, clipping=own)
    own.refuse()
    quantize(values(2, 2, 2, 2), X, UNIT, clipping=own)
    with pytest.raises(ValueError, match=r"1.17 % of the elements"):
        own.refuse()
