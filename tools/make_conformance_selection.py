"""Writes tests/conformance/selection.txt: the names of a stratified selection of a whole suite.

    python tools/make_conformance_selection.py SUITE

SUITE is the folder that `python tests/conformance/run.py --all` generates below ~/.cache/tosajax,
with the official seed. Run it when the version of tosa-tools, or the definition of a stratum,
changes.
"""

from __future__ import annotations

import sys
from pathlib import Path

_CONFORMANCE = Path(__file__).resolve().parents[1] / "tests" / "conformance"


def main(suite: Path) -> None:
    """Writes the file."""
    sys.path.insert(0, str(_CONFORMANCE))
    import suite_generate
    import suite_tests

    later = suite_generate.LATER_VERSIONS
    tests = [t for t in suite_tests.find(suite) if t.operator.lower() not in later]
    chosen = suite_tests.select(tests)
    (_CONFORMANCE / "selection.txt").write_text("".join(f"{test.name}\n" for test in chosen))
    print(f"{len(chosen)} of {len(tests)} tests")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
