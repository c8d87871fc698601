"""Examples for a comparison: the user's, or random ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.runtime.dataset import Dataset


def random_inputs(graph: Graph, examples: int, seed: int = 0) -> tuple[Any, ...]:
    """Random inputs: integers over the whole range of their type, floats from N(0, 1), bools.

    Elements of a block-scaled type are from N(0, 1), its scales are powers of two from 1/8 to 8.

    Args:
      graph: a graph, every dimension known.
      examples: the number of examples, which is the size of an extra first axis.
      seed: the generator's seed; equal seeds give equal inputs.

    Returns:
      One value for each input, (examples, *shape), in NumPy arrays of `dtype.parts`.

    Example:
      >>> import tosajax
      >>> from tosajax.compare import random_inputs
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 4))
      >>> (x,) = random_inputs(b.graph([b.op("REVERSE", x, axis=1)]), examples=3)
      >>> x.shape, x.dtype.name
      ((3, 1, 4), 'int8')
    """
    generator = np.random.default_rng(seed)
    return tuple(
        _random(generator, tensor, (examples, *(tensor.shape or ())))
        for tensor in graph.input_tensors
    )


def _random(generator: np.random.Generator, tensor: Tensor, shape: Sequence[int]) -> Any:
    dtype = tensor.dtype
    if dtype.block is not None:
        values, scales = dtype.parts(shape)
        exponents = generator.integers(-3, 4, scales.shape)
        numbers = generator.standard_normal(values.shape), np.exp2(exponents)
        return dtype.join(
            x.astype(part.dtype) for x, part in zip(numbers, (values, scales), strict=True)
        )
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return generator.standard_normal(shape).astype(dtype.storage)
    return generator.integers(*dtype.limits(), shape, dtype.storage, endpoint=True)


def example_rows(
    graph: Graph, inputs: Sequence[Any], examples: int, seed: int, *, clip: bool = False
) -> tuple[Any, ...]:
    """Each input as (examples, *shape); random inputs if none are given."""
    if not graph.inputs:
        return ()
    return Dataset.of(graph, inputs or random_inputs(graph, examples, seed), clip=clip).rows
