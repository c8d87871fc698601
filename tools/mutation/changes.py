"""The small changes of code that make mutants. Each finds its place in the syntax, not in the text.

A change names an operator, a constant, a name, a call or a condition of one function. Where a
function has several, `at` counts them from 0 in reading order; without it there must be just one.
A change whose place is gone raises `LookupError`, so that no mutant goes stale unseen.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

from mutation.syntax import Slot, bound, bound_within, find, slots

OPERATORS: dict[str, type[ast.AST]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    "is": ast.Is,
    "is not": ast.IsNot,
    "in": ast.In,
    "not in": ast.NotIn,
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "//": ast.FloorDiv,
    "%": ast.Mod,
    "**": ast.Pow,
    "@": ast.MatMult,
    "<<": ast.LShift,
    ">>": ast.RShift,
    "&": ast.BitAnd,
    "|": ast.BitOr,
    "^": ast.BitXor,
    "and": ast.And,
    "or": ast.Or,
}
_SIGNS: dict[str, type[ast.AST]] = {"-": ast.USub, "~": ast.Invert, "not": ast.Not}

Edit = Callable[[], None]


class Change(NamedTuple):
    """One change of a function: `text` is how it is written, `edits` gives one for each place."""

    text: str
    edits: Callable[[ast.AST], Iterator[Edit]]
    at: int | None = None
    adds: str = ""  # the expression that it brings in

    def __str__(self) -> str:
        return self.text if self.at is None else f"{self.text[:-1]}, at={self.at})"

    def apply(self, tree: ast.Module, name: str) -> ast.Module:
        """A copy of a module with the change in the function, class or variable called `name`.

        Raises:
          LookupError: the module has no such name, the change fits no place, or several and has
            no `at`, it changes nothing, or it brings in a name that is not bound there.
        """
        changed = _copy(tree, name.split(".")[0])
        part = find(changed, name)
        places = list(self.edits(part))
        if self.at is None and len(places) != 1:
            raise LookupError(f"{name}: {self} fits {len(places)} places, expected 1, or at=...")
        if self.at is not None and self.at >= len(places):
            raise LookupError(f"{name}: {self} fits {len(places)} places, expected more")
        if unbound := _used(self.adds) - _words(tree, part):
            raise LookupError(f"{name}: {self} uses {sorted(unbound)}, which is not bound there")
        before = ast.dump(part)
        places[self.at or 0]()
        if ast.dump(part) == before:
            raise LookupError(f"{name}: {self} changes nothing")
        return changed


def change(old: str, new: str, at: int | None = None) -> Change:
    """An operator, a constant, a name or a call becomes another; the last three also an expression.

    Args:
      old: "<", "and", "31", '"r1"', "axis", "jnp.sort" or, of any object, ".shape"; a call is
        "jnp.sort()" or ".sum()".
      new: an operator for an operator, an attribute for an attribute, otherwise an expression; "_"
        in it stands for the old one.
    """

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            if old in OPERATORS:
                if isinstance(slot.node, OPERATORS[old]):
                    yield partial(slot.put, OPERATORS[new]())
            elif not new.startswith("."):
                if _is(slot.node, old) and not _is_assigned(slot.node):
                    yield partial(slot.put, _expression(new, slot.node))
            elif isinstance(slot.node, ast.Attribute) and slot.node.attr == old[1:]:
                yield partial(setattr, slot.node, "attr", new[1:])

    is_expression = old not in OPERATORS and not new.startswith(".")
    return Change(f"change({old!r}, {new!r})", edits, at, new if is_expression else "")


def assign(name: str, new: str, at: int | None = None) -> Change:
    """The value assigned to a variable becomes another expression; "_" is the old one."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in (Slot(part, "", None, None), *slots(part)):
            node = slot.node
            if isinstance(node, ast.Assign) and name in bound(node):
                yield partial(setattr, node, "value", _expression(new, node.value))

    return Change(f"assign({name!r}, {new!r})", edits, at, new)


def left(operator: str, at: int | None = None) -> Change:
    """An operator's left operand stays alone: `a and b` becomes `a`."""
    return Change(f"left({operator!r})", partial(_without_operand, operator, 1), at)


def right(operator: str, at: int | None = None) -> Change:
    """An operator's right operand stays alone: `a and b` becomes `b`."""
    return Change(f"right({operator!r})", partial(_without_operand, operator, 0), at)


def unsigned(sign: str, at: int | None = None) -> Change:
    """A "-", "~" or "not" before an expression goes."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            if isinstance(slot.node, ast.UnaryOp) and isinstance(slot.node.op, _SIGNS[sign]):
                yield partial(slot.put, slot.node.operand)

    return Change(f"unsigned({sign!r})", edits, at)


def swap(old: str, at: int | None = None, *, places: tuple[int, int] = (0, 1)) -> Change:
    """The operands of a binary operator, or two arguments of a function, change places."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            node = slot.node
            if isinstance(node, ast.BinOp) and isinstance(node.op, OPERATORS.get(old, ())):
                yield partial(_swap_operands, node)
            elif (
                isinstance(node, ast.Call) and _is(node.func, old) and len(node.args) > max(places)
            ):
                yield partial(_swap_elements, node.args, *places)

    which = "" if places == (0, 1) else f", places={places}"
    return Change(f"swap({old!r}{which})", edits, at)


def exchange(first: str, second: str, at: int | None = None) -> Change:
    """Two elements of a tuple or of a call's arguments, constants or names, change places."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            elements = getattr(slot.node, "elts", getattr(slot.node, "args", None))
            if not isinstance(elements, list):
                continue
            found = [i for i, x in enumerate(elements) if _is(x, first) or _is(x, second)]
            if len(found) == 2:
                yield partial(_swap_elements, elements, *found)

    return Change(f"exchange({first!r}, {second!r})", edits, at)


def unwrap(function: str, at: int | None = None, *, argument: int = 0) -> Change:
    """A call becomes one of its arguments; a call of the method ".astype" becomes its object."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            if not isinstance(node := slot.node, ast.Call) or not _is(node.func, function):
                continue
            if function.startswith("."):
                assert isinstance(node.func, ast.Attribute)
                yield partial(slot.put, node.func.value)
            else:
                yield partial(slot.put, node.args[argument])

    which = f", argument={argument}" if argument else ""
    return Change(f"unwrap({function!r}{which})", edits, at)


def keyword(function: str, old: str, new: str, at: int | None = None) -> Change:
    """A keyword of a call gets another name; "" drops it."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            is_called = isinstance(slot.parent, ast.Call) and _is(slot.parent.func, function)
            if isinstance(slot.node, ast.keyword) and slot.node.arg == old and is_called:
                yield partial(setattr, slot.node, "arg", new) if new else partial(slot.put, None)

    return Change(f"keyword({function!r}, {old!r}, {new!r})", edits, at)


def condition(new: str, at: int | None = None) -> Change:
    """The condition of an `if`, a `while` or an `assert` becomes another; "_" is the old one."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            if slot.field in ("test", "ifs"):
                yield partial(slot.put, _expression(new, slot.node))

    return Change(f"condition({new!r})", edits, at, new)


def skip(word: str, at: int | None = None) -> Change:
    """A statement goes: one that calls the function `word`, or a "raise", "return" or "assign"."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            if isinstance(slot.node, ast.stmt) and _is_statement(slot.node, word):
                yield partial(slot.put, ast.Pass())

    return Change(f"skip({word!r})", edits, at)


def drop(old: str, at: int | None = None) -> Change:
    """An element of a tuple, a list or a call's arguments goes: "axis", '"r1"', "size_errors()"."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            node = slot.node.value if isinstance(slot.node, ast.Starred) else slot.node
            if slot.field in ("elts", "args") and _is(node, old):
                yield partial(slot.put, None)

    return Change(f"drop({old!r})", edits, at)


def result(new: str, at: int | None = None) -> Change:
    """The value of a `return` becomes another expression; "_" is the old one."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        for slot in slots(part):
            if isinstance(node := slot.node, ast.Return):
                yield partial(setattr, node, "value", _expression(new, node.value))

    return Change(f"result({new!r})", edits, at, new)


def forget(name: str) -> Change:
    """A function or an assigned name is called "_" instead."""

    def edits(part: ast.AST) -> Iterator[Edit]:
        if isinstance(part, ast.FunctionDef) and part.name == name:
            yield partial(setattr, part, "name", "_")
        for slot in slots(part):
            if slot.field == "targets" and isinstance(slot.node, ast.Name) and slot.node.id == name:
                yield partial(setattr, slot.node, "id", "_")

    return Change(f"forget({name!r})", edits)


def _copy(tree: ast.Module, name: str) -> ast.Module:
    """A copy of a module that shares the statements that do not bind a name."""
    copied = (copy.deepcopy(s) if name in bound_within(s) else s for s in tree.body)
    return ast.Module(list(copied), tree.type_ignores)


def _without_operand(operator: str, side: int, part: ast.AST) -> Iterator[Edit]:
    for slot in slots(part):
        if isinstance(slot.node, OPERATORS[operator]):
            yield partial(_take_operand_out, slot, side)


def _take_operand_out(slot: Slot, side: int) -> None:
    """Takes the operand at one side (0: left, 1: right) of an operator out of its expression."""
    node, above = slot.parent, slot.up
    position = slot.position or 0
    assert above is not None
    match node:
        case ast.BinOp():
            above.put(node.left if side else node.right)
        case ast.BoolOp() if len(node.values) == 2:
            above.put(node.values[1 - side])
        case ast.BoolOp():
            del node.values[position + side]
        case ast.Compare() if len(node.ops) == 1:
            above.put(node.left if side else node.comparators[0])
        case ast.Compare():
            operands = [node.left, *node.comparators]
            del operands[position + side], node.ops[position]
            node.left, *node.comparators = operands


def _swap_operands(node: ast.BinOp) -> None:
    node.left, node.right = node.right, node.left


def _swap_elements(elements: list[ast.expr], a: int, b: int) -> None:
    elements[a], elements[b] = elements[b], elements[a]


def _is_statement(node: ast.stmt, word: str) -> bool:
    kinds = {"raise": ast.Raise, "return": ast.Return, "assign": ast.Assign | ast.AugAssign}
    if word in kinds:
        return isinstance(node, kinds[word])
    is_simple = isinstance(node, ast.Expr | ast.Assign | ast.AugAssign)
    calls = (call for call in ast.walk(node) if isinstance(call, ast.Call))
    return is_simple and any(_is(call.func, word) for call in calls)


@cache
def _dump(text: str) -> str:
    return "" if text in OPERATORS else ast.dump(ast.parse(text, mode="eval").body)


def _is(node: ast.AST, text: str) -> bool:
    """Is a node the name, constant, attribute (".shape") or call ("f()") that a text writes?"""
    if text.endswith("()"):
        return isinstance(node, ast.Call) and _is(node.func, text[:-2])
    if text.startswith("."):
        return isinstance(node, ast.Attribute) and node.attr == text[1:]
    if isinstance(node, ast.Name):  # read or assigned
        return node.id == text
    return isinstance(node, ast.Attribute | ast.Constant) and ast.dump(node) == _dump(text)


def _is_assigned(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


class _Insert(ast.NodeTransformer):
    """Puts an expression in the place of the name "_"."""

    def __init__(self, old: ast.AST | None) -> None:
        self._old = old

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._old if node.id == "_" and self._old is not None else node


def _expression(text: str, old: ast.AST | None = None) -> ast.expr:
    return _Insert(old).visit(ast.parse(text, mode="eval").body)


def _used(text: str) -> set[str]:
    """The names that an expression needs bound."""
    nodes = list(ast.walk(_expression(text))) if text else []
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - own - {"_", *dir(builtins)}


def _words(tree: ast.Module, part: ast.AST) -> set[str]:
    """The names that a module binds, and those of one part of it."""
    nodes = list(ast.walk(part))
    inside = {node.id for node in nodes if isinstance(node, ast.Name)}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return inside | arguments | {name for node in tree.body for name in bound(node)}
