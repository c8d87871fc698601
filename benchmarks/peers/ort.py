"""Contender: onnxruntime on this processor, on an ONNX model written from the layers, or MATMUL.

Activations are uint8, 128 more than those of TOSA: onnxruntime is several times slower with int8 on
processors without AMX. QLinearConv rescales in float32, so outputs may be some steps off.
"""

# The packages of peers may be missing.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.layers import Add, AveragePool, Conv, Layer, Network, Quant, Reshape, same_padding
from benchmarks.work import DoesNotApply, Run, Work

_MICROSOFT = "com.microsoft"


def prepare(work: Work) -> Run:
    """The network, channels first; or a MATMUL of int8 by MatMulInteger."""
    if work.network is not None:
        model, inputs = network_model(work.network, work.batch or 1), _channels_first(work)
    else:
        model, inputs = _matmul_model(work), work.inputs
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [argument.name for argument in session.get_inputs()]
    feed = dict(zip(names, map(unsigned, inputs), strict=True))
    return lambda: tuple(_as_tosa(np.asarray(y)) for y in session.run(None, feed))


def unsigned(values: np.ndarray) -> np.ndarray:
    """int8 as uint8, 128 more."""
    return (values.view(np.uint8) ^ np.uint8(128)).astype(np.uint8)


def network_model(network: Network, batch: int) -> Any:
    """The network as an ONNX model on [N, C, H, W].

    Raises:
      NotImplementedError: it has layers that this file does not write.
    """
    writer = _Writer()
    quants, shapes = network.quants, network.shapes
    for n, layer in enumerate(network.layers):
        own = [(f"value_{i}", quants[i], shapes[i]) for i in layer.sources]
        writer.layer(layer, own, f"value_{n + 1}", batch)
    height, width, channels = network.shape
    result = f"value_{len(network.layers)}"
    return writer.model(
        ("value_0", (batch, channels, height, width)), (result, [None] * len(shapes[-1]))
    )


def _as_tosa(output: np.ndarray) -> np.ndarray:
    """An output with channels last; int8 for uint8, int32 unchanged."""
    if output.dtype != np.uint8:
        return output
    signed = (output ^ np.uint8(128)).view(np.int8)
    return signed.transpose(0, 2, 3, 1) if signed.ndim == 4 else signed


def _channels_first(work: Work) -> tuple[np.ndarray, ...]:
    return tuple(np.ascontiguousarray(x.transpose(0, 3, 1, 2)) for x in work.inputs)


def _matmul_model(work: Work) -> Any:
    node, tensors = work.operator, work.graph.tensors
    if node is None or node.op != "MATMUL" or tensors[node.inputs[0]].dtype.bits != 8:
        raise DoesNotApply("written from layers or an int8 MATMUL only")
    b, a_zp, b_zp = (work.constants[name] for name in node.inputs[1:])
    writer = _Writer()
    constants = map(writer.constant, (b, unsigned(a_zp[0]), b_zp[0]))
    writer.node("MatMulInteger", ["a", *constants], "y")
    shapes = (tensors[n].shape for n in (node.inputs[0], node.outputs[0]))
    return writer.model(*zip(("a", "y"), shapes, strict=True), result_type=np.int32)


class _Writer:
    """Collects nodes and initializers."""

    def __init__(self) -> None:
        import onnx

        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, values: Any) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, domain: str = "", **attributes):
        make = self._onnx.helper.make_node
        self._nodes.append(make(op, list(inputs), [output], domain=domain, **attributes))

    def layer(
        self,
        layer: Layer,
        sources: Sequence[tuple[str, Quant, tuple[int, ...]]],
        result: str,
        batch: int,
    ) -> None:
        name, quant, shape = sources[0]
        match layer:
            case Conv():
                self._conv(layer, name, quant, shape, result)
            case Add():
                terms = [x for n, q, _ in sources for x in (n, *self._quant(q))]
                self.node("QLinearAdd", [*terms, *self._quant(layer.out)], result, _MICROSOFT)
            case AveragePool():
                inputs = [name, *self._quant(quant), *self._quant(layer.out)]
                self.node("QLinearGlobalAveragePool", inputs, result, _MICROSOFT, channels_last=0)
            case Reshape() if shape[1:3] == (1, 1):  # [N, C, 1, 1] has the order of [N, 1, 1, C]
                wanted = np.asarray((batch, *layer.shape[1:]), np.int64)
                self.node("Reshape", [name, self.constant(wanted)], result)
            case _:
                raise NotImplementedError(f"writes no {type(layer).__name__}")

    def model(self, source: tuple, result: tuple, result_type: type = np.uint8) -> Any:
        """Everything, as one model; source and result are (name, shape)."""
        helper = self._onnx.helper

        def value(named: tuple, kind: type) -> Any:
            return helper.make_tensor_value_info(
                named[0], helper.np_dtype_to_tensor_dtype(np.dtype(kind)), named[1]
            )

        graph = helper.make_graph(
            *(self._nodes, "benchmark", [value(source, np.uint8)], [value(result, result_type)]),
            initializer=self._constants,
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def _conv(
        self, layer: Conv, name: str, quant: Quant, shape: Sequence[int], result: str
    ) -> None:
        # [KH, KW, C, 1] and [OC, KH, KW, IC] as [OC, IC / groups, KH, KW].
        weight = layer.weight.transpose((2, 3, 0, 1) if layer.depthwise else (0, 3, 1, 2))
        scales = layer.weight_scale.astype(np.float32)
        pads = [
            same_padding(s, k, layer.stride) for s, k in zip(shape[1:3], layer.kernel, strict=True)
        ]
        inputs = [
            *(name, *self._quant(quant)),
            *map(self.constant, (weight, scales, np.zeros(scales.size, np.int8))),
            *(*self._quant(layer.out), self.constant(layer.bias)),
        ]
        self.node(
            "QLinearConv",
            inputs,
            result,
            group=shape[3] if layer.depthwise else 1,
            strides=[layer.stride] * 2,
            pads=[p for side in zip(*pads, strict=True) for p in side],
            kernel_shape=list(layer.kernel),
        )

    def _quant(self, quant: Quant) -> tuple[str, str]:
        scale, zero_point = np.float32(quant.scale), np.uint8(quant.zero_point + 128)
        return self.constant(scale), self.constant(zero_point)
