"""Makes the C functions from the rows of a table."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from tosajax.hifi import kernels
from tosajax.hifi.capi._plan import Plan, run
from tosajax.hifi.errors import NNLibParamError, wrong_type
from tosajax.hifi.kernels._check import INT32, integer

Result = TypeVar("Result")


class Arguments(SimpleNamespace):
    """The arguments of a call, by name in C: memory, sequences of memory, and numbers."""


class Prototype(NamedTuple):
    """C functions that differ only in their precision.

    Args:
      name: the functions' name, with {} for the precision.
      arguments: the arguments' names in the order of C; pointers are named p_* or *_ptr.
      body: function of arguments and precision that returns the Plan of a call, or a number.
      precisions: the precisions in the names; "" for a name without one.
      floats: the names of FLOAT32 arguments; all other numbers are WORD32.
      invalid: the value returned for rejected arguments.
    """

    name: str
    arguments: str
    body: Callable[[Arguments, str], Plan | int]
    precisions: tuple[str, ...] = ("",)
    floats: tuple[str, ...] = ()
    invalid: int = -1

    def strict_functions(self) -> dict[str, Callable[..., int]]:
        """The functions by name; they raise NNLibParamError for rejected arguments."""
        names = {self.name.format(precision): precision for precision in self.precisions}
        return {name: self._strict(name, precision) for name, precision in names.items()}

    def functions(self) -> dict[str, Callable[..., int]]:
        """The functions by name; they return `invalid` for rejected arguments."""
        strict = self.strict_functions()
        return {name: self._with_codes(name, function) for name, function in strict.items()}

    def plans(self) -> dict[str, Callable[..., Plan | int]]:
        """The bodies of the functions by name; they do not read memory."""
        names = {self.name.format(precision): precision for precision in self.precisions}

        def plan(precision: str, **arguments: Any) -> Plan | int:
            return self.body(Arguments(**arguments), precision)

        return {name: functools.partial(plan, precision) for name, precision in names.items()}

    def _strict(self, name: str, precision: str) -> Callable[..., int]:
        signature = self._signature()

        def function(*args: Any, **kwargs: Any) -> int:
            bound = signature.bind(*args, **kwargs).arguments
            values = {key: _value(name, key, x, self.floats) for key, x in bound.items()}
            plan = self.body(Arguments(**values), precision)
            if isinstance(plan, int):
                return plan
            run(name, plan)
            return 0

        return self._documented(function, name, "or NNLibParamError is raised")

    def _with_codes(self, name: str, strict: Callable[..., int]) -> Callable[..., int]:
        def function(*args: Any, **kwargs: Any) -> int:
            try:
                return strict(*args, **kwargs)
            except NNLibParamError:
                return self.invalid

        otherwise = "or -1" if self.invalid else "for all arguments"
        return self._documented(function, name, otherwise)

    def _documented(
        self, function: Callable[..., int], name: str, otherwise: str
    ) -> Callable[..., int]:
        returned = "bytes of scratch memory" if name.endswith("_getsize") else "0"
        section = kernels.NAMES[name].section
        doc = f"{name} of the library (guide {section}): {returned}, {otherwise}."
        return described(function, name, __package__ or "", doc, self._signature())

    def _signature(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = self.arguments.split()
        return inspect.Signature([inspect.Parameter(argument, kind) for argument in names])


def described(
    function: Callable[..., Result], name: str, module: str, doc: str, signature: inspect.Signature
) -> Callable[..., Result]:
    """Sets a function's name in C, its docstring and signature, and its module for pickle."""
    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = module, doc
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def size_prototype(name: str, getsize: Callable[..., int]) -> Prototype:
    """Makes the prototype of a C function that returns a size, with `getsize`'s arguments."""
    arguments = " ".join(inspect.signature(getsize).parameters)
    return Prototype(name, arguments, lambda a, _: getsize(**vars(a)))


def _value(function: str, argument: str, value: Any, floats: tuple[str, ...]) -> Any:
    """Converts an argument to the value that C receives; pointers are unchanged.

    Raises:
      TypeError: the value is not a number.
      ValueError: the number does not fit WORD32.
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
