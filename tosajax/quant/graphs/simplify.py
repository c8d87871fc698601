"""simplify: makes a float graph ready for quantization: the same function in fewer nodes.

All floats become FP32, constant results become CONST, scales and offsets of channels go into the
convolution before them, and nodes that change nothing are dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.edit import unused
from tosajax.lowering.build import build
from tosajax.passes.folding import fold
from tosajax.quant.graphs.blocks import (
    all_nodes,
    all_tensors,
    in_parts,
    separated,
    with_constants_inside,
)
from tosajax.quant.graphs.canonical import with_canonical_operators
from tosajax.quant.graphs.channels import NEUTRAL, by_channel, is_convolution, is_unshifted
from tosajax.quant.graphs.early_clamps import with_early_clamps
from tosajax.quant.graphs.early_scales import Part, with_early_scales
from tosajax.quant.graphs.fake_quants import FakeQuant, source_of, without_fake_quants
from tosajax.quant.ranges.channels import along
from tosajax.quant.ranges.masks import with_selects
from tosajax.report import UnsupportedError
from tosajax.spec import AccType, Form
from tosajax.validation import validate

_T = TypeVar("_T")


def simplify(graph: Graph) -> Graph:
    """The same function in fewer operators, with no float type but FP32.

    - FP8, FP16 and BF16 tensors become FP32, and so do constants, bounds of CLAMP and accumulators.
      Activations are no longer rounded to the narrow type, nor do they overflow it.
    - Results of constants alone are computed; tensors that nothing reads are dropped.
    - ADD, SUB and MUL by constants that vary along the channels at most go into the weights and
      the bias of the convolution before them, where nothing else reads the tensors between; also
      through RESHAPE and CONCAT, see `with_early_scales`.
    - MAXIMUM and MINIMUM with one number become CLAMP, POW by 2 becomes MUL, and PReLU one MUL.
    - Operators that change nothing are dropped, and a RESHAPE of a RESHAPE becomes one.
    - A CLAMP goes before the operators that pass its elements on, and one of a CLAMP becomes one,
      see `with_early_clamps`.
    - Fake quantization goes, see `without_fake_quants`.
    - A mask that is added (0 or -1e10, say) becomes a SELECT, see `with_selects`.
    - Loops and branches have graphs of their own, with their constants in them; a tensor x of a
      graph "body" is "body/x".

    Args:
      graph: legal, every dimension known. Integer tensors stay as they are.

    Returns:
      A legal graph; its inputs and outputs have the same names, order and shapes. Tensors keep
      their values, but for constant weights and biases of convolutions that scales and offsets
      have gone into; these keep their names where no other node reads them.

    Raises:
      TosaError: the graph is illegal.
      UnsupportedError: it has open dimensions, variables, custom operators or Fourier transforms.
    """
    return simplified(graph).graph


class Link(NamedTuple):
    """A node that has gone into a convolution: scale * x + offset of each channel, float64.

    Args:
      op: name of the operator.
      constant: its constant operand, or the one that this is a part of.
      sign: the sign of the constant in the offset; 0 of MUL.
      scale: the scale of each channel, or one.
      offset: the offset of each channel, or one.
      channels: the elements of the constant that it has.
    """

    op: str
    constant: str
    sign: int
    scale: np.ndarray
    offset: np.ndarray
    channels: slice = slice(None)

    def with_whole(self, parts: Mapping[str, Part]) -> Link:
        """The link, with the constant that its own is a part of."""
        if self.constant not in parts:
            return self
        constant, channels = parts[self.constant]
        return self._replace(constant=constant, channels=channels)


class Folded(NamedTuple):
    """A convolution that nodes have gone into.

    Args:
      output: the name of its output, after folding.
      weight: its constant.
      bias: its constant.
      before: the weight and the bias without the nodes.
      axes: the axes of the channels of the weight.
      links: the nodes, in order.
    """

    output: str
    weight: str
    bias: str
    before: tuple[str, str]
    axes: tuple[int, ...]
    links: tuple[Link, ...]

    @property
    def is_scaled(self) -> bool:
        """Whether a MUL is among the nodes."""
        return any(link.op == "MUL" for link in self.links)


class Simple(NamedTuple):
    """A graph from `simplify`, and what has gone into its tensors.

    Args:
      graph: the graph.
      folded: the convolutions that nodes have gone into.
      fake_quants: how the graph rounded tensors to the real values of integers, by name.
    """

    graph: Graph
    folded: tuple[Folded, ...]
    fake_quants: Mapping[str, FakeQuant] = MappingProxyType({})


def simplified(graph: Graph) -> Simple:
    """The graph of `simplify`, and what has gone into its tensors."""
    graph = with_constants_inside(_validated(graph))
    graph = fold(in_parts(graph, _in_float32))
    # Before convolutions count their readers, nodes that nothing reads must go.
    graph = in_parts(graph, lambda part: with_selects(_with_constants_computed(part)))
    graph = in_parts(graph, with_canonical_operators)
    graph = fold(in_parts(graph, _without_identities))
    graph, rounded = _with_facts(graph, without_fake_quants)
    graph = fold(in_parts(graph, _without_identities))
    graph, parts = _with_facts(graph, with_early_scales)
    folded, names = list[Folded](), dict[str, str]()

    def without_batch_norms(part: Graph) -> Graph:
        part, convolutions = _without_batch_norms(part)
        part, renamed = _renamed(part)
        for each in convolutions:
            links = tuple(link.with_whole(parts) for link in each.links)
            folded.append(each._replace(links=links))
        names.update(renamed)
        return part

    graph = fold(in_parts(graph, without_batch_norms))
    graph = fold(in_parts(graph, lambda part: _without_identities(with_early_clamps(part))))
    graph = in_parts(graph, _without_unused_tensors)
    renamed = tuple(f._replace(output=names.get(f.output, f.output)) for f in folded)
    own_names = {names.get(name, name): each for name, each in rounded.items()}
    return Simple(graph, renamed, _of_sources(graph, own_names))


def _with_facts(
    graph: Graph, change: Callable[[Graph], tuple[Graph, Mapping[str, _T]]]
) -> tuple[Graph, dict[str, _T]]:
    """The graph after a change of each part, and what the changes tell of tensors, by name."""
    facts = dict[str, _T]()

    def changed(part: Graph) -> Graph:
        part, own = change(part)
        facts.update(own)
        return part

    return fold(in_parts(graph, changed)), facts


def _of_sources(graph: Graph, rounded: Mapping[str, FakeQuant]) -> dict[str, FakeQuant]:
    """By the tensors that have the scales: what is only moved has that of its source.

    A CLAMP may be the end of a function, which has the scale then, or of an accumulator.
    """
    return {
        each: rounded[name]
        for part in graph.walk()
        for name in part.tensors
        if name in rounded
        for each in (source_of(part, name), name)
    }


def _validated(graph: Graph) -> Graph:
    """The graph without graphs that no node names, and with different names in all others."""
    if graph.is_dynamic:
        raise UnsupportedError(
            f"graph {graph.name!r} has open dimensions: bind them first, with tosajax.bind"
        )
    validate(graph).raise_errors()
    graph = separated(graph)
    for node in all_nodes(graph):
        operator = spec.OPERATORS[node.op]
        if operator.chapter in ("custom", "fft", "variable"):  # fft: of complex numbers
            problem = f"operators of {operator.chapter} cannot be quantized"
            raise UnsupportedError(f"{node.title}: {problem}")
    return graph


# One float type.


def _in_float32(graph: Graph) -> Graph:
    tensors = {name: _wide_tensor(tensor) for name, tensor in graph.tensors.items()}
    nodes = [_wide_node(node, graph.tensors) for node in graph.nodes]
    return dataclasses.replace(graph, tensors=tensors, nodes=nodes)


def _wide_tensor(tensor: Tensor) -> Tensor:
    return dataclasses.replace(tensor, dtype=DType.FP32) if tensor.dtype.is_float else tensor


def _wide_node(node: Node, tensors: Mapping[str, Tensor]) -> Node:
    dtypes = [tensors[name].dtype for name in (*node.inputs, *node.outputs)]
    if node.op == "CAST" and all(dtype.is_float for dtype in dtypes):
        return dataclasses.replace(node, op="IDENTITY")
    attributes = dict(node.attributes)
    for argument in spec.OPERATORS[node.op].attributes:
        if argument.name in attributes and argument.form is not Form.GRAPH:
            value = attributes[argument.name]
            attributes[argument.name] = _wide_attribute(argument.dtype, value, dtypes[0])
    return dataclasses.replace(node, attributes=attributes)


def _wide_attribute(kind: object, value: object, dtype: DType) -> object:
    """An attribute; `kind` is its type in the table, a name where it is the type of elements."""
    if kind is AccType:
        return DType.FP32 if dtype.is_float else value
    if isinstance(kind, str) and dtype.is_float:
        return np.float32(np.asarray(value).astype(dtype.storage))
    return value


# Constants.


def _with_constants_computed(graph: Graph) -> Graph:
    """Computes the results of constants alone, floats included."""
    stored, computed, nodes = [], [], []
    constants: set[str] = set()
    for node in graph.ordered_nodes():
        if node.op in spec.CONSTANT_OPERATORS:
            stored.append(node)
        elif constants.issuperset(node.inputs) and spec.OPERATORS[node.op].is_function:
            computed.append(node)
        else:
            nodes.append(node)
            continue
        constants.update(node.outputs)
    names = [name for node in computed for name in node.outputs]
    program, params = build(Graph((), tuple(names), graph.tensors, (*stored, *computed)))
    _, _, outputs = program(params, {})
    tensors = dict(graph.tensors)
    for name, values in zip(names, outputs, strict=True):
        tensors[name] = dataclasses.replace(tensors[name], values=np.asarray(values))
    new_constants = [Node("CONST", (), (name,)) for name in names]
    return dataclasses.replace(graph, tensors=tensors, nodes=(*stored, *new_constants, *nodes))


def _without_unused_tensors(graph: Graph) -> Graph:
    used = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        used.update(node.inputs, node.outputs)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in used}
    return dataclasses.replace(graph, tensors=tensors)


# Operators that change nothing.


def _without_identities(graph: Graph) -> Graph:
    """Has nodes read the earliest of equal tensors, so that IDENTITY is left for outputs only."""
    equal: dict[str, str] = {}
    reshapes: dict[str, Node] = {}
    nodes = []
    for node in graph.ordered_nodes():
        inputs = tuple(equal.get(name, name) for name in node.inputs)
        node = _merged_reshape(dataclasses.replace(node, inputs=inputs), reshapes)
        source = _equal_input(node, graph.tensors)
        if source is not None:
            equal[node.outputs[0]] = source
            node = Node("IDENTITY", (source,), node.outputs, location=node.location)
        nodes.append(node)
    return dataclasses.replace(graph, nodes=nodes)


def _merged_reshape(node: Node, reshapes: dict[str, Node]) -> Node:
    """A RESHAPE of a RESHAPE as one; every RESHAPE is added to `reshapes`."""
    if node.op != "RESHAPE":
        return node
    before = reshapes.get(node.inputs[0])
    if before is not None:
        node = dataclasses.replace(node, inputs=(before.inputs[0], node.inputs[1]))
    reshapes[node.outputs[0]] = node
    return node


def _equal_input(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    """The input that equals the output of a node; None where there is none."""
    if _keeps_order(node, tensors):
        name = node.inputs[0]
        return name if _has_type_of(node, name, tensors) else None
    if node.op in NEUTRAL and is_unshifted(node, tensors):
        first, second = node.inputs[:2]
        pairs = [(first, second)] if node.op == "SUB" else [(first, second), (second, first)]
        for name, other in pairs:
            values = tensors[other].values
            neutral = values is not None and np.all(values == NEUTRAL[node.op])
            if neutral and _has_type_of(node, name, tensors):
                return name
    return None


def neutral_constants(graph: Graph) -> set[str]:
    """The zeros and ones that nodes read which are dropped, as they change nothing.

    Args:
      graph: the graph, from `separated`.
    """
    tensors, neutral = all_tensors(graph), set[str]()
    for node in all_nodes(graph):
        if node.op in NEUTRAL and (source := _equal_input(node, tensors)) is not None:
            neutral.update(name for name in node.inputs if name != source)
    return neutral


def _has_type_of(node: Node, name: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the output of a node has the element type and shape of a tensor."""
    output, tensor = tensors[node.outputs[0]], tensors[name]
    return (output.dtype, output.shape) == (tensor.dtype, tensor.shape)


def _keeps_order(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the elements of the first input stay in their order."""
    if node.op != "TRANSPOSE":
        return spec.OPERATORS[node.op].keeps_order
    shape = _shape(tensors[node.inputs[0]])
    long = [axis for axis in node.attributes["perms"] if shape[axis] > 1]
    return long == sorted(long)


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tensor.shape or ()


def _renamed(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Gives the source of an IDENTITY the name of the copy, unless users know its own.

    Returns:
      The graph, and the new names by the old ones.
    """
    names: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        source = node.inputs[0] if node.op == "IDENTITY" else None
        if source is None or source in {*graph.inputs, *graph.outputs, *names}:
            nodes.append(node)
        else:
            names[source] = node.outputs[0]
    return dataclasses.replace(graph, nodes=[_with_names(node, names) for node in nodes]), names


def _with_names(node: Node, names: Mapping[str, str]) -> Node:
    inputs = [names.get(name, name) for name in node.inputs]
    outputs = [names.get(name, name) for name in node.outputs]
    return dataclasses.replace(node, inputs=inputs, outputs=outputs)


# Batch norms, and other nodes that scale and move the channels of a convolution.


# The nodes that read a tensor, once for each time; None stands for the caller.
_Readers = Mapping[str, Sequence[Node | None]]


def _without_batch_norms(graph: Graph) -> tuple[Graph, list[Folded]]:
    """The graph, and the convolutions that nodes have gone into."""
    tensors = dict(graph.tensors)
    readers = _readers(graph)
    gone: set[str] = set()  # outputs of nodes that have gone into a convolution
    folded: list[Folded] = []
    nodes = []
    for node in graph.ordered_nodes():
        chain = _chain(node, tensors, readers) if is_convolution(node, tensors) else []
        replacement = _with_chain(node, chain, tensors, readers) if chain else None
        if replacement is not None:
            gone.update(reader.outputs[0] for reader, _ in chain)
            folded.append(_folded(node, replacement[-1], [link for _, link in chain]))
        if gone.isdisjoint(node.outputs):
            nodes += replacement or [node]
    return dataclasses.replace(graph, tensors=tensors, nodes=nodes), folded


def _folded(before: Node, after: Node, links: Sequence[Link]) -> Folded:
    (output,), (weight, bias) = after.outputs, after.inputs[1:3]
    axes = spec.OPERATORS[after.op].channel_axes.outputs
    return Folded(output, weight, bias, (before.inputs[1], before.inputs[2]), axes, tuple(links))


def _readers(graph: Graph) -> _Readers:
    readers: dict[str, list[Node | None]] = {name: [] for name in graph.tensors}
    for node in graph.nodes:
        for name in node.inputs:
            readers[name].append(node)
    for name in graph.outputs:
        readers[name].append(None)
    return readers


def _chain(node: Node, tensors: Mapping[str, Tensor], readers: _Readers) -> list[tuple[Node, Link]]:
    """The nodes that follow a node in a row and only scale and move its channels."""
    chain: list[tuple[Node, Link]] = []
    (output,) = node.outputs
    while len(readers[output]) == 1:
        (reader,) = readers[output]
        link = None if reader is None else _link(reader, output, tensors)
        if reader is None or link is None:
            break
        chain.append((reader, link))
        (output,) = reader.outputs
    return chain


def _link(node: Node, x: str, tensors: Mapping[str, Tensor]) -> Link | None:
    """An ADD, SUB or MUL by a constant, as scales and offsets of the channels of x; else None."""
    if node.op not in NEUTRAL or not is_unshifted(node, tensors):
        return None
    first, second = node.inputs[:2]
    name = second if first == x else first
    constant = by_channel(tensors[name])
    if constant is None or not _has_type_of(node, x, tensors):
        return None
    ones, zero = np.ones(1), np.zeros(1)
    if node.op == "MUL":
        return Link(node.op, name, 0, constant, zero)
    if node.op == "ADD":
        return Link(node.op, name, 1, ones, constant)
    if first == x:
        return Link(node.op, name, -1, ones, -constant)
    return Link(node.op, name, 1, -ones, constant)


def _with_chain(
    node: Node,
    chain: Sequence[tuple[Node, Link]],
    tensors: dict[str, Tensor],
    readers: _Readers,
) -> list[Node] | None:
    """A convolution that computes all of a chain, after its constants; None if these overflow.

    Adds the constants to `tensors`.
    """
    x, weight, bias, *zero_points = node.inputs
    (output,) = chain[-1][0].outputs
    channels = _shape(tensors[output])[-1]
    scale, offset = np.ones(channels), np.zeros(channels)
    for _, step in chain:
        scale, offset = step.scale * scale, step.scale * offset + step.offset
    with np.errstate(over="ignore"):
        axes = spec.OPERATORS[node.op].channel_axes.outputs
        weights = _float64(tensors[weight]) * scale.reshape(along(axes, _shape(tensors[weight])))
        biases = _float64(tensors[bias]) * scale + offset
        folded = {weight: weights.astype(np.float32), bias: biases.astype(np.float32)}
    if not all(np.isfinite(values).all() for values in folded.values()):
        return None
    names = []
    for name, values in folded.items():
        # Another reader needs the original constant.
        taken = len(readers[name]) > 1
        names.append(unused(f"{name}_{output}", tensors) if taken else name)
        tensors[names[-1]] = Tensor(names[-1], DType.FP32, values.shape, values)
    constants = [Node("CONST", (), (name,)) for name in names if name not in folded]
    inputs = (x, *names, *zero_points)
    return [*constants, dataclasses.replace(node, inputs=inputs, outputs=(output,))]


def _float64(tensor: Tensor) -> np.ndarray:
    return np.asarray(tensor.values, np.float64)
