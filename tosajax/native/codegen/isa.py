"""The instruction sets that multiply integers, and the one of this processor."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import llvmlite.binding as llvm

from tosajax.native.codegen.accumulators import (
    Accumulators,
    PairAccumulators,
    TileAccumulators,
    VectorAccumulators,
)
from tosajax.native.codegen.builder import IRBuilder, Value, vector
from tosajax.native.codegen.narrowing import Pack, pack_portably, x86_pack

# (code, sums, input, weight) -> the next sums, all vectors of as many words as there are lanes.
Step = Callable[[IRBuilder, Value, Value, Value], Value]


class InstructionSet(NamedTuple):
    """How one processor multiplies and adds bytes.

    A step adds to each 32-bit lane the products of `terms` neighbouring terms.

    Args:
      name: in lower case.
      features: of LLVM, all of which it takes; none for any processor.
      machine: value of `platform.machine()`; None matches all.
      lanes: 32-bit sums in a vector.
      dot_length: products in a lane, 4 of bytes or 2 of 16 bits.
      registers: vectors that a kernel can hold.
      input_offset: added to int8 inputs for instructions that take uint8; 128 or 0.
      is_default: whether programs take it unasked: it has run, and was faster than XLA's route.
      step: of vectors.
      pack: two vectors as one of narrower elements.
      accumulators: how products hold their sums.
      base: the set of kernels that have vectors alone, if it is another.
      int16: that of products of int16, if it is another.
      level: LLVM's optimization level, 0 to 3; emulations in tests are compiled at 0.
    """

    name: str
    features: tuple[str, ...]
    machine: str | None
    lanes: int
    dot_length: int
    registers: int
    input_offset: int
    is_default: bool
    step: Step
    pack: Pack = pack_portably
    accumulators: type[Accumulators] = VectorAccumulators
    base: InstructionSet | None = None
    int16: InstructionSet | None = None
    level: int = 3

    @property
    def vector_set(self) -> InstructionSet:
        """The set of kernels that have vectors alone."""
        return self.base or self

    @property
    def int16_set(self) -> InstructionSet:
        """The set of products of int16, which multiplies 16 bits."""
        return self.int16 or self

    @property
    def depth(self) -> int:
        """Terms of a step of a product."""
        return self.accumulators.DEPTH or self.dot_length

    @property
    def inner(self) -> int:
        """Terms of a lane that lie side by side among the weights of a step."""
        return self.accumulators.INNER or self.dot_length

    @property
    def step_bytes(self) -> int:
        """Of a pixel in a step of a product."""
        return self.depth * self.element_bytes

    @property
    def weight_bytes(self) -> int:
        """Of a vector of channels in a step of a product."""
        return self.lanes * self.step_bytes

    @property
    def label(self) -> str:
        """The name as a part of identifiers."""
        return self.name.replace("-", "_")

    @property
    def element_bytes(self) -> int:
        """Of an input or a weight as a kernel reads it: 4 for each lane and step."""
        return 4 // self.dot_length


def _vpdpbusd(bits: int) -> Step:
    """uint8 by int8 in fours; sums wrap."""

    def step(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
        bytes_of = (operand.bitcast(vector("i8", bits // 8)) for operand in (x, weight))
        return code.call(sums.type, f"llvm.x86.avx512.vpdpbusd.{bits}", sums, *bytes_of)

    return step


def _pmaddwd(name: str, bits: int) -> Step:
    """int16 by int16 in pairs."""

    def step(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
        halves = (operand.bitcast(vector("i16", bits // 16)) for operand in (x, weight))
        return sums + code.call(sums.type, name, *halves)

    return step


def _sdot(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
    """int8 by int8 in fours."""
    bytes_of = (operand.bitcast(vector("i8", 16)) for operand in (x, weight))
    return code.call(sums.type, "llvm.aarch64.neon.sdot.v4i32.v16i8", sums, *bytes_of)


def _pairs(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
    """int16 by int16 in pairs, by instructions of any processor."""
    del code
    low = ((x << 16) >> 16) * ((weight << 16) >> 16)
    return sums + low + (x >> 16) * (weight >> 16)


_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_VNNI = (*_AVX512, "avx512vnni")
_AMX = (*_VNNI, "amx-tile", "amx-int8")
_AVX_VNNI = ("avx2", "avxvnni")
_I8MM = ("dotprod", "i8mm")
_PMADDWD_512 = _pmaddwd("llvm.x86.avx512.pmaddw.d.512", 512)
_PMADDWD_256 = _pmaddwd("llvm.x86.avx2.pmadd.wd", 256)
_PACK_512 = x86_pack("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packsswb.512")
_PACK_256 = x86_pack("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packsswb")
PORTABLE = InstructionSet("portable", (), None, 4, 2, 16, 0, False, _pairs)
_AVX512_SET = InstructionSet(
    "avx512", _AVX512, "x86_64", 16, 2, 32, 0, True, _PMADDWD_512, _PACK_512
)
_AVX2_SET = InstructionSet("avx2", ("avx2",), "x86_64", 8, 2, 16, 0, True, _PMADDWD_256, _PACK_256)
_VNNI_SET = InstructionSet(
    "avx512-vnni",
    _VNNI,
    "x86_64",
    16,
    4,
    32,
    128,
    True,
    _vpdpbusd(512),
    _PACK_512,
    int16=_AVX512_SET,
)
_AVX_VNNI_SET = InstructionSet(
    "avx-vnni",
    _AVX_VNNI,
    "x86_64",
    8,
    4,
    16,
    128,
    False,
    _vpdpbusd(256),
    _PACK_256,
    int16=_AVX2_SET,
)
_AMX_SET = _VNNI_SET._replace(
    name="amx-int8",
    features=_AMX,
    input_offset=0,
    is_default=False,
    accumulators=TileAccumulators,
    base=_VNNI_SET,
)
_DOTPROD_SET = InstructionSet(
    "dotprod", ("dotprod",), "aarch64", 4, 4, 32, 0, False, _sdot, int16=PORTABLE
)
_I8MM_SET = _DOTPROD_SET._replace(
    name="i8mm", features=_I8MM, accumulators=PairAccumulators, base=_DOTPROD_SET
)
# The fastest first.
SETS = (
    _AMX_SET,
    _VNNI_SET,
    _AVX_VNNI_SET,
    _AVX512_SET,
    _AVX2_SET,
    _I8MM_SET,
    _DOTPROD_SET,
    PORTABLE,
)


class _ArmFeature(NamedTuple):
    """How a system says that programs may use a feature.

    Args:
      kind: of Linux: the kind of `getauxval`.
      bit: of what that gives.
      name: of macOS.
    """

    kind: int
    bit: int
    name: bytes


# LLVM, as of 22, never asks for them on Linux and macOS.
_ARM_FEATURES = {
    "dotprod": _ArmFeature(16, 20, b"hw.optional.arm.FEAT_DotProd"),
    "i8mm": _ArmFeature(26, 13, b"hw.optional.arm.FEAT_I8MM"),
}
# Of Linux on x86: the system call, what it is asked for, and the state that tiles have.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def features() -> Mapping[str, bool]:
    """Of LLVM, and whether this processor has them; others are not known."""
    found = dict(llvm.get_host_cpu_features())
    if _machine() == "aarch64":
        found |= {name: _arm_has(how) for name, how in _ARM_FEATURES.items() if name not in found}
    if found.get("amx-int8"):
        found["amx-int8"] = _may_use_tiles()
    return found


def _machine() -> str:
    return {"arm64": "aarch64"}.get(platform.machine(), platform.machine())


def _arm_has(how: _ArmFeature) -> bool:
    library = ctypes.CDLL(None)
    if sys.platform == "darwin":
        value, size, zero = ctypes.c_int(0), ctypes.c_size_t(4), ctypes.c_size_t(0)
        failed = library.sysctlbyname(how.name, ctypes.byref(value), ctypes.byref(size), None, zero)
        return not failed and value.value == 1
    known = getattr(library, "getauxval", None)
    if known is None:
        return False
    known.argtypes, known.restype = [ctypes.c_ulong], ctypes.c_ulong
    return bool(known(how.kind) & 1 << how.bit)


@functools.cache
def _may_use_tiles() -> bool:
    """Whether this process gets the room for tiles, which Linux gives those that ask for it."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


@functools.cache
def usable() -> tuple[InstructionSet, ...]:
    """The instruction sets of this processor, the fastest first."""
    found, machine = features(), _machine()
    return tuple(
        s for s in SETS if s.machine in (None, machine) and all(found.get(f) for f in s.features)
    )


def chosen(native: bool | None) -> InstructionSet | None:
    """The instruction set of programs for this processor, or None for XLA's route.

    Args:
      native: the user's wish; None leaves it to what was measured.
    """
    if native is None:
        # XLA multiplies by AMX too, and it is not known which is faster.
        if llvm.get_host_cpu_features().get("amx-int8"):
            return None
        return next((s for s in usable() if s.is_default), None)
    return usable()[0] if native else None
