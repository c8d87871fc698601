"""Rules of "Type Conversion".

RESCALE of 1.0 allows unsigned integers only for the input or the output, and not with INT32 or
INT48. Otherwise, additional nodes convert between unsigned integers and signed integers that are
smaller by half the range; the zero points are smaller by the same amount, so results are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.io.pre_1_0.step import SIGNLESS, Step
from tosajax.report import FormatError
from tosajax.spec import RoundingMode

_WIDE = (DType.INT32, DType.INT48)
_NARROW = (DType.INT8, DType.INT16)


def cast(step: Step) -> None:
    """Notes a difference: 1.0 defines the rounding of ties."""
    if step.dtype(step.input(0)).is_float and step.dtype(step.output).is_integer:
        step.note("kept", "halves go to the even integer, which 0.80 leaves open")
    step.keep()


class _End(NamedTuple):
    """The input or output of a RESCALE."""

    name: str
    dtype: DType
    unsigned: bool
    zero_point: int

    @property
    def half(self) -> int:
        """Half the range: the offset from signed to unsigned integers, 128 for INT8."""
        return self.dtype.maximum + 1

    @property
    def can_be_signed(self) -> bool:
        """Whether the integers are unsigned, and the signed zero point would be legal."""
        return self.unsigned and (self.dtype is DType.INT8 or self.zero_point == self.half)

    def signed(self, name: str) -> _End:
        """The same numbers as a signed tensor `name`, less half the range."""
        return _End(name, self.dtype, False, self.zero_point - self.half)


class _Scale(NamedTuple):
    """The operands and attributes that define the scale of a RESCALE."""

    multiplier: str
    shift: str
    scale32: bool = True
    rounding_mode: RoundingMode = RoundingMode.SINGLE_ROUND
    per_channel: bool = False


def rescale(step: Step) -> None:
    """Upgrades RESCALE: zero points, multipliers and shifts become inputs."""
    x, y = step.input(0), step.output
    source = _end(step, x, "input")
    target = _end(step, y, "output")
    scale = _scale(step)
    flat = step.work.unfolded.get(x)
    if flat is None:
        _rescale(step, source, target, scale)
        return
    # The input is the 4-D output of a CONV2D for FULLY_CONNECTED, with the same last dimension.
    shape = step.work.draft.tensors[flat].shape
    folded = step.tensor("rescaled", target.dtype, shape)
    _rescale(step, source._replace(name=flat), target._replace(name=folded), scale)
    step.reshape(folded, y)


def _end(step: Step, name: str, side: str) -> _End:
    old = step.old(name)
    dtype = DType[SIGNLESS.get(old.dtype, old.dtype)]
    unsigned = old.dtype in SIGNLESS or bool(step.get(f"{side}_unsigned", False))
    zero_point = step.get(f"{side}_zp", 0)
    if dtype.is_integer:
        low, high = dtype.limits(unsigned=unsigned)
        if not low <= zero_point <= high:
            raise FormatError(f"{side}_zp is {zero_point}, expected one in [{low}, {high}]")
    return _End(name, dtype, unsigned, zero_point)


def _scale(step: Step) -> _Scale:
    scale32 = bool(step.get("scale32"))
    double_round = step.get("double_round", False)
    return _Scale(
        step.operand("multiplier", 1, DType.INT32 if scale32 else DType.INT16),
        step.operand("shift", 2, DType.INT8),
        scale32,
        RoundingMode.DOUBLE_ROUND if double_round else RoundingMode.SINGLE_ROUND,
        bool(step.get("per_channel", False)),
    )


def _rescale(step: Step, source: _End, target: _End, scale: _Scale) -> None:
    if not _is_gone(source, target):
        _emit(step, source, target, scale)
    elif target.can_be_signed and (scale.scale32 or source.dtype in _NARROW):
        # With scale32 results have at most 30 bits, so adding a zero point cannot overflow.
        _to_unsigned(step, source, target, scale)
        step.note(f"two RESCALEs, by way of {target.dtype.name} less {target.half}")
    elif source.can_be_signed:
        _emit(step, _from_unsigned(step, source), target, scale)
        step.note(f"two RESCALEs, by way of {source.dtype.name} less {source.half}")
    else:
        _by_way_of_int32(step, source, target, scale)
        step.note("RESCALE of INT32, MAXIMUM and MINIMUM, and RESCALEs to and from signed integers")


def _is_gone(source: _End, target: _End) -> bool:
    """Whether the RESCALE is legal in 0.80 but not in 1.0."""
    if source.unsigned and source.dtype not in _NARROW:
        return False
    if target.unsigned and target.dtype not in _NARROW:
        return False
    types = source.dtype, target.dtype
    if source.unsigned and target.dtype is DType.INT32:
        return types != (DType.INT16, DType.INT32)
    if target.unsigned and source.dtype in _WIDE:
        return types != (DType.INT32, DType.INT16)
    return source.unsigned and target.unsigned


def _from_unsigned(step: Step, source: _End) -> _End:
    """Emits a RESCALE from unsigned integers to signed ones; returns the signed end."""
    result = step.tensor("signed", source.dtype, step.shape(source.name))
    middle = source._replace(zero_point=source.half)
    _emit(step, middle, _End(result, source.dtype, False, 0), _same(step))
    return source.signed(result)


def _to_unsigned(step: Step, source: _End, target: _End, scale: _Scale) -> None:
    """Emits a RESCALE to signed integers, and one from them to the unsigned target."""
    result = step.tensor("signed", target.dtype, step.shape(source.name))
    _emit(step, source, target.signed(result), scale)
    middle = target._replace(zero_point=target.half)
    _emit(step, _End(result, target.dtype, False, 0), middle, _same(step))


def _by_way_of_int32(step: Step, source: _End, target: _End, scale: _Scale) -> None:
    """Emits scaling to INT32, clipping in INT32, and conversion to unsigned."""
    if source.unsigned:
        source = _in_int32(step, source)
    shape = step.shape(source.name)
    scaled = _End(step.tensor("scaled", DType.INT32, shape), DType.INT32, False, 0)
    _emit(step, source, scaled, scale)
    low = -target.zero_point
    clipped = _with(step, "MAXIMUM", scaled.name, low)
    clipped = _with(step, "MINIMUM", clipped, low + 2 * target.half - 1)
    moved = _with(step, "ADD", clipped, target.zero_point - target.half)
    narrow = step.tensor("signed", target.dtype, shape)
    step.emit("CAST", (moved,), (narrow,))
    middle = target._replace(zero_point=target.half)
    _emit(step, _End(narrow, target.dtype, False, 0), middle, _same(step))


def _in_int32(step: Step, source: _End) -> _End:
    """Emits the conversion of unsigned integers, less their zero point, to INT32."""
    signed = _from_unsigned(step, source)
    wide = step.tensor("int32", DType.INT32, step.shape(source.name))
    step.emit("CAST", (signed.name,), (wide,))
    return _End(_with(step, "ADD", wide, -signed.zero_point), DType.INT32, False, 0)


def _with(step: Step, op: str, name: str, number: int) -> str:
    """Emits an INT32 operator with a constant second operand; returns its output."""
    shape = step.shape(name)
    operand = step.const(op.lower(), np.full((1,) * len(shape), number), DType.INT32)
    result = step.tensor(f"{op.lower()}_{number}", DType.INT32, shape)
    step.emit(op, (name, operand), (result,))
    return result


def _same(step: Step) -> _Scale:
    """Makes the constants of scale 1."""
    one = step.const("multiplier", [1 << 30], DType.INT32), step.const("shift", [30], DType.INT8)
    return _Scale(*one)


def _emit(step: Step, source: _End, target: _End, scale: _Scale) -> None:
    multiplier, shift, *attributes = scale
    names = _Scale._fields[2:]
    zero_points = _zero_point(step, "input_zp", source), _zero_point(step, "output_zp", target)
    step.emit(
        "RESCALE",
        (source.name, multiplier, shift, *zero_points),
        (target.name,),
        **dict(zip(names, attributes, strict=True)),
        input_unsigned=source.unsigned,
        output_unsigned=target.unsigned,
    )


def _zero_point(step: Step, name: str, end: _End) -> str:
    """Makes a constant with the bits of a zero point."""
    value = end.zero_point
    if end.dtype.is_integer:
        value -= (value > end.dtype.maximum) << end.dtype.bits
    return step.const(name, [value], end.dtype)
