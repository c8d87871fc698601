"""QModel: a float graph and the integer graph that stands for it, with parameters between them.

With FP8: a float graph whose convolutions and MATMULs have FP8 operands.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import html
from tosajax.dtypes import DType
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.kernels import kernels
from tosajax.grad.qtensor import QTensor, payload
from tosajax.graph import Graph, Quantization, Tensor
from tosajax.lowering.build import build
from tosajax.lowering.run import GraphFunction
from tosajax.quant import arguments
from tosajax.quant.convert.float8 import Value, check_scales, with_float8_casts
from tosajax.quant.frozen import at_ends, check_rescales, quantizations, with_constants
from tosajax.quant.qparams import QParams, dequantize, fake_quant, quantize
from tosajax.quant.recipes import Bias, Bound, Params, Recipe, Weight, corrected
from tosajax.quant.regions import Function
from tosajax.quant.spec import QSpec

Mode = Literal["exact", "fake_quant", "float"]


@dataclasses.dataclass(frozen=True, eq=False)
class QModel:
    """Two graphs of the same tensors by name, and how the constants of one are made.

    Parameters are a dictionary of float32 arrays, from `calibrate`: "values" (constants of the
    float graph), "qparams" (a QParams of each tensor with a scale of its own), "tables" (samples
    of functions), all by tensor name; and "corrections" of values, from `bias_correct` and
    `learned_rounding`, which the integers have and the float graph has not.

    Args:
      graph: of integers, or of floats with FP8 operands; its constants with a recipe are
        placeholders.
      float_graph: FP32; None where there never was one, as for a lifted graph.
      recipes: for each constant of `graph` that depends on parameters.
      bounds: for the output of each CLAMP of `graph` whose ends do.
      specs: how each tensor with a scale of its own is quantized.
      owners: for each tensor of integers or FP8, the one whose QParams it has.
      channel_axes: for each constant with a scale per channel, the axes of the channels.
      tables: for the output of each TABLE, the function.
      observed: for a tensor with a scale of its own, others whose values its range has to hold.
      estimator: what stands for the derivative of rounding and saturation.
      overrides: other estimators, by operator.
    """

    graph: Graph
    float_graph: Graph | None
    recipes: Mapping[str, Recipe]
    bounds: Mapping[str, tuple[Bound, Bound]] = dataclasses.field(default_factory=dict)
    specs: Mapping[str, QSpec] = dataclasses.field(default_factory=dict)
    owners: Mapping[str, str] = dataclasses.field(default_factory=dict)
    channel_axes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    tables: Mapping[str, Function] = dataclasses.field(default_factory=dict)
    observed: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    estimator: Estimator = clipped_ste
    overrides: Mapping[str, Estimator] = dataclasses.field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """To be copied to another process: without programs, which it makes again."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        counts = ", ".join(f"{what} {count}" for what, count in self._said())
        return f"QModel({html.quoted(self.graph.name)}, {counts})"

    def _repr_html_(self) -> str:
        head = ("tensor", "kind", "type", "bits", "symmetric", "per channel", "learned bits")
        kinds = dict.fromkeys(self.weights, "weight")
        rows = []
        for name, s in self.specs.items():
            kind = kinds.get(name, "activation")
            options = (s.symmetric, s.per_channel, s.learned_bits)
            rows.append([name, kind, _type_name(s.dtype), s.bits, *options])
        title = f"QModel {self.graph.name}"
        return html.box(title, self._said(), head, rows, noun="tensor", named_by=0)

    def _said(self) -> list[tuple[str, str]]:
        """The model in short: terms and counts."""
        kinds = Counter(f"{s.bits}-bit {_type_name(s.dtype)}" for s in self.specs.values())
        floats = (
            "none"
            if self.float_graph is None
            else html.counted(len(self.float_graph.nodes), "node")
        )
        return [
            ("graph", html.counted(len(self.graph.nodes), "node")),
            ("float graph", floats),
            ("weights", str(len(self.weights))),
            ("activations", str(len(self.activations))),
            ("formats", html.listed([f"{n} of {kind}" for kind, n in kinds.most_common()])),
        ]

    def apply(self, params: Params, *inputs: Any, mode: Mode = "exact") -> tuple[jax.Array, ...]:
        """Runs the model on real values.

        Args:
          params: from `calibrate`, trained or not.
          inputs: float32 (or, as they are in the float graph, integers and bool) in the graph's
            shapes; or batches of them: one axis more in front, or more along a first axis of 1.
            Integers of a quantized input are taken as they are.
          mode: "exact": the integers of `freeze`, with surrogate gradients. "fake_quant": floats
            that are rounded to what integers can stand for, as other tools train; of FP8 the
            same as "exact". "float".

        Returns:
          The outputs in float32, integers times their scale (those of a lifted graph as they
          are), and bool.

        Raises:
          TypeError: an input is not an array, or not of floats where `mode` needs them.
          ValueError: an input has another shape, there is no such mode or no float graph, the
            parameters are of another model, or a scale is not positive (where it has a value:
            not under `jax.jit`).
        """
        self.check(params, mode)
        if mode == "exact" or (mode == "fake_quant" and self.is_float8):
            params = self._held(params)
            outputs = self.integers(params, *inputs)
            named = zip(self.graph.outputs, outputs, strict=True)
            return tuple(self.real(params, name, y) for name, y in named)
        if mode not in ("fake_quant", "float"):
            raise ValueError(f"mode {mode!r}, expected 'exact', 'fake_quant' or 'float'")
        if self.float_graph is None:
            raise ValueError(f"mode {mode!r} of a model without a float graph, expected 'exact'")
        params = self._held(params)
        qparams = params.get("qparams", {})
        known = dict(self._float_params, **params["values"])
        if mode == "fake_quant":
            known |= {name: corrected(params, name) for name in params.get("corrections", ())}
            for name in self.weights:
                known[name] = fake_quant(known[name], qparams[name], self.specs[name].estimator)
        program = self._float_programs[mode]
        known["qparams"] = qparams

        def run(*inputs: jax.Array) -> tuple[jax.Array, ...]:
            return program(known, {}, *inputs)[2]

        tensors = self.float_graph.input_tensors
        outputs = on_batch(run, tensors, arguments.real_inputs(tensors, inputs))
        named = zip(self.float_graph.outputs, outputs, strict=True)
        return tuple(self.real(params, name, y) for name, y in named)

    def integers(self, params: Params, *inputs: Any) -> tuple[Any, ...]:
        """Runs the integer graph; see `apply`. Integers and FP8 are returned as QTensors."""
        self.check(params)
        params = self._held(params)
        known = {**self._fixed, **self._make(params)}

        def run(*inputs: Any) -> tuple[Any, ...]:
            return self._program(known, {}, *inputs)[2]

        return on_batch(run, self.graph.input_tensors, self.input_integers(params, *inputs))

    def input_integers(self, params: Params, *inputs: Any) -> tuple[Any, ...]:
        """What the integer graph is given for the inputs of `apply`: QTensors, bool as it is."""
        tensors = self.graph.input_tensors
        arguments.check_count(tensors, inputs)
        return tuple(self._input(params, t, x) for t, x in zip(tensors, inputs, strict=True))

    def local(self, params: Params, *inputs: Any) -> dict[str, jax.Array]:
        """What the float graph makes of the real values of the integer graph, step by step.

        Each quantized tensor is computed in floats from those before it as the integer graph has
        them, so that it differs from its own integers by the error of one operator.

        Returns:
          Those float32 values by name.
        """
        assert self.float_graph is not None
        inputs_of_graph = self.float_graph.inputs
        sources = [*inputs_of_graph, *(n for n in self.activations if n not in inputs_of_graph)]
        watched = self.with_outputs(*sources)
        values = list(zip(sources, watched.apply(params, *inputs), strict=True))
        for at, (name, x) in enumerate(zip(inputs_of_graph, inputs, strict=True)):
            if name not in self.specs:
                tensor = self.float_graph.tensors[name]
                values[at] = name, arguments.as_they_are(tensor, x)  # indices, for instance
        known = {**self._float_params, **params["values"]}
        tensors = [self.float_graph.tensors[name] for name in sources]

        def run(*values: jax.Array) -> dict[str, jax.Array]:
            found: dict[str, jax.Array] = {}
            state = {**known, "exact": dict(zip(sources, values, strict=True)), "found": found}
            self._float_programs["local"](state, {}, *values[: len(inputs_of_graph)])
            return found

        return on_batch(run, tensors, [value for _, value in values])

    def real(self, params: Params, name: str, value: Any) -> jax.Array:
        """The real values of a tensor of the integer graph, given its integers as a QTensor."""
        if not isinstance(value, QTensor):
            return value
        if name in self.owners:
            return dequantize(value, params["qparams"][self.owners[name]])
        one = QParams(jnp.float32(1), jnp.float32(0), jnp.float32(8), symmetric=True)
        return dequantize(value, one)

    def constants(self, params: Params) -> dict[str, Any]:
        """Every constant and CLAMP bound of the integer graph that depends on parameters."""
        return self._make(self._held(params))

    def freeze(self, params: Params) -> Graph:
        """The integer graph with these parameters: what `apply` computes, to save and to ship.

        It knows what its integers stand for (`Graph.quantization`), and so does its file. Of a
        lifted graph, inputs and outputs keep what it was lifted with.

        Raises:
          ValueError: the parameters are of another model; one of them is NaN; a scale is not
            positive, or beyond what RESCALE, or a product of FP32, can express.
          TosaError: the graph is illegal.
        """
        self.check(params)
        arguments.check_no_nan(params)
        made = jax.tree.map(payload, jax.jit(self.constants)(params), is_leaf=_is_qtensor)
        check_scales(self.recipes, made)
        made = {name: np.asarray(value) for name, value in made.items()}
        check_rescales(self.graph, made, self.recipes, params)
        frozen = with_constants(self.graph, made, self.bounds)
        return dataclasses.replace(frozen, quantization=at_ends(frozen) | self.quantization(params))

    def quantization(self, params: Params) -> dict[str, Quantization]:
        """What the integers of each tensor of the integer graph stand for, by name.

        Tensors of FP8 have none, nor those whose unit is that of a product, as biases.
        """
        qparams = params.get("qparams", {})
        return quantizations(self.owners, self.channel_axes, qparams, self.graph)

    def with_outputs(self, *names: str) -> QModel:
        """The same model with other tensors of the integer graph as its outputs."""
        graph, floats = self.graph, self.float_graph
        if floats is not None:
            floats = dataclasses.replace(floats, outputs=names)
        return dataclasses.replace(
            self, graph=dataclasses.replace(graph, outputs=names), float_graph=floats
        )

    @functools.cached_property
    def is_float8(self) -> bool:
        """Whether the operands of products are FP8, and all else is as in the float graph."""
        return any(spec.is_float8 for spec in self.specs.values())

    @functools.cached_property
    def weights(self) -> tuple[str, ...]:
        """The constants that are quantized, by name."""
        return tuple(r.tensor for r in self.recipes.values() if isinstance(r, Weight))

    @functools.cached_property
    def activations(self) -> tuple[str, ...]:
        """The tensors with a scale of their own that are not constants, inputs first."""
        return tuple(name for name in self.specs if name not in self.weights)

    def check(self, params: Any, mode: Mode = "exact") -> None:
        """Checks that parameters are of this model, and that their scales are positive.

        What is traced has no value yet, and is not looked at; `mode` "float" needs no scales.

        Raises:
          TypeError: they are not dictionaries.
          ValueError: a tensor is missing, or a scale or zero point is not such a number.
        """
        groups = self._groups
        needs_scales = mode != "float" and self.float_graph is not None
        if mode == "float" and self.float_graph is not None:
            groups = {"values": groups["values"]}
        arguments.check_params(params, groups)
        if needs_scales:
            arguments.check_scales(params["qparams"], self.specs)

    def given(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs of `apply` as JAX arrays, to be passed to `jax.jit`."""
        arguments.check_count(self.graph.input_tensors, inputs)
        return tuple(map(self._given, self.graph.input_tensors, inputs))

    def _given(self, tensor: Tensor, x: Any) -> Any:
        is_quantized = tensor.name in self.specs and not self.is_float8
        return arguments.model_input(tensor, x, is_quantized=is_quantized)

    @functools.cached_property
    def _groups(self) -> dict[str, tuple[str, ...]]:
        """The names that parameters hold, by group."""
        if self.float_graph is not None:
            return {
                "values": self.trained,
                "qparams": tuple(self.specs),
                "tables": tuple(self.tables),
            }
        found: dict[str, list[str]] = {}
        for recipe in self.recipes.values():
            group, name = (getattr(recipe, field) for field in ("group", "name"))
            found.setdefault(group, []).append(name)
        return {group: tuple(names) for group, names in found.items()}

    @functools.cached_property
    def trained(self) -> tuple[str, ...]:
        """The constants of the float graph that parameters hold: weights, biases and others."""
        recipes = self.recipes.values()
        names = [recipe.tensor for recipe in recipes if isinstance(recipe, Weight | Bias | Value)]
        return tuple(dict.fromkeys(names))

    def _make(self, params: Params) -> dict[str, Any]:
        made: dict[str, Any] = {name: recipe(params) for name, recipe in self.recipes.items()}
        for name, (low, high) in self.bounds.items():
            made[f"{name}/min_val"], made[f"{name}/max_val"] = low(params), high(params)
        return made

    def _held(self, params: Params) -> Params:
        """The parameters, without gradients to those that do not train.

        Bits do not unless they are learned, and the scale that a function was sampled in does not,
        as its TABLE would no longer be of that function.
        """
        if "qparams" not in params:
            return params
        sampled = {self.owners[function.source] for function in self.tables.values()}
        held = dict(params["qparams"])
        for name, qparams in held.items():
            if name in sampled:
                held[name] = jax.tree.map(lax.stop_gradient, qparams)
            elif not self.specs[name].learned_bits:
                held[name] = dataclasses.replace(qparams, bits=lax.stop_gradient(qparams.bits))
        return {**params, "qparams": held}

    def _input(self, params: Params, tensor: Tensor, x: Any) -> Any:
        x = self._given(tensor, x)
        if isinstance(x, QTensor):
            return x
        if tensor.name in self.specs and not self.is_float8:
            spec = self.specs[tensor.name]
            return quantize(x, params["qparams"][tensor.name], spec.estimator)
        # What x is computed by, in the caller's program, stays apart from what it goes into.
        return lax.optimization_barrier(x)

    @functools.cached_property
    def _program(self) -> GraphFunction:
        return self._built[0]

    @functools.cached_property
    def _fixed(self) -> dict[str, Any]:
        """Constants without a recipe."""
        rest = {name: v for name, v in self._built[1].items() if name not in self.recipes}
        with jax.ensure_compile_time_eval():
            return {name: QTensor.of(v) if _is_integer(v) else v for name, v in rest.items()}

    @functools.cached_property
    def _built(self) -> tuple[GraphFunction, dict[str, Any]]:
        traced = {n: {end: f"{n}/{end}" for end in ("min_val", "max_val")} for n in self.bounds}
        with jax.ensure_compile_time_eval():
            return build(self.graph, kernels=self._kernels, traced=traced)

    @functools.cached_property
    def _float_params(self) -> dict[str, Any]:
        assert self.float_graph is not None
        with jax.ensure_compile_time_eval():
            return {name: _operand(x) for name, x in build(self.float_graph)[1].items()}

    @functools.cached_property
    def _float_programs(self) -> dict[str, GraphFunction]:
        assert self.float_graph is not None
        return {
            "float": build(self.float_graph, kernels=self._kernels)[0],
            "fake_quant": build(self.float_graph, kernels=self._kernels, amend=self._rounded)[0],
            "local": build(self.float_graph, kernels=self._kernels, amend=_replaced)[0],
        }

    @functools.cached_property
    def _kernels(self) -> Any:
        found = kernels(self.estimator, self.overrides)
        return with_float8_casts(found) if self.is_float8 else found

    def _rounded(self, params: Mapping[str, Any], name: str, value: Any) -> Any:
        if name not in self.specs:
            return value
        return fake_quant(value, params["qparams"][name], self.specs[name].estimator)


def _replaced(params: Mapping[str, Any], name: str, value: Any) -> Any:
    """The value of the integer graph, where it has one; the float's own is kept beside."""
    if name not in params["exact"]:
        return value
    params["found"][name] = value
    return params["exact"][name]


def on_batch(run: Callable[..., Any], tensors: Sequence[Tensor], inputs: Sequence[Any]) -> Any:
    """Runs a function of one example, or of the graph's own batch, on inputs of any batch.

    Raises:
      ValueError: the inputs are not a batch of the tensors.
    """
    shapes = [tuple(t.shape or ()) for t in tensors]
    found = [tuple(x.shape) for x in inputs]
    if len(found) != len(shapes):
        raise ValueError(f"{len(found)} inputs, expected {len(shapes)}")
    if found == shapes:
        return run(*inputs)
    along = [s[:1] == (1,) and f[1:] == s[1:] for f, s in zip(found, shapes, strict=True)]
    in_front = [f[1:] == s for f, s in zip(found, shapes, strict=True)]
    counts = {f[:1] for f in found}
    if len(counts) != 1 or not all(a or b for a, b in zip(along, in_front, strict=True)):
        wanted = ", ".join(f"{t.name} {t}" for t in tensors)
        raise ValueError(f"inputs of shapes {found}, expected {wanted}, or batches of them")
    rows = [
        jax.tree.map(lambda x: x[:, None], x) if a and not b else x
        for x, a, b in zip(inputs, along, in_front, strict=True)
    ]
    outputs = jax.vmap(run)(*rows)
    if all(in_front):
        return outputs
    return jax.tree.map(lambda y: y[:, 0] if y.shape[1:2] == (1,) else y, outputs)


def _type_name(dtype: DType | str) -> str:
    return dtype.name if isinstance(dtype, DType) else dtype


def _operand(x: jax.Array) -> Any:
    """A constant as kernels with gradients take it: integers with a shadow."""
    return QTensor.of(x) if _is_integer(x) else x


def _is_integer(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.integer)


def _is_qtensor(x: Any) -> bool:
    return isinstance(x, QTensor)
