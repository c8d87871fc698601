"""Changes to a TFLite file before it is converted, after which it computes the same.

The converter takes dense constants, built-in operators and closed shapes. MediaPipe's files store
weights in float16 behind a DEQUANTIZE each, some of them sparse, and call a transposed convolution
with a bias a custom operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.graph import Rewrite
from tosajax.io import programs
from tosajax.io.tflite import sparse
from tosajax.io.tflite.schema import IDENTIFIER
from tosajax.report import FormatError, UnsupportedError

_EXTRA = "from-tflite"
_CUSTOM = b"Convolution2DTransposeBias"
# The most elements of all dense constants that sparse ones become: a small file may ask for many.
_MOST_DENSE, _MOST_DENSE_PER_BYTE = 1 << 25, 32
_INDEX_TYPES = (np.int32, np.int32, np.uint16, np.uint8)  # by the number of the vector's type
OPEN = -1
BROKEN = (ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError)


class OpenInput(NamedTuple):
    """An input whose shape is open in part.

    Args:
      shape: the shape in the file.
      signature: the same, with OPEN where other sizes are allowed.
    """

    shape: tuple[int, ...]
    signature: tuple[int, ...]

    def allows(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.signature) and all(
            own in (OPEN, size) for own, size in zip(self.signature, shape, strict=True)
        )

    def of_batch(self, batch: int) -> tuple[int, ...]:
        """The shape with this size of the first dimension, if that is open."""
        return (batch, *self.shape[1:]) if self.signature[0] == OPEN else self.shape


class Model:
    """A TFLite model as objects of its schema.

    Args:
      data: the content of a file that `schema.checked` accepts.

    Raises:
      FormatError: the options of an operator are broken.
      ImportError: the package of the schema is not installed.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self.schema = _schema()
        self.rewrites: list[Rewrite] = []
        self._room = min(_MOST_DENSE, (1 << 20) + _MOST_DENSE_PER_BYTE * len(data))
        try:
            self.root = self.schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
        except Exception as error:  # flatbuffers reads numbers wherever an offset points to
            raise FormatError(f"the TFLite model is broken: {error}") from None
        for code in self.root.operatorCodes or ():
            # Old files have the operator's number in another field.
            code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)

    @property
    def main(self) -> Any:
        return self.root.subgraphs[0]

    @property
    def open_inputs(self) -> dict[str, OpenInput]:
        """The inputs that have open dimensions, by name."""
        ends = {
            name_of(tensor): OpenInput(*(tuple(map(int, all_of(n))) for n in _sizes(tensor)))
            for tensor in self._inputs
        }
        return {name: end for name, end in ends.items() if OPEN in end.signature}

    @property
    def _inputs(self) -> list[Any]:
        return [self.main.tensors[index] for index in all_of(self.main.inputs)]

    def content(self) -> bytes:
        """The content of a file with the model."""
        import flatbuffers

        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self.root.Pack(builder), IDENTIFIER)
        return bytes(builder.Output())

    def close(self, shapes: Mapping[str, Sequence[int]] | None = None) -> None:
        """Gives inputs shapes, by name, or leaves them as the file has them, and closes them.

        If a shape is not the file's, tensors whose shape is open stay open for the converter, which
        infers them.
        """
        changed = False
        for tensor in self._inputs:
            shape = (shapes or {}).get(name_of(tensor))
            tensor.shapeSignature = None
            if shape is not None and list(shape) != list(all_of(tensor.shape)):
                tensor.shape, changed = np.array(shape, np.int32), True
        for graph in self.root.subgraphs:
            for tensor in graph.tensors or ():
                if not changed:
                    tensor.shapeSignature = None

    def simplify(self) -> None:
        """Makes constants dense and float32, and MediaPipe's operator a built-in one.

        Raises:
          FormatError: a sparse constant is broken.
        """
        for graph in self.root.subgraphs:
            sparse_ones = [t for t in graph.tensors or () if t.sparsity is not None]
            for tensor in sparse_ones:
                self._make_dense(tensor)
            if sparse_ones:
                self._note(f"{len(sparse_ones)} sparse constants", "dense")
            self._fold(graph)
            self._narrow_indices(graph)
        self._replace_custom_operator()

    def refuse_custom(self) -> None:
        """Refuses custom operators.

        Raises:
          UnsupportedError: the model has one; the message names it and its result.
        """
        for graph in self.root.subgraphs:
            for operator in graph.operators or ():
                code = self.root.operatorCodes[operator.opcodeIndex]
                if code.builtinCode == self.schema.BuiltinOperator.CUSTOM:
                    name = (code.customCode or b"").decode("utf-8", "replace")
                    results = [name_of(graph.tensors[n]) for n in all_of(operator.outputs)]
                    raise UnsupportedError(
                        f"custom operator {name!r} of tensor {', '.join(map(repr, results[:4]))} "
                        "has no TOSA: cut the TFLite model before it, and compute it outside"
                    )

    def _make_dense(self, tensor: Any) -> None:
        """Stores the values of a sparse constant as a dense one.

        Raises:
          FormatError: the sparsity is broken.
          UnsupportedError: the constants become too large.
        """
        kind = self._type(tensor)
        shape = [int(size) for size in all_of(tensor.shape)]
        self._room -= math.prod(shape)
        if self._room < 0:
            message = f"sparse constant {name_of(tensor)!r} has shape {shape}"
            raise UnsupportedError(f"{message}, too large for a file of this size")
        try:
            stored = np.asarray(self.root.buffers[tensor.buffer].data, np.uint8).view(kind)
            sparsity, tensor.sparsity = tensor.sparsity, None
            values = sparse.dense(
                stored,
                shape,
                [int(dimension) for dimension in all_of(sparsity.traversalOrder)],
                [int(dimension) for dimension in all_of(sparsity.blockMap)],
                [_level(dimension) for dimension in sparsity.dimMetadata or ()],
            )
        except BROKEN as error:
            raise FormatError(f"sparse constant {name_of(tensor)!r}: {error}") from None
        self.store(tensor, values)

    def _type(self, tensor: Any) -> Any:
        """The type of the elements of a sparse constant.

        Raises:
          UnsupportedError: it is another one than those of weights.
        """
        types = self.schema.TensorType
        known = {types.FLOAT32: np.float32, types.FLOAT16: np.float16, types.INT8: np.int8}
        if tensor.type not in known:
            message = f"sparse constant {name_of(tensor)!r} has elements of type {tensor.type}"
            raise UnsupportedError(f"{message}, expected float32, float16 or int8")
        return known[tensor.type]

    def _fold(self, graph: Any) -> None:
        """Computes what DENSIFY, and DEQUANTIZE of float16, make of constants."""
        operators = self.schema.BuiltinOperator
        kept, count = [], 0
        for operator in graph.operators or ():
            code = self.root.operatorCodes[operator.opcodeIndex].builtinCode
            source, result = self._constant_and_result(graph, operator)
            if code == operators.DENSIFY and source is not None:
                result.buffer = source.buffer
            elif code == operators.DEQUANTIZE and source is not None and self._is_half(source):
                data = self.root.buffers[source.buffer].data
                self.store(result, np.asarray(data, np.uint8).view(np.float16).astype(np.float32))
                count += 1
            else:
                kept.append(operator)
        graph.operators = kept
        if count:
            self._note(f"{count} constants of float16", "float32, which DEQUANTIZE made of them")

    def _narrow_indices(self, graph: Any) -> None:
        """Gives indices int32 in place of int64, where only CAST or the caller reads them."""
        operators, types = self.schema.BuiltinOperator, self.schema.TensorType
        codes = [self.root.operatorCodes[o.opcodeIndex].builtinCode for o in graph.operators]
        pairs = list(zip(codes, graph.operators, strict=True))
        read = [n for code, o in pairs if code != operators.CAST for n in all_of(o.inputs)]
        for code, operator in pairs:
            if code not in (operators.ARG_MAX, operators.ARG_MIN) or operator.outputs[0] in read:
                continue
            result = graph.tensors[operator.outputs[0]]
            if result.type == types.INT64 and operator.builtinOptions is not None:
                result.type = operator.builtinOptions.outputType = types.INT32
                self._note(f"tensor {name_of(result)!r}", "int32; it is int64 in the file")

    def _constant_and_result(self, graph: Any, operator: Any) -> tuple[Any, Any]:
        """The first input, if it is a constant, and the first result of an operator."""
        inputs, outputs = all_of(operator.inputs), all_of(operator.outputs)
        if not len(inputs) or not len(outputs) or inputs[0] < 0:
            return None, None
        source = graph.tensors[inputs[0]]
        data = self.root.buffers[source.buffer].data
        is_constant = data is not None and len(data) > 0
        return (source if is_constant else None), graph.tensors[outputs[0]]

    def _is_half(self, tensor: Any) -> bool:
        return tensor.type == self.schema.TensorType.FLOAT16

    def store(self, tensor: Any, values: np.ndarray) -> None:
        """Gives a tensor a constant value."""
        data = np.frombuffer(values.tobytes(), np.uint8)
        tensor.buffer = len(self.root.buffers)
        self.root.buffers.append(self.schema.BufferT(data=data))

    def _replace_custom_operator(self) -> None:
        """Makes MediaPipe's transposed convolution TRANSPOSE_CONV, whose options it shares."""
        codes = self.root.operatorCodes or ()
        wanted = [number for number, code in enumerate(codes) if code.customCode == _CUSTOM]
        for graph in self.root.subgraphs:
            for operator in graph.operators or ():
                if operator.opcodeIndex in wanted:
                    self._replace(graph, operator)
        for code in (codes[number] for number in wanted):
            code.customCode = None
            code.builtinCode = self.schema.BuiltinOperator.TRANSPOSE_CONV
            # The version with a bias.
            code.deprecatedBuiltinCode, code.version = code.builtinCode, 3

    def _replace(self, graph: Any, operator: Any) -> None:
        try:
            options = np.asarray(operator.customOptions, np.uint8).view(np.int32)
            padding, width, height = (int(number) for number in options[:3])
            image, weight, bias = operator.inputs
            (result,) = (graph.tensors[index] for index in operator.outputs)
        except BROKEN as error:
            raise FormatError(f"custom operator {_CUSTOM.decode()}: {error}") from None
        operator.builtinOptionsType = self.schema.BuiltinOptions.TransposeConvOptions
        # The C enumeration counts padding from 1 (same, valid), the schema from 0.
        operator.builtinOptions = self.schema.TransposeConvOptionsT(
            padding=padding - 1, strideW=width, strideH=height
        )
        operator.customOptions = None
        shape = self.schema.TensorT(
            shape=[len(result.shape)],
            type=self.schema.TensorType.INT32,
            name=f"shape of {name_of(result)}",
        )
        self.store(shape, np.asarray(result.shape, np.int32))
        graph.tensors.append(shape)
        operator.inputs = [len(graph.tensors) - 1, weight, image, bias]
        self._note(f"{_CUSTOM.decode()} {name_of(result)!r}", "TRANSPOSE_CONV with a bias")

    def _note(self, place: str, done: str) -> None:
        self.rewrites.append(Rewrite(place, done))


def plain(content: bytes) -> bytes:
    """The file with dense constants in float32, built-in operators and closed shapes."""
    model = Model(content)
    model.simplify()
    model.close()
    return model.content()


def _schema() -> Any:
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError:
        raise programs.missing("ai-edge-litert", _EXTRA) from None
    return schema_py_generated


def name_of(tensor: Any) -> str:
    name = tensor.name or b""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _sizes(tensor: Any) -> tuple[Any, Any]:
    """A tensor's shape, and the same with OPEN where it is open."""
    shape = tensor.shape
    return shape, shape if tensor.shapeSignature is None else tensor.shapeSignature


def all_of(indices: Any) -> Any:
    """A vector, which a file may leave out."""
    return () if indices is None else indices


def _level(dimension: Any) -> sparse.Level:
    """A level of a sparse constant's tree."""
    if dimension.format == 0:
        return sparse.Level(int(dimension.denseSize), np.zeros(0), np.zeros(0))
    vectors = (
        (dimension.arraySegmentsType, dimension.arraySegments),
        (dimension.arrayIndicesType, dimension.arrayIndices),
    )
    segments, indices = _vectors(vectors)
    return sparse.Level(None, segments, indices)


def _vectors(pairs: Sequence[tuple[int, Any]]) -> Iterator[np.ndarray]:
    for kind, vector in pairs:
        yield np.asarray(vector.values, _INDEX_TYPES[kind]).astype(np.int64)
