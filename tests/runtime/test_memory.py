"""Memory: a data set of any size needs no more than its first batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The median growth of twenty calls: what every call keeps grows in all windows of twenty; the
# allocator, which takes memory in steps of up to some 15 MB and frees it late, grows in a few.
_RUN = """
import gc, os, sys
from pathlib import Path
import numpy as np
import tosajax

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

batch = 1000
run = tosajax.compile(tosajax.load(sys.argv[1]), batch=batch)
rng = np.random.default_rng(3)
sizes, total = [], np.zeros(10, np.int64)
for _ in range(400):
    images = rng.integers(-128, 128, (batch, 8, 8, 1)).astype(np.int8)
    total += np.asarray(run(images)[0]).sum(axis=0)
    gc.collect(0)
    sizes.append(resident_bytes())
assert total.any()
least = [min(sizes[at : at + 20]) for at in range(100, 400, 20)]
print(int(np.median(np.diff(least))))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_many_images_take_no_more_than_the_first(data):
    """In a process of its own, as memory that other tests left would distort the sizes."""
    model = data / "et_digits_cnn_a8w8" / "model.tosa"
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(model)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # The images of twenty calls are 1,280,000 bytes, tensors between two operators far more.
    assert int(done.stdout) < 640_000
