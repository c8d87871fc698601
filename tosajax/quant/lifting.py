"""lift: trains a graph of integers without a float model and without scales."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import spec
from tosajax.arguments.types import check_type
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.qtensor import QTensor
from tosajax.graph import Graph, Node, Tensor, arguments
from tosajax.graph.edit import unused
from tosajax.lowering.build import to_device
from tosajax.passes.turns import turns
from tosajax.quant.model.plan import Options, Plan
from tosajax.quant.model.recipes import Params, Recipe, computed_once
from tosajax.quant.qmodel import LiftedModel
from tosajax.quant.qparams import unchecked_multiplier_and_shift
from tosajax.report import UnsupportedError
from tosajax.spec import Kind
from tosajax.validation import validate

GROUPS = ("weights", "bias", "rescale", "table")
# A choice: these operands stay as they are, as they set how an operator computes.
_NOT_TRAINED = ("_zp", "multiplier", "shift", "pad_const", "indices")
_HALF_EVEN = lax.RoundingMethod.TO_NEAREST_EVEN


def lift(
    graph: Graph,
    trainable: str | Collection[str] = GROUPS,
    *,
    estimator: Estimator = clipped_ste,
    overrides: Mapping[str, Estimator] | None = None,
    max_trip_count: int | None = None,
) -> tuple[LiftedModel, Params]:
    """Makes the constants of an integer graph parameters, in units of their own last bit.

    Before training, the model and the graph have the same results, to the last bit.

    Args:
      graph: legal, every dimension known; of integers.
      trainable: some of "weights" (int4, int8 and int16), "bias" (int32 and int48), "rescale"
        (multipliers) and "table".
      estimator: the surrogate derivative of rounding and saturation.
      overrides: other estimators, by operator.
      max_trip_count: see `prepare`; without it a WHILE_LOOP whose inputs decide on its turns has no
        gradients. Constants inside loops and branches stay as they are.

    Returns:
      model: its `apply` takes integers for the inputs, and returns integers as float32.
      params: float32 arrays by group and tensor name: weights and tables themselves, addends of
        biases and relative changes of scales, at first 0.

    Raises:
      TosaError: the graph is illegal.
      UnsupportedError: the graph has variables, or no constant that is trainable.
      TypeError: an argument is of another type.
      ValueError: a group is unknown.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import quant
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 2))
      >>> table = b.const(np.arange(-128, 128), tosajax.DType.INT8, name="t")
      >>> graph = b.graph([b.op("TABLE", x, table)])
      >>> model, params = quant.lift(graph)
      >>> {group: list(values) for group, values in params.items() if values}
      {'table': ['t']}
      >>> model.apply(params, np.int8([[3, 4]]))[0].tolist()
      [[3.0, 4.0]]
    """
    check_type("graph", graph, Graph, "a Graph, as `tosajax.load` gives it")
    trainable = (trainable,) if isinstance(trainable, str) else trainable
    if unknown := set(trainable) - set(GROUPS):
        raise ValueError(f"trainable {sorted(unknown)}, expected some of {', '.join(GROUPS)}")
    validate(graph).raise_errors()
    if any(node.op == "VARIABLE" for part in graph.walk() for node in part.nodes):
        raise UnsupportedError(f"graph {graph.name!r} has variables, which cannot be trained")
    graph = _with_own_scales(graph)
    recipes: dict[str, Recipe] = {}
    params: Params = {group: {} for group in GROUPS if group in trainable}
    for node in graph.nodes:
        for name, recipe in _recipes(node, graph.tensors):
            if recipe.group in params:
                recipes[name] = recipe
                params[recipe.group][recipe.name] = recipe.initial()
    if not recipes:
        raise UnsupportedError(
            f"graph {graph.name!r} has no constant of {', '.join(trainable)} to train"
        )
    options = Options(max_trip_count=max_trip_count)
    plan = Plan(recipes=recipes, turns=turns(graph), options=options)
    return LiftedModel(graph, plan, estimator, overrides or {}), params


@dataclasses.dataclass(frozen=True, eq=False)
class _Integers:
    """Small integers, which float32 holds; rounded, ties to even."""

    group: str
    name: str
    tensor: Tensor

    def initial(self) -> jax.Array:
        return jnp.asarray(_values(self.tensor).astype(np.float32))

    def __call__(self, params: Params) -> QTensor:
        value, dtype = params[self.group][self.name], self.tensor.dtype
        # A byte of INT8 that stands for an unsigned integer has the same range.
        ends = float(dtype.minimum), float(dtype.maximum)
        integers = jnp.clip(lax.round(lax.stop_gradient(value), _HALF_EVEN), *ends)
        return computed_once(QTensor(integers.astype(dtype.storage), clipped_ste(value, *ends)))


@dataclasses.dataclass(frozen=True, eq=False)
class _Change:
    """Large integers plus a trained addend."""

    group: str
    name: str
    tensor: Tensor

    def initial(self) -> jax.Array:
        return jnp.zeros(self.tensor.shape, jnp.float32)

    def __call__(self, params: Params) -> QTensor:
        change = params[self.group][self.name]
        dtype, base = self.tensor.dtype, _values(self.tensor)
        limit = 1 << 30
        room = [end - base.astype(np.int64) for end in (dtype.minimum, dtype.maximum)]
        low, high = (np.clip(r, -limit, limit).astype(np.int32) for r in room)
        rounded = lax.round(lax.stop_gradient(change), _HALF_EVEN)
        step = jnp.clip(rounded, -float(limit), float(limit)).astype(jnp.int32)
        step = jnp.clip(step, jnp.asarray(low), jnp.asarray(high))
        shadow = change + jnp.asarray(base.astype(np.float32))
        if dtype is DType.INT32:
            return computed_once(QTensor(jnp.asarray(base) + step, shadow))
        with _x64.scope():
            return QTensor(to_device(base, dtype) + _x64.widen(step), shadow)


@dataclasses.dataclass(frozen=True, eq=False)
class _Rescale:
    """The multiplier of a RESCALE, or its shift; the graph's own until the scale changes."""

    group: str
    name: str
    multiplier: Tensor
    shift: Tensor
    is_shift: bool

    def initial(self) -> jax.Array:
        return jnp.zeros(self.multiplier.shape, jnp.float32)

    def __call__(self, params: Params) -> QTensor:
        change = params[self.group][self.name]
        multiplier, shift = _values(self.multiplier), _values(self.shift)
        scale = np.ldexp(multiplier.astype(np.float32), -shift.astype(np.int32))
        factor = jnp.maximum(1 + change, _SMALLEST)
        changed = unchecked_multiplier_and_shift(
            jnp.asarray(scale) * factor, scale32=self.multiplier.dtype is DType.INT32
        )
        is_unchanged = (change == 0) | jnp.asarray(multiplier == 0)
        if self.is_shift:
            return computed_once(
                QTensor.of(jnp.where(is_unchanged, jnp.asarray(shift), changed[1]))
            )
        integers = jnp.where(is_unchanged, jnp.asarray(multiplier), changed[0].q)
        return computed_once(QTensor(integers, changed[0].shadow))


_SMALLEST = 2.0**-10


def _recipes(node: Node, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Any]]:
    """The constants of a node that can be trained."""
    if node.op == "RESCALE":
        multiplier, shift = (tensors[name] for name in node.inputs[1:3])
        if multiplier.values is not None and shift.values is not None:
            for tensor in (multiplier, shift):
                of_shift = tensor is shift
                yield (
                    tensor.name,
                    _Rescale("rescale", multiplier.name, multiplier, shift, of_shift),
                )
    for argument, name in arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT).items():
        for each in name if isinstance(name, tuple) else (name,):
            tensor = tensors[each]
            if tensor.values is None or argument.endswith(_NOT_TRAINED):
                continue
            if argument == "table":
                yield each, _Integers("table", each, tensor)
            elif tensor.dtype in (DType.INT4, DType.INT8, DType.INT16):
                yield each, _Integers("weights", each, tensor)
            elif tensor.dtype in (DType.INT32, DType.INT48):
                yield each, _Change("bias", each, tensor)


def _values(tensor: Tensor) -> np.ndarray:
    assert tensor.values is not None
    return tensor.values


def _with_own_scales(graph: Graph) -> Graph:
    """Constant multipliers and shifts that several nodes read, once for each of them."""
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        if node.op == "RESCALE":
            names = list(node.inputs)
            for position, role in ((1, "multiplier"), (2, "shift")):
                tensor = tensors[names[position]]
                if readers[tensor.name] > 1 and tensor.values is not None:
                    own = unused(f"{node.outputs[0]}/{role}", tensors)
                    tensors[own] = dataclasses.replace(tensor, name=own)
                    nodes.append(Node("CONST", (), (own,)))
                    names[position] = own
            node = dataclasses.replace(node, inputs=tuple(names))
        nodes.append(node)
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes))
