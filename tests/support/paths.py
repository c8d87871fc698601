"""Folders that tests read."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
# Third-party files, which are not committed; they may lie beside the repository.
CORPUS = ROOT.parent / "shared" / "corpus"
SAMPLES = ROOT.parent / "shared" / "formats" / "samples"
