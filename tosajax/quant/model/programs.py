"""Programs of a model: graphs as functions, and functions compiled, each made at first use."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.grad.kernels import kernels
from tosajax.grad.qtensor import QTensor
from tosajax.graph import Graph
from tosajax.graph.edit import unused
from tosajax.lowering.build import build
from tosajax.lowering.run import GraphFunction

if TYPE_CHECKING:
    from tosajax.quant.qmodel import PreparedModel, QModel

_T = TypeVar("_T")
_Model = TypeVar("_Model", bound="QModel")


class Programs:
    """Values made from one model, by key. Pickled, it is empty: compiled code stays behind."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """The value of a key, which is made if there is none."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def clear(self) -> None:
        """Lets go of all values; those that are needed again are made again."""
        self._made.clear()

    def __reduce__(self) -> tuple[type[Programs], tuple[()]]:
        return Programs, ()


def once(function: Callable[[_Model], _T]) -> Callable[[_Model], _T]:
    """A function of a model that is called once for each, and whose result the model keeps."""

    @functools.wraps(function)
    def call(model: _Model) -> _T:
        return model.programs.once(function, lambda: function(model))

    return call


def jitted(model: QModel, function: Callable[..., _T], **static: Hashable) -> Callable[..., _T]:
    """A function of a model and of arrays in `jax.jit`, for this model: traced once.

    Args:
      model: its first argument.
      function: a function of the model, arrays and keywords.
      static: these keywords.
    """
    key = function, *sorted(static.items())
    return model.programs.once(key, lambda: jax.jit(functools.partial(function, model, **static)))


class Program(NamedTuple):
    """A graph as a function of its constants, and the constants that no parameter changes."""

    run: GraphFunction
    constants: dict[str, jax.Array | QTensor]


@once
def integer_program(model: QModel) -> Program:
    """The graph of a model. Its other constants are made by recipes."""
    return _program(model, model.graph, model.plan.recipes, model.plan.bound_keys)


@once
def float_program(model: PreparedModel) -> Program:
    """The float graph. Parameters replace the values of some of its constants."""
    return _program(model, model.float_graph)


@once
def step_program(model: PreparedModel) -> GraphFunction:
    """The float graph with each of `sources` computed from the given values of those before it."""
    return _program(model, _one_step_graph(model.float_graph, sources(model))).run


def sources(model: PreparedModel) -> tuple[str, ...]:
    """The inputs of the float graph, then its quantized tensors outside loops and branches."""
    return tuple(dict.fromkeys((*model.float_graph.inputs, *model.outer_activations)))


def _program(
    model: QModel,
    graph: Graph,
    computed: Collection[str] = (),
    traced: Mapping[str, Mapping[str, str]] | None = None,
) -> Program:
    """A graph as a function, and its constants but those that are made for each call."""
    with jax.ensure_compile_time_eval():
        turns = model.plan.turns
        run, constants = build(graph, kernels=_kernels(model), traced=traced or {}, turns=turns)
        return Program(run, {n: _operand(x) for n, x in constants.items() if n not in computed})


@once
def _kernels(model: QModel) -> SimpleNamespace:
    most = model.plan.options.max_trip_count
    exact = kernels(model.estimator, model.overrides, max_trip_count=most)
    if model.plan.is_integer:
        return exact
    return _with_rounding_casts(exact, {s.storage.dtype for s in model.specs.values()})


def _with_rounding_casts(exact: SimpleNamespace, dtypes: Collection[DType]) -> SimpleNamespace:
    """Kernels with CASTs to some types whose gradient is float32.

    JAX gives tangents the type of their array, and float8 would leave little of them. A QTensor
    carries them beside it, as for integers; CAST from these types reads them there.
    """

    def cast(input: Any, *, out_type: DType) -> jax.Array | QTensor:
        if out_type not in dtypes:
            return exact.cast(input, out_type=out_type)
        return QTensor(ops.cast(lax.stop_gradient(input), out_type=out_type), input)

    return SimpleNamespace(**{**vars(exact), "cast": cast})


def _operand(x: jax.Array) -> jax.Array | QTensor:
    """A constant as kernels with gradients take it: integers with a shadow."""
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return x
    # Zero points above all. NumPy's int64 would be narrowed outside the 64-bit scope.
    is_known = x.size == 1 and x.dtype.itemsize < 8
    return QTensor.known(np.asarray(x)) if is_known else QTensor.of(x)


def _one_step_graph(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these tensors as inputs, and their values by its nodes as outputs."""
    tensors, computed, nodes = dict(graph.tensors), {name: name for name in names}, []
    for node in graph.nodes:
        for name in node.outputs:
            if name in computed:
                computed[name] = unused(f"{name}/computed", tensors)
                tensors[computed[name]] = dataclasses.replace(tensors[name], name=computed[name])
        outputs = tuple(computed.get(name, name) for name in node.outputs)
        nodes.append(dataclasses.replace(node, outputs=outputs))
    outputs = tuple(computed.values())
    return dataclasses.replace(graph, inputs=names, outputs=outputs, tensors=tensors, nodes=nodes)
