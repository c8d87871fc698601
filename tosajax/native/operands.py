"""Operands of native kernels: packed weights, bias with zero points folded in, stacked scales.

NumPy arrays are prepared when a program is traced, and are constants of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import UPPER_SHIFT, ByteScaleForm, ScaleTable
from tosajax.native.codegen.steps import CHANNEL, IMAGES, PADDED, SCALAR
from tosajax.native.kernels.epilogue import LARGEST, EpilogueKey, FloatEpilogue
from tosajax.native.kernels.fused_add import AddKey
from tosajax.native.tiling import Cut

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

    @property
    def is_int16(self) -> bool:
        return np.dtype(self.x.dtype) == np.int16

    @property
    def is_wide(self) -> bool:
        """Whether the weights need instructions that multiply 16 bits by 16 bits."""
        return np.dtype(self.weight.dtype) == np.int16


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

    def of_images(self, change: Callable[[Any], Any]) -> FloatSteps:
        """The steps with a change of all operands that are images."""
        pairs = zip(self.key.operands, self.operands, strict=True)
        changed = (change(each) if kind in IMAGES else each for kind, each in pairs)
        return self._replace(operands=tuple(changed))


def set_of(isa: InstructionSet, o: Operands) -> InstructionSet:
    """The set that multiplies the operands."""
    if np.dtype(o.x.dtype) == np.float32:
        return isa.float32_set
    return isa.int16_set if o.is_wide else isa


def images_of(o: Operands, epilogue: Epilogue | FloatSteps | None) -> tuple[Array, ...]:
    """The inputs, whose examples `vmap` joins."""
    if isinstance(epilogue, FloatSteps):
        return o.x, *epilogue.of_kinds(*IMAGES)
    return (o.x,)


def epilogue_key_of(
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


def add_key_of(
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
    xp = array_module(*numbers)
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


def element_dtype(isa: InstructionSet) -> type:
    """The type of packed weights."""
    return {1: np.int8, 2: np.int16, 4: np.float32}[isa.element_bytes]


def array_module(*arrays: Any) -> Any:
    """NumPy, whose results are constants of the program; jax.numpy if an array is JAX's."""
    return jnp if any(isinstance(x, jax.Array) for x in arrays) else np


def channel_operands(
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
    xp = array_module(o.bias, o.x_zp, weight_sums)
    if key.is_int16:
        words = _int48_bias_words(isa, o.bias, weight_sums)
        return channels_of(key, count, words, epilogue), limits_of(np.zeros(1, np.int32), epilogue)
    bias, x_zp = (xp.asarray(v).reshape(-1).astype(np.int32) for v in (o.bias, o.x_zp))
    if isa.element_bytes == 1:  # Inputs have `input_offset` added, and keep their zero point.
        bias = bias - (x_zp + np.int32(isa.input_offset)) * xp.asarray(weight_sums)
    return channels_of(key, count, [bias], epilogue), limits_of(x_zp, epilogue)


def _float_operands(
    key: EpilogueKey, count: int, bias: Array, steps: FloatSteps
) -> tuple[Array, Array]:
    """The operands "channels" and "limits" of a convolution of float32: bits of float32."""
    rows = [bits_of(row) for row in (bias, *steps.of_kinds(CHANNEL))]
    numbers: list[Any] = [np.zeros(1, np.int32)]  # the value of padding
    for kind, operand in zip(steps.key.operands, steps.operands, strict=True):
        if kind == PADDED:
            numbers.append(np.full(1, operand.shape[-1], np.int32))
        elif kind == SCALAR:
            numbers.append(bits_of(operand).reshape(1))
    # Epilogues of integers read as many.
    numbers += [np.zeros(1, np.int32)] * (LARGEST + 1 - len(numbers))
    return channels_of(key, count, rows, None), array_module(*numbers).concatenate(numbers)


def bits_of(values: Any) -> Array:
    """The bits of float32, as int32."""
    if isinstance(values, jax.Array):
        return lax.bitcast_convert_type(values.astype(jnp.float32), jnp.int32)
    return np.asarray(values, np.float32).view(np.int32)


def _int48_bias_words(isa: InstructionSet, bias: Array, weight_sums: Array) -> list[Array]:
    """The lower and the upper 32 bits of the int48 bias, less the offsets of input bytes."""
    xp = array_module(bias, weight_sums)
    with _x64.scope():
        total = xp.asarray(bias).reshape(-1).astype(np.int64)
        if isa.element_bytes == 1:
            # Upper bytes, which count 256 times, have `input_offset` added. Lower bytes have it
            # added as well, after 128 is subtracted.
            offset = np.int64(128 - isa.input_offset - 256 * isa.input_offset)
            total = total + offset * xp.asarray(weight_sums).astype(np.int64)
        return [part.astype(np.int32) for part in (total & 0xFFFFFFFF, total >> 32)]


def channels_of(
    key: EpilogueKey, count: int, bias: Sequence[Array], epilogue: Epilogue | None
) -> Array:
    """The operand "channels" for `count` channels, see `kernels.epilogue`."""
    rows = [*bias] if epilogue is None else [*bias, epilogue.multiplier, epilogue.shift]
    xp = array_module(*rows)

    def padded(row: Any) -> Any:
        row = xp.asarray(row).astype(np.int32).reshape(-1)
        row = xp.tile(row, count // row.size)
        # Padding must be a valid shift; the other rows may have any value.
        return xp.pad(row, (0, -count % key.lanes), constant_values=UPPER_SHIFT)

    return xp.stack([padded(row) for row in rows])


def limits_of(zero_point: Array, epilogue: Epilogue | None, *others: Array) -> Array:
    """The operand "limits", see `kernels.epilogue`; `zero_point` is the input's."""
    bounds = (0, 0, 0) if epilogue is None else epilogue[2:5]
    values = zero_point, *bounds, *others
    xp = array_module(*values)
    return xp.stack([xp.asarray(v).astype(np.int32).reshape(()) for v in values])


def pack_weights(
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
    xp = array_module(weight)
    oc = weight.shape[0]
    rows = weight.reshape(oc, -1, cut.terms)
    sums = None if isa.is_float else rows.astype(np.int32).sum((1, 2))
    widths = [(0, vectors * isa.lanes - oc), (0, 0), (0, cut.beyond)]
    rows = xp.pad(rows, widths).astype(element_dtype(isa))
    count, words = cut.length // isa.depth, isa.depth // isa.inner
    steps = rows.reshape(vectors, isa.lanes, -1, count, words, isa.inner)
    whole = vectors // tile_vectors * tile_vectors
    # Axes: block, vector, lane, segment, step, word of `isa.inner` elements, element. They become
    # block, segment, step, vector, word, lane, element.
    blocks = [steps[:whole].reshape(-1, tile_vectors, *steps.shape[1:]), steps[None, whole:]]
    parts = [part.transpose(0, 3, 4, 1, 5, 2, 6).reshape(-1) for part in blocks]
    return xp.concatenate(parts), sums
