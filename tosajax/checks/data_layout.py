"""Rules of "Data Layout" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import (
    Shapes,
    axis_errors,
    input1_shape,
    length_errors,
    limits,
    list_value,
    lists_known,
    minimum_errors,
    output_errors,
    rank_errors,
    size_errors,
)
from tosajax.checks.call import Call, Problem
from tosajax.spec import Level


def concat_shape(c: Call) -> Shapes:
    dims = zip(*(tensor.shape for tensor in c.input1), strict=True)
    return (tuple(sum(dim) if i == c.axis else dim[0] for i, dim in enumerate(dims)),)


def concat_errors(c: Call) -> Iterator[Problem]:
    if not c.input1:
        yield c.problem("e1", "input1 has no tensors, expected at least 1")
        return
    first = c.input1[0].shape
    illegal = list(axis_errors(c, "e2", len(first)))
    for number, tensor in enumerate(c.input1[1:], 1):
        if len(tensor.shape) != len(first):
            message = f"input1[{number}] has rank {len(tensor.shape)}"
            illegal.append(c.problem("e3", f"{message}, expected {len(first)}"))
        elif _without(tensor.shape, c.axis) != _without(first, c.axis):
            message = f"input1[{number}] has shape {tensor.shape}"
            wanted = f"expected {first} except along axis {c.axis}"
            illegal.append(c.problem("e4", f"{message}, {wanted}"))
    yield from illegal or output_errors(c, "e5", *concat_shape(c))


def concat_levels(c: Call, level: Level) -> Iterator[Problem]:
    return limits(c, level, ("length of input1", len(c.input1), "MAX_TENSOR_LIST_SIZE"))


def pad_shape(c: Call) -> Shapes:
    padding = list_value(c, "padding")
    dims = zip(padding[0::2], c.input1.shape, padding[1::2], strict=True)
    return (tuple(before + dim + after for before, dim, after in dims),)


def pad_errors(c: Call) -> Iterator[Problem]:
    if not lists_known(c, "padding"):
        return
    wanted = 2 * len(c.input1.shape)
    illegal = [*rank_errors(c, "e1"), *length_errors(c, "arguments", "padding", wanted)]
    illegal += minimum_errors(c, "e2", "padding", 0)
    yield from illegal or output_errors(c, "e3", *pad_shape(c))


def reshape_shape(c: Call) -> Shapes:
    return (list_value(c, "shape"),)


def reshape_errors(c: Call) -> Iterator[Problem]:
    illegal = list(size_errors(c, "e1"))
    yield from illegal
    if not illegal and lists_known(c, "shape"):
        yield from output_errors(c, "arguments", *reshape_shape(c))


reverse_shape = input1_shape


def reverse_errors(c: Call) -> Iterator[Problem]:
    return axis_errors(c, "e1", len(c.input1.shape))


def slice_shape(c: Call) -> Shapes:
    size, rank = list_value(c, "size"), len(c.input1.shape)
    if len(size) != rank:
        raise ValueError(f"size has {len(size)} elements, expected {rank}")
    return (size,)


def slice_errors(c: Call) -> Iterator[Problem]:
    if not lists_known(c, "start", "size"):
        return
    dims = c.input1.shape
    illegal = [
        *length_errors(c, "e1", "start", len(dims)),
        *length_errors(c, "e1", "size", len(dims)),
        *rank_errors(c, "e2"),
    ]
    yield from illegal
    if illegal:
        return
    illegal = [*minimum_errors(c, "e3", "start", 0), *minimum_errors(c, "e4", "size", 1)]
    ends = tuple(start + size for start, size in zip(c.start, c.size, strict=True))
    if any(end > dim for end, dim in zip(ends, dims, strict=True)):
        message = f"start + size is {ends}, expected at most {dims}, input1's shape"
        illegal.append(c.problem("e5", message))
    yield from illegal or output_errors(c, "e6", *slice_shape(c))


def tile_shape(c: Call) -> Shapes:
    dims = zip(c.input1.shape, list_value(c, "multiples"), strict=True)
    return (tuple(dim * times for dim, times in dims),)


def tile_errors(c: Call) -> Iterator[Problem]:
    if not lists_known(c, "multiples"):
        return
    wanted = len(c.input1.shape)
    illegal = [*rank_errors(c, "e1"), *length_errors(c, "arguments", "multiples", wanted)]
    yield from illegal or output_errors(c, "e2", *tile_shape(c))


def transpose_shape(c: Call) -> Shapes:
    dims = c.input1.shape
    if sorted(c.perms) != list(range(len(dims))):
        raise ValueError(f"perms is {c.perms}, expected an order of the {len(dims)} dimensions")
    return (tuple(dims[index] for index in c.perms),)


def transpose_errors(c: Call) -> Iterator[Problem]:
    rank = len(c.input1.shape)
    illegal = [
        *rank_errors(c, "e1"),
        *size_errors(c, "e2"),
        *length_errors(c, "arguments", "perms", rank),
    ]
    if max(c.perms, default=0) >= rank:
        illegal.append(
            c.problem("e3", f"perms is {c.perms}, expected values of at most {rank - 1}")
        )
    illegal += minimum_errors(c, "e4", "perms", 0)
    if len(set(c.perms)) != len(c.perms):
        illegal.append(c.problem("e5", f"perms is {c.perms}, expected each dimension once"))
    yield from illegal or output_errors(c, "e6", *transpose_shape(c))


def _without(dims: tuple[int, ...], axis: int) -> list[int]:
    return [dim for i, dim in enumerate(dims) if i != axis]
