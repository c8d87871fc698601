"""Rules of "Data Layout": shapes become inputs."""

from __future__ import annotations

import math

import numpy as np

from tosajax.graph import DYNAMIC, shape_fits
from tosajax.io.pre_1_0.step import SIGNLESS, Step
from tosajax.report import FormatError, UnsupportedError


def pad(step: Step) -> None:
    """Upgrades PAD: the padding becomes a flat list, the pad constant an input of x's type."""
    x = step.input(0)
    step.emit("PAD", (x, step.list_input("padding", 1), _pad_const(step, x)))


def reshape(step: Step) -> None:
    """Upgrades RESHAPE; infers a dimension of -1 in the new shape."""
    x = step.input(0)
    shape = _settled(step, step.integers("new_shape", 1))
    step.emit("RESHAPE", (x, step.const_shape("shape", shape)))


def slice(step: Step) -> None:
    start, size = step.list_input("start", 1), step.list_input("size", 2)
    step.emit("SLICE", (step.input(0), start, size))


def tile(step: Step) -> None:
    step.emit("TILE", (step.input(0), step.list_input("multiples", 1)))


def transpose(step: Step) -> None:
    """Upgrades TRANSPOSE: perms, which may be a constant tensor, becomes an attribute."""
    step.emit("TRANSPOSE", (step.input(0),), perms=step.integers("perms", 1))


def _pad_const(step: Step, x: str) -> str:
    """The pad constant: an input, or the attribute for the tensor's type."""
    dtype = step.dtype(x)
    if len(step.node.inputs) > 2:
        return step.operand("pad_const", 2, dtype)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            value = np.asarray([step.get("pad_const_fp", 0.0)], np.float32).astype(dtype.storage)
        return step.const("pad_const", value, dtype)
    value = step.get("pad_const_int", 0)
    if not dtype.is_integer:
        return step.const("pad_const", [bool(value)], dtype)
    if step.old(x).dtype in SIGNLESS:
        low, high = dtype.limits(unsigned=True)
        if not low <= value <= high:
            raise FormatError(f"pad_const_int is {value}, expected one in [{low}, {high}]")
        value -= (value > dtype.maximum) << dtype.bits  # the same bits
    return step.const("pad_const", [value], dtype)


def _settled(step: Step, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Replaces -1 in a new shape by its size, if the input or output shape determines it."""
    if DYNAMIC not in shape:
        return shape
    declared = step.shape(step.output)
    if DYNAMIC not in declared and shape_fits(declared, shape):
        return declared
    x = step.shape(step.input(0))
    rest = -math.prod(shape)
    if DYNAMIC in x:
        return shape
    if shape.count(DYNAMIC) > 1 or rest < 1 or math.prod(x) % rest:
        raise UnsupportedError(f"new_shape is {shape} for {x}, which leaves the shape open")
    return tuple(math.prod(x) // rest if dim == DYNAMIC else dim for dim in shape)
