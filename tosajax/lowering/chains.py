"""Chains: native kernels that follow each other, which one call runs.

A RESHAPE between two of them moves nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tosajax.graph import Node, Tensor
from tosajax.lowering.fused import Fusion, Kernel
from tosajax.lowering.fused_rescale import Reader, nodes_of
from tosajax.lowering.run import Run, Step, Traced

# Operators whose kernels take images, one after the other.
_OF_IMAGES = "CONV2D", "DEPTHWISE_CONV2D"
Part = Kernel | Node


def chains(parts: Sequence[Part], tensors: Mapping[str, Tensor]) -> list[range]:
    """The parts of a graph by chain, in order; what is in none is by itself.

    Args:
      parts: nodes in order, and kernels in the place of those that they compute.
      tensors: by name.
    """
    found: list[range] = []
    for at, part in enumerate(parts):
        begin = found[-1].start if found else at
        if begin < at and _continues(parts[begin:at], part, tensors):
            found[-1] = range(begin, at + 1)
        else:
            found.append(range(at, at + 1))
    return found


def _continues(before: Sequence[Part], part: Part, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a kernel, or a RESHAPE of what one makes, can follow those of a chain."""
    images = _images(before[0], tensors)
    if images is None:
        return False
    made = {name for p in before for name in made_by(p)}
    if not isinstance(part, Kernel):
        return part.op == "RESHAPE" and part.inputs[0] in made
    # Weights and scales are prepared before the call, so that no kernel of it may make them.
    others = {name for node in nodes_of(part.fusion) for name in node.inputs[1:]}
    return _images(part, tensors) == images and made.isdisjoint(others)


def _images(part: Part, tensors: Mapping[str, Tensor]) -> int | None:
    """Of each input of a kernel and of its result; None where they are not images."""
    if not isinstance(part, Kernel):
        return None
    fusion, nodes = part.fusion, nodes_of(part.fusion)
    if isinstance(fusion, Fusion) and fusion.main.op not in _OF_IMAGES:
        return None
    made = {name for node in nodes for name in node.outputs}
    names = [name for node in nodes for name in node.inputs[:1] if name not in made]
    shapes = (tensors[name].shape for name in (*names, part.output))
    counts = {shape[0] if shape else None for shape in shapes}
    return counts.pop() if len(counts) == 1 else None


def made_by(part: Part) -> Sequence[str]:
    """The tensors that others may read."""
    return [part.output] if isinstance(part, Kernel) else part.outputs


def read_by(part: Part) -> list[str]:
    """The tensors that it reads; of a kernel, those inside of its fusion as well."""
    nodes = nodes_of(part.fusion) if isinstance(part, Kernel) else [part]
    return [name for node in nodes for name in node.inputs]


def chain_step(
    parts: Sequence[Part],
    wanted: Sequence[str],
    tensors: Mapping[str, Tensor],
    traced: Traced,
) -> Step:
    """The step of a chain, which stores what is wanted.

    Args:
      parts: of the chain.
      wanted: the tensors that others read.
      tensors: by name.
      traced: attributes that come with the parameters, here those of CLAMP.
    """

    def step(run: Run) -> None:
        from tosajax.native import call

        inside = dataclasses.replace(run, values={**run.values})
        kernels: list[Any] = []
        for part in parts:
            if isinstance(part, Kernel):
                kernel = part.prepare(Reader(inside, tensors, traced))
                inside.values[part.output] = kernel.placeholder(len(kernels))
                kernels.append(kernel)
            else:
                made, shape = inside.values[part.inputs[0]], tensors[part.outputs[0]].shape
                inside.values[part.outputs[0]] = made._replace(shape=shape)
        ends = [inside.values[name] for name in wanted]
        numbers = list(dict.fromkeys(end.number for end in ends))
        results = dict(zip(numbers, call.run_all(kernels, numbers), strict=True))
        for name, end in zip(wanted, ends, strict=True):
            run.values[name] = results[end.number].reshape(end.shape)

    return step
