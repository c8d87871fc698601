"""A sweep as a program, for tests that kill it, run it twice or share it out.

run_sweep.py STORE TABLE.json PAUSE [PORT RANK | MESH | ray]
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import sweep

rng = np.random.default_rng(3)
POINTS = rng.normal(0, 1, (64, 8)).astype(np.float32)
WEIGHTS = rng.normal(0, 1, (8, 5)).astype(np.float32)
LABELS = (POINTS @ WEIGHTS).argmax(1)


def scores(setting, x):
    rounded = jnp.round(WEIGHTS / setting["step"]) * setting["step"]
    return x @ rounded


class SlowData(sweep.Data):
    """Data whose passes take time."""

    pause = 0.0

    def batches(self, size, with_reference=()):
        time.sleep(self.pause)
        return super().batches(size, with_reference)


def make(store, pause=0.0, **options):
    data = SlowData((POINTS, LABELS))
    data.pause = pause
    steps = [0.05 * n for n in range(1, 61)]
    return sweep.Sweep(
        sweep.of_function(scores, "scores"), data, ["accuracy", "sqnr", "max_lsb"],
        sweep.grid(step=steps), store=store, reference=POINTS @ WEIGHTS, batch=32,
        **{"chunk": 1, **options},
    )  # fmt: skip


def started_ray() -> Any:
    import ray  # pyright: ignore[reportMissingImports]

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    return ray


def workers_at_work():
    """The processes of Ray that evaluate settings for this one."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    family, size = {str(os.getpid())}, 0
    while len(family) > size:
        size = len(family)
        family |= {pid for pid, parent, *_ in rows if parent in family}
    return [pid for pid, _, *args in rows if pid in family and "_Worker.rows" in "".join(args)]


def kill_a_worker():
    """As soon as a worker runs."""
    while not (found := workers_at_work()):
        time.sleep(0.05)
    os.kill(int(found[0]), signal.SIGKILL)


def mesh_of(shape):
    shape = tuple(map(int, shape.split("x")))
    devices = np.asarray(jax.devices()[: math.prod(shape)]).reshape(shape)
    return jax.sharding.Mesh(devices, ("settings", "data"))


def main(store, table, pause, *where):
    options, made = {}, {}
    if len(where) == 2:
        port, rank = where
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(rank))
        made = {"devices": mesh_of("1x2"), "chunk": 8}
    elif where == ("ray",):
        started_ray()
        threading.Thread(target=kill_a_worker, daemon=True).start()
        options = {"ray": True}
    elif where:
        made = {"devices": mesh_of(*where), "chunk": 8}
    found = make(store, float(pause), **made).run(**options)
    with open(table, "w") as file:
        json.dump([dict(row) for row in found], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
