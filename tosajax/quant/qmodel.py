"""QModel: a graph whose constants are made of parameters; with a float graph, or lifted."""

from __future__ import annotations

import abc
import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax

from tosajax import html
from tosajax.arguments.types import check_type
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.qtensor import QTensor
from tosajax.graph import Graph, Quantization, Tensor
from tosajax.quant import freezing
from tosajax.quant.convert.open_batches import for_any_batch
from tosajax.quant.graphs.blocks import inner_tensors
from tosajax.quant.graphs.reading_back import Reader
from tosajax.quant.model import arguments, run
from tosajax.quant.model import params as parameters
from tosajax.quant.model.arguments import Input
from tosajax.quant.model.norms import Norms
from tosajax.quant.model.plan import Plan
from tosajax.quant.model.programs import Programs, jitted
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.room import fitted
from tosajax.quant.model.run import Mode
from tosajax.quant.spec import QSpec
from tosajax.report import UnsupportedError


@dataclasses.dataclass(frozen=True, eq=False)
class QModel(abc.ABC):
    """A graph of integers, and how its constants are made of parameters; nothing is computed here.

    `prepare` makes a `PreparedModel`, `lift` a `LiftedModel`. With FP8, the graph is of floats
    whose convolutions and MATMULs have FP8 operands.

    Args:
      graph: its constants with a recipe are placeholders.
      plan: how the tensors of `graph` are quantized, and its constants made.
      estimator: the surrogate derivative of rounding and saturation.
      overrides: other estimators, by operator.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> model
      PreparedModel('main', graph 17 nodes, float graph 1 node, weights 0, activations 2,
          formats 2 of 8-bit INT8)
      >>> model.activations, [tensor.dtype.name for tensor in model.graph.output_tensors]
      (('x', 'output'), ['INT8'])
    """

    graph: Graph
    plan: Plan
    estimator: Estimator = clipped_ste
    overrides: Mapping[str, Estimator] = dataclasses.field(default_factory=dict)
    programs: Programs = dataclasses.field(default_factory=Programs, init=False, repr=False)

    @property
    def specs(self) -> Mapping[str, QSpec]:
        """How each tensor with a scale of its own is quantized."""
        return self.plan.specs

    @property
    def owners(self) -> Mapping[str, str]:
        """For each tensor of integers or FP8, the one whose QParams it has."""
        return self.plan.owners

    @property
    def weights(self) -> tuple[str, ...]:
        """The constants that are quantized, by name."""
        return self.plan.weights

    @property
    def activations(self) -> tuple[str, ...]:
        """The tensors with a scale of their own that are not constants, inputs first."""
        return self.plan.activations

    @abc.abstractmethod
    def check(self, params: Params, mode: Mode = "exact") -> None:
        """Checks that parameters are of this model, and that their scales are positive.

        Traced scales have no value yet and are not looked at; `mode` "float" needs no scales.

        Raises:
          TypeError: they are not dictionaries.
          ValueError: a tensor is missing; a scale or zero point is out of range; or a function was
            sampled in another scale than its input has.
        """

    @abc.abstractmethod
    def _with_floats(self, mode: Mode) -> PreparedModel:
        """This model, for a mode that runs its float graph.

        Raises:
          ValueError: it has none.
        """

    def apply(self, params: Params, *inputs: Input, mode: Mode = "exact") -> tuple[jax.Array, ...]:
        """Runs the model on real values, as one program for inputs of the same shapes.

        It is a JAX function: `jit`, `grad` and `vmap` around it see through that program, which the
        model keeps.

        Args:
          params: the parameters, from `calibrate`, trained or not.
          inputs: float32 (or, as they are in the float graph, integers and bool) in the graph's
            shapes; or batches of them: one axis more in front, or more along a first axis of 1.
            Integers of a quantized input are taken as they are.
          mode: "exact": the integers of `freeze`, with surrogate gradients. "fake_quant": floats
            that are rounded to the real values of integers, as other tools train; of FP8 the same
            as "exact". "float".

        Returns:
          The outputs in float32, integers times their scale (integers of a lifted graph unscaled),
          and bool.

        Raises:
          TypeError: an input is not an array, or not of floats where `mode` needs them.
          ValueError: an input has another shape, the mode is unknown or needs a float graph, the
            parameters are of another model, or a scale is not positive (not checked under
            `jax.jit`, where scales have no values).
        """
        self.check(params, mode)
        if run.is_exact(self.plan, mode):
            return jitted(self, run.exact)(params, *run.input_arrays(self, inputs))
        model = self._with_floats(mode)
        reals = arguments.real_inputs(model.float_graph.input_tensors, inputs)
        return jitted(model, run.floats, mode=mode)(params, *reals)

    def apply_batch(
        self, params: Params, *inputs: Input, mode: Mode = "exact"
    ) -> tuple[tuple[jax.Array, ...], Norms]:
        """Runs the model as `apply` does, with the statistics of this batch in each batch norm.

        Each is of the values that the convolution has in this run, in "exact" of its integers; the
        gradient goes through them. With the norms that it returns as `params["norms"]`, `apply`
        gives the same outputs for these inputs, and in "exact" the same bits.

        Args:
          params: the parameters, from `calibrate`, of a model that `prepare` made with
            `batch_norms`.
          inputs: examples, as for `apply`; all examples of the batch count.
          mode: the mode, as for `apply`.

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
        if run.is_exact(self.plan, mode):
            return jitted(self, run.exact_batch)(params, *run.input_arrays(self, inputs))
        model = self._with_floats(mode)
        reals = arguments.real_inputs(model.float_graph.input_tensors, inputs)
        return jitted(model, run.floats_batch, mode=mode)(params, *reals)

    def integers(self, params: Params, *inputs: Input) -> tuple[jax.Array | QTensor, ...]:
        """Runs the integer graph; see `apply`. Returns integers and FP8 as QTensors."""
        self.check(params)
        return run.integers(self, parameters.without_fixed_gradients(self.plan, params), *inputs)

    def input_integers(self, params: Params, *inputs: Input) -> tuple[jax.Array | QTensor, ...]:
        """The inputs of `apply` as the integer graph takes them: QTensors, bool as it is."""
        return run.input_integers(self, params, *inputs)

    def real(self, params: Params, name: str, value: jax.Array | QTensor) -> jax.Array:
        """The real values of a tensor of the integer graph, given its integers as a QTensor."""
        return run.real(self.plan, params, name, value)

    def constants(self, params: Params) -> dict[str, Any]:
        """Every constant and CLAMP bound of the graph that depends on parameters, by name.

        Integers and FP8 are QTensors, FP32 is arrays.
        """
        params = parameters.without_fixed_gradients(self.plan, params)
        return parameters.recipe_constants(self.plan, fitted(self.plan, params))

    def freeze(self, params: Params) -> Graph:
        """The integer graph with these parameters, to save and to ship; equal to `apply`.

        It has the scales and zero points of its integers (`Graph.quantization`), and so has its
        file. Weights near 0 have a larger scale than the parameters hold, so that their bias has
        room (`report` lists them); products so long that sums may overflow all the same are named
        in a warning. Inputs and outputs of a lifted graph keep the scales that it was lifted with.
        The batch is open if the float graph's is. States that were variables are so again.

        Raises:
          ValueError: the parameters are of another model; one of them is NaN; a scale is not
            positive, or out of the range of RESCALE, or of a product of FP32; or a bias of two
            computed tensors is beyond its accumulator.
          TosaError: the graph is illegal.
          UnsupportedError: the batch cannot be open; or a variable is of INT16.
        """
        return freezing.with_variables(self.plan, params, freezing.freeze(self, params))

    def quantization(self, params: Params) -> dict[str, Quantization]:
        """Scales, zero points and ranges of the tensors of the integer graph, by name.

        FP8 has none, nor have tensors in the unit of a product, as biases.
        """
        return freezing.quantization(self, params)

    def with_outputs(self, *names: str) -> QModel:
        """The same model with other tensors of the integer graph as its outputs.

        Raises:
          UnsupportedError: one of them is inside a loop or a branch.
        """
        _check_outer(self.graph, inner_tensors(self.graph), names)
        return dataclasses.replace(self, graph=dataclasses.replace(self.graph, outputs=names))

    @property
    def frozen_form(self) -> Graph:
        """The integer graph with placeholders, as `freeze` fills it."""
        return self.graph

    def __repr__(self) -> str:
        counts = ", ".join(f"{kind} {count}" for kind, count in self._summary())
        return f"{type(self).__name__}({html.quoted(self.graph.name)}, {counts})"

    def _repr_html_(self) -> str:
        head = ("tensor", "kind", "type", "bits", "symmetric", "per channel", "learned bits")
        kinds = dict.fromkeys(self.weights, "weight")
        rows = []
        for name, s in self.specs.items():
            kind = kinds.get(name, "activation")
            options = (s.symmetric, s.per_channel, s.learned_bits)
            rows.append([name, kind, s.storage.name, s.bits, *options])
        title = f"{type(self).__name__} {self.graph.name}"
        return html.box(title, self._summary(), head, rows, noun="tensor", named_by=0)

    def _summary(self) -> list[tuple[str, str]]:
        """The model in short: terms and counts."""
        return [("graph", html.counted(len(self.graph.nodes), "node")), *self._counts()]

    @abc.abstractmethod
    def _counts(self) -> list[tuple[str, str]]:
        """The terms and counts of the summary after the graph."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PreparedModel(QModel):
    """A model beside the float graph that it was made of; both graphs share names of tensors.

    Parameters are a dictionary of float32 arrays, from `calibrate`: "values" (constants of the
    float graph), "qparams" (a QParams of each tensor with a scale of its own), "tables" (samples
    of functions), "sampled" (the QParams that their inputs had then), all by tensor name; "norms"
    (a Norm of each convolution that keeps its batch norm, by its output); "factors" of the channels
    of activations that have a scale for each, which do not train; and "corrections" of values, from
    `bias_correct` and `learned_rounding`, which the integers follow and the float graph does not.

    Args:
      float_graph: FP32.
      reader: finds parameters of the function that `prepare` was given; None for a graph, and in
        another process.
      source: the float graph of any batch that `prepare` was given; None for other graphs.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> sorted(params["qparams"]), params["qparams"]["x"]
      (['output', 'x'], QParams(INT8, scale=0.00784505, zero_point=-1, bits=8))
      >>> model.apply(params, example, mode="float")[0].tolist()
      [[-2.0, 2.0]]
    """

    float_graph: Graph = dataclasses.field(kw_only=True)
    reader: Reader | None = dataclasses.field(default=None, kw_only=True)
    source: Graph | None = dataclasses.field(default=None, kw_only=True)

    def check(self, params: Params, mode: Mode = "exact") -> None:
        """Checks that parameters are of this model; see `QModel.check`."""
        if mode == "float":
            parameters.check_values(self.plan, params)
            return
        parameters.check(self.plan, params)
        if mode == "exact":
            parameters.check_tables(self.plan, params)

    def _with_floats(self, mode: Mode) -> PreparedModel:
        """This model, which has a float graph."""
        return self

    def with_outputs(self, *names: str) -> PreparedModel:
        """The same model with other tensors of both graphs as its outputs.

        Raises:
          UnsupportedError: one of them is inside a loop or a branch.
        """
        inner = {**inner_tensors(self.graph), **inner_tensors(self.float_graph)}
        _check_outer(self.graph, inner, names)
        graph, floats = (
            dataclasses.replace(graph, outputs=names) for graph in (self.graph, self.float_graph)
        )
        return dataclasses.replace(self, graph=graph, float_graph=floats)

    @property
    def outer_activations(self) -> tuple[str, ...]:
        """The activations outside loops and branches; states and results of these are there."""
        inner = inner_tensors(self.float_graph)
        return tuple(name for name in self.activations if name not in inner)

    @property
    def frozen_form(self) -> Graph:
        """The integer graph with placeholders; of any batch, where the float graph was.

        Raises:
          UnsupportedError: the batch cannot be open.
        """
        if self.source is None:
            return self.graph
        return for_any_batch(self.graph, self.plan, self.source)

    def local(self, params: Params, *inputs: Input) -> dict[str, jax.Array]:
        """The float graph on the real values of the integer graph, step by step.

        Each quantized tensor is computed in floats from the integer graph's values of the tensors
        before it, and so differs from its own integers by the error of one operator.

        Returns:
          These float32 values by name.
        """
        return run.local(self, params, *inputs)

    def pytree(self, params: Params) -> Any:
        """The parameters of the user's function, as they were trained.

        With them the function is the float graph with these parameters (`apply` in mode "float"),
        but for rounding. Parameters that training has not changed have the same bits. Scales of
        channels stay as they are, as in a batch norm after a convolution: the convolution's weights
        change in their place, and offsets go into one parameter (beta). This holds as well for
        norms that `prepare` has kept. Corrections of integers (`bias_correct`,
        `learned_rounding`) are not part of it.

        Args:
          params: the parameters, from `calibrate`, trained or not.

        Returns:
          The `params` or the module that `prepare` was given, with other arrays of the same types;
          a pair of both, if both hold arrays.

        Raises:
          TypeError, ValueError: as `apply`; or the model was not made of a function, or is a copy
            in another process; or the function cannot have these constants. `readable` keeps
            parameters such that it can.
        """
        reader = self._function_reader()
        self.check(params, "float")
        return reader.pytree(run.float_constants(self, params, params.get("norms", {})))

    def readable(self, params: Params) -> Params:
        """The parameters with constants that the user's function can have, for `pytree`.

        Constants that are made of the same parameter of the function, as a table of embeddings and
        a last layer that share it, follow the largest of them. Constants that are not made of a
        parameter, or that the function multiplies by 0, keep their value from before training.
        `fit` trains with it as `derive`.

        Args:
          params: the parameters, from `calibrate`, trained or not; may be traced.

        Raises:
          ValueError: the model was not made of a function, or is a copy in another process.
        """
        return {**params, "values": self._function_reader().readable(params["values"])}

    def _function_reader(self) -> Reader:
        if self.reader is None:
            raise ValueError("the model has no function, expected one of `prepare(fn, ...)`")
        return self.reader

    def _counts(self) -> list[tuple[str, str]]:
        kinds = Counter(f"{s.bits}-bit {s.storage.name}" for s in self.specs.values())
        return [
            ("float graph", html.counted(len(self.float_graph.nodes), "node")),
            ("weights", str(len(self.weights))),
            ("activations", str(len(self.activations))),
            *([("batch norms", str(len(self.plan.norms)))] if self.plan.norms else []),
            ("formats", html.listed([f"{n} of {kind}" for kind, n in kinds.most_common()])),
        ]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LiftedModel(QModel):
    """A model of a graph of integers, which has no floats to compare with.

    Parameters are a dictionary of float32 arrays, from `lift`, by group and tensor name.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import quant
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 2))
      >>> table = b.const(np.arange(-128, 128), tosajax.DType.INT8, name="t")
      >>> model, params = quant.lift(b.graph([b.op("TABLE", x, table)]))
      >>> model
      LiftedModel('main', graph 2 nodes, table 1)
    """

    def check(self, params: Params, mode: Mode = "exact") -> None:
        """Checks that parameters are of this model; see `QModel.check`."""
        arguments.check_params(params, self.plan.lifted_groups)

    def _with_floats(self, mode: Mode) -> PreparedModel:
        """Raises ValueError: it has no float graph."""
        raise ValueError(f"mode {mode!r} of a model without a float graph, expected 'exact'")

    def _counts(self) -> list[tuple[str, str]]:
        return [(group, str(len(names))) for group, names in self.plan.lifted_groups.items()]


_NOTHING_TO_COMPARE = "the model has no float graph to compare with, expected one of `prepare`"


def prepared(
    model: object, message: str = _NOTHING_TO_COMPARE, *, of_integers: bool = False
) -> PreparedModel:
    """The model of a function that needs a float graph.

    Args:
      model: the user's model.
      message: the message of the error for another model.
      of_integers: FP8 is refused as well.

    Raises:
      TypeError: it is not a model.
      ValueError: it is another model.
    """
    check_type("model", model, QModel, "a QModel, from `prepare`")
    if not isinstance(model, PreparedModel) or (of_integers and not model.plan.is_integer):
        raise ValueError(message)
    return model


def _check_outer(graph: Graph, inner: Mapping[str, Tensor], names: tuple[str, ...]) -> None:
    """Raises UnsupportedError where a tensor is inside a loop or a branch."""
    for name in names:
        if name in inner and name not in graph.tensors:
            raise UnsupportedError(
                f"{name!r} is inside a loop or a branch, which has no value of it at its end"
            )
