"""Parses MLIR text to a tree, with xDSL (`pip install "tosajax[mlir]"`).

xDSL parses the generic form of all operations, types and attributes. This module parses the custom
forms of TOSA: before LLVM 24 attributes are in a dictionary; since LLVM 24 properties follow the
operands as `name(value)` and `name<WORD>`. One tolerant parser accepts both, even mixed.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tosajax.io.mlir import foreign
from tosajax.io.mlir.reduced import Reduced, reduce
from tosajax.io.mlir.tree import Attribute, Literal, Module, Operation, Region, Type, Value, Word
from tosajax.report import FormatError, UnsupportedError

if TYPE_CHECKING:
    from xdsl import ir
    from xdsl.context import Context
    from xdsl.parser import Parser, UnresolvedOperand

_DIALECT = "tosa"
_KNOWN = ("builtin", "func")  # dialects whose custom forms xDSL parses
# The names of operations in custom form; also matches some other words.
_NAME = re.compile(r"(?<![\"\w$.@!#%^])[A-Za-z_][\w$]*+(?:\.[\w$]++)++(?!\s*+=)")
_MOST_NAMES = 1000
_MARK = re.compile(r"n([0-9]+)")
_WORD = re.compile(r"\b[A-Z][A-Z0-9_]*+\b")  # enumerants of any version
_GENERIC, _DICTIONARIES, _STRICT, _CUSTOM = (
    "generic form",
    "attribute dictionaries",
    "strict properties",
    "custom form",
)

# An operation's operands, their types, result types, attributes and regions.
_Parts = dict[str, Any]


def parse(text: str) -> Module:
    """Parses a text to a tree.

    Raises:
      FormatError: the text is not MLIR.
      UnsupportedError: the text has custom forms of other dialects, or regions of several blocks.
      ImportError: xDSL is not installed.
    """
    check_installed()
    reduced = reduce(text)
    forms = _Forms(reduced.text)
    operations = _operations(reduced, forms)
    return Module(operations, reduced.resources, reduced.aliases, forms.syntax, len(text))


def check_installed() -> None:
    """Raises ImportError if xDSL is not installed."""
    try:
        import xdsl  # noqa: F401
    except ImportError:
        raise ImportError("xDSL is not installed: pip install 'tosajax[mlir]'") from None


def _operations(reduced: Reduced, forms: _Forms) -> tuple[Operation, ...]:
    from xdsl.parser import Parser
    from xdsl.utils.exceptions import ParseError

    try:
        module = Parser(_context(reduced.text, forms), reduced.text).parse_module()
        return _Tree(reduced).operations(module.body.blocks)
    except ParseError as error:
        line = reduced.text.count("\n", 0, error.span.start) + 1
        raise FormatError(f"line {line}: {_first_line(error.msg)}") from None
    except (FormatError, UnsupportedError, RecursionError, MemoryError):
        raise
    except Exception as error:
        # xDSL checks some parts of a text late, and raises all kinds of errors.
        message = f"{type(error).__name__}: {_first_line(str(error))}"
        raise FormatError(f"the text is not MLIR that xDSL reads: {message}") from None


def _context(text: str, forms: _Forms) -> Context:
    """Makes xDSL's context: its own dialects, and all operations that the text may name."""
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.dialects.func import Func

    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    names = {*_NAME.findall(text)}
    if len(names) > _MOST_NAMES:
        raise UnsupportedError(f"the text names more than {_MOST_NAMES} operations")
    for name in sorted(names):
        if name.split(".")[0] not in _KNOWN:
            context.load_op(_operation(name, forms))
    return context


def _first_line(message: str) -> str:
    if "builtin.unregistered" in message:
        return "the operation is unknown"
    return message.strip().partition("\n")[0][:300]


def _operation(name: str, forms: _Forms) -> type[ir.Operation]:
    """Makes the class of an operation that xDSL does not know."""
    from xdsl.dialects.builtin import UnregisteredOp

    def parse(cls: Any, parser: Parser) -> ir.Operation:
        return cls.create(**forms.read(name, parser))

    base = UnregisteredOp.with_name(name)
    return type("TosaOp", (base,), {"name": name, "parse": classmethod(parse)})


class _Forms:
    """Parses custom forms, and records the forms in use.

    Args:
      text: the whole text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = frozenset(_WORD.findall(text))
        self._seen: set[str] = set()

    @property
    def syntax(self) -> str:
        for form in (_STRICT, _DICTIONARIES, _CUSTOM):
            if form in self._seen:
                return form
        return _GENERIC

    def read(self, name: str, parser: Parser) -> _Parts:
        """Parses the part of an operation that follows its name.

        Raises:
          UnsupportedError: the operation is not in the TOSA dialect.
        """
        if name == foreign.CONSTANT:
            return self._foreign_constant(parser)
        dialect, _, operation = name.partition(".")
        if dialect != _DIALECT:
            line = self._text.count("\n", 0, parser.pos) + 1
            raise UnsupportedError(f"line {line}: {foreign.message(name)}")
        self._seen.add(_CUSTOM)
        forms: dict[str, Callable[[Parser], _Parts]] = {
            "variable": self._variable,
            "variable_read": self._access,
            "variable_write": self._access,
            "variable.read": self._access,
            "variable.write": self._access,
            "yield": self._yield,
            "cond_if": self._cond_if,
            "while_loop": self._while_loop,
        }
        return forms.get(operation, self._plain)(parser)

    # Operands and attributes.

    def _plain(self, parser: Parser) -> _Parts:
        """Parses `%a, %b name(value) name<WORD> {name = value} : (types) -> types`."""
        operands = _operands(parser)
        attributes = self._properties(parser) | self._dictionary(parser)
        parser.parse_punctuation(":")
        signature = parser.parse_optional_function_type()
        if signature is not None:
            types, results = list(signature.inputs), list(signature.outputs)
        else:
            results = [parser.parse_type()]
            types = results * len(operands)
        return _parts(parser, operands, types, results, attributes)

    def _properties(self, parser: Parser) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while (name := parser.parse_optional_identifier()) is not None:
            if parser.parse_optional_punctuation("<"):
                values[name] = _word(parser.parse_identifier())
                parser.parse_punctuation(">")
            else:
                parser.parse_punctuation("(")
                values[name] = self._attribute(parser)
                parser.parse_punctuation(")")
            self._seen.add(_STRICT)
        return values

    def _dictionary(self, parser: Parser) -> dict[str, Any]:
        entries = parser.parse_optional_comma_separated_list(
            parser.Delimiter.BRACES, lambda: self._entry(parser)
        )
        if entries:
            self._seen.add(_DICTIONARIES)
        return dict(entries or ())

    def _entry(self, parser: Parser) -> tuple[str, Any]:
        from xdsl.dialects.builtin import UnitAttr

        name = parser.parse_identifier_or_str_literal()
        if not parser.parse_optional_punctuation("="):
            return name, UnitAttr()
        return name, self._attribute(parser)

    def _attribute(self, parser: Parser) -> Any:
        """Parses an attribute, or an enumerant without the enumeration's name."""
        word = parser.parse_optional_keyword_in(self._words)
        return parser.parse_attribute() if word is None else _word(word)

    # Operations with special forms.

    def _foreign_constant(self, parser: Parser) -> _Parts:
        """Parses `{name = value} value : type`; the type is part of a dense value."""
        attributes = self._dictionary(parser)
        attributes["value"] = value = parser.parse_attribute()
        kind = parser.parse_type() if parser.parse_optional_punctuation(":") else None
        kind = kind or getattr(value, "type", None)
        return {"attributes": attributes, "result_types": [kind]}

    def _variable(self, parser: Parser) -> _Parts:
        """Parses `@name = value` or `@name : type`."""
        parser.parse_optional_visibility_keyword()
        attributes: dict[str, Any] = {"sym_name": parser.parse_symbol_name()}
        attributes |= self._properties(parser)
        if parser.parse_optional_punctuation("="):
            attributes["initial_value"] = parser.parse_attribute()
        elif parser.parse_optional_punctuation(":"):
            attributes["type"] = parser.parse_type()
        return {"attributes": attributes | self._dictionary(parser)}

    def _access(self, parser: Parser) -> _Parts:
        """Parses `@name : type` or `@name, %value : type`."""
        attributes: dict[str, Any] = {"name": parser.parse_symbol_name()}
        operands = _operands(parser) if parser.parse_optional_punctuation(",") else []
        attributes |= self._dictionary(parser)
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        types, results = ([kind], []) if operands else ([], [kind])
        return _parts(parser, operands, types, results, attributes)

    def _yield(self, parser: Parser) -> _Parts:
        operands = _operands(parser)
        attributes = self._dictionary(parser)
        types = _types(parser) if operands and parser.parse_punctuation(":") else []
        return _parts(parser, operands, types, [], attributes)

    def _cond_if(self, parser: Parser) -> _Parts:
        """Parses `%c (%x = %a) : type (types) -> types {} else {}`, or the older form.

        The older form is `%c -> (types) {} else {}`.
        """
        condition = parser.parse_unresolved_operand()
        operands = [operand for _, operand in _bindings(parser)]
        types = [_type_of(condition, parser)]
        if parser.parse_optional_punctuation(":"):
            types = [parser.parse_type()]
        signature = parser.parse_optional_function_type()
        if signature is not None:
            types, results = [*types, *signature.inputs], list(signature.outputs)
        else:
            results = _results(parser) if parser.parse_optional_punctuation("->") else []
        then = parser.parse_region()
        regions = [then, parser.parse_region()] if parser.parse_optional_keyword("else") else [then]
        attributes = self._dictionary(parser)
        return _parts(parser, [condition, *operands], types, results, attributes, regions)

    def _while_loop(self, parser: Parser) -> _Parts:
        """Parses `(%x = %a) : (types) -> types {} do {}`."""
        bindings = _bindings(parser)
        parser.parse_punctuation(":")
        signature = parser.parse_function_type()
        types = list(signature.inputs)
        _check_count(parser, bindings, types)
        arguments = [a.resolve(t) for (a, _), t in zip(bindings, types, strict=True)]
        condition = parser.parse_region(arguments)
        parser.parse_keyword("do")
        regions = [condition, parser.parse_region()]
        attributes = self._dictionary(parser)
        operands = [operand for _, operand in bindings]
        return _parts(parser, operands, types, list(signature.outputs), attributes, regions)


def _parts(
    parser: Parser,
    operands: Sequence[UnresolvedOperand],
    types: Sequence[Any],
    results: Sequence[Any],
    attributes: dict[str, Any],
    regions: Sequence[Any] = (),
) -> _Parts:
    return {
        "operands": parser.resolve_operands(operands, types, parser.pos),
        "result_types": results,
        "attributes": attributes,
        "regions": regions,
    }


def _operands(parser: Parser) -> list[UnresolvedOperand]:
    operands = parser.parse_optional_undelimited_comma_separated_list(
        parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
    )
    return operands or []


def _types(parser: Parser) -> list[Any]:
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)


def _results(parser: Parser) -> list[Any]:
    listed = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return [parser.parse_type()] if listed is None else listed


def _bindings(parser: Parser) -> list[tuple[Parser.UnresolvedArgument, UnresolvedOperand]]:
    """Parses `(%argument = %operand, ...)`."""

    def binding() -> tuple[Parser.UnresolvedArgument, UnresolvedOperand]:
        argument = parser.parse_argument(expect_type=False)
        parser.parse_punctuation("=")
        return argument, parser.parse_unresolved_operand()

    bindings = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, binding)
    return bindings or []


def _check_count(parser: Parser, bindings: Sequence[Any], types: Sequence[Any]) -> None:
    if len(bindings) != len(types):
        parser.raise_error(f"{len(bindings)} operands of {len(types)} types")


def _type_of(operand: UnresolvedOperand, parser: Parser) -> Any:
    """The type of a condition whose type the text omits."""
    values = parser.ssa_values.get(operand.operand_name, ())
    if operand.index < len(values):
        return values[operand.index].type
    parser.raise_error(f"value %{operand.operand_name} is not defined")


def _word(text: str) -> Any:
    from xdsl.dialects.builtin import UnregisteredAttr

    kind = UnregisteredAttr.with_name_and_type("tosa.word", False)
    return kind("tosa.word", False, False, text)


# Conversion of xDSL's classes to plain data.


class _Tree:
    """Converts xDSL's operations to a tree, with the originals of the placeholders."""

    def __init__(self, reduced: Reduced) -> None:
        self._reduced = reduced
        self._values: dict[ir.SSAValue, Value] = {}
        self._types: dict[ir.Attribute, str] = {}

    def operations(self, blocks: Sequence[ir.Block]) -> tuple[Operation, ...]:
        if len(blocks) > 1:
            raise UnsupportedError(f"a region has {len(blocks)} blocks, and TOSA has no branches")
        return tuple(self._operation(op) for block in blocks for op in block.ops)

    def _operation(self, op: ir.Operation) -> Operation:
        attributes = {**op.attributes, **op.properties}
        own = attributes.pop("op_name__", None)  # xDSL stores unknown operation names here
        operation = Operation(
            op.name if own is None else str(getattr(own, "data", own)),
            tuple(self._value(v) for v in op.operands),
            tuple(self._value(v) for v in op.results),
            {name: self._attribute(a) for name, a in attributes.items()},
            location=self._location(op.location),
        )
        regions = tuple(self._region(region, operation) for region in op.regions)
        return dataclasses.replace(operation, regions=regions)

    def _region(self, region: ir.Region, operation: Operation) -> Region:
        try:
            arguments = [self._value(v) for block in region.blocks for v in block.args]
            return Region(tuple(arguments), self.operations(region.blocks))
        except UnsupportedError as error:
            raise UnsupportedError(f"{operation.title}: {error}") from None

    def _value(self, value: ir.SSAValue) -> Value:
        if value not in self._values:
            self._name_all(value)
        return self._values[value]

    def _name_all(self, value: ir.SSAValue) -> None:
        """Makes the values of all results of an operation, or the value of an argument."""
        from xdsl.ir import OpResult

        values = value.op.results if isinstance(value, OpResult) else (value,)
        packs = Counter(v.name_hint for v in values)
        seen: Counter[str | None] = Counter()
        for v in values:
            name = self._name(v.name_hint)
            if name and packs[v.name_hint] > 1:
                name = f"{name}#{seen[v.name_hint]}"
            seen[v.name_hint] += 1
            location = self._location(getattr(v, "location", None))
            self._values[v] = Value(name, self._type(v.type), location)

    def _name(self, mark: str | None) -> str:
        match = _MARK.fullmatch(mark or "")
        return self._reduced.values[int(match[1])] if match else ""

    def _type(self, kind: ir.Attribute) -> str:
        if kind not in self._types:
            self._types[kind] = str(kind)
        return self._types[kind]

    def _location(self, location: Any) -> str | None:
        from xdsl.dialects.builtin import NameLoc

        if not isinstance(location, NameLoc):
            return None
        return self._marked(self._reduced.locations, location.desc.data)

    def _literal(self, kind: str, mark: str, type_: str) -> Literal:
        literal: Literal = self._marked(self._reduced.literals, mark)
        if literal.kind != kind:
            raise FormatError(f"the constant is {literal.kind}<...>, expected {kind}")
        return literal._replace(type=type_)

    def _marked(self, held: Sequence[Any], mark: str) -> Any:
        if not mark.isdecimal() or int(mark) >= len(held):
            raise FormatError(f"{mark[:40]!r} stands for nothing")
        return held[int(mark)]

    def _attribute(self, attribute: ir.Attribute) -> Attribute:
        from xdsl.dialects import builtin
        from xdsl.ir import TypeAttribute

        match attribute:
            case builtin.OpaqueAttr():
                is_typed = not isinstance(attribute.type, builtin.NoneAttr)
                type_ = self._type(attribute.type) if is_typed else ""
                return self._literal(attribute.ident.data, attribute.value.data, type_)
            case builtin.IntegerAttr():
                number = attribute.value.data
                return bool(number) if self._type(attribute.type) == "i1" else number
            case builtin.FloatAttr():
                return attribute.value.data
            case builtin.StringAttr():
                return attribute.data
            case builtin.BytesAttr():
                return _text(attribute.data)
            case builtin.SymbolRefAttr():
                return attribute.root_reference.data
            case builtin.ArrayAttr():
                return tuple(map(self._attribute, attribute))
            case builtin.DictionaryAttr():
                return {name: self._attribute(a) for name, a in attribute.data.items()}
            case builtin.UnitAttr():
                return True
            case TypeAttribute():
                return Type(self._type(attribute))
            case builtin.UnregisteredAttr():
                return Word(attribute.value.data)
        return Word(str(attribute))


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
