"""Damaged VGF files end in an error of their own, soon, and never end the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vgfpy", reason="vgfpy is not installed")

_DATA = Path(__file__).parent / "spirv" / "data"

# In a process of its own, which a crash of vgfpy would end.
_FUZZ = """
import json, random, struct, sys
from tosajax.io import vgf
from limits import no_hang
from tosajax.report import FormatError, UnsupportedError, TosaError

content, count = open(sys.argv[1], "rb").read(), int(sys.argv[2])
generator = random.Random(sys.argv[1])
counts = {"loaded": 0, "refused": 0}

def check(broken):
    try:
        with no_hang():
            vgf.read(broken)
        counts["loaded"] += 1
    except (FormatError, UnsupportedError, TosaError) as error:
        assert len(str(error)) < 1000
        counts["refused"] += 1

for end in range(0, len(content), 64):
    check(content[:end])
assert not counts["loaded"]
for _ in range(count):
    broken = bytearray(content)
    for _ in range(generator.choice([1, 1, 2, 4])):
        at = generator.randrange(len(broken))
        if generator.random() < 0.5:
            number = generator.choice([0, 4, 0x7FFFFFFF, 0xFFFFFFFF, generator.randrange(4096)])
            struct.pack_into("<I", broken, at & ~3, number)
        else:
            broken[at] = generator.randrange(256)
    check(bytes(broken))
print(json.dumps(counts))
"""


@pytest.mark.parametrize("name", ["conv_int8", "extra"])
@pytest.mark.parametrize("count", [60, pytest.param(20_000, marks=pytest.mark.slow)])
def test_damaged_files(name, count):
    command = [sys.executable, "-c", _FUZZ, str(_DATA / f"{name}.vgf"), str(count)]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # that of limits as well
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["loaded"] > 0
