"""Where the files of tests lie."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
# Files of others, which are not committed: beside the repository, where they are at hand.
CORPUS = ROOT.parent / "shared" / "corpus"
SAMPLES = ROOT.parent / "shared" / "formats" / "samples"
