"""The scales of a TFLite model, for the tensors of the graph that it was converted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tosajax.graph import Graph, Quantization, Tensor
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.io.stored import Fields, same_size
from tosajax.io.tflite.schema import TYPES, listed
from tosajax.report import FormatError


def scales_of(
    main: Fields, graph: Graph, at: Mapping[str, Sequence[str]]
) -> dict[str, Quantization]:
    """The quantization of a graph's tensors, as far as the model has it, by the graph's names.

    Inputs and outputs are matched by their order, all other tensors by name.

    Args:
      main: the model's first subgraph.
      graph: the graph converted from it.
      at: the graph's tensors computed for each tensor of the model, in order, by its name.

    Raises:
      FormatError: an input or output of the model is not one of its tensors.
      ValueError: the number of its inputs or outputs is not the graph's.
    """
    tensors = listed(main, "tensors")
    unsigned = unsigned_tensors(graph)
    result: dict[str, Quantization] = {}

    def add(tensor: Tensor, theirs: Fields) -> bool:
        quantization = _quantization(tensor, theirs, tensor.name in unsigned)
        if quantization is not None:
            result[tensor.name] = quantization
        return quantization is not None

    for theirs in tensors:
        # A TFLite operator becomes several nodes: the last one whose type and shape fit computes
        # the operator's output.
        for name in reversed(at.get(theirs["name"] or "", ())):
            if add(graph.tensors[name], theirs):
                break
    for role, own in (("inputs", graph.input_tensors), ("outputs", graph.output_tensors)):
        indices = listed(main, role)
        if len(indices) != len(own):
            raise ValueError(f"the model has {len(indices)} {role}, the graph has {len(own)}")
        for tensor, index in zip(own, indices, strict=True):
            if not 0 <= index < len(tensors):
                raise FormatError(f"{role} name tensor {index} of {len(tensors)}")
            add(tensor, tensors[index])
    return result


def _quantization(tensor: Tensor, theirs: Fields, unsigned: bool) -> Quantization | None:
    """The quantization of a model's tensor; None if it has no scale or does not fit the graph's."""
    fields = theirs["quantization"] or {}
    stored = TYPES.get(theirs["type"] or 0)
    scales, zero_points = fields.get("scale") or (), fields.get("zero_point") or (0,)
    if stored is None or not same_size(tensor, theirs["shape"] or ()):
        return None
    zero_points = zero_points[:1] if len(set(zero_points)) == 1 else zero_points
    axes = (fields.get("quantized_dimension") or 0,) if len(scales) > 1 else ()
    try:
        return stored.quantization(tensor, scales, zero_points, axes, unsigned=unsigned)
    except ValueError:
        return None  # no scale, or one of 0: the tensor is always 0
