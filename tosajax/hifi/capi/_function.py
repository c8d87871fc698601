"""The functions that C has, made from the rows of a table."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from tosajax.hifi import kernels
from tosajax.hifi.capi._plan import Plan, run
from tosajax.hifi.errors import NNLibParamError, wrong_type
from tosajax.hifi.kernels._check import INT32, integer


class Prototype(NamedTuple):
    """C functions that differ in their precision alone.

    Args:
      name: of the functions, {} standing for the precision.
      arguments: their names in the order of C; pointers are named p_* or *_ptr.
      body: what a call does, from its arguments and the precision: a Plan, or the value returned.
      precisions: as the names have them; none where the name has none.
      floats: the arguments that are FLOAT32; all that are not pointers else are WORD32.
      invalid: what the functions return for arguments that they reject.
    """

    name: str
    arguments: str
    body: Callable[[Any, str], Plan | int]
    precisions: tuple[str, ...] = ("",)
    floats: tuple[str, ...] = ()
    invalid: int = -1

    def strict_functions(self) -> dict[str, Callable[..., int]]:
        """The functions by name, which raise where they reject arguments."""
        names = {self.name.format(precision): precision for precision in self.precisions}
        return {name: self._strict(name, precision) for name, precision in names.items()}

    def functions(self) -> dict[str, Callable[..., int]]:
        """The functions by name, which return `invalid` where they reject arguments."""
        strict = self.strict_functions()
        return {name: self._with_codes(name, found) for name, found in strict.items()}

    def _strict(self, name: str, precision: str) -> Callable[..., int]:
        signature = self._signature()

        def function(*args: Any, **kwargs: Any) -> int:
            bound = signature.bind(*args, **kwargs).arguments
            values = {key: _value(name, key, x, self.floats) for key, x in bound.items()}
            found = self.body(SimpleNamespace(**values), precision)
            if isinstance(found, int):
                return found
            run(name, found)
            return 0

        return self._described(function, name, "or NNLibParamError is raised")

    def _with_codes(self, name: str, strict: Callable[..., int]) -> Callable[..., int]:
        def function(*args: Any, **kwargs: Any) -> int:
            try:
                return strict(*args, **kwargs)
            except NNLibParamError:
                return self.invalid

        return self._described(function, name, "or -1" if self.invalid else "whatever it is given")

    def _described(
        self, function: Callable[..., int], name: str, otherwise: str
    ) -> Callable[..., int]:
        found = "bytes of scratch memory" if name.endswith("_getsize") else "0"
        section = kernels.NAMES[name].section
        function.__name__ = function.__qualname__ = name
        # Where pickle finds those that return codes.
        function.__module__ = __package__ or ""
        function.__doc__ = f"{name} of the library (guide {section}): {found}, {otherwise}."
        function.__signature__ = self._signature()  # type: ignore[attr-defined]
        return function

    def _signature(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = self.arguments.split()
        return inspect.Signature([inspect.Parameter(argument, kind) for argument in names])


def _value(function: str, argument: str, value: Any, floats: tuple[str, ...]) -> Any:
    """An argument as C would take it.

    Raises:
      TypeError: what is not a number.
      ValueError: a number that WORD32 does not hold.
    """
    if argument.startswith("p_") or argument.endswith("_ptr"):
        return value
    if argument in floats:
        if not isinstance(value, numbers.Real):
            raise wrong_type(function, argument, value, "a number")
        return float(value)
    number = integer(function, argument, value)
    if not INT32[0] <= number <= INT32[1]:
        raise ValueError(f"{function}: {argument} is {number}, expected a WORD32")
    return number
