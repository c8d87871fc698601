"""Dependencies point one way, and 64-bit types stay where int48 is.

The tests read the source, imports inside functions included, so no late import can hide.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from paths import ROOT

import tosajax

PACKAGE = Path(tosajax.__file__).parent
FILES = {p.relative_to(PACKAGE).as_posix(): ast.parse(p.read_text()) for p in PACKAGE.rglob("*.py")}

# The other parts of tosajax that a part may import; lowest first.
LAYERS: dict[str, set[str]] = {
    "atomic": set(),
    "dtypes": set(),
    "html": set(),
    "progress": set(),
    "fixedpoint": {"dtypes"},
    "report": {"html"},
    "arguments": {"report"},
    "spec": {"arguments", "dtypes"},
    "compliance": {"dtypes", "spec"},
    "graph": {"dtypes", "html", "report", "spec"},
    "ops": {"dtypes", "fixedpoint", "spec.enums"},
    "checks": {"dtypes", "fixedpoint", "graph", "report", "spec"},
    "grad": {"dtypes", "fixedpoint", "ops", "spec"},
    "io": {"arguments", "atomic", "dtypes", "graph", "report", "spec"},
    "rewrite": {"dtypes", "graph", "report", "spec"},
    "viz": {"graph", "html"},
    "builder": {"arguments", "checks", "dtypes", "graph", "spec"},
    "reference_model": {"dtypes", "graph", "io"},
    "validation": {"arguments", "checks", "dtypes", "graph", "report", "spec"},
    "hifi": {"atomic", "dtypes", "fixedpoint", "ops"},
    "lowering": {"checks", "dtypes", "fixedpoint", "graph", "ops", "report", "spec", "validation"},
    "passes": {
        "arguments",
        "checks",
        "dtypes",
        "graph",
        "lowering",
        "report",
        "spec",
        "validation",
    },
    "runtime": {
        *("arguments", "atomic", "builder", "dtypes", "fixedpoint", "grad", "graph", "html"),
        *("lowering", "ops", "passes", "report", "spec", "validation"),
    },
    "compare": {
        *("arguments", "atomic", "checks", "compliance", "dtypes", "graph", "html", "io", "passes"),
        *("reference_model", "report", "rewrite", "runtime", "spec", "viz"),
    },
    "quant": {
        *("arguments", "builder", "dtypes", "fixedpoint", "grad", "graph", "html", "lowering"),
        *("ops", "passes", "progress", "reference_model", "report", "runtime", "spec"),
        "validation",
    },
    "sweep": {
        *("arguments", "atomic", "dtypes", "grad", "graph", "io", "lowering", "ops", "passes"),
        *("progress", "quant", "report", "rewrite", "runtime", "spec", "validation", "viz"),
    },
    "cli": {
        *("arguments", "atomic", "compare", "graph", "report", "rewrite", "runtime", "sweep"),
        *("progress", "tosajax", "viz"),
    },
    "__main__": {"cli"},
}

# Imports of a module or package beyond those of its part. The rest of the part may not import it.
ON_TOP: dict[str, set[str]] = {
    "hifi.custom": {"builder", "graph"},
    "hifi.to_tosa": {"builder", "graph", "report", "spec"},
    "hifi.training": {"grad"},
}

# Parts above, of whose types a part takes arguments: it imports them for checkers alone.
TYPES: dict[str, set[str]] = {"compare": {"quant"}, "viz": {"compare", "sweep"}}

# The import names of distributions, where the two differ.
IMPORT_NAMES = {"tosa-tools": "tosa_reference_model", "ai-edge-litert": "ai_edge_litert"}

WIDE = {"int64", "uint64", "float64", "complex128"}
# Modules that name a 64-bit type, all for int48. Comparisons with one do not count.
INT48_MODULES = {
    "fixedpoint/_x64.py",
    "fixedpoint/scale.py",
    "ops/routes/constant.py",
    "ops/routes/definition.py",
    "ops/routes/depthwise.py",
    "ops/routes/int16_dot.py",
    "ops/routes/loop.py",
}


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_in(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _for_checkers(path: str) -> set[ast.AST]:
    """The nodes that only type checkers read."""
    blocks = [n for n in FILES[path].body if isinstance(n, ast.If) and _is_type_checking(n.test)]
    return {inner for block in blocks for node in block.body for inner in ast.walk(node)}


def _outside(allowed: set[str], path: str, nodes: set[ast.AST]) -> set[str]:
    """The modules that nodes of a file import, but are not in any that is allowed."""
    return {n for n in _imports(path, nodes) if not any(_is_in(n, a) for a in allowed)}


def _is_type_checking(test: ast.AST) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _imports(path: str, nodes: Iterable[ast.AST] | None = None) -> set[str]:
    """The modules of the package that a file imports, without the "tosajax."."""
    found: set[str] = set()
    for node in ast.walk(FILES[path]) if nodes is None else nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} line {node.lineno}: relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {n for n in names if n.removeprefix("tosajax.") in MODULES}
            found.update(modules)
            if modules != names:
                found.add(str(node.module))
    return {n.removeprefix("tosajax.") for n in found if n.split(".")[0] == "tosajax"}


def _part(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def _third_party(nodes: Iterator[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).split(".")[0])
    return names - sys.stdlib_module_names - {"tosajax"}


def _when_imported(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: neither functions nor types for checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            continue
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _when_imported(child)


def _wide_names(path: str) -> set[str]:
    """64-bit types that a file names, as `np.int64` or "int64", comparisons left out."""
    found: set[str] = set()
    pending: list[ast.AST] = [FILES[path]]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Compare):
            continue
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.name)
        elif isinstance(node, ast.Constant):
            found.add(str(node.value))
        pending.extend(ast.iter_child_nodes(node))
    return found & WIDE


def _requirements(*, optional: bool) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [extras[name] for name in extras if name != "test"] if optional else []
    texts = [text for texts in [project["dependencies"], *listed] for text in texts]
    names: set[str] = {text.split(">")[0].split("=")[0] for text in texts}
    return {IMPORT_NAMES.get(name, name) for name in names}


MODULES = {*map(_module, FILES)}
LAYERED = sorted(path for path in FILES if path != "__init__.py")
EXACT = sorted(path for path in FILES if _part(path) in {"ops", "fixedpoint"})


@pytest.mark.parametrize("path", LAYERED)
def test_direction(path: str):
    part = _part(path)
    own = next((more for top, more in ON_TOP.items() if _is_in(_module(path), top)), set())
    allowed = {part, *LAYERS[part], *own}
    types = _for_checkers(path)
    assert _outside(allowed, path, set(ast.walk(FILES[path])) - types) == set()
    assert _outside(allowed | TYPES.get(part, set()), path, types) == set()


@pytest.mark.parametrize("top", ON_TOP)
def test_nothing_of_its_part_stands_on(top: str):
    others = [path for path in LAYERED if not _is_in(_module(path), top)]
    assert others != LAYERED
    assert {path for path in others if any(_is_in(n, top) for n in _imports(path))} == set()


def test_every_part_has_its_place():
    assert {_part(path) for path in LAYERED} == set(LAYERS)
    parts = list(LAYERS)
    for part, allowed in LAYERS.items():
        below = {*parts[: parts.index(part)], "tosajax"}
        assert {name.split(".")[0] for name in allowed} <= below, part


def test_no_module_is_hidden():
    """A module that a function of its name hides cannot be imported as a module."""
    hidden: list[str] = []
    for path in LAYERED:
        package, _, name = _module(path).rpartition(".")
        found = getattr(importlib.import_module(f"tosajax.{package}".rstrip(".")), name, None)
        if found is not None and not inspect.ismodule(found):
            hidden.append(path)
    assert hidden == []


def test_the_map_of_parts():
    """CONTRIBUTING names every part, and only paths that exist."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `tosajax/")]
    named = {name for row in rows for name in re.findall(r"`tosajax/([^`]*)`", row)}
    assert [name for name in named if not (PACKAGE / name).exists()] == []
    assert {_part(name) for name in named} == set(LAYERS) - {"__main__"}


@pytest.mark.parametrize("path", sorted(FILES))
def test_third_parties(path: str):
    """Importing needs the dependencies only; functions may also import extras, except tests'."""
    assert _third_party(_when_imported(FILES[path])) <= _requirements(optional=False)
    assert _third_party(ast.walk(FILES[path])) <= _requirements(optional=True)


@pytest.mark.parametrize("path", EXACT)
def test_64_bit_types_are_for_int48(path: str):
    if path not in INT48_MODULES:
        assert _wide_names(path) == set()


@pytest.mark.parametrize("path", sorted(INT48_MODULES))
def test_int48_modules_use_the_64_bit_scope(path: str):
    assert _wide_names(path) == {"int64"}
    assert path == "fixedpoint/_x64.py" or "fixedpoint._x64" in _imports(path)


@pytest.mark.parametrize("path", sorted(set(FILES) - {"fixedpoint/_x64.py"}))
def test_only_x64_enables_64_bit_types(path: str):
    names = {n.attr if isinstance(n, ast.Attribute) else "" for n in ast.walk(FILES[path])}
    texts = {n.value for n in ast.walk(FILES[path]) if isinstance(n, ast.Constant)}
    assert "enable_x64" not in names
    assert "jax_enable_x64" not in texts
