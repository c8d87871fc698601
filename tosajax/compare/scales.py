"""Scales and zero points of tensors in two programs, and conversion between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tosajax.compare.measure import Side, is_small, numbers
from tosajax.graph import Graph, Node, Quantization, Tensor
from tosajax.graph.quantization import Clipping, dequantize, quantize
from tosajax.graph.zero_points import unsigned_tensors, zero_points

if TYPE_CHECKING:
    from tosajax.quant.qmodel import Params, QModel

# One scale, or one for each channel of the last axis; and the zero point.
Scale = tuple[float | tuple[float, ...], int]
# Tensor name -> scale and zero point: real = scale * (integer - zero_point).
Scales = Mapping[str, Scale]
# Scale and zero point in each of the two programs; None if not known.
Pair = tuple[Scale | None, Scale | None]


def scales_of(model: QModel, params: Params) -> dict[str, tuple[float, int]]:
    """The scale and the zero point of each tensor of a model that has a single scale.

    `compare` does not need them for a graph from `QModel.freeze`, which holds its scales.

    Args:
      model: an integer model.
      params: the model's parameters.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> from tosajax.compare import scales_of
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> scales = scales_of(model, quant.calibrate(model, [example]))
      >>> round(1 / scales["x"][0], 1), scales["x"][1]
      (127.5, -1)
    """
    entries = model.quantization(params).items()
    return {name: pair for name, entry in entries if (pair := entry.of_all)}


def scales_in(graph: Graph) -> dict[str, Scale]:
    """The scale of each tensor of a graph that has one, or one for each channel of its last axis.

    With the zero point.
    """
    scales: dict[str, Scale] = {}
    for name, entry in graph.quantization.items():
        last = len(graph.tensors[name].shape or ()) - 1
        if (pair := entry.of_all) is not None:
            scales[name] = pair
        elif entry.axes == (last,) and len(entry.zero_point) == 1:
            scales[name] = entry.scale, entry.zero_point[0]
    return scales


class Integers:
    """Zero points, signedness and limits of a graph's integer tensors."""

    def __init__(self, graph: Graph) -> None:
        self._zeros, self._unsigned = zero_points(graph), unsigned_tensors(graph)
        self._nodes = {name: node for node in graph.nodes for name in node.outputs}

    def side(self, tensor: Tensor, scale: Scale | None = None) -> Side:
        """The Side for comparing a tensor of the graph.

        Args:
          tensor: a tensor of the graph; its type may be the one of a stored array instead.
          scale: the scale and zero point, if integers are compared as real numbers.
        """
        limits = _clamp_bounds(self._nodes.get(tensor.name))
        if tensor.dtype.is_float:
            return Side(tensor.dtype, limits=limits)
        unsigned = tensor.name in self._unsigned
        if not is_small(tensor.dtype):
            limits = None
        elif unsigned or limits is None:
            limits = tensor.dtype.limits(unsigned=unsigned)
        if scale is not None:
            return Side(tensor.dtype, *scale, limits, unsigned)
        zero_point = self._zeros.get(tensor.name, 0)
        if unsigned:
            zero_point %= 1 << tensor.dtype.bits
        return Side(tensor.dtype, None, zero_point, limits, unsigned)


def as_real(a: Tensor, b: Tensor, scales: Pair) -> bool:
    """Whether two tensors are compared as real numbers: their types or scales differ."""
    return a.dtype is not b.dtype or (None not in scales and scales[0] != scales[1])


def comparable(a: Tensor, b: Tensor, scales: Pair) -> bool:
    """Whether two tensors can be compared: of one type, or as real numbers."""
    if a.dtype is b.dtype:
        return True
    scaled = zip((a, b), scales, strict=True)
    return all(t.dtype.is_float or (t.dtype.is_integer and s is not None) for t, s in scaled)


def converted(values: Any, source: Side, target: Side, clipping: Clipping | None = None) -> Any:
    """Converts values of one program to the other's representation: integers or real numbers.

    Args:
      values: the values, (examples, *shape).
      source: the Side of the program that has the values.
      target: the Side of the program that takes the values.
      clipping: the counter of saturated elements, if they are to be counted.

    Raises:
      ValueError: the target is block scaled: a program has to choose the scales.
    """
    if source.dtype is target.dtype and source.scale is None and target.scale is None:
        return values
    if target.dtype.block is not None:
        raise ValueError(
            f"values of {source.dtype.name} cannot become {target.dtype.name}, whose scales are "
            "not known: give each program inputs of its own type"
        )
    values = numbers(values)
    if source.scale is not None:
        tensor, own = _placeholder(source)
        values = dequantize(values, tensor, own, unsigned=source.unsigned)
    if target.scale is None:
        return values.astype(target.dtype.storage)
    tensor, own = _placeholder(target)
    return quantize(values, tensor, own, unsigned=target.unsigned, clipping=clipping)


def clipping_of(name: str, source: Side, target: Side) -> Clipping | None:
    """A counter of the elements of an input that `converted` saturates; None if it cannot."""
    if not source.dtype.is_float or target.scale is None:
        return None
    tensor, own = _placeholder(target, name)
    return Clipping(tensor, own, unsigned=target.unsigned)


def _placeholder(side: Side, name: str = "") -> tuple[Tensor, Quantization]:
    assert side.scale is not None
    if isinstance(side.scale, tuple):
        tensor = Tensor(name, side.dtype, (len(side.scale),))
        return tensor, Quantization(side.scale, (side.zero_point,), (0,))
    return Tensor(name, side.dtype, None), Quantization((side.scale,), (side.zero_point,))


def _clamp_bounds(node: Node | None) -> tuple[float, float] | None:
    """The bounds of a CLAMP."""
    if node is None or node.op != "CLAMP":
        return None
    return float(node.attributes["min_val"]), float(node.attributes["max_val"])
