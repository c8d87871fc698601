"""Plan: how the tensors of a model's graph are quantized, and how its constants are made."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tosajax.quant.graphs.regions import Function
from tosajax.quant.model.recipes import (
    Bias,
    Bound,
    Lifted,
    Multiplier,
    Recipe,
    Scale,
    Shift,
    Value,
    Weight,
)
from tosajax.quant.ranges.relevance import Relevance
from tosajax.quant.spec import QSpec, Rule
from tosajax.spec import RoundingMode


@dataclasses.dataclass(frozen=True)
class Scaled:
    """A tensor with a scale of its own: the parameters hold QParams of it.

    Args:
      spec: how it is quantized.
      channel_axes: the axes of the channels of a constant with one scale for each; else empty.
      observed: other tensors whose values its range must hold.
      mask_axis: the axis of the rows in which masks leave out elements, -1 for the last; None where
        no mask reaches it.
      relevance: the part of its values that its range must hold; None where that is all.
      integers: the largest integer of each channel of a constant whose values are integers times a
        scale, or the ends of all of them, see `on_grid.known_integers`; None of others.
    """

    spec: QSpec
    channel_axes: tuple[int, ...] = ()
    observed: tuple[str, ...] = ()
    mask_axis: int | None = None
    relevance: Relevance | None = None
    integers: tuple[int, ...] | None = None


class State(NamedTuple):
    """An input whose next value is an output.

    Args:
      input: its name.
      output: the output's name.
      is_variable: the graph that `prepare` was given has a variable of it.
      initial: the variable's initial value, if it has one.
    """

    input: str
    output: str
    is_variable: bool = False
    initial: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Options:
    """The user's options of `prepare`, described there."""

    rules: tuple[Rule, ...] = ()
    rounding_mode: RoundingMode = RoundingMode.SINGLE_ROUND
    own_pool_scales: bool = True
    wide_normalizers: bool = True
    wide_elementwise: bool = True
    channel_scales: bool = True
    max_trip_count: int | None = None
    states: tuple[State, ...] = ()


# What reads the scale of a constant in a product, and limits it.
Reader = Bias | Multiplier


class NormedConv(NamedTuple):
    """The constants of a convolution that keeps a batch norm, and the channels of its weight."""

    weight: str
    bias: str
    channel_axes: tuple[int, ...]


class Octaves(NamedTuple):
    """Indices of a TABLE that go up by a number for each doubling of positive integers.

    Integers 2**n (1 + f), with f below 1, have the index size * (n + f), rounded down, from the
    lowest index of INT16 on.

    Args:
      size: the indices of an octave, a power of 2.
      unit: of the integers.
    """

    size: int
    unit: Scale

    def integers(self, indices: np.ndarray) -> np.ndarray:
        """The real numbers, in units, at indices counted from 0, float64."""
        octave, part = np.divmod(indices, self.size)
        return 2.0**octave * (1 + part / self.size)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The decisions of `prepare` and `lift` for a graph, by tensor name; all else follows.

    Tensors inside loops and branches have names of their own. A state of a loop has the scale of
    the loop's output, in all turns; a result of a branch has the scale of the COND_IF's output.

    Args:
      scaled: the tensors with a scale of their own, in the order of the graph.
      owners: the tensor whose scale each tensor of stored values (integers, FP8) has.
      recipes: the recipe of each constant that depends on parameters.
      bounds: the bounds of each CLAMP that depend on parameters, by its output.
      functions: the function of each TABLE, by its output.
      octaves: how the indices of a TABLE follow from its function's source, by output, where they
        are by octaves; the other tables are indexed by the source's integers.
      turns: the turns of the loops whose inputs do not change it, by their first output.
      norms: the convolutions that keep a batch norm, by output.
      readers: the recipes of the scales that a constant's scale is a factor of, by constant.
      options: the options that the decisions follow.
      limited: the outputs of the functions that alone read a tensor, by tensor: its range need not
        hold values beyond which none of them changes.
      factors: the number of channels of each activation whose channels have factors of their own:
        its integers, times its scale, are its values times these.
      ties: the input whose scale other inputs and computed tensors have that become states.
    """

    scaled: Mapping[str, Scaled] = dataclasses.field(default_factory=dict)
    owners: Mapping[str, str] = dataclasses.field(default_factory=dict)
    recipes: Mapping[str, Recipe] = dataclasses.field(default_factory=dict)
    bounds: Mapping[str, tuple[Bound, Bound]] = dataclasses.field(default_factory=dict)
    functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)
    octaves: Mapping[str, Octaves] = dataclasses.field(default_factory=dict)
    turns: Mapping[str, int] = dataclasses.field(default_factory=dict)
    norms: Mapping[str, NormedConv] = dataclasses.field(default_factory=dict)
    readers: Mapping[str, tuple[Reader, ...]] = dataclasses.field(default_factory=dict)
    options: Options = dataclasses.field(default_factory=Options)
    ties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limited: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    factors: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def is_integer(self) -> bool:
        """Whether the graph computes on integers; else on FP32, with rounded operands."""
        return all(tensor.spec.storage.is_integer for tensor in self.scaled.values())

    @functools.cached_property
    def specs(self) -> dict[str, QSpec]:
        """How each tensor with a scale of its own is quantized."""
        return {name: tensor.spec for name, tensor in self.scaled.items()}

    @functools.cached_property
    def sampled(self) -> dict[str, str]:
        """For each tensor in whose scale functions are sampled, the output of one such TABLE."""
        return {owner: name for name in self.functions for owner in self.sampled_in(name)}

    def sampled_in(self, name: str) -> tuple[str, ...]:
        """The tensors in whose scales the function of a TABLE is sampled."""
        if name in self.octaves:
            return self.octaves[name].unit.tensors
        return (self.owners[self.functions[name].source],)

    @functools.cached_property
    def weights(self) -> tuple[str, ...]:
        """The constants that are quantized."""
        return tuple(r.tensor for r in self.recipes.values() if isinstance(r, Weight))

    @functools.cached_property
    def activations(self) -> tuple[str, ...]:
        """The tensors with a scale of their own that are not constants, inputs first."""
        return tuple(name for name in self.scaled if name not in self.weights)

    @functools.cached_property
    def trained(self) -> tuple[str, ...]:
        """The constants of the float graph that parameters hold: weights, biases and others."""
        recipes = self.recipes.values()
        names = [recipe.tensor for recipe in recipes if isinstance(recipe, Weight | Bias | Value)]
        return tuple(dict.fromkeys(names))

    @functools.cached_property
    def stored(self) -> dict[str, str]:
        """For each tensor with a scale of its own, the tensor of the graph with its stored values.

        In a graph of integers it is the tensor itself; beside an activation in FP32 it is another.
        """
        beside = {owner: name for name, owner in self.owners.items()}
        return {name: name if name in self.owners else beside[name] for name in self.scaled}

    @functools.cached_property
    def bound_keys(self) -> dict[str, dict[str, str]]:
        """For the output of each CLAMP of `bounds`, the keys of its ends among constants."""
        return {n: {end: f"{n}/{end}" for end in ("min_val", "max_val")} for n in self.bounds}

    @functools.cached_property
    def norm_constants(self) -> dict[str, list[str]]:
        """For the output of each convolution with a batch norm, the constants it is part of."""
        constants: dict[str, list[str]] = {name: [] for name in self.norms}
        for label, recipe in self.recipes.items():
            part = recipe.scale if isinstance(recipe, Multiplier | Shift) else recipe
            if isinstance(part, Scale | Bias) and part.norm is not None:
                constants[part.norm].append(label)
        return constants

    @functools.cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The names that parameters from `calibrate` hold, by group."""
        named = {
            "values": self.trained,
            "qparams": tuple(self.scaled),
            "tables": tuple(self.functions),
            "sampled": tuple(self.sampled),
        }
        some = {"norms": tuple(self.norms), "factors": tuple(self.factors)}
        return {**named, **{group: names for group, names in some.items() if names}}

    @functools.cached_property
    def lifted_groups(self) -> dict[str, tuple[str, ...]]:
        """The names that parameters from `lift` hold, by group."""
        groups: dict[str, dict[str, None]] = {}
        for recipe in self.recipes.values():
            if isinstance(recipe, Lifted):  # a multiplier and its shift are of one name
                groups.setdefault(recipe.group, {})[recipe.name] = None
        return {group: tuple(names) for group, names in groups.items()}


def readers_of(recipes: Mapping[str, Recipe]) -> dict[str, tuple[Reader, ...]]:
    """For each constant whose scale is a factor of others, the recipes that these are for."""
    constants = {recipe.tensor for recipe in recipes.values() if isinstance(recipe, Weight)}
    readers_by_name: dict[str, list[Reader]] = {}
    for recipe in recipes.values():
        # A common unit of several tensors is that of the largest; no constant alone decides on it.
        if isinstance(recipe, Reader) and not isinstance(recipe.scale.under, tuple):
            for name in constants.intersection(recipe.scale.over):
                readers_by_name.setdefault(name, []).append(recipe)
    return {name: tuple(readers) for name, readers in readers_by_name.items()}
