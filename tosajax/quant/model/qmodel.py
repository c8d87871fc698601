"""QModel: a float graph, its integer graph, and the recipes of the integer graph's constants.

With FP8: a float graph whose convolutions and MATMULs have FP8 operands.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import html
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.kernels import kernels
from tosajax.grad.qtensor import QTensor, payload, tie
from tosajax.graph import Graph, Quantization, Tensor
from tosajax.graph.edit import unused
from tosajax.lowering.build import build
from tosajax.lowering.run import GraphFunction
from tosajax.quant.convert.open_batches import of_any
from tosajax.quant.convert.operands import with_rounding_casts
from tosajax.quant.freezing import (
    at_ends,
    check_biases,
    check_factors,
    check_rescales,
    quantizations,
    warn_of_sums,
    with_constants,
)
from tosajax.quant.graphs.blocks import inner_tensors
from tosajax.quant.graphs.reading_back import Reader
from tosajax.quant.graphs.recording import Record, no_records, recorded, times_inside
from tosajax.quant.graphs.regions import Function
from tosajax.quant.model import arguments
from tosajax.quant.model.arguments import Input
from tosajax.quant.model.batches import on_batch, on_examples
from tosajax.quant.model.norms import BatchNorms, Norms, held_statistics, shifted
from tosajax.quant.model.plan import Plan
from tosajax.quant.model.recipes import (
    Bias,
    Bound,
    Multiplier,
    Params,
    Recipe,
    Scale,
    Shift,
    corrected,
    scaling,
)
from tosajax.quant.model.room import fitted, fitted_qparams
from tosajax.quant.qparams import QParams, dequantize, fake_quant, quantize
from tosajax.quant.ranges.channels import along, on_last_axis
from tosajax.quant.ranges.mask_ranges import saturated
from tosajax.quant.spec import QSpec
from tosajax.report import UnsupportedError

Mode = Literal["exact", "fake_quant", "float"]
# Of the name of a tensor and its value, the value to read.
Rounded = Callable[[str, Any], Any]
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, eq=False)
class QModel:
    """Two graphs of the same tensors by name, and how the constants of one are made.

    Parameters are a dictionary of float32 arrays, from `calibrate`: "values" (constants of the
    float graph), "qparams" (a QParams of each tensor with a scale of its own), "tables" (samples
    of functions), "sampled" (the QParams that their inputs had then), all by tensor name; "norms"
    (a Norm of each convolution that keeps its batch norm, by its output); and "corrections" of
    values, from `bias_correct` and `learned_rounding`, which the integers follow
    and the float graph does not.

    Args:
      graph: of integers, or of floats with FP8 operands; its constants with a recipe are
        placeholders.
      float_graph: FP32; None for a lifted graph, which never had one.
      plan: how the tensors of `graph` are quantized, and its constants made.
      estimator: the surrogate derivative of rounding and saturation.
      overrides: other estimators, by operator.
      reader: finds parameters of the function that `prepare` was given; None for a graph.
      source: the float graph of any batch that `prepare` was given; None for other graphs.
    """

    graph: Graph
    float_graph: Graph | None
    plan: Plan
    estimator: Estimator = clipped_ste
    overrides: Mapping[str, Estimator] = dataclasses.field(default_factory=dict)
    reader: Reader | None = None
    source: Graph | None = None

    @property
    def specs(self) -> Mapping[str, QSpec]:
        """How each tensor with a scale of its own is quantized."""
        return self.plan.specs

    @property
    def owners(self) -> Mapping[str, str]:
        """For each tensor of integers or FP8, the one whose QParams it has."""
        return self.plan.owners

    @property
    def recipes(self) -> Mapping[str, Recipe]:
        """For each constant of `graph` that depends on parameters, how it is made."""
        return self.plan.recipes

    @property
    def bounds(self) -> Mapping[str, tuple[Bound, Bound]]:
        """For the output of each CLAMP of `graph` whose ends depend on parameters, these ends."""
        return self.plan.bounds

    @property
    def tables(self) -> Mapping[str, Function]:
        """For the output of each TABLE, the function."""
        return self.plan.functions

    @property
    def sampled(self) -> Mapping[str, str]:
        """For each tensor in whose scale functions are sampled, the output of one such TABLE."""
        return self.plan.sampled

    @property
    def weights(self) -> tuple[str, ...]:
        """The constants that are quantized, by name."""
        return self.plan.weights

    @property
    def activations(self) -> tuple[str, ...]:
        """The tensors with a scale of their own that are not constants, inputs first."""
        return self.plan.activations

    @property
    def trained(self) -> tuple[str, ...]:
        """The constants of the float graph that parameters hold: weights, biases and others."""
        return self.plan.trained

    def __getstate__(self) -> dict[str, Any]:
        """The fields, for another process, which builds the cached programs again.

        The user's function stays where it is: many cannot be pickled.
        """
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**state, "reader": None}

    def __repr__(self) -> str:
        counts = ", ".join(f"{what} {count}" for what, count in self._summary())
        return f"QModel({html.quoted(self.graph.name)}, {counts})"

    def _repr_html_(self) -> str:
        head = ("tensor", "kind", "type", "bits", "symmetric", "per channel", "learned bits")
        kinds = dict.fromkeys(self.weights, "weight")
        rows = []
        for name, s in self.specs.items():
            kind = kinds.get(name, "activation")
            options = (s.symmetric, s.per_channel, s.learned_bits)
            rows.append([name, kind, s.storage.name, s.bits, *options])
        title = f"QModel {self.graph.name}"
        return html.box(title, self._summary(), head, rows, noun="tensor", named_by=0)

    def _summary(self) -> list[tuple[str, str]]:
        """The model in short: terms and counts."""
        kinds = Counter(f"{s.bits}-bit {s.storage.name}" for s in self.specs.values())
        floats = self.float_graph
        return [
            ("graph", html.counted(len(self.graph.nodes), "node")),
            ("float graph", "none" if floats is None else html.counted(len(floats.nodes), "node")),
            ("weights", str(len(self.weights))),
            ("activations", str(len(self.activations))),
            *([("batch norms", str(len(self.plan.norms)))] if self.plan.norms else []),
            ("formats", html.listed([f"{n} of {kind}" for kind, n in kinds.most_common()])),
        ]

    def apply(self, params: Params, *inputs: Input, mode: Mode = "exact") -> tuple[jax.Array, ...]:
        """Runs the model on real values, as one program for inputs of the same shapes.

        It is a JAX function: `jit`, `grad` and `vmap` around it see through that program, which the
        model keeps.

        Args:
          params: from `calibrate`, trained or not.
          inputs: float32 (or, as they are in the float graph, integers and bool) in the graph's
            shapes; or batches of them: one axis more in front, or more along a first axis of 1.
            Integers of a quantized input are taken as they are.
          mode: "exact": the integers of `freeze`, with surrogate gradients. "fake_quant": floats
            that are rounded to the real values of integers, as other tools train; of FP8 the same
            as "exact". "float".

        Returns:
          The outputs in float32, integers times their scale (those of a lifted graph as they
          are), and bool.

        Raises:
          TypeError: an input is not an array, or not of floats where `mode` needs them.
          ValueError: an input has another shape, the mode is unknown or needs a float graph, the
            parameters are of another model, or a scale is not positive (not checked under
            `jax.jit`, where scales have no values).
        """
        self.check(params, mode)
        given = self._given_in(mode, inputs)
        return self.jitted(QModel._applied, mode=mode)(params, *given)

    def _applied(
        self, params: Params, *inputs: jax.Array | QTensor, mode: Mode
    ) -> tuple[jax.Array, ...]:
        """`apply`, of JAX arrays."""
        params = self._held(params)
        graph = self._graph(mode)
        if graph is self.graph:
            outputs = self.integers(params, *inputs)
        else:
            run = functools.partial(self.run_floats, params, rounded=self._rounded_in(params, mode))
            outputs = on_batch(run, graph.input_tensors, inputs)
        return self._real_outputs(params, graph, outputs)

    def _given_in(self, mode: Mode, inputs: Sequence[Input]) -> Sequence[jax.Array | QTensor]:
        """Inputs as JAX arrays, as the graph that a mode runs takes them."""
        graph = self._graph(mode)
        if graph is self.graph:
            return self.given(inputs)
        return arguments.real_inputs(graph.input_tensors, inputs)

    def apply_batch(
        self, params: Params, *inputs: Input, mode: Mode = "exact"
    ) -> tuple[tuple[jax.Array, ...], Norms]:
        """Runs the model as `apply` does, with the statistics of this batch in each batch norm.

        Each is of the values that the convolution has in this run, in "exact" of its integers; the
        gradient goes through them. With the norms that it returns as `params["norms"]`, `apply`
        gives the same outputs for these inputs, and in "exact" the same bits.

        Args:
          params: from `calibrate`, of a model that `prepare` made with `batch_norms`.
          inputs: as for `apply`; all examples of the batch count.
          mode: as for `apply`.

        Returns:
          The outputs, and the norms with these statistics, for `with_statistics`.

        Raises:
          TypeError, ValueError: as `apply`; or the model keeps no batch norms.
        """
        self.check(params, mode)
        if not self.plan.norms:
            raise ValueError(
                "the model keeps no batch norms, expected one of `prepare` with `batch_norms`"
            )
        if "norms" not in params:
            raise ValueError("params has no 'norms', expected what `calibrate` gave for this model")
        given = self._given_in(mode, inputs)
        return self.jitted(QModel._applied_batch, mode=mode)(params, *given)

    def _applied_batch(
        self, params: Params, *inputs: jax.Array | QTensor, mode: Mode
    ) -> tuple[tuple[jax.Array, ...], Norms]:
        """`apply_batch`, of JAX arrays."""
        params = self._held_biases(self._held(params))
        graph = self._graph(mode)
        if graph is self.graph:
            rows = self.input_integers(params, *inputs)
            found = functools.partial(self.run_integers, params)
        else:
            rows = inputs
            rounded = self._rounded_in(params, mode)
            found = functools.partial(self.run_floats, params, rounded=rounded)

        def run(*inputs: Any) -> tuple[tuple[Any, ...], Norms]:
            norms = BatchNorms(params["norms"])
            return found(*inputs, norms=norms), norms.norms

        outputs, norms = on_examples(run, graph.input_tensors, rows)
        return self._real_outputs(params, graph, outputs), norms

    def _graph(self, mode: Mode) -> Graph:
        """The graph that a mode runs."""
        if mode == "exact" or (mode == "fake_quant" and not self.plan.is_integer):
            return self.graph
        if mode not in ("fake_quant", "float"):
            raise ValueError(f"mode {mode!r}, expected 'exact', 'fake_quant' or 'float'")
        if self.float_graph is None:
            raise ValueError(f"mode {mode!r} of a model without a float graph, expected 'exact'")
        return self.float_graph

    def _real_outputs(
        self, params: Params, graph: Graph, outputs: Sequence[Any]
    ) -> tuple[jax.Array, ...]:
        return tuple(self.real(params, n, y) for n, y in zip(graph.outputs, outputs, strict=True))

    def _rounded_in(self, params: Params, mode: Mode) -> Rounded | None:
        """What rounds the tensors of the float graph in a mode."""
        return None if mode == "float" else functools.partial(self.rounded, params)

    def run_floats(
        self,
        params: Params,
        *inputs: Any,
        rounded: Rounded | None = None,
        norms: BatchNorms | None = None,
        records: Mapping[str, Record] | None = None,
    ) -> tuple[Any, ...]:
        """Runs the float graph on one example, or on the graph's own batch.

        Args:
          params: from `calibrate`.
          inputs: float32, in the graph's shapes.
          rounded: of the name and the value of a quantized constant, an input or the output of a
            node, the value that is read in its place, as `QModel.rounded` gives it; by default
            the value itself.
          norms: to find the statistics of; by default they are those of the parameters.
          records: to add values to. They follow the outputs in what is returned.
        """
        own = params.get("norms", {}) if norms is None else {}
        known = self._float_constants(params, own, rounded=rounded)
        program = self._float_built[0]

        def amend(name: str, value: Any) -> dict[str, Any]:
            if norms is not None and name in self.plan.norms:
                value = norms.of(name, value)(value)
            return {name: value if rounded is None else rounded(name, value)}

        if records is None:
            return program(known, {}, *inputs, amend=amend)[2]
        state, _, outputs = program(known, records, *inputs, amend=amend, watch=recorded)
        return *outputs, state

    def _float_constants(
        self, params: Params, norms: Norms, *, rounded: Rounded | None = None
    ) -> dict[str, Any]:
        """The constants of the float graph by name, these batch norms folded."""
        known = {**self._float_params, **params["values"]}
        if rounded is not None:
            known |= {name: corrected(params, name) for name in params.get("corrections", ())}
            known |= {name: rounded(name, known[name]) for name in self.weights}
        for name, (weight, bias, axes) in self.plan.norms.items():
            if name in norms:
                shape = along(axes, known[weight].shape)
                known[weight] = known[weight] * norms[name].factor.reshape(shape)
                known[bias] = norms[name](known[bias])
        return known

    def rounded(self, params: Params, name: str, value: Any) -> Any:
        """A tensor of the float graph, rounded to the real values of its integers.

        Tensors without a scale stay as they are.
        """
        owner = name if name in self.specs else self._inner_owners.get(name)
        if owner is None:
            return value
        qparams = fitted_qparams(self.plan, params, owner)
        if self.plan.scaled[owner].mask_axis is not None:
            value = saturated(value, qparams)
        return fake_quant(value, qparams, self.specs[owner].estimator)

    @functools.cached_property
    def _inner_owners(self) -> dict[str, str]:
        """The owners of tensors inside loops and branches."""
        return {name: owner for name, owner in self.owners.items() if name in self._inner_tensors}

    @functools.cached_property
    def _inner_tensors(self) -> dict[str, Tensor]:
        """The tensors of the float graph inside loops and branches."""
        return {} if self.float_graph is None else inner_tensors(self.float_graph)

    def float_values(
        self, params: Params, names: Sequence[str], *inputs: Input
    ) -> tuple[dict[str, jax.Array], dict[str, Record]]:
        """Tensors of the float graph: those of the main graph, and those inside loops and branches.

        Args:
          params: "values", and "norms" where there are any.
          names: of the tensors.
          inputs: as for `apply`.

        Returns:
          Values by name, and records by name, with axes of a batch in front.
        """
        inner = {name: self._inner_tensors[name] for name in names if name in self._inner_tensors}
        outer = [name for name in names if name not in inner]
        model = self.with_outputs(*outer)
        if not inner:
            return dict(zip(outer, model.apply(params, *inputs, mode="float"), strict=True)), {}
        assert model.float_graph is not None
        self.check(params, "float")
        times = times_inside(model.float_graph, self.plan.turns, self.plan.options.max_trip_count)
        records = no_records(inner.values(), times)
        run = functools.partial(model.run_floats, self._held(params), records=records)
        tensors = model.float_graph.input_tensors
        *values, found = on_batch(run, tensors, arguments.real_inputs(tensors, inputs))
        real = model._real_outputs(params, model.float_graph, values)
        return dict(zip(outer, real, strict=True)), found

    def integers(self, params: Params, *inputs: Input) -> tuple[jax.Array | QTensor, ...]:
        """Runs the integer graph; see `apply`. Returns integers and FP8 as QTensors."""
        self.check(params)
        params = self._held(params)
        run = functools.partial(self.run_integers, params, known=self._constants(params))
        return on_batch(run, self.graph.input_tensors, self.input_integers(params, *inputs))

    def run_integers(
        self,
        params: Params,
        *inputs: jax.Array | QTensor,
        known: dict[str, Any] | None = None,
        norms: BatchNorms | None = None,
    ) -> tuple[jax.Array | QTensor, ...]:
        """Runs the integer graph on one example, or on the graph's own batch.

        Args:
          params: from `calibrate`.
          inputs: as `input_integers` gives them.
          known: its constants, if they have been made.
          norms: to find the statistics of; by default they are those of the parameters.
        """
        if norms is None:
            known = self._constants(params) if known is None else known
            return self._built[0](known, {}, *inputs)[2]
        # Convolutions run without their batch norm, which needs their sums.
        alone = fitted(self.plan, params, has_norms=False)
        known = {**self._fixed, **self._make(alone)}
        known |= {label: self._bias(name)(alone) for label, name in self._normed.items()}

        def amend(name: str, value: Any) -> dict[str, Any]:
            output = self._accumulators.get(name)
            if output is None:
                return {name: value}
            label, weight = f"{output}/bias", self.plan.norms[output].weight
            before = self._bias(output).scale(alone)
            norm = norms.of(output, tie(value) * on_last_axis(before, len(value.shape)))
            found = {**params, "norms": {output: norm}}
            own = fitted_qparams(self.plan, found, weight)
            found["qparams"] = {**alone["qparams"], weight: own}
            made = {n: self.recipes[n](found) for n in self._of_norm[output]}
            bias = made[label]
            assert isinstance(bias, QTensor)
            # Of a channel in another scale, only the bias is left.
            is_left = self._bias(output).scale(found) == before
            return {**made, name: shifted(value, bias, known[label], is_left)}

        return self._built[0](known, {}, *inputs, amend=amend)[2]

    def _constants(self, params: Params) -> dict[str, Any]:
        return {**self._fixed, **self._make(fitted(self.plan, params))}

    def _bias(self, output: str) -> Bias:
        """The recipe of the bias of a convolution without its batch norm."""
        recipe = self.recipes[f"{output}/bias"]
        assert isinstance(recipe, Bias)
        return dataclasses.replace(recipe, norm=None)

    @functools.cached_property
    def _normed(self) -> dict[str, str]:
        """The convolutions that keep a batch norm, by their bias in the integer graph."""
        return {f"{name}/bias": name for name in self.plan.norms}

    @functools.cached_property
    def _accumulators(self) -> dict[str, str]:
        """The same by their sums."""
        return {f"{name}/acc": name for name in self.plan.norms}

    @functools.cached_property
    def _of_norm(self) -> dict[str, list[str]]:
        """For each of them, the constants that its batch norm is part of."""
        found: dict[str, list[str]] = {name: [] for name in self.plan.norms}
        for label, recipe in self.recipes.items():
            own = recipe.scale if isinstance(recipe, Multiplier | Shift) else recipe
            if isinstance(own, Scale | Bias) and own.norm is not None:
                found[own.norm].append(label)
        return found

    def input_integers(self, params: Params, *inputs: Input) -> tuple[jax.Array | QTensor, ...]:
        """The inputs of `apply` as the integer graph takes them: QTensors, bool as it is."""
        tensors = self.graph.input_tensors
        arguments.check_inputs(tensors, inputs)
        return tuple(self._input(params, t, x) for t, x in zip(tensors, inputs, strict=True))

    def local(self, params: Params, *inputs: Input) -> dict[str, jax.Array]:
        """The float graph on the real values of the integer graph, step by step.

        Each quantized tensor is computed in floats from the integer graph's values of the tensors
        before it, and so differs from its own integers by the error of one operator.

        Returns:
          These float32 values by name.
        """
        assert self.float_graph is not None
        watched = self.with_outputs(*self._sources)
        values: list[jax.Array | QTensor] = [*watched.apply(params, *inputs)]
        for at, (tensor, x) in enumerate(zip(self.float_graph.input_tensors, inputs, strict=True)):
            if tensor.name not in self.specs:
                values[at] = arguments.as_they_are(tensor, x)  # indices, for instance
        known = self._float_constants(params, params.get("norms", {}))

        def run(*values: jax.Array) -> tuple[jax.Array, ...]:
            return self._local_program(known, {}, *values)[2]

        tensors = [self.float_graph.tensors[name] for name in self._sources]
        return dict(zip(self._sources, on_batch(run, tensors, values), strict=True))

    @functools.cached_property
    def _sources(self) -> tuple[str, ...]:
        """The inputs of the float graph, then its quantized tensors outside loops and branches."""
        assert self.float_graph is not None
        return tuple(dict.fromkeys((*self.float_graph.inputs, *self.outer_activations)))

    @property
    def outer_activations(self) -> tuple[str, ...]:
        """The activations outside loops and branches; states and results of these are there."""
        return tuple(name for name in self.activations if name not in self._inner_tensors)

    def real(self, params: Params, name: str, value: jax.Array | QTensor) -> jax.Array:
        """The real values of a tensor of the integer graph, given its integers as a QTensor."""
        if not isinstance(value, QTensor):
            return value
        if name in self.owners:
            return dequantize(value, params["qparams"][self.owners[name]])
        one = QParams(jnp.float32(1), jnp.float32(0), jnp.float32(8), symmetric=True)
        return dequantize(value, one)

    def constants(self, params: Params) -> dict[str, Any]:
        """Every constant and CLAMP bound of the graph that depends on parameters, by name.

        Integers and FP8 are QTensors, FP32 is arrays.
        """
        return self._make(fitted(self.plan, self._held(params)))

    def freeze(self, params: Params) -> Graph:
        """The integer graph with these parameters: what `apply` computes, to save and to ship.

        It has the scales and zero points of its integers (`Graph.quantization`), and so has its
        file. Weights near 0 have a larger scale than the parameters hold, so that their bias has
        room (`report` lists them); products so long that sums may overflow all the same are named
        in a warning. Inputs and outputs of a lifted graph keep those that it was lifted with. Its
        batch is open where that of the float graph was.

        Raises:
          ValueError: the parameters are of another model; one of them is NaN; a scale is not
            positive, or out of the range of RESCALE, or of a product of FP32; or a bias of two
            computed tensors is beyond its accumulator.
          TosaError: the graph is illegal.
          UnsupportedError: the batch cannot be open.
        """
        self.check(params)
        arguments.check_no_nan(params)
        made = jax.tree.map(payload, self.jitted(QModel.constants)(params), is_leaf=_is_qtensor)
        check_factors(made, self.recipes)
        made = {name: np.asarray(value) for name, value in made.items()}
        used = fitted(self.plan, params)
        check_biases(made, self.recipes, used)
        check_rescales(self.graph, made, self.recipes, used)
        graph = self.graph if self.source is None else of_any(self.graph, self.plan, self.source)
        frozen = with_constants(graph, made, self.plan)
        warn_of_sums(frozen)
        return dataclasses.replace(frozen, quantization=at_ends(frozen) | self.quantization(params))

    def pytree(self, params: Params) -> Any:
        """The parameters of the user's function, as they were trained.

        With them the function is the float graph with these parameters (`apply` in mode "float"),
        but for rounding. What has not changed in training has the same bits. Scales of channels
        stay as they are, as those of a batch norm after a convolution: the convolution's weights
        change in their place, and offsets go into one parameter (beta). This holds as well for
        norms that `prepare` has kept. Corrections of integers (`bias_correct`,
        `learned_rounding`) are not part of it.

        Args:
          params: from `calibrate`, trained or not.

        Returns:
          What `prepare` was given as `params`, or the module, with other arrays of the same types;
          a pair of both, if both hold arrays.

        Raises:
          TypeError, ValueError: as `apply`; or the model was not made of a function, or is a copy
            in another process; or the function cannot have these constants. `readable` keeps
            parameters such that it can.
        """
        reader = self._known_reader()
        self.check(params, "float")
        return reader.pytree(self._float_constants(params, params.get("norms", {})))

    def readable(self, params: Params) -> Params:
        """The parameters with constants that the user's function can have, for `pytree`.

        Constants that are made of the same parameter of the function, as a table of embeddings and
        a last layer that share it, follow the largest of them. Those that are not made of a
        parameter, or that the function multiplies by 0, are what they were before training. `fit`
        trains with it as `derive`.

        Args:
          params: from `calibrate`, trained or not; may be traced.

        Raises:
          ValueError: the model was not made of a function, or is a copy in another process.
        """
        return {**params, "values": self._known_reader().readable(params["values"])}

    def _known_reader(self) -> Reader:
        if self.reader is None:
            raise ValueError("the model has no function, expected one of `prepare(fn, ...)`")
        return self.reader

    def quantization(self, params: Params) -> dict[str, Quantization]:
        """Scales, zero points and ranges of the tensors of the integer graph, by name.

        FP8 has none, nor have tensors in the unit of a product, as biases.
        """
        qparams = dict(fitted(self.plan, params).get("qparams", {}))
        for name, (weight, _, axes) in self.plan.norms.items():
            own = qparams[weight]
            factor = params["norms"][name].factor
            shape = along(axes, params["values"][weight].shape)
            qparams[weight] = dataclasses.replace(own, scale=own.scale * factor.reshape(shape))
        return quantizations(self.plan, qparams, self.graph)

    def with_outputs(self, *names: str) -> QModel:
        """The same model with other tensors of the integer graph as its outputs.

        Raises:
          UnsupportedError: one of them is inside a loop or a branch.
        """
        inner = {**inner_tensors(self.graph), **self._inner_tensors}
        for name in names:
            if name in inner and name not in self.graph.tensors:
                raise UnsupportedError(
                    f"{name!r} is inside a loop or a branch, which has no value of it at its end"
                )
        graph, floats = self.graph, self.float_graph
        if floats is not None:
            floats = dataclasses.replace(floats, outputs=names)
        return dataclasses.replace(
            self, graph=dataclasses.replace(graph, outputs=names), float_graph=floats
        )

    def check(self, params: Params, mode: Mode = "exact") -> None:
        """Checks that parameters are of this model, and that their scales are positive.

        Traced scales have no value yet and are not looked at; `mode` "float" needs no scales.

        Raises:
          TypeError: they are not dictionaries.
          ValueError: a tensor is missing; a scale or zero point is out of range; or a function was
            sampled in another scale than its input has.
        """
        has_floats = self.float_graph is not None
        groups = self.plan.groups(has_floats=has_floats)
        if mode == "float" and has_floats:
            groups = {"values": groups["values"]}
        arguments.check_params(params, groups)
        if mode != "float" and has_floats:
            arguments.check_scales(params["qparams"], self.specs)
        if mode != "float" and self.plan.norms:
            arguments.check_norms(params["norms"], self.plan.norms)
        if mode == "exact" and has_floats:
            arguments.check_sampled(params["qparams"], params["sampled"], self.sampled)

    def jitted(self, function: Callable[..., _T], **static: Hashable) -> Callable[..., _T]:
        """A function of a model and arrays, of this model, in `jax.jit`: compiled once.

        Args:
          function: of the model, of arrays, and of keywords.
          static: these keywords.
        """
        key = function, *sorted(static.items())
        if key not in self._programs:
            self._programs[key] = jax.jit(functools.partial(function, self, **static))
        return self._programs[key]

    @functools.cached_property
    def _programs(self) -> dict[Hashable, Callable[..., Any]]:
        return {}

    def given(self, inputs: Sequence[Input]) -> tuple[jax.Array | QTensor, ...]:
        """The inputs of `apply` as JAX arrays, to be passed to `jax.jit`."""
        arguments.check_inputs(self.graph.input_tensors, inputs)
        return tuple(map(self._given, self.graph.input_tensors, inputs))

    def _given(self, tensor: Tensor, x: Input) -> jax.Array | QTensor:
        return arguments.model_input(tensor, x, is_quantized=tensor.name in self.owners)

    def _make(self, params: Params) -> dict[str, jax.Array | QTensor]:
        # A multiplier and its shift are parts of one quotient.
        scaled = functools.cache(functools.partial(scaling, params))

        def make(recipe: Recipe) -> jax.Array | QTensor:
            if isinstance(recipe, Multiplier | Shift):
                pair = scaled(recipe.scale, scale32=recipe.scale32)
                return pair[isinstance(recipe, Shift)]
            return recipe(params)

        made = {name: make(recipe) for name, recipe in self.recipes.items()}
        for name, keys in self.plan.bound_keys.items():
            for end, bound in zip(("min_val", "max_val"), self.bounds[name], strict=True):
                made[keys[end]] = bound(params)
        return made

    def _held(self, params: Params) -> Params:
        """The parameters, without gradients to those that do not train.

        Bits train only if they are learned. The scale that a function was sampled in does not, as
        its TABLE would no longer be of that function.
        """
        if "qparams" not in params:
            return params
        if "norms" in params:
            norms = {name: held_statistics(norm) for name, norm in params["norms"].items()}
            params = {**params, "norms": norms}
        held = dict(params["qparams"])
        for name, spec in self.specs.items():
            qparams = held[name]
            if name in self.sampled:
                held[name] = jax.tree.map(lax.stop_gradient, qparams)
            elif not spec.learned_bits:
                held[name] = dataclasses.replace(qparams, bits=lax.stop_gradient(qparams.bits))
        return {**params, "qparams": held}

    def _held_biases(self, params: Params) -> Params:
        """The parameters, without gradients to biases that the mean of a batch takes away again.

        They are 0, and what rounding leaves of them would be steps of their own to optimizers that
        divide by their size.
        """
        biases = {conv.bias for conv in self.plan.norms.values()}
        values = params["values"]
        held = {name: lax.stop_gradient(values[name]) for name in biases}
        return {**params, "values": {**values, **held}}

    def _input(self, params: Params, tensor: Tensor, x: Input) -> jax.Array | QTensor:
        x = self._given(tensor, x)
        if isinstance(x, QTensor):
            return x
        if tensor.name in self.owners:
            estimator = self.specs[tensor.name].estimator
            return quantize(x, params["qparams"][tensor.name], estimator)
        # Without the barrier XLA joins the product that computes x to the products that read it.
        return lax.optimization_barrier(x)

    # Programs, built at first use.

    @functools.cached_property
    def _fixed(self) -> dict[str, jax.Array | QTensor]:
        """Constants without a recipe."""
        rest = {name: v for name, v in self._built[1].items() if name not in self.recipes}
        with jax.ensure_compile_time_eval():
            return {name: _operand(x) for name, x in rest.items()}

    @functools.cached_property
    def _built(self) -> tuple[GraphFunction, dict[str, jax.Array]]:
        with jax.ensure_compile_time_eval():
            return build(
                self.graph,
                kernels=self._kernels,
                traced=self.plan.bound_keys,
                turns=self.plan.turns,
            )

    @functools.cached_property
    def _float_params(self) -> dict[str, jax.Array | QTensor]:
        with jax.ensure_compile_time_eval():
            return {name: _operand(x) for name, x in self._float_built[1].items()}

    @functools.cached_property
    def _float_built(self) -> tuple[GraphFunction, dict[str, jax.Array]]:
        assert self.float_graph is not None
        with jax.ensure_compile_time_eval():
            return build(self.float_graph, kernels=self._kernels, turns=self.plan.turns)

    @functools.cached_property
    def _local_program(self) -> GraphFunction:
        assert self.float_graph is not None
        with jax.ensure_compile_time_eval():
            graph = _step_by_step(self.float_graph, self._sources)
            return build(graph, kernels=self._kernels, turns=self.plan.turns)[0]

    @functools.cached_property
    def _kernels(self) -> SimpleNamespace:
        most = self.plan.options.max_trip_count
        found = kernels(self.estimator, self.overrides, max_trip_count=most)
        if self.plan.is_integer:
            return found
        return with_rounding_casts(found, {s.storage.dtype for s in self.specs.values()})


def _step_by_step(graph: Graph, names: Sequence[str]) -> Graph:
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


def _operand(x: jax.Array) -> jax.Array | QTensor:
    """A constant as kernels with gradients take it: integers with a shadow."""
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return x
    # Zero points above all. NumPy's int64 would be narrowed outside the 64-bit scope.
    is_known = x.size == 1 and x.dtype.itemsize < 8
    return QTensor.known(np.asarray(x)) if is_known else QTensor.of(x)


def _is_qtensor(x: Any) -> bool:
    return isinstance(x, QTensor)
