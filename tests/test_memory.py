"""Memory: a data set of any size runs in what its first batches took."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import tosajax


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_many_images_take_no_more_than_the_first(data):
    batch = 1000
    run = tosajax.compile(tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa"), batch=batch)
    rng = np.random.default_rng(3)
    sizes, total = [], np.zeros(10, np.int64)
    for _ in range(60):
        images = rng.integers(-128, 128, (batch, 8, 8, 1)).astype(np.int8)
        total += np.asarray(run(images)[0]).sum(axis=0)
        gc.collect(0)
        sizes.append(resident_bytes())
    # The images of 50 calls are 3.2 MB, what is between two operators far more.
    assert max(sizes[10:]) - sizes[10] < 1_600_000, [s - sizes[0] for s in sizes[::5]]
    assert total.any()
