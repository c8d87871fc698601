"""Unsigned inputs and outputs: bytes from 0 to 255, as cameras give them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Quantization
from tosajax.graph.edit import Draft
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.rewrite.power_of_two import rescaled


def unsigned(graph: Graph, names: str | Collection[str] | None = None) -> Graph:
    """The graph with unsigned inputs and outputs, in the types of TOSA: INT8 of bytes 0 to 255.

    An unsigned integer is the signed one plus 128 (32768 in INT16): it has the same real value, as
    its zero point is greater by as much. A RESCALE beside the end makes one of the other, exactly;
    the signed tensor is "x/signed" of x. For images as bytes, give the input the scale of a byte:
    `quant.rule("^x$", act=quant.QSpec(symmetric=False, observer=quant.fixed(1 / 255, -128)))`.

    Args:
      graph: a legal graph.
      names: inputs and outputs of INT8 or INT16; all inputs of INT8 by default.

    Raises:
      ValueError: a name is of no input or output, of another type, or unsigned already; or no
        input is of INT8.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import quant, rewrite
      >>> image = np.float32([[0, 128, 255]]) / 255
      >>> bytes_ = quant.QSpec(symmetric=False, observer=quant.fixed(1 / 255, -128))
      >>> rules = [quant.rule("^x$", act=bytes_)]
      >>> model = quant.prepare(lambda x: x + x, rules, example_args=[image])
      >>> graph = rewrite.unsigned(model.freeze(quant.calibrate(model, [image])))
      >>> graph.quantized(image)[0].view(np.uint8).tolist()
      [[0, 128, 255]]
    """
    chosen = _chosen(graph, names)
    draft = Draft(graph)
    inner = {
        name: draft.tensor(f"{name}/signed", graph.tensors[name].dtype, graph.tensors[name].shape)
        for name in chosen
    }
    for name in filter(graph.inputs.__contains__, chosen):
        draft.nodes.append(_rescale(draft, name, inner[name], from_unsigned=True))
    for node in graph.nodes:
        inputs, outputs = (
            tuple(inner.get(name, name) for name in names) for names in (node.inputs, node.outputs)
        )
        draft.nodes.append(dataclasses.replace(node, inputs=inputs, outputs=outputs))
        for name in filter(chosen.__contains__, node.outputs):
            draft.nodes.append(_rescale(draft, inner[name], name, from_unsigned=False))
    scales = dict(graph.quantization)
    for name in scales.keys() & inner.keys():
        scales[inner[name]] = scales[name]
        scales[name] = _unsigned(scales[name], -graph.tensors[name].dtype.minimum)
    return dataclasses.replace(draft.finished(), quantization=scales)


def _chosen(graph: Graph, names: str | Collection[str] | None) -> list[str]:
    """The ends that become unsigned."""
    already = unsigned_tensors(graph)
    if names is None:
        chosen = [t.name for t in graph.input_tensors if t.dtype is DType.INT8]
        chosen = [name for name in chosen if name not in already]
        if not chosen:
            raise ValueError(f"graph {graph.name!r} has no signed input of INT8")
        return chosen
    chosen = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    ends = (*graph.inputs, *graph.outputs)
    for name in chosen:
        if name not in ends:
            raise ValueError(f"{name!r} is no input or output, expected some of {', '.join(ends)}")
        if (dtype := graph.tensors[name].dtype) not in (DType.INT8, DType.INT16):
            raise ValueError(f"{name!r} is {dtype.name}, expected INT8 or INT16")
        if name in already:
            raise ValueError(f"{name!r} is unsigned already")
    return chosen


def _rescale(draft: Draft, source: str, target: str, *, from_unsigned: bool) -> Node:
    # The bits of half the range, as a signed or an unsigned integer.
    half = draft.tensors[source].dtype.minimum
    zeros = (half, 0) if from_unsigned else (0, half)
    node = rescaled(draft, source, target, 30, zeros)
    signs = {"input_unsigned": from_unsigned, "output_unsigned": not from_unsigned}
    return dataclasses.replace(node, attributes={**node.attributes, **signs})


def _unsigned(own: Quantization, half: int) -> Quantization:
    """The quantization of the unsigned integers, which are greater by half of their range."""
    bounds = own.bounds and (own.bounds[0] + half, own.bounds[1] + half)
    zero_point = tuple(zero + half for zero in own.zero_point)
    return dataclasses.replace(own, zero_point=zero_point, bounds=bounds)
