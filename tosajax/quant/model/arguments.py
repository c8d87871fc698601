"""Arguments of users, as models take them; wrong ones raise errors that name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from tosajax.arguments.nan import first_nan
from tosajax.arguments.types import check_count, check_type, shown
from tosajax.dtypes import DType
from tosajax.grad.qtensor import QTensor
from tosajax.graph import Tensor
from tosajax.quant.model.norms import Norm
from tosajax.quant.model.recipes import Params
from tosajax.quant.qparams import QParams

Numbers = ArrayLike | Sequence[Any]
# An input of a model: numbers, or integers with a shadow.
Input = Numbers | QTensor
# Examples: the input of a model, or a tuple of its inputs.
Batch = Input
# Examples as the inputs of a model, or as one sequence or iterator of batches.
Examples = Input | Iterator[Batch]

_ARRAYS = np.ndarray | jax.Array | QTensor


def are_batches(tensors: Sequence[Tensor], inputs: Sequence[Examples]) -> bool:
    """Whether the only argument is a sequence or an iterator of batches, in place of examples.

    A sequence of arrays of a lower rank than the input's is one array, of these rows.
    """
    if len(inputs) != 1:
        return False
    (batches,) = inputs
    if isinstance(batches, tuple | list):
        return bool(batches) and all(_is_batch(tensors, batch) for batch in batches)
    return isinstance(batches, Iterator)


def _is_batch(tensors: Sequence[Tensor], batch: object) -> bool:
    if isinstance(batch, tuple):
        return bool(batch) and all(isinstance(x, _ARRAYS) for x in batch)
    return isinstance(batch, _ARRAYS) and len(batch.shape) >= len(tensors[0].shape or ())


def check_batches(batches: object) -> None:
    """Raises TypeError where examples cannot be batches."""
    wanted = "an iterable of batches, each an array or a tuple of arrays"
    if isinstance(batches, str | bytes | Mapping) or not isinstance(batches, Iterable):
        raise TypeError(f"batches is {shown(batches)}, expected {wanted}")
    if getattr(batches, "ndim", 1) == 0:
        raise TypeError(f"batches is a scalar, expected {wanted}")


def as_inputs(batch: Batch) -> tuple[Input, ...]:
    """A batch as the inputs of `QModel.apply`."""
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


# Inputs.


def real_inputs(tensors: Sequence[Tensor], inputs: Sequence[Input]) -> list[jax.Array | QTensor]:
    """The inputs of a float graph: float32, integers with a shadow, bool.

    Raises:
      TypeError: there are more inputs or fewer; or one is not an array, or of another kind than its
        tensor.
    """
    check_inputs(tensors, inputs)
    return [_real_input(tensor, x) for tensor, x in zip(tensors, inputs, strict=True)]


def check_inputs(tensors: Sequence[Tensor], inputs: Sequence[Input]) -> None:
    """Raises TypeError where there are more inputs than tensors, or fewer."""
    check_count([t.name for t in tensors], inputs)


def _real_input(tensor: Tensor, x: Input) -> jax.Array | QTensor:
    if isinstance(x, QTensor):
        return x
    x = _checked_array(tensor, x)
    if not tensor.dtype.is_float:
        return integer_input(tensor, x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"input {tensor.name!r} has type {x.dtype}, expected floats: real values, as "
            ".astype(np.float32) or quant.dequantize give them"
        )
    return _float32(x)


def model_input(tensor: Tensor, x: Input, *, is_quantized: bool) -> jax.Array | QTensor:
    """An input of the graph of a model: float32 to be quantized, or its own type.

    Args:
      tensor: the tensor of that graph.
      x: the user's value.
      is_quantized: real values may be given for the tensor's integers.

    Raises:
      TypeError: it is not an array, or of another kind than the tensor.
      ValueError: an integer is out of range.
    """
    if isinstance(x, QTensor):
        return x
    x = _checked_array(tensor, x)
    is_float = jnp.issubdtype(x.dtype, jnp.floating)
    if is_float and (is_quantized or tensor.dtype.is_float):
        return _float32(x)
    return integer_input(tensor, x)


def integer_input(tensor: Tensor, x: Input) -> jax.Array | QTensor:
    """Integers or bool of a tensor: a QTensor, or bool."""
    if isinstance(x, QTensor):
        return x
    x = _checked_array(tensor, x)
    storage = tensor.dtype.storage
    kind = jnp.bool_ if tensor.dtype is DType.BOOL else jnp.integer
    if tensor.dtype.is_float or not jnp.issubdtype(x.dtype, kind):
        wanted = "floats" if tensor.dtype.is_float else tensor.dtype.name
        raise TypeError(f"input {tensor.name!r} has type {x.dtype}, expected {wanted}")
    if tensor.dtype is DType.BOOL:
        return jnp.asarray(x)
    if not isinstance(x, Tracer):
        _check_range(tensor, x)
    if tensor.dtype is DType.INT48:  # held in int64, which JAX has in places only
        return QTensor.of(jnp.asarray(x))
    return QTensor.of(jnp.asarray(x.astype(storage)))


def _check_range(tensor: Tensor, x: jax.Array | np.ndarray) -> None:
    low, high = tensor.dtype.minimum, tensor.dtype.maximum
    if x.dtype == tensor.dtype.storage and tensor.dtype is not DType.INT4:
        return
    x = np.asarray(x)
    least, most = x.min(initial=0), x.max(initial=0)
    if least < low or most > high:
        raise ValueError(
            f"input {tensor.name!r} has integers in [{least}, {most}], expected {tensor.dtype.name}"
            f" in [{low}, {high}], which are taken as they are; or floats, for real values"
        )


def _checked_array(tensor: Tensor, x: Input) -> jax.Array | np.ndarray:
    if isinstance(x, jax.Array):
        return x
    try:
        x = np.asarray(x)
    except ValueError:  # lists of several lengths
        x = np.asarray(x, object)
    if x.dtype != np.bool_ and not jnp.issubdtype(x.dtype, jnp.number):
        raise TypeError(f"input {tensor.name!r} is {_array_kind(x)}, expected an array of numbers")
    return x


def _array_kind(x: np.ndarray) -> str:
    return shown(x.item()) if x.ndim == 0 else f"an array of {x.dtype}"


def _float32(x: jax.Array | np.ndarray) -> jax.Array:
    """Floats of any type as float32, also where JAX has 64-bit types."""
    return jnp.asarray(x.astype(jnp.float32))


def real_examples(
    tensors: Sequence[Tensor], inputs: Sequence[Input], *, allow_nan: bool, where: str = ""
) -> tuple[jax.Array | QTensor, ...]:
    """Examples as inputs of a float graph.

    Args:
      tensors: the inputs of the graph.
      inputs: the user's inputs.
      allow_nan: takes NaN and infinities.
      where: the batch, for the message.

    Raises:
      TypeError: as `real_inputs`.
      ValueError: a number is NaN or infinite.
    """
    if not allow_nan:
        check_finite(tensors, inputs, where=where)
    # Before JAX, which narrows 64-bit numbers or refuses them.
    return tuple(real_inputs(tensors, inputs))


def check_finite(tensors: Sequence[Tensor], inputs: Sequence[Input], *, where: str = "") -> None:
    """Raises ValueError, with its index, where an example is NaN or infinite.

    Args:
      tensors: the inputs of the graph.
      inputs: examples; only floats are checked.
      where: the batch, for the message.
    """
    check_inputs(tensors, inputs)
    for tensor, x in zip(tensors, inputs, strict=True):
        if isinstance(x, QTensor | Tracer):
            continue
        index = first_not_finite(_checked_array(tensor, x))
        if index is not None:
            raise ValueError(
                f"{where}input {tensor.name!r} is {np.asarray(x)[index]} at {index}, expected "
                "finite numbers; allow_nan=True takes it as it is"
            )


def first_not_finite(x: ArrayLike) -> tuple[int, ...] | None:
    """The index of the first NaN or infinity of an array."""
    x = np.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating) or np.isfinite(x).all():
        return None
    return first_nan(np.where(np.isfinite(x), np.float32(0), np.float32(np.nan)))


# Parameters.


def check_params(params: Any, wanted: Mapping[str, Iterable[str]]) -> None:
    """Raises where parameters are not of a model.

    Args:
      params: the user's parameters.
      wanted: the names in each group.

    Raises:
      TypeError: they are not a dictionary of dictionaries.
      ValueError: a group or a tensor is missing.
    """
    check_type("params", params, Mapping, "a dictionary, from `calibrate` or `lift`")
    for group, names in wanted.items():
        if group not in params:
            groups = ", ".join(map(repr, params)) or "nothing"
            raise ValueError(
                f"params has {groups} and no {group!r}, expected what `calibrate` or `lift` gave "
                "for this model"
            )
        check_type(f"params[{group!r}]", params[group], Mapping, "a dictionary by tensor name")
        missing = [name for name in names if name not in params[group]]
        if missing:
            raise ValueError(
                f"params[{group!r}] has no {missing[0]!r}: they are of another model, expected "
                "what `calibrate` or `lift` gave for this one"
            )


def check_sampled(
    qparams: Mapping[str, QParams], sampled: Mapping[str, QParams], tables: Mapping[str, str]
) -> None:
    """Raises ValueError where the samples of a function are of another scale than its input has.

    Traced arrays have no value yet and are not looked at.

    Args:
      qparams: the QParams of all tensors.
      sampled: those that the samples are of.
      tables: the output of a TABLE for each of these.
    """
    for name, table in tables.items():
        for field in ("scale", "zero_point", "bits"):
            pair = getattr(qparams[name], field), getattr(sampled[name], field)
            if any(isinstance(value, Tracer) for value in pair):
                continue
            now, then = (np.asarray(value) for value in pair)
            if (now != then).any():
                raise ValueError(
                    f"the table of {table!r} was sampled where {name!r} had {field} "
                    f"{then.reshape(-1)[0]}, and it has {now.reshape(-1)[0]} now: expected "
                    "`sample_tables(model, params)` after a change of it"
                )


def check_scales(qparams: Mapping[str, QParams], names: Iterable[str]) -> None:
    """Raises ValueError where scales or bits are not positive, or zero points not finite.

    Traced arrays have no value yet and are not looked at.
    """
    for name in names:
        own = qparams[name]
        check_type(f"params['qparams'][{name!r}]", own, QParams, "QParams")
        for field in ("scale", "zero_point", "bits"):
            value = getattr(own, field)
            if isinstance(value, Tracer):
                continue
            value = np.asarray(value)
            is_right = np.isfinite(value) & ((value > 0) | (field == "zero_point"))
            if not is_right.all():
                at = np.argwhere(~is_right)[0]
                # A scale has one axis at most that is longer than 1, or two of a depthwise weight.
                long = [int(i) for i, size in zip(at, value.shape, strict=True) if size > 1]
                place = f" of channel {', '.join(map(str, long))}" if long else ""
                kind = "a finite number" if field == "zero_point" else "a positive number"
                raise ValueError(
                    f"{field.replace('_', ' ')}{place} of {name!r} is {value[tuple(at)]}, expected "
                    f"{kind}: train with an optimizer that keeps scales positive (quant.relative), "
                    "or with smaller steps and quant.project after each"
                )


def check_norms(norms: Mapping[str, Norm], names: Iterable[str]) -> None:
    """Raises ValueError where a factor or a deviation of a batch norm is not positive.

    Traced arrays have no value yet and are not looked at.
    """
    for name in names:
        check_type(f"params['norms'][{name!r}]", norms[name], Norm, "a Norm")
        for field in ("gamma", "deviation"):
            value = getattr(norms[name], field)
            if not isinstance(value, Tracer) and not (np.asarray(value) > 0).all():
                channel = int(np.argmin(np.asarray(value) > 0))
                raise ValueError(
                    f"{field} of channel {channel} of the batch norm of {name!r} is "
                    f"{np.asarray(value)[channel]}, expected a positive number: train with an "
                    "optimizer that keeps them positive (quant.relative)"
                )


def check_no_nan(params: Params) -> None:
    """Raises ValueError where a parameter is NaN, with its name and index."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not isinstance(leaf, Tracer) and (index := first_nan(leaf)) is not None:
            at = f" at {index}" if index else ""
            raise ValueError(
                f"params{jax.tree_util.keystr(path)} is NaN{at}, expected numbers: training has "
                "diverged, or began with NaN"
            )
