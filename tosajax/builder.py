"""Builds graphs in Python, with the operators and argument names of the specification.

b = Builder()
x = b.input("x", DType.INT8, (1, 8, 8, 1))
w = b.const(weights, DType.INT8)
y = b.op("CONV2D", x, w, bias, zero, zero, pad=(1, 1, 1, 1), stride=(1, 1), dilation=(1, 1),
         acc_type=DType.INT32)
graph = b.graph(outputs=[y])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from tosajax import spec
from tosajax.arguments.types import check_type
from tosajax.checks import RULES, Surroundings
from tosajax.dtypes import DType, to_storage
from tosajax.graph import Graph, Node, Source, Tensor, arguments
from tosajax.validation import refuse
from tosajax.validation.certain import output_shapes

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _whole(
    method: Callable[Concatenate[Builder, _P], _T],
) -> Callable[Concatenate[Builder, _P], _T]:
    """Wraps a method so that an error undoes everything it added to the Builder."""

    @functools.wraps(method)
    def add(self: Builder, *args: _P.args, **options: _P.kwargs) -> _T:
        parts = self._inputs, self._nodes, self._tensors
        sizes = list(map(len, parts))
        try:
            return method(self, *args, **options)
        except BaseException:
            for part, size in zip(parts, sizes, strict=True):
                remove = part.popitem if isinstance(part, dict) else part.pop
                while len(part) > size:
                    remove()
            raise

    return add


class Builder:
    """Collects tensors and nodes; `graph` freezes them.

    Only operands that leave an output's type or shape undetermined are checked; `validate` checks
    the graph. A method that raises an error leaves the Builder unchanged.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 8, 8, 4))
      >>> y = b.op("MAX_POOL2D", x, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0))
      >>> b.graph([y])
      Graph('main', (x: INT8[1,8,8,4]) -> (max_pool2d_1: INT8[1,4,4,4]), 1 node)
    """

    def __init__(self, name: str = "main") -> None:
        self._name = name
        self._inputs: list[str] = []
        self._tensors: dict[str, Tensor] = {}
        self._nodes: list[Node] = []
        self._subgraphs: dict[str, Graph] = {}

    @_whole
    def input(self, name: str, dtype: DType, shape: Sequence[int]) -> Tensor:
        """Declares the next input of the graph."""
        check_type("name", name, str, "a name")
        check_type("dtype", dtype, DType, "a DType")
        self._inputs.append(name)
        return self._add(Tensor(name, dtype, tuple(shape)))

    @_whole
    def const(self, values: Any, dtype: DType, *, name: str | None = None) -> Tensor:
        """Adds a CONST.

        Args:
          values: an array, or numbers in lists; a BlockScaled for a block-scaled type.
          dtype: the element type.
          name: the output's name.

        Raises:
          ValueError: a value does not fit an integer type, or a block-scaled one.
        """
        check_type("dtype", dtype, DType, "a DType")
        stored = to_storage(values, dtype)
        return self._node_of(Tensor(name or self._fresh("const"), dtype, stored.shape, stored))

    @_whole
    def const_shape(self, values: Sequence[int], *, name: str | None = None) -> Tensor:
        """Adds a CONST_SHAPE."""
        array = np.asarray(values, np.int64).reshape(-1)
        name = name or self._fresh("shape")
        return self._node_of(Tensor(name, DType.SHAPE, array.shape, array))

    def op(
        self,
        op: str,
        *inputs: Tensor,
        shape: Sequence[int] | None = None,
        dtype: DType | None = None,
        name: str | None = None,
        location: str | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Adds an operator with one output and returns the output.

        Args:
          op: the operator's name, such as "CONV2D".
          inputs: tensors in the specification's order.
          shape: the output shape; derived from the inputs by default.
          dtype: the output type; required if the input types do not determine it (CAST).
          name: the output's name.
          location: the node's origin, in the user's words.
          attributes: attributes by the specification's names; lists of integers may be any
            sequence.
        """
        outputs = self.ops(
            op,
            *inputs,
            shapes=None if shape is None else [shape],
            dtypes=None if dtype is None else [dtype],
            names=None if name is None else [name],
            location=location,
            **attributes,
        )
        if len(outputs) != 1:
            raise ValueError(f"{op} has {len(outputs)} outputs: use ops")
        return outputs[0]

    @_whole
    def ops(
        self,
        op: str,
        *inputs: Tensor,
        shapes: Sequence[Sequence[int] | None] | None = None,
        dtypes: Sequence[DType] | None = None,
        names: Sequence[str] | None = None,
        location: str | None = None,
        **attributes: Any,
    ) -> tuple[Tensor, ...]:
        """Adds an operator with any number of outputs; see `op`. A shape of None is unranked."""
        check_type("op", op, str, 'the name of an operator, such as "ADD"')
        spec.operator_named(op)
        for tensor in inputs:
            check_type(f"an input of {op}", tensor, Tensor, "a Tensor of this Builder")
        attributes = {name: _as_tuple(value) for name, value in attributes.items()}
        dtypes = dtypes or self._output_types(op, inputs, attributes)
        names = names or self._fresh_names(op.lower(), len(dtypes))
        for what, listed in (("names", names), ("shapes", shapes)):
            if listed is not None and len(listed) != len(dtypes):
                raise ValueError(
                    f"{op} has {len(dtypes)} outputs, and there are {len(listed)} {what}"
                )
        for name in names:
            self._check_new(name)
        node = Node(op, tuple(t.name for t in inputs), tuple(names), attributes, location)
        if shapes is None:
            shapes = self._output_shapes(node, dtypes)
        outputs = [
            Tensor(n, d, None if s is None else tuple(s))
            for n, d, s in zip(names, dtypes, shapes, strict=True)
        ]
        self._nodes.append(node)
        return tuple(self._add(tensor) for tensor in outputs)

    @_whole
    def variable(
        self,
        name: str,
        dtype: DType,
        shape: Sequence[int],
        *,
        initial_value: ArrayLike | None = None,
    ) -> None:
        """Adds a VARIABLE, which `read` and `write` access in this graph and in subgraphs."""
        values = None if initial_value is None else to_storage(initial_value, dtype)
        tensor = self._variable(name, dtype, shape, values)
        attributes = {"name": name, "var_shape": tensor.shape, "type": spec.VarType.of(dtype)}
        self._nodes.append(Node("VARIABLE", (), (tensor.name,), attributes))

    @_whole
    def read(self, name: str, dtype: DType, shape: Sequence[int]) -> Tensor:
        """Adds a VARIABLE_READ and returns its output."""
        self._variable(name, dtype, shape)
        output = Tensor(self._fresh("read"), dtype, tuple(shape))
        self._nodes.append(Node("VARIABLE_READ", (), (output.name,), {"name": name}))
        return self._add(output)

    @_whole
    def write(self, name: str, value: Tensor) -> None:
        """Adds a VARIABLE_WRITE."""
        self._variable(name, value.dtype, value.shape or ())
        self._nodes.append(Node("VARIABLE_WRITE", (value.name,), (), {"name": name}))

    def subgraph(self, graph: Graph) -> str:
        """Adds a graph for COND_IF or WHILE_LOOP and returns its name."""
        self._subgraphs[graph.name] = graph
        return graph.name

    def graph(self, outputs: Sequence[Tensor]) -> Graph:
        """The finished graph."""
        check_type("outputs", outputs, (list, tuple), "a list of tensors")
        for tensor in outputs:
            check_type("an output", tensor, Tensor, "a Tensor of this Builder")
        return Graph(
            inputs=tuple(self._inputs),
            outputs=tuple(t.name for t in outputs),
            tensors=self._tensors,
            nodes=tuple(self._nodes),
            subgraphs=self._subgraphs,
            name=self._name,
            source=Source(),
        )

    def _node_of(self, tensor: Tensor) -> Tensor:
        op = "CONST_SHAPE" if tensor.dtype is DType.SHAPE else "CONST"
        self._nodes.append(Node(op, outputs=(tensor.name,)))
        return self._add(tensor)

    def _variable(
        self, name: str, dtype: DType, shape: Sequence[int], values: np.ndarray | None = None
    ) -> Tensor:
        """The tensor that stands for a variable in this graph."""
        for tensor in self._tensors.values():
            if tensor.variable == name:
                return tensor
        return self._add(Tensor(self._fresh("variable"), dtype, tuple(shape), values, name))

    def _output_types(
        self, op: str, inputs: Sequence[Tensor], attributes: Mapping[str, Any]
    ) -> Sequence[DType]:
        """The output types that the inputs determine; an error if they do not."""
        choices = possible_output_types(op, inputs, attributes, self._subgraphs)
        if len(choices) != 1:
            self._refuse_operands(op, inputs, attributes, choices)
            operands = ", ".join(str(t) for t in inputs)
            raise ValueError(
                f"{op} of {operands} has {len(choices)} possible output types: give dtype="
            )
        return choices[0]

    def _output_shapes(self, node: Node, dtypes: Sequence[DType]) -> Sequence[tuple[int, ...]]:
        """The output shapes that the inputs determine; an error if they do not."""
        if RULES[node.op].shape is None:
            raise ValueError(f"the output shape of {node.op} does not follow: give shape=")
        outputs = {n: Tensor(n, d, None) for n, d in zip(node.outputs, dtypes, strict=True)}
        try:
            around = Surroundings(self._subgraphs)
            return output_shapes(node, self._tensors | outputs, around)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            self._refuse(node, outputs)
            operands = arguments(spec.OPERATORS[node.op], node.inputs, spec.Kind.INPUT)
            names = {n: (x,) if isinstance(x, str) else x for n, x in operands.items()}
            stated = [f"{n} {self._tensors[x]}" for n, xs in names.items() for x in xs]
            message = f"the output shape does not follow from {', '.join(stated)}: give shape="
            raise ValueError(f"{node.title}: {message}") from None

    def _refuse_operands(
        self,
        op: str,
        inputs: Sequence[Tensor],
        attributes: Mapping[str, Any],
        dtypes: Sequence[tuple[DType, ...]],
    ) -> None:
        """Raises TosaError if the node is illegal for any outputs."""
        dtypes = dtypes or possible_output_types(op, (), attributes, self._subgraphs)
        names = [f"output_{i}" for i in range(len(dtypes[0]) if dtypes else 0)]
        node = Node(op, tuple(t.name for t in inputs), tuple(names), attributes)
        if dtypes:
            outputs = zip(names, dtypes[0], strict=True)
            self._refuse(node, {name: Tensor(name, dtype, None) for name, dtype in outputs})

    def _refuse(self, node: Node, outputs: Mapping[str, Tensor]) -> None:
        """Raises TosaError if the node is illegal for any shapes of its outputs."""
        whole = Graph((), (), self._tensors | dict(outputs), (), self._subgraphs)
        refuse(node, whole, Surroundings(self._subgraphs))

    def _check_new(self, name: str) -> None:
        if name in self._tensors:
            raise ValueError(f"tensor {name!r} exists already")

    def _add(self, tensor: Tensor) -> Tensor:
        self._check_new(tensor.name)
        self._tensors[tensor.name] = tensor
        return tensor

    def _fresh_names(self, stem: str, count: int) -> list[str]:
        name = self._fresh(stem)
        return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]

    def _fresh(self, stem: str) -> str:
        return f"{stem}_{len(self._tensors)}"


def _as_tuple(value: Any) -> Any:
    """The attribute as a tuple if it is a sequence or a 1-D array, else unchanged."""
    if getattr(value, "ndim", None) == 1:
        return tuple(np.asarray(value).tolist())
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return tuple(value) if is_sequence else value


def possible_output_types(
    op: str,
    inputs: Sequence[Tensor],
    attributes: Mapping[str, Any],
    subgraphs: Mapping[str, Graph],
) -> list[tuple[DType, ...]]:
    """The possible output types: of the type rows that match the inputs.

    For COND_IF, the output types of its then graph; for WHILE_LOOP, the input types.
    """
    operator = spec.OPERATORS[op]
    match op:
        case "CUSTOM":
            return []
        case "COND_IF":
            then_graph = subgraphs.get(attributes.get("then_graph", ""))
            if then_graph is None:
                return [()]
            return [tuple(t.dtype for t in then_graph.output_tensors)]
        case "WHILE_LOOP":
            return [tuple(t.dtype for t in inputs)]
    choices: dict[tuple[DType, ...], None] = {}
    for row in operator.types:
        wanted = [row.type_of(argument) for argument in operator.inputs]
        if all(w in (None, t.dtype) for w, t in zip(wanted, inputs, strict=False)):
            choices[tuple(row.type_of(a) or DType.SHAPE for a in operator.outputs)] = None
    return list(choices)
