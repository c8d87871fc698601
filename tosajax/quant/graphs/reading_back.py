"""Reading back: the trained constants of a float graph, as parameters of its function.

An element of a constant is an element of a parameter, times a factor, plus an offset: these come
from the operations of the function on its parameters, and from the scales and offsets of channels
that `simplify` puts into convolutions.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.from_jax.origins import Elements, elements
from tosajax.graph import Tensor
from tosajax.quant.graphs.blocks import separated
from tosajax.quant.graphs.functions import Function, Parameter
from tosajax.quant.graphs.simplify import Folded, neutral_constants
from tosajax.quant.ranges.channels import along

# How far constants may be from what their parameter makes of them, or from each other, by the
# largest element and the precision of the type. A few operations are between them.
_ROUNDING = 32


class Source(NamedTuple):
    """The elements of a parameter that a trained constant is made of.

    Args:
      constant: the name of the constant of the exported graph that it equals or contains.
      number: the number of the parameter.
      elements: the dependence of its elements on the parameter's.
    """

    constant: str
    number: int
    elements: Elements

    def times(self, factor: np.ndarray) -> Source:
        """The source of the elements times a factor."""
        places, own, offset = self.elements
        return self._replace(elements=Elements(places, own * factor, offset * factor))

    def parameter_of(self, constant: np.ndarray) -> np.ndarray:
        """The elements of the parameter that these of the constant are made of."""
        _, factor, offset = self.elements
        with np.errstate(divide="ignore", invalid="ignore"):
            return (constant - offset) / factor


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """Finds the parameters of a function in the constants of its float graph.

    Args:
      function: that the graph is of.
      folded: the convolutions of the graph that scales and offsets have gone into.
      trained: its constants, as they were before training.
    """

    function: Function
    folded: tuple[Folded, ...]
    trained: Mapping[str, Tensor]

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Pickled, it is None: the user's function stays where it is, as many cannot be pickled."""
        return type(None), ()

    def pytree(self, values: Mapping[str, Any]) -> Any:
        """The parameters of the function with which it has these constants.

        Args:
          values: all of `trained`, by name.

        Raises:
          ValueError: there are none, and the message tells why.
        """
        parameters = self.function.parameters
        if not parameters:
            raise ValueError("the function has no parameters, expected params for `prepare`")
        changed = {
            name: now != was
            for name, now, was in self._trained_and_initial(values)
            if (now != was).any()
        }
        numbers = {self._known_source(name).number for name in changed}
        drafts = {number: _Draft(parameters[number]) for number in numbers}
        constants = set[str]()
        for name in self.trained:
            source = self.source(name)
            if source is not None and source.number in numbers:
                drafts[source.number].put(name, source, _float64(values[name]), changed.get(name))
                constants.add(source.constant)
        self._check_rest(constants - self._fixed_constants(), drafts)
        arrays = [drafts[n].array if n in drafts else p.array for n, p in enumerate(parameters)]
        return self.function.with_arrays(arrays)

    def readable(self, values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The constants, as far as parameters can make them; see `QModel.readable`."""
        constants, groups = dict(values), defaultdict[int, list[str]](list)
        for name, tensor in self.trained.items():
            source = self.source(name)
            is_held = True if source is None else source.elements.factor == 0
            if np.any(is_held):
                constants[name] = jnp.where(is_held, np.asarray(tensor.values), values[name])
            if source is not None:
                groups[source.number].append(name)
        for number, names in groups.items():
            if len(names) > 1 or self._has_repeats(names[0]):
                constants |= self._tied_constants(
                    self.function.parameters[number], names, constants
                )
        return constants

    def _tied_constants(
        self, parameter: Parameter, names: list[str], values: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """The constants of one parameter, of which the largest is as it is."""
        row = jnp.asarray(parameter.elements, jnp.float32)
        sources = {name: self._known_source(name) for name in names}
        for name in sorted(names, key=lambda name: values[name].size):
            places, factor, offset = sources[name].elements
            divisor = np.where(factor == 0, 1, factor).astype(np.float32)
            solution = (values[name] - offset.astype(np.float32)) / divisor
            row = row.at[places].set(jnp.where(factor == 0, row[places], solution))
        constants = {}
        for name, source in sources.items():
            places, factor, offset = source.elements
            constants[name] = row[places] * factor.astype(np.float32) + offset.astype(np.float32)
        return constants

    def _has_repeats(self, name: str) -> bool:
        """Whether elements of a constant are the same element of its parameter."""
        places = self._known_source(name).elements.places
        return len(np.unique(places)) < places.size

    def _trained_and_initial(
        self, values: Mapping[str, Any]
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """The constants, after training and before."""
        for name, tensor in self.trained.items():
            yield name, np.asarray(values[name]), np.asarray(tensor.values)

    # Where constants come from.

    def source(self, name: str) -> Source | None:
        """The source of a trained constant; None if it is unknown."""
        folded = self._folded_by_constant.get(name)
        if folded is None:
            return self._source_of_constant(name, self.trained[name].shape or ())
        return (
            self._source_of_weight(folded)
            if name == folded.weight
            else self._source_of_bias(folded)
        )

    @functools.cached_property
    def _folded_by_constant(self) -> dict[str, Folded]:
        """The convolutions of weights and biases that scales and offsets have gone into."""
        return {name: each for each in self.folded for name in (each.weight, each.bias)}

    def _source_of_constant(self, name: str, shape: tuple[int, ...]) -> Source | None:
        """The source of a constant of the exported graph."""
        origin, parameters = self.function.origins.get(name), self.function.parameters
        if origin is None or origin.moves is None or origin.number >= len(parameters):
            return None
        parameter, values = parameters[origin.number], self.function.constants[name]
        read = elements(origin.moves, parameter.array.shape, shape)
        if read is None or not _are_near(
            read.of(parameter.elements), _float64(values), values.dtype
        ):
            return None
        return Source(name, origin.number, read)

    def _source_of_weight(self, folded: Folded) -> Source | None:
        shape = self.trained[folded.weight].shape or ()
        source = self._source_of_constant(folded.before[0], shape)
        if source is None:
            return None
        channels = along(folded.axes, shape)
        scale = np.ones(math.prod(channels))
        for link in folded.links:
            scale = scale * link.scale
        return source.times(scale.reshape(channels))

    def _source_of_bias(self, folded: Folded) -> Source | None:
        """The last offset that can change takes all changes: little or nothing scales it."""
        bias = self.trained[folded.bias]
        factor, source = np.ones(math.prod(bias.shape or ())), None
        for link in reversed(folded.links):
            if source is None and link.sign:
                source = self._source_of_offset(link.constant, link.sign * factor, link.channels)
            factor = factor * link.scale
        source = self._source_of_offset(folded.before[1], factor) if source is None else source
        if source is None:
            return None
        places, factor, _ = source.elements
        before = self.function.parameters[source.number].elements[places]
        offset = np.asarray(bias.values, np.float64) - factor * before
        return source._replace(elements=Elements(places, factor, offset))

    def _source_of_offset(
        self, name: str, factor: np.ndarray, channels: slice = slice(None)
    ) -> Source | None:
        """The source of an offset with an element for each channel, which counts by a factor.

        Args:
          name: the constant.
          factor: of each channel.
          channels: the elements of the constant that are the offset.
        """
        values = self.function.constants.get(name)
        if values is None or values.reshape(-1)[channels].size != factor.size:
            return None
        source = self._source_of_constant(name, values.shape)
        if source is None:
            return None
        rows = Elements(*(array.reshape(-1)[channels] for array in source.elements))
        return source._replace(elements=rows).times(factor)

    def _fixed_constants(self) -> set[str]:
        """The scales and offsets in convolutions, and of no effect, that stay as they are."""
        fixed = neutral_constants(separated(self.function.graph))
        for folded in self.folded:
            names = [*folded.before, *(link.constant for link in folded.links)]
            for source in map(self.source, {folded.weight, folded.bias} & self.trained.keys()):
                if source is not None:
                    names.remove(source.constant)
            fixed.update(names)
        return fixed

    # What cannot be read back.

    def _known_source(self, name: str) -> Source:
        source = self.source(name)
        if source is None:
            hint = "model.readable, as `derive` of `fit`, keeps it in training as it is"
            raise ValueError(f"{name!r} cannot be read back: {self._reason(name)}; {hint}")
        return source

    def _reason(self, name: str) -> str:
        folded = self._folded_by_constant.get(name)
        if folded is not None and name == folded.bias:
            return f"no parameter is an offset of the channels of {folded.output!r}"
        origin = self.function.origins.get(name if folded is None else folded.before[0])
        if origin is None:
            return "it is not made of a parameter"
        if origin.number >= len(self.function.parameters):
            return f"the function has closed over {origin.path!r}, expected it among params"
        return f"what the function makes of the parameter {origin.path!r} cannot be undone"

    def _check_rest(self, constants: Collection[str], drafts: Mapping[int, _Draft]) -> None:
        """Raises ValueError where other constants depend on parameters that change.

        Args:
          constants: that have been read back.
          drafts: the parameters that change, by number.
        """
        for name in self.function.origins.keys() & self.function.constants.keys():
            origin = self.function.origins[name]
            numbers = origin.others if name in constants else origin.numbers
            for number in sorted(numbers & drafts.keys()):
                draft = drafts[number]
                raise ValueError(
                    f"{draft.path!r} was trained as {draft.names}, and {name!r} depends on it as "
                    "well, in another way: expected both to change alike"
                )


class _Draft:
    """A parameter, as constants are put into it."""

    def __init__(self, parameter: Parameter) -> None:
        self._parameter = parameter
        self._elements = parameter.elements
        self._is_known = np.zeros(self._elements.size, bool)
        self._names: list[str] = []

    @property
    def path(self) -> str:
        return self._parameter.path

    @property
    def names(self) -> str:
        """The constants."""
        return ", ".join(map(repr, self._names))

    @property
    def array(self) -> Any:
        return self._parameter.like(self._elements)

    def put(
        self, name: str, source: Source, values: np.ndarray, changed: np.ndarray | None
    ) -> None:
        """Takes the elements of a constant.

        Args:
          name: the constant's name.
          source: the source of its elements.
          values: float64.
          changed: the elements that training has changed; None if there are none.

        Raises:
          ValueError: they differ from another constant's, or do not depend on the parameter.
        """
        places, factor, _ = source.elements
        wanted = self._parameter.elements[places]
        if changed is not None:
            if (changed & (factor == 0)).any():
                raise ValueError(
                    f"{name!r} cannot be read back: training changed channels that the function "
                    f"multiplies by 0 after {self.path!r}; model.readable, as `derive` of `fit`, "
                    "keeps them in training as they are"
                )
            wanted = np.where(changed, source.parameter_of(values), wanted)
        before = np.where(self._is_known[places], self._elements[places], wanted)
        self._elements[places] = wanted
        self._is_known[places] = True
        self._names.append(name)
        if not all(_are_near(wanted, each) for each in (before, self._elements[places])):
            raise ValueError(
                f"{self.path!r} cannot be read back: {self.names} are made of the same elements "
                "of it, and differ; model.readable, as `derive` of `fit`, keeps them equal"
            )


def _are_near(x: np.ndarray, y: np.ndarray, dtype: Any = jnp.float32) -> bool:
    """Whether only roundings of a type are between numbers."""
    largest = max(np.abs(x).max(initial=0), np.abs(y).max(initial=0))
    return bool((np.abs(x - y) <= _ROUNDING * float(jnp.finfo(dtype).eps) * largest).all())


def _float64(values: Any) -> np.ndarray:
    return np.asarray(values).astype(np.float64)
