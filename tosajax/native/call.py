"""Native kernels as functions of JAX.

Each operator's function prepares a `KernelCall`: it packs weights, folds zero points into the bias,
and stacks scales. `run` and `run_all` call prepared kernels; `vmap` joins examples in one call.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.native import threads_wait, tiling
from tosajax.native.calls import compiler, schedule
from tosajax.native.calls.schedule import KernelCall, Link, Placeholder
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import UPPER_SHIFT, ByteScaleForm, ScaleTable
from tosajax.native.kernels import (
    addition,
    convolution,
    depthwise,
    depthwise_float,
    matmul,
    pool,
)
from tosajax.native.kernels.epilogue import (
    CHANNEL,
    LARGEST,
    OTHER,
    PADDED,
    SCALAR,
    EpilogueKey,
    FloatEpilogue,
    FusedAdd,
)
from tosajax.native.kernels.fused_add import AddKey
from tosajax.native.tiling import Cut, Plan
from tosajax.ops._window import Window

Array = jax.Array | np.ndarray


class Operands(NamedTuple):
    """Operands of a convolution; NumPy arrays are prepared when the program is traced.

    Args:
      x: input, int8, int16 or float32, [N, H, W, IC].
      weight: less its zero point, int8, or int16 from -255 to 255 if that is not known to fit;
        or float32. [OC, KH, KW, IC], or [KH, KW, C, M] if depthwise.
      bias: int32, or int48 in int64 if x is int16, or float32; [1] or [OC].
      x_zp: input zero point, of x's type, [1]; 0 unless x is int8.
    """

    x: Array
    weight: Array
    bias: Array
    x_zp: Array


class Epilogue(NamedTuple):
    """RESCALE of accumulators, and CLAMP; all but `double` and `out` may be traced.

    Args:
      multiplier: int32 or int16, [1] or [OC]; int16 for int48 accumulators.
      shift: int8, [1] or [OC].
      zero_point: the zero point of the output, a scalar.
      least: lower bound of results, a scalar.
      largest: upper bound of results, a scalar.
      double: whether RESCALE rounds twice (DOUBLE_ROUND).
      out: IR type of results, "i8" or "i16".
    """

    multiplier: Any
    shift: Any
    zero_point: Any
    least: Any
    largest: Any
    double: bool
    out: str = "i8"


class Rescaling(NamedTuple):
    """RESCALE of int32 to int32; all but `double` may be traced.

    Args:
      multiplier: int32 or int16, [1].
      shift: int8, [1].
      double: whether it rounds twice (DOUBLE_ROUND).
    """

    multiplier: Any
    shift: Any
    double: bool


class Scaling(NamedTuple):
    """RESCALE of int8 to int32; all but `double` may be traced.

    Args:
      zero_point: the zero point of the input, [1].
      multiplier: int32 or int16, [1].
      shift: int8, [1].
      double: whether it rounds twice (DOUBLE_ROUND).
      then: RESCALE of the result, or None.
    """

    zero_point: Any
    multiplier: Any
    shift: Any
    double: bool
    then: Rescaling | None = None


class Adding(NamedTuple):
    """ADD or SUB of results and other values; all but `op` and `is_right` may be traced.

    Args:
      op: "ADD" or "SUB".
      other: int8, of the results' shape.
      is_right: whether the results are the right operand.
      scales: the scales of the left and of the right operand.
      epilogue: RESCALE of the sums by one scale, and CLAMP.
    """

    op: str
    other: Array
    is_right: bool
    scales: tuple[Scaling, Scaling]
    epilogue: Epilogue


class FloatSteps(NamedTuple):
    """Elementwise operators that follow sums of float32; all but `key` may be traced.

    Args:
      key: the operators, and the kinds of their operands.
      operands: the operands: values of the results' shape, or of fewer channels; [OC]; or [1].
    """

    key: FloatEpilogue = FloatEpilogue()
    operands: tuple[Any, ...] = ()

    def of_kinds(self, *kinds: str) -> list[Any]:
        """The operands of some kinds."""
        pairs = zip(self.key.operands, self.operands, strict=True)
        return [operand for kind, operand in pairs if kind in kinds]


def convolve(
    isa: InstructionSet,
    o: Operands,
    window: Window,
    epilogue: Epilogue | FloatSteps | None = None,
    adding: Adding | None = None,
) -> KernelCall:
    """CONV2D: sums (x - x_zp) * weight + bias over windows; x is padded with x_zp.

    Args:
      isa: an instruction set of this processor.
      o: the operands.
      window: the window of the convolution; its padding is not negative.
      epilogue: RESCALE and CLAMP of the accumulators, or the steps of float32; None returns the
        accumulators.
      adding: ADD or SUB of the results, if these are int8.

    Returns:
      A kernel whose result is [N, OH, OW, OC] of the epilogue's type; without an epilogue, the
      accumulators: int32, or int64 if x is int16, or float32.
    """
    if _is_column(o, window):
        return _by_rows(convolve, isa, o, window, 1, epilogue, adding)
    shape, is_wide, isa = o.weight.shape, _is_wide(o), _set_of(isa, o)
    oc = shape[0]
    vectors = -(-oc // isa.lanes)
    key = _epilogue_key(isa, oc, epilogue, is_int16=_is_int16(o))
    tile_vectors = tiling.vectors_of_tile(isa, vectors, window, o.x.shape)
    scales = None
    if adding is not None:
        add_key, scales = _add_key(isa, adding.op, adding.scales, adding.epilogue)
        key = key._replace(fused_add=FusedAdd(add_key, adding.is_right))
    cut = tiling.cut_of(isa, window, shape, is_int16=key.is_int16, is_wide=is_wide)
    packed, weight_sums = _pack_weights(o.weight, isa, vectors, tile_vectors, cut)

    def plan(x: Sequence[int], workers: int) -> Plan:
        return tiling.of_convolution(isa, key, window, shape, cut, tile_vectors, x, workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return *window.out(x), oc

    operands = packed, *_channel_operands(isa, key, oc, o, weight_sums, epilogue)
    inputs = _inputs(o, epilogue)
    if adding is None or scales is None:
        operands = *inputs, *operands
        return KernelCall(convolution.module_of, plan, out, operands, key.dtype, len(inputs))
    inputs = o.x, adding.other
    return KernelCall(convolution.module_of, plan, out, (*inputs, *operands, scales), key.dtype, 2)


def convolve_depthwise(
    isa: InstructionSet,
    o: Operands,
    window: Window,
    epilogue: Epilogue | FloatSteps | None = None,
) -> KernelCall:
    """DEPTHWISE_CONV2D, as `convolve` of each channel alone, to [N, OH, OW, C * M]."""
    if _is_column(o, window):
        return _by_rows(convolve_depthwise, isa, o, window, 0, epilogue)
    isa = _set_of(isa, o).vector_set
    kh, kw, inputs, multiplier = o.weight.shape
    if isa.is_float and multiplier == 1:
        return _convolve_depthwise_float(isa, o, window, epilogue)
    # Where a vector has room for several pixels, the weights are repeated for each of them.
    width = window.out(o.x.shape)[1]
    pixels_per_vector = tiling.pixels_per_vector(isa, inputs * multiplier, width)
    positions = min(width // pixels_per_vector, depthwise.MAX_POSITIONS)
    oc = inputs * multiplier * pixels_per_vector
    vectors = -(-oc // isa.lanes)
    epilogue_key = _epilogue_key(isa, oc, epilogue, is_int16=_is_int16(o))
    key = depthwise.KernelKey(isa, kh, kw, positions, multiplier > 1, epilogue_key)
    xp = _array_module(o.weight)
    by_tap = o.weight.reshape(kh, kw, inputs * multiplier)
    weight_sums = None if isa.is_float else by_tap.astype(np.int32).sum((0, 1))
    widths = [(0, 0), (0, key.groups * isa.dot_length - kw), (0, vectors * isa.lanes - oc)]
    tiled = xp.pad(xp.tile(by_tap, (1, 1, pixels_per_vector)), widths)
    words = tiled.reshape(kh, key.groups, isa.dot_length, vectors, isa.lanes)
    packed = words.transpose(3, 0, 1, 4, 2).reshape(-1).astype(_element_dtype(isa))

    def plan(x: Sequence[int], workers: int) -> Plan:
        return tiling.of_depthwise(key, window, multiplier, x, workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return *window.out(x), inputs * multiplier

    read = _inputs(o, epilogue)
    operands = packed, *_channel_operands(isa, epilogue_key, oc, o, weight_sums, epilogue)
    operands = *read, *operands
    return KernelCall(depthwise.module_of, plan, out, operands, epilogue_key.dtype, len(read))


def _is_column(o: Operands, window: Window) -> bool:
    """Whether images and windows are one column wide, as those of sequences may be."""
    _, height, width, _ = o.x.shape
    return width == window.size[1] == 1 < height and window.pad[1] == (0, 0)


def _by_rows(
    make: Callable[..., KernelCall],
    isa: InstructionSet,
    o: Operands,
    window: Window,
    axis: int,
    *others: Any,
) -> KernelCall:
    """A convolution of one column as one of a row, where tiles have many pixels.

    Args:
      make: `convolve` or `convolve_depthwise`.
      isa: the instruction set.
      o: the operands.
      window: the window.
      axis: the axis of the weight's rows.
      *others: other arguments of `make`.
    """

    def turned(x: Sequence[int]) -> tuple[int, ...]:
        return x[0], x[2], x[1], x[3]

    row = jax.ShapeDtypeStruct(turned(o.x.shape), o.x.dtype)
    weight = o.weight.swapaxes(axis, axis + 1)
    by_rows = Window(
        window.size[::-1], window.stride[::-1], window.dilation[::-1], window.pad[::-1]
    )
    kernel = make(isa, o._replace(x=row, weight=weight), by_rows, *others)
    channels = kernel.out(row.shape)[-1]

    def plan(x: Sequence[int], workers: int) -> Plan:
        return kernel.plan(turned(x), workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return *window.out(x), channels

    return kernel._replace(plan=plan, out=out, operands=(o.x, *kernel.operands[1:]))


def _convolve_depthwise_float(
    isa: InstructionSet, o: Operands, window: Window, epilogue: Epilogue | FloatSteps | None
) -> KernelCall:
    """`convolve_depthwise` of float32 with one output channel for each input channel."""
    kh, kw, inputs, _ = o.weight.shape
    width, stride = window.out(o.x.shape)[1], window.stride[1]
    # The channels of neighbouring pixels lie side by side only where the window moves by one.
    count = tiling.pixels_per_vector(isa, inputs, width) if stride == 1 else 1
    oc = inputs * count
    key = depthwise_float.KernelKey(
        isa,
        kh,
        kw,
        min(width // count, depthwise_float.MAX_POSITIONS),
        stride * count,
        window.dilation[1],
        _epilogue_key(isa, oc, epilogue, is_int16=False),
    )
    xp = _array_module(o.weight)
    tiled = xp.tile(o.weight.reshape(kh * kw, inputs), (1, count))
    tiled = xp.pad(tiled, [(0, 0), (0, -oc % isa.lanes)])
    packed = tiled.reshape(kh * kw, -1, isa.lanes).transpose(1, 0, 2).reshape(-1)

    def plan(x: Sequence[int], workers: int) -> Plan:
        return tiling.of_depthwise_float(key, window, count, x, workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return *window.out(x), inputs

    read = _inputs(o, epilogue)
    operands = *read, packed, *_channel_operands(isa, key.epilogue, oc, o, None, epilogue)
    return KernelCall(depthwise_float.module_of, plan, out, operands, key.epilogue.dtype, len(read))


def multiply(
    isa: InstructionSet,
    inputs: Sequence[Array],
    zero_points: Sequence[Array],
    epilogue: Epilogue | None = None,
) -> KernelCall:
    """MATMUL: (a - a_zp) @ (b - b_zp).

    Args:
      isa: an instruction set of this processor.
      inputs: a and b, int8 or int16, [N, H, C] and [N, C, W].
      zero_points: the zero points of a and b, of their type, [1]; 0 for int16.
      epilogue: RESCALE and CLAMP of the accumulators; None returns them.

    Returns:
      A kernel whose result is [N, H, W] of the epilogue's type; without an epilogue, the
      accumulators: int32, or int64 if a and b are int16.
    """
    width = inputs[1].shape[2]
    is_int16 = np.dtype(inputs[0].dtype) == np.int16
    isa = isa.int16_set if is_int16 else isa
    key = _epilogue_key(isa, width, epilogue, is_int16=is_int16)

    def plan(a: Sequence[int], workers: int) -> Plan:
        return tiling.of_matmul(isa, key, width, a, workers)

    def out(a: Sequence[int]) -> tuple[int, ...]:
        return a[1], width

    limits = _limits(zero_points[0], epilogue, zero_points[1])
    bias = [np.zeros(1, np.int32)] * (1 + is_int16)
    operands = *inputs, _channels(key, width, bias, epilogue), limits
    return KernelCall(matmul.module_of, plan, out, operands, key.dtype, 2)


def add(
    isa: InstructionSet,
    op: str,
    inputs: tuple[Array, Array],
    scales: tuple[Scaling, Scaling],
    epilogue: Epilogue,
) -> KernelCall:
    """ADD or SUB of inputs that are rescaled to int32, rescaled to int8.

    Args:
      isa: an instruction set of this processor.
      op: "ADD" or "SUB".
      inputs: int8, of one shape, with at least `isa.lanes` elements.
      scales: the scales of each input.
      epilogue: RESCALE of the sums by one scale, and CLAMP.

    Returns:
      A kernel whose result is int8 of the inputs' shape.
    """
    add_key, scale_rows = _add_key(isa, op, scales, epilogue)
    key = addition.KernelKey(isa, 1, add_key)

    def plan(x: Sequence[int], workers: int) -> Plan:
        return tiling.of_addition(key, math.prod(x), workers)

    operands = *inputs, scale_rows
    return KernelCall(addition.module_of, plan, lambda x: tuple(x[1:]), operands, np.int8, 2)


def combine(
    isa: InstructionSet, op: str, x: Array, window: Window, zero_points: Sequence[Array]
) -> KernelCall:
    """AVG_POOL2D or MAX_POOL2D.

    Args:
      isa: an instruction set of this processor.
      op: "AVG_POOL2D" or "MAX_POOL2D".
      x: int8, int16 or float32, [N, H, W, C].
      window: the window of the pool.
      zero_points: the zero points of the input and the output, [1]; 0 for MAX_POOL2D and floats.

    Returns:
      A kernel whose result is [N, OH, OW, C] of x's type.
    """
    channels = x.shape[3]
    key = pool.KernelKey(isa, op, np.dtype(x.dtype), 0)
    key = key._replace(last=channels % key.lanes)

    def plan(shape: Sequence[int], workers: int) -> Plan:
        return tiling.of_pool(key, window, shape, workers)

    def out(shape: Sequence[int]) -> tuple[int, ...]:
        return *window.out(shape), channels

    xp = _array_module(*zero_points)
    numbers = xp.stack([xp.asarray(z).astype(np.int32).reshape(()) for z in zero_points])
    return KernelCall(pool.module_of, plan, out, (x, numbers), x.dtype)


# Operands.


def _set_of(isa: InstructionSet, o: Operands) -> InstructionSet:
    """The set that multiplies the operands."""
    if np.dtype(o.x.dtype) == np.float32:
        return isa.float32_set
    return isa.int16_set if _is_wide(o) else isa


def _inputs(o: Operands, epilogue: Epilogue | FloatSteps | None) -> tuple[Array, ...]:
    """The inputs, whose examples `vmap` joins."""
    if isinstance(epilogue, FloatSteps):
        return o.x, *epilogue.of_kinds(OTHER, PADDED)
    return (o.x,)


def _is_int16(o: Operands) -> bool:
    return np.dtype(o.x.dtype) == np.int16


def _is_wide(o: Operands) -> bool:
    """Whether the weights need instructions that multiply 16 bits by 16 bits."""
    return np.dtype(o.weight.dtype) == np.int16


def _epilogue_key(
    isa: InstructionSet, channels: int, epilogue: Epilogue | FloatSteps | None, *, is_int16: bool
) -> EpilogueKey:
    """The specialization of an epilogue for so many channels, without a fused addition of int8."""
    last = channels % isa.lanes or isa.lanes
    if isa.is_float:
        steps = epilogue if isinstance(epilogue, FloatSteps) else FloatSteps()
        return EpilogueKey(isa, None, False, last, floats=steps.key)
    assert not isinstance(epilogue, FloatSteps)
    if epilogue is None:
        return EpilogueKey(isa, None, False, last, is_int16, "i64" if is_int16 else "i32")
    upper_only = not is_int16 and _allows_upper_only(epilogue.shift)
    return EpilogueKey(isa, epilogue.double, upper_only, last, is_int16, epilogue.out)


def _add_key(
    isa: InstructionSet, op: str, scales: tuple[Scaling, Scaling], epilogue: Epilogue
) -> tuple[AddKey, Array]:
    """The specialization of an addition, and its operand "scales", see `fused_add.ROWS`."""
    left, right = scales
    result = Rescaling(epilogue.multiplier, epilogue.shift, epilogue.double)
    rescalings = left.then, right.then, result
    numbers = [
        *(value for scale in scales for value in (scale.multiplier, scale.shift)),
        *(value for r in rescalings for value in ((0, 0) if r is None else r[:2])),
        *(scale.zero_point for scale in scales),
        *(epilogue.zero_point, epilogue.least, epilogue.largest),
    ]
    xp = _array_module(*numbers)
    column = xp.stack([xp.asarray(n).astype(np.int32).reshape(1) for n in numbers])

    def scale(r: Rescaling) -> ScaleTable:
        return ScaleTable(isa.lanes, r.double, _allows_upper_only(r.shift))

    left_next, right_next = (r and scale(r) for r in (left.then, right.then))
    key = AddKey(
        op,
        (_byte_scale_form(left), _byte_scale_form(right)),
        (left_next, right_next, scale(result)),
    )
    return key, xp.tile(column, (1, isa.lanes))


def _byte_scale_form(scale: Scaling) -> ByteScaleForm:
    """The cheapest exact form for an operand's scale."""
    numbers = scale.multiplier, scale.shift
    if any(isinstance(n, jax.Array) for n in numbers):
        return ByteScaleForm.for_unknown(double_round=scale.double)
    return ByteScaleForm.for_constant(
        *(np.asarray(n).item() for n in numbers), double_round=scale.double
    )


def _allows_upper_only(shift: Any) -> bool:
    """Whether all shifts are constants for which the upper words of products suffice."""
    return not isinstance(shift, jax.Array) and bool(np.all(np.asarray(shift) >= UPPER_SHIFT))


def _element_dtype(isa: InstructionSet) -> type:
    """The type of packed weights."""
    return {1: np.int8, 2: np.int16, 4: np.float32}[isa.element_bytes]


def _array_module(*arrays: Any) -> Any:
    """NumPy, whose results are constants of the program; jax.numpy if an array is JAX's."""
    return jnp if any(isinstance(x, jax.Array) for x in arrays) else np


def _channel_operands(
    isa: InstructionSet,
    key: EpilogueKey,
    count: int,
    o: Operands,
    weight_sums: Array | None,
    epilogue: Epilogue | FloatSteps | None,
) -> tuple[Array, Array]:
    """The operands "channels" and "limits" of a convolution, see `kernels.epilogue`.

    Args:
      isa: the instruction set.
      key: specialization of the epilogue.
      count: channels; a multiple of the weight's, where vectors hold several pixels.
      o: operands of the convolution.
      weight_sums: sum of the weights of each output channel, int32; None if they are floats.
      epilogue: RESCALE and CLAMP, the steps of float32, or None.
    """
    if weight_sums is None:
        steps = epilogue if isinstance(epilogue, FloatSteps) else FloatSteps()
        return _float_operands(key, count, o.bias, steps)
    assert not isinstance(epilogue, FloatSteps)
    xp = _array_module(o.bias, o.x_zp, weight_sums)
    if key.is_int16:
        words = _int48_bias_words(isa, o.bias, weight_sums)
        return _channels(key, count, words, epilogue), _limits(np.zeros(1, np.int32), epilogue)
    bias, x_zp = (xp.asarray(v).reshape(-1).astype(np.int32) for v in (o.bias, o.x_zp))
    if isa.element_bytes == 1:  # Inputs have `input_offset` added, and keep their zero point.
        bias = bias - (x_zp + np.int32(isa.input_offset)) * xp.asarray(weight_sums)
    return _channels(key, count, [bias], epilogue), _limits(x_zp, epilogue)


def _float_operands(
    key: EpilogueKey, count: int, bias: Array, steps: FloatSteps
) -> tuple[Array, Array]:
    """The operands "channels" and "limits" of a convolution of float32: bits of float32."""
    rows = [_bits(row) for row in (bias, *steps.of_kinds(CHANNEL))]
    numbers: list[Any] = [np.zeros(1, np.int32)]  # the value of padding
    for kind, operand in zip(steps.key.operands, steps.operands, strict=True):
        if kind == PADDED:
            numbers.append(np.full(1, operand.shape[-1], np.int32))
        elif kind == SCALAR:
            numbers.append(_bits(operand).reshape(1))
    # Epilogues of integers read as many.
    numbers += [np.zeros(1, np.int32)] * (LARGEST + 1 - len(numbers))
    return _channels(key, count, rows, None), _array_module(*numbers).concatenate(numbers)


def _bits(values: Any) -> Array:
    """The bits of float32, as int32."""
    if isinstance(values, jax.Array):
        return lax.bitcast_convert_type(values.astype(jnp.float32), jnp.int32)
    return np.asarray(values, np.float32).view(np.int32)


def _int48_bias_words(isa: InstructionSet, bias: Array, weight_sums: Array) -> list[Array]:
    """The lower and the upper 32 bits of the int48 bias, less the offsets of input bytes."""
    xp = _array_module(bias, weight_sums)
    with _x64.scope():
        total = xp.asarray(bias).reshape(-1).astype(np.int64)
        if isa.element_bytes == 1:
            # Upper bytes, which count 256 times, have `input_offset` added. Lower bytes have it
            # added as well, after 128 is subtracted.
            offset = np.int64(128 - isa.input_offset - 256 * isa.input_offset)
            total = total + offset * xp.asarray(weight_sums).astype(np.int64)
        return [part.astype(np.int32) for part in (total & 0xFFFFFFFF, total >> 32)]


def _channels(
    key: EpilogueKey, count: int, bias: Sequence[Array], epilogue: Epilogue | None
) -> Array:
    """The operand "channels" for `count` channels, see `kernels.epilogue`."""
    rows = [*bias] if epilogue is None else [*bias, epilogue.multiplier, epilogue.shift]
    xp = _array_module(*rows)

    def padded(row: Any) -> Any:
        row = xp.asarray(row).astype(np.int32).reshape(-1)
        row = xp.tile(row, count // row.size)
        # Padding must be a valid shift; the other rows may have any value.
        return xp.pad(row, (0, -count % key.lanes), constant_values=UPPER_SHIFT)

    return xp.stack([padded(row) for row in rows])


def _limits(zero_point: Array, epilogue: Epilogue | None, *others: Array) -> Array:
    """The operand "limits", see `kernels.epilogue`; `zero_point` is the input's."""
    bounds = (0, 0, 0) if epilogue is None else epilogue[2:5]
    values = zero_point, *bounds, *others
    xp = _array_module(*values)
    return xp.stack([xp.asarray(v).astype(np.int32).reshape(()) for v in values])


def _pack_weights(
    weight: Array, isa: InstructionSet, vectors: int, tile_vectors: int, cut: Cut
) -> tuple[Array, Array | None]:
    """Packs the weights of a convolution in the order in which the kernel reads them.

    Args:
      weight: int8, int16 or float32, [OC, KH, KW, IC].
      isa: the instruction set.
      vectors: vectors of all output channels.
      tile_vectors: vectors of a tile.
      cut: segments of a window row.

    Returns:
      The packed weights, [elements]; and their sums by output channel, int32, [OC], or None if
      they are floats.
    """
    xp = _array_module(weight)
    oc = weight.shape[0]
    rows = weight.reshape(oc, -1, cut.terms)
    sums = None if isa.is_float else rows.astype(np.int32).sum((1, 2))
    widths = [(0, vectors * isa.lanes - oc), (0, 0), (0, cut.beyond)]
    rows = xp.pad(rows, widths).astype(_element_dtype(isa))
    count, words = cut.length // isa.depth, isa.depth // isa.inner
    steps = rows.reshape(vectors, isa.lanes, -1, count, words, isa.inner)
    whole = vectors // tile_vectors * tile_vectors
    # Axes: block, vector, lane, segment, step, word of `isa.inner` elements, element. They become
    # block, segment, step, vector, word, lane, element.
    blocks = [steps[:whole].reshape(-1, tile_vectors, *steps.shape[1:]), steps[None, whole:]]
    parts = [part.transpose(0, 3, 4, 1, 5, 2, 6).reshape(-1) for part in blocks]
    return xp.concatenate(parts), sums


# Calls.


def run(kernel: KernelCall) -> jax.Array:
    """Calls a kernel, and returns its result. `vmap` joins examples of the inputs in one call."""
    return run_all([kernel], [0])[0]


def run_all(kernels: Sequence[KernelCall], outputs: Sequence[int]) -> list[jax.Array]:
    """Runs a chain of kernels in one call.

    Args:
      kernels: in order. Unless there is only one, all inputs and results have as many images. An
        input may be the `placeholder` of an earlier kernel.
      outputs: indices of the kernels whose results are returned.

    Returns:
      The results, in the order of `outputs`.
    """
    waits = threads_wait()
    links, arrays, inputs = link_kernels(kernels)
    first = links[0].operand_numbers

    @jax.custom_batching.custom_vmap
    def call(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return _ffi_call(links, outputs, arrays, waits=waits)

    @call.def_vmap
    def _(count: int, batched: Sequence[bool], *arrays: jax.Array):
        done = (True,) * len(outputs)
        if any(batched[inputs:]) and len(links) > 1 and not any(batched[n] for n in first):
            # Kernels before the first that is mapped are computed once for all examples.
            apart = jax.vmap(one_by_one, [0 if has else None for has in batched])
            return apart(*arrays), done
        stacked = (
            a if has else jnp.broadcast_to(a, (count, *a.shape))
            for a, has in zip(arrays, batched, strict=True)
        )
        if any(batched[inputs:]):
            return lax.map(lambda each: call(*each), tuple(stacked)), done
        joined = [x.reshape(-1, *x.shape[2:]) for x in itertools.islice(stacked, inputs)]
        results = call(*joined, *arrays[inputs:])
        return tuple(y.reshape(count, -1, *y.shape[1:]) for y in results), done

    def one_by_one(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        results: list[jax.Array] = []
        for link in links:
            read = (
                results[s.number] if isinstance(s, Placeholder) else arrays[s] for s in link.sources
            )
            operands = *read, *(arrays[number] for number in link.parameters)
            results.append(run(link.kernel._replace(operands=operands)))
        return tuple(results[number] for number in outputs)

    return list(call(*arrays))


def _ffi_call(
    links: Sequence[Link], outputs: Sequence[int], arrays: Sequence[jax.Array], *, waits: bool
) -> tuple[jax.Array, ...]:
    """Plans, compiles and emits one call of XLA's FFI; returns its results."""
    images = arrays[0].shape[0]
    planned = schedule.plan_call(links, outputs, images, operands=len(arrays), waits=waits)
    compiler.register(planned, [link.kernel.module_of for link in links])
    prepared = [links[number].kernel.placeholder(number) for number in outputs]
    repeats = images // links[0].kernel.shape[0]
    with contextlib.ExitStack() as scopes:
        for out in prepared:
            scopes.enter_context(_x64.scope_of(out.dtype))
        results = [
            jax.ShapeDtypeStruct((out.shape[0] * repeats, *out.shape[1:]), out.dtype)
            for out in prepared
        ]
        workspace = jax.ShapeDtypeStruct((planned.workspace,), jnp.uint8)
        # As int32, since JAX has 64-bit arrays only in x64 mode.
        words = planned.words.view(np.int32)
        return tuple(jax.ffi.ffi_call(planned.name, (*results, workspace))(*arrays, words)[:-1])


def link_kernels(kernels: Sequence[KernelCall]) -> tuple[list[Link], list[jax.Array], int]:
    """Numbers the operands of a chain of kernels; an input that several kernels read counts once.

    Returns:
      The kernels, linked to operands of the call; these operands; and how many of them, at the
      begin, are inputs.
    """
    inputs_by_id = {
        id(x): x for k in kernels for x in k.operands[: k.inputs] if not isinstance(x, Placeholder)
    }
    number_of = {key: number for number, key in enumerate(inputs_by_id)}
    operands, links = [*inputs_by_id.values()], []
    for kernel in kernels:
        inputs, others = kernel.operands[: kernel.inputs], kernel.operands[kernel.inputs :]
        sources = tuple(x if isinstance(x, Placeholder) else number_of[id(x)] for x in inputs)
        numbers = range(len(operands), len(operands) + len(others))
        links.append(Link(kernel, sources, tuple(numbers)))
        operands += others
    return links, list(map(jnp.asarray, operands)), len(inputs_by_id)
