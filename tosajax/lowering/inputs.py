"""Checks the arguments of a graph's function, by name, while it is traced or called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.types import check_count, shown
from tosajax.block_scaled import BlockScaled, arrays_of, described
from tosajax.dtypes import DType, Part, holds_bits, why_not_blocks
from tosajax.graph import Graph, Tensor, declared_variables, shape_fits
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.lowering.variables import Variable

# Types in which every bit pattern is a value.
_WHOLE = frozenset(DType) - {DType.BOOL, DType.INT4, DType.INT48, DType.SHAPE}
_UNSIGNED = {DType.INT8: np.uint8, DType.INT16: np.uint16}

# The element types and shapes of a parameter's arrays.
Form = tuple[Part, ...]

_FOR_BATCH = "run examples side by side with jax.vmap, or compile with batch={}"
# MAX_RANK of a TOSA level. Searching a transposition of more axes is slow.
_MAX_RANK = 6


def forms_of(params: Mapping[str, Any]) -> dict[str, Form]:
    """Element types and shapes, for `checked_inputs`."""
    return {
        name: tuple(Part(array.dtype, array.shape) for array in arrays_of(value))
        for name, value in params.items()
    }


def checked_inputs(
    graph: Graph, forms: Mapping[str, Form], params: Any, state: Any, inputs: Sequence[Any]
) -> list[jax.Array | np.ndarray]:
    """Converts inputs of a `tosajax.lower` or `tosajax.differentiable` function to arrays.

    Types and shapes are static: the arguments of a jitted function are checked while it is traced,
    and its program has no checks. Under vmap, shapes are the shapes of one example.

    Args:
      graph: the graph of the function.
      forms: the element types and shapes of the parameters, from `forms_of`.
      params: any value.
      state: any value; {} for a graph without variables.
      inputs: any values.

    Raises:
      TypeError: the order of the arguments or the number of inputs is wrong, or an element type
        is.
      ValueError: a parameter or a variable is missing, a shape is wrong, or a NumPy array has
        values that int4 or int48 do not have.
    """
    _check_params(forms, params)
    _check_state(graph, state)
    check_count(graph.inputs, inputs)
    arrays = []
    for tensor, value in zip(graph.input_tensors, inputs, strict=True):
        array = as_array(tensor, value)
        array = typed(tensor, array, lambda: unsigned_tensors(graph), scaled=graph.quantization)
        check_shape(tensor, tensor.shape, array, _FOR_BATCH)
        check_range(tensor, array)
        arrays.append(array)
    return arrays


def as_array(tensor: Tensor, value: Any) -> Any:
    """Converts an input to an array; a BlockScaled is returned as it is.

    Raises:
      TypeError: the value is not an array.
    """
    if isinstance(value, jax.Array | np.ndarray | BlockScaled):
        return value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # a list of traced values, or of lists of different lengths
        array = None
    if array is None or array.dtype == object:
        raise TypeError(f"input {tensor.name!r} is {shown(value)}, expected an array")
    return array


def no_names() -> Collection[str]:
    """The empty set of unsigned tensors."""
    return ()


def holds(
    actual: np.dtype, dtype: DType, *, is_unsigned: bool = False, in_files: bool = False
) -> bool:
    """Whether an array of a NumPy type can hold an element type, by value or by bits.

    One array does not hold a block-scaled type.

    Unsigned arrays are accepted for a signed tensor only if its graph reads the tensor as unsigned:
    otherwise the values of 0..255 images would change.

    Args:
      actual: the NumPy type of the arrays.
      dtype: the element type.
      is_unsigned: whether the graph reads the tensor as unsigned; see `graph.zero_points`.
      in_files: whether bf16 and fp8 may be given as bits, as in NumPy files.
    """
    is_array = dtype.block is None
    if is_array and (actual == dtype.storage or (in_files and holds_bits(actual, dtype.storage))):
        return True
    return is_unsigned and _may_be_unsigned(actual, dtype)


def typed(
    tensor: Tensor,
    value: Any,
    unsigned: Callable[[], Collection[str]] = no_names,
    *,
    in_files: bool = False,
    scaled: Collection[str] = (),
    hint: str = "",
) -> Any:
    """Converts an input to the types of `dtype.parts`, with the same bits.

    Args:
      tensor: the input of the graph.
      value: the user's array.
      unsigned: returns the names of tensors that the graph reads as unsigned.
      in_files: see `holds`.
      scaled: names of inputs whose scale the graph has; messages advise to use it.
      hint: advice that is appended to error messages.

    Raises:
      TypeError: the array has another type.
    """
    if tensor.dtype.accepts(value):
        return value
    if tensor.dtype.block is not None:
        raise TypeError(f"input {tensor.name!r} is {why_not_blocks(value, tensor.dtype)}")
    if isinstance(value, BlockScaled):
        raise TypeError(f"input {tensor.name!r} is {described(value)}, expected an array")
    storage = tensor.dtype.storage
    is_unsigned = _may_be_unsigned(value.dtype, tensor.dtype) and tensor.name in unsigned()
    if holds(value.dtype, tensor.dtype, is_unsigned=is_unsigned, in_files=in_files):
        return value.view(storage)
    if tensor.name in scaled and jnp.issubdtype(value.dtype, jnp.floating):
        hint = hint or "; graph.quantized(*inputs) has the integers of real numbers"
    raise TypeError(
        f"input {tensor.name!r} has type {value.dtype}, expected {storage} "
        f"({tensor.dtype.name}){hint or _conversion(value.dtype, tensor.dtype)}"
    )


def check_shape(
    tensor: Tensor,
    wanted: Sequence[int] | None,
    value: jax.Array | np.ndarray,
    for_batch: str,
) -> None:
    """Raises ValueError if an input has another shape; the message advises how to convert it.

    Args:
      tensor: the input.
      wanted: its shape in a call, with DYNAMIC for any size; None for any shape.
      value: the array.
      for_batch: advice if the array holds several examples; {} stands for their number.
    """
    if wanted is not None and not shape_fits(value.shape, wanted):
        message = f"input {tensor.name!r} has shape {value.shape}, expected {tuple(wanted)}"
        raise ValueError(message + _reshaping(value.shape, tuple(wanted), for_batch))


def check_range(tensor: Tensor, value: jax.Array | np.ndarray) -> None:
    """Raises ValueError if a NumPy array has values out of the range of int4 or int48."""
    if isinstance(value, jax.Array) or tensor.dtype not in (DType.INT4, DType.INT48):
        return
    low, high = tensor.dtype.minimum, tensor.dtype.maximum
    if value.size and (value.min() < low or value.max() > high):
        raise ValueError(
            f"input {tensor.name!r} has values in [{value.min()}, {value.max()}], "
            f"{tensor.dtype.name} holds [{low}, {high}]"
        )


def _may_be_unsigned(actual: np.dtype, dtype: DType) -> bool:
    return dtype in _UNSIGNED and actual == _UNSIGNED[dtype]


def _check_params(forms: Mapping[str, Form], params: Any) -> None:
    if not isinstance(params, Mapping):
        raise TypeError(
            f"params is {_described(params)}, expected the dict that came with the function; "
            "it stands before the inputs"
        )
    if missing := [name for name in forms if name not in params]:
        raise ValueError(f"params lacks {', '.join(map(repr, missing[:5]))}")
    for name, form in forms.items():
        _check_form(f"params[{name!r}]", params[name], form)


def _check_state(graph: Graph, state: Any) -> None:
    if not isinstance(state, Mapping):
        raise TypeError(
            f"state is {_described(state)}, expected the dict of variables, which stands between "
            "params and the inputs; at first it is tosajax.initial_state(graph)"
        )
    for name, declared in declared_variables(graph).items():
        variable = state.get(name)
        if not isinstance(variable, Variable):
            raise TypeError(f"state[{name!r}] is {_described(variable)}, expected a Variable")
        for tensor in declared[:1]:
            form = tensor.dtype.parts(tensor.shape or ())
            _check_form(f"state[{name!r}].value", variable.value, form)
        _check_form(f"state[{name!r}].written", variable.written, (Part(np.dtype(bool), ()),))


def _check_form(name: str, value: Any, form: Form) -> None:
    arrays = arrays_of(value)
    if len(arrays) != len(form):
        wanted = "a BlockScaled" if len(form) > 1 else "an array"
        raise TypeError(f"{name} is {_described(value)}, expected {wanted}")
    fields = ("",) if len(form) == 1 else (".values", ".scales")
    for field, array, (dtype, shape) in zip(fields, arrays, form, strict=True):
        if array.dtype != dtype:
            raise TypeError(f"{name}{field} has type {array.dtype}, expected {dtype}")
        if not shape_fits(array.shape, shape):
            raise ValueError(f"{name}{field} has shape {array.shape}, expected {shape}")


def _conversion(actual: np.dtype, wanted: DType) -> str:
    """Advice to convert an array, if the conversion keeps its values or its bits."""
    storage = wanted.storage
    if not isinstance(actual, np.dtype):  # a type of JAX alone, such as keys
        return ""
    if wanted is DType.INT48 and actual == np.int32:
        return "; JAX narrows int64 to int32 unless 64-bit types are enabled"
    # NumPy files lack types of other libraries: they hold "|V2", or unsigned integers.
    is_bits = actual.kind == "u" or (actual.kind == "V" and actual.isbuiltin != 2)
    if is_bits and actual.itemsize == storage.itemsize and wanted in _WHOLE:
        same = f"; use .view({storage.name}) if it holds the same bits"
        if wanted not in _UNSIGNED:
            return same
        middle = 1 << (wanted.bits - 1)
        return f"{same}, or (x ^ {middle}).view({storage.name}) if its 0 stands for -{middle}"
    for kind in (jnp.floating, jnp.integer):
        if jnp.issubdtype(actual, kind) and jnp.issubdtype(storage, kind):
            return f"; use .astype({storage.name}) if its values fit"
    return ""


def _reshaping(shape: tuple[int, ...], wanted: tuple[int, ...], for_batch: str) -> str:
    """Advice to transpose an array, to add a first dimension, or to run a batch."""
    if axes := _transposition(shape, wanted):
        return _transposed(axes)
    if wanted[:1] != (1,):
        return ""
    if axes := _transposition((1, *shape), wanted):
        return "; add a first dimension, x[None]" + _transposed(axes)
    several = bool(shape) and isinstance(shape[0], int) and shape[0] > 1  # a size may be symbolic
    if several and (axes := _transposition((1, *shape[1:]), wanted)):
        return _transposed(axes) + "; " + for_batch.format(shape[0])
    return ""


def _transposition(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """A permutation of axes that gives a shape; of several, the one that keeps the first axes."""
    if len(shape) != len(wanted) or len(shape) > _MAX_RANK:
        return None
    orders = permutations(range(len(shape)))
    return next((o for o in orders if shape_fits(tuple(shape[i] for i in o), wanted)), None)


def _transposed(axes: tuple[int, ...]) -> str:
    return f"; use .transpose{axes}" if axes != tuple(sorted(axes)) else ""


def _described(value: Any) -> str:
    """A description of an argument for messages; arrays by type and shape."""
    if isinstance(value, BlockScaled) or (hasattr(value, "dtype") and hasattr(value, "shape")):
        return described(value)
    return shown(value)
