"""Shapes of tensors that stand for each other in a graph and in the model it was made of."""

from __future__ import annotations

from collections.abc import Sequence

from tosajax.graph import Tensor


def same_size(tensor: Tensor, shape: Sequence[int]) -> bool:
    """Whether the shapes are equal but for open dimensions, which the model has closed."""
    own = tensor.shape
    return own is None or (
        len(own) == len(shape) and all(n in (-1, m) for n, m in zip(own, shape, strict=True))
    )
