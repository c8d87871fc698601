"""Integer operators computed in FP32: one function for each, by its name in lower case.

The float of an integer tensor is its value before rounding, zero point included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Node, arguments
from tosajax.graph.edit import Draft
from tosajax.spec import Kind, NanMode


class Floats:
    """The FP32 tensors that stand for the integer tensors of a draft.

    Args:
      draft: the draft that new nodes and tensors are added to.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.known: dict[str, str] = {}  # integer tensor -> its float
        self.location: str | None = None
        self._pending: dict[str, str | None] = {}  # integer tensor without a node yet -> location
        self._shared: dict[str, str] = {}  # constants that many nodes read, by requested name

    def of(self, name: str) -> str:
        """The float of an integer tensor."""
        if name not in self.known:
            tensor = self.draft.tensors[name]
            if tensor.values is not None:
                values = tensor.values.astype(np.float32)
                self.known[name] = self.draft.const(f"{name}/float", values, DType.FP32)
            else:
                self.known[name] = self._node("CAST", (name,), f"{name}/float", tensor.shape)
        return self.known[name]

    def give(self, name: str, value: str) -> None:
        """Records the float of an integer tensor."""
        self.known[name] = value
        self._pending[name] = self.location

    def round(self, name: str) -> None:
        """Adds a CAST from the float to the integer tensor, unless it is there."""
        if name in self._pending:
            location = self._pending.pop(name)
            self.draft.nodes.append(Node("CAST", (self.known[name],), (name,), {}, location))

    def centred(self, name: str, zero_point: str) -> str:
        """The float of an integer tensor minus its zero point."""
        zero, tensor = self.value(zero_point), self.draft.tensors[name]
        if zero and tensor.values is not None:
            values = tensor.values.astype(np.float32) - np.float32(zero)
            return self.draft.const(f"{name}/float", values, DType.FP32)
        return self.plus(self.of(name), -zero)

    def plus(self, name: str, number: float) -> str:
        """A float tensor plus a number."""
        return self._with_number("ADD", name, [number]) if number else name

    def times(self, name: str, factor: ArrayLike) -> str:
        """A float tensor times a number, or times one number for each channel (last axis)."""
        return self._with_number("MUL", name, factor)

    def clamped(self, name: str, dtype: DType) -> str:
        """A float tensor clamped to the range of int8 or int16; unchanged for other types."""
        if dtype not in (DType.INT8, DType.INT16):
            return name
        ends = {"min_val": np.float32(dtype.minimum), "max_val": np.float32(dtype.maximum)}
        shape = self.draft.tensors[name].shape
        attributes = {**ends, "nan_mode": NanMode.PROPAGATE}
        return self._node("CLAMP", (name,), f"{name}/clamped", shape, attributes)

    def like(self, node: Node, inputs: tuple[str, ...], **attributes: Any) -> str:
        """Adds the operator of `node` on floats and returns its output."""
        (output,) = node.outputs
        shape = self.draft.tensors[output].shape
        merged = {**node.attributes, **attributes}
        return self._node(node.op, inputs, f"{output}/float", shape, merged)

    def zero(self) -> str:
        """An FP32 zero point of 0."""
        return self._share("float/zero_point", DType.FP32)

    def no_shift(self) -> str:
        """The shift operand of a float MUL: 0."""
        return self._share("float/shift", DType.INT8)

    def value(self, name: str) -> int:
        """The value of a constant with one integer."""
        values = self.draft.tensors[name].values
        assert values is not None
        return int(values.reshape(()))

    def _share(self, name: str, dtype: DType) -> str:
        """A constant of one element, 0."""
        if name not in self._shared:
            self._shared[name] = self.draft.const(name, [0], dtype)
        return self._shared[name]

    def _with_number(self, op: str, name: str, number: ArrayLike) -> str:
        shape = self.draft.tensors[name].shape
        if shape is None:
            raise ValueError(f"the rank of {name!r} is not known: bind the graph first")
        values = np.asarray(number, np.float32)
        values = values.reshape((1,) * (len(shape) - 1) + (-1,) if shape else ())
        operand = self.draft.const(f"{name}/operand", values, DType.FP32)
        inputs = (name, operand, self.no_shift()) if op == "MUL" else (name, operand)
        return self._node(op, inputs, f"{name}/{op.lower()}", shape)

    def _node(
        self,
        op: str,
        inputs: tuple[str, ...],
        name: str,
        shape: tuple[int, ...] | None,
        attributes: dict[str, Any] | None = None,
    ) -> str:
        output = self.draft.tensor(name, DType.FP32, shape)
        self.draft.nodes.append(Node(op, inputs, (output,), attributes or {}, self.location))
        return output


def constants_of(node: Node) -> Iterator[str]:
    """Yields the inputs that have to be constants: zero points, multipliers and shifts."""
    for argument, name in arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT).items():
        if argument.endswith("_zp") or argument in ("multiplier", "shift"):
            yield name


def conv2d(f: Floats, node: Node) -> str:
    input, weight, bias, input_zp, weight_zp = node.inputs
    operands = (f.centred(input, input_zp), f.centred(weight, weight_zp), f.of(bias))
    return f.like(node, (*operands, f.zero(), f.zero()), acc_type=DType.FP32)


conv3d = depthwise_conv2d = transpose_conv2d = conv2d


def matmul(f: Floats, node: Node) -> str:
    a, b, a_zp, b_zp = node.inputs
    return f.like(node, (f.centred(a, a_zp), f.centred(b, b_zp), f.zero(), f.zero()))


matmul_t = matmul


def rescale(f: Floats, node: Node) -> str:
    input, multiplier, shift, input_zp, output_zp = node.inputs
    factors = [f.draft.tensors[name].values for name in (multiplier, shift)]
    factor = np.ldexp(np.asarray(factors[0], np.float64), -np.asarray(factors[1], np.int32))
    scaled = f.times(f.centred(input, input_zp), factor)
    dtype = f.draft.tensors[node.outputs[0]].dtype
    return f.clamped(f.plus(scaled, f.value(output_zp)), dtype)


def clamp(f: Floats, node: Node) -> str:
    ends = {end: np.float32(node.attributes[end]) for end in ("min_val", "max_val")}
    return f.like(node, (f.of(node.inputs[0]),), **ends)


def mul(f: Floats, node: Node) -> str:
    a, b, shift = node.inputs
    product = f.like(node, (f.of(a), f.of(b), f.no_shift()))
    places = f.value(shift)
    return f.times(product, [2.0**-places]) if places else product


def avg_pool2d(f: Floats, node: Node) -> str:
    input, input_zp, output_zp = node.inputs
    mean = f.like(node, (f.centred(input, input_zp), f.zero(), f.zero()), acc_type=DType.FP32)
    dtype = f.draft.tensors[node.outputs[0]].dtype
    return f.clamped(f.plus(mean, f.value(output_zp)), dtype)


def _same(f: Floats, node: Node) -> str:
    """An operator that needs no change to compute in floats."""
    tensors = f.draft.tensors
    inputs = (n if tensors[n].dtype is DType.SHAPE else f.of(n) for n in node.inputs)
    return f.like(node, tuple(inputs))


add = sub = max_pool2d = reduce_sum = reduce_max = reduce_min = _same
concat = identity = pad = reshape = reverse = slice = tile = transpose = _same
