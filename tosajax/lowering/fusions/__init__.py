"""Fusions: groups of nodes that one native kernel computes; one module for each kind of kernel.

A fusion is a NamedTuple of nodes. Its method `kernel` returns the kernel for an instruction set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tosajax.graph import Graph, Node, Tensor
from tosajax.lowering.fusions.additions import Addition, ProductAddition, find_additions, joined
from tosajax.lowering.fusions.elementwise import Elementwise, find_elementwise
from tosajax.lowering.fusions.floats import (
    FloatProduct,
    find_float_products,
    float_obstacle,
    is_float_product,
    is_product_of_floats,
)
from tosajax.lowering.fusions.pattern import nodes_of
from tosajax.lowering.fusions.pools import Pool, find_pools
from tosajax.lowering.fusions.products import (
    Product,
    find_products,
    integer_obstacle,
    is_integer_product,
    is_product,
)

Fusion = Product | ProductAddition | Addition | Pool | FloatProduct | Elementwise


def find_fusions(
    nodes: Sequence[Node],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
    several: Mapping[str, Sequence[Node]],
) -> list[Fusion]:
    """Finds the fusions of a graph, which do not overlap.

    Args:
      nodes: the graph's nodes, in order.
      tensors: the graph's tensors, by name.
      readers: the only reader of each tensor that has one, by the tensor's name; graph outputs
        are left out.
      several: the readers of each tensor that has more, likewise.
    """
    products = find_products(nodes, tensors, readers)
    of_sums = joined(find_additions(nodes, tensors, readers), products, tensors, readers)
    taken = {id(fusion.main) for fusion in of_sums if isinstance(fusion, ProductAddition)}
    alone = [fusion for fusion in products if id(fusion.main) not in taken]
    floats = find_float_products(nodes, tensors, readers, several)
    found = [*of_sums, *alone, *find_pools(nodes, tensors, readers), *floats]
    taken = {id(node) for fusion in found for node in nodes_of(fusion)}
    return [*found, *find_elementwise(nodes, tensors, readers, several, taken)]


def has_kernels(graph: Graph) -> bool:
    """Whether native kernels can compute products or pools of a graph."""
    return any(
        find_pools(part.nodes, part.tensors, {})
        or any(_has_kernel(n, part.tensors) for n in part.nodes)
        for part in graph.walk()
    )


def _has_kernel(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    return is_product(node, tensors) or is_float_product(node, tensors)


def obstacle(node: Node, tensors: Mapping[str, Tensor]) -> str:
    """Why no native kernel computes a product; "" if one does, or if a node is none."""
    if is_integer_product(node, tensors):
        return integer_obstacle(node, tensors)
    return float_obstacle(node, tensors) if is_product_of_floats(node, tensors) else ""


def output_of(fusion: Fusion) -> str:
    """The output of a fusion."""
    return nodes_of(fusion)[-1].outputs[0]
