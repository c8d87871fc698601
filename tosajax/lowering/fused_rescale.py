"""What fusions have in common: the RESCALE and the CLAMP that they end with."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor, arguments
from tosajax.lowering.run import Run, Traced
from tosajax.spec import Kind, RoundingMode


def nodes_of(fusion: Sequence[Any]) -> list[Node]:
    """The nodes of a fusion that there are, the last one last; a part may be a fusion itself."""
    parts = ([part] if isinstance(part, Node) else nodes_of(part or ()) for part in fusion)
    return list(itertools.chain.from_iterable(parts))


def inputs_of(node: Node) -> dict[str, str]:
    """The tensors that a node reads, by argument."""
    return arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT)


def reader_of(node: Node, readers: Mapping[str, Node]) -> Node | None:
    """The one node that reads the output of another."""
    return readers.get(node.outputs[0])


def is_rescale(
    node: Node | None, tensors: Mapping[str, Tensor], to: Sequence[DType] = (DType.INT8,)
) -> TypeGuard[Node]:
    """Whether it scales sums to one of some types; RESCALE of them is of signed integers alone."""
    if node is None or node.op != "RESCALE":
        return False
    of, found = (tensors[name].dtype for name in (node.inputs[0], node.outputs[0]))
    return of in (DType.INT32, DType.INT48) and found in to


def rounds_twice(rescale: Node) -> bool:
    return rescale.attributes["rounding_mode"] == RoundingMode.DOUBLE_ROUND


class Reader(NamedTuple):
    """Reads the operands of a fusion while its program is traced.

    Args:
      run: of the graph.
      tensors: by name.
      traced: attributes by output of their node; see `lowering.build.build`.
    """

    run: Run
    tensors: Mapping[str, Tensor]
    traced: Traced

    def value(self, name: str) -> Any:
        """Of a tensor; a NumPy array if it is constant."""
        known = self.tensors[name].values
        return self.run.values[name] if known is None else known

    def tensor(self, name: str) -> Any:
        """Of a tensor, on the device; or what a kernel of the same call makes."""
        value = self.value(name)
        return jnp.asarray(value) if isinstance(value, np.ndarray) else value

    def operands(self, node: Node, *arguments: str) -> list[Any]:
        """The values of some arguments; what the fusion itself makes of others is not stored."""
        names = inputs_of(node)
        return [self.value(names[argument]) for argument in arguments]

    def attribute(self, node: Node, name: str) -> Any:
        key = self.traced.get(node.outputs[0], {}).get(name)
        return node.attributes[name] if key is None else self.run.params[key]

    def epilogue(self, rescale: Node, clamp: Node | None) -> Any:
        """RESCALE and CLAMP for a kernel.

        Args:
          rescale: of the sums.
          clamp: of the results, if there is one.
        """
        from tosajax.native.call import Epilogue

        out = self.tensors[rescale.outputs[0]].dtype.storage
        bounds = np.iinfo(out).min, np.iinfo(out).max
        if clamp is not None:
            bounds = tuple(self.attribute(clamp, name) for name in ("min_val", "max_val"))
        scale = self.operands(rescale, "multiplier", "shift", "output_zp")
        bits = 8 * np.dtype(out).itemsize
        return Epilogue(*scale, *bounds, double=rounds_twice(rescale), out=f"i{bits}")
