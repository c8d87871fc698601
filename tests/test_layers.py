"""Dependencies point one way, and 64-bit types stay where int48 is.

The tests read the source, imports inside functions included, so no late import can hide.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest
from paths import ROOT
from source_code import (
    FILES,
    PACKAGE,
    for_checkers,
    imports,
    is_in,
    module_of,
    outside,
    part_of,
    requirements,
    third_party,
    tree,
    when_imported,
    wide_names,
)

# The other parts of tosajax that a part may import; lowest first.
LAYERS: dict[str, set[str]] = {
    "atomic": set(),
    "versions": set(),
    "block_scaled": set(),
    "dtypes": {"block_scaled", "versions"},
    "environment": set(),
    "html": set(),
    "progress": set(),
    "text_table": {"html"},
    "fixedpoint": {"dtypes"},
    "report": {"html", "versions"},
    "arguments": {"report"},
    "spec": {"arguments", "dtypes", "versions"},
    "compliance": {"dtypes", "spec"},
    "graph": {"dtypes", "html", "report", "spec", "versions"},
    "ops": {"dtypes", "environment", "fixedpoint", "spec"},
    "checks": {"dtypes", "fixedpoint", "graph", "report", "spec"},
    "grad": {"dtypes", "fixedpoint", "ops", "spec"},
    "io": {"arguments", "atomic", "dtypes", "graph", "report", "spec", "versions"},
    "rewrite": {"dtypes", "graph", "report", "spec"},
    "vela": {"graph", "io", "report", "spec"},
    "viz": {"graph", "html", "spec"},
    "reference_model": {"arguments", "dtypes", "graph", "io"},
    "validation": {
        *("arguments", "checks", "dtypes", "graph", "report", "spec", "versions"),
    },
    "builder": {"arguments", "checks", "dtypes", "graph", "spec", "validation"},
    "hifi": {"atomic", "dtypes", "fixedpoint", "ops", "report"},
    "native": {"atomic", "environment", "fixedpoint", "ops"},
    "lowering": {
        *("arguments", "block_scaled", "checks", "dtypes", "fixedpoint", "graph", "native"),
        *("ops", "report", "spec", "validation"),
    },
    "passes": {
        *("arguments", "checks", "dtypes", "graph", "lowering", "report", "spec", "validation"),
    },
    "runtime": {
        *("arguments", "atomic", "block_scaled", "builder", "checks", "dtypes", "fixedpoint"),
        *("grad", "graph"),
        *("html", "io", "lowering", "native", "ops", "passes", "report", "spec", "text_table"),
        "validation",
    },
    "from_jax": {
        *("arguments", "builder", "dtypes", "fixedpoint", "graph", "hifi", "ops", "passes"),
        *("report", "runtime", "spec", "validation"),
    },
    "compare": {
        *("arguments", "atomic", "block_scaled", "checks", "compliance", "dtypes", "graph"),
        *("html", "io", "lowering", "passes", "reference_model", "report", "rewrite"),
        *("runtime", "spec", "text_table", "viz"),
    },
    "quant": {
        *("arguments", "atomic", "builder", "dtypes", "fixedpoint", "from_jax", "grad", "graph"),
        *("html", "lowering", "ops", "passes", "progress", "reference_model", "report"),
        *("rewrite", "runtime", "spec", "validation", "vela", "viz"),
    },
    "sweep": {
        *("arguments", "atomic", "dtypes", "grad", "graph", "io", "lowering", "ops", "passes"),
        *("progress", "quant", "report", "rewrite", "runtime", "spec", "text_table"),
        *("validation", "viz"),
    },
    "cli": {
        *("arguments", "atomic", "compare", "dtypes", "from_jax", "graph", "html", "io"),
        *("report", "rewrite", "runtime", "spec"),
        *("progress", "quant", "sweep", "tosajax", "viz"),
    },
    "__main__": {"cli"},
}

# Imports of a module or package beyond those of its part. The rest of the part may not import it.
ON_TOP: dict[str, set[str]] = {
    "hifi.custom": {"builder", "graph"},
    "hifi.to_tosa": {"builder", "graph", "spec"},
    "hifi.training": {"grad"},
}

# Parts above, of whose types a part takes arguments: it imports them for checkers alone.
TYPES: dict[str, set[str]] = {"compare": {"quant"}, "viz": {"compare", "quant", "sweep"}}

# Modules and packages of `quant`, lowest first: each imports those before it.
QUANT = (
    *("storages", "qparams", "ranges", "graphs", "spec", "model", "convert", "freezing", "qmodel"),
    *("preparation", "lifting", "limiting", "sampling", "outliers", "observing", "calibration"),
    *("sequences", "error_report"),
    *("bit_exact", "training", "tune"),
)

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

# Parts and modules that import extras, and that only functions or processes of others import.
OPTIONAL = ("native", "io.onnx.preparation", "io.onnx.quantized", "io.onnx.resizes")

LAYERED = [path for path in FILES if path != "__init__.py"]
EXACT = [path for path in FILES if part_of(path) in {"ops", "fixedpoint"}]


@pytest.mark.parametrize("part", LAYERS)
def test_direction(part: str):
    for path in LAYERED:
        if part_of(path) == part:
            own = next((more for top, more in ON_TOP.items() if is_in(module_of(path), top)), set())
            allowed = {part, *LAYERS[part], *own}
            types = for_checkers(path)
            assert outside(allowed, path, set(ast.walk(tree(path))) - types) == set(), path
            assert outside(allowed | TYPES.get(part, set()), path, types) == set(), path


@pytest.mark.parametrize("place", QUANT)
def test_direction_in_quant(place: str):
    files = [p for p in LAYERED if is_in(module_of(p), f"quant.{place}")]
    assert files
    allowed = {f"quant.{name}" for name in QUANT[: QUANT.index(place) + 1]}
    for path in files:
        nodes = set(ast.walk(tree(path))) - for_checkers(path)
        assert {n for n in outside(allowed, path, nodes) if is_in(n, "quant")} == set(), path


def test_every_place_of_quant_is_in_order():
    modules = [module_of(p) for p in LAYERED if part_of(p) == "quant"]
    assert {module.split(".")[1] for module in modules if "." in module} == set(QUANT)


@pytest.mark.parametrize("top", ON_TOP)
def test_nothing_of_its_part_stands_on(top: str):
    part = [path for path in LAYERED if part_of(path) == top.partition(".")[0]]
    others = [path for path in part if not is_in(module_of(path), top)]
    assert others != part
    assert {path for path in others if any(is_in(n, top) for n in imports(path))} == set()


def test_every_part_has_its_place():
    assert {part_of(path) for path in LAYERED} == set(LAYERS)
    parts = list(LAYERS)
    for part, allowed in LAYERS.items():
        below = {*parts[: parts.index(part)], "tosajax"}
        assert {name.split(".")[0] for name in allowed} <= below, part


def test_no_module_is_hidden():
    """A module that a function of its name hides cannot be imported as a module."""
    hidden: list[str] = []
    for path in LAYERED:
        package, _, name = module_of(path).rpartition(".")
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
    assert {part_of(name) for name in named} == set(LAYERS) - {"__main__"}


def test_third_parties():
    """Importing needs the dependencies only; functions may also import extras, except tests'."""
    needed, all_extras = requirements(optional=False), requirements(optional=True)
    for path in FILES:
        is_optional = any(is_in(module_of(path), place) for place in OPTIONAL)
        own = all_extras if is_optional else needed
        assert third_party(when_imported(tree(path))) <= own, path
        assert third_party(ast.walk(tree(path))) <= all_extras, path


def test_64_bit_types_are_for_int48():
    assert {path for path in EXACT if wide_names(path)} <= INT48_MODULES


@pytest.mark.parametrize("path", sorted(INT48_MODULES))
def test_int48_modules_use_the_64_bit_scope(path: str):
    assert wide_names(path) == {"int64"}
    assert path == "fixedpoint/_x64.py" or "fixedpoint._x64" in imports(path)


def test_only_x64_enables_64_bit_types():
    for path in set(FILES) - {"fixedpoint/_x64.py"}:
        nodes = list(ast.walk(tree(path)))
        names = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
        texts = {n.value for n in nodes if isinstance(n, ast.Constant)}
        assert "enable_x64" not in names, path
        assert "jax_enable_x64" not in texts, path
