"""Converts MLIR regions to graphs, for both versions of the dialect.

A TOSA graph cannot capture values, but an MLIR region may use values from outside. Captured
constants are copied into the graph; other captured values become inputs after the operator's own.
WHILE_LOOP carries them from iteration to iteration, as additional outputs that nothing reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tosajax.graph import DYNAMIC, Quantization, Rewrite
from tosajax.io.mlir import apply_scale, foreign
from tosajax.io.mlir.literals import Literals, format_of, with_sign_of
from tosajax.io.mlir.locations import Location, Locations
from tosajax.io.mlir.names import Names
from tosajax.io.mlir.tree import Literal, Operation, Region, Type, Value
from tosajax.io.mlir.types import TensorType, tensor_type
from tosajax.report import FormatError, UnsupportedError

_CONSTANTS = ("tosa.const", "tosa.const_shape", foreign.CONSTANT)
_VALUES = ("values", "value")  # the attribute of a constant, in 1.0 and before
_GRAPHS = {
    "tosa.cond_if": ("then_graph", "else_graph"),
    "tosa.while_loop": ("cond_graph", "body_graph"),
}
_ACCESSES = (
    "tosa.variable_read",
    "tosa.variable_write",
    "tosa.variable.read",
    "tosa.variable.write",
)
_ENDS = ("tosa.yield", "func.return")


class Variable(NamedTuple):
    """A variable of a module.

    Args:
      name: the variable's name.
      type: the variable's type.
      values: the initial value; None if it has none.
      location: the location of its declaration.
      places: the names of its tensors, by the name of the graph, the declaring graph first; {} if
        the text does not state them.
    """

    name: str
    type: TensorType
    values: np.ndarray | None
    location: str | None
    places: Mapping[str, str]


class Made(NamedTuple):
    """An operation, and the names of its tensors and subgraphs in its graph."""

    operation: Operation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    location: str | None
    graphs: tuple[str, ...] = ()  # subgraphs

    @property
    def op(self) -> str:
        """The operation's name in the form of the specification's operators."""
        return self.operation.name.partition(".")[2].replace(".", "_").upper()


class Dialect(Protocol):
    """Builds the tensors, nodes and graphs of one version of the dialect."""

    is_old: bool

    def tensor(
        self, name: str, kind: TensorType, values: np.ndarray | None, variable: str | None
    ) -> Any:
        """Makes a tensor, which may be a constant or the tensor of a variable."""
        ...

    def notes(self, name: str, kind: TensorType) -> Iterable[Rewrite]:
        """Notes on the replacement of a type that TOSA does not have."""
        ...

    def left_over(self, operation: Operation) -> Sequence[str]:
        """The names of an operation's attributes that are dropped because they mean nothing."""
        ...

    def node(self, made: Made, literals: Literals) -> Any:
        """Makes a node."""
        ...

    def declaration(self, variable: Variable, tensor: str) -> Any:
        """Makes the node that declares a variable."""
        ...

    def graph(self, scope: Scope, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
        """Makes the graph of a region."""
        ...

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether two graphs of the same name are equal."""
        ...


class Reading:
    """The state shared by all graphs of one function.

    Args:
      dialect: the function's dialect.
      literals: the text's constants.
      locations: the text's locations.
      body: the function's body.
    """

    def __init__(
        self, dialect: Dialect, literals: Literals, locations: Locations, body: Region
    ) -> None:
        self.dialect = dialect
        self.literals = literals
        self.locations = locations
        self.used = {value for op in body.walk() for value in op.operands}
        self.variables: dict[str, Variable] = {}
        self.rewrites: list[Rewrite] = []
        self.graph_names = Names()
        self.graphs: dict[str, Any] = {}  # subgraphs, by name

    def declare(self, operation: Operation) -> None:
        """Adds a variable.

        Raises:
          FormatError: its name is taken or missing, or its type or value is broken.
        """
        attributes = operation.attributes
        name = attributes.get("sym_name", attributes.get("name"))
        if not isinstance(name, str) or name in self.variables:
            raise FormatError(f"variable {name!r} is there twice, or has no name")
        try:
            kind, values = self._variable(attributes)
        except (FormatError, UnsupportedError) as error:
            raise type(error)(f"variable {name!r}: {error}") from None
        location = self.locations.read(operation.location)
        places = zip(location.all_of("graph"), location.all_of("name"), strict=False)
        self.variables[name] = Variable(name, kind, values, location.text, dict(places))

    def _variable(self, attributes: Mapping[str, Any]) -> tuple[TensorType, np.ndarray | None]:
        value, stated = attributes.get("initial_value"), attributes.get("type")
        if isinstance(value, Literal):
            kind = tensor_type(value.type)
            return kind, self.values(value, kind)
        if not isinstance(stated, Type):
            raise FormatError("it has neither a type nor an initial value")
        shape = attributes.get("var_shape")
        if not isinstance(shape, Literal):
            return tensor_type(stated.text), None
        dims = self.values(shape, tensor_type(shape.type)).ravel().tolist()
        return tensor_type(f"tensor<{''.join(f'{d}x' for d in dims)}{stated.text}>"), None

    def values(self, literal: Literal, result: TensorType) -> np.ndarray:
        """The elements of a constant.

        Raises:
          FormatError: its type differs from the result's, apart from signedness and scales.
          UnsupportedError: TOSA 1.0 does not have its elements, or the form of the constant.
        """
        if literal.kind == "typed":
            message = f"constant dense<{literal.body[:60]}> begins with its type"
            raise UnsupportedError(f"{message}, as those of TOSA 1.1 do")
        if not literal.type:
            raise FormatError(f"the constant is {literal.kind}<...>, expected dense<...>")
        kind = tensor_type(literal.type)
        wanted = "index" if result.element is None else result.element.name
        if kind.element is None or kind.shape is None or DYNAMIC in kind.shape:
            raise FormatError(f"the constant is {literal.type}, expected a tensor of known shape")
        form, held = format_of(kind.element.name), format_of(wanted)
        if form is None or held is None:
            kind.dtype  # noqa: B018  raises by name
            result.dtype  # noqa: B018
            raise UnsupportedError(f"the elements of {literal.type} are not of TOSA 1.0")
        if kind.shape != result.shape or form.signless != held.signless:
            raise FormatError(f"the constant is {literal.type}, of another type than its result")
        return with_sign_of(self.literals.array(literal, form, kind.shape), held)


class Scope:
    """Converts one region to one graph.

    Args:
      reading: the state shared by all graphs of the function.
      region: the region.
      name: the graph's name.
      constants: the constant operations outside the region, by their results; None for the
        function's body.
    """

    def __init__(
        self,
        reading: Reading,
        region: Region,
        name: str,
        constants: Mapping[Value, Operation] | None = None,
    ) -> None:
        self.reading = reading
        self.region = region
        self.name = name
        self.is_main = constants is None
        self.constants = dict(constants or {})
        self.tensors: dict[str, Any] = {}
        self.nodes: list[Any] = []
        self.subgraphs: dict[str, Any] = {}
        self.quantization: dict[str, Quantization] = {}
        self._names = Names()
        self.stand_ins: dict[str, str] = {}  # tensors of variables, by the variables' names
        self._of_values: dict[Value, str] = {}

    def graph(self, captured: Sequence[Value] = (), *, hands_on: bool = False) -> Any:
        """Makes the graph.

        Args:
          captured: the values from outside the region that become inputs.
          hands_on: whether these inputs are also outputs.
        """
        inputs = [self._argument(value) for value in self.region.arguments]
        more = [self._argument(value) for value in captured]
        *operations, end = self.region.operations or (None,)
        if end is None or end.name not in _ENDS:
            raise FormatError(f"graph {self.name!r} does not end with the values it returns")
        for operation in operations:
            try:
                self._add(operation)
            except (FormatError, UnsupportedError) as error:
                raise type(error)(_placed(operation, str(error))) from None
        outputs = [self._of(value) for value in end.operands]
        self._declare_variables()
        handed = more if hands_on else []
        return self.reading.dialect.graph(self, [*inputs, *more], [*outputs, *handed])

    # Tensors.

    def _of(self, value: Value) -> str:
        """The name of a value's tensor; copies a constant from outside the region."""
        if value not in self._of_values and value in self.constants:
            self._constant(self.constants[value])
        if value not in self._of_values:
            raise FormatError(f"value %{value.name} is not made in graph {self.name!r} before it")
        return self._of_values[value]

    def _argument(self, value: Value) -> str:
        names = self.reading.locations.read(value.location).all_of("name")
        return self._define(value, names[0] if names else "")

    def _results(self, operation: Operation, location: Location) -> tuple[str, ...]:
        names = location.all_of("name")
        if len(names) != len(operation.results):
            names = ("",) * len(operation.results)
        pairs = zip(operation.results, names, strict=True)
        return tuple(self._define(value, name, operation.name) for value, name in pairs)

    def _define(
        self,
        value: Value,
        given: str = "",
        maker: str = "",
        values: np.ndarray | None = None,
    ) -> str:
        """Declares a value's tensor, named by the location, the value, or the operation."""
        own = value.name or maker.rpartition(".")[2] or "argument"
        name = self._names.own(given) if given else self._names.fresh(own)
        self._of_values[value] = name
        self._declare(name, tensor_type(value.type), values)
        return name

    def _declare(
        self,
        name: str,
        kind: TensorType,
        values: np.ndarray | None = None,
        variable: str | None = None,
    ) -> None:
        try:
            self.tensors[name] = self.reading.dialect.tensor(name, kind, values, variable)
        except (FormatError, UnsupportedError) as error:
            raise type(error)(f"tensor {name!r}: {error}") from None
        self.reading.rewrites += self.reading.dialect.notes(name, kind)
        if kind.element is not None and kind.element.quantization is not None:
            self.quantization[name] = kind.element.quantization

    # Nodes.

    def _add(self, operation: Operation) -> None:
        if operation.name in _CONSTANTS:
            self._constant(operation)
        elif operation.name in _GRAPHS:
            self._control_flow(operation)
        elif operation.name == "tosa.variable":
            self.reading.declare(operation)
        elif operation.name == "tosa.apply_scale":
            is_old = self.reading.dialect.is_old
            for other in apply_scale.as_rescale(operation, self._known, is_old=is_old):
                self._add(other)
            self._note("RESCALE of the multiplier and the shift of apply_scale")
        else:
            self._node(operation)

    def _node(self, operation: Operation) -> None:
        if operation.name in _ACCESSES:
            name = operation.attributes.get("name")
            if name not in self.reading.variables:
                raise FormatError(f"variable {name!r} is not declared")
            self._variable(self.reading.variables[name])
        location = self.reading.locations.read(operation.location)
        inputs = tuple(self._of(value) for value in operation.operands)
        self._emit(Made(operation, inputs, self._results(operation, location), location.text))

    def _emit(self, made: Made) -> None:
        self.nodes.append(self.reading.dialect.node(made, self.reading.literals))
        if names := self.reading.dialect.left_over(made.operation):
            self._note(f"left out, as of the dialect before TOSA 1.0: {', '.join(names)}")

    def _note(self, done: str) -> None:
        """Adds a rewrite note about the last node."""
        self.reading.rewrites.append(Rewrite(self.nodes[-1].title, done))

    def _constant(self, operation: Operation) -> None:
        if len(operation.results) != 1 or operation.operands:
            raise FormatError("a constant has one result and no operands")
        (value,) = operation.results
        if value not in self.reading.used and _is_unknown(value.type):
            done = f"left out, as nothing reads it, and {value.type} is not a type of TOSA 1.0"
            self.reading.rewrites.append(Rewrite(f"constant {value.name!r}", done))
            return
        location = self.reading.locations.read(operation.location)
        names = location.all_of("name")
        values = self._values(operation)
        name = self._define(value, names[0] if names else "", operation.name, values)
        self.constants[value] = operation
        own = foreign.as_own(operation, _VALUES[self.reading.dialect.is_old])
        self._emit(Made(own, (), (name,), location.text))
        if own is not operation:
            self._note(f"CONST of {operation.name}")

    def _values(self, operation: Operation) -> np.ndarray:
        literals = [operation.attributes[n] for n in _VALUES if n in operation.attributes]
        if not literals or not isinstance(literals[0], Literal):
            raise FormatError("the constant has no values")
        return self.reading.values(literals[0], tensor_type(operation.results[0].type))

    def _known(self, value: Value) -> np.ndarray | None:
        """The elements of a constant value; None for other values."""
        return self._values(self.constants[value]) if value in self.constants else None

    def _control_flow(self, operation: Operation) -> None:
        roles = _GRAPHS[operation.name]
        if len(operation.regions) != len(roles):
            raise FormatError(f"{len(operation.regions)} regions, expected {len(roles)}")
        location = self.reading.locations.read(operation.location)
        captured = [value for value in _free(operation) if value not in self.constants]
        inputs = tuple(self._of(value) for value in (*operation.operands, *captured))
        outputs = self._results(operation, location)
        label = outputs[0] if outputs else operation.name.rpartition(".")[2]
        by_role = dict(zip(roles, location.all_of("graph"), strict=False))
        graphs: list[str] = []
        for role, region in zip(roles, operation.regions, strict=True):
            name = self._graph_name(by_role.get(role), f"{label}_{role}")
            scope = Scope(self.reading, region, name, self.constants)
            graphs.append(self._subgraph(scope, captured, hands_on=role == "body_graph"))
        if operation.name == "tosa.while_loop":
            outputs += tuple(self._handed_on(value, label) for value in captured)
        self._emit(Made(operation, inputs, outputs, location.text, tuple(graphs)))
        if captured:
            names = ", ".join(repr(self._of(value)) for value in captured[:8])
            self._note(f"values that its regions use from outside are inputs: {names}")

    def _graph_name(self, given: str | None, made: str) -> str:
        names = self.reading.graph_names
        if given is None:
            return names.fresh(made)
        return given if given in self.reading.graphs else names.own(given)

    def _subgraph(self, scope: Scope, captured: Sequence[Value], *, hands_on: bool) -> str:
        """Adds a subgraph; returns its name."""
        graph = scope.graph(captured, hands_on=hands_on)
        other = self.reading.graphs.setdefault(scope.name, graph)
        if other is not graph and not self.reading.dialect.is_same(other, graph):
            raise FormatError(f"two graphs are named {scope.name!r}")
        self.subgraphs[scope.name] = graph
        return scope.name

    def _handed_on(self, value: Value, label: str) -> str:
        """Declares the loop output for a captured value; nothing reads it."""
        name = self._names.fresh(f"{label}_{self._of(value)}")
        self._declare(name, tensor_type(value.type))
        return name

    # Variables.

    def _variable(self, variable: Variable) -> str:
        """The name of a variable's tensor in this graph, declared on first use."""
        if variable.name not in self.stand_ins:
            stored = variable.places.get(self.name)
            wish = f"variable_{variable.name}"
            name = self._names.fresh(wish) if stored is None else self._names.own(stored)
            self.stand_ins[variable.name] = name
            self._declare(name, variable.type, variable.values, variable.name)
        return self.stand_ins[variable.name]

    def _declare_variables(self) -> None:
        """Inserts the declarations of variables at the head of the graphs that declare them."""
        declarations: list[Any] = []
        for variable in self.reading.variables.values():
            home = next(iter(variable.places), self.name if self.is_main else None)
            if self.name in (home, *variable.places):
                tensor = self._variable(variable)
                if home == self.name:
                    declarations.append(self.reading.dialect.declaration(variable, tensor))
        self.nodes[:0] = declarations


def _placed(operation: Operation, message: str) -> str:
    """Prefixes a message with the operation, unless it already has a nested operation's title."""
    return message if message.startswith("tosa.") else f"{operation.title}: {message}"


def _free(operation: Operation) -> Iterator[Value]:
    """The values that an operation's regions use but do not define."""
    inner: set[Value] = set()
    used: dict[Value, None] = {}
    for region in operation.regions:
        inner.update(region.arguments)
        for op in region.walk():
            inner.update(op.results)
            inner.update(value for part in op.regions for value in part.arguments)
            used.update(dict.fromkeys(op.operands))
    return (value for value in used if value not in inner)


def _is_unknown(text: str) -> bool:
    """Whether TOSA 1.0 does not have a type."""
    try:
        tensor_type(text).dtype  # noqa: B018  raises
    except (FormatError, UnsupportedError):
        return True
    return False
