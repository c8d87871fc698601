"""Contents of wheel and source distribution, and the versions of JAX that tosajax accepts.

JAX and XLA promise little about some names that tosajax uses: tests here fail where a new version
lacks one.
"""

from __future__ import annotations

import ast
import email
import importlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from jax import lax
from paths import ROOT

import tosajax
from tosajax import Builder, DType, UnsupportedError
from tosajax.quant import learned_rounding
from tosajax.runtime import jax_version
from tosajax.runtime.compiled import compiler_options
from tosajax.sweep import Results

FOLDERS = ("benchmarks", "docs", "examples", "tests", "tools", "tosajax")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Parts of JAX that promise little, and those that promise nothing.
UNSTABLE = {"core", "experimental", "extend", "interpreters"}
PRIVATE = {"_src", "lib"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    (path,) = WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"]
    )
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """The folder that the source distribution unpacks to."""
    folder = tmp_path_factory.mktemp("sdist")
    (path,) = SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"tosajax-{tosajax.__version__}"


def _files(root: Path, folder: str) -> set[str]:
    found = (p for p in (root / folder).rglob("*") if p.is_file())
    return {p.relative_to(root).as_posix() for p in found if "__pycache__" not in p.parts}


def test_wheel_holds_the_package_and_nothing_else(wheel):
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == _files(ROOT, "tosajax")
    assert "tosajax/py.typed" in held


def test_wheel_runs_alone(wheel, data, tmp_path):
    wheel.extractall(tmp_path)
    script = (
        "import sys, tosajax, tosajax.cli; print(tosajax.__file__); "
        "sys.exit(tosajax.cli.main(['info', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(data / "jax_mlp" / "model.tosa")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    imported, *report = done.stdout.splitlines()
    assert imported == str(tmp_path / "tosajax" / "__init__.py")
    assert "MACs        2,368" in report


def test_metadata(wheel):
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(path))
    assert metadata["Version"] == tosajax.__version__
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    bound = f"<{jax_version.BEYOND},>={jax_version.FIRST}"
    assert {f"jax{bound}", f"jaxlib{bound}"} <= {*metadata.get_all("Requires-Dist", [])}


@pytest.mark.parametrize("folder", FOLDERS)
def test_sources_are_whole(folder, sources):
    """Tests read examples, tools and documents."""
    assert _files(sources, folder) == _files(ROOT, folder)


def test_sources_hold_what_builds_them(sources):
    (path,) = WheelBuilder(str(sources)).build(directory=str(sources), versions=["standard"])
    held = {name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name}
    assert held == _files(ROOT, "tosajax")
    assert {"README.md", "CONTRIBUTING.md", "LICENSE", "NOTICE"} <= {
        p.name for p in sources.iterdir()
    }


def test_extras_that_messages_name_exist():
    texts = [p.read_text() for p in (*ROOT.glob("*.md"), *(ROOT / "tosajax").rglob("*.py"))]
    named = {
        extra.strip()
        for text in texts
        for extras in re.findall(r"pip install [^\n]*?\[([a-z, ]+)\]", text)
        for extra in extras.split(",")
    }
    assert named >= {"cli", "litert", "reference", "train", "viz"}
    assert named <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize(
    ("module", "extra", "use"),
    [
        ("optax", "train", lambda: learned_rounding(cast(Any, None), {}, [])),
        ("pandas", "sweep", lambda: Results((), ()).to_pandas()),
    ],
)
def test_package_that_is_missing_is_named_with_its_extra(module, extra, use, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    wanted = rf"^{module} is not installed: pip install 'tosajax\[{extra}\]'$"
    with pytest.raises(ImportError, match=wanted):
        use()


@pytest.mark.parametrize("version", ["0.9.2", "0.13.0", "0.13.0.dev20270101", "1.0.0"])
def test_jax_that_is_not_tested(version, monkeypatch):
    b = Builder()
    run = tosajax.compile(b.graph(outputs=[b.op("ABS", b.input("x", DType.INT32, (3,)))]))
    with monkeypatch.context() as patch:
        patch.setattr(jax, "__version__", version)
        with pytest.raises(UnsupportedError) as error:
            run(jnp.zeros(3, jnp.int32))
    wanted = f"'jax>={jax_version.FIRST},<{jax_version.BEYOND}'"
    assert str(error.value).startswith(f"jax is {version}, and tosajax is tested with ")
    assert str(error.value).endswith(f"pip install {wanted}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0", "0.12.0.1", "0.12.9"])
def test_jax_that_is_tested(version, monkeypatch):
    monkeypatch.setattr(jax, "__version__", version)
    jax_version.check_jax()


def test_unstable_names_exist():
    used = {name for path in (ROOT / "tosajax").rglob("*.py") for name in _unstable_names(path)}
    private = {module for module, _ in used if _part_of_jax(module) not in UNSTABLE}
    assert not private, "private: find a public name"
    lacking = [f"{module}.{name}" for module, name in sorted(used) if not _has(module, name)]
    assert not lacking, f"tosajax uses {', '.join(lacking)}, which jax {jax.__version__} lacks"


def _unstable_names(path: Path) -> set[tuple[str, str]]:
    """Modules that promise little, each with a name that a file uses of it."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    found: set[tuple[str, str]] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _part_of_jax(str(node.module)):
            for alias in node.names:
                read = _attributes(nodes, alias.asname or alias.name)
                found |= {(str(node.module), f"{alias.name}{more}") for more in read}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if _part_of_jax(alias.name)}
        elif isinstance(node, ast.Attribute) and _part_of_jax(ast.unparse(node.value)):
            found.add((ast.unparse(node.value), node.attr))
    return found


def _attributes(nodes: list[ast.AST], name: str) -> set[str]:
    """Attributes of a name that a file reads, as ".a"; "" stands for the name itself."""
    attributes = (node for node in nodes if isinstance(node, ast.Attribute))
    owned = (a for a in attributes if isinstance(a.value, ast.Name) and a.value.id == name)
    return {"", *(f".{a.attr}" for a in owned)}


def _has(module: str, name: str) -> bool:
    first, _, second = name.partition(".")
    try:
        found = importlib.import_module(module)
        if first:
            found = getattr(found, first, None) or importlib.import_module(f"{module}.{first}")
    except ImportError:
        return False
    return not second or hasattr(found, second)


def _part_of_jax(module: str) -> str:
    """The part of JAX that a module belongs to, if it promises little or nothing."""
    first, second = (*module.split("."), "")[:2]
    if first == "jaxlib":
        return first
    return second if first == "jax" and second in UNSTABLE | PRIVATE else ""


def _barrier(x: jax.Array) -> jax.Array:
    return lax.optimization_barrier(x * x) + x


def _small_loop(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 4, lambda _, y: jnp.sin(y), x)


# The effect of each pass on a program, unless it is disabled.
PASSES = {
    "cse_barrier_expander": (_barrier, lambda text: "opt-barrier" not in text),
    "small-while-loop-hoisting": (_small_loop, lambda text: "xla_cpu_small_call" in text),
}


@pytest.mark.parametrize("name", PASSES)
def test_xla_passes_that_are_disabled_exist(name):
    """XLA ignores the name of a pass that it lacks, and then gives other bits."""
    program, has_run = PASSES[name]
    options: dict[str, str | bool] = {**(compiler_options("cpu") or {})}
    disabled = str(options["xla_disable_hlo_passes"]).split(",")
    assert set(disabled) == set(PASSES)
    others = ",".join(pass_ for pass_ in disabled if pass_ != name)
    lowered = jax.jit(program).lower(jnp.ones(8, jnp.float32))
    assert has_run(lowered.compile({**options, "xla_disable_hlo_passes": others}).as_text())
    assert not has_run(lowered.compile(options).as_text())


def test_nothing_else_is_in_the_root():
    """What a snippet or an example writes where it runs is easily committed with the rest."""
    listing = subprocess.run(
        ["git", "ls-files", "--", ":(glob)*"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a checkout of git")
    pages = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "NOTICE", "README.md"}
    assert set(listing.stdout.split()) == {*pages, ".gitignore", "pyproject.toml"}
