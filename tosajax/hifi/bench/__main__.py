"""Runs `python -m tosajax.hifi.bench`."""

from __future__ import annotations

import sys

from tosajax.hifi.bench.cli import main

if __name__ == "__main__":
    sys.exit(main())
