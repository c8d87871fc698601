"""Elementwise operators and reductions of rows, several of which one kernel computes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions.pattern import (
    BOUNDS,
    MOST_IMAGES,
    RESHAPE,
    VALUES,
    Prepare,
    Reader,
    inputs_of,
    layout_of,
    rounds_twice,
    values_of,
)
from tosajax.native.codegen.requantize import UPPER_SHIFT
from tosajax.native.codegen.steps import (
    CHANNEL,
    ELEMENT,
    FLOAT,
    GATE,
    IMAGES,
    OF_FLOATS,
    OF_INTEGERS,
    REDUCTIONS,
    RESIZE,
    RESIZED,
    ROW,
    SCALAR,
    TABLE,
    Rescale,
    Step,
)
from tosajax.ops.image import samples_of
from tosajax.spec import NanMode, ResizeMode

if TYPE_CHECKING:
    from tosajax.native.calls.schedule import KernelCall
    from tosajax.native.codegen.isa import InstructionSet

_TYPES = {
    DType.BOOL: "i1",
    DType.INT8: "i8",
    DType.INT16: "i16",
    DType.INT32: "i32",
    DType.FP32: FLOAT,
}
_OTHERS = "RESCALE", "TABLE", "CAST", "ARITHMETIC_RIGHT_SHIFT"
_MOVES = RESHAPE, RESIZE  # whose other operands are not operands of steps
_OPERATORS = {*OF_FLOATS, *OF_INTEGERS, *REDUCTIONS, *_OTHERS, *_MOVES}
_MOST_STEPS = 64
LEAST_ROW = 16  # elements of a row that are worth vectors of their own
LEAST_WORK = 2**12  # elements times steps that are worth a call


class Elementwise(NamedTuple):
    """Elementwise operators and reductions of the last dimension; only the last is read elsewhere.

    Args:
      steps: the operators, in order; the last names the step.
    """

    steps: tuple[Node, ...]

    @property
    def main(self) -> Node:
        return self.steps[-1]

    def images(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The inputs that have a dimension of images."""
        return [name for name, kind in self.operands(tensors) if kind in IMAGES]

    def shape(self, tensors: Mapping[str, Tensor]) -> tuple[int, ...]:
        """The shape of elements."""
        reductions = (node for node in self.steps if node.op in REDUCTIONS)
        names = [*(n.outputs[0] for n in self.steps), *(n.inputs[0] for n in reductions)]
        return max((tensors[name].shape or () for name in names), key=math.prod)

    def operands(self, tensors: Mapping[str, Tensor]) -> list[tuple[str, str]]:
        """The tensors that are not computed inside, and their kinds."""
        shape, inside = self.shape(tensors), {node.outputs[0] for node in self.steps}
        read = (
            (name, _kind(node, tensors[name], shape))
            for node in self.steps
            for name in values_of(node)
            if name not in inside
        )
        return list(dict.fromkeys(read))

    def kernel(self, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
        """The kernel for an instruction set."""
        from tosajax.native import elementwise

        pairs, shape = self.operands(tensors), self.shape(tensors)
        resized = {node.inputs[0]: node for node in self.steps if node.op == RESIZE}

        def prepare(reader: Reader) -> KernelCall:
            operands = [_operand(reader, *pair, resized.get(pair[0])) for pair in pairs]
            reads = {pair: number for number, pair in enumerate(pairs)}
            own: list[list[int]] = []
            for node in self.steps:
                more = list(_parameters(reader, node))
                own.append([len(operands) + number for number in range(len(more))])
                operands += more
            steps, inside = list[Step](), dict[str, int]()
            for node, numbers in zip(self.steps, own, strict=True):
                (output,) = node.outputs
                kinds = ((n, _kind(node, tensors[n], shape)) for n in values_of(node))
                values = (inside.get(pair[0], reads.get(pair)) for pair in kinds)
                read = *(number for number in values if number is not None), *numbers
                if node.op == RESHAPE:
                    (inside[output],) = read
                    continue
                steps.append(_step(node, read, tensors, shape))
                inside[output] = len(operands) + len(steps) - 1
            return elementwise.compute(isa, shape, operands, steps)

        return prepare


def find_elementwise(
    nodes: Sequence[Node],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
    several: Mapping[str, Sequence[Node]],
    taken: AbstractSet[int],
) -> list[Elementwise]:
    """Finds what one pass over memory computes; see `find_fusions`.

    Args:
      nodes: the graph's nodes, in order.
      tensors: the graph's tensors, by name.
      readers: the only reader of each tensor that has one.
      several: the readers of each tensor that has more.
      taken: the nodes of other fusions, by identity.
    """
    finder = _Finder(nodes, tensors, {**several, **{n: [r] for n, r in readers.items()}}, {*taken})
    return list(finder.find())[::-1]


class _Finder:
    """Finds fusions of elementwise operators; see `find_elementwise`."""

    def __init__(
        self,
        nodes: Sequence[Node],
        tensors: Mapping[str, Tensor],
        readers: Mapping[str, Sequence[Node]],
        taken: set[int],
    ) -> None:
        self.nodes, self.tensors, self.readers, self.taken = nodes, tensors, readers, taken
        self.makers = {name: place for place, node in enumerate(nodes) for name in node.outputs}

    def find(self) -> Iterator[Elementwise]:
        """Yields fusions, the last one first."""
        for place in reversed(range(len(self.nodes))):
            node = self.nodes[place]
            if id(node) in self.taken or node.op not in _OPERATORS - {RESHAPE}:
                continue
            name = node.inputs[0] if node.op in REDUCTIONS else node.outputs[0]
            shape = self.tensors[name].shape
            if not shape or len(shape) < 2 or not self._is_step(node, shape):
                continue
            found = self._from(place, shape)
            if found is not None:
                self.taken |= {id(step) for step in found.steps}
                yield found

    def _from(self, place: int, shape: tuple[int, ...]) -> Elementwise | None:
        """The fusion that ends with a node; None if it is not worth a call."""
        inside, waiting, images = set[int](), [-place], set[str]()
        while waiting and len(inside) < _MOST_STEPS:
            number = -heapq.heappop(waiting)
            if number in inside:
                continue
            node = self.nodes[number]
            read = {n for n in values_of(node) if self._kind(node, n, shape) in IMAGES}
            # The result was an input until now.
            others = (images | read) - {node.outputs[0]}
            samples = node.op == RESIZE and any(self.nodes[n].op == RESIZE for n in inside)
            if len(others) > MOST_IMAGES or samples:
                continue
            images, inside = others, inside | {number}
            for name in read:
                maker = self.makers.get(name)
                if maker is not None and self._joins(maker, inside, shape):
                    heapq.heappush(waiting, -maker)
        steps = tuple(self.nodes[number] for number in sorted(inside))
        found = Elementwise(steps)
        return found if self._is_worth(found, shape) else None

    def _joins(self, place: int, inside: set[int], shape: tuple[int, ...]) -> bool:
        """Whether a node can be computed with those inside, which alone read its result."""
        node = self.nodes[place]
        if id(node) in self.taken or not self._is_step(node, shape):
            return False
        names = {id(self.nodes[number]) for number in inside}
        readers = self.readers.get(node.outputs[0], [node])
        # RESIZE reads other pixels than those that are computed with its own.
        return all(id(reader) in names and reader.op != RESIZE for reader in readers)

    def _is_worth(self, found: Elementwise, shape: tuple[int, ...]) -> bool:
        """Whether a kernel computes a fusion well."""
        kinds = {kind for _, kind in found.operands(self.tensors)}
        reduces = any(n.op in REDUCTIONS or _is_per_channel(n) for n in found.steps)
        if not kinds & {ELEMENT, RESIZED}:
            return False
        if (reduces or kinds & {ROW, CHANNEL, GATE, RESIZED}) and shape[-1] < LEAST_ROW:
            return False
        work = sum(node.op != RESHAPE for node in found.steps)
        return math.prod(shape) * work >= LEAST_WORK

    def _kind(self, node: Node, name: str, shape: tuple[int, ...]) -> str:
        return _kind(node, self.tensors[name], shape)

    def _is_step(self, node: Node, shape: tuple[int, ...]) -> bool:
        """Whether a kernel computes a node for elements of a shape."""
        if not _has_step(node, self.tensors):
            return False
        if not all(self._kind(node, name, shape) for name in values_of(node)):
            return False
        result = self.tensors[node.outputs[0]].shape
        if node.op in REDUCTIONS:
            source = self.tensors[node.inputs[0]].shape or ()
            is_last = node.attributes["axis"] == len(source) - 1
            return is_last and _extent(source, shape) == ELEMENT and shape[-1] > 1
        if node.op == RESIZE:
            return result == shape
        if node.op == RESHAPE:
            source = self.tensors[node.inputs[0]].shape
            return layout_of(source or ()) == layout_of(result or ())
        return result is not None and _extent(result, shape) != ""


def _has_step(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a kernel has instructions for the operator and types of a node."""
    if node.op not in _OPERATORS:
        return False
    if node.attributes.get("nan_mode", NanMode.PROPAGATE) != NanMode.PROPAGATE:
        return False
    names = [*values_of(node), *node.outputs]
    if any(tensors[name].dtype not in _TYPES for name in names):
        return False
    source = _TYPES[tensors[names[0]].dtype]
    if node.op == RESIZE:
        return all(tensors[name].values is not None for name in node.inputs[1:])
    if node.op in REDUCTIONS or node.op in _OTHERS or node.op == RESHAPE:
        return True
    return node.op in (OF_FLOATS if source == FLOAT else OF_INTEGERS)


def _extent(shape: tuple[int, ...], of: tuple[int, ...]) -> str:
    """Whether a tensor has a value for each element, or for each row; "" if neither."""
    own, all_ = layout_of(shape), layout_of(of)
    if own == all_:
        return ELEMENT
    return ROW if own == (*all_[:-1], 1) else ""


def _kind(node: Node, tensor: Tensor, shape: tuple[int, ...]) -> str:
    """The kind of an operand of a node for elements of a shape; "" if a kernel cannot read it."""
    if tensor.values is None:
        own = tensor.shape or ()
        if node.op == RESIZE:
            return RESIZED
        is_gate = layout_of(own) == (shape[0], 1, shape[-1])
        return _extent(own, shape) or (GATE if is_gate else "")
    if tensor.values.size == 1:
        return SCALAR
    return CHANNEL if tensor.values.size == tensor.values.shape[-1] == shape[-1] else ""


def _is_per_channel(node: Node) -> bool:
    return bool(node.attributes.get("per_channel"))


def _operand(reader: Reader, name: str, kind: str, resize: Node | None) -> Any:
    """A tensor that steps read, while the program is traced; `resize`: the RESIZE that reads it."""
    from tosajax.native.elementwise import Operand

    read = reader.tensor if kind in IMAGES else reader.value
    element = _TYPES[reader.tensors[name].dtype]
    grid = None if resize is None or kind != RESIZED else _grid(resize, reader.tensors, element)
    return Operand(kind, read(name), element, grid=grid)


def _grid(node: Node, tensors: Mapping[str, Tensor], element: str) -> np.ndarray:
    """Where the pixels of a RESIZE are."""
    from tosajax.native.elementwise import grid_of

    names = inputs_of(node)
    shape = tensors[names["input"]].shape
    scale, offset, border = (
        _numbers(tensors[names[name]]) for name in ("scale", "offset", "border")
    )
    assert shape
    rows = samples_of(shape[1], scale[0], scale[1], offset[0], border[0])
    columns = samples_of(shape[2], scale[2], scale[3], offset[1], border[1])
    return grid_of(rows, columns, shape, is_bilinear=_is_bilinear(node), element=element)


def _numbers(tensor: Tensor) -> list[int]:
    assert tensor.values is not None
    return tensor.values.tolist()


def _is_bilinear(node: Node) -> bool:
    return node.attributes["mode"] == ResizeMode.BILINEAR


def _parameters(reader: Reader, node: Node) -> Iterator[Any]:
    """The operands of a node that are no tensors of elements: scales, zero points, bounds."""
    from tosajax.native.elementwise import Operand

    source = _TYPES[reader.tensors[values_of(node)[0]].dtype]
    if node.op == "CLAMP":
        for name in BOUNDS:
            yield Operand(SCALAR, np.asarray(reader.attribute(node, name)), source)
    for argument, name in inputs_of(node).items() if node.op not in _MOVES else ():
        if argument == "table":
            yield Operand(TABLE, reader.value(name), "i32", source)
        elif argument not in VALUES and _needs(node, argument, reader.tensors):
            value = reader.value(name)
            yield Operand(SCALAR if value.size == 1 else CHANNEL, value, "i32")


def _needs(node: Node, argument: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a step reads a parameter: not those that only have one value."""
    source = tensors[values_of(node)[0]].dtype
    if node.op == "NEGATE":
        return source is not DType.FP32
    return node.op != "MUL" or (argument == "shift" and _shifts(node, tensors))


def _shifts(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether MUL may shift its products."""
    names = inputs_of(node)
    shift = tensors[names["shift"]].values
    return tensors[names["input1"]].dtype is DType.INT32 and (shift is None or bool(shift.any()))


def _step(
    node: Node, read: tuple[int, ...], tensors: Mapping[str, Tensor], shape: tuple[int, ...]
) -> Step:
    """A node as a step."""
    source, result = tensors[values_of(node)[0]], tensors[node.outputs[0]]
    is_row = _extent(result.shape or (), shape) == ROW
    mode = _mode(node, tensors)
    return Step(node.op, read, _TYPES[source.dtype], _TYPES[result.dtype], mode, is_row)


def _mode(node: Node, tensors: Mapping[str, Tensor]) -> tuple[bool, ...]:
    """The mode of a step; see `codegen.steps`."""
    match node.op:
        case "ARITHMETIC_RIGHT_SHIFT":
            return (node.attributes["round"],)
        case "MUL":
            return (_shifts(node, tensors),)
        case "RESIZE":
            return (_is_bilinear(node),)
        case "RESCALE":
            names = inputs_of(node)
            multiplier, shift = (tensors[names[name]].values for name in ("multiplier", "shift"))
            upper = shift is not None and bool((shift >= UPPER_SHIFT).all())
            twice = node.attributes["scale32"] and rounds_twice(node)
            before, behind = (node.attributes[f"{side}_unsigned"] for side in ("input", "output"))
            return tuple(Rescale(twice, before, behind, _is_multiple(multiplier, shift), upper))
        case _:
            return ()


def _is_multiple(multiplier: np.ndarray | None, shift: np.ndarray | None) -> bool:
    """Whether constant scales are integers."""
    if multiplier is None or shift is None:
        return False
    units = np.int64(1) << shift.astype(np.int64)
    return not (multiplier.astype(np.int64) % units).any()
