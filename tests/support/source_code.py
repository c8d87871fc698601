"""Imports and names in the files of the package, from their source."""

from __future__ import annotations

import ast
import functools
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from paths import ROOT

import tosajax

PACKAGE = Path(tosajax.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

# The import names of distributions, where the two differ.
IMPORT_NAMES = {
    "ai-ml-sdk-vgf-library": "vgfpy",
    "tosa-tools": "tosa_reference_model",
    "torch-mlir": "torch_mlir",
    "ai-edge-litert": "ai_edge_litert",
}
WIDE = {"int64", "uint64", "float64", "complex128"}


@functools.cache
def tree(path: str) -> ast.Module:
    """The syntax tree of a file of the package."""
    return ast.parse((PACKAGE / path).read_text())


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_in(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def for_checkers(path: str) -> set[ast.AST]:
    """The nodes that only type checkers read."""
    blocks = [n for n in tree(path).body if isinstance(n, ast.If) and _is_type_checking(n.test)]
    return {inner for block in blocks for node in block.body for inner in ast.walk(node)}


def outside(allowed: set[str], path: str, nodes: set[ast.AST]) -> set[str]:
    """The modules that nodes of a file import, but are not in any that is allowed."""
    return {n for n in imports(path, nodes) if not any(is_in(n, a) for a in allowed)}


def _is_type_checking(test: ast.AST) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def imports(path: str, nodes: Iterable[ast.AST] | None = None) -> set[str]:
    """The modules of the package that a file imports, without the "tosajax."."""
    found: set[str] = set()
    for node in ast.walk(tree(path)) if nodes is None else nodes:
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


def part_of(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def third_party(nodes: Iterator[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).split(".")[0])
    return names - sys.stdlib_module_names - {"tosajax"}


def when_imported(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: neither functions nor types for checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            continue
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from when_imported(child)


def wide_names(path: str) -> set[str]:
    """64-bit types that a file names, as `np.int64` or "int64", comparisons left out."""
    found: set[str] = set()
    pending: list[ast.AST] = [tree(path)]
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


def requirements(*, optional: bool) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [extras[name] for name in extras if name != "test"] if optional else []
    texts = [text for texts in [project["dependencies"], *listed] for text in texts]
    names: set[str] = {text.split(">")[0].split("=")[0] for text in texts}
    return {IMPORT_NAMES.get(name, name) for name in names}


MODULES = {*map(module_of, FILES)}
