"""Small ONNX models, and what onnxruntime computes for them."""

# The packages are in an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

node = helper.make_node


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[int | str | None] | None],
    outputs: Mapping[str, int],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
    domain: str = "",
) -> bytes:
    """The content of a file.

    Args:
      nodes: the operators.
      inputs: shapes of the inputs, of type `kind`; None without a shape.
      outputs: types of the outputs.
      constants: arrays, and tensors of ONNX.
      opset: the version of the operators.
      kind: the type of the inputs.
      domain: another domain of operators.
    """
    ends = (
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, type_, None) for name, type_ in outputs.items()],
    )
    tensors = [
        numpy_helper.from_array(np.asarray(value), name) if not hasattr(value, "dims") else value
        for name, value in (constants or {}).items()
    ]
    graph = helper.make_graph(list(nodes), "main", *ends, tensors)
    versions = [helper.make_opsetid("", opset)]
    versions += [helper.make_opsetid(domain, 1)] if domain else []
    made = helper.make_model(graph, opset_imports=versions, producer_name="a test")
    made.ir_version = 10
    return made.SerializeToString()


def run(content: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """The outputs that onnxruntime computes, node by node."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options)
    names = [each.name for each in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))
