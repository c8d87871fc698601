"""Options and texts that several commands share."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from tosajax.cli._common import bytes_in_words, quantization


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (3 << 40, "3072.0 GiB"),
    ],
)
def test_sizes(count: int, words: str):
    assert bytes_in_words(count) == words


def test_a_scale_and_a_zero_point():
    assert quantization("1e-38,-128") == (1e-38, -128)


@pytest.mark.parametrize("scale", ["0", "-0.5", "inf", "nan"])
def test_a_scale_that_is_not_positive_and_finite(scale: str):
    with pytest.raises(ArgumentTypeError, match=f"scale {float(scale)} is not positive and finite"):
        quantization(f"{scale},0")


@pytest.mark.parametrize("text", ["1", "1,2,3", "one,0", "1,0.5", ""])
def test_a_quantization_of_other_parts(text: str):
    with pytest.raises(ArgumentTypeError, match=f"{text!r} is not SCALE,ZERO_POINT"):
        quantization(text)
