"""ADD and SUB of rescaled int8, rescaled to int8; a fused convolution may compute one operand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions.pattern import (
    Prepare,
    Reader,
    clamp_of,
    inputs_of,
    is_rescale,
    nodes_of,
    reader_of,
    rounds_twice,
)
from tosajax.lowering.fusions.products import Product, window_of

if TYPE_CHECKING:
    from tosajax.native.calls.schedule import KernelCall
    from tosajax.native.codegen.isa import InstructionSet
    from tosajax.native.operands import Scaling

# The fewest elements of an example that are worth a call.
_FEWEST = 256


class Addition(NamedTuple):
    """An addition and its RESCALEs; no other node reads the tensors between them.

    Args:
      left: the left operand's RESCALE of int8 to int32.
      left_next: a second RESCALE of the left operand, int32 to int32, if there is one.
      right: the right operand's RESCALE of int8 to int32.
      right_next: a second RESCALE of the right operand, int32 to int32, if there is one.
      main: the ADD or SUB, which names the step.
      rescale: the RESCALE of the sum to int8.
      clamp: the CLAMP of the rescaled sum, if there is one.
    """

    left: Node
    left_next: Node | None
    right: Node
    right_next: Node | None
    main: Node
    rescale: Node
    clamp: Node | None = None

    def kernel(self, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
        """The kernel for an instruction set."""
        from tosajax.native import call

        del tensors

        def prepare(reader: Reader) -> KernelCall:
            left, right = (reader.tensor(node.inputs[0]) for node in (self.left, self.right))
            epilogue = reader.epilogue(self.rescale, self.clamp)
            return call.add(isa, self.main.op, (left, right), self.scales(reader), epilogue)

        return prepare

    def scales(self, reader: Reader) -> tuple[Scaling, Scaling]:
        """The scales of the left and of the right operand."""
        return (
            _scaling(reader, self.left, self.left_next),
            _scaling(reader, self.right, self.right_next),
        )


class ProductAddition(NamedTuple):
    """A CONV2D whose output is an operand of an addition.

    Args:
      product: the CONV2D, and the RESCALE of its sums to int8.
      addition: the addition of its output and another tensor.
    """

    product: Product
    addition: Addition

    @property
    def main(self) -> Node:
        """The CONV2D, which names the step."""
        return self.product.main

    @property
    def is_right(self) -> bool:
        """Whether the convolution is the right operand."""
        return self.addition.right.inputs[0] == nodes_of(self.product)[-1].outputs[0]

    def kernel(self, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
        """The kernel for an instruction set."""
        from tosajax.native import call
        from tosajax.native.operands import Adding

        product, addition, window = self.product, self.addition, window_of(self.main, tensors)
        term = addition.left if self.is_right else addition.right

        def prepare(reader: Reader) -> KernelCall:
            other = reader.tensor(term.inputs[0])
            epilogue = reader.epilogue(addition.rescale, addition.clamp)
            scales = addition.scales(reader)
            adding = Adding(addition.main.op, other, self.is_right, scales, epilogue)
            operands = product.operands(reader)
            return call.convolve(isa, operands, window, product.epilogue(reader), adding)

        return prepare


def find_additions(
    nodes: Sequence[Node], tensors: Mapping[str, Tensor], readers: Mapping[str, Node]
) -> list[Addition]:
    """Finds the additions of a graph; see `find_fusions`."""
    makers = {node.outputs[0]: node for node in nodes if node.op == "RESCALE"}

    def maker(name: str, reader: Node) -> Node | None:
        """The RESCALE that computes a tensor, if the tensor has a single reader."""
        return makers.get(name) if readers.get(name) is reader else None

    def term(name: str, reader: Node) -> tuple[Node, Node | None] | None:
        last = maker(name, reader)
        if _is_scaling(last, DType.INT8, tensors):
            return last, None
        if not _is_scaling(last, DType.INT32, tensors):
            return None
        first = maker(last.inputs[0], last)
        return (first, last) if _is_scaling(first, DType.INT8, tensors) else None

    fusions = []
    for node in nodes:
        if node.op not in ("ADD", "SUB") or not _is_of_equal_shapes(node, tensors):
            continue
        left, right = (term(name, node) for name in node.inputs)
        rescale = reader_of(node, readers)
        if left is None or right is None:
            continue
        if is_rescale(rescale, tensors) and not rescale.attributes["per_channel"]:
            fusions.append(Addition(*left, *right, node, rescale, clamp_of(rescale, readers)))
    return fusions


def joined(
    additions: Sequence[Addition],
    products: Sequence[Product],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
) -> list[ProductAddition | Addition]:
    """Joins each addition with a CONV2D that computes an operand of only this addition.

    If both operands come from such convolutions, the one with more weights is joined.
    """
    makers = {
        id(reader_of(nodes_of(product)[-1], readers)): product
        for product in products
        if product.main.op == "CONV2D"
    }

    def weights(fusion: ProductAddition) -> int:
        return math.prod(tensors[inputs_of(fusion.main)["weight"]].shape or ())

    def whole(addition: Addition) -> ProductAddition | Addition:
        terms = (makers.get(id(term)) for term in (addition.left, addition.right))
        pairs = [ProductAddition(product, addition) for product in terms if product is not None]
        return max(pairs, key=weights, default=addition)

    return list(map(whole, additions))


def _is_of_equal_shapes(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    left, right = (tensors[name].shape for name in node.inputs)
    if left is None or left != right:
        return False
    return math.prod(length for length in left if length > 0) >= _FEWEST


def _is_scaling(node: Node | None, dtype: DType, tensors: Mapping[str, Tensor]) -> TypeGuard[Node]:
    """Whether a node rescales a signed type to int32, with one scale for all channels."""
    if node is None:
        return False
    source, result = (tensors[name].dtype for name in (node.inputs[0], node.outputs[0]))
    return (source, result) == (dtype, DType.INT32) and not node.attributes["per_channel"]


def _scaling(reader: Reader, first: Node, last: Node | None) -> Scaling:
    from tosajax.native.operands import Rescaling, Scaling

    then = None
    if last is not None:
        numbers = reader.operands(last, "multiplier", "shift")
        then = Rescaling(*numbers, double=rounds_twice(last))
    scale = reader.operands(first, "input_zp", "multiplier", "shift")
    return Scaling(*scale, double=rounds_twice(first), then=then)
