"""FP8: float graphs whose products are of FP8 operands, each with a scale; all else stays FP32.

An operand of a convolution or of MATMUL is multiplied by 1 / scale, clamped to the largest finite
FP8 (which CAST does not do), cast to FP8 and back, and multiplied by the scale. A constant is
stored as FP8: what is left are the CAST back and the product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from tosajax import ops, spec
from tosajax.dtypes import DType
from tosajax.grad.qtensor import QTensor
from tosajax.graph import Graph, Node, Tensor, arguments
from tosajax.graph.edit import unused
from tosajax.quant.qparams import float8_limit, reciprocal
from tosajax.quant.recipes import Params, Weight
from tosajax.quant.spec import FLOAT8, QSpec, Rule, act_spec, weight_spec
from tosajax.report import UnsupportedError
from tosajax.spec import Kind, NanMode

# Of scales, so that neither they nor their reciprocals are subnormal.
_SMALLEST, _LARGEST = 2.0**-126, 2.0**126


class Float8Graph(NamedTuple):
    """A graph with FP8 operands, and what `QModel` has to know of it, in its words."""

    graph: Graph
    recipes: Mapping[str, Any]
    specs: Mapping[str, QSpec]
    owners: Mapping[str, str]
    channel_axes: Mapping[str, tuple[int, ...]]


# Recipes.


@dataclasses.dataclass(frozen=True)
class Value:
    """A constant that stays FP32, as it is trained."""

    tensor: str

    def __call__(self, params: Params) -> jax.Array:
        return params["values"][self.tensor]


@dataclasses.dataclass(frozen=True)
class Factor:
    """The scale of a tensor, or its reciprocal, for a MUL."""

    tensor: str
    shape: tuple[int, ...]
    is_reciprocal: bool = False

    def __call__(self, params: Params) -> jax.Array:
        scale = params["qparams"][self.tensor].scale
        return (reciprocal(scale) if self.is_reciprocal else scale).reshape(self.shape)


def check_scales(recipes: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Raises ValueError where a MUL by a scale, or by its reciprocal, is none in float32."""
    for name, recipe in recipes.items():
        if isinstance(recipe, Factor):
            factors = np.asarray(made[name])
            if not ((factors >= _SMALLEST) & (factors <= _LARGEST)).all():
                raise ValueError(
                    f"{recipe.tensor!r}: a scale cannot be expressed, expected all in "
                    "[2**-126, 2**126]"
                )


# Kernels.


def with_float8_casts(kernels: SimpleNamespace) -> SimpleNamespace:
    """The kernels of a model, with a CAST to FP8 whose gradient is float32.

    JAX has tangents of float8 arrays in float8, where little would be left of them. A QTensor
    carries them beside, as it does for integers; CAST from FP8 takes them from there.
    """
    return SimpleNamespace(**{**vars(kernels), "cast": _with_float8(kernels.cast)})


def _with_float8(cast: Callable[..., Any]) -> Callable[..., Any]:
    def call(input: Any, *, out_type: DType) -> Any:
        if out_type not in FLOAT8:
            return cast(input, out_type=out_type)
        return QTensor(ops.cast(lax.stop_gradient(input), out_type=out_type), input)

    return call


# What rules ask for.


class _Operand(NamedTuple):
    """A tensor that a node multiplies."""

    name: str
    spec: QSpec
    channel_axes: tuple[int, ...]  # of scales per channel; empty where it has none


def is_asked_for(graph: Graph, rules: Sequence[Rule]) -> bool:
    """Whether rules give FP8 to the operands of convolutions and MATMUL, to all of them.

    Raises:
      UnsupportedError: they give it to some of them, or to other tensors in a graph of integers.
    """
    if not any(s and s.is_float8 for rule in rules for s in (rule.weight, rule.act)):
        return False
    asked = _Asked(graph, rules)
    kinds = {o.spec.is_float8: o for node in graph.nodes for o in asked.operands(node)}
    if len(kinds) == 2:
        raise UnsupportedError(
            f"{kinds[False].name!r}: {_dtype(kinds[False].spec).name}, while {kinds[True].name!r} "
            f"is {_dtype(kinds[True].spec).name}: FP8 is for all operands of convolutions and "
            "MATMUL, or for none; give it to weights and activations by rules"
        )
    if True in kinds:
        return True
    for tensor in graph.tensors.values():
        found = asked.act_spec(tensor.name)
        if found.is_float8 and tensor.dtype.is_float and tensor.values is None:
            raise UnsupportedError(
                f"{tensor.name!r}: {_dtype(found).name}, which is for operands of convolutions "
                "and MATMUL, for all of them"
            )
    return False


class _Asked:
    """What rules say of a graph."""

    def __init__(self, graph: Graph, rules: Sequence[Rule]) -> None:
        self._graph = graph
        self._rules = rules
        self._producers = {name: node for node in graph.nodes for name in node.outputs}

    def operands(self, node: Node) -> list[_Operand]:
        """What a node multiplies."""
        found = []
        for position, name in enumerate(_products(self._graph, node)):
            if position == 1 and self._graph.tensors[name].values is not None:
                wanted = weight_spec(self._rules, self._titles(node.outputs[0], name))
                channels = spec.OPERATORS[node.op].channel_axes.outputs
                axes = channels if wanted.per_channel else ()
                found.append(_Operand(name, wanted, axes))
            else:
                found.append(_Operand(name, self.act_spec(name), ()))
        return found

    def act_spec(self, name: str) -> QSpec:
        return act_spec(self._rules, self._titles(name))

    def _titles(self, *names: str) -> list[str]:
        """Names of tensors, and the locations of the nodes that compute them."""
        nodes = [self._producers[name] for name in names if name in self._producers]
        return [*names, *(node.location for node in nodes if node.location)]


def _products(graph: Graph, node: Node) -> tuple[str, ...]:
    """The operands that a convolution of floats, or a MATMUL, multiplies; none of other nodes."""
    multiplies = spec.OPERATORS[node.op].chapter == "conv" or node.op == "MATMUL"
    is_float = multiplies and graph.tensors[node.inputs[0]].dtype.is_float
    return node.inputs[:2] if is_float else ()


def _dtype(spec: QSpec) -> DType:
    assert isinstance(spec.dtype, DType)
    return spec.dtype


# The graph.


def to_float8(graph: Graph, rules: Sequence[Rule]) -> Float8Graph:
    """Has all products of a graph be of FP8 operands.

    Args:
      graph: from `simplify`.
      rules: that give FP8 to all operands of convolutions and MATMUL.

    Returns:
      The graph with placeholders for constants that have a recipe. Tensors keep their names:
      activations and what is computed from them are FP32 as before, "x/float8" is an activation
      x in FP8, and a constant w that only convolutions and MATMUL read is FP8 itself.

    Raises:
      UnsupportedError: a tensor has both types of FP8.
    """
    writer = _Writer(graph, _joined(graph, rules))
    for node in graph.ordered_nodes():
        writer.write(node)
    return writer.finished()


def _joined(graph: Graph, rules: Sequence[Rule]) -> dict[str, _Operand]:
    """The operands by name, each once: with scales per channel where all nodes want the same."""
    asked, joined = _Asked(graph, rules), {}
    for node in graph.ordered_nodes():
        for operand in asked.operands(node):
            known = joined.setdefault(operand.name, operand)
            if known.spec.dtype is not operand.spec.dtype:
                raise UnsupportedError(
                    f"{known.name!r}: {_dtype(known.spec).name} and {_dtype(operand.spec).name} "
                    "for one tensor, expected one type: give it by rules"
                )
            if known.channel_axes != operand.channel_axes:
                joined[operand.name] = known._replace(channel_axes=())
    return joined


class _Writer:
    """Writes a graph again, node by node, and what FP8 operands need between them."""

    def __init__(self, graph: Graph, operands: Mapping[str, _Operand]) -> None:
        self._graph = graph
        self._operands = operands
        self._tensors: dict[str, Tensor] = dict(graph.tensors)
        self._nodes: list[Node] = []
        self._recipes: dict[str, Any] = {}
        self._specs: dict[str, QSpec] = {}
        self._owners: dict[str, str] = {}
        self._channel_axes: dict[str, tuple[int, ...]] = {}
        self._rounded: dict[str, str] = {}  # what is read in the place of an operand
        self._shift: str | None = None
        self._read_as_float = _read_as_float(graph)

    def write(self, node: Node) -> None:
        if node.op == "CONST" and node.outputs[0] in self._operands:
            if node.outputs[0] in self._read_as_float:
                self._nodes.append(node)
            return
        for name in _trained(self._graph, node):
            self._recipes[name] = Value(name)
        count = len(_products(self._graph, node))
        inputs = (*map(self._operand, node.inputs[:count]), *node.inputs[count:])
        self._nodes.append(dataclasses.replace(node, inputs=inputs))

    def finished(self) -> Float8Graph:
        graph = dataclasses.replace(
            self._graph, tensors=self._tensors, nodes=tuple(self._nodes), subgraphs={}
        )
        return Float8Graph(graph, self._recipes, self._specs, self._owners, self._channel_axes)

    def _operand(self, name: str) -> str:
        """The FP32 tensor of the real values that an operand has in FP8."""
        if name not in self._rounded:
            operand = self._operands[name]
            is_constant = self._graph.tensors[name].values is not None
            stored = self._weight(operand) if is_constant else self._in_float8(operand)
            self._owners[stored] = name
            self._specs[name] = dataclasses.replace(
                operand.spec, per_channel=bool(operand.channel_axes)
            )
            wide = self._add("CAST", f"{name}/wide", DType.FP32, name, stored)
            self._rounded[name] = self._times(name, wide, "scale", f"{name}/rounded")
        return self._rounded[name]

    def _weight(self, operand: _Operand) -> str:
        """A constant of FP8."""
        name, dtype = operand.name, _dtype(operand.spec)
        stored = unused(f"{name}/float8", self._tensors) if name in self._read_as_float else name
        if operand.channel_axes:
            self._channel_axes[name] = operand.channel_axes
        self._constant(stored, np.zeros(self._shape(name), dtype.storage), dtype)
        self._recipes[stored] = Weight(name, operand.spec.estimator)
        return stored

    def _in_float8(self, operand: _Operand) -> str:
        """An activation in FP8."""
        name, dtype = operand.name, _dtype(operand.spec)
        scaled = self._times(name, name, "reciprocal", f"{name}/scaled")
        limit = np.float32(float8_limit(dtype))
        ends = {"min_val": -limit, "max_val": limit, "nan_mode": NanMode.PROPAGATE}
        clamped = self._add("CLAMP", f"{name}/clamped", DType.FP32, name, scaled, **ends)
        return self._add("CAST", f"{name}/float8", dtype, name, clamped)

    def _times(self, name: str, x: str, factor: str, label: str) -> str:
        """The product of x, of the shape of `name`, and the scale of `name` or its reciprocal."""
        axes = self._operands[name].channel_axes
        shape = tuple(n if axis in axes else 1 for axis, n in enumerate(self._shape(name)))
        constant = unused(f"{name}/{factor}", self._tensors)
        self._constant(constant, np.zeros(shape, np.float32), DType.FP32)
        self._recipes[constant] = Factor(name, shape, factor == "reciprocal")
        if self._shift is None:
            self._shift = unused("float8/shift", self._tensors)
            self._constant(self._shift, np.zeros(1, np.int8), DType.INT8)
        return self._add("MUL", label, DType.FP32, name, x, constant, self._shift)

    def _add(
        self, op: str, label: str, dtype: DType, like: str, *inputs: str, **attributes: Any
    ) -> str:
        """Adds a node whose output has the shape of another tensor; the name of the output."""
        output = unused(label, self._tensors)
        self._tensors[output] = Tensor(output, dtype, self._shape(like))
        self._nodes.append(Node(op, inputs, (output,), attributes))
        return output

    def _constant(self, name: str, values: np.ndarray, dtype: DType) -> None:
        self._tensors[name] = Tensor(name, dtype, values.shape, values)
        self._nodes.append(Node("CONST", (), (name,)))

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._graph.tensors[name].shape or ()


def _read_as_float(graph: Graph) -> set[str]:
    """The tensors that are outputs, or more to a node than what it multiplies."""
    names = {name for node in graph.nodes for name in node.inputs[len(_products(graph, node)) :]}
    return {*names, *graph.outputs}


def _trained(graph: Graph, node: Node) -> list[str]:
    """The FP32 constants of a node that are parameters: biases, and others of several elements.

    One of a single element is a number of the function that the graph computes, an epsilon or a
    half, or a zero point.
    """
    products, found = _products(graph, node), []
    for argument, given in arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT).items():
        for name in given if isinstance(given, tuple) else (given,):
            tensor = graph.tensors[name]
            if tensor.values is None or not tensor.dtype.is_float or name in products:
                continue
            if argument == "bias" or tensor.values.size > 1:
                found.append(name)
    return found
