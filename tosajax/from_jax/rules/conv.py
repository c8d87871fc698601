"""Convolutions ("Tensor Operators", TOSA 1.0.1)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from tosajax.from_jax.rules._multiply import (
    Factor,
    Multiply,
    check_operands,
    product,
    row_of,
    sum_type,
)
from tosajax.from_jax.rules._sliding import Window, pad
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value


@dataclasses.dataclass(frozen=True)
class Convolution:
    """An operator on images [N, rows, columns, C] and weights in the operator's layout.

    Args:
      op: the operator's name in `spec.OPERATORS`.
      groups: the number of channel groups, with one operator for each.
      attributes: attributes by the specification's names.
    """

    op: str = "CONV2D"
    groups: int = 1
    attributes: dict[str, Any] = dataclasses.field(
        default_factory=lambda: {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    )

    def of(self, step: Step, images: Value, weights: Value) -> Value:
        """The result of the convolution, in the dtype of the step's result."""

        def write(x: Factor, w: Factor) -> Value:
            return self._written(step, x, w)

        terms = weights.size // self._channels(weights.shape)
        return product(step, images, weights, Multiply(self.op, terms, write))

    def _written(self, step: Step, x: Factor, w: Factor) -> Value:
        if self.groups == 1:
            return self._write_group(step, x, w)
        pairs = zip(_parts(step, x, -1, self.groups), _parts(step, w, 0, self.groups), strict=True)
        parts = [self._write_group(step, *pair) for pair in pairs]
        return step.jax(lambda *vs: lax.concatenate(vs, vs[0].ndim - 1), *parts)

    def _write_group(self, step: Step, x: Factor, w: Factor) -> Value:
        row = row_of(self.op, x.value.dtype)
        assert row is not None
        channels = self._channels(w.value.shape)
        bias = step.constant(np.zeros(channels), sum_type(self.op, x.value.dtype))
        zeros = x.zero_point(step), w.zero_point(step)
        options = self.attributes | {"acc_type": row["acc_t"]}
        return step.op(self.op, x.value, w.value, bias, *zeros, **options)

    def _channels(self, shape: Sequence[int]) -> int:
        """The number of output channels, from the shape of the weights."""
        return math.prod(shape[2:]) if self.op == "DEPTHWISE_CONV2D" else shape[0]


def _parts(step: Step, factor: Factor, axis: int, count: int) -> list[Factor]:
    """Splits a factor into equal blocks along an axis."""
    shape = list(factor.value.shape)
    start = [0] * len(shape)
    shape[axis] //= count
    blocks = []
    for i in range(count):
        start[axis] = i * shape[axis]
        blocks.append(Factor(step.slice(factor.value, start, shape), factor.zero))
    return blocks


def conv_general_dilated(step: Step, lhs: Value, rhs: Value) -> Value:
    """CONV2D, CONV3D, DEPTHWISE_CONV2D or TRANSPOSE_CONV2D."""
    check_operands(step, lhs, rhs)
    images, weights, result = step.params["dimension_numbers"]
    x, w = _channels_last(step, lhs, images), _channels_last(step, rhs, weights)
    windows, groups = _windows(step, x, w), step.params["feature_group_count"]
    if step.params["batch_group_count"] > 1:
        groups = step.params["batch_group_count"]
        x = _batches_as_channels(step, x, groups)
    if len(windows) > 3:
        dimensions = f"{len(windows)} spatial dimensions"
        raise step.unsupported(dimensions, "at most 3", "sum convolutions of slices")
    while len(windows) < 2:
        windows.insert(0, Window(1, 1))
        x = step.reshape(x, (x.shape[0], 1, *x.shape[1:]))
        w = step.reshape(w, (w.shape[0], 1, *w.shape[1:]))
    is_transposed = len(windows) == 2 and groups == 1 and _can_transpose(windows)
    y = (_transposed if is_transposed else _plain)(step, x, w, windows, groups)
    shape = [step.out.shape[axis] for axis in (result[0], *result[2:], result[1])]
    perms = np.argsort([result[0], *result[2:], result[1]])
    return step.transpose(step.reshape(y, shape), perms.tolist())


def _channels_last(step: Step, value: Value, spec: Sequence[int]) -> Value:
    """Transposes images to [N, ..., C], or weights to [O, ..., I]."""
    return step.transpose(value, (spec[0], *spec[2:], spec[1]))


def _windows(step: Step, x: Value, w: Value) -> list[Window]:
    params = step.params
    before, after = zip(*params["padding"], strict=True) if params["padding"] else ((), ())
    per_axis = zip(
        x.shape[1:-1],
        w.shape[1:-1],
        params["window_strides"],
        before,
        after,
        params["rhs_dilation"],
        params["lhs_dilation"],
        strict=True,
    )
    return [Window(*each).fitted for each in per_axis]


def _batches_as_channels(step: Step, x: Value, groups: int) -> Value:
    """Moves groups of examples into the channels, so that batch groups become feature groups."""
    batch, *sizes, channels = x.shape
    x = step.reshape(x, (groups, batch // groups, *sizes, channels))
    last = x.rank - 1
    x = step.transpose(x, (*range(1, last), 0, last))
    return step.reshape(x, (batch // groups, *sizes, groups * channels))


def _plain(step: Step, x: Value, w: Value, windows: list[Window], groups: int) -> Value:
    """CONV2D, CONV3D or DEPTHWISE_CONV2D, after nodes that dilate and crop the images."""
    which = [min(each.before, each.after) < 0 or each.spread > 1 for each in windows]
    around = [Window(x.shape[0]), *windows, Window(x.shape[-1])]
    x, (_, *moved, _) = pad(step, x, around, [False, *which, False], 0)
    attributes = {
        "pad": tuple(n for each in moved for n in (each.before, each.after)),
        "stride": tuple(each.stride for each in moved),
        "dilation": tuple(each.dilation for each in moved),
    }
    if len(windows) == 3:
        return Convolution("CONV3D", groups, attributes).of(step, x, w)
    if groups == 1 or w.shape[-1] != 1:
        return Convolution("CONV2D", groups, attributes).of(step, x, w)
    outputs, *kernel, _ = w.shape
    w = step.reshape(step.transpose(w, (1, 2, 3, 0)), (*kernel, groups, outputs // groups))
    return Convolution("DEPTHWISE_CONV2D", 1, attributes).of(step, x, w)


def _can_transpose(windows: Sequence[Window]) -> bool:
    """Whether images are dilated, and stride and kernel dilation are 1."""
    plain = all(each.stride == each.dilation == 1 for each in windows)
    return plain and any(each.spread > 1 for each in windows)


def _transposed(step: Step, x: Value, w: Value, windows: list[Window], groups: int) -> Value:
    """TRANSPOSE_CONV2D, with reversed kernels: it adds a kernel for each input element."""
    del groups
    w = step.jax(lambda v: lax.rev(v, (1, 2)), w)
    out_pad = tuple(
        max(n, 0) - each.length + 1 for each in windows for n in (each.before, each.after)
    )
    stride = tuple(each.spread for each in windows)
    attributes = {"out_pad": out_pad, "stride": stride}
    y = Convolution("TRANSPOSE_CONV2D", 1, attributes).of(step, x, w)
    start = (0, *(max(-each.before, 0) for each in windows), 0)
    return step.slice(y, start, (y.shape[0], *(each.positions for each in windows), y.shape[-1]))


RULES = {"conv_general_dilated": conv_general_dilated}
