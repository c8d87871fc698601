"""Makes the C functions of the recurrent layers from a `Recurrent`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np

from tosajax.hifi.capi.layers._functions import Activation, Declaration, Params, functions
from tosajax.hifi.capi.memory import (
    BUFFER,
    Layout,
    Memory,
    Pointer,
    check_pointers,
    elements,
    pointer,
    target_of,
)
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.kernels._check import check_type
from tosajax.hifi.kernels._padding import round_up
from tosajax.hifi.layers._recurrent import RecurrentConfig
from tosajax.hifi.layers.shape import UNKNOWN, Shape, ShapeType, Vector, matrix, vector

# The elements (not bytes) that version 1.3 adds to each row in memory if pad is 1.
_PADDING = 16
_Config = TypeVar("_Config", bound=RecurrentConfig)


class Coefficients(NamedTuple):
    """A pointer to a matrix or a bias, and its shape.

    Args:
      data: memory of int16 or int8; if pad is 1, 16 elements of padding follow each row.
      shape: the shape without the padding.
    """

    data: Memory = None
    shape: Shape = UNKNOWN


NULL = Coefficients()


@dataclasses.dataclass(frozen=True)
class Recurrent(Generic[_Config]):
    """The declaration of a recurrent layer, from which its C functions are made.

    Args:
      name: the name in error codes.
      config: the class of its configurations.
      weights: the NamedTuple of its matrices and biases.
      gates: for each gate the names of the input's matrix, the state's matrix, and the bias.
      init: function that makes the initial state.
      step: function that computes an output.
      contexts: the parameters for states, with the name of the state's field.
      structures: the parameters for weights, with their NamedTuple of Coefficients.
      lengths: the parameters that are shapes, with the name of the length's field.
      persistent: bytes of persistent memory in addition to the state.
    """

    name: str
    config: type[_Config]
    weights: Any
    gates: tuple[tuple[str, str, str], ...]
    init: Callable[[_Config], Any]
    step: Callable[..., Any]
    contexts: Mapping[int, str]
    structures: Mapping[int, Any]
    lengths: Mapping[int, str]
    persistent: int

    def functions(self):
        """Makes the C functions; see `_functions.functions`."""
        return functions(
            Declaration(self.name, self.config, self._persistent, _scratch, self._start)
        )

    def pointers(self, config: _Config, weights: Any) -> tuple[Any, ...]:
        """Makes the structures of pointers to weights, with the configuration's memory layout."""
        function = f"{self.name.lower()}_pointers"
        check_type(function, "config", config, self.config)
        check_type(function, "weights", weights, self.weights)

        def of(name: str) -> Coefficients:
            x = np.array(getattr(weights, name))
            if x.ndim == 1:
                return Coefficients(x, vector(*x.shape))
            return Coefficients(_layout(config, x.shape).pack(x), matrix(*x.shape))

        return tuple(kind(*map(of, kind._fields)) for kind in self.structures.values())

    def shape_of(self, config: _Config, name: str) -> tuple[int, ...]:
        """The shape of a matrix or a bias."""
        of_x, _, biases = zip(*self.gates, strict=True)
        if name in biases:
            return (config.out_feats,)
        return config.out_feats, config.in_feats if name in of_x else config.out_feats

    def code(self, name: str) -> ErrorCode:
        return ErrorCode[f"{self.name}_{name}"]

    def _persistent(self, config: _Config) -> int:
        state = sum(round_up(x.nbytes, 16) for x in self.init(config))
        return self.persistent + state

    def _start(self, config: _Config, activation: Activation) -> _Layer[_Config]:
        state = jax.tree.map(np.array, self.init(config))
        null = {param: kind() for param, kind in self.structures.items()}
        return _Layer(self, config, activation, state, null)


@dataclasses.dataclass(eq=False)
class _Layer(Generic[_Config]):
    """A layer in persistent memory.

    Args:
      kind: the declaration of GRU or LSTM.
      config: the configuration passed to init.
      activation: the method of computing sigmoid and tanh.
      state: a NamedTuple of NumPy arrays.
      structures: the structures of pointers, or of null pointers, by parameter.
    """

    kind: Recurrent[_Config]
    config: _Config
    activation: Activation
    state: Any
    structures: dict[int, Any]

    @property
    def name(self) -> str:
        return self.kind.name

    def set(self, param_id: int, params: Params) -> ErrorCode:
        if param_id in self.kind.contexts:
            field = self.kind.contexts[param_id]
            copied = self._context(field, params).copy()
            self.state = self.state._replace(**{field: copied})
            return ErrorCode.NO_ERROR
        if param_id not in self.structures:
            return self.kind.code("CONFIG_FATAL_INVALID_PARAM_ID")
        structure = _structure(self.kind.structures[param_id], params)
        error = check_pointers(*((x.data, BUFFER) for x in structure))
        if error:
            return error
        if not all(self._fits(name, x.shape) for name, x in structure._asdict().items()):
            return ErrorCode.FATAL_INVALID_SHAPE
        self.structures[param_id] = structure
        return ErrorCode.NO_ERROR

    def get(self, param_id: int, params: Params) -> ErrorCode:
        if param_id in self.kind.contexts:
            field = self.kind.contexts[param_id]
            self._context(field, params)[:] = getattr(self.state, field)
            return ErrorCode.NO_ERROR
        if param_id in self.structures:
            structure = self.structures[param_id]
            # The library stores pointers, but not shapes.
            target = type(structure)(*(Coefficients(x.data) for x in structure))
        elif param_id in self.kind.lengths:
            target = vector(getattr(self.config, self.kind.lengths[param_id]))
        else:
            return self.kind.code("CONFIG_FATAL_INVALID_PARAM_ID")
        pointer("params", params).target = target
        return ErrorCode.NO_ERROR

    def process(
        self,
        input: Memory,
        output: Memory,
        p_in_shape: Pointer | Shape | None,
        p_out_shape: Pointer | None,
    ) -> ErrorCode:
        error = self._process_shapes(p_in_shape, p_out_shape)
        if error:
            return error
        config, weights = self.config, self._weights()
        if weights is None:
            return ErrorCode.FATAL_MEM_ALLOC
        x = elements("input", input, np.int16, config.in_feats)
        out = elements("output", output, np.int16, config.out_feats)
        static = self.activation if isinstance(self.activation, str) else None
        step = _compiled(self.kind.step, config, static)
        state, y = step(weights, self.state, x, None if static else self.activation)
        self.state = jax.tree.map(np.array, state)
        out[:] = np.asarray(y)
        return ErrorCode.NO_ERROR

    def _context(self, field: str, params: Params) -> np.ndarray:
        """Checks the memory from which a state is read, or to which it is written."""
        now = getattr(self.state, field)
        return elements("params", params, now.dtype, now.size)

    def _fits(self, name: str, shape: Shape) -> bool:
        """Whether a shape matches a weight's; the library ignores n_shapes of vectors."""
        size = self.kind.shape_of(self.config, name)
        wanted = vector(*size) if len(size) == 1 else matrix(*size)
        counts = len(size) == 1 or shape.n_shapes == 1
        return counts and (shape.shape_type, shape.dim) == (wanted.shape_type, wanted.dim)

    def _weights(self) -> Any:
        """Reads the weights from memory; None if a pointer is NULL."""
        kind, pointers = self.kind, {}
        for structure in self.structures.values():
            pointers |= structure._asdict()
        if any(x.data is None for x in pointers.values()):
            return None

        def of(name: str) -> np.ndarray:
            data, shape = pointers[name].data, kind.shape_of(self.config, name)
            if len(shape) == 1:
                return elements(name, data, np.int16, *shape)
            return _layout(self.config, shape).unpack(name, data, self.config.weight_type)

        return kind.weights(*map(of, kind.weights._fields))

    def _process_shapes(self, p_in_shape: object, p_out_shape: object) -> ErrorCode:
        """Checks the lengths of vectors, and sets them to in_feats and out_feats."""
        config = self.config
        names = {"p_in_shape": p_in_shape, "p_out_shape": p_out_shape}
        pointers = [pointer(name, p) for name, p in names.items()]
        targets = [UNKNOWN if p.target is None else p.target for p in pointers]
        for name, target in zip(names, targets, strict=True):
            check_type(self.name, name, target, Shape)
        in_shape, out_shape = targets
        if any(shape.shape_type != ShapeType.VECTOR for shape in (in_shape, out_shape)):
            return ErrorCode.FATAL_INVALID_SHAPE
        if out_shape.dim.length < config.out_feats:
            return self.kind.code("EXECUTE_FATAL_INSUFFICIENT_OUTPUT_BUFFER_SPACE")
        if in_shape.dim.length < config.in_feats:
            return self.kind.code("EXECUTE_FATAL_INSUFFICIENT_DATA")
        for p, length in zip(pointers, (config.in_feats, config.out_feats), strict=True):
            p.target = dataclasses.replace(p.target, dim=Vector(length))
        return ErrorCode.NO_ERROR


def _scratch(config: RecurrentConfig) -> int:
    outputs = config.out_feats
    return 16 + 3 * round_up(2 * outputs, 16) + round_up(4 * outputs, 16)


def _layout(config: RecurrentConfig, shape: tuple[int, ...]) -> Layout:
    return Layout(shape, 1, shape[-1] + _PADDING * config.pad)


def _structure(kind: type, params: Params) -> Any:
    """Returns the structure of pointers `params`, or the target of the Pointer `params`."""
    structure = target_of(params)
    if not isinstance(structure, kind):
        raise TypeError(f"params is {type(structure).__name__}, expected {kind.__name__}")
    for name, x in structure._asdict().items():
        check_type(kind.__name__, name, x, Coefficients)
        check_type(kind.__name__, f"shape of {name}", x.shape, Shape)
    return structure


@functools.cache
def _compiled(step: Any, config: Any, name: str | None) -> Callable[..., Any]:
    """Compiles a step; the activation is the static name `name`, or traced coefficients."""

    def run(weights: Any, state: Any, x: Any, coefficients: Any) -> Any:
        return step(config, weights, state, x, activation=name or coefficients)

    return jax.jit(run)
