"""Convolutions and MATMULs of float32, fused with the ADD and the activation that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions.pattern import Prepare, Reader, inputs_of, reader_of
from tosajax.lowering.fusions.products import PLANAR, window_of
from tosajax.lowering.fusions.slices import needless_slice, slices_of
from tosajax.ops import _window
from tosajax.spec import NanMode

if TYPE_CHECKING:
    from tosajax.native.call import FloatSteps, KernelCall, Operands
    from tosajax.native.codegen.isa import InstructionSet


class Slope(NamedTuple):
    """Values, and those that are not at least 0 times a constant, as converters write PReLU.

    Args:
      is_kept: GREATER_EQUAL of the values and zeros.
      scaled: MUL of the values and the slopes.
      select: SELECT of the values or the scaled ones.
    """

    is_kept: Node
    scaled: Node
    select: Node


class FloatProduct(NamedTuple):
    """A product and what follows its sums; no other node reads the tensors between them.

    Args:
      cut: a SLICE of the input that the kernel need not compute, if there is one.
      main: a convolution or MATMUL of float32, which names the step.
      add: the ADD of its sums and other values of their shape, if there is one.
      clamp: the CLAMP of the results, if there is one.
      slope: the slope of negative results, if there is one.
    """

    cut: Node | None
    main: Node
    add: Node | None = None
    clamp: Node | None = None
    slope: Slope | None = None

    @property
    def is_planar(self) -> bool:
        """Whether the kernel reads images row by row."""
        return self.main.op in PLANAR

    def kernel(self, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
        """The kernel for an instruction set."""
        from tosajax.native import call

        if self.main.op == "MATMUL":
            return _matmul(self, tensors, isa)
        window = window_of(self.main, tensors)
        is_depthwise = self.main.op == "DEPTHWISE_CONV2D"
        convolve = call.convolve_depthwise if is_depthwise else call.convolve

        def prepare(reader: Reader) -> KernelCall:
            return convolve(isa, self._operands(reader), window, self._steps(reader))

        return prepare

    def _operands(self, reader: Reader) -> Operands:
        from tosajax.native.call import Operands

        weight, bias, x_zp = reader.operands(self.main, "weight", "bias", "input_zp")
        return Operands(reader.tensor((self.cut or self.main).inputs[0]), weight, bias, x_zp)

    def _steps(self, reader: Reader) -> FloatSteps:
        from tosajax.native.call import FloatSteps

        other = bounds = slope = None
        if self.add is not None:
            (name,) = (each for each in self.add.inputs if each != self.main.outputs[0])
            other = reader.tensor(name)
        if self.clamp is not None:
            names = "min_val", "max_val"
            bounds = reader.attribute(self.clamp, names[0]), reader.attribute(self.clamp, names[1])
        if self.slope is not None:
            source = self.slope.is_kept.inputs[0]
            (name,) = (each for each in self.slope.scaled.inputs[:2] if each != source)
            slope = reader.value(name)
        return FloatSteps(other, bounds, slope)


def find_float_products(
    nodes: Sequence[Node],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
    several: Mapping[str, Sequence[Node]],
) -> list[FloatProduct]:
    """Finds the products of float32 of a graph; see `find_fusions`."""
    slices, taken, found = slices_of(nodes), set[int](), list[FloatProduct]()
    # Of two products that feed one ADD, the later one takes it.
    for node in reversed(nodes):
        if not is_float_product(node, tensors):
            continue
        fusion = FloatProduct(None, node)
        if fusion.is_planar:
            window = window_of(node, tensors)
            cut = needless_slice(node, window, slices, tensors, readers)
            fusion = _with_steps(fusion._replace(cut=cut), taken, tensors, readers, several)
        found.append(fusion)
    return found[::-1]


def is_float_product(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a native kernel computes a node's products of float32.

    Padding is a product with 0, which is not 0 where a weight is infinite: weights are constants.
    """
    if node.op not in (*PLANAR, "MATMUL"):
        return False
    names = inputs_of(node)
    pair = ("a", "b") if node.op == "MATMUL" else ("input", "weight")
    left, right = (tensors[names[name]] for name in pair)
    if {left.dtype, tensors[node.outputs[0]].dtype} != {DType.FP32} or right.values is None:
        return False
    is_matrix = node.op != "MATMUL" or right.values.shape[0] == 1
    return is_matrix and bool(np.isfinite(right.values).all())


def _with_steps(
    fusion: FloatProduct,
    taken: set[int],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
    several: Mapping[str, Sequence[Node]],
) -> FloatProduct:
    """A product with what follows it; `taken` has the ADDs that others take, by identity."""
    last = fusion.main
    add = reader_of(last, readers)
    if add is not None and add.op == "ADD" and id(add) not in taken and _is_even(add, tensors):
        fusion, last = fusion._replace(add=add), add
        taken.add(id(add))
    clamp = reader_of(last, readers)
    if clamp is not None and clamp.op == "CLAMP":
        is_taken = clamp.attributes["nan_mode"] == NanMode.PROPAGATE
        return fusion._replace(clamp=clamp) if is_taken else fusion
    return fusion._replace(slope=_slope_of(last, tensors, readers, several))


def _is_even(add: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether both operands of an ADD have one shape, and differ."""
    left, right = (tensors[name].shape for name in add.inputs)
    return left is not None and left == right and add.inputs[0] != add.inputs[1]


def _slope_of(
    node: Node,
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
    several: Mapping[str, Sequence[Node]],
) -> Slope | None:
    """The slope of a node's negative results, if their only readers are its nodes."""
    (source,) = node.outputs
    by_op = {reader.op: reader for reader in several.get(source, ())}
    if by_op.keys() != {"GREATER_EQUAL", "MUL", "SELECT"} or len(several[source]) != 3:
        return None
    slope = Slope(*(by_op[op] for op in ("GREATER_EQUAL", "MUL", "SELECT")))
    is_kept, scaled, select = slope
    wanted = [is_kept.outputs[0], source, scaled.outputs[0]]
    feeds = readers.get(wanted[0]) is readers.get(wanted[2]) is select
    if not feeds or [*select.inputs] != wanted or is_kept.inputs[0] != source:
        return None
    zeros = tensors[is_kept.inputs[1]].values
    slopes = [tensors[name].values for name in scaled.inputs[:2] if name != source]
    if zeros is None or zeros.any() or len(slopes) != 1 or slopes[0] is None:
        return None
    channels = (tensors[source].shape or ())[-1:]
    of_channel = slopes[0].size in (1, *channels) and slopes[0].shape[-1:] in ((1,), channels)
    same = tensors[select.outputs[0]].shape == tensors[source].shape
    return slope if of_channel and same else None


def _matmul(fusion: FloatProduct, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
    """A MATMUL by a constant matrix as a 1x1 convolution, one pixel for each row."""
    from tosajax.native import call

    values = tensors[inputs_of(fusion.main)["b"]].values
    assert values is not None
    weight = values.transpose(2, 0, 1)[:, :, None]
    ones = _window.window((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    zero = np.zeros(1, np.float32)

    def prepare(reader: Reader) -> jax.Array:
        (a,) = reader.operands(fusion.main, "a")
        o = call.Operands(jnp.asarray(a)[:, :, None], weight, zero, zero)
        return call.run(call.convolve(isa, o, ones))[:, :, 0]

    return prepare
