"""Spaces: the settings of a sweep.

A setting is a dictionary, whose keys are the axes. An axis is an iterable of values or, for
`random` and Optuna, a range: `uniform(1e-4, 1, log=True)`, `integers(2, 8)`. A string or a
dictionary is a single value.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, overload

import numpy as np

from tosajax.sweep import digest

Setting = dict[str, Any]


class Trial(Protocol):
    """An Optuna trial, which chooses values."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        """A float in [low, high]."""
        ...

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """An integer in [low, high]."""
        ...

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of the choices."""
        ...


class Axis(Protocol):
    """The values that a key of settings may have."""

    def ends(self) -> tuple[Any, ...]:
        """All values, or the ends of a range."""
        ...

    def draw(self, rng: np.random.Generator) -> Any:
        """A random value."""
        ...

    def suggest(self, trial: Trial, name: str) -> Any:
        """The value that an Optuna trial chooses."""
        ...


@dataclasses.dataclass(frozen=True)
class uniform:
    """Floats from `low` to `high`, uniform or, with `log`, uniform in their logarithm.

    Raises:
      ValueError: the range is empty or infinite, or has no logarithm.

    Example:
      >>> from tosajax import sweep
      >>> space = sweep.random(100, scale=sweep.uniform(0.01, 100, log=True))
      >>> all(0.01 <= setting["scale"] <= 100 for setting in space)
      True
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        finite = self.low < self.high and math.isfinite(self.high - self.low)
        if not finite or (self.log and self.low <= 0):
            raise ValueError(f"{self}: expected finite low < high, and 0 < low with log")

    def ends(self) -> tuple[float, ...]:
        return self.low, self.high

    def draw(self, rng: np.random.Generator) -> float:
        if self.log:
            drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            # Rounding may exceed the range.
            return float(min(max(drawn, self.low), self.high))
        return float(rng.uniform(self.low, self.high))

    def suggest(self, trial: Trial, name: str) -> float:
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclasses.dataclass(frozen=True)
class integers:
    """Integers from `low` to `high`, both included.

    Raises:
      TypeError: an end is not an integer.
      ValueError: the range is empty.

    Example:
      >>> from tosajax import sweep
      >>> space = sweep.random(100, bits=sweep.integers(4, 8))
      >>> sorted({setting["bits"] for setting in space})
      [4, 5, 6, 7, 8]
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if operator.index(self.low) > operator.index(self.high):
            raise ValueError(f"{self}: expected low <= high")

    def ends(self) -> tuple[int, ...]:
        return self.low, self.high

    def draw(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.low, self.high, endpoint=True))

    def suggest(self, trial: Trial, name: str) -> int:
        return trial.suggest_int(name, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class _Choice:
    values: tuple[Any, ...]

    def ends(self) -> tuple[Any, ...]:
        return self.values

    def draw(self, rng: np.random.Generator) -> Any:
        return self.values[int(rng.integers(len(self.values)))]

    def suggest(self, trial: Trial, name: str) -> Any:
        # Optuna stores scalars; other values are represented by their index.
        if all(isinstance(v, str | int | float | bool | None) for v in self.values):
            return trial.suggest_categorical(name, self.values)
        return self.values[trial.suggest_int(name, 0, len(self.values) - 1)]


@dataclasses.dataclass(frozen=True)
class _Either:
    """Several axes with the same name, for example a range and a list of values."""

    axes: tuple[Axis, ...]

    def ends(self) -> tuple[Any, ...]:
        return tuple(end for axis in self.axes for end in axis.ends())

    def draw(self, rng: np.random.Generator) -> Any:
        return self.axes[int(rng.integers(len(self.axes)))].draw(rng)

    def suggest(self, trial: Trial, name: str) -> Any:
        at = trial.suggest_int(f"{name}/axis", 0, len(self.axes) - 1)
        return self.axes[at].suggest(trial, f"{name}/{at}")


@dataclasses.dataclass(frozen=True)
class Space(Sequence[Setting]):
    """Settings in order, and their axes.

    `a + b` has the settings of both; `a * b` combines each setting of `a` with each of `b`, with
    `b` as the inner loop.

    Args:
      settings: dictionaries.
      axes: the axes, by name, for Optuna; `grid`, `zip_`, `random` and `one_at_a_time` set them.

    Raises:
      ValueError: in `a * b`, a key occurs in both.

    Example:
      >>> from tosajax import sweep
      >>> space = sweep.grid(bits=[4, 8])
      >>> len(space), list(space)
      (2, [{'bits': 4}, {'bits': 8}])
    """

    settings: tuple[Setting, ...]
    axes: Mapping[str, Axis] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.settings)

    @overload
    def __getitem__(self, at: int) -> Setting: ...

    @overload
    def __getitem__(self, at: slice) -> Space: ...

    def __getitem__(self, at: int | slice) -> Setting | Space:
        return Space(self.settings[at], self.axes) if isinstance(at, slice) else self.settings[at]

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings)

    def __add__(self, other: Space) -> Space:
        return Space((*self.settings, *other.settings), _merged_axes(self.axes, other.axes))

    def __mul__(self, other: Space) -> Space:
        if both := sorted(self._keys() & other._keys()):
            raise ValueError(f"both spaces have the axes {', '.join(both)}")
        pairs = itertools.product(self.settings, other.settings)
        return Space(tuple({**a, **b} for a, b in pairs), {**self.axes, **other.axes})

    def _keys(self) -> set[str]:
        return {*self.axes, *(key for setting in self.settings for key in setting)}

    def draw(self, rng: np.random.Generator) -> Setting:
        """A setting with a random value from each axis."""
        return {name: axis.draw(rng) for name, axis in self.axes.items()}

    def suggest(self, trial: Trial) -> Setting:
        """The setting of an Optuna trial: a value of each axis, in any combination."""
        return {name: axis.suggest(trial, name) for name, axis in self.axes.items()}

    def __repr__(self) -> str:
        return f"Space({len(self)} settings of {', '.join(self.axes) or 'nothing'})"


def grid(**axes: Iterable[Any]) -> Space:
    """Every combination of the values of the axes; the last axis is the inner loop.

    Raises:
      TypeError: an axis is a range, or a number.
      ValueError: an axis has no values.

    Example:
      >>> from tosajax import sweep
      >>> for setting in sweep.grid(bits=[4, 8], mode=["single", "double"]):
      ...     print(setting)
      {'bits': 4, 'mode': 'single'}
      {'bits': 4, 'mode': 'double'}
      {'bits': 8, 'mode': 'single'}
      {'bits': 8, 'mode': 'double'}
    """
    choices = _choices("grid", axes)
    rows = itertools.product(*(choice.values for choice in choices.values()))
    return Space(tuple(dict(zip(choices, row, strict=True)) for row in rows), choices)


def zip_(**axes: Iterable[Any]) -> Space:
    """The first values of all axes, then the second values, and so on.

    Raises:
      TypeError: an axis is a range, or a number.
      ValueError: an axis has no values, or they have different lengths.

    Example:
      >>> from tosajax import sweep
      >>> list(sweep.zip_(bits=[4, 8], mode=["single", "double"]))
      [{'bits': 4, 'mode': 'single'}, {'bits': 8, 'mode': 'double'}]
    """
    choices = _choices("zip_", axes)
    lengths = {name: len(choice.values) for name, choice in choices.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"zip_: axes have different lengths: {lengths}")
    rows = zip(*(choice.values for choice in choices.values()), strict=True)
    return Space(tuple(dict(zip(choices, row, strict=True)) for row in rows), choices)


def random(count: int, /, *, seed: int = 0, **axes: Iterable[Any] | uniform | integers) -> Space:
    """Random settings, drawn independently from the axes; equal seeds give equal settings.

    Args:
      count: the number of settings; a larger count starts with the same settings.
      seed: the seed, at least 0.
      axes: values or ranges, by name.

    Raises:
      TypeError: an axis is a number.
      ValueError: count is negative, or an axis has no values.

    Example:
      >>> from tosajax import sweep
      >>> space = sweep.random(3, scale=sweep.uniform(0.5, 2), bits=sweep.integers(4, 8))
      >>> len(space), all(4 <= setting["bits"] <= 8 for setting in space)
      (3, True)
    """
    if count < 0:
        raise ValueError(f"random: count is {count}, expected at least 0")
    drawn = {name: _axis("random", name, axis) for name, axis in axes.items()}
    rng = np.random.default_rng(seed)
    rows = ({name: axis.draw(rng) for name, axis in drawn.items()} for _ in range(count))
    return Space(tuple(rows), drawn)


def one_at_a_time(name: str, parts: Iterable[str], values: Iterable[Any]) -> Space:
    """Settings `{name: {part: value}}`, each of which changes one part, for example a layer.

    Args:
      name: the name of the axis.
      parts: the parts, in the outer loop.
      values: the values, in the inner loop.

    Raises:
      ValueError: there are no parts or no values.

    Example:
      >>> from tosajax import sweep
      >>> list(sweep.one_at_a_time("bits", ["conv1", "conv2"], [4]))
      [{'bits': {'conv1': 4}}, {'bits': {'conv2': 4}}]
    """
    names = (parts,) if isinstance(parts, str) else parts
    return grid(**{name: [{p: value} for p, value in itertools.product(names, values)]})


def _choices(function: str, axes: Mapping[str, Any]) -> dict[str, _Choice]:
    choices = {}
    for name, axis in axes.items():
        if isinstance(axis, uniform | integers):
            raise TypeError(f"{function}: axis {name!r} is a range, expected values")
        choices[name] = _axis(function, name, axis)
    return choices


def _axis(function: str, name: str, axis: Any) -> uniform | integers | _Choice:
    if isinstance(axis, uniform | integers):
        return axis
    if not isinstance(axis, Iterable):
        raise TypeError(f"{function}: axis {name!r} is {axis!r}, expected values")
    values = (axis,) if isinstance(axis, str | Mapping) else tuple(axis)
    if not values:
        raise ValueError(f"{function}: axis {name!r} has no values")
    return _Choice(values)


def _merged_axes(first: Mapping[str, Axis], second: Mapping[str, Axis]) -> dict[str, Axis]:
    """The axes of two spaces; an axis in both has the values of both."""
    both = {name: _merged_axis(first[name], second[name]) for name in set(first) & set(second)}
    return {**first, **second, **both}


def _merged_axis(first: Axis, second: Axis) -> Axis:
    if isinstance(first, _Choice) and isinstance(second, _Choice):
        # Compared as text: comparing arrays gives no single bool, and 1 differs from True.
        values = {digest.canonical(v): v for v in (*first.values, *second.values)}
        return _Choice(tuple(values.values()))
    return first if first == second else _Either((first, second))
