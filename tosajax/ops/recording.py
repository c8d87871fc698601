"""Records each call of an operator as one equation of a jaxpr, for export.

While `recording()` is on, a call of an operator binds the primitive `operator_p` and computes
nothing. The equation has two parameters: `op`, such as "CONV2D", and `call`, a `Call`. Its operands
are the arrays among the arguments; `call.arguments(operands)` returns all arguments by name. The
equation can be evaluated, batched and differentiated like the function itself.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tosajax.fixedpoint import _x64
from tosajax.ops._batching import Operand, batched
from tosajax.spec import OPERATORS

Function = TypeVar("Function", bound=Callable[..., Any])

operator_p = Primitive("tosa_operator")
operator_p.multiple_results = True


class _Switch:
    """Whether calls are recorded; part of the key of JAX's trace cache.

    Creating a context makes JAX trace and compile everything again, so it is created only when
    recording starts for the first time.
    """

    def __init__(self) -> None:
        self._context: Any = None
        self._making = threading.Lock()

    @property
    def is_on(self) -> bool:
        return self._context is not None and self._context.value

    def __call__(self, on: bool) -> AbstractContextManager[Any]:
        with self._making:
            if self._context is None:
                self._context = jax.make_user_context(False)
        return self._context(on)


_switch = _Switch()


def recording() -> AbstractContextManager[Any]:
    """Records each call of an operator as one equation of `operator_p`, in this thread.

    JAX keeps separate traces of a function with and without recording.
    """
    return _switch(True)


def is_recording() -> bool:
    """Whether calls are recorded in this thread."""
    return _switch.is_on


@dataclasses.dataclass(frozen=True)
class Call:
    """A recorded call, without its arrays.

    Args:
      function: computes the result; it is not recorded again.
      names: the names of all arguments, in the order of the function's signature.
      structure: the PyTreeDef of the tuple of their values.
      static: the leaves of the values; None in place of an array.
      batches: for each `vmap` around the call, outermost first, and each operand, whether its
        first axis is the batch. None if `vmap` rewrites the call instead, as in `_batching`.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]
    structure: Any
    static: tuple[Any, ...]
    batches: tuple[tuple[bool, ...], ...] | None = None

    def arguments(self, operands: Sequence[Any]) -> dict[str, Any]:
        """All arguments by name, with the operands in place of the arrays.

        Shapes and other sequences of integers are tuples.

        Args:
          operands: the equation's operands, or any values in place of them.
        """
        rest = iter(operands)
        leaves = [next(rest) if leaf is None else leaf for leaf in self.static]
        return dict(zip(self.names, jax.tree.unflatten(self.structure, leaves), strict=True))

    def opened(self, *operands: Any) -> Any:
        """The result of the function; calls inside it are recorded if recording is on."""

        def function(*operands: Any) -> Any:
            return self.function(**self.arguments(operands))

        for differs in reversed(self.batches or ()):
            function = jax.vmap(function, tuple(0 if has else None for has in differs))
        return function(*operands)

    def result(self, *operands: Any) -> Any:
        """The result of the function."""
        with _switch(False):
            return self.opened(*operands)

    def __call__(self, *operands: Any) -> list[Any]:
        """The arrays that the function returns."""
        return jax.tree.leaves(self.result(*operands))


def recorded(function: Function) -> Function:
    """Decorates an operator whose calls can be recorded; `op` is its name in capitals."""
    return recorded_as(function.__name__.upper())(function)


def recorded_as(op: str, *, keeps_batches: bool = False) -> Callable[[Function], Function]:
    """Decorates a function of arrays, or of pytrees, whose calls can be recorded.

    Args:
      op: the equation's parameter `op`.
      keeps_batches: whether a `vmap` around a call becomes part of the recorded call.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not _switch.is_on:
                return function(*args, **kwargs)
            return _record(op, function, args, kwargs, () if keeps_batches else None)

        return call  # type: ignore[return-value]

    return decorate


def unrecorded(function: Function) -> Function:
    """The function behind `recorded`: it is not recorded itself, but calls inside it are."""
    return function.__wrapped__  # type: ignore[attr-defined]


def _record(
    op: str, function: Callable[..., Any], args: Any, kwargs: Any, batches: tuple[()] | None
) -> Any:
    parameters, names, values = _bound(function, args, kwargs)
    leaves, structure = jax.tree.flatten(values)
    kinds = [
        _is_operand(parameter, leaf)
        for parameter, value in zip(parameters, values, strict=True)
        for leaf in jax.tree.leaves(value)
    ]
    static = tuple(None if kind else leaf for kind, leaf in zip(kinds, leaves, strict=True))
    operands = [_whole(leaf) for kind, leaf in zip(kinds, leaves, strict=True) if kind]
    call = Call(function, names, structure, static, batches)
    shapes = jax.tree.structure(jax.eval_shape(call.result, *operands))
    return jax.tree.unflatten(shapes, operator_p.bind(*operands, op=op, call=call))


def _bound(
    function: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[list[inspect.Parameter], tuple[str, ...], tuple[Any, ...]]:
    """The parameters of a function, the names of its arguments, and their values in a call."""
    signature = _signature(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    parameters = list(signature.parameters.values())
    values = (
        _integers(value) if "[int" in parameter.annotation else value
        for parameter, value in zip(parameters, bound.arguments.values(), strict=True)
    )
    return parameters, tuple(bound.arguments), tuple(values)


def _integers(value: Any) -> Any:
    """Converts a sequence to a tuple of Python integers; returns any other value unchanged."""
    is_sequence = isinstance(value, Sequence | np.ndarray)
    return tuple(np.asarray(value).tolist()) if is_sequence else value


_signature = functools.cache(inspect.signature)


def _is_operand(parameter: inspect.Parameter, leaf: Any) -> bool:
    """Whether a leaf of an argument is an array, or a number where an array is expected."""
    return isinstance(leaf, jax.Array | np.ndarray) or "jax.Array" in parameter.annotation


def _whole(operand: Any) -> Any:
    """The operand; NumPy's int48 values beyond int32 go to the device, as JAX would narrow them."""
    if not isinstance(operand, np.ndarray) or operand.dtype.kind != "i":
        return operand
    fits = np.array_equal(operand.astype(np.int32), operand)
    return operand if fits else _x64.from_numpy(operand)


# The rules of the primitive.


def _compute(*operands: Any, op: str, call: Call) -> list[Any]:
    del op
    return call(*operands)


def _abstract(*operands: core.ShapedArray, op: str, call: Call) -> list[core.ShapedArray]:
    del op
    results = jax.eval_shape(call, *operands)
    return [core.ShapedArray(r.shape, r.dtype, weak_type=r.weak_type) for r in results]


def _differentiate(
    primals: Sequence[Any], tangents: Sequence[Any], *, op: str, call: Call
) -> tuple[list[Any], list[Any]]:
    """The results, recorded as the operator; the tangents differentiate its computation."""
    moving = [i for i, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero)]

    def of_moving(*values: Any) -> list[Any]:
        operands = dict(enumerate(primals)) | dict(zip(moving, values, strict=True))
        return call(*operands.values())

    at, along = ([part[i] for i in moving] for part in (primals, tangents))
    _, changes = jax.jvp(of_moving, at, along)
    return operator_p.bind(*primals, op=op, call=call), changes


def _batch(
    operands: Sequence[Any], axes: Sequence[int | None], *, op: str, call: Call
) -> tuple[list[Any], list[int]]:
    differs = tuple(axis is not None for axis in axes)
    moved = [
        x if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    if call.batches is not None:
        whole = dataclasses.replace(call, batches=(differs, *call.batches))
        results = operator_p.bind(*moved, op=op, call=whole)
        return results, [0] * len(results)

    def compute(arguments: Mapping[str, Any]) -> list[Any]:
        return jax.tree.leaves(_record(op, call.function, (), arguments, None))

    (count,) = {jnp.shape(x)[0] for x, has in zip(moved, differs, strict=True) if has}
    examples = [Operand(x, has, count) for x, has in zip(moved, differs, strict=True)]
    results = batched(compute, OPERATORS.get(op), call.arguments(examples))
    return results, [0] * len(results)


operator_p.def_impl(_compute)
operator_p.def_abstract_eval(_abstract)
ad.primitive_jvps[operator_p] = _differentiate
batching.primitive_batchers[operator_p] = _batch
# Not cacheable: the cache would treat a bound of -0.0 as equal to 0.0.
mlir.register_lowering(operator_p, mlir.lower_fun(_compute, multiple_results=True), cacheable=False)
