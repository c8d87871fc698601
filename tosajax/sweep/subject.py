"""Subjects: models as programs of arrays, for sweeps.

A setting is converted to arrays and a variant, which holds the rest. Settings of one variant share
a program: arrays that differ between them are its arguments; all other arrays are its constants,
which can be prepared.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.names import near
from tosajax.dtypes import DType
from tosajax.sweep import digest
from tosajax.sweep.space import Setting

Arrays = Mapping[str, Any]  # pytrees of arrays by name
Variant = tuple[tuple[str, Any], ...]  # hashable


class Prepared(NamedTuple):
    """A setting, ready to run.

    Args:
      variant: the variant of its program.
      arrays: the program's arrays.
      columns: further numbers for the setting's row.
    """

    variant: Variant
    arrays: Arrays
    columns: Mapping[str, float] = {}


@runtime_checkable
class Subject(Protocol):
    """A model that a sweep runs."""

    def digest(self) -> str:
        """Identifies the subject in a store."""
        ...

    def check(self, setting: Setting) -> None:
        """Checks the names and values of a setting, before any setting runs.

        Raises:
          TypeError: a value is of another type.
          ValueError: a name is unknown, or a value is out of range. `prepare` finds other faults,
            for example a rewrite with nothing to change.
        """
        ...

    def prepare(self, setting: Setting) -> Prepared:
        """The arrays and the variant of a setting.

        Raises:
          ValueError: a key or a value does not fit the model.
        """
        ...

    def program(self, variant: Variant, fixed: Arrays, batch: int) -> Callable[..., Any]:
        """The function (varying arrays, *inputs) -> outputs, for `batch` examples.

        Args:
          variant: the variant of the settings.
          fixed: arrays that all settings share.
          batch: the number of examples on the first axis of inputs and outputs.
        """
        ...

    def accept(self, inputs: Sequence[np.ndarray], batch: int) -> tuple[jax.Array, ...]:
        """Checks inputs of the data set, and converts them to inputs of the program.

        Raises:
          TypeError: their number or a type is wrong.
          ValueError: a shape is wrong.
        """
        ...

    def bytes_per_example(self) -> int:
        """About the most bytes of live tensors for an example, without arrays; 0 if unknown."""
        ...

    def costs(self, setting: Setting) -> Mapping[str, float]:
        """The costs of a setting, by their names in `tosajax.sweep.layers`.

        Raises:
          ValueError: a key or a value does not fit, or the subject has no costs.
        """
        ...


@dataclasses.dataclass(frozen=True)
class FunctionSubject:
    """A function of a setting and inputs as a subject; see `of_function`."""

    function: Callable[..., Any]
    name: str

    def digest(self) -> str:
        return digest.of_text("function", self.name)

    def check(self, setting: Setting) -> None:
        """Accepts any name, as any function may read any."""

    def prepare(self, setting: Setting) -> Prepared:
        is_static = {k: v is None or isinstance(v, str | bool | DType) for k, v in setting.items()}
        return Prepared(
            tuple(sorted((k, v) for k, v in setting.items() if is_static[k])),
            {k: jax.tree.map(jnp.asarray, v) for k, v in setting.items() if not is_static[k]},
        )

    def program(self, variant: Variant, fixed: Arrays, batch: int) -> Callable[..., Any]:
        static = dict(variant)

        def run(varying: Arrays, *inputs: jax.Array) -> tuple[jax.Array, ...]:
            outputs = self.function({**static, **fixed, **varying}, *inputs)
            return outputs if isinstance(outputs, tuple) else (outputs,)

        return run

    def accept(self, inputs: Sequence[np.ndarray], batch: int) -> tuple[jax.Array, ...]:
        return tuple(map(jnp.asarray, inputs))

    def bytes_per_example(self) -> int:
        return 0

    def costs(self, setting: Setting) -> Mapping[str, float]:
        raise ValueError("weight_bytes and macs are of graphs and models, the sweep has a function")


def of_function(function: Callable[..., Any], name: str | None = None) -> FunctionSubject:
    """Makes the subject of a function (setting, *inputs) -> output or outputs.

    Inputs and outputs have the examples on the first axis. Numbers and arrays of a setting are
    traced; strings, bools and None are static: each combination of them compiles a program.

    Args:
      function: a pure function.
      name: identifies results in a store, so each function needs its own name.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> subject = sweep.of_function(lambda setting, x: x * setting["sign"], "signs")
      >>> data = np.eye(2, dtype=np.float32), np.arange(2)
      >>> results = sweep.Sweep(subject, data, configs=[{"sign": 1.0}]).run()
      >>> results[0]["accuracy"]
      1.0
    """
    return FunctionSubject(function, name or getattr(function, "__qualname__", repr(function)))


def check_name(
    name: str, known: Sequence[str], others: Sequence[str] = (), other_axis: str = ""
) -> None:
    """Raises ValueError for an unknown name in a setting.

    Args:
      name: the user's name.
      known: names that the message lists.
      others: further names, too many to list.
      other_axis: describes the further names.
    """
    if name not in known and name not in others:
        listed = ", ".join((*known, *((other_axis,) if other_axis else ())))
        raise ValueError(
            f"no axis {name!r}, expected one of {listed}{near(name, (*known, *others))}"
        )


def check_whole(name: str, value: Any, low: int, high: int, why: str) -> None:
    """Raises TypeError or ValueError if a value is not an integer in [low, high]."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} is {value!r}, expected a whole number, {low} to {high} ({why})")
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}, expected {low} to {high} ({why})")


def reduce_by_fields(subject: Any) -> tuple[Any, ...]:
    """The result of `__reduce__` for a dataclass: copies are constructed from its arguments."""
    fields = [field.name for field in dataclasses.fields(subject) if field.init]
    return type(subject), tuple(getattr(subject, name) for name in fields)
