"""Prepares ONNX models for torch-mlir: closed shapes, a recent opset, floats, folded constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from tosajax.io.onnx import quantized, resizes
from tosajax.report import FormatError, UnsupportedError

_OPSET = 17  # the oldest that all of torch-mlir's rules take
_WITH_NEAREST_MODE = 11  # Resize of older opsets takes the element below
_OWN_DOMAINS = ("", "ai.onnx")
_Shapes = Mapping[str, Sequence[int]]


class Prepared(NamedTuple):
    """A model that torch-mlir takes.

    Args:
      model: the model; each node has the name of its first output.
      inputs: the names of its inputs, in order.
      outputs: the names of its outputs.
      operators: the operator of each node and its name in the file, by the node's name.
      floors: the nodes that take the element below, of nearest RESIZE.
      done: what was rewritten, in words.
      version: the versions of the file's form and operators.
      producer: the program that wrote the file.
    """

    model: Any
    inputs: list[str]
    outputs: list[str]
    operators: dict[str, tuple[str, str]]
    floors: list[str]
    done: list[str]
    version: str
    producer: str


def prepared(content: bytes, batch: int | None, shapes: _Shapes, folder: Path) -> Prepared:
    """Prepares the model in a file.

    Args:
      content: the content of the file.
      batch: the size of an open first dimension of inputs.
      shapes: shapes of inputs by name.
      folder: a folder for files on the way.

    Raises:
      FormatError: the file is broken.
      UnsupportedError: an operator or a type has no TOSA; the message names it.
      ValueError: an input's shape stays open, or contradicts the file.
    """
    model = checked(content)
    opset = _opset(model)
    version = f"IR {model.ir_version}, opset {opset}"
    producer = f"{model.producer_name} {model.producer_version}".strip()
    _check_inputs(model)
    close(model, batch, shapes)
    model = raised(model)
    done = quantized.in_floats(model)
    _check_domains(model)
    model = folded(model, folder)
    resizes.simplify(model)
    operators = _named(model)
    return Prepared(
        model,
        [value.name for value in model.graph.input],
        [value.name for value in model.graph.output],
        operators,
        [node.name for node in model.graph.node if resizes.takes_floor(node)],
        done,
        version,
        producer,
    )


def checked(content: bytes) -> Any:
    """The model in a file, with inputs that are not constants.

    Raises:
      FormatError: the file is broken.
      UnsupportedError: its constants are in other files.
    """
    try:
        model = onnx.load_from_string(content)
        for tensor in model.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                raise UnsupportedError(
                    f"initializer {tensor.name!r} is in another file: save the ONNX model in one "
                    "file, as onnx.save(onnx.load(path), path) does"
                )
        _check(model)
    except UnsupportedError:
        raise
    except Exception as error:  # of protobuf, and of the checker
        lines = str(error).strip().splitlines()
        raise FormatError(f"the ONNX model is broken: {' '.join(lines[:1])}") from None
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


def _check(model: Any) -> None:
    """Checks a model, whose inputs and outputs may have no shape, as onnxruntime takes it."""
    kinds = [value.type.tensor_type for value in (*model.graph.input, *model.graph.output)]
    shapeless = [kind for kind in kinds if kind.elem_type and not kind.HasField("shape")]
    for kind in shapeless:
        kind.shape.SetInParent()
    onnx.checker.check_model(model)
    for kind in shapeless:
        kind.ClearField("shape")


def close(model: Any, batch: int | None, shapes: _Shapes) -> None:
    """Gives the inputs of a model closed shapes.

    Raises:
      ValueError: a dimension stays open, or a shape contradicts the file.
    """
    names = [value.name for value in model.graph.input]
    for name in shapes:
        if name not in names:
            listed = ", ".join(map(repr, names)) or "none"
            raise ValueError(f"shapes names {name!r}; inputs of the model: {listed}")
    for value in model.graph.input:
        _close_input(value, batch, shapes.get(value.name))
    # Others follow from these.
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


def raised(model: Any) -> Any:
    """The model in an opset of at least 17.

    Raises:
      UnsupportedError: the model's is too new, or an operator of it has no successor.
    """
    opset, newest = _opset(model), onnx.defs.onnx_opset_version()
    if opset > newest:
        raise UnsupportedError(f"opset is {opset}, onnx {onnx.__version__} knows up to {newest}")
    if opset >= _OPSET:
        return model
    try:
        model = onnx.version_converter.convert_version(model, _OPSET)
    except Exception as error:  # its errors have no class of their own
        message = str(error).strip().splitlines()[0]
        raise UnsupportedError(
            f"onnx does not raise opset {opset} to {_OPSET}: {message}"
        ) from None
    if opset < _WITH_NEAREST_MODE:
        resizes.of_old_opset(model)
    return model


def folded(model: Any, folder: Path) -> Any:
    """The model with constants folded by onnxruntime, and the shapes of all tensors.

    Raises:
      UnsupportedError: onnxruntime refuses the model.
    """
    import onnxruntime

    path = folder / "folded.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # its errors have no class of their own
        message = str(error).rpartition(" : ")[2].strip().splitlines()[0]
        raise UnsupportedError(f"onnxruntime refuses the model: {message}") from None
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    # onnxruntime declares domains that the graph does not use, and torch-mlir refuses them.
    standard = [own for own in model.opset_import if own.domain in _OWN_DOMAINS]
    del model.opset_import[:]
    model.opset_import.extend(standard)
    return model


def _opset(model: Any) -> int:
    """The version of the operators of ONNX itself."""
    versions = [own.version for own in model.opset_import if own.domain in _OWN_DOMAINS]
    return versions[0] if versions else 1


def _close_input(value: Any, batch: int | None, shape: Sequence[int] | None) -> None:
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        if shape is None:
            raise ValueError(
                f"input {value.name!r} has no shape in the ONNX model: give shapes= in Python, "
                f"--shape {value.name}=1x3x224x224 at the command line"
            )
        kind.shape.dim.extend([onnx.TensorShapeProto.Dimension() for _ in shape])
    dims = kind.shape.dim
    declared = tuple(d.dim_value if d.dim_value > 0 else -1 for d in dims)
    if shape is None:
        first = () if not declared or declared[0] > 0 or batch is None else (batch,)
        shape = (*first, *declared[len(first) :])
    if len(shape) != len(declared) or any(
        own not in (-1, size) for own, size in zip(declared, shape, strict=True)
    ):
        raise ValueError(
            f"input {value.name!r} has shape {declared}, it cannot have {tuple(shape)}"
        )
    if any(size < 1 for size in shape):
        raise ValueError(_open(value.name, shape, dims))
    for dimension, size in zip(dims, shape, strict=True):
        dimension.dim_value = int(size)


def _open(name: str, shape: Sequence[int], dims: Any) -> str:
    """The message about open dimensions."""
    numbers = [number for number, size in enumerate(shape) if size < 1]
    labels = [f"{n} ({dims[n].dim_param!r})" if dims[n].dim_param else str(n) for n in numbers]
    which = (
        f"dimension {labels[0]} of" if len(labels) == 1 else f"dimensions {', '.join(labels)} of"
    )
    example = tuple(size if size > 0 else 64 if number else 1 for number, size in enumerate(shape))
    python = f"shapes={{{name!r}: {example}}}" if numbers != [0] else "batch=1"
    option = "x".join(map(str, example))
    verb = "is" if len(labels) == 1 else "are"
    return (
        f"{which} input {name!r} {verb} open: give sizes, such as {python} in Python or "
        f"--shape {name}={option} at the command line"
    )


def _check_inputs(model: Any) -> None:
    """Refuses inputs of types that TOSA does not have.

    Raises:
      UnsupportedError: an input is no tensor, or of such a type.
    """
    types = onnx.TensorProto
    for value in model.graph.input:
        kind = value.type.tensor_type.elem_type
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(f"input {value.name!r} is not a tensor")
        if kind in (types.INT64, types.UINT64, types.UINT32, types.DOUBLE, types.STRING):
            raise UnsupportedError(
                f"input {value.name!r} is {types.DataType.Name(kind).lower()}, which TOSA 1.0 does "
                "not have: make it int32 or float32 in the ONNX model"
            )


def _check_domains(model: Any) -> None:
    """Refuses operators that are not of ONNX itself.

    Raises:
      UnsupportedError: the model has one; the message names it.
    """
    for node in model.graph.node:
        if node.domain not in _OWN_DOMAINS:
            raise UnsupportedError(
                f"operator {node.domain}.{node.op_type} of node {node.name or node.output[0]!r} "
                "is not of ONNX itself, and has no TOSA: cut this part of the ONNX model"
            )


def _named(model: Any) -> dict[str, tuple[str, str]]:
    """Gives each node the name of its first output, which locations keep."""
    operators = {}
    for number, node in enumerate(model.graph.node):
        name = next(filter(None, node.output), f"node {number}")
        operators[name] = (node.op_type, node.name or name)
        node.name = name
    return operators
