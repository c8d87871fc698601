"""Nodes that one native kernel computes: products, a RESCALE of their sums, and a CLAMP.

Sums of two tensors are in `fused_sums.py`, pools in `fused_pools.py`; what ends with a RESCALE has
that from `fused_rescale.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.lowering.fused_pools import Pool, pool_kernel, pools
from tosajax.lowering.fused_rescale import Reader, inputs_of, is_rescale, nodes_of, reader_of
from tosajax.lowering.fused_slice import needless_slice, slices_of
from tosajax.lowering.fused_sums import Addition, addition_kernel, additions, scales_of
from tosajax.lowering.run import Run, Step, Traced
from tosajax.ops import _window
from tosajax.ops.routes.operands import INT8_CHUNK, known_weights, why_unknown
from tosajax.ops.routes.route import Route


class Fusion(NamedTuple):
    """Nodes that follow each other; nothing else reads a tensor between two of them.

    Args:
      cut: a SLICE of the input that is not needed, if there is one.
      main: a convolution or MATMUL of int8 or int16; the step has its name.
      rescale: of its sums to int8 or int16, if there is one.
      clamp: of the results, if there is one.
    """

    cut: Node | None
    main: Node
    rescale: Node | None = None
    clamp: Node | None = None


class Joined(NamedTuple):
    """A convolution whose results are a term of an addition.

    Args:
      product: the convolution, and the RESCALE of its sums to int8.
      addition: of its results and of another tensor.
    """

    product: Fusion
    addition: Addition

    @property
    def main(self) -> Node:
        """The step has its name."""
        return self.product.main

    @property
    def is_right(self) -> bool:
        """Whether the results are the right term."""
        return self.addition.right.inputs[0] == nodes_of(self.product)[-1].outputs[0]


Fusions = Fusion | Joined | Addition | Pool


def fusions(
    nodes: Sequence[Node], tensors: Mapping[str, Tensor], readers: Mapping[str, Node]
) -> list[Fusions]:
    """The fusions of a graph.

    Args:
      nodes: of the graph.
      tensors: by name.
      readers: the one node that reads a tensor that no other does and that is not an output.
    """
    products, slices = [], slices_of(nodes)
    for node in nodes:
        if not _is_product(node, tensors):
            continue
        cut = None
        if node.op in _PLANAR:
            cut = needless_slice(node, _window_of(node, tensors), slices, tensors, readers)
        fusion = Fusion(cut, node)
        reader = reader_of(node, readers)
        if is_rescale(reader, tensors, _SCALED):
            fusion = fusion._replace(rescale=reader)
            reader = reader_of(reader, readers)
            if reader is not None and reader.op == "CLAMP":
                fusion = fusion._replace(clamp=reader)
        products.append(fusion)
    sums = additions(nodes, tensors, readers)
    joined = _joined(sums, products, tensors, readers)
    inside = {id(part.main) for part in joined if isinstance(part, Joined)}
    others = [fusion for fusion in products if id(fusion.main) not in inside]
    return [*joined, *others, *pools(nodes, tensors, readers)]


def _joined(
    sums: Sequence[Addition],
    products: Sequence[Fusion],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
) -> list[Joined | Addition]:
    """Additions, each with the larger convolution that makes a term for it alone."""
    makers = {
        id(reader_of(nodes_of(fusion)[-1], readers)): fusion
        for fusion in products
        if fusion.main.op == "CONV2D"
    }

    def weights(joined: Joined) -> int:
        return math.prod(tensors[inputs_of(joined.main)["weight"]].shape or ())

    def whole(addition: Addition) -> Joined | Addition:
        terms = (makers.get(id(term)) for term in (addition.left, addition.right))
        found = [Joined(fusion, addition) for fusion in terms if fusion is not None]
        return max(found, key=weights, default=addition)

    return list(map(whole, sums))


# Of a depthwise window: its kernel has code for each of them.
_MOST_TAPS = 128
# Of a sum in int32: products of int8, or of int8 and the bytes of int16, one of which has no sign.
_MOST_TERMS = {DType.INT8: INT8_CHUNK, DType.INT16: INT8_CHUNK // 2}


# Operators whose kernels read an input in rows, of which they may leave some.
_PLANAR = "CONV2D", "DEPTHWISE_CONV2D"
# What kernels scale sums to.
_SCALED = DType.INT8, DType.INT16


def _is_product(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    return is_integer_product(node, tensors) and not obstacle(node, tensors)


def is_integer_product(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a node is a convolution or MATMUL of int8 or int16."""
    is_product = spec.OPERATORS[node.op].is_product
    return is_product and tensors[node.inputs[0]].dtype in _MOST_TERMS


def obstacle(node: Node, tensors: Mapping[str, Tensor]) -> str:
    """Why no native kernel computes an integer product; "" where one does.

    Its weights less their zero point must fit int8, their sums int32, and their taps the code.
    """
    if node.op == "MATMUL":
        return ""
    if node.op == "MATMUL_T":
        return "none of MATMUL_T, only of MATMUL"
    names = inputs_of(node)
    x, weight, zero_point = (tensors[names[name]] for name in ("input", "weight", "weight_zp"))
    if not weight.shape:
        return "shape of weights not known"
    if zero_point.values is None:
        return "zero point of weights not constant"
    values = weight.values
    if node.op == "DEPTHWISE_CONV2D":
        if (taps := math.prod(weight.shape[:2])) > _MOST_TAPS:
            return f"{taps} taps, more than {_MOST_TAPS}"
        values = None if values is None else values.reshape(taps, -1).T
    elif (terms := math.prod(weight.shape[1:])) > _MOST_TERMS[x.dtype]:
        return f"{terms} terms are too many for sums in int32"
    if values is not None:
        return why_unknown(values, zero_point.values)
    return "weights not constant, and their zero point not 0" if zero_point.values.any() else ""


def has_kernels(graph: Graph) -> bool:
    """Whether native kernels can compute products or pools of a graph."""
    return any(
        pools(part.nodes, part.tensors, {}) or any(_is_product(n, part.tensors) for n in part.nodes)
        for part in graph.walk()
    )


# Elements of a tensor that XLA computes on one thread, beside kernels.
_LITTLE = 2**12
_LARGE = "control_flow", "custom"


def are_few(nodes: Sequence[Node], tensors: Mapping[str, Tensor]) -> bool:
    """Whether XLA, which computes these nodes between native kernels, does it on one thread."""
    computed = [node for node in nodes if spec.OPERATORS[node.op].chapter != "data_layout"]
    if any(spec.OPERATORS[node.op].chapter in _LARGE for node in computed):
        return False
    made = (tensors[name].shape for node in computed for name in node.outputs)
    return all(shape is not None and math.prod(shape) <= _LITTLE for shape in made)


def native_set(native: bool | None) -> Any:
    """The instruction set of native kernels on this processor; None for XLA's route."""
    from tosajax.native.isa import chosen

    return chosen(native)


class Kernel(NamedTuple):
    """What computes a fusion.

    Args:
      fusion: of the nodes.
      prepare: (reader) -> what `native.call.run` takes; or the result, of more than one call.
      route: (reader) -> the result.
    """

    fusion: Fusions
    prepare: Callable[[Reader], Any]
    route: Route

    @property
    def output(self) -> str:
        """The tensor that it makes."""
        return nodes_of(self.fusion)[-1].outputs[0]


def kernel_of(fusion: Fusions, tensors: Mapping[str, Tensor], isa: Any) -> Kernel:
    """The kernel of a fusion.

    Args:
      fusion: of the nodes.
      tensors: by name.
      isa: from `native_set`.
    """
    if isinstance(fusion, Addition):
        prepare = addition_kernel(fusion, isa)
    elif isinstance(fusion, Pool):
        prepare = pool_kernel(fusion, isa)
    elif isinstance(fusion, Joined):
        prepare = _joined_kernel(fusion, tensors, isa)
    else:
        prepare = _product_kernel(fusion, tensors, isa)

    def result(reader: Reader) -> jax.Array:
        from tosajax.native import call

        found = prepare(reader)
        return call.run(found) if isinstance(found, call.Prepared) else found

    done = ", ".join(n.op for n in nodes_of(fusion))
    return Kernel(fusion, prepare, Route(f"native {isa.name}".replace("-", " "), done, result))


def kernel_step(kernel: Kernel, tensors: Mapping[str, Tensor], traced: Traced) -> Step:
    """The step of a fusion, which stores its last result.

    Args:
      kernel: of the fusion.
      tensors: by name.
      traced: attributes that come with the parameters, here those of CLAMP.
    """

    def step(run: Run) -> None:
        run.values[kernel.output] = kernel.route(Reader(run, tensors, traced))

    return step


# Computes products: (reader, the epilogue or None, perhaps what is added) -> the result, or the
# kernel of it.
_Products = Callable[..., Any]


def _product_kernel(
    fusion: Fusion, tensors: Mapping[str, Tensor], isa: Any
) -> Callable[[Reader], Any]:
    if fusion.main.op == "MATMUL":
        kernel = _matmul(fusion.main, tensors, isa)
    else:
        kernel = _convolution(fusion, tensors, isa)

    def product(reader: Reader) -> Any:
        end = None if fusion.rescale is None else reader.epilogue(fusion.rescale, fusion.clamp)
        return kernel(reader, end)

    return product


def _joined_kernel(
    fusion: Joined, tensors: Mapping[str, Tensor], isa: Any
) -> Callable[[Reader], Any]:
    from tosajax.native import call

    product, addition = fusion.product, fusion.addition
    assert product.rescale is not None
    kernel, rescale = _convolution(product, tensors, isa), product.rescale
    term = addition.left if fusion.is_right else addition.right

    def total(reader: Reader) -> Any:
        other = reader.tensor(term.inputs[0])
        end = reader.epilogue(addition.rescale, addition.clamp)
        scales = scales_of(addition, reader)
        adding = call.Adding(addition.main.op, other, fusion.is_right, scales, end)
        return kernel(reader, reader.epilogue(rescale, product.clamp), adding)

    return total


def _convolution(fusion: Fusion, tensors: Mapping[str, Tensor], isa: Any) -> _Products:
    from tosajax.native import call

    node = fusion.main
    form = _form(node, tensors, isa)

    def products(reader: Reader, end: Any, *adding: Any) -> Any:
        names = "weight", "bias", "input_zp", "weight_zp"
        weight, bias, x_zp, weight_zp = reader.operands(node, *names)
        x = reader.tensor((fusion.cut or node).inputs[0])
        if isinstance(weight, np.ndarray):
            weight = (weight.astype(np.int16) - weight_zp).astype(np.int8)
        return form(call.Operands(x, weight, bias, x_zp), end, *adding)

    return products


def _form(node: Node, tensors: Mapping[str, Tensor], isa: Any) -> Callable[..., Any]:
    """What a node does: (operands, the epilogue or None, perhaps what is added) -> the result."""
    from tosajax.native import call, forms

    if node.op == "TRANSPOSE_CONV2D":
        how = node.attributes["stride"], node.attributes["out_pad"]
        return lambda o, end: forms.convolve_transposed(isa, o, *how, end)
    window = _window_of(node, tensors)
    if node.op == "CONV3D":
        return lambda o, end: forms.convolve_3d(isa, o, window, end)
    kernel = call.convolve if node.op == "CONV2D" else call.convolve_depthwise
    return lambda o, *ends: kernel(isa, o, window, *ends)


def _window_of(node: Node, tensors: Mapping[str, Tensor]) -> _window.Window:
    """That of a convolution whose weights have a known shape."""
    shape = tensors[inputs_of(node)["weight"]].shape or ()
    size = tuple(shape[axis] for axis in spec.OPERATORS[node.op].window_axes)
    return _window.window(size, *(node.attributes[n] for n in ("stride", "dilation", "pad")))


def _matmul(node: Node, tensors: Mapping[str, Tensor], isa: Any) -> _Products:
    from tosajax.native import call

    def products(reader: Reader, end: Any) -> Any:
        *inputs, a_zp, b_zp = reader.operands(node, "a", "b", "a_zp", "b_zp")
        return call.multiply(isa, inputs, (a_zp, b_zp), end)

    if tensors[node.inputs[0]].dtype is DType.INT16:
        return products
    weight = _columns(node, tensors)
    if weight is None:
        return products

    def by_weights(reader: Reader, end: Any) -> jax.Array:
        """A row is a pixel."""
        a, a_zp = reader.operands(node, "a", "a_zp")
        o = call.Operands(jnp.asarray(a)[:, :, None], weight, np.zeros(1, np.int32), a_zp)
        ones = _window.window((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
        return call.run(call.convolve(isa, o, ones, end))[:, :, 0]

    return by_weights


def _columns(node: Node, tensors: Mapping[str, Tensor]) -> np.ndarray | None:
    """The right operand of a product as weights, if it is one constant matrix."""
    values, zero_point = (tensors[inputs_of(node)[name]].values for name in ("b", "b_zp"))
    if values is None or zero_point is None or len(values) > 1:
        return None
    return known_weights(values.transpose(2, 0, 1)[:, :, None], zero_point)
