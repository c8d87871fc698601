"""Random legal graphs, grown operator by operator, predictable by construction.

A growing graph keeps a range for every integer tensor, and for floats that are certainly finite.
The ranges serve to choose operands that meet every REQUIRE of the specification: sums that fit,
divisors other than 0, indices in range.
"""

from __future__ import annotations

import dataclasses
import math
import random as python_random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from oracle import float_bounds

from reference import operators
from reference import values as elements
from tosajax import Builder, DType, Graph, Tensor, ops, spec
from tosajax.spec import Operator, TypeRow

Random = python_random.Random

_OPERATORS = 12  # of a graph
_CONVERSIONS = 6  # how much likelier types change than each other operator is
_RANK = 6

Grow = Callable[["Growth", Operator, TypeRow, "Value"], None]


def _grower(operator: Operator) -> Grow | None:
    """The function that grows a graph by an operator: of its name, or of its chapter."""
    own, common = (f"grow_{name}" for name in (operator.name.lower(), operator.chapter))
    return getattr(operators, own, None) or getattr(operators, common, None)


# Constants grow as operands of others; subgraphs, variables and custom operators do not.
OPERATORS = tuple(
    op
    for op in spec.OPERATORS.values()
    if hasattr(ops, op.name.lower())
    and op.name not in spec.CONSTANT_OPERATORS
    and _grower(op) is not None
)


class Value(NamedTuple):
    """A tensor with bounds of its elements, each or all; None where NaN may be among them."""

    tensor: Tensor
    low: np.ndarray | None
    high: np.ndarray | None

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        assert self.tensor.shape is not None
        return self.tensor.shape

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def least(self) -> Any:
        """A lower bound of all elements."""
        assert self.low is not None
        return self.low.min().item()

    @property
    def most(self) -> Any:
        """An upper bound of all elements."""
        assert self.high is not None
        return self.high.max().item()


class Case(NamedTuple):
    """A graph with values for its inputs, by name."""

    graph: Graph
    inputs: dict[str, np.ndarray]


def grow(random: Random) -> Case:
    """A legal graph of 1 to 12 operators, every tensor an output, and inputs for it."""
    growth = Growth(random)
    wanted = random.randint(1, _OPERATORS - 3)  # an operator may bring others that guard it
    while len(growth.made) < wanted:
        _add_operator(growth)
    return _without_unread(growth.builder.graph(growth.made), growth.inputs)


def _without_unread(graph: Graph, inputs: dict[str, np.ndarray]) -> Case:
    """Leaves out constants and inputs that no node reads, as neither program reads them."""
    used = {name for node in graph.nodes for name in node.inputs} | {*graph.outputs}
    graph = dataclasses.replace(
        graph,
        inputs=tuple(name for name in graph.inputs if name in used),
        nodes=tuple(node for node in graph.nodes if used.intersection(node.outputs)),
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in used},
    )
    return Case(graph, {name: inputs[name] for name in graph.inputs})


def _add_operator(growth: Growth) -> None:
    random = growth.random
    subject = growth.recent() if growth.values and random.random() < 0.85 else None
    choices = list(_accepting(subject.dtype)) if subject else []
    if choices:
        operator, rows = random.choice(choices)
        row = random.choice(rows)
    else:
        operator = random.choice(OPERATORS)
        row = random.choice(operator.types)
        subject = None
    if subject is None:
        dtype = row.types[_subject(operator)]
        assert isinstance(dtype, DType)
        subject = growth.leaf(dtype, growth.shape())
    grow_by = _grower(operator)
    assert grow_by is not None
    grow_by(growth, operator, row, subject)


def _subject(operator: Operator) -> str:
    """The type variable of the input that the graph grows from."""
    return next(a.dtype for a in operator.inputs if isinstance(a.dtype, str))


def _accepting(dtype: DType) -> Iterator[tuple[Operator, list[TypeRow]]]:
    """Operators with their rows that take this type; conversions several times."""
    for operator in OPERATORS:
        rows = [r for r in operator.types if r.types[_subject(operator)] is dtype]
        times = _CONVERSIONS if operator.chapter == "type_conversion" else 1
        yield from [(operator, rows)] * (times if rows else 0)


class Growth:
    """A graph that grows: its tensors so far, and the ways to choose or make another."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rng = np.random.default_rng(random.getrandbits(32))
        self.builder = Builder()
        self.inputs: dict[str, np.ndarray] = {}
        self.values: list[Value] = []
        self.made: list[Tensor] = []

    # Leaves: constants and inputs.

    def leaf(
        self,
        dtype: DType,
        shape: Sequence[int],
        low: elements.Limit = None,
        high: elements.Limit = None,
        *,
        constant: float = 0.5,
    ) -> Value:
        """A new constant, with this probability, or else an input."""
        return self.hold(elements.draw(self.rng, dtype, tuple(shape), low, high), dtype, constant)

    def hold(self, array: Any, dtype: DType, constant: float = 0.85) -> Value:
        """A leaf of given elements; an operand that EXT-DYNAMIC lets be an input often is none."""
        array = np.asarray(array).astype(dtype.storage)
        if self.random.random() < constant:
            tensor = self.builder.const(array, dtype)
        else:
            tensor = self.builder.input(f"in_{len(self.inputs)}", dtype, array.shape)
            self.inputs[tensor.name] = array
        value = Value(tensor, *_bounds(array, dtype))
        self.values.append(value)
        return value

    def shape(self, rank: int | None = None, largest: int = 60) -> tuple[int, ...]:
        """Dimensions of 1 to 6."""
        rank = self.random.randint(0, _RANK) if rank is None else rank
        dims = [self.random.choice([1, 2, 2, 3, 3, 4, 5, 6]) for _ in range(rank)]
        while math.prod(dims) > largest:
            dims[dims.index(max(dims))] -= 1
        return tuple(dims)

    # Tensors of the graph.

    def recent(self) -> Value:
        """A tensor, likelier a late one."""
        return self.values[-1 - min(int(self.random.expovariate(0.5)), len(self.values) - 1)]

    def at_rank(self, value: Value, least: int, most: int = _RANK) -> Value:
        """The tensor at a rank of this range: itself, reshaped, or another."""
        if least <= len(value.shape) <= most:
            return value
        rank = self.random.randint(least, most)
        computed = any(value.tensor is tensor for tensor in self.made)
        if not computed or not _supports("RESHAPE", value.dtype):
            return self.leaf(value.dtype, self.shape(rank))
        dims = [1] * rank
        for factor in _factors(value.size):
            dims[self.random.randrange(rank)] *= factor
        return self.reshape(value, dims)

    def reshape(self, value: Value, dims: Sequence[int]) -> Value:
        shape = self.builder.const_shape(dims)
        return self.add("RESHAPE", value.tensor, shape, like=[value])

    def partner(self, value: Value, low: elements.Limit = None, high: elements.Limit = None):
        """A tensor of the same type that broadcasts with this one, its elements in a range."""
        found = [v for v in self.values if _fits(v, value, low, high)]
        if found and self.random.random() < 0.5:
            return self.random.choice(found)
        shape = self.broadcastable(value.shape)
        if low is not None and high is not None and shape != value.shape:
            low, high = np.max(low), np.min(high)
        return self.leaf(value.dtype, shape, low, high)

    def broadcastable(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Another shape that broadcasts with this one."""
        dims = list(shape)
        for i, dim in enumerate(dims):
            if self.random.random() < 0.25:
                dims[i] = 1 if dim > 1 else self.random.randint(1, 3)
        joined = math.prod(max(a, b) for a, b in zip(dims, shape, strict=True))
        return tuple(dims) if joined <= elements.LARGEST else tuple(shape)

    # Operators.

    def add(
        self,
        op: str,
        *inputs: Tensor,
        dtypes: Sequence[DType] | None = None,
        like: Sequence[Value] = (),
        low: Any = None,
        high: Any = None,
        **attributes: Any,
    ) -> Value:
        """Adds an operator and returns its first output.

        Args:
          op: operator.
          inputs: in the specification's order.
          dtypes: output types, where the inputs leave them open.
          like: inputs that the elements come from, if they do.
          low: no element is less.
          high: no element is more.
          attributes: by name; nan_mode and local_bound are drawn where they are not given.
        """
        for argument in spec.OPERATORS[op].attributes:
            if argument.name == "nan_mode":
                attributes.setdefault("nan_mode", self.random.choice(list(spec.NanMode)))
            if argument.name == "local_bound":
                attributes.setdefault("local_bound", self.random.random() < 0.5)
        count = len(spec.OPERATORS[op].outputs)
        names = [f"{op.lower()}_{len(self.made) + n}" for n in range(count)]
        outputs = self.builder.ops(op, *inputs, dtypes=dtypes, names=names, **attributes)
        self.made += outputs
        if like:
            low, high = _union(like)
        self.values += [_ranged(tensor, low, high) for tensor in outputs]
        return self.values[-len(outputs)]

    def finite(self, value: Value, low: float, high: float) -> Value:
        """The float tensor, through a CLAMP unless it has these bounds and no NaN."""
        if value.low is not None and low <= value.least and value.most <= high:
            return value
        number = value.dtype.storage.type
        return self.add(
            "CLAMP",
            value.tensor,
            min_val=number(low),
            max_val=number(high),
            nan_mode=spec.NanMode.IGNORE,
            low=low,
            high=high,
        )


def _supports(op: str, dtype: DType) -> bool:
    operator = spec.OPERATORS[op]
    return any(row.types[_subject(operator)] is dtype for row in operator.types)


def _factors(number: int) -> Iterator[int]:
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            number //= divisor
            yield divisor
        divisor += 1


def _bounds(array: np.ndarray, dtype: DType) -> tuple[np.ndarray | None, np.ndarray | None]:
    if dtype.is_integer:
        return array.astype(np.int64), array.astype(np.int64)
    if dtype is DType.BOOL or not np.isfinite(float_bounds.widen(array)).all():
        return None, None
    return float_bounds.widen(array), float_bounds.widen(array)


def _ranged(tensor: Tensor, low: Any, high: Any) -> Value:
    if tensor.dtype.is_integer:
        least, most = tensor.dtype.minimum, tensor.dtype.maximum
        low = least if low is None else min(max(low, least), most)
        high = most if high is None else min(max(high, least), most)
    if low is None or high is None:
        return Value(tensor, None, None)
    return Value(tensor, np.asarray(low), np.asarray(high))


def _union(values: Sequence[Value]) -> tuple[Any, Any]:
    if any(v.low is None for v in values):
        return None, None
    return min(v.least for v in values), max(v.most for v in values)


def _fits(found: Value, value: Value, low: elements.Limit, high: elements.Limit) -> bool:
    if found.dtype is not value.dtype or len(found.shape) != len(value.shape):
        return False
    dims = list(zip(found.shape, value.shape, strict=True))
    if any(a != b and 1 not in (a, b) for a, b in dims):
        return False
    if math.prod(max(d) for d in dims) > elements.LARGEST:
        return False
    if low is None or high is None:
        return True
    return found.low is not None and bool(np.max(low) <= found.least <= found.most <= np.min(high))
