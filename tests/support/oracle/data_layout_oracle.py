"""Data layout, gather and scatter, element by element ("Data Layout", TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def build(shape: Sequence[int], dtype, element: Callable[[tuple[int, ...]], Any]) -> np.ndarray:
    """An array whose element at each index is the function's value there."""
    output = np.zeros(tuple(shape), dtype)
    for index in np.ndindex(*shape):
        output[index] = element(index)
    return output


def concat(inputs: list[np.ndarray], axis: int) -> np.ndarray:
    shape = list(inputs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in inputs)

    def element(index):
        place = index[axis]
        for x in inputs:
            if place < x.shape[axis]:
                return x[(*index[:axis], place, *index[axis + 1 :])]
            place -= x.shape[axis]
        raise AssertionError("beyond the last input")

    return build(shape, inputs[0].dtype, element)


def pad(x: np.ndarray, padding: tuple[int, ...], value) -> np.ndarray:
    before, after = padding[::2], padding[1::2]
    shape = [b + n + a for b, n, a in zip(before, x.shape, after, strict=True)]

    def element(index):
        source = tuple(i - b for i, b in zip(index, before, strict=True))
        inside = all(0 <= i < n for i, n in zip(source, x.shape, strict=True))
        return x[source] if inside else value

    return build(shape, x.dtype, element)


def reshape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return build(
        shape, x.dtype, lambda i: x[np.unravel_index(np.ravel_multi_index(i, shape), x.shape)]
    )


def reverse(x: np.ndarray, axis: int) -> np.ndarray:
    last = x.shape[axis] - 1
    return build(x.shape, x.dtype, lambda i: x[(*i[:axis], last - i[axis], *i[axis + 1 :])])


def slice(x: np.ndarray, start: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray:
    return build(size, x.dtype, lambda i: x[tuple(a + b for a, b in zip(i, start, strict=True))])


def tile(x: np.ndarray, multiples: tuple[int, ...]) -> np.ndarray:
    shape = [n * m for n, m in zip(x.shape, multiples, strict=True)]
    return build(shape, x.dtype, lambda i: x[tuple(a % n for a, n in zip(i, x.shape, strict=True))])


def transpose(x: np.ndarray, perms: tuple[int, ...]) -> np.ndarray:
    def element(index):
        source = [0] * x.ndim
        for place, dim in zip(index, perms, strict=True):
            source[dim] = place
        return x[tuple(source)]

    return build([x.shape[p] for p in perms], x.dtype, element)


def gather(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    shape = (*indices.shape, values.shape[2])
    return build(shape, values.dtype, lambda i: values[i[0], indices[i[0], i[1]], i[2]])


def scatter(values_in: np.ndarray, indices: np.ndarray, rows: np.ndarray) -> np.ndarray:
    output = values_in.copy()
    for n, w, c in np.ndindex(*rows.shape):
        output[n, indices[n, w], c] = rows[n, w, c]
    return output
