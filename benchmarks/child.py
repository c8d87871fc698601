"""Start to first result, in a separate process: time and peak memory.

    python -m benchmarks.child NETWORK_FILE BATCH CONTENDER

Prints one line of JSON at the first result; `measure` starts the process and takes the time. Every
contender's process imports JAX, as the benchmarks do; NOTHING does nothing else.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import contenders, machine, works
from benchmarks.layers import Network
from benchmarks.results import Start

NOTHING = "imports only"


def measure(network: Network, batch: int, names: Sequence[str]) -> dict[str, Start]:
    """Seconds from start to the first result, and peak memory in MiB, for each contender."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.pickle"
        path.write_bytes(pickle.dumps(network))
        return {name: _start(path, batch, name) for name in (NOTHING, *names)}


def _start(path: Path, batch: int, name: str) -> Start:
    command = [sys.executable, "-m", "benchmarks.child", str(path), str(batch), name]
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=works.ROOT
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - started
    if process.returncode or not line:
        raise RuntimeError(f"the process of {name} ended with status {process.returncode}")
    return {"seconds": seconds, "peak_mib": json.loads(line)["peak_mib"]}


def main(arguments: Sequence[str]) -> None:
    """Runs in the process."""
    path, batch, name = arguments
    work = works.network_work(pickle.loads(Path(path).read_bytes()), "child", int(batch))
    for contender in contenders.everyone():
        if contender.name == name:
            contender.prepare(work)()
    print(json.dumps({"peak_mib": machine.peak_mib()}), flush=True)


if __name__ == "__main__":
    machine.offer_all_cores()
    main(sys.argv[1:])
