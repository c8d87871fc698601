"""Limits of Ethos-U NPUs, from `spec.npu`; `_OWN` has the checks of single operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.checks.call import Call, Problem
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.spec import ResizeMode
from tosajax.spec.npu import Npu, NpuOperator

_SIZE = 65536  # largest dimension
_NAMES = {-1: "channels", -2: "width", -3: "height"}


class Neighbours(NamedTuple):
    """A graph's tensors and the nodes that read each, by tensor name; None for a graph output."""

    tensors: Mapping[str, Tensor]
    readers: Mapping[str, Sequence[Node | None]]

    @classmethod
    def of(cls, graph: Graph) -> Neighbours:
        """Collects the tensors and readers of a graph, without its subgraphs."""
        readers: dict[str, list[Node | None]] = {name: [None] for name in graph.outputs}
        for node in graph.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        return cls(graph.tensors, readers)


def npu_problems(call: Call, npu: Npu, around: Neighbours) -> Iterator[Problem]:
    """Yields a problem for each limit of the NPU that a legal node exceeds.

    Args:
      call: the node.
      npu: the NPU and its limits.
      around: the tensors and readers of the node's graph.
    """
    operator_limits, tensors = npu.limits(call.node.op), around.tensors
    if operator_limits is None:
        yield _problem(call, npu, "operator", "the operator is not supported")
        return
    names = (*call.node.inputs, *call.node.outputs)
    held = [tensors[name] for name in names if tensors[name].dtype is DType.BOOL]
    if held and not npu.holds_bool:
        yield _problem(call, npu, "types", f"{held[0].name!r} is BOOL, expected integers")
        return
    problems = [*_common(call, operator_limits), *_sums(call, operator_limits, around)]
    if npu.is_complete and (own := _OWN.get(call.node.op)):
        problems += own(call, around)
    for rule, message in problems:
        yield _problem(call, npu, rule, message)


def _problem(call: Call, npu: Npu, rule: str, message: str) -> Problem:
    name = npu.name.replace("ethos-u", "Ethos-U")
    return call.problem(f"{npu.name}.{rule}", f"{message} ({name})")


_Found = Iterator[tuple[str, str]]  # rules and messages


def _common(c: Call, known: NpuOperator) -> _Found:
    """Checks the limits that are columns of `spec.npu`."""
    if known.types is not None and c.node.inputs:
        yield from _types(c, known)
    for (argument, axis), most in known.sizes.items():
        shape = getattr(c, argument).shape
        if shape[axis] > most:
            name = _NAMES[axis]
            yield "size", f"{argument} has {name} {shape[axis]:,}, expected at most {most:,}"
    if known.batch is not None and c.input.shape[0] > known.batch:
        yield "size", f"input has a batch of {c.input.shape[0]}, expected {known.batch}"
    if known.area is not None and known.height is not None:
        yield from _kernel(c, known.area, known.height)
    if known.stride is not None and max(c.stride[-2:]) > known.stride:
        yield "stride", f"stride is {_plain(c.stride)}, expected at most {known.stride}"
    for argument in known.constants:
        if not c.known(argument):
            yield "constant", f"{argument} is computed, expected a constant"
    yield from _weights(c, known)


def _types(c: Call, known: NpuOperator) -> _Found:
    argument = next(a.name for a in c.operator.inputs)
    first = getattr(c, argument)
    first = first[0] if isinstance(first, tuple) else first
    if known.types and first.dtype not in known.types:
        wanted = ", ".join(sorted(t.name for t in known.types))
        yield "types", f"{argument} is {first.dtype.name}, expected one of {wanted}"


def _kernel_of(c: Call) -> tuple[int, ...]:
    if "kernel" in (a.name for a in c.operator.attributes):
        return tuple(c.kernel)
    shape = c.weight.shape
    return shape[:2] if c.node.op == "DEPTHWISE_CONV2D" else shape[1:-1]


def _kernel(c: Call, area: int, height: int) -> _Found:
    kernel = _kernel_of(c)
    if c.node.op == "AVG_POOL2D" and any(c.pad):
        if max(kernel) > 8:
            yield "kernel", f"kernel is {_plain(kernel)}, expected at most 8 x 8 with padding"
        return
    if len(kernel) == 3 and kernel[0] > 1:
        yield "kernel", f"kernel has depth {kernel[0]}, expected 1"
    if math.prod(kernel[-2:]) > area or kernel[-2] > height:
        wanted = f"{area:,} elements and a height of {height}"
        yield "kernel", f"kernel is {_plain(kernel)}, expected at most {wanted}"


def _weights(c: Call, known: NpuOperator) -> _Found:
    if known.weight_sum is not None and c.known("weight"):
        values = np.abs(c.weight.values.astype(np.int64))
        of_channel = (0, 1) if c.node.op == "DEPTHWISE_CONV2D" else tuple(range(1, values.ndim))
        if (most := int(values.sum(axis=of_channel).max(initial=0))) > known.weight_sum:
            yield (
                "weights",
                (
                    f"absolute weights of a channel add up to {most:,}, expected at most "
                    f"{known.weight_sum:,}"
                ),
            )
    if known.bias is not None and c.known("bias"):
        low, high = (int(f(c.bias.values)) for f in (np.min, np.max))
        if low < -1 - known.bias or high > known.bias:
            far = low if low < -1 - known.bias else high
            yield "bias", f"bias has {far:,}, expected [{-1 - known.bias:,}, {known.bias:,}]"


def _sums(c: Call, known: NpuOperator, around: Neighbours) -> _Found:
    """Checks that only RESCALE reads an INT48 output, and that it writes one of `known.sums`."""
    if known.sums is None or c.output.dtype is not DType.INT48:
        return
    for node in _read_by(c.output.name, around):
        after = node and around.tensors[node.outputs[0]]
        if node is None or after is None or node.op != "RESCALE" or after.dtype not in known.sums:
            what = "is an output" if node is None else f"is read by {node.title}"
            wanted = ", ".join(sorted(t.name for t in known.sums))
            yield "sums", f"the INT48 output {what}, expected a RESCALE to one of {wanted}"


def _read_by(name: str, around: Neighbours) -> Iterator[Node | None]:
    """Yields the nodes that read a tensor, looking through IDENTITY; None for a graph output."""
    for node in around.readers.get(name, ()):
        if node is not None and node.op == "IDENTITY":
            yield from _read_by(node.outputs[0], around)
        else:
            yield node


# Limits of single operators.


def _transpose_conv2d(c: Call, around: Neighbours) -> _Found:
    stride, shape, kernel = tuple(c.stride), c.input.shape, _kernel_of(c)
    flat = {(1, 2): shape[1] == kernel[0] == 1, (2, 1): shape[2] == kernel[1] == 1}
    if not flat.get(stride, stride in ((1, 1), (2, 2))):
        wanted = "1 x 1 or 2 x 2; of one row 1 x 2, of one column 2 x 1"
        yield "stride", f"stride is {_plain(stride)}, expected {wanted}"


def _argmax(c: Call, around: Neighbours) -> _Found:
    shape = c.input.shape
    if len(shape) > 4:
        yield "rank", f"input has rank {len(shape)}, expected at most 4"
        return
    if c.axis != len(shape) - 1:
        yield "axis", f"axis is {c.axis}, expected {len(shape) - 1}, the last one"
    batch, height, width, channels = (1,) * (4 - len(shape)) + shape
    if batch > 1:
        yield "size", f"input has a batch of {batch}, expected 1"
    if channels > 127:
        yield "size", f"input has channels {channels:,}, expected at most 127"
    if height * width > _SIZE:
        yield "size", f"input has an area of {height * width:,}, expected at most {_SIZE:,}"


def _arithmetic_right_shift(c: Call, around: Neighbours) -> _Found:
    if not c.round:
        yield "round", "round is false, expected true"


def _cast(c: Call, around: Neighbours) -> _Found:
    before, after = c.input.dtype, c.output.dtype
    if before is DType.INT32 and after.bits < before.bits:
        yield "types", f"input is INT32 and output {after.name}, expected no fewer bits"


def _reduce_sum(c: Call, around: Neighbours) -> _Found:
    shape, axis = c.input.shape, c.axis
    sizes = {"the axis": shape[axis]}
    if axis != len(shape) - 1:
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        sizes |= {"what is before the axis": before, "what follows the axis": after}
    for name, size in sizes.items():
        if size > _SIZE:
            yield "size", f"{name} has {size:,} elements, expected at most {_SIZE:,}"


def _rescale(c: Call, around: Neighbours) -> _Found:
    if c.output.dtype is DType.INT48:
        yield "types", "output is INT48, which only convolutions make"


def _reverse(c: Call, around: Neighbours) -> _Found:
    rank = len(c.input1.shape)
    if c.axis - rank not in (-2, -3):
        yield "axis", f"axis is {c.axis} of rank {rank}, expected height or width"


def _resize(c: Call, around: Neighbours) -> _Found:
    if not all(isinstance(x, tuple) for x in (c.scale, c.offset, c.border)):
        return
    n, d = c.scale[::2], c.scale[1::2]
    factors = [a // b if a % b == 0 else 0 for a, b in zip(n, d, strict=True)]
    if not all(factor in (2, 4, 8) for factor in factors):
        ratios = " x ".join(f"{a}/{b}" for a, b in zip(n, d, strict=True))
        yield "scale", f"scale is {ratios}, expected 2, 4 or 8"
        return
    if c.mode is not ResizeMode.BILINEAR:
        return
    for node in around.readers.get(c.output.name, ()):
        divided = node is not None and _divides(node, around.tensors, math.prod(factors))
        if not divided:
            wanted = f"a RESCALE that divides by {math.prod(factors)}"
            what = "is an output" if node is None else f"is read by {node.title}"
            yield "sums", f"output {what}, expected {wanted}"


def _divides(node: Node, tensors: Mapping[str, Tensor], by: int) -> bool:
    """Whether a node is a RESCALE that divides by `by`, or one whose scale is not constant."""
    if node.op != "RESCALE":
        return False
    multiplier, shift = (tensors[name].values for name in node.inputs[1:3])
    if multiplier is None or shift is None:
        return True  # the scale is not constant
    pairs = zip(multiplier.reshape(-1).tolist(), shift.reshape(-1).tolist(), strict=True)
    return all(m * by == 1 << s for m, s in pairs)


def _transpose(c: Call, around: Neighbours) -> _Found:
    shape, perms = c.input1.shape, tuple(c.perms)
    if c.input1.dtype is DType.INT32:
        yield from _transpose_int32(shape, perms)
    elif perms != tuple(range(len(perms))):
        yield from _transpose_narrow(shape, perms)


def _transpose_int32(shape: tuple[int, ...], perms: tuple[int, ...]) -> _Found:
    if len(shape) > 4:
        yield "rank", f"input1 is INT32 of rank {len(shape)}, expected at most 4"
        return
    missing = 4 - len(shape)
    n, h, w, c = (1,) * missing + shape
    order = "".join("NHWC"[p] for p in (*range(missing), *(p + missing for p in perms)))
    # For each permutation: names, sizes and their maxima.
    limits = {
        "NHWC": [("channels", c, 2**15)],
        "NWHC": [
            ("batch", n, 1),
            ("height", h, _SIZE),
            ("width", w, _SIZE),
            ("channels", c, 2**14),
        ],
        "NHCW": [("batch times height", n * h, _SIZE), ("width", w, _SIZE), ("channels", c, _SIZE)],
    }
    limits["NCWH"] = limits["NWHC"]
    if order not in limits:
        yield "perms", f"perms is {perms} of INT32, expected NHWC as {', '.join(limits)}"
    for name, size, most in limits.get(order, ()):
        if size > most:
            yield "size", f"input1 has {name} {size:,}, expected at most {most:,} of INT32"


def _transpose_narrow(shape: tuple[int, ...], perms: tuple[int, ...]) -> _Found:
    rank = len(shape)
    keeps = all(size == 1 for size in shape[:-3]) and perms[:-3] == tuple(range(rank - 3))
    if rank >= 3 and keeps:
        most, what = max(shape[-3:]), "a dimension"
    else:
        sizes = (math.prod(s) for s in itertools.combinations(shape, max(rank - 2, 0)))
        most, what = max(sizes, default=1), f"a product of {rank - 2} dimensions"
    if most > _SIZE:
        yield "size", f"input1 has {what} of {most:,}, expected at most {_SIZE:,}"


def _plain(numbers: Sequence[Any]) -> str:
    return " x ".join(map(str, numbers))


_OWN = {
    "ARGMAX": _argmax,
    "ARITHMETIC_RIGHT_SHIFT": _arithmetic_right_shift,
    "CAST": _cast,
    "REDUCE_SUM": _reduce_sum,
    "RESCALE": _rescale,
    "RESIZE": _resize,
    "REVERSE": _reverse,
    "TRANSPOSE": _transpose,
    "TRANSPOSE_CONV2D": _transpose_conv2d,
}
