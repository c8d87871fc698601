"""A sweep as a program of its own, to be killed, doubled and shared out.

run_sweep.py STORE TABLE.json PAUSE [PORT RANK | ray]
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
    """Takes its time for each pass."""

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


def kill_a_worker():
    """Kills one of Ray's workers as soon as it works."""
    while True:
        listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout
        found = [line.split()[0] for line in listed.splitlines() if "ray::_Worker.rows" in line]
        if found:
            os.kill(int(found[0]), signal.SIGKILL)
            return
        time.sleep(0.05)


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
        import ray  # pyright: ignore[reportMissingImports]

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        threading.Thread(target=kill_a_worker, daemon=True).start()
        options = {"ray": True}
    elif where:
        made = {"devices": mesh_of(*where), "chunk": 8}
    found = make(store, float(pause), **made).run(**options)
    with open(table, "w") as file:
        json.dump([dict(row) for row in found], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
