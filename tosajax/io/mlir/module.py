"""Reads a function of an MLIR module as a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from tosajax.graph import Graph, Source
from tosajax.io.mlir import apply_scale, foreign, syntax
from tosajax.io.mlir.current import Current
from tosajax.io.mlir.literals import Literals
from tosajax.io.mlir.locations import Locations
from tosajax.io.mlir.old import Old
from tosajax.io.mlir.scopes import Reading, Scope
from tosajax.io.mlir.signs import signs_of
from tosajax.io.mlir.tree import Module, Operation
from tosajax.io.pre_1_0.upgrade import upgrade
from tosajax.report import FormatError, UnsupportedError

_MAIN = "main"
_LONGEST = 600  # characters of an error message, which may quote long parts of the text
_MODULE, _FUNCTION, _VARIABLE = "builtin.module", "func.func", "tosa.variable"
_CALL = "func.call"


def read(text: str | bytes, function: str | None, source: Source) -> Graph:
    """Reads a function as a graph; see `read_text`.

    Args:
      text: the module's text.
      function: the function's name; None for the only one, or `main`.
      source: the text's source. The dialect is added to its version; if it has no version, the
        syntax as well.
    """
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise FormatError(f"the text is not UTF-8: {error}") from None
    try:
        return _graph(syntax.parse(decoded.removeprefix("\ufeff")), function, source)
    except RecursionError:
        raise FormatError("the text is nested too deeply") from None
    except (FormatError, UnsupportedError) as error:
        if len(str(error)) <= _LONGEST:
            raise
        raise type(error)(f"{str(error)[:_LONGEST]}...") from None


def _graph(module: Module, function: str | None, source: Source) -> Graph:
    operations = list(_flat(module.operations))
    chosen = _chosen(operations, function)
    signs = signs_of([chosen, *(op for op in operations if op.name == _VARIABLE)])
    old = (signs or signs_of(operations)).is_old
    dialect = "pre-1.0 dialect" if old else "TOSA 1.0 dialect"
    version = f"{source.version}, {dialect}" if source.version else f"{dialect}, {module.syntax}"
    source = dataclasses.replace(source, version=version)
    (body,) = chosen.regions
    locations = Locations(module.locations)
    foreign.check(body, locations)
    apply_scale.check_tensors(body)
    dialect = Old() if old else Current()
    reading = Reading(dialect, Literals(module.resources, module.size), locations, body)
    for operation in operations:
        if operation.name == _VARIABLE:
            reading.declare(operation)
    scope = Scope(reading, body, reading.graph_names.own(_name(chosen)))
    graph = scope.graph()
    source = dataclasses.replace(source, rewrites=tuple(reading.rewrites))
    if old:
        return dataclasses.replace(upgrade(graph, source), quantization=scope.quantization)
    return dataclasses.replace(graph, source=source)


def _flat(operations: Sequence[Operation]) -> Iterator[Operation]:
    """Yields the operations of a module and of nested modules."""
    for operation in operations:
        if operation.name == _MODULE:
            for region in operation.regions:
                yield from _flat(region.operations)
        else:
            yield operation


def _chosen(operations: Sequence[Operation], function: str | None) -> Operation:
    """The function to read.

    Declarations, which have no body, are ignored. Private functions and functions that others call
    are ignored unless `function` names them.
    """
    bodies = [op for op in operations if op.name == _FUNCTION and _has_body(op)]
    if not bodies:
        raise FormatError("the module has no function")
    candidates = (_entries(bodies) or bodies) if function is None else bodies
    names = [_name(op) for op in candidates]
    listed = ", ".join(map(repr, names[:20]))
    if function is None and len(candidates) > 1 and _MAIN not in names:
        raise FormatError(
            f"the module has functions {listed}, expected one, or {_MAIN!r}: choose one by "
            "function= in Python, --function at the command line"
        )
    wanted = function if function is not None else names[0] if len(names) == 1 else _MAIN
    if names.count(wanted) > 1:
        raise FormatError(f"the module has {names.count(wanted)} functions {wanted!r}")
    if wanted not in names:
        raise ValueError(f"no function is named {wanted!r}, but {listed}")
    return candidates[names.index(wanted)]


def _entries(functions: Sequence[Operation]) -> list[Operation]:
    """The functions that are neither private nor called."""
    called = {
        operation.attributes.get("callee")
        for function in functions
        for operation in function.regions[0].walk()
        if operation.name == _CALL
    }
    return [
        function
        for function in functions
        if function.attributes.get("sym_visibility") != "private" and _name(function) not in called
    ]


def _has_body(function: Operation) -> bool:
    return len(function.regions) == 1 and bool(function.regions[0].operations)


def _name(function: Operation) -> str:
    name = function.attributes.get("sym_name")
    if not isinstance(name, str):
        raise FormatError("a function has no name")
    return name
