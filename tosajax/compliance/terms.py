"""The length of a dot product and its number of roundings, KS and KSB in TOSA 1.0.1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tosajax.compliance.formats import fraction_bits
from tosajax.dtypes import DType
from tosajax.spec import OPERATORS


def terms_of(
    op: str,
    shapes: Mapping[str, Sequence[int]],
    kernel: Sequence[int] | None = None,
    axis: int | None = None,
) -> int:
    """The number of terms that an operator sums for each element of its result.

    Args:
      op: a convolution, MATMUL, AVG_POOL2D, a Fourier transform, or a reduction.
      shapes: the inputs' shapes, by argument name; zero points may be missing.
      kernel: (kernel_y, kernel_x) of AVG_POOL2D.
      axis: the axis of a reduction.

    Raises:
      ValueError: the kernel or the axis is missing, or out of range.
    """
    operator = OPERATORS[op]
    first, *more = [shapes[a.name] for a in operator.inputs if a.name in shapes]
    if operator.is_product:
        return math.prod(more[0][axis] for axis in operator.summed_axes)
    if operator.chapter == "fft":
        return len(operator.inputs) * math.prod(first[1:])
    if operator.chapter == "reduction":
        if axis is None or not 0 <= axis < len(first):
            raise ValueError(f"{op}: axis {axis}, expected 0 to {len(first) - 1}")
        return first[axis]
    if kernel is None or len(kernel) != 2 or min(kernel) < 1:
        raise ValueError(f"{op}: kernel {kernel}, expected (kernel_y, kernel_x)")
    return math.prod(kernel)


def roundings(terms: int, acc_dtype: DType, dtype: DType, *, biased: bool) -> int:
    """The number of roundings of a dot product: fewer if the accumulator has more fraction bits."""
    finer = 2.0 ** ((fraction_bits(acc_dtype) - fraction_bits(dtype)) / 2)
    return math.ceil(terms / finer) + biased
