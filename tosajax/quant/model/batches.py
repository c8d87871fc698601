"""Batches of a graph's inputs: functions of one example, called on any number of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from tosajax.grad.qtensor import QTensor
from tosajax.graph import Graph, Tensor
from tosajax.quant.model.arguments import (
    Batch,
    Examples,
    Input,
    are_batches,
    as_inputs,
    real_examples,
)
from tosajax.quant.model.norms import EXAMPLES

# Of the largest tensor, of all examples. Integers beside floats hold some thirteen of it.
_MOST_ELEMENTS = 2**24

_T = TypeVar("_T")
_S = TypeVar("_S")


def on_batch(
    run: Callable[..., _T], tensors: Sequence[Tensor], inputs: Sequence[jax.Array | QTensor]
) -> _T:
    """Calls a function of one example, or of the graph's own batch, on a batch of any size.

    Raises:
      ValueError: the inputs are not a batch of the tensors.
    """
    if _batched(tensors, inputs) is None:
        return run(*inputs)
    return as_given(jax.vmap(run)(*rows(tensors, inputs)), tensors, inputs)


def on_examples(
    run: Callable[..., tuple[_T, _S]],
    tensors: Sequence[Tensor],
    inputs: Sequence[jax.Array | QTensor],
) -> tuple[_T, _S]:
    """Calls a function of an example of the axis `EXAMPLES`, as `on_batch` does.

    Returns:
      The first result of all examples, and the second, which is the same in each, of one.
    """
    outputs, common = jax.vmap(run, axis_name=EXAMPLES)(*rows(tensors, inputs))
    first = jax.tree.map(lambda x: x[0], common)
    return as_given(outputs, tensors, inputs), first


def rows(
    tensors: Sequence[Tensor], inputs: Sequence[jax.Array | QTensor]
) -> list[jax.Array | QTensor]:
    """The inputs with an axis of examples in front; the graph's own batch is one example.

    Raises:
      ValueError: the inputs are not a batch of the tensors.
    """
    batched = _batched(tensors, inputs)
    return jax.tree.map(lambda x: x[None], list(inputs)) if batched is None else batched


def joined_rows(
    tensors: Sequence[Tensor], batches: Sequence[Sequence[jax.Array | QTensor]]
) -> list[Any]:
    """All examples of some batches, with one axis of examples in front of each input."""
    each = [rows(tensors, batch) for batch in batches]
    return [jax.tree.map(lambda *x: jnp.concatenate(x), *xs) for xs in zip(*each, strict=True)]


def real_batch(
    tensors: Sequence[Tensor], inputs: Sequence[Examples], *, allow_nan: bool
) -> tuple[jax.Array | QTensor, ...]:
    """Examples, given in either form, as inputs of a float graph; errors as of `real_examples`."""
    checked = functools.partial(real_examples, tensors, allow_nan=allow_nan)
    return in_one_batch(tensors, inputs, checked)


def in_one_batch(
    tensors: Sequence[Tensor],
    inputs: Sequence[Examples],
    checked: Callable[..., Sequence[jax.Array | QTensor]],
) -> tuple[jax.Array | QTensor, ...]:
    """Inputs of a graph, given as such or as batches, as `quant.calibrate` takes them.

    Args:
      tensors: the inputs of the graph.
      inputs: examples of each; or one sequence or iterator of batches.
      checked: returns the checked inputs of a batch; it takes `where`, the batch for messages.

    Raises:
      ValueError: there are no batches, or they are not of the tensors.
    """
    if not are_batches(tensors, inputs):
        return tuple(checked(cast(Sequence[Input], inputs), where=""))
    batches = [
        checked(as_inputs(batch), where=f"batch {number}: ")
        for number, batch in enumerate(cast(Iterable[Batch], inputs[0]))
    ]
    if not batches:
        raise ValueError("there are no batches")
    return tuple(joined_rows(tensors, batches))


def examples_at_once(graph: Graph) -> int:
    """How many examples of a graph one program runs, so that its tensors fit into memory."""
    return most_at_once(max(math.prod(tensor.shape or ()) for tensor in graph.tensors.values()))


def most_at_once(elements: int) -> int:
    """How many examples one program runs whose largest tensor has so many elements in each."""
    return max(1, _MOST_ELEMENTS // max(elements, 1))


def parts(joined: Sequence[Any], step: int) -> list[list[Any]]:
    """Examples from `joined_rows` in parts of at most `step`.

    All are of one size, which takes one program, where one of at least half of `step` divides them.
    """
    count = jax.tree.leaves(joined)[0].shape[0]
    divisor = max(n for n in range(1, min(step, count) + 1) if count % n == 0)
    step = divisor if 2 * divisor >= step else step
    return [
        jax.tree.map(lambda x, at=at: x[at : at + step], list(joined))
        for at in range(0, count, step)
    ]


def as_given(outputs: _T, tensors: Sequence[Tensor], inputs: Sequence[jax.Array | QTensor]) -> _T:
    """The outputs of `rows` of inputs, as a batch along the axis that the inputs have theirs."""
    shapes = [(tuple(x.shape), tuple(t.shape or ())) for x, t in zip(inputs, tensors, strict=True)]
    if all(shape == own for shape, own in shapes):
        return jax.tree.map(lambda y: y[0], outputs)
    if all(shape[1:] == own for shape, own in shapes):
        return outputs
    return jax.tree.map(lambda y: y[:, 0] if y.shape[1:2] == (1,) else y, outputs)


def _batched(
    tensors: Sequence[Tensor], inputs: Sequence[jax.Array | QTensor]
) -> list[jax.Array | QTensor] | None:
    """The inputs with an axis of examples in front; None where they are the graph's own batch."""
    shapes = [tuple(t.shape or ()) for t in tensors]
    input_shapes = [tuple(x.shape) for x in inputs]
    if len(input_shapes) != len(shapes):
        raise ValueError(f"{len(input_shapes)} inputs, expected {len(shapes)}")
    if input_shapes == shapes:
        return None
    in_first = [s[:1] == (1,) and f[1:] == s[1:] for f, s in zip(input_shapes, shapes, strict=True)]
    in_front = [f[1:] == s for f, s in zip(input_shapes, shapes, strict=True)]
    counts = {f[:1] for f in input_shapes}
    if len(counts) != 1 or not all(a or b for a, b in zip(in_first, in_front, strict=True)):
        wanted = ", ".join(f"{t.name} {t}" for t in tensors)
        raise ValueError(f"inputs of shapes {input_shapes}, expected {wanted}, or batches of them")
    return [
        jax.tree.map(lambda x: x[:, None], x) if a and not b else x
        for x, a, b in zip(inputs, in_first, in_front, strict=True)
    ]
