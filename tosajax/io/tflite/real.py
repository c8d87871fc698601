"""The real numbers that a quantized TFLite model computes with, as a model of floats.

Constants are their integers times their scales. What an operator computes is rounded to the real
values of the integers that it has in the file: fake quantization, in a form that `quant.prepare`
takes for the quantization that it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Rewrite
from tosajax.io.tflite.edits import BROKEN, Model, all_of, name_of
from tosajax.io.tflite.schema import INT64, TYPES
from tosajax.report import FormatError, UnsupportedError

_SUMS = {2: np.int32, INT64: np.int64}  # types of biases, by their TensorType numbers
_PER_TENSOR = "expected one scale and zero point"


class _Grid(NamedTuple):
    """The integers of an activation: their scale, and the ends of those of zero point 0."""

    scale: float
    low: int
    high: int


class _Step(NamedTuple):
    """An operator of a rounding.

    Args:
      operator: its name in the schema.
      number: its second input; None of a unary one.
      options: the name of the table of its options; None where it has none.
    """

    operator: str
    number: float | None = None
    options: str | None = None


def in_floats(model: Model) -> None:
    """Changes a model to one of floats; one without scales stays as it is.

    Raises:
      FormatError: a scale is broken.
      UnsupportedError: a tensor has scales that are neither of the whole nor of one axis.
    """
    count = sum(_Part(model, graph).change() for graph in model.root.subgraphs)
    if count:
        done = "real numbers: constants times scales, the rest rounded to values of its integers"
        model.rewrites.append(Rewrite(f"{count} quantized tensors", done))


class _Part:
    """One graph of a model."""

    def __init__(self, model: Model, graph: Any) -> None:
        self._model, self._graph, self._schema = model, graph, model.schema
        self._moves = {
            self._schema.BuiltinOperator.QUANTIZE,
            self._schema.BuiltinOperator.DEQUANTIZE,
        }
        self._numbers: dict[float, int] = {}
        self._rounded: dict[int, int] = {}  # the tensor to read in place of another

    def change(self) -> int:
        """Changes the graph; returns the number of tensors that had scales."""
        grids = dict[int, _Grid]()
        scaled = [(n, t) for n, t in enumerate(self._graph.tensors or ()) if self._is_scaled(t)]
        for number, tensor in scaled:
            if (grid := self._in_floats(tensor)) is not None:
                grids[number] = grid
        operators = [o for n in all_of(self._graph.inputs) for o in self._rounding(n, grids)]
        for operator in self._graph.operators or ():
            operators += self._changed(operator, grids)
        self._graph.operators = operators
        self._graph.outputs = self._read(self._graph.outputs)
        number = self._model.root.subgraphs.index(self._graph)
        for signature in self._model.root.signatureDefs or ():
            if signature.subgraphIndex == number:
                for entry in signature.outputs or ():
                    entry.tensorIndex = self._rounded.get(entry.tensorIndex, entry.tensorIndex)
        return len(scaled)

    def _is_scaled(self, tensor: Any) -> bool:
        own = tensor.quantization
        is_known = tensor.type in TYPES or tensor.type in _SUMS
        return own is not None and len(all_of(own.scale)) > 0 and is_known

    def _in_floats(self, tensor: Any) -> _Grid | None:
        """Makes a tensor float32; returns the integers of one that is no constant, but for sums."""
        own, kind = tensor.quantization, tensor.type
        if own.detailsType:
            message = f"tensor {name_of(tensor)!r} has scales of blocks, or of another program"
            raise UnsupportedError(f"{message}; {_PER_TENSOR}, or one for each index of an axis")
        tensor.type, tensor.quantization = self._schema.TensorType.FLOAT32, None
        data = self._model.root.buffers[tensor.buffer].data
        if data is not None and len(data):
            try:
                values = _real(_integers(data, kind), tensor, own)
            except BROKEN as error:
                raise FormatError(f"constant {name_of(tensor)!r}: {error}") from None
            self._model.store(tensor, values)
            return None
        if kind in _SUMS:
            return None
        if len(own.scale) > 1:
            raise UnsupportedError(
                f"tensor {name_of(tensor)!r} has {len(own.scale)} scales, {_PER_TENSOR}"
            )
        zero_point = int(own.zeroPoint[0]) if len(all_of(own.zeroPoint)) else 0
        scale = float(own.scale[0])
        if not (math.isfinite(scale) and scale > 0):
            raise FormatError(f"tensor {name_of(tensor)!r} has the scale {scale}")
        dtype, is_unsigned = TYPES[kind]
        low, high = dtype.minimum, dtype.maximum
        moved = zero_point + (low if is_unsigned else 0)
        return _Grid(scale, int(low) - moved, int(high) - moved)

    # Operators.

    def _changed(self, operator: Any, grids: dict[int, _Grid]) -> Iterator[Any]:
        """Yields an operator of real numbers, and what rounds its results."""
        operator.inputs = self._read(operator.inputs)
        code = self._model.root.operatorCodes[operator.opcodeIndex].builtinCode
        ends = [*all_of(operator.inputs), *all_of(operator.outputs)]
        if code in self._moves and all(self._is_float(n) for n in ends):
            source, result = ends
            self._rounded[result] = source
            yield from self._rounding(result, grids, source)
            return
        yield operator
        for number in all_of(operator.outputs):
            yield from self._rounding(number, grids)

    def _is_float(self, number: int) -> bool:
        return self._graph.tensors[number].type == self._schema.TensorType.FLOAT32

    def _read(self, indices: Any) -> np.ndarray:
        """The tensors to read in place of these."""
        return np.array([self._rounded.get(int(n), int(n)) for n in all_of(indices)], np.int32)

    def _rounding(
        self, number: int, grids: dict[int, _Grid], source: int | None = None
    ) -> Iterator[Any]:
        """Yields operators that round a tensor, or another one as that, if it has integers.

        The last result has the tensor's name, by which its readers know it; an input keeps its own.
        """
        if number not in grids:
            return
        grid, tensor = grids[number], self._graph.tensors[number]
        name = name_of(tensor)
        is_input = number in all_of(self._graph.inputs)
        if not is_input:
            tensor.name = f"{name}/real"
        steps = (
            _Step("MUL", 1 / grid.scale, "MulOptions"),
            _Step("ADD", 0.5, "AddOptions"),
            _Step("FLOOR"),
            _Step("MAXIMUM", grid.low, "MaximumMinimumOptions"),
            _Step("MINIMUM", grid.high, "MaximumMinimumOptions"),
            _Step("MUL", grid.scale, "MulOptions"),
        )
        x = number if source is None else source
        for at, step in enumerate(steps):
            is_last = at == len(steps) - 1
            label = f"{name}/{step.operator.lower()}"
            if is_last:
                label = f"{name}/rounded" if is_input else name
            y = self._tensor(label, tensor.shape, tensor.shapeSignature)
            yield self._operator(step, x, y)
            x = y
        self._rounded[number] = x

    def _operator(self, step: _Step, x: int, y: int) -> Any:
        schema = self._schema
        inputs = [x] if step.number is None else [x, self._number(step.number)]
        operator = schema.OperatorT(
            opcodeIndex=self._code(getattr(schema.BuiltinOperator, step.operator)),
            inputs=np.array(inputs, np.int32),
            outputs=np.array([y], np.int32),
        )
        if step.options is not None:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, step.options)
            operator.builtinOptions = getattr(schema, f"{step.options}T")()
        return operator

    def _tensor(self, name: str, shape: Any, signature: Any = None) -> int:
        tensor = self._schema.TensorT(
            shape=shape, shapeSignature=signature, type=self._schema.TensorType.FLOAT32, name=name
        )
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def _number(self, value: float) -> int:
        """The tensor of a constant."""
        if value not in self._numbers:
            self._numbers[value] = self._tensor(f"{value:g}", np.zeros(0, np.int32))
            self._model.store(self._graph.tensors[-1], np.array(value, np.float32))
        return self._numbers[value]

    def _code(self, number: int) -> int:
        codes = self._model.root.operatorCodes
        for at, code in enumerate(codes):
            if code.builtinCode == number and not code.customCode:
                return at
        code = self._schema.OperatorCodeT(builtinCode=number, deprecatedBuiltinCode=number)
        codes.append(code)
        return len(codes) - 1


def _integers(data: Any, kind: int) -> np.ndarray:
    """The integers of a constant."""
    octets = np.asarray(data, np.uint8)
    if kind in _SUMS:
        return octets.view(_SUMS[kind])
    dtype, is_unsigned = TYPES[kind]
    if dtype is DType.INT4:
        halves = np.stack([octets & 15, octets >> 4], -1).reshape(-1).astype(np.int8)
        return np.where(halves > 7, halves - 16, halves)
    return octets.view(f"{'u' if is_unsigned else 'i'}{dtype.bits // 8}")


def _real(integers: np.ndarray, tensor: Any, own: Any) -> np.ndarray:
    """The real numbers of a constant."""
    shape = tuple(int(size) for size in all_of(tensor.shape))
    integers = integers[: math.prod(shape)].reshape(shape).astype(np.int64)
    scale, zero_point = (np.asarray(all_of(each)) for each in (own.scale, own.zeroPoint))
    if scale.size > 1:
        along = [1] * len(shape)
        along[own.quantizedDimension] = -1
        scale = scale.reshape(along)
        zero_point = zero_point.reshape(along) if zero_point.size > 1 else zero_point
    offset = zero_point if zero_point.size else 0
    return np.asarray((integers - offset) * scale.astype(np.float64), np.float32)
