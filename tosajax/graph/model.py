"""A TOSA graph as frozen data, independent of file formats: Graph, Node, Tensor, Quantization."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tosajax import html, spec
from tosajax.dtypes import DType, to_storage
from tosajax.report import Finding, Report, TosaError, Verdict

DYNAMIC = -1  # a dimension that is not known yet


def shape_fits(shape: Sequence[int], declared: Sequence[int] | None) -> bool:
    """Whether a shape matches a declared one: DYNAMIC matches any size, None any rank.

    Example:
      >>> from tosajax.graph import DYNAMIC, shape_fits
      >>> shape_fits((8, 4), (DYNAMIC, 4)), shape_fits((8, 4), (DYNAMIC, 5))
      (True, False)
    """
    if declared is None or shape == declared:  # the usual case when a program is called
        return True
    return len(shape) == len(declared) and all(
        d in (DYNAMIC, n) for d, n in zip(declared, shape, strict=True)
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor or shape of a graph.

    Args:
      name: the name, unique in its graph.
      dtype: the element type; DType.SHAPE for a shape.
      shape: dimensions, DYNAMIC where not known; None for an unranked tensor. For a shape of rank
        n, (n,).
      values: the value in the arrays of `dtype.parts`, for the output of CONST and CONST_SHAPE
        (and the initial value of a variable), else None.
      variable: the name of the variable that the tensor stands for, else None.

    Example:
      >>> import tosajax
      >>> tosajax.Tensor("x", tosajax.DType.INT8, (-1, 4))
      Tensor('x', INT8[?,4])
    """

    name: str
    dtype: DType
    shape: tuple[int, ...] | None
    values: Any = None
    variable: str | None = None

    def __post_init__(self) -> None:
        if self.values is not None:
            arrays = self.dtype.arrays(to_storage(self.values, self.dtype))
            object.__setattr__(self, "values", self.dtype.join(map(_frozen, arrays)))

    def __eq__(self, other: object) -> bool:
        """Compares bit for bit: NaN equals itself, 0.0 differs from -0.0."""
        if not isinstance(other, Tensor):
            return NotImplemented
        return self._key() == other._key() and same_values(self, other)

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, so that the values of a copy are read-only again.
        return Tensor, (self.name, self.dtype, self.shape, self.values, self.variable)

    def _key(self) -> tuple:
        return self.name, self.dtype, self.shape, self.variable, self.values is None

    def __repr__(self) -> str:
        values = "" if self.values is None else ", values"
        variable = "" if self.variable is None else f", variable {html.quoted(self.variable)}"
        return f"Tensor({html.quoted(self.name)}, {self}{values}{variable})"

    def __str__(self) -> str:
        dims = "*" if self.shape is None else ",".join("?" if d < 0 else str(d) for d in self.shape)
        return f"{self.dtype.name}[{dims}]"


@dataclasses.dataclass(frozen=True)
class Node:
    """One operator of a graph; it names its tensors in the order of the specification.

    Attributes hold Python values: int, bool, str, bytes, tuple of int, an enumeration of
    `tosajax.spec`, a DType for acc_type, the name of a subgraph, and for CLAMP's bounds a scalar
    of the element type's storage. CONST and CONST_SHAPE have no attribute for their values: their
    output tensor holds them.

    Example:
      >>> import tosajax
      >>> tosajax.Node("REVERSE", ("x",), ("y",), {"axis": 1})
      Node(REVERSE, (x) -> (y), axis=1)
    """

    op: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    location: str | None = None  # the node's origin, as the producer writes it

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "outputs", tuple(self.outputs))
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = dict(self.attributes)
        return Node, (self.op, self.inputs, self.outputs, attributes, self.location)

    def __repr__(self) -> str:
        place = f", {html.quoted(self.location)}" if self.location else ""
        ends = f"({html.listed(self.inputs)}) -> ({html.listed(self.outputs)})"
        options = [f", {name}={_brief(value)}" for name, value in self.attributes.items()]
        return f"Node({self.op}, {ends}{''.join(options)}{place})"

    @property
    def title(self) -> str:
        """The node's name in messages: operator and first output."""
        return f"{self.op} {self.outputs[0]!r}" if self.outputs else self.op

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return (self.op, self.inputs, self.outputs, self.location) == (
            other.op,
            other.inputs,
            other.outputs,
            other.location,
        ) and _same_attributes(self.attributes, other.attributes)

    def __hash__(self) -> int:
        return hash((self.op, self.inputs, self.outputs))


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """A reader's replacement for something that TOSA 1.0 does not have.

    Args:
      place: the node or tensor, as messages name it.
      done: the replacement in the graph, in words.
      differs: the cases in which results may differ from the source's; "" if there are none.

    Example:
      >>> import tosajax
      >>> print(tosajax.Rewrite("RESIZE 'y'", "cast to int32", "rounded once more"))
      RESIZE 'y': cast to int32; rounded once more
    """

    place: str
    done: str
    differs: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.done}" + (f"; {self.differs}" if self.differs else "")


class Agreement(NamedTuple):
    """The difference between an output of an exported graph and the same output of its function.

    Args:
      output: the output's name.
      ulp: the largest difference in a run of both, in units in the last place of the output's
        largest element; 0 if the outputs are equal.

    Example:
      >>> import tosajax
      >>> print(tosajax.Agreement("output", 0.0))
      output: equal
    """

    output: str
    ulp: float

    def __str__(self) -> str:
        return f"{self.output}: " + (f"within {self.ulp:.3g} ulp" if self.ulp else "equal")


@dataclasses.dataclass(frozen=True)
class Source:
    """The origin of a graph.

    Args:
      format: the file's format, such as "TOSA flatbuffer".
      version: the format's version.
      producer: the program that wrote the file, as far as the file names it.
      rewrites: the reader's replacements for things that TOSA 1.0 does not have.
      agreement: the differences between an exported graph and its function, by output, if both
        were run.

    Example:
      >>> import tosajax
      >>> tosajax.Builder().graph([]).source.format
      'tosajax'
    """

    format: str = "tosajax"
    version: str = ""
    producer: str = ""
    rewrites: tuple[Rewrite, ...] = ()
    agreement: tuple[Agreement, ...] = ()


@dataclasses.dataclass(frozen=True)
class Quantization:
    """The mapping from a tensor's integers to real numbers.

    real = scale * (integer - zero_point), per channel if there are several scales.

    Args:
      scale: positive finite numbers; one, or one for each channel.
      zero_point: integers, one or as many as scales; unsigned for tensors that operators read as
        unsigned.
      axes: the channel axes, ascending; scales run along them, the last axis fastest. () for one
        scale.
      bounds: the smallest and largest integer, if they differ from the type's limits.
      is_mask: whether real numbers below the range mean what its lower end means, as -10000 in a
        mask of attention does; they are not counted as clipped.

    Raises:
      ValueError: the arguments contradict each other or are out of range.

    Example:
      >>> import tosajax
      >>> tosajax.Quantization(scale=(0.5,), zero_point=(-128,))
      Quantization(scale 0.5, zero point -128)
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axes: tuple[int, ...] = ()
    bounds: tuple[int, int] | None = None
    is_mask: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", tuple(float(s) for s in np.ravel(self.scale)))
        zeros = self.zero_point if isinstance(self.zero_point, Sequence) else (self.zero_point,)
        object.__setattr__(self, "zero_point", tuple(operator.index(z) for z in zeros))
        object.__setattr__(self, "axes", tuple(int(a) for a in self.axes))
        if self.bounds is not None:
            low, high = (operator.index(end) for end in self.bounds)
            if low >= high:
                raise ValueError(f"bounds are {low} and {high}, expected the smaller one first")
            object.__setattr__(self, "bounds", (low, high))
        with np.errstate(over="ignore"):
            single = np.asarray(self.scale, np.float32)  # `quantize` divides in float32
        if not self.scale or not ((single > 0) & np.isfinite(single)).all():
            raise ValueError(
                f"scale is {_some(self.scale)}, expected positive finite numbers of float32"
            )
        if len(self.zero_point) not in (1, len(self.scale)):
            message = f"{len(self.zero_point)} zero points of {len(self.scale)} scales"
            raise ValueError(f"{message}, expected one or as many")
        if len(self.scale) > 1 and not self.axes:
            raise ValueError(f"{len(self.scale)} scales, expected the axes of their channels")
        if list(self.axes) != sorted({*self.axes}):
            raise ValueError(f"axes {self.axes}, expected ascending ones")

    @property
    def of_all(self) -> tuple[float, int] | None:
        """The scale and the zero point, if there is one of each, else None."""
        (scale, *more), (zero_point, *others) = self.scale, self.zero_point
        return None if more or others else (scale, zero_point)

    def fits(self, tensor: Tensor) -> bool:
        """Whether a tensor can have it: an integer type, with one scale or one for each channel."""
        if not tensor.dtype.is_integer:
            return False
        low, high = -(1 << (tensor.dtype.bits - 1)), (1 << tensor.dtype.bits) - 1
        if not all(low <= n <= high for n in (*self.zero_point, *(self.bounds or ()))):
            return False
        if tensor.shape is None:
            return not self.axes
        if not all(0 <= axis < len(tensor.shape) for axis in self.axes):
            return False
        dims = [tensor.shape[axis] for axis in self.axes]
        return len(self.scale) == 1 or DYNAMIC in dims or len(self.scale) == math.prod(dims)

    def __repr__(self) -> str:
        return f"Quantization({self})"

    def __str__(self) -> str:
        if pair := self.of_all:
            return f"scale {pair[0]:.9g}, zero point {pair[1]}"
        low, high = min(self.scale), max(self.scale)
        zeros = sorted({*self.zero_point})
        zero = f"zero point {zeros[0]}" if len(zeros) == 1 else f"zero points {_some(zeros)}"
        return f"{len(self.scale)} scales from {low:.9g} to {high:.9g}, {zero}"


@dataclasses.dataclass(frozen=True)
class Graph:
    """Operators and tensors, with the subgraphs that control flow refers to by name.

    Nodes may be in any order; `ordered_nodes` sorts them. Equality ignores `source`.

    `quantization` maps tensor names to the scales and zero points of their integers. No operator
    uses it: it is for real inputs, for results in real numbers, and for comparisons. Entries that
    fit no tensor of the graph are dropped, so that a graph derived from another keeps the valid
    ones. A transformation that changes the meaning of a tensor's integers has to change its entry.

    Example:
      >>> import tosajax
      >>> x, y = (tosajax.Tensor(name, tosajax.DType.INT8, (1, 4)) for name in "xy")
      >>> node = tosajax.Node("REVERSE", ("x",), ("y",), {"axis": 1})
      >>> tosajax.Graph(("x",), ("y",), {"x": x, "y": y}, (node,))
      Graph('main', (x: INT8[1,4]) -> (y: INT8[1,4]), 1 node)
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    subgraphs: Mapping[str, Graph] = dataclasses.field(default_factory=dict)
    name: str = "main"
    source: Source = dataclasses.field(default_factory=Source, compare=False)
    quantization: Mapping[str, Quantization] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "outputs", tuple(self.outputs))
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        object.__setattr__(self, "subgraphs", MappingProxyType(dict(self.subgraphs)))
        true = {
            name: quantization
            for name, quantization in self.quantization.items()
            if name in self.tensors and quantization.fits(self.tensors[name])
        }
        object.__setattr__(self, "quantization", MappingProxyType(true))

    def __hash__(self) -> int:
        return hash((self.inputs, self.outputs, self.nodes))

    def __reduce__(self) -> tuple[Any, ...]:
        tensors, subgraphs = dict(self.tensors), dict(self.subgraphs)
        fields = self.inputs, self.outputs, tensors, self.nodes, subgraphs, self.name, self.source
        return Graph, (*fields, dict(self.quantization))

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors[name] for name in self.inputs)

    @property
    def output_tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors[name] for name in self.outputs)

    @property
    def is_dynamic(self) -> bool:
        """Whether a tensor has an unknown dimension or rank, subgraphs included."""
        return any(
            tensor.shape is None or DYNAMIC in tensor.shape
            for graph in self.walk()
            for tensor in graph.tensors.values()
        )

    def ordered_nodes(self) -> tuple[Node, ...]:
        """The nodes in topological order: each after the nodes it reads from.

        Keeps the order of `nodes` if it is a topological one.

        Raises:
          TosaError: the nodes form a cycle.
        """
        return self._order

    @functools.cached_property
    def _order(self) -> tuple[Node, ...]:
        return self.nodes if _in_order(self.nodes) else _sorted(self.nodes)

    def quantized(self, *inputs: Any, clip: bool = False) -> tuple[np.ndarray, ...]:
        """Quantizes the inputs for a call that have an entry in `quantization`.

        Args:
          inputs: one array for each input of the graph; several examples lie along the first
            dimension, or along axes before the input's. Arrays that are not floats, and inputs
            without a scale, stay as they are.
          clip: see `graph.quantization.integers_of`.

        Raises:
          TypeError: the number of inputs is not the graph's.
          ValueError: a real number is NaN, or many are out of the range of a scale.

        Example:
          >>> import numpy as np
          >>> import tosajax
          >>> x = tosajax.Tensor("x", tosajax.DType.INT8, (2,))
          >>> scale = tosajax.Quantization((0.5,), (-1,))
          >>> graph = tosajax.Graph(("x",), ("x",), {"x": x}, (), quantization={"x": scale})
          >>> graph.quantized(np.float32([0.5, 3]))[0].tolist()
          [0, 5]
        """
        from tosajax.graph.quantization import integers_of
        from tosajax.graph.zero_points import unsigned_tensors

        unsigned = unsigned_tensors(self)
        if len(inputs) != len(self.inputs):
            names = ", ".join(self.inputs)
            raise TypeError(f"{len(inputs)} inputs, expected {len(self.inputs)} ({names})")

        def integers(tensor: Tensor, x: np.ndarray) -> np.ndarray:
            scale, is_unsigned = self.quantization.get(tensor.name), tensor.name in unsigned
            if scale is None or x.dtype.kind != "f":
                return x
            return integers_of(x, tensor, scale, unsigned=is_unsigned, clip=clip)

        pairs = zip(self.input_tensors, inputs, strict=True)
        return tuple(integers(t, np.asarray(x)) if t.dtype.block is None else x for t, x in pairs)

    def walk(self) -> Iterator[Graph]:
        """Yields this graph and all its subgraphs, nested ones included."""
        yield self
        for graph in self.subgraphs.values():
            yield from graph.walk()

    def __repr__(self) -> str:
        ends = ([(t.name, t) for t in ts] for ts in (self.input_tensors, self.output_tensors))
        nodes = html.counted(len(self.nodes), "node")
        return f"Graph({html.quoted(self.name)}, {html.signature(*ends)}, {nodes})"

    def _repr_html_(self) -> str:
        from tosajax.graph.summary import graph_box

        return graph_box(self)


def _in_order(nodes: Sequence[Node]) -> bool:
    """Whether each node is after the nodes it reads from."""
    ahead = Counter(name for node in nodes for name in node.outputs)
    for node in nodes:
        if any(ahead[name] for name in node.inputs):
            return False
        ahead.subtract(node.outputs)
    return True


def _sorted(nodes: Sequence[Node]) -> tuple[Node, ...]:
    producer = {name: node for node in nodes for name in node.outputs}
    done: set[int] = set()
    return tuple(node for root in nodes for node in _post_order(root, producer, done))


def _post_order(root: Node, producer: Mapping[str, Node], done: set[int]) -> Iterator[Node]:
    """Yields the nodes that `root` needs, and `root`, unless in `done`; without recursion."""
    active: set[int] = set()
    stack: list[tuple[Node, Iterator[str]]] = []

    def enter(node: Node) -> None:
        active.add(id(node))
        stack.append((node, iter(node.inputs)))

    if id(root) not in done:
        enter(root)
    while stack:
        node, pending = stack[-1]
        for name in pending:
            source = producer.get(name)
            if source is None or id(source) in done:
                continue
            if id(source) in active:
                message = f"tensor {name!r} depends on itself"
                raise TosaError(
                    Report((Finding(Verdict.ERROR, "graph.cycle", message, node.title),))
                )
            enter(source)
            break
        else:
            stack.pop()
            active.discard(id(node))
            done.add(id(node))
            yield node


def arguments(operator: spec.Operator, names: tuple[str, ...], kind: spec.Kind) -> dict[str, Any]:
    """Tensor names by an operator's input or output arguments.

    A tensor list takes all names that remain. Surplus names are dropped, and arguments without a
    name are missing: `validate` compares the counts.

    Example:
      >>> from tosajax import spec
      >>> from tosajax.graph import arguments
      >>> arguments(spec.OPERATORS["ADD"], ("x", "y"), spec.Kind.INPUT)
      {'input1': 'x', 'input2': 'y'}
    """
    wanted = operator.inputs if kind is spec.Kind.INPUT else operator.outputs
    paired: dict[str, Any] = {}
    rest = list(names)
    for argument in wanted:
        if argument.form is spec.Form.TENSOR_LIST:
            paired[argument.name] = tuple(rest)
            rest = []
        elif rest:
            paired[argument.name] = rest.pop(0)
    return paired


def declared_variables(graph: Graph) -> dict[str, tuple[Tensor, ...]]:
    """The tensors of all VARIABLE nodes of a graph and its subgraphs, by variable name.

    Example:
      >>> import tosajax
      >>> from tosajax.graph import declared_variables
      >>> b = tosajax.Builder()
      >>> b.variable("count", tosajax.DType.INT32, (2,))
      >>> list(declared_variables(b.graph([b.read("count", tosajax.DType.INT32, (2,))])))
      ['count']
    """
    declared: dict[str, tuple[Tensor, ...]] = {}
    for part in graph.walk():
        for node in part.nodes:
            if node.op == "VARIABLE":
                name = node.attributes.get("name", "")
                tensors = (part.tensors[n] for n in node.outputs if n in part.tensors)
                declared[name] = (*declared.get(name, ()), *tensors)
    return declared


def _some(numbers: Sequence[Any]) -> str:
    """The first three numbers, for messages."""
    more = ", ..." if len(numbers) > 3 else ""
    return ", ".join(map(str, numbers[:3])) + more


def _brief(value: Any) -> str:
    """An attribute as text for a repr; of bytes only the count, as there may be megabytes."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else html.shortened(repr(value), 40)


def same_values(one: Tensor, other: Tensor) -> bool:
    """Whether the values of two tensors of one type have the same shape and bits."""
    if one.values is None or other.values is None:
        return one.values is other.values
    pairs = zip(one.dtype.arrays(one.values), other.dtype.arrays(other.values), strict=True)
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def _frozen(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _same_attributes(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_same_value(a[k], b[k]) for k in a)


def _same_value(a: Any, b: Any) -> bool:
    if isinstance(a, np.generic) or isinstance(b, np.generic):
        a, b = np.asarray(a), np.asarray(b)
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return a == b
