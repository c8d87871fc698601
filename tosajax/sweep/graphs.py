"""Graphs as subjects of sweeps: settings change constants, rounding modes and apply rewrites."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import io, rewrite
from tosajax.arguments.names import near
from tosajax.dtypes import DType, to_storage
from tosajax.graph import Graph, Quantization, Tensor
from tosajax.graph.locations import matches
from tosajax.graph.quantization import Clipping, quantize
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.quant import QParams
from tosajax.rewrite.output_bits import rounded_by_bits
from tosajax.runtime.batching import with_batch
from tosajax.runtime.cost import peak_bytes
from tosajax.spec.target import Target
from tosajax.sweep import digest, layers
from tosajax.sweep.program import accepted, graph_program, is_constant
from tosajax.sweep.space import Setting
from tosajax.sweep.subject import (
    Arrays,
    Prepared,
    Variant,
    check_name,
    check_whole,
    reduce_by_fields,
)
from tosajax.validation import check_form, validate_formed

_ROUNDING_KEY = "rounding mode"
_ROUNDINGS = ("single", "double")  # "inexact" is not in the traced choice


class _Quantization(NamedTuple):
    """The scales of inputs and outputs whose integers represent real values, by tensor name."""

    inputs: Mapping[str, QParams]
    outputs: Mapping[str, QParams]
    input_scales: Mapping[str, Quantization]


Rewrite = Callable[[Graph, Any], Graph]
# (scale, zero_point), or one or None for each tensor.
Scales = tuple[float, int] | Sequence[tuple[float, int] | None]

# The rewrites of a setting by key, in order of application.
_REWRITES: dict[str, Rewrite] = {
    "weight_bits": lambda graph, bits: layers.with_bits(graph, "weights", bits),
    "act_bits": lambda graph, bits: layers.with_bits(graph, "activations", bits),
    "table_bits": rewrite.table_resolution,
    "scale_bits": rewrite.scale,
    "float": rewrite.to_float,
}
_WIDTHS = {
    "weight_bits": "integer weights",
    "act_bits": "integer activations",
    "table_bits": "tables",
}


# The kind of tensors of each axis of bits that may be given by layer.
_TENSORS: dict[str, layers.Tensors] = {"weight_bits": "weights", "act_bits": "activations"}


@dataclasses.dataclass(frozen=True, eq=False)
class GraphSubject:
    """A graph as a subject; settings may change its constants. See `of_graph`."""

    graph: Graph
    quantization: _Quantization
    rewrites: Mapping[str, Rewrite]
    clip: bool = False
    # Names of structures by outline, and one graph of each structure.
    _outlines: dict[Any, str] = dataclasses.field(default_factory=dict, init=False, repr=False)
    _structures: dict[str, Graph] = dataclasses.field(default_factory=dict, init=False, repr=False)
    _clippings: dict[str, Clipping] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_by_fields(self)

    def digest(self) -> str:
        """See `Subject`."""
        return self._digest

    @functools.cached_property
    def _digest(self) -> str:
        return digest.of_text(digest_of(self.graph), digest.of_arrays(self._quantized))

    def check(self, setting: Setting) -> None:
        names = ("rounding", *self.rewrites)
        for name, value in setting.items():
            if name not in names:
                self._check_constant(setting, name, value)
            elif value is None:
                continue
            elif name == "rounding":
                _rounding(value)
            elif self.rewrites[name] is _REWRITES.get(name):
                self._check_value(name, value)  # the user's rewrites check their own values

    def _check_constant(self, setting: Setting, name: str, value: Any) -> None:
        graph = self.graph
        if name not in graph.tensors:
            try:
                graph = self._rewritten(setting)  # a rewritten graph has other constants
            except Exception:
                return  # a fault of the setting, not of the name
        names = ("rounding", *self.rewrites)
        check_name(name, names, tuple(_constants(graph)), "the name of a CONST")
        if value is not None:
            self._constant(graph, name, value)

    def _check_value(self, name: str, value: Any) -> None:
        match name:
            case "scale_bits":
                if value not in (16, 32):
                    raise ValueError(f"scale_bits is {value!r}, expected 16 or 32")
            case "float":
                _check_pattern(self.graph, value)
            case _:
                most, tensors = self._most[name], _WIDTHS[name]
                if not most:
                    raise ValueError(f"{name}: the graph has no {tensors}")
                is_by_layer = name in _TENSORS and isinstance(value, Mapping)
                for bits in value.values() if is_by_layer else (value,):
                    check_whole(name, bits, 1, most, f"{tensors} have {most} bits")
                if is_by_layer:
                    self._check_layers(name, value)

    def _check_layers(self, name: str, bits: Mapping[str, int]) -> None:
        try:
            layers.bits_by_layer(self.graph, _TENSORS[name], bits)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    @functools.cached_property
    def _most(self) -> dict[str, int]:
        """The greatest value of each axis of bits; 0 if the graph has no tensor for it."""
        tables = [n.inputs[0] for part in self.graph.walk() for n in part.nodes if n.op == "TABLE"]
        tensors = {name: t for part in self.graph.walk() for name, t in part.tensors.items()}
        # 256 entries for INT8, 2**9 steps for INT16.
        steps = [8 if tensors[name].dtype is DType.INT8 else 9 for name in tables]
        return {
            **{name: _most_bits(self.graph, tensors) for name, tensors in _TENSORS.items()},
            "table_bits": max(steps, default=0),
        }

    def _rewritten(self, setting: Setting) -> Graph:
        graph = self.graph
        for key, function in self.rewrites.items():
            if setting.get(key) is not None:
                graph = function(graph, setting[key])
        return graph

    def prepare(self, setting: Setting) -> Prepared:
        setting = {key: value for key, value in setting.items() if value is not None}
        graph = self._rewritten(setting)
        setting = {key: value for key, value in setting.items() if key not in self.rewrites}
        arrays: dict[str, Any] = dict(self._quantized)
        if "rounding" in setting:
            arrays[_ROUNDING_KEY] = _rounding(setting.pop("rounding"))
        for name, value in setting.items():
            arrays[name] = self._constant(graph, name, value)
        variant = (("structure", self._structure(graph)), ("rounding", _ROUNDING_KEY in arrays))
        return Prepared(variant, {**_constants(graph), **arrays})

    def _structure(self, graph: Graph) -> str:
        """A name that graphs share if they differ only in constants."""
        constants = _constants(graph)
        outline = _outline(graph, constants)
        if outline not in self._outlines:
            # Slow, as it serializes the whole graph: once for each structure.
            tensors = dict(graph.tensors)
            for name, values in constants.items():
                tensors[name] = dataclasses.replace(tensors[name], values=np.zeros_like(values))
            structure = digest_of(dataclasses.replace(graph, tensors=tensors))[:12]
            self._outlines[outline] = structure
            self._structures.setdefault(structure, graph)
        return self._outlines[outline]

    @functools.cached_property
    def _quantized(self) -> dict[str, Any]:
        return {
            **{f"input {name}": q for name, q in self.quantization.inputs.items()},
            **{f"output {name}": q for name, q in self.quantization.outputs.items()},
        }

    def _constant(self, graph: Graph, name: str, value: Any) -> np.ndarray:
        tensor = graph.tensors.get(name)
        if tensor is None or not is_constant(tensor):
            raise ValueError(f"the rewritten graph has no CONST {name!r}")
        values = np.asarray(value)
        if values.dtype.kind in "OUSMm":
            raise TypeError(f"{name!r} is {type(value).__name__}, expected an array like {tensor}")
        if values.shape != tensor.shape:
            raise ValueError(f"{name!r} has shape {values.shape}, expected {tensor.shape}")
        try:
            return to_storage(values, tensor.dtype)
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}") from None

    def program(self, variant: Variant, fixed: Arrays, batch: int) -> Callable[..., Any]:
        fields = dict(variant)
        graph = self._structures[fields["structure"]]
        traced = _rounding_modes(graph) if fields["rounding"] else {}
        return graph_program(graph, traced, fixed, batch)

    def accept(self, inputs: Sequence[np.ndarray], batch: int) -> tuple[jax.Array, ...]:
        pairs = zip(self.graph.input_tensors, inputs, strict=False)  # `accepted` counts them
        integers = [self._integers(tensor, np.asarray(x)) for tensor, x in pairs]
        rest = inputs[len(integers) :]
        return accepted(self.graph, (), [*integers, *rest], batch, lambda: self._unsigned)

    def _integers(self, tensor: Tensor, x: np.ndarray) -> np.ndarray:
        """Quantizes an input that is real and has a scale; warns only at the first batch."""
        scale = self.quantization.input_scales.get(tensor.name)
        if scale is None or x.dtype.kind != "f":
            return x
        unsigned = tensor.name in self._unsigned
        if self.clip:
            return quantize(x, tensor, scale, unsigned=unsigned)
        is_first = tensor.name not in self._clippings
        own = self._clippings.setdefault(tensor.name, Clipping(tensor, scale, unsigned=unsigned))
        integers = quantize(x, tensor, scale, unsigned=unsigned, clipping=own)
        own.refuse()
        if is_first:
            own.warn()
        return integers

    @functools.cached_property
    def _unsigned(self) -> set[str]:
        return unsigned_tensors(self.graph)

    def bytes_per_example(self) -> int:
        return peak_bytes(with_batch(self.graph, Target.everything(), 1)[0])

    def costs(self, setting: Setting) -> dict[str, float]:
        return layers.costs(self._rewritten(setting), setting)


def of_graph(
    graph: Graph,
    *,
    input_quant: Scales | None = None,
    output_quant: Scales | None = None,
    rewrites: Mapping[str, Rewrite] | None = None,
    clip: bool = False,
) -> GraphSubject:
    """Makes the subject of a graph with a fixed or open batch. The keys of its settings are

    - "rounding": "single" or "double", for every RESCALE that can have both;
    - "weight_bits", "act_bits", "table_bits", "scale_bits", "float": the argument of a rewrite of
      `tosajax.rewrite`; rewrites apply in this order. The first two are a number for all layers, or
      {layer: number}; a layer is the name of a node's output, or else a regular expression that is
      searched for in outputs and locations; later entries override earlier ones;
    - the name of a CONST tensor: an array that replaces it (weights, multipliers, shifts, zero
      points, tables).

    Graphs that differ only in constants share a program. A value of None changes nothing.

    Args:
      graph: legal.
      input_quant: the (scale, zero_point) of the input, by which real values of the data set are
        quantized; for several inputs, a list with a pair or None for each.
      output_quant: the same for outputs, whose real values metrics then get.
      rewrites: functions (graph, value) -> graph for additional keys.
      clip: whether real values beyond the range of their scale saturate without a message; by
        default, more than 1 % of them are an error, and fewer a warning.

    Raises:
      TosaError: the graph is illegal.
      ValueError: no input can carry a batch, or there are more or fewer scales than tensors.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import sweep
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT32, (1, 2))
      >>> y = b.op("ADD", x, b.const([[0, 0]], tosajax.DType.INT32, name="bias"))
      >>> subject = sweep.of_graph(b.graph([y]))
      >>> configs = [{}, {"bias": np.int32([[0, 3]])}]
      >>> data = np.int32([[5, 4], [3, 1]]), np.int32([1, 1])
      >>> [row["accuracy"] for row in sweep.Sweep(subject, data, configs=configs).run()]
      [0.0, 1.0]
    """
    check_form(graph)
    everything = Target.everything()
    validate_formed(with_batch(graph, everything, 1)[0], everything).raise_errors()
    inputs = _scales_of("input_quant", graph.input_tensors, input_quant)
    outputs = _scales_of("output_quant", graph.output_tensors, output_quant)
    quantization = _Quantization(
        {name: _qparams(graph.tensors[name], q) for name, q in inputs.items()},
        {name: _qparams(graph.tensors[name], q) for name, q in outputs.items()},
        inputs,
    )
    return GraphSubject(graph, quantization, {**_REWRITES, **(rewrites or {})}, clip)


def _most_bits(graph: Graph, tensors: layers.Tensors) -> int:
    """The most bits of a tensor that `rewrite.bits` rounds; 0 if there is none."""
    widths = (t.dtype.bits for _, each in rounded_by_bits(graph, tensors) for t in each)
    return max(widths, default=0)


def _constants(graph: Graph) -> dict[str, np.ndarray]:
    """The values of CONST tensors of the main graph."""
    return {t.name: t.values for t in graph.tensors.values() if is_constant(t)}  # type: ignore


def _outline(graph: Graph, constants: Collection[str] = ()) -> tuple[Any, ...]:
    """A graph without the values of constants, for comparison."""
    tensors = [
        (
            t.name,
            t.dtype,
            t.shape,
            t.variable,
            _value_bytes(None if name in constants else t.values),
        )
        for name, t in graph.tensors.items()
    ]
    # As text, in which -0.0 is not 0.0 and True is not 1.
    nodes = [(n.op, n.inputs, n.outputs, n.location, str(n.attributes)) for n in graph.nodes]
    parts = [(name, _outline(part)) for name, part in graph.subgraphs.items()]
    return graph.name, graph.inputs, graph.outputs, tuple(tensors), tuple(nodes), tuple(parts)


def _value_bytes(values: np.ndarray | None) -> bytes | None:
    return None if values is None else values.tobytes()


def _scales_of(
    argument: str, tensors: Sequence[Tensor], scales: Scales | None
) -> dict[str, Quantization]:
    if scales is None:
        return {}
    pairs: list[Any] = [scales] if isinstance(scales, tuple) else list(scales)
    if len(pairs) != len(tensors):
        raise ValueError(f"{argument} has {len(pairs)} scales, expected {len(tensors)}")
    result = {}
    for tensor, pair in zip(tensors, pairs, strict=True):
        if pair is None:
            continue
        if tensor.dtype not in (DType.INT4, DType.INT8, DType.INT16):
            raise ValueError(f"{argument}: {tensor.name!r} is {tensor}, expected INT8 or INT16")
        result[tensor.name] = Quantization((pair[0],), (pair[1],))
        if not result[tensor.name].fits(tensor):
            raise ValueError(f"{argument}: {tensor.name!r} is {tensor}, zero point {pair[1]}")
    return result


def _qparams(tensor: Tensor, quantization: Quantization) -> QParams:
    (scale,), (zero_point,) = quantization.scale, quantization.zero_point
    bits = jnp.float32(tensor.dtype.bits)
    return QParams(jnp.float32(scale), jnp.float32(zero_point), bits, dtype=tensor.dtype)


def digest_of(graph: Graph) -> str:
    return digest.of_text(io.to_bytes(graph).hex())


def _check_pattern(graph: Graph, pattern: Any) -> None:
    """Checks a regular expression of outputs or locations of nodes."""
    if not isinstance(pattern, str):
        raise TypeError(f"float is {pattern!r}, expected a regular expression")
    nodes = [node for part in graph.walk() for node in part.nodes]
    try:
        is_match = any(matches(node, pattern) for node in nodes)
    except re.error as error:
        raise ValueError(f"float: {pattern!r} is not a regular expression: {error}") from None
    if not is_match:
        outputs = [name for node in nodes for name in node.outputs]
        raise ValueError(f"float: no node matches {pattern!r}{near(pattern, outputs)}")


def _rounding(name: Any) -> jax.Array:
    if name not in _ROUNDINGS:
        like = near(str(name), _ROUNDINGS)
        raise ValueError(f"rounding is {name!r}, expected {' or '.join(_ROUNDINGS)}{like}")
    return jnp.asarray(name == "double")


def _rounding_modes(graph: Graph) -> dict[str, dict[str, str]]:
    return {
        node.outputs[0]: {"rounding_mode": _ROUNDING_KEY}
        for node in graph.nodes
        if node.op == "RESCALE" and node.attributes["scale32"]
    }
