"""Helpers of all fusions: finding neighbours of a node, and reading operands for a kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor, arguments
from tosajax.lowering.run import Run, Traced
from tosajax.spec import Kind, RoundingMode

if TYPE_CHECKING:
    from tosajax.native.calls.schedule import KernelCall
    from tosajax.native.operands import Epilogue


RESHAPE = "RESHAPE"
BOUNDS = "min_val", "max_val"  # the attributes of CLAMP that a kernel reads as operands
MOST_IMAGES = 8  # inputs with a dimension of images: a kernel has few pointers
VALUES = "input", "input1", "input2", "input3"


def nodes_of(fusion: Sequence[Any]) -> list[Node]:
    """The nodes of a fusion, in order; a field may be None, or a fusion itself."""
    parts = ([part] if isinstance(part, Node) else nodes_of(part or ()) for part in fusion)
    return list(itertools.chain.from_iterable(parts))


def inputs_of(node: Node) -> dict[str, str]:
    """The names of the tensors that a node reads, by argument."""
    return arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT)


def values_of(node: Node) -> list[str]:
    """The tensors that an elementwise node reads by element: no scales, zero points, tables."""
    return [name for argument, name in inputs_of(node).items() if argument in VALUES]


def reader_of(node: Node, readers: Mapping[str, Node]) -> Node | None:
    """The only reader of a node's output; None if there are several or none."""
    return readers.get(node.outputs[0])


def is_rescale(
    node: Node | None, tensors: Mapping[str, Tensor], to: Sequence[DType] = (DType.INT8,)
) -> TypeGuard[Node]:
    """Whether a node is a RESCALE of int32 or int48 sums to one of the types in `to`.

    RESCALE always reads int32 and int48 as signed integers.
    """
    if node is None or node.op != "RESCALE":
        return False
    source, result = (tensors[name].dtype for name in (node.inputs[0], node.outputs[0]))
    return source in (DType.INT32, DType.INT48) and result in to


def clamp_of(node: Node, readers: Mapping[str, Node]) -> Node | None:
    """The CLAMP that is the only reader of a node's output, or None."""
    reader = reader_of(node, readers)
    return reader if reader is not None and reader.op == "CLAMP" else None


def layout_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Images, rows of an image, and elements of a row, if a tensor has all three.

    A RESHAPE that keeps them moves nothing, and changes no row.
    """
    return (shape[0], math.prod(shape[1:-1]), shape[-1]) if len(shape) > 1 else tuple(shape)


def rounds_twice(rescale: Node) -> bool:
    """Whether a RESCALE rounds by DOUBLE_ROUND."""
    return rescale.attributes["rounding_mode"] == RoundingMode.DOUBLE_ROUND


class Reader(NamedTuple):
    """Reads the operands of a fusion while its program is traced.

    Args:
      run: the values of the graph's tensors.
      tensors: the graph's tensors, by name.
      traced: attributes whose values are in the parameters; see `lowering.build.build`.
    """

    run: Run
    tensors: Mapping[str, Tensor]
    traced: Traced

    def value(self, name: str) -> Any:
        """A tensor's value; a NumPy array if it is constant."""
        constant = self.tensors[name].values
        return self.run.values[name] if constant is None else constant

    def tensor(self, name: str) -> Any:
        """A tensor's value on the device, or the placeholder of a kernel of the same call."""
        value = self.value(name)
        return jnp.asarray(value) if isinstance(value, np.ndarray) else value

    def operands(self, node: Node, *arguments: str) -> list[Any]:
        """The values of some of a node's inputs, by argument."""
        names = inputs_of(node)
        return [self.value(names[argument]) for argument in arguments]

    def attribute(self, node: Node, name: str) -> Any:
        """A node's attribute; traced if its value is in the parameters."""
        key = self.traced.get(node.outputs[0], {}).get(name)
        return node.attributes[name] if key is None else self.run.params[key]

    def epilogue(self, rescale: Node, clamp: Node | None) -> Epilogue:
        """The epilogue of a kernel: a RESCALE of sums, and a CLAMP of its results."""
        from tosajax.native.operands import Epilogue

        out = self.tensors[rescale.outputs[0]].dtype.storage
        bounds = np.iinfo(out).min, np.iinfo(out).max
        if clamp is not None:
            bounds = tuple(self.attribute(clamp, name) for name in ("min_val", "max_val"))
        scale = self.operands(rescale, "multiplier", "shift", "output_zp")
        bits = 8 * np.dtype(out).itemsize
        return Epilogue(*scale, *bounds, double=rounds_twice(rescale), out=f"i{bits}")


# Reads operands and returns a kernel for `native.call.run`; or the result, if it takes several
# calls.
Prepare = Callable[[Reader], "KernelCall | jax.Array"]
