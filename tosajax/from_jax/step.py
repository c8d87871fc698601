"""Step: the methods with which a rule writes one primitive as TOSA operators."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.from_jax.places import Place
from tosajax.from_jax.ranks import MAX_RANK, merged, neighbours
from tosajax.from_jax.scope import Scope
from tosajax.from_jax.values import (
    TOSA_TYPES,
    Reshaped,
    Sliced,
    Transposed,
    Value,
    known,
    of_tensor,
)
from tosajax.graph import Rewrite, Tensor
from tosajax.report import UnsupportedError

Operand = Value | Tensor
Function = Callable[..., Any] | core.ClosedJaxpr


class Aval(NamedTuple):
    """Shape and dtype of a result."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class Step:
    """One equation while it is written as nodes.

    Args:
      scope: the graph that nodes are added to.
      primitive: the name of JAX's primitive, "dot_general".
      params: the parameters of the equation.
      outs: the shapes and dtypes of its results.
      place: its source place.
      call: writes a JAX function or a jaxpr on values; for rules in terms of other primitives.
    """

    scope: Scope
    primitive: str
    params: Mapping[str, Any]
    outs: tuple[Aval, ...]
    place: Place
    call: Callable[[Step, Function, Sequence[Value]], list[Value]]

    @property
    def out(self) -> Aval:
        """The shape and dtype of the only result."""
        (aval,) = self.outs
        return aval

    # Operators.

    def op(self, op: str, *inputs: Operand | Sequence[int], **options: Any) -> Value:
        """Adds an operator with one output and returns the output; see `ops`."""
        (output,) = self.ops(op, *inputs, **options)
        return output

    def ops(
        self,
        op: str,
        *inputs: Operand | Sequence[int],
        dtype: np.dtype | None = None,
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """Adds an operator and returns its outputs.

        Operands and outputs of elementwise operators stay as they are held: broadcast axes have
        size 1. Operands of all other operators are expanded to their full shape.

        Args:
          op: the operator's name in `spec.OPERATORS`.
          inputs: operands in the specification's order; a sequence of ints becomes a CONST_SHAPE.
          dtype: the output type, if the operands do not determine it.
          attributes: attributes by the specification's names.
        """
        operator = spec.OPERATORS[op]
        wide = [a for a in operator.inputs if a.dims is None] if operator.is_elementwise else []
        spread = [x for a, x in zip(operator.inputs, inputs, strict=False) if a in wide]
        values = [x for x in spread if isinstance(x, Value)]
        rank = max((value.rank for value in values), default=0)
        tensors = [
            self._operand(x, rank if any(x is each for each in values) else None) for x in inputs
        ]
        held = [t.shape or () for t, x in zip(tensors, inputs, strict=True) if x in values]
        if rank > MAX_RANK:
            groups = neighbours(held)
            tensors = [
                self._reshaped(t, merged(t.shape or (), groups)) if x in values else t
                for t, x in zip(tensors, inputs, strict=True)
            ]
        dtypes = None if dtype is None else [self.tosa_type(dtype)]
        outputs = self.scope.node(op, tensors, attributes, self.place, self.primitive, dtypes)
        if not operator.is_elementwise:
            return tuple(map(of_tensor, outputs))
        if rank > MAX_RANK:
            outputs = tuple(
                self._reshaped(tensor, np.broadcast_shapes(*held)) for tensor in outputs
            )
        shape = np.broadcast_shapes(*(value.shape for value in values))
        return tuple(of_tensor(tensor, shape) for tensor in outputs)

    def _operand(self, x: Operand | Sequence[int], rank: int | None) -> Tensor:
        if isinstance(x, Tensor):
            return x
        if not isinstance(x, Value):
            return self.scope.const_shape([int(n) for n in x])
        return self.tensor(x) if rank is None else self.held(x, rank)

    # Values as tensors.

    def held(self, value: Value, rank: int | None = None) -> Tensor:
        """The tensor of a value as it is held, with leading axes of size 1 up to a rank."""
        shape = value.held_shape
        shape = (1,) * ((rank or len(shape)) - len(shape)) + shape
        if isinstance(value.held, Tensor):
            if shape == value.held_shape:
                return value.held
            return self._reshaped(value.held, shape)
        return self._const(value, np.asarray(value.held).reshape(shape))

    def tensor(self, value: Value) -> Tensor:
        """The tensor of a value in its full shape; TILE expands broadcast axes."""
        if not isinstance(value.held, Tensor):
            return self._const(value, value.elements)
        multiples = [n if h != n else 1 for h, n in zip(value.held_shape, value.shape, strict=True)]
        if math.prod(multiples) == 1:
            return value.held
        groups = neighbours([value.held_shape, multiples])
        small = self._reshaped(value.held, merged(value.held_shape, groups))
        small = self._node("TILE", small, self.scope.const_shape(merged(multiples, groups)))
        return self._reshaped(small, value.shape)

    def whole(self, value: Value) -> Value:
        """The value, held in its full shape."""
        if value.held_shape == value.shape:
            return value
        if value.is_known:
            return dataclasses.replace(value, held=value.elements)
        return of_tensor(self.tensor(value))

    def _const(self, value: Value, held: np.ndarray) -> Tensor:
        self.tosa_type(value.dtype)
        if held.size == 0:
            problem = f"an array of shape {value.shape}"
            raise self.unsupported(problem, "at least one element, as TOSA has no empty tensors")
        return self.scope.const(value, held, self._constant_name)

    @property
    def _constant_name(self) -> str:
        layers = self.place.layers
        return f"{layers}/{self.primitive}_constant" if layers else f"{self.primitive}_constant"

    def constant(self, values: Any, dtype: Any = None) -> Value:
        """A constant value."""
        return known(np.asarray(values, dtype))

    def like(self, number: Any, value: Value) -> Value:
        """A scalar constant in the dtype of a value."""
        return known(np.asarray(number, value.dtype))

    # Moves of elements. Constants are moved at once, without a node.

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Reshapes a value, row-major."""
        shape = tuple(int(n) for n in shape)
        if shape == value.shape:
            return value
        if math.prod(value.held_shape) == 1 and not value.is_known:
            tensor = self.held(value)
            return of_tensor(self._reshaped(tensor, (1,) * len(shape)), shape)
        value = value if value.scalar is not None else self.whole(value)
        if value.is_known:
            if value.scalar is not None:
                held = np.asarray(value.held).reshape((1,) * len(shape))
            else:
                held = np.asarray(value.held).reshape(shape)
            origin = value.origin and value.origin.moved(Reshaped(value.shape, shape))
            return Value(shape, value.dtype, held, origin)
        return of_tensor(self._reshaped(self.tensor(value), shape))

    def transpose(self, value: Value, perms: Sequence[int]) -> Value:
        """Transposes a value: axis i of the result is axis perms[i] of the value."""
        perms = tuple(int(n) for n in perms)
        shape = tuple(value.shape[axis] for axis in perms)
        held_shape = tuple(value.held_shape[axis] for axis in perms)
        if perms == tuple(range(len(perms))):
            return value
        if value.is_known:
            held = np.transpose(np.asarray(value.held), perms)
            origin = value.origin and value.origin.moved(Transposed(perms))
            return Value(shape, value.dtype, held, origin)
        long = [axis for axis in perms if value.held_shape[axis] != 1]
        if long == sorted(long):  # Only axes of size 1 move.
            return of_tensor(self._reshaped(self.held(value), held_shape), shape)
        return of_tensor(self._transposed(self.held(value), perms), shape)

    def broadcast(self, value: Value, shape: Sequence[int], axes: Sequence[int]) -> Value:
        """Broadcasts a value: its axis i becomes axis axes[i] of the result; axes of 1 repeat."""
        shape = tuple(int(n) for n in shape)
        held = [1] * len(shape)
        for axis, n in zip(axes, value.held_shape, strict=True):
            held[axis] = n
        if value.is_known:
            array = np.asarray(value.held).reshape(held)
            origin = value.origin and value.origin.moved(Reshaped(value.shape, tuple(held)))
            return Value(shape, value.dtype, array, origin)
        tensor = self.held(value)
        if tuple(held) != value.held_shape:
            tensor = self._reshaped(tensor, tuple(held))
        return of_tensor(tensor, shape)

    def cast(self, value: Value, dtype: Any) -> Value:
        """Casts a value as TOSA's CAST does: floats round to the nearest integer and saturate."""
        dtype = np.dtype(dtype)
        if dtype == value.dtype:
            return value
        if value.is_known:
            held = np.asarray(value.held)
            if held.dtype.kind != "b" and dtype.kind in "iu" and held.dtype.kind != "i":
                info = np.iinfo(dtype)
                held = np.clip(np.rint(held.astype(np.float64)), info.min, info.max)
            origin = value.origin and value.origin.changed()
            return Value(value.shape, dtype, held.astype(dtype), origin)
        source = self.scope.casts.get(self.held(value).name)
        if source is not None and source.dtype is DType.BOOL and dtype == np.bool_:
            return of_tensor(source, value.shape)
        return self.op("CAST", value, dtype=dtype)

    def slice(self, value: Value, start: Sequence[int], size: Sequence[int]) -> Value:
        """Slices a block of elements of shape `size` from `start` on."""
        if tuple(size) == value.shape:
            return value
        held = [
            (int(a), int(n)) if h != 1 or s == 1 else (0, 1)
            for a, n, h, s in zip(start, size, value.held_shape, value.shape, strict=True)
        ]
        if value.is_known:
            array = np.asarray(value.held)[tuple(slice(a, a + n) for a, n in held)]
            ends = tuple(int(a + n) for a, n in zip(start, size, strict=True))
            move = Sliced(value.shape, tuple(map(int, start)), ends, (1,) * value.rank)
            origin = value.origin and value.origin.moved(move)
            return Value(tuple(int(n) for n in size), value.dtype, array, origin)
        tensor = self.held(value)
        sizes = tuple(n for _, n in held)
        if sizes != value.held_shape:
            cut = {axis for axis, n in enumerate(sizes) if n != value.held_shape[axis]}
            groups = neighbours([value.held_shape], cut)
            if len(groups) > MAX_RANK:
                return self._slice_in_turn(value, start, size, sorted(cut)[:2])
            starts = self.scope.const_shape([held[group[0]][0] for group in groups])
            small = self._reshaped(tensor, merged(value.held_shape, groups))
            size_of = self.scope.const_shape(merged(sizes, groups))
            tensor = self._reshaped(self._node("SLICE", small, starts, size_of), sizes)
        return of_tensor(tensor, tuple(int(n) for n in size))

    def _slice_in_turn(
        self, value: Value, start: Sequence[int], size: Sequence[int], first: Sequence[int]
    ) -> Value:
        """Slices in two steps: along the axes in `first`, then along the rest."""
        axes = range(value.rank)
        begin = [start[axis] if axis in first else 0 for axis in axes]
        part = [size[axis] if axis in first else value.shape[axis] for axis in axes]
        rest = [0 if axis in first else start[axis] for axis in axes]
        return self.slice(self.slice(value, begin, part), rest, size)

    def _reshaped(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        """RESHAPE, from the input of an earlier RESHAPE if there is one."""
        tensor = self.scope.before_reshape(tensor)
        if tensor.shape == shape:
            return tensor
        return self._node("RESHAPE", tensor, self.scope.const_shape(shape))

    def _transposed(self, tensor: Tensor, perms: tuple[int, ...]) -> Tensor:
        """TRANSPOSE; above MAX_RANK, axes that stay neighbours are merged."""
        shape = tensor.shape or ()
        if len(perms) <= MAX_RANK:
            return self._node("TRANSPOSE", tensor, perms=perms)
        groups: list[list[int]] = []
        for axis in perms:
            if shape[axis] == 1:
                continue
            before = groups[-1][-1] if groups else None
            between = () if before is None else shape[before + 1 : axis]
            if before is not None and axis > before and all(n == 1 for n in between):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        order = sorted(groups)
        small = self._reshaped(tensor, tuple(math.prod(shape[a] for a in g) for g in order))
        small = self._node("TRANSPOSE", small, perms=tuple(order.index(group) for group in groups))
        return self._reshaped(small, tuple(shape[axis] for axis in perms))

    def _node(self, op: str, *tensors: Tensor, **attributes: Any) -> Tensor:
        (output,) = self.scope.node(op, tensors, attributes, self.place, self.primitive)
        return output

    def outputs(self, results: Sequence[Value]) -> list[Tensor]:
        """The output tensors for results; IDENTITY for inputs, constants and repeated tensors."""
        tensors: dict[str, Tensor] = {}
        for value in results:
            tensor = self.tensor(value)
            is_computed = not value.is_known and tensor.name not in self.scope.inputs
            if not is_computed or tensor.name in tensors:
                tensor = self.scope.copy(tensor)
            tensors[tensor.name] = tensor
        return [*tensors.values()]

    def subgraph(
        self,
        name: str,
        values: Sequence[Value],
        write: Callable[[Step, list[Value]], Sequence[Value]],
    ) -> str:
        """Writes a graph for control flow and returns its name.

        Args:
          name: the name of the graph.
          values: values of this scope. Unknown ones become inputs, in order, as they are held.
          write: returns the results, given a step in the subgraph and the values there.
        """
        inner = dataclasses.replace(self, scope=self.scope.nested(name))
        inner_values = [v if v.is_known else inner._input(v) for v in values]
        outputs = inner.outputs(write(inner, inner_values))
        graph = inner.scope.graph(outputs)
        origins = inner.scope.origins.items()
        self.scope.origins |= {f"{graph.name}/{name}": origin for name, origin in origins}
        return self.scope.subgraph(graph)

    def _input(self, value: Value) -> Value:
        dtype = self.tosa_type(value.dtype)
        return of_tensor(self.scope.input("input", dtype, value.held_shape), value.shape)

    # Rules in terms of other primitives.

    def jax(self, function: Callable[..., Any], *values: Value) -> Value:
        """Traces and writes a JAX function in place of the step, and returns its result."""
        (value,) = self.jaxs(function, *values)
        return value

    def jaxs(self, function: Function, *values: Value) -> list[Value]:
        """Writes a JAX function with several results, or a closed jaxpr; returns the results."""
        return self.call(self, function, values)

    # Differences from JAX, and errors.

    def note(self, done: str, differs: str) -> None:
        """Records in the graph's report where results may differ from JAX's."""
        self.scope.note(Rewrite(self.title, done, differs))

    def unsupported(self, found: str, wanted: str, instead: str = "") -> UnsupportedError:
        """The error to raise for something that TOSA does not have.

        Args:
          found: the construct in the function, "operands of uint8".
          wanted: the supported alternatives, "int8, int16 or a float".
          instead: advice to the user.
        """
        hint = f"; {instead}" if instead else ""
        return UnsupportedError(f"{self.title}: {found}, expected {wanted}{hint}")

    @property
    def title(self) -> str:
        """The equation's name in messages: primitive, layers, line."""
        layers = f" of {self.place.layers}" if self.place.layers else ""
        line = f" ({self.place.line})" if self.place.line else ""
        return f"{self.primitive}{layers}{line}"

    def tosa_type(self, dtype: Any) -> DType:
        """The TOSA element type for a dtype.

        Raises:
          UnsupportedError: TOSA does not have the type.
        """
        is_extended = jax.numpy.issubdtype(dtype, jax.dtypes.extended)  # a random key, for example
        dtype = dtype if is_extended else np.dtype(dtype)
        if dtype not in TOSA_TYPES:
            raise self.unsupported_type(dtype)
        return TOSA_TYPES[dtype]

    def unsupported_type(self, dtype: Any) -> UnsupportedError:
        """The error to raise for an array of a dtype that TOSA does not have.

        It does not offer int64, which only holds int48 for some operators.
        """
        types = ", ".join(t.name for t in TOSA_TYPES if t != np.int64)
        return self.unsupported(f"an array of {dtype}", types, _INSTEAD.get(str(dtype), ""))


_INSTEAD = {
    "uint8": "subtract 128 and pass int8, or pass floats",
    "int64": "trace without jax_enable_x64, or ask for int32, as lax.argmax(x, axis, jnp.int32)",
    "uint32": "use int32; make a random key inside of the function",
    "complex64": "compute real and imaginary parts as two arrays, as tosajax.ops.rfft2d does",
    "key<fry>": "make the key inside of the function, or pass the random numbers",
    "float64": "trace without jax_enable_x64, or convert to float32",
}
