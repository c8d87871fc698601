"""Generates Arm's conformance tests of TOSA with the generator in tosa-tools.

The generator lists all tests of an operator, selects some by a configuration, and builds those;
the data of a test comes from a hash of the seed and its own name. So a few tests, built alone,
have the same bits as in the whole suite, and cost only the listing beside.

A suite is a folder with one folder for each operator, moved there when complete, so an interrupted
run resumes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import suite_processes

from tosajax import spec

TOSA_VERSION = "1.0.2"
# The version of the tests of operators that 1.0 does not have. The committed selection has none of
# them: the generator lists all tests of an operator before it makes a few, thousands of MATMUL_T.
LATER_VERSIONS = {"matmul_t": "1.1.0"}
# Extensions of types that tosajax does not have.
_BLOCKS = "tosa-ext-mx"
# The only seed with ERROR_IF tests: the official selection lists their names, which contain shapes.
OFFICIAL_SEED = 42
TEST_TYPES = ("both", "positive", "negative")


def cache_folder(seed: int, test_type: str, names: Collection[str] | None) -> Path:
    """The folder of a suite, below $TOSAJAX_CACHE or ~/.cache/tosajax."""
    root = Path(os.environ.get("TOSAJAX_CACHE") or Path.home() / ".cache" / "tosajax")
    parts = [TOSA_VERSION, f"seed{seed}"]
    if test_type != "both":
        parts.append(test_type)
    if names is not None:
        parts.append(hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:8])
    return root / "conformance" / importlib.metadata.version("tosa-tools") / "-".join(parts)


def tools_folder() -> Path:
    """Where tosa-tools is installed; its executables lie in `bin`."""
    spec = importlib.util.find_spec("tosa_reference_model")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("tosa-tools is not installed: pip install 'tosajax[test]'")
    return Path(spec.origin).parents[1]


@functools.cache
def configuration() -> dict[str, dict[str, Any]]:
    """tosa-tools' configuration of the tests of each operator that tosajax has."""
    content = json.loads((tools_folder() / "conformance" / "cts-config_v1.0.json").read_text())
    content.pop("$comment")
    return {name: entry for name, entry in content.items() if is_generated(name, entry)}


def is_generated(operator: str, entry: dict[str, Any]) -> bool:
    """Whether an operator, or a group of its tests, is not newer than the version of its tests."""
    first, last = (
        tuple(int(number) for number in version.split("."))
        for version in (entry.get("from_version", "0"), version_of(operator))
    )
    needs = [*entry.get("supports_all", ()), *entry.get("supports_any", ())]
    return first <= last and not any(name.startswith(_BLOCKS) for name in needs)


def version_of(operator: str) -> str:
    """The version of TOSA that the tests of an operator are of."""
    return LATER_VERSIONS.get(operator, TOSA_VERSION)


def operators() -> list[str]:
    """The operators that have tests, in lower case; the slowest first."""
    return sorted(configuration(), key=lambda name: ("conv" not in name, name))


def owner(name: str) -> str:
    """The operator that a test is for: conv2d for "conv2d_1x1/<test>"."""
    folder = name.split("/")[0]
    fitting = [op for op in configuration() if folder == op or folder.startswith(f"{op}_")]
    if not fitting:
        raise ValueError(f"no operator has a test {name!r}")
    return max(fitting, key=len)


def type_of(name: str) -> str:
    """Whether a test is "positive", or "negative": it breaks an ERROR_IF rule."""
    return "negative" if "_ERRORIF_" in name else "positive"


def generate(
    suite: Path,
    *,
    names: Collection[str] | None = None,
    only: Collection[str] | None = None,
    seed: int = OFFICIAL_SEED,
    test_type: str = "both",
    jobs: int = 1,
    progress: Callable[[str], None] = print,
) -> None:
    """Generates the operators that `suite` does not have yet.

    Args:
      suite: the folder; it is made.
      names: the tests to build, as "conv2d_1x1/<test>"; all by default.
      only: the operators to generate, in lower case; all by default.
      seed: of shapes and data.
      test_type: one of TEST_TYPES.
      jobs: operators generated side by side.
      progress: called with a line of text now and then.

    Raises:
      RuntimeError: the generator failed, or did not make a test of `names`.
    """
    suite.mkdir(parents=True, exist_ok=True)
    missing = [
        operator
        for operator in operators()
        if (only is None or operator in only) and not (suite / operator).is_dir()
    ]
    work = functools.partial(
        _generate_operator, suite=suite, names=names, seed=seed, test_type=test_type
    )
    results = suite_processes.apply(work, missing, jobs=jobs)
    for done, (operator, result) in enumerate(results, 1):
        if isinstance(result, suite_processes.Lost):
            raise RuntimeError(f"generating {operator}: {result.message}")
        progress(f"generated {operator}: {result} tests ({done}/{len(missing)})")


def _generate_operator(
    operator: str, suite: Path, names: Collection[str] | None, seed: int, test_type: str
) -> int:
    """Generates one operator, in a process of its own; returns the number of tests."""
    wanted = None if names is None else {name for name in names if owner(name) == operator}
    # Imported here: these packages have common names such as `generator`, and set up logging.
    from conformance import tosa_verif_conformance_generator as official

    logging.disable(logging.WARNING)
    official._run_sh_command_mp = lambda _, command: _build(command, wanted)
    with tempfile.TemporaryDirectory(dir=suite, prefix=".part-") as part:
        output = Path(part) / "suite"
        output.mkdir()
        sys.argv = _command(operator, Path(part) / "build", output, seed, test_type)
        with contextlib.redirect_stdout(None):
            status = official.main()
        built = {"/".join(p.parts[-3:-1]) for p in output.glob("operators/*/*/*/desc.json")}
        if status != 0:
            raise RuntimeError(f"the generator ends with status {status}")
        if wanted is not None and built != wanted:
            raise RuntimeError(f"the generator does not make {sorted(wanted - built)}")
        with contextlib.suppress(OSError):  # another run was faster
            output.rename(suite / operator)
    return len(built)


def _command(operator: str, build: Path, output: Path, seed: int, test_type: str) -> list[str]:
    tools = tools_folder()
    options = {
        "--ref-model-path": tools / "bin" / "tosa_reference_model",
        "--generate-lib-path": tools / "tosa_reference_model" / "libtosa_reference_generate_lib.so",
        "--schema-path": tools / "bin" / "tosa.fbs",
        "--flatc-path": tools / "bin" / "flatc",
        "--tosa-version": version_of(operator),
        "--profile": "all",
        "--output-type": "binary",
        "--build-directory": build,
        "--output-directory": output,
        "--seed": seed,
        "--test-type": test_type,
        "--op": operator,
        "-j": 1,
    }
    words = ["generator", *(str(word) for option in options.items() for word in option)]
    return [*words, "--extension", *_extensions(operator)]


def _extensions(operator: str) -> list[str]:
    """The extensions to make tests of: in later versions those that tosajax has."""
    if operator not in LATER_VERSIONS:
        return ["all"]
    return [f"tosa-{name.lower()}" for name in spec.EXTENSIONS]


def _build(
    command: Sequence[str], names: Collection[str] | None
) -> tuple[Sequence[str], int, str, str]:
    """Does the official generator's command for a batch, without a new interpreter."""
    from generator import tosa_test_gen, tosa_test_select
    from generator import tosa_verif_build_tests as build

    class Selected(tosa_test_select.TosaTestSelectList):
        def select(self, *args: Any, **kwargs: Any) -> list[Any]:
            tests = super().select(*args, **kwargs)
            return [t for t in tests if names is None or f"{t.opName}/{t}" in names]

    build.TosaTestSelectList = Selected
    # The generator changes its own class while it works: each batch needs it fresh.
    build.TosaTestGen = importlib.reload(tosa_test_gen).TosaTestGen
    try:
        return command, build.main(command[1:]), "", ""
    except Exception:
        return command, 1, "", traceback.format_exc()
