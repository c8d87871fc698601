"""Runs exactness checks as on a CPU with AVX2 and without AVX-512, under QEMU's emulation.

XLA and its int8 kernels choose their instructions by the features of the CPU, so a newer machine
never runs those for an older one.

    python tools/check_haswell.py                        # some of the matrix: jit, vmap; minutes
    python tools/check_haswell.py tests/support/transform_worker.py --x64 on       # all of it
    python tools/check_haswell.py -m pytest tests/ops/test_exact_conv.py   # or anything in Python

Needs qemu-x86_64 7.2, the first with AVX2, or newer (Debian: qemu-user); the environment variable
QEMU names it if it is not on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CPU = "Haswell"
DEFAULT = [
    "tests/support/transform_worker.py",
    "--composition",
    "jit",
    "--composition",
    "jit_of_vmap",
]
# Fails unless the interpreter is really emulated.
FEATURES = """
from numpy._core._multiarray_umath import __cpu_features__ as found
assert found["AVX2"] and not found["AVX512F"], found
"""


def emulator() -> str:
    names = [os.environ.get("QEMU"), "qemu-x86_64", "qemu-x86_64-static"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("no qemu-x86_64: install qemu-user, or set QEMU to its path")
    return found


def main(arguments: list[str]) -> int:
    emulated = [emulator(), "-cpu", CPU, sys.executable]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    quiet = subprocess.run(
        [*emulated, "-c", FEATURES], env=environment, capture_output=True, text=True
    )
    if quiet.returncode:
        print(quiet.stderr, file=sys.stderr)
        return quiet.returncode
    return subprocess.run(
        [*emulated, *(arguments or DEFAULT)], cwd=ROOT, env=environment
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
