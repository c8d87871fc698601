"""Writes the quantized operators of an ONNX model in floats, as fake quantization.

Integers become floats of the same values: QuantizeLinear divides, rounds, adds the zero point and
clips, DequantizeLinear subtracts the zero point and multiplies, and operators that only move
elements move the floats. Quantized convolutions and products are floats between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tosajax.report import UnsupportedError

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# The integers that have scales, by their ONNX type, with limits.
_LIMITS = {
    onnx.TensorProto.INT8: (-128, 127),
    onnx.TensorProto.UINT8: (0, 255),
    onnx.TensorProto.INT16: (-(2**15), 2**15 - 1),
    onnx.TensorProto.UINT16: (0, 2**16 - 1),
    onnx.TensorProto.INT4: (-8, 7),
    onnx.TensorProto.UINT4: (0, 15),
    onnx.TensorProto.INT32: (-(2**31), 2**31 - 1),
}
_UNSIGNED = (onnx.TensorProto.UINT8, onnx.TensorProto.UINT16)
_NARROW = frozenset(_LIMITS) - {onnx.TensorProto.INT32}
# Operators whose results are elements of their inputs.
_MOVING = {
    *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "Identity"),
    *("Clip", "Max", "MaxPool", "Min", "Pad", "Relu", "Reshape", "Resize", "Slice"),
    *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}
# Quantized operators, each (x, scale, zero point) for every operand and then scale and zero point
# of the result; QLinearConcat has these first.
_UNARY = {
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSigmoid": "Sigmoid",
    "QLinearSoftmax": "Softmax",
}
_BINARY = {"QLinearAdd": "Add", "QLinearMatMul": "MatMul", "QLinearMul": "Mul"}
_INTEGER = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
_OWN_ATTRIBUTES = {"channels_last", "opset"}  # of quantized operators alone


def in_floats(model: Any) -> list[str]:
    """Rewrites a model of opset 13 or later in place; returns what was done, in words.

    Raises:
      UnsupportedError: an operator on integers has no form in floats; the message names it.
    """
    rewriting = _Rewriting(model)
    rewriting.run()
    return rewriting.done


class _Parameters(NamedTuple):
    """The scale and the zero point of a QuantizeLinear or DequantizeLinear."""

    scale: np.ndarray
    zero_point: np.ndarray | None
    type: Any  # of the integers, a number of ONNX
    axis: int


class _Rewriting:
    def __init__(self, model: Any) -> None:
        self.graph = model.graph
        self.done: list[str] = []
        self._constants = {t.name: t for t in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
        inferred = onnx.shape_inference.infer_shapes(model).graph
        values = (*inferred.value_info, *inferred.input, *inferred.output)
        self._types = {value.name: value.type.tensor_type for value in values}
        self._integers: dict[str, int] = {}  # types of integers that are floats here, by name
        self._nodes: list[Any] = []
        self.counts = Counter[str]()  # rewritten nodes of the file, by operator

    def run(self) -> None:
        self._widen_inputs()
        for node in self.graph.node:
            if node.op_type in (_QUANTIZE, _DEQUANTIZE):
                self.counts[node.op_type] += 1
            for part in _Expansion(node, self).run():
                self._add(part)
        self._give_back_outputs()
        del self.graph.node[:]
        self.graph.node.extend(self._nodes)
        for op, count in self.counts.items():
            self.done.append(f"{count} {op}: in floats, rounded to the same steps")

    def _widen_inputs(self) -> None:
        """Makes int32 of unsigned inputs, which torch-mlir reads as signed ones."""
        for value in self.graph.input:
            kind = value.type.tensor_type
            if kind.elem_type in _UNSIGNED:
                name = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
                self.done.append(f"input {value.name!r}: int32; it is {name} in the file")
                kind.elem_type = onnx.TensorProto.INT32

    def _add(self, node: Any) -> None:
        held = [name for name in node.input if name in self._integers]
        if node.op_type == _QUANTIZE:
            self._quantize(node)
        elif node.op_type == _DEQUANTIZE:
            self._dequantize(node)
        elif node.op_type == "Cast" and helper.get_node_attr_value(node, "to") in _UNSIGNED:
            raise UnsupportedError(f"{_title(node)} makes unsigned integers, expected int32")
        elif node.op_type == "Cast" and held:
            self._cast(node)
        elif held:
            self._move(node, held)
        else:
            self._nodes.append(node)

    def _quantize(self, node: Any) -> None:
        parameters = self._parameters(node)
        name, result = node.input[0], node.output[0]
        self._integers[result] = parameters.type
        low, high = _LIMITS[parameters.type]
        value = self._value(name)
        if value is not None:
            scale, zero_point = self._aligned(node, parameters, value.ndim)
            steps = np.rint(value / scale) + (0 if zero_point is None else zero_point)
            self.constant(result, steps.clip(low, high).astype(value.dtype))
            return
        scale, zero_point = self._aligned(node, parameters)
        # Division, as a factor could go into the weights of a convolution before it.
        name = self._step("Div", result, "scaled", name, scale)
        name = self._step("Round", result, "rounded", name)
        if zero_point is not None:
            name = self._step("Add", result, "moved", name, zero_point)
        ends = (np.array(end, scale.dtype) for end in (low, high))
        self._step("Clip", result, "", name, *ends)

    def _dequantize(self, node: Any) -> None:
        parameters = self._parameters(node)
        name, result = node.input[0], node.output[0]
        value = self._value(name)
        if value is not None:
            scale, zero_point = self._aligned(node, parameters, value.ndim)
            wide = value.astype(np.float64) - (0 if zero_point is None else zero_point)
            self.constant(result, wide.astype(scale.dtype) * scale)
            return
        scale, zero_point = self._aligned(node, parameters)
        if name not in self._integers:
            kind = helper.np_dtype_to_tensor_dtype(scale.dtype)
            name = self._step("Cast", result, "floats", name, to=kind)
        if zero_point is not None:
            name = self._step("Sub", result, "centered", name, zero_point)
        self._step("Mul", result, "", name, scale)

    def _cast(self, node: Any) -> None:
        """Adds a CAST of integers that are floats already."""
        if helper.get_node_attr_value(node, "to") == onnx.TensorProto.FLOAT:
            node = helper.make_node("Identity", node.input[:1], node.output, node.name)
        self._nodes.append(node)

    def _move(self, node: Any, held: Sequence[str]) -> None:
        """Adds a node that moves integers.

        Raises:
          UnsupportedError: it computes with them.
        """
        if node.op_type not in _MOVING:
            raise UnsupportedError(
                f"{_title(node)} computes with the integers {held[0]!r}, expected "
                f"{_DEQUANTIZE} or an operator that moves elements"
            )
        kind = self._integers[held[0]]
        for position, name in enumerate(node.input):
            own = self._constants.get(name)
            if own is not None and own.data_type in _NARROW:
                floats = f"{name} as floats"
                self.constant(floats, numpy_helper.to_array(own).astype(np.float32))
                node.input[position] = floats
        self._integers |= {name: kind for name in node.output if name}
        self._nodes.append(node)

    def _parameters(self, node: Any) -> _Parameters:
        """The scale and zero point of a node.

        Raises:
          UnsupportedError: they are computed, of blocks, or of integers without scales.
        """
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        names = [*node.input, "", ""]
        scale, zero_point = self._value(names[1]), self._value(names[2])
        if scale is None or (names[2] and zero_point is None):
            raise UnsupportedError(f"{_title(node)} has a scale or zero point that is computed")
        if attributes.get("block_size"):
            raise UnsupportedError(f"{_title(node)} has scales of blocks, expected one per channel")
        kind = self._type_of_integers(node, names[2], attributes.get("output_dtype", 0))
        if kind not in _LIMITS:
            found = onnx.TensorProto.DataType.Name(kind)
            wanted = ", ".join(onnx.TensorProto.DataType.Name(each) for each in _LIMITS)
            raise UnsupportedError(f"{_title(node)} has {found} integers, expected {wanted}")
        if zero_point is not None and not zero_point.any():
            zero_point = None
        return _Parameters(scale, zero_point, kind, int(attributes.get("axis", 1)))

    def _type_of_integers(self, node: Any, zero_point: str, asked: int) -> int:
        if zero_point:
            return self._constants[zero_point].data_type
        if node.op_type == _QUANTIZE:
            return asked or onnx.TensorProto.UINT8
        name = node.input[0]
        if name in self._constants:
            return self._constants[name].data_type
        return self._integers.get(name) or self._types[name].elem_type

    def _aligned(
        self, node: Any, parameters: _Parameters, rank: int | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The scale and the zero point in the scale's type, shaped for the tensor.

        Raises:
          UnsupportedError: the axis of several scales is not known.
        """
        scale, zero_point = parameters.scale, parameters.zero_point
        shape: tuple[int, ...] = ()
        if scale.size > 1:
            rank = self._rank(node.input[0]) if rank is None else rank
            if rank is None:
                raise UnsupportedError(
                    f"{_title(node)}: the rank of {node.input[0]!r} is not known"
                )
            ones = [1] * rank
            ones[parameters.axis] = scale.size
            shape = tuple(ones)
        if zero_point is not None:
            zero_point = zero_point.astype(scale.dtype)
            zero_point = zero_point.reshape(shape if zero_point.size > 1 else ())
        return scale.reshape(shape), zero_point

    def _rank(self, name: str) -> int | None:
        kind = self._types.get(name)
        return len(kind.shape.dim) if kind is not None and kind.HasField("shape") else None

    def _value(self, name: str) -> np.ndarray | None:
        """The value of a constant; None for other tensors."""
        constant = self._constants.get(name)
        return None if constant is None else numpy_helper.to_array(constant)

    def number(self, name: str) -> np.ndarray:
        """The value of a scale.

        Raises:
          UnsupportedError: it is computed.
        """
        value = self._value(name)
        if value is None:
            raise UnsupportedError(f"scale {name!r} is computed, expected a constant")
        return value

    def constant(self, name: str, value: np.ndarray) -> str:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
            self.graph.initializer.append(self._constants[name])
        return name

    def hold(self, name: str, kind: int) -> None:
        """Notes that a tensor holds integers of this type as floats."""
        self._integers[name] = kind

    def _step(self, op: str, result: str, part: str, *inputs: str | np.ndarray, **more: Any) -> str:
        """Adds a node of the result, or of a part of its computation; returns its output."""
        output = f"{result} {part}" if part else result
        names = [
            each if isinstance(each, str) else self.constant(f"{output} {position}", each)
            for position, each in enumerate(inputs)
        ]
        self._nodes.append(helper.make_node(op, names, [output], output, **more))
        return output

    def _give_back_outputs(self) -> None:
        """Makes int32 of outputs that are integers."""
        for value in self.graph.output:
            if value.name not in self._integers:
                continue
            kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
            floats = f"{value.name} as floats"
            for node in self._nodes:
                for names in (node.input, node.output):
                    for position, name in enumerate(names):
                        if name == value.name:
                            names[position] = floats
            int32 = onnx.TensorProto.INT32
            self._nodes.append(helper.make_node("Cast", [floats], [value.name], to=int32))
            if value.type.tensor_type.elem_type != int32:
                self.done.append(f"output {value.name!r}: int32; it is {kind.lower()} in the file")
            value.type.tensor_type.elem_type = int32


class _Operand(NamedTuple):
    """An operand of a quantized operator: the tensor, its scale and its zero point, by name."""

    name: str
    scale: str
    zero_point: str


class _Expansion:
    """Writes one quantized operator in floats between DequantizeLinear and QuantizeLinear.

    Args:
      node: the operator.
      rewriting: takes the constants that it needs.
    """

    def __init__(self, node: Any, rewriting: _Rewriting) -> None:
        self.node, self._rewriting = node, rewriting
        self._inputs = list(node.input)
        self._result = node.output[0]
        self.nodes: list[Any] = []

    def run(self) -> list[Any]:
        """The nodes; the node itself where it is not quantized."""
        op = self.node.op_type
        if op == "QLinearConv":
            self._convolution()
        elif op == "QGemm":
            self._gemm()
        elif op == "QLinearConcat":
            self._concatenation()
        elif op in _INTEGER:
            self._integer_product()
        elif op in _BINARY or op in _UNARY:
            count = 2 if op in _BINARY else 1
            operands = [self._operand(3 * n) for n in range(count)]
            names = [self._floats(operand) for operand in operands]
            self._quantized((_BINARY | _UNARY)[op], names, self._scale(3 * count))
        else:
            return [self.node]
        return self.nodes

    def _convolution(self) -> None:
        x, weight = self._operand(0), self._operand(3)
        names = [self._floats(x), self._floats(weight, axis=0)]
        if len(self._inputs) > 8:
            names.append(self._bias(self._inputs[8], x, weight))
        self._quantized("Conv", names, self._scale(6))

    def _gemm(self) -> None:
        a, b = self._operand(0), self._operand(3)
        transposed = any(each.name == "transB" and each.i for each in self.node.attribute)
        names = [self._floats(a), self._floats(b, axis=0 if transposed else 1)]
        if self._input(6):
            names.append(self._bias(self._inputs[6], a, b))
        if not self._input(7):
            raise UnsupportedError(f"{_title(self.node)} has no scale of its result")
        self._quantized("Gemm", names, self._scale(7))

    def _concatenation(self) -> None:
        count = (len(self._inputs) - 2) // 3
        names = [self._floats(self._operand(2 + 3 * n)) for n in range(count)]
        self._quantized("Concat", names, self._scale(0))

    def _integer_product(self) -> None:
        """Writes integers less their zero points, whose product is of integers that are floats."""
        names = []
        for position in range(2):
            own = _Operand(self._inputs[position], self._one, self._input(position + 2))
            names.append(self._floats(own, axis=0 if position and _is_conv(self.node) else -1))
        op = _INTEGER[self.node.op_type]
        self.nodes.append(self._float_node(op, names, self._result))
        self._rewriting.hold(self._result, onnx.TensorProto.INT32)

    def _input(self, position: int) -> str:
        """The name of an input; "" where it is left out."""
        return self._inputs[position] if position < len(self._inputs) else ""

    def _operand(self, position: int) -> _Operand:
        return _Operand(*(self._input(position + n) for n in range(3)))

    def _scale(self, position: int) -> tuple[str, str]:
        return self._input(position), self._input(position + 1)

    @property
    def _one(self) -> str:
        return self._rewriting.constant("scale of 1", np.array(1, np.float32))

    def _floats(self, operand: _Operand, axis: int = -1) -> str:
        """Adds the DequantizeLinear of an operand; returns its result.

        Args:
          operand: the operand.
          axis: the axis of its channels, if it has several scales.
        """
        output = f"{self._result} operand {len(self.nodes)}"
        inputs = [name for name in operand if name]
        self.nodes.append(helper.make_node(_DEQUANTIZE, inputs, [output], output, axis=axis))
        return output

    def _bias(self, name: str, x: _Operand, weight: _Operand) -> str:
        """Adds the DequantizeLinear of a bias, whose scale is the product of the operands'."""
        product = self._rewriting.number(x.scale) * self._rewriting.number(weight.scale)
        scale = self._rewriting.constant(f"{self._result} scale of bias", product)
        return self._floats(_Operand(name, scale, ""), axis=0)

    def _quantized(self, op: str, names: Sequence[str], scale: tuple[str, str]) -> None:
        """Adds the operator on floats, and the QuantizeLinear of its result."""
        floats = f"{self._result} in floats"
        self.nodes.append(self._float_node(op, names, floats))
        inputs = [floats, *(name for name in scale if name)]
        self.nodes.append(helper.make_node(_QUANTIZE, inputs, [self._result], self._result))

    def _float_node(self, op: str, names: Sequence[str], output: str) -> Any:
        attributes = [each for each in self.node.attribute if each.name not in _OWN_ATTRIBUTES]
        if any(a.name == "channels_last" and a.i for a in self.node.attribute):
            raise UnsupportedError(f"{_title(self.node)} has channels last, expected first")
        node = helper.make_node(op, names, [output], output)
        node.attribute.extend(attributes)
        self._rewriting.counts[self.node.op_type] += 1
        return node


def _is_conv(node: Any) -> bool:
    return node.op_type == "ConvInteger"


def _title(node: Any) -> str:
    return f"operator {node.op_type} of node {node.name or node.output[0]!r}"
