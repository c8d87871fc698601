"""Where the first NaN of an array is."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tosajax.arguments import nan
from tosajax.arguments.nan import first_nan


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("at", [(0, 0, 0), (2, 0, 1), (6, 2, 3)])
def test_the_first_of_two(dtype: Any, at: tuple[int, ...], monkeypatch: Any) -> None:
    array = np.zeros((7, 3, 4), dtype)
    array[at] = array[6, 2, 3] = np.nan
    array[0, 0, 2] = np.inf
    for block in (1, 12, 24, 2**20):
        monkeypatch.setattr(nan, "_BLOCK", block)
        assert first_nan(array) == at
        # However it lies in memory.
        assert first_nan(np.asfortranarray(array)) == at
        assert first_nan(np.repeat(array, 2, axis=0)[::2]) == at


def test_none() -> None:
    for array in (
        np.array([np.inf, -np.inf, 0.0], np.float32),
        np.zeros((0, 3), np.float32),
        np.zeros((3, 0), np.float32),
        np.float32(1),
        np.arange(5),
        np.array([True]),
        np.array([7, -8], ml_dtypes.int4),
    ):
        assert first_nan(np.asarray(array)) is None


def test_a_scalar_and_a_small_float() -> None:
    assert first_nan(np.asarray(np.nan, np.float32)) == ()
    small = np.array([[1, 2], [np.nan, 4]], ml_dtypes.float8_e4m3fn)
    assert first_nan(small) == (1, 0)
