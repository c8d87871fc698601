"""Converter: builds the integer graph of a float one, with the recipes of its constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tosajax import spec
from tosajax.arguments.nan import first_nan
from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.passes.turns import turns
from tosajax.quant.convert.accumulators import Accumulator
from tosajax.quant.convert.activation_specs import ActivationSpecs
from tosajax.quant.convert.channel_scales import channel_count
from tosajax.quant.convert.octave_indices import octave_indices, octave_size
from tosajax.quant.graphs.blocks import readers_by_tensor
from tosajax.quant.graphs.inner import is_relu
from tosajax.quant.graphs.nan_constants import Nans
from tosajax.quant.graphs.regions import Function, covered, functions, steep_functions
from tosajax.quant.model.plan import NormedConv, Octaves, Options, Plan, Scaled, readers_of
from tosajax.quant.model.recipes import (
    Bias,
    Bound,
    End,
    Entries,
    Multiplier,
    Number,
    Recipe,
    Scale,
    Shift,
    Weight,
    ZeroPoint,
)
from tosajax.quant.ranges.on_grid import known_integers
from tosajax.quant.spec import Asked, QSpec
from tosajax.report import UnsupportedError

SINGLE_ROUND = spec.RoundingMode.SINGLE_ROUND
# Integers of the input of an INT16 TABLE between two entries.
TABLE_STEP = 128
# Bits that int32 sums keep below the unit of int8 and int16, as in TFLite's kernels.
_HEADROOM = {DType.INT8: 20, DType.INT16: 15}


class Converter:
    """Builds the integer graph of a float graph, node by node.

    Tensors keep their names. Tensors between a tensor and its operator are named after it: "y/acc",
    "y/multiplier".

    Args:
      graph: the graph, from `simplify`, or inside such a graph.
      norms: the convolutions that keep a batch norm, by output.
      options: the user's options.
      around: the converter of the graph that this one is inside of; they make one plan.
      owners: for some tensors of the graph, the tensors whose scales they have, which are around it
        or own theirs before conversion begins.

    Attributes:
      scaled, owners, recipes, bounds: of the `Plan`, so far.
      act_specs: the specifications of the graph's activations.
      functions: the functions of the graph, by output.
      inside: the tensors between the inputs and the outputs of functions.
      covered: these and the outputs.
      factors: of the `Plan`, so far.
      is_main: whether the graph is inside no other.
      nans: the graph's constants of NaN.
    """

    def __init__(
        self,
        graph: Graph,
        norms: Mapping[str, NormedConv],
        options: Options,
        *,
        around: Converter | None = None,
        owners: Mapping[str, str] | None = None,
    ) -> None:
        self.graph = graph
        self.functions = functions(graph)
        self._read_by: dict[str, list[Function]] = {}
        for function in self.functions.values():
            self._read_by.setdefault(function.source, []).append(function)
        self._steep = steep_functions(graph, self.functions)
        self.inside = covered(graph, self.functions)
        self.covered = {*self.inside, *self.functions}
        self.norms = norms
        self.options = options
        self.asked = around.asked if around else Asked(graph, options.rules)
        self.builder = Builder(graph.name)
        self.scaled: dict[str, Scaled] = around.scaled if around else {}
        self.owners: dict[str, str] = around.owners if around else {}
        self.recipes: dict[str, Recipe] = around.recipes if around else {}
        self.bounds: dict[str, tuple[Bound, Bound]] = around.bounds if around else {}
        self._all_functions: dict[str, Function] = around._all_functions if around else {}
        self._octaves: dict[str, Octaves] = around._octaves if around else {}
        self.factors: dict[str, int] = {}
        self.is_main = around is None
        self._given = owners or {}
        self.done: set[str] = set()  # outputs that an earlier conversion computes
        self._tensors: dict[str, Tensor] = {}
        self._zero_points: dict[str, Tensor] = {}
        self._spreads: dict[str, Tensor] = {}
        self._sums: dict[str, Accumulator] = {}
        self._readers = readers_by_tensor(graph)
        self.act_specs = ActivationSpecs(graph, self.functions, self.asked, options)
        self.nans = Nans.of(graph)

    def finished(self) -> tuple[Graph, Plan]:
        """The integer graph, once all nodes are converted, and its plan."""
        graph = self.builder.graph([self.get(name) for name in self.graph.outputs])
        return graph, Plan(
            self.scaled,
            self.owners,
            self.recipes,
            self.bounds,
            self._all_functions,
            self._octaves,
            turns(self.graph),
            self.norms,
            readers_of(self.recipes),
            self.options,
            factors=self.factors,
        )

    # Tensors of the float graph.

    def is_float(self, name: str) -> bool:
        return self.graph.tensors[name].dtype.is_float

    def constant(self, name: str) -> np.ndarray | None:
        """The values of a constant."""
        return self.graph.tensors[name].values

    def factor(self, name: str) -> float | None:
        """The value of a constant of one element; None for other tensors."""
        values = self.constant(name)
        return None if values is None or values.size != 1 else float(values.reshape(()))

    def readers(self, name: str) -> list[Node]:
        """The nodes that read a tensor."""
        return self._readers.get(name, [])

    def sole_reader(self, name: str) -> Node | None:
        """The only reader of a tensor that is not an output; None where there are more or none."""
        readers = self._readers.get(name, [])
        is_output = name in self.graph.outputs
        return readers[0] if len(readers) == 1 and not is_output else None

    # Tensors of the integer graph.

    def input(self, name: str) -> None:
        """Declares an input: integers in place of floats, other types as they are."""
        tensor = self.graph.tensors[name]
        if not tensor.dtype.is_float:
            self._tensors[name] = self.builder.input(name, tensor.dtype, tensor.shape or ())
            return
        if name not in self.owners:
            self.own(name)
        self._tensors[name] = self.builder.input(name, self.dtype(name), tensor.shape or ())

    def get(self, name: str) -> Tensor:
        """The integers of a tensor, or its booleans (known ones too), or a constant of integers."""
        if name not in self._tensors:
            tensor = self.graph.tensors[name]
            if (truth := self.nans.truths.get(name)) is not None:
                values = np.full(tensor.shape or (), truth)
                self._tensors[name] = self.builder.const(values, DType.BOOL, name=name)
                return self._tensors[name]
            assert tensor.values is not None
            if tensor.dtype.is_float:
                return self.weight(name, self._constant_spec(name))
            if tensor.dtype is DType.SHAPE:
                shape = self.builder.const_shape(tensor.values.tolist(), name=name)
                self._tensors[name] = shape
            else:
                self._tensors[name] = self.builder.const(tensor.values, tensor.dtype, name=name)
        return self._tensors[name]

    def _constant_spec(self, name: str) -> QSpec:
        """The specification of a constant among activations: their type, with all its bits."""
        spec = self.asked.act(name)
        if spec.dtype is DType.INT8 and self._is_beside_int16(name):
            return QSpec(DType.INT16)
        return QSpec(spec.dtype, symmetric=spec.symmetric)

    def _is_beside_int16(self, name: str) -> bool:
        """Whether elementwise operators alone read a constant, one of them beside INT16."""
        readers = self._readers.get(name, [])
        if not all(spec.OPERATORS[node.op].is_elementwise for node in readers):
            return False
        others = [x for node in readers for x in node.inputs if x in self.owners]
        results = [x for node in readers for x in node.outputs]
        is_wide = any(self.dtype(x) is DType.INT16 for x in others)
        return is_wide or self.act_specs.is_widened(*results)

    def weight(self, name: str, spec: QSpec, channel_axes: tuple[int, ...] = ()) -> Tensor:
        """The integers of the second operand of a node, if it is a constant.

        Scales per channel and INT4 are for constants that only one kind of node reads, as weights.
        """
        if name not in self._tensors:
            self.check_numbers(name)
            if not self.is_weight_alone(name):
                dtype = DType.INT8 if spec.dtype is DType.INT4 else spec.dtype
                spec = dataclasses.replace(spec, dtype=dtype, per_channel=False)
            self._own(name, spec, channel_axes if spec.per_channel else ())
            if self.is_weight_alone(name):
                scaled, values = self.scaled[name], self.constant(name)
                integers = known_integers(values, scaled.spec, scaled.channel_axes)
                self.scaled[name] = dataclasses.replace(scaled, integers=integers)
            recipe = Weight(name, spec.estimator)
            shape = self.graph.tensors[name].shape or ()
            self._tensors[name] = self.from_recipe(name, recipe, self.dtype(name), shape)
        return self._tensors[name]

    def check_numbers(self, name: str) -> None:
        """Raises UnsupportedError where a constant is NaN."""
        values = self.constant(name)
        if values is not None and (index := first_nan(values)) is not None:
            at = f" at {index}" if index else ""
            raise UnsupportedError(f"constant {name!r} is NaN{at}, and integers have no NaN")

    def is_weight_alone(self, name: str) -> bool:
        """Whether nothing but products of one operator reads a constant, as their weight."""
        readers = self._readers.get(name, [])
        is_weight = all([i for i, n in enumerate(r.inputs) if n == name] == [1] for r in readers)
        return is_weight and len({r.op for r in readers}) == 1 and name not in self.graph.outputs

    def dtype(self, name: str) -> DType:
        """The type of the integers of a float tensor."""
        return self.scaled[self.owners[name]].spec.storage.dtype

    def largest_offset(self, name: str) -> int:
        """The largest difference of an integer of a float tensor and its zero point."""
        spec, dtype = self.scaled[self.owner(name)].spec, self.dtype(name)
        return -dtype.minimum if spec.symmetric else dtype.maximum - dtype.minimum

    def owner(self, name: str) -> str:
        """The tensor whose QParams a float tensor has."""
        if name not in self.owners:
            self.get(name)  # a constant, quantized where it is read
        return self.owners[name]

    def unit(self, name: str) -> Scale:
        """The unit of the integers of a float tensor."""
        return Scale((self.owner(name),))

    def own(self, name: str, *also: str) -> None:
        """Gives an activation its own scale, or that of the owner that the converter was given.

        Args:
          name: the tensor's name.
          also: names by which rules may specify the tensor as well.
        """
        if name in self._given:
            self.owners[name] = self._given[name]
        else:
            self._own(name, self.act_specs.of(name, *also))

    def _own(self, name: str, spec: QSpec, channel_axes: tuple[int, ...] = ()) -> None:
        self.owners[name] = name
        relevance = self.act_specs.relevances.get(name)
        mask_axis = self.act_specs.masked.get(name)
        self.scaled[name] = Scaled(spec, channel_axes, mask_axis=mask_axis, relevance=relevance)

    def put(self, name: str, tensor: Tensor, *, like: str | None = None) -> None:
        """Sets the tensor that stands for one of the float graph, and the owner of its QParams."""
        self._tensors[name] = tensor
        if like is not None:
            self.owners[name] = self.owners[like]

    def observe(self, name: str, *, for_: str) -> None:
        """Has the range of a tensor hold the values of another."""
        scaled = self.scaled[self.owner(for_)]
        observed = (*scaled.observed, name)
        self.scaled[self.owner(for_)] = dataclasses.replace(scaled, observed=observed)

    # Constants with recipes.

    def from_recipe(self, name: str, recipe: Recipe, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A constant that a recipe makes from the parameters."""
        self.recipes[name] = recipe
        return self.builder.const(dtype.zeros(shape), dtype, name=name)

    def zero_point(self, name: str, reader: str) -> Tensor:
        """The zero point of a tensor, for the node that computes `reader`."""
        label = f"{reader}/{name}_zp"
        if label not in self._zero_points:
            recipe = ZeroPoint(self.owner(name))
            self._zero_points[label] = self.from_recipe(label, recipe, self.dtype(name), (1,))
        return self._zero_points[label]

    def zero(self, label: str, dtype: DType) -> Tensor:
        """A zero point of 0."""
        return self.builder.const(dtype.zeros((1,)), dtype, name=label)

    def bias(
        self,
        label: str,
        name: str,
        scale: Scale,
        dtype: DType,
        *,
        limit: float,
        channels: int = 1,
        norm: str | None = None,
    ) -> Tensor:
        """A bias; one value for all channels becomes one for each where these have scales."""
        (size,) = self.graph.tensors[name].shape or (1,)
        recipe = Bias(name, scale, dtype, limit, norm=norm)
        return self.from_recipe(label, recipe, dtype, (max(size, channels),))

    def number(self, label: str, name: str, value: float, shape: Sequence[int] = (1,)) -> Tensor:
        """A real constant in the units of a tensor."""
        recipe = Number(self.owner(name), value, tuple(shape))
        return self.from_recipe(label, recipe, self.dtype(name), shape)

    def range_end(self, label: str, name: str, *, upper: bool, shape: Sequence[int]) -> Tensor:
        """An end of the range of a tensor."""
        recipe = End(self.owners[name], upper, tuple(shape))
        return self.from_recipe(label, recipe, self.dtype(name), shape)

    # Steps of several conversions.

    def rescale(
        self,
        name: str,
        x: Tensor,
        scale: Scale,
        dtype: DType,
        *,
        channels: int = 1,
        input_zp: Tensor | None = None,
        output_zp: Tensor | None = None,
    ) -> Tensor:
        """A RESCALE; zero points are 0 by default."""
        scale32 = x.dtype is not DType.INT48
        multiplier_type = DType.INT32 if scale32 else DType.INT16
        multiplier = Multiplier(scale, scale32)
        return self.builder.op(
            "RESCALE",
            x,
            self.from_recipe(f"{name}/multiplier", multiplier, multiplier_type, (channels,)),
            self.from_recipe(f"{name}/shift", Shift(scale, scale32), DType.INT8, (channels,)),
            input_zp or self.zero(f"{name}/input_zp", x.dtype),
            output_zp or self.zero(f"{name}/output_zp", dtype),
            name=name,
            dtype=dtype,
            scale32=scale32,
            rounding_mode=self.options.rounding_mode if scale32 else SINGLE_ROUND,
            per_channel=channels > 1,
            input_unsigned=False,
            output_unsigned=False,
        )

    def integers(self, name: str, label: str, scale: Scale) -> Tensor:
        """A tensor without its zero point, times a scale, in int32."""
        x = self.get(name)
        zero_point = self.zero_point(name, label)
        return self.rescale(label, x, scale, DType.INT32, input_zp=zero_point)

    def wide(self, name: str, label: str, *, factor: float = 1.0) -> Tensor:
        """An INT8 tensor in INT16, without its zero point, times a factor: exact, in its unit."""
        zero_point = self.zero_point(name, label)
        scale = Scale(factor=factor)
        return self.rescale(label, self.get(name), scale, DType.INT16, input_zp=zero_point)

    def common(self, names: Sequence[str], label: str) -> tuple[list[Tensor], Scale]:
        """Several tensors in int32, in one unit below each of theirs; and that unit."""
        largest = tuple(dict.fromkeys(map(self.owner, names)))
        headroom = min(_HEADROOM[self.dtype(name)] for name in names)
        unit = Scale((largest,), factor=2.0 ** (1 - headroom))
        wide = [
            self.integers(
                name,
                f"{label}/input{number}",
                Scale((self.owner(name),), largest, 2.0 ** (headroom - 1)),
            )
            for number, name in enumerate(names)
        ]
        return wide, unit

    def finish(
        self, name: str, acc: Accumulator, *, channels: int = 1, also: Sequence[str] = ()
    ) -> None:
        """An accumulator as its tensor, with the CLAMP that alone reads it.

        Args:
          name: the tensor.
          acc: the accumulator.
          channels: the channels that have scales of their own.
          also: names by which rules may specify the tensor as well.
        """
        is_plain = channels == 1 and acc.zero_point is None and acc.tensor.dtype is DType.INT32
        if is_plain and self._is_steep_source(name):
            self._sums[name] = acc
            return
        final, low, high = self._clamp_after(name)
        self.own(final, name, *also)
        scale = acc.scale.to(self.owners[final])
        count = channel_count(self, final, low, high)
        if count > 1:
            self.factors[final] = channels = count
            scale = dataclasses.replace(scale, channels=final)
        dtype, sums = self.dtype(final), acc.tensor
        if dtype is DType.INT16 and self.act_specs.is_widened(final) and is_relu(low, high):
            # The base profile has no CLAMP of INT16.
            zeros = self.builder.const(
                np.zeros((1,) * len(sums.shape or ()), np.int32), DType.INT32, name=f"{final}/zero"
            )
            nan_mode = spec.NanMode.PROPAGATE
            sums = self.builder.op("MAXIMUM", sums, zeros, name=f"{final}/relu", nan_mode=nan_mode)
            low = high = None
        rescaled = self.rescale(
            f"{final}/rescaled",
            sums,
            scale,
            dtype,
            channels=channels,
            input_zp=acc.zero_point,
            output_zp=self.zero_point(final, final),
        )
        self._tensors[final] = self._in_range(final, rescaled, low, high)

    def look_up(self, function: Function) -> None:
        """A TABLE for a function, in int16 where its input or its output is.

        A TABLE of int16 has an entry for 128 integers, and an input of fewer bits would use few of
        them: it is spread over the type first. An int8 input of it has an entry for each integer.
        """
        name = function.output
        self.own(name)
        self._all_functions[name] = function
        wanted = self.dtype(name)
        x = self._table_index(function, wanted)
        recipe = Entries(name, self.owners[name], x.dtype)
        entries = self.from_recipe(f"{name}/table", recipe, x.dtype, (table_size(x.dtype),))
        looked_up = self.builder.op("TABLE", x, entries, name=f"{name}/looked_up")
        if x.dtype is DType.INT16:
            looked_up = self.rescale(
                f"{name}/rescaled",
                looked_up,
                Scale(factor=recipe.step(wanted) / TABLE_STEP),
                wanted,
                output_zp=self.zero_point(name, name),
            )
        self._tensors[name] = self._in_range(name, looked_up, None, None)

    def _table_index(self, function: Function, wanted: DType) -> Tensor:
        """The input of the TABLE of a function."""
        name, source = function.output, function.source
        acc = self._sums.get(source)
        if acc is None and name in self._steep and self.dtype(source) is DType.INT16:
            x = self.integers(source, f"{name}/input", Scale())
            acc = Accumulator(x, self.unit(source), bits=16)
        if acc is not None:
            size = octave_size(acc.bits or 32)
            self._octaves[name] = Octaves(size, acc.scale)
            return octave_indices(self.builder, name, acc.tensor, size)
        x = self.get(source)
        if x.dtype is DType.INT16:
            return self._spread(source)
        return self.wide(source, f"{name}/input", factor=TABLE_STEP) if wanted is DType.INT16 else x

    def _spread(self, name: str) -> Tensor:
        """Integers that fill their type; `freeze` drops a RESCALE whose input has all its bits."""
        if name not in self._spreads:
            scale = Scale(spread=self.owner(name))
            self._spreads[name] = self.rescale(
                f"{name}/spread", self.get(name), scale, self.dtype(name)
            )
        return self._spreads[name]

    def clamp(
        self, name: str, x: Tensor, low: float | None = None, high: float | None = None
    ) -> None:
        """The tensor `name`, whose owner is known: x in the range of its bits and between ends."""
        self._tensors[name] = self._in_range(name, x, low, high)

    def move(self, node: Node, source: str) -> None:
        """An operator that keeps the scale of its input."""
        self.copy(node)
        if self.is_float(node.outputs[0]):
            self.owners[node.outputs[0]] = self.owners[source]

    def copy(self, node: Node) -> None:
        """Writes the operator on integers."""
        (output,) = node.outputs
        inputs = [self.get(name) for name in node.inputs]
        is_float = self.is_float(output)
        dtype = inputs[0].dtype if is_float else self.graph.tensors[output].dtype
        self._tensors[output] = self.builder.op(
            node.op,
            *inputs,
            name=output,
            dtype=dtype,
            location=node.location,
            **node.attributes,
        )

    def _in_range(self, name: str, x: Tensor, low: float | None, high: float | None) -> Tensor:
        owner = self.owners[name]
        self.bounds[name] = Bound(owner, False, low), Bound(owner, True, high)
        return self.builder.op(
            "CLAMP",
            x,
            name=name,
            min_val=x.dtype.storage.type(x.dtype.minimum),
            max_val=x.dtype.storage.type(x.dtype.maximum),
            nan_mode=spec.NanMode.PROPAGATE,
        )

    def _clamp_after(self, name: str) -> tuple[str, float | None, float | None]:
        """The output and the ends of the CLAMP that alone reads a tensor; or the tensor."""
        reader = self.sole_reader(name)
        if reader is None or reader.op != "CLAMP" or reader.outputs[0] in self.functions:
            return name, None, None
        self.done.update(reader.outputs)
        return reader.outputs[0], *ends(reader)

    def align(self, name: str, output: str, label: str) -> Tensor:
        """The integers of a tensor in the units of another."""
        return self.rescale(
            label,
            self.get(name),
            self.unit(name).to(self.owner(output)),
            self.dtype(output),
            input_zp=self.zero_point(name, label),
            output_zp=self.zero_point(output, label),
        )

    def in_unit(self, name: str, owner: str, label: str) -> Tensor:
        """A tensor in the unit and the range of another: itself where it has them."""
        if self.owner(name) == owner:
            return self.get(name)
        self.owners[label] = owner
        return self._in_range(label, self.align(name, owner, f"{label}/aligned"), None, None)

    def in_common_unit(self, name: str, sources: Sequence[str]) -> list[Tensor]:
        """Tensors in the unit of `name`: their own unit where they share it."""
        if len(owners := set(map(self.owner, sources))) == 1:
            (self.owners[name],) = owners
            return [self.get(source) for source in sources]
        self.own(name)
        return [self.align(s, name, f"{name}/input{i}") for i, s in enumerate(sources)]

    # Sums that go on in int32.

    def finish_sum(self, name: str, acc: Accumulator) -> None:
        """A sum as its tensor; it stays an accumulator where a sum or a constant factor follows."""
        reader = self.sole_reader(name)
        is_source = name in self._read_by
        goes_on = reader is not None and reader.outputs[0] not in self.covered
        if reader is not None and goes_on and not is_source and self._sums_up(reader):
            self._sums[name] = acc
        else:
            self.finish(name, acc)

    def _is_steep_source(self, name: str) -> bool:
        """Whether tables by octaves alone read a tensor: of its accumulator, that is."""
        read = self._read_by.get(name, [])
        others = [n for n in self._readers.get(name, []) if n.outputs[0] not in self.covered]
        is_output = name in self.graph.outputs
        is_steep = all(function.output in self._steep for function in read)
        return bool(read) and is_steep and not others and not is_output

    def _sums_up(self, reader: Node) -> bool:
        factors = [self.factor(name) for name in reader.inputs[:2]] if reader.op == "MUL" else []
        return reader.op == "REDUCE_SUM" or any(f is not None and f > 0 for f in factors)

    def sum(self, name: str) -> Accumulator | None:
        """The accumulator that a tensor stays; None where it does not."""
        return self._sums.get(name)


def table_size(input: DType) -> int:
    """The entries of a TABLE, by the type of its input."""
    (row,) = (row for row in spec.OPERATORS["TABLE"].types if row.types["in_t"] is input)
    size = row.types["TABLE_SIZE"]
    assert isinstance(size, int)
    return size


def ends(node: Node) -> tuple[float, float]:
    """The bounds of a CLAMP."""
    return float(node.attributes["min_val"]), float(node.attributes["max_val"])
