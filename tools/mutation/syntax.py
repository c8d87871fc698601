"""Places in the syntax tree of a module: its functions, and the slots of one in reading order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple


class Slot(NamedTuple):
    """A place of a tree that holds `node`: `field` of the node of `up`, at `position` in a list."""

    node: ast.AST
    field: str
    position: int | None
    up: Slot | None

    @property
    def parent(self) -> Any:
        return None if self.up is None else self.up.node

    def put(self, new: ast.AST | None) -> None:
        """Sets another node there; None takes an element out of its list."""
        if self.position is None or isinstance(self.node, ast.boolop):
            setattr(self.parent, self.field, new)
        else:
            elements = getattr(self.parent, self.field)
            elements[self.position : self.position + 1] = [] if new is None else [new]


def find(tree: ast.Module, name: str) -> ast.AST:
    """The function, class or assignment that binds a name: "compile", "Parts.map", "_MOST".

    Raises:
      LookupError: nothing does.
    """
    part: ast.AST = tree
    for word in name.split("."):
        found = [statement for statement in _statements(part) if word in bound(statement)]
        if not found:
            raise LookupError(f"nothing is called {name}")
        part = found[-1]
    return part


def functions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """The qualified names of a module's functions and methods; inner functions are theirs."""
    for statement in _statements(tree):
        if isinstance(statement, ast.ClassDef):
            yield from functions(statement, f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.FunctionDef):
            yield f"{prefix}{statement.name}"


def bound(statement: ast.stmt) -> set[str]:
    """The names that a statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    nodes = (node for target in targets if target is not None for node in ast.walk(target))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def bound_within(statement: ast.stmt) -> set[str]:
    """The names that a statement and those of its branches bind."""
    return bound(statement).union(*map(bound, _statements(statement)))


def slots(part: ast.AST) -> Iterator[Slot]:
    """Every place of a tree but its annotations, in reading order."""
    yield from _below(Slot(part, "", None, None))


def _below(up: Slot) -> Iterator[Slot]:
    for slot in _children(up):
        yield slot
        yield from _below(slot)


def _children(up: Slot) -> Iterator[Slot]:
    node = up.node
    match node:
        case ast.BoolOp():
            for index, value in enumerate(node.values):
                if index:
                    yield Slot(node.op, "op", index - 1, up)
                yield Slot(value, "values", index, up)
        case ast.Compare():
            yield Slot(node.left, "left", None, up)
            for index, pair in enumerate(zip(node.ops, node.comparators, strict=True)):
                yield Slot(pair[0], "ops", index, up)
                yield Slot(pair[1], "comparators", index, up)
        case ast.IfExp():
            for field in ("body", "test", "orelse"):
                yield Slot(getattr(node, field), field, None, up)
        case ast.Dict():
            for index, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
                if key is not None:
                    yield Slot(key, "keys", index, up)
                yield Slot(value, "values", index, up)
        case _:
            for field, value in ast.iter_fields(node):
                yield from _in_field(up, field, value)


def _in_field(up: Slot, field: str, value: object) -> Iterator[Slot]:
    if field in ("annotation", "returns"):
        return
    if isinstance(value, ast.AST):
        yield Slot(value, field, None, up)
    elif isinstance(value, list):
        for index, node in enumerate(value):
            if isinstance(node, ast.AST):
                yield Slot(node, field, index, up)


def _statements(part: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a body, those of its branches included."""
    for child in ast.iter_child_nodes(part):
        if isinstance(child, ast.stmt):
            yield child
            if not isinstance(child, ast.FunctionDef | ast.ClassDef):
                yield from _statements(child)
