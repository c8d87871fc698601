"""The plan of a graph: which nodes native kernels compute, and which kernels share a call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tosajax import spec
from tosajax.graph import Graph, Node, Tensor
from tosajax.lowering.chains import Part, chains
from tosajax.lowering.fusions import Fusion, find_fusions, nodes_of, obstacle
from tosajax.lowering.run import Traced
from tosajax.lowering.uses import Uses, uses_of
from tosajax.validation import validate

# The most elements of a tensor that XLA computes on one thread between kernels.
_LITTLE = 2**12
_MOVES = "data_layout"
_LARGE = "control_flow", "custom"


@dataclasses.dataclass(frozen=True)
class KernelPlan:
    """Which kernel or route computes each node of a graph; as text, a line for each part.

    Args:
      parts: the nodes in order, with fusions in place of the nodes that they cover.
      calls: the parts that run together, as ranges: a chain of kernels, or a single part.
      tensors: the graph's tensors, by name.
    """

    parts: Sequence[Part]
    calls: Sequence[range]
    tensors: Mapping[str, Tensor] = dataclasses.field(repr=False)

    @property
    def has_kernels(self) -> bool:
        return any(not isinstance(part, Node) for part in self.parts)

    @property
    def leaves_little(self) -> bool:
        """Whether XLA computes so little between native kernels that one thread is enough."""
        nodes = [part for part in self.parts if isinstance(part, Node)]
        nodes = [node for node in nodes if spec.OPERATORS[node.op].chapter != _MOVES]
        if any(spec.OPERATORS[node.op].chapter in _LARGE for node in nodes):
            return False
        shapes = (self.tensors[name].shape for node in nodes for name in node.outputs)
        return all(shape is not None and math.prod(shape) <= _LITTLE for shape in shapes)

    def __str__(self) -> str:
        lines: list[str] = []
        for call in self.calls:
            if len(call) > 1:
                kernels = sum(not isinstance(self.parts[place], Node) for place in call)
                lines.append(f"one call of {kernels} kernel{'s' * (kernels > 1)}:")
            indent = "  " if len(call) > 1 else ""
            lines += [f"{indent}{self._described(self.parts[place])}" for place in call]
        return "\n".join(lines)

    def _described(self, part: Part) -> str:
        if not isinstance(part, Node):
            return f"native  {', '.join(_title(node, part) for node in nodes_of(part))}"
        reason = obstacle(part, self.tensors)
        return f"XLA     {part.title}" + (f": {reason}" if reason else "")


def _title(node: Node, fusion: Fusion) -> str:
    return node.title if node is fusion.main else node.op


def plan_kernels(graph: Graph) -> KernelPlan:
    """Plans the native kernels of a graph: they compute every node that they can.

    `compile` follows the plan on processors with native kernels; `Executable.explain` shows the
    routes of a compiled program. Subgraphs of loops and branches have their own plans.

    Args:
      graph: a legal graph with known dimensions.

    Raises:
      TosaError: the graph is illegal.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 8, 8, 4))
      >>> window = {"kernel": (2, 2), "stride": (2, 2), "pad": (0, 0, 0, 0)}
      >>> y = b.op("MAX_POOL2D", x, **window)
      >>> z = b.op("REVERSE", y, axis=1)
      >>> print(tosajax.plan_kernels(b.graph([z])))
      native  MAX_POOL2D 'max_pool2d_1'
      XLA     REVERSE 'reverse_2'
    """
    validate(graph).raise_errors()  # also refuses an argument that is not a Graph
    return plan_of(uses_of(graph), graph.tensors, {})


def plan_of(uses: Uses, tensors: Mapping[str, Tensor], traced: Traced) -> KernelPlan:
    """The plan of nodes, from the uses of their tensors.

    Args:
      uses: the uses of the graph's tensors.
      tensors: the graph's tensors, by name.
      traced: attributes whose values are in the parameters. Kernels can take the bounds of CLAMP
        as operands, but no other attribute.
    """
    fit = {id(n) for n in uses.nodes if n.op == "CLAMP" or not traced.keys() & {*n.outputs}}
    readers = {name: node for name, node in uses.only.items() if id(node) in fit}
    several = {n: all_ for n, all_ in uses.several.items() if all(id(node) in fit for node in all_)}
    nodes = [node for node in uses.nodes if id(node) in fit]
    return _with_fusions(uses.nodes, find_fusions(nodes, tensors, readers, several), tensors)


def without_kernels(uses: Uses, tensors: Mapping[str, Tensor]) -> KernelPlan:
    """The plan without native kernels: XLA computes all nodes."""
    return _with_fusions(uses.nodes, [], tensors)


def _with_fusions(
    nodes: Sequence[Node], fusions: Sequence[Fusion], tensors: Mapping[str, Tensor]
) -> KernelPlan:
    """Makes the plan in which each fusion replaces its last node."""
    ends = {id(nodes_of(fusion)[-1]): fusion for fusion in fusions}
    inside = {id(node) for fusion in fusions for node in nodes_of(fusion)[:-1]}
    parts = [ends.get(id(node), node) for node in nodes if id(node) not in inside]
    return KernelPlan(parts, chains(parts, tensors), tensors)
