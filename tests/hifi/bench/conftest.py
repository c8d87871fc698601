"""Fixtures for the tests of HiFi's test benches."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hifi.bench_cases import raw

from tosajax.hifi.bench.cli import main


@pytest.fixture
def rng():
    return np.random.default_rng(29)


@pytest.fixture
def bench(tmp_path, capsys):
    """Runs a test bench within `tmp_path`; options are words or keywords."""

    class Bench:
        folder = tmp_path
        out = err = ""

        def run(self, name, *words, **options):
            given = [x for key, value in options.items() for x in (f"-{key}", str(value))]
            status = main([name, *map(str, words), *given])
            self.out, self.err = capsys.readouterr()
            return status

        def path(self, name):
            return str(tmp_path / name)

        def write(self, name, *arrays):
            (tmp_path / name).write_bytes(raw(*arrays))
            return str(tmp_path / name)

        def read(self, name, dtype):
            return np.fromfile(tmp_path / name, np.dtype(dtype).newbyteorder("<")).astype(dtype)

        def files(self):
            return sorted(os.listdir(tmp_path))

        def refused(self, *parts):
            """Whether the last run wrote one line to stderr, with these parts."""
            return self.err.count("\n") == 1 and all(part in self.err for part in parts)

    return Bench()
