"""What the C functions of the recurrent layers share; `Kind` has what tells them apart."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from tosajax.hifi._memory import elements, pointer, target_of
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.kernels._check import check_type, integer
from tosajax.hifi.layers import _handle
from tosajax.hifi.layers import shape as shapes
from tosajax.hifi.layers._handle import BUFFER, STRUCT, Handle, align16, check_pointers
from tosajax.hifi.layers._recurrent import RecurrentConfig
from tosajax.hifi.layers.shape import UNKNOWN, Matrix, Shape, ShapeType, Vector

# What version 1.3 adds to each row in memory where pad is 1: elements, not bytes.
_PADDING = 16


class Coefficients(NamedTuple):
    """A pointer to a matrix or a bias, and its shape.

    Args:
      data: int16 or int8; rows of a matrix are followed by 16 elements of padding if pad is 1.
      shape: without the padding.
    """

    data: Any = None
    shape: Shape = UNKNOWN


NULL = Coefficients()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A recurrent layer, for the functions below.

    Args:
      name: as in the names of error codes.
      config: the class of configurations.
      params: the identifiers of parameters.
      weights: the NamedTuple of matrices and biases.
      matrices: the structure of pointers to matrices.
      biases: the structure of pointers to biases.
      inputs: the matrices that the input is multiplied by; all others have the state.
      contexts: the parameters that hold a state, each with its field.
      init: makes the first state.
      step: computes an output.
      persistent: bytes of persistent memory.
    """

    name: str
    config: type
    params: Any
    weights: Any
    matrices: Any
    biases: Any
    inputs: tuple[str, ...]
    contexts: Mapping[int, str]
    init: Callable[[Any], Any]
    step: Callable[..., Any]
    persistent: Callable[[Any], int]

    def code(self, name: str) -> ErrorCode:
        return ErrorCode[f"{self.name}_{name}"]


@dataclasses.dataclass(eq=False)
class RecurrentLayer:
    """A layer in persistent memory.

    Args:
      kind: GRU or LSTM.
      config: as it was initialized.
      activation: how sigmoid and tanh are computed.
      matrices: the structure of its weights, or of null pointers.
      biases: the same.
      state: a tuple of NumPy arrays.
    """

    kind: Kind
    config: Any
    activation: Any
    matrices: Any
    biases: Any
    state: Any

    @property
    def name(self) -> str:
        return self.kind.name


def persistent_size(kind: Kind, config: Any) -> int:
    """Bytes of persistent memory, or a code."""
    return _handle.check_config(kind.config, config) or kind.persistent(target_of(config))


def scratch_size(kind: Kind, config: Any) -> int:
    """Bytes of scratch memory, or a code."""
    error = _handle.check_config(kind.config, config)
    if error:
        return error
    outputs = target_of(config).out_feats
    return 16 + 3 * align16(2 * outputs) + align16(4 * outputs)


def init(kind: Kind, handle: Handle | None, config: Any) -> ErrorCode:
    """Sets a layer up."""
    error = _handle.check_init(kind.config, handle, config)
    if error or handle is None:
        return error
    config = target_of(config)
    state = jax.tree.map(np.array, kind.init(config))
    layer = RecurrentLayer(kind, config, handle.activation, kind.matrices(), kind.biases(), state)
    handle.put(layer, kind.persistent(config))
    return ErrorCode.NO_ERROR


def set_config(kind: Kind, handle: Handle | None, param_id: int, params: Any) -> ErrorCode:
    """Sets a parameter; where it returns a code, nothing has changed."""
    error = check_pointers((handle, BUFFER), (params, STRUCT))
    if error:
        return error
    layer = _handle.layer_of(handle, kind.name)
    param_id = integer(kind.name, "param_id", param_id)
    if param_id in kind.contexts:
        field = kind.contexts[param_id]
        now = getattr(layer.state, field)
        copied = elements("params", params, now.dtype, now.size).copy()
        layer.state = layer.state._replace(**{field: copied})
        return ErrorCode.NO_ERROR
    match param_id:
        case kind.params.WEIGHT:
            return _set_matrices(layer, _structure(kind.matrices, params))
        case kind.params.BIAS:
            return _set_biases(layer, _structure(kind.biases, params))
    return kind.code("CONFIG_FATAL_INVALID_PARAM_ID")


def get_config(kind: Kind, handle: Handle | None, param_id: int, params: Any) -> ErrorCode:
    """Reads a parameter."""
    error = check_pointers((handle, BUFFER), (params, STRUCT))
    if error:
        return error
    layer = _handle.layer_of(handle, kind.name)
    param_id = integer(kind.name, "param_id", param_id)
    if param_id in kind.contexts:
        now = getattr(layer.state, kind.contexts[param_id])
        elements("params", params, now.dtype, now.size)[:] = now
        return ErrorCode.NO_ERROR
    match param_id:
        case kind.params.WEIGHT:
            found = _without_shapes(layer.matrices)
        case kind.params.BIAS:
            found = _without_shapes(layer.biases)
        case kind.params.INPUT_SHAPE:
            found = shapes.vector(layer.config.in_feats)
        case kind.params.OUTPUT_SHAPE:
            found = shapes.vector(layer.config.out_feats)
        case _:
            return kind.code("CONFIG_FATAL_INVALID_PARAM_ID")
    pointer("params", params).target = found
    return ErrorCode.NO_ERROR


def process(
    kind: Kind,
    handle: Handle | None,
    scratch: Any,
    input: Any,
    output: Any,
    p_in_shape: Any,
    p_out_shape: Any,
) -> ErrorCode:
    """Computes one output and keeps the state."""
    error = _handle.check_process(handle, scratch, input, output, p_in_shape, p_out_shape)
    if error:
        return error
    layer = _handle.layer_of(handle, kind.name)
    error = _process_shapes(layer, p_in_shape, p_out_shape)
    if error:
        return error
    config, weights = layer.config, _weights(layer)
    if weights is None:
        return ErrorCode.FATAL_MEM_ALLOC
    x = elements("input", input, np.int16, config.in_feats)
    out = elements("output", output, np.int16, config.out_feats)
    known = layer.activation if isinstance(layer.activation, str) else None
    step = _compiled(kind.step, config, known)
    state, y = step(weights, layer.state, x, None if known else layer.activation)
    layer.state = jax.tree.map(np.array, state)
    out[:] = np.asarray(y)
    return ErrorCode.NO_ERROR


def pointers(kind: Kind, config: RecurrentConfig, weights: Any) -> tuple[Any, Any]:
    """The structures of pointers to the matrices, and to the biases, of some weights."""
    function = f"{kind.name.lower()}_pointers"
    check_type(function, "config", config, kind.config)
    check_type(function, "weights", weights, kind.weights)

    def of(x: Any) -> Coefficients:
        x = np.array(x)
        if x.ndim == 1:
            return Coefficients(x, shapes.vector(*x.shape))
        padded = np.pad(x, [(0, 0), (0, _PADDING * config.pad)])
        return Coefficients(padded, shapes.matrix(*x.shape))

    matrices, biases = (
        structure(*(of(getattr(weights, name)) for name in structure._fields))
        for structure in (kind.matrices, kind.biases)
    )
    return matrices, biases


def _weights(layer: RecurrentLayer) -> Any:
    """The weights that pointers lead to, and None where one is NULL."""
    config, kind = layer.config, layer.kind
    given = layer.matrices._asdict() | layer.biases._asdict()
    if any(coefficients.data is None for coefficients in given.values()):
        return None

    def of(name: str) -> np.ndarray:
        data, rows = given[name].data, config.out_feats
        if name in kind.biases._fields:
            return elements(name, data, np.int16, rows)
        columns = config.in_feats if name in kind.inputs else rows
        stride = columns + _PADDING * config.pad
        memory = elements(name, data, config.weight_type, rows * stride)
        return memory.reshape(rows, stride)[:, :columns]

    return kind.weights(*(of(name) for name in kind.weights._fields))


def _structure(kind: type, params: Any) -> Any:
    """The structure of pointers that `params` is, or leads to."""
    found = target_of(params)
    if not isinstance(found, kind):
        raise TypeError(f"params is {type(found).__name__}, expected {kind.__name__}")
    for name, coefficients in found._asdict().items():
        check_type(kind.__name__, name, coefficients, Coefficients)
        check_type(kind.__name__, f"shape of {name}", coefficients.shape, Shape)
    return found


def _set_matrices(layer: RecurrentLayer, given: Any) -> ErrorCode:
    error = check_pointers(*((matrix.data, BUFFER) for matrix in given))
    if error:
        return error
    rows = layer.config.out_feats
    for name, (_, shape) in given._asdict().items():
        columns = layer.config.in_feats if name in layer.kind.inputs else rows
        wanted = ShapeType.MATRIX, Matrix(rows, columns, columns), 1
        if (shape.shape_type, shape.dim, shape.n_shapes) != wanted:
            return ErrorCode.FATAL_INVALID_SHAPE
    layer.matrices = given
    return ErrorCode.NO_ERROR


def _set_biases(layer: RecurrentLayer, given: Any) -> ErrorCode:
    error = check_pointers(*((bias.data, BUFFER) for bias in given))
    if error:
        return error
    wanted = ShapeType.VECTOR, Vector(layer.config.out_feats)
    if any((bias.shape.shape_type, bias.shape.dim) != wanted for bias in given):
        return ErrorCode.FATAL_INVALID_SHAPE
    layer.biases = given
    return ErrorCode.NO_ERROR


def _without_shapes(given: Any) -> Any:
    """A structure of pointers as the library returns it: it keeps no shapes."""
    return type(given)(*(Coefficients(data) for data, _ in given))


def _process_shapes(layer: RecurrentLayer, p_in_shape: Any, p_out_shape: Any) -> ErrorCode:
    """Checks the lengths of vectors; sets them to what is processed."""
    config = layer.config
    names = {"p_in_shape": p_in_shape, "p_out_shape": p_out_shape}
    given = [pointer(name, p) for name, p in names.items()]
    targets = [UNKNOWN if p.target is None else p.target for p in given]
    for name, target in zip(names, targets, strict=True):
        check_type(layer.name, name, target, Shape)
    in_shape, out_shape = targets
    if any(shape.shape_type != ShapeType.VECTOR for shape in (in_shape, out_shape)):
        return ErrorCode.FATAL_INVALID_SHAPE
    if out_shape.dim.length < config.out_feats:
        return layer.kind.code("EXECUTE_FATAL_INSUFFICIENT_OUTPUT_BUFFER_SPACE")
    if in_shape.dim.length < config.in_feats:
        return layer.kind.code("EXECUTE_FATAL_INSUFFICIENT_DATA")
    for p, length in zip(given, (config.in_feats, config.out_feats), strict=True):
        p.target = dataclasses.replace(p.target, dim=Vector(length))
    return ErrorCode.NO_ERROR


@functools.cache
def _compiled(step: Any, config: Any, known: str | None) -> Callable[..., Any]:
    """A step with an activation by its name, or by coefficients, which may be arrays."""

    def run(weights: Any, state: Any, x: Any, coefficients: Any) -> Any:
        return step(config, weights, state, x, activation=known or coefficients)

    return jax.jit(run)
