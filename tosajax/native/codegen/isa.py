"""Instruction sets with integer dot products and products of float32, and their detection.

Words: a lane is one 32-bit accumulator of a vector. A dot-product instruction adds, to each lane,
the products of `dot_length` inputs and weights. Reduction elements are the pairs of input and
weight that one output sums: KH * KW * IC for a convolution, C for MATMUL.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import llvmlite.binding as llvm

from tosajax.native.codegen import floats
from tosajax.native.codegen.accumulators import (
    Accumulators,
    PairAccumulators,
    TileAccumulators,
    VectorAccumulators,
)
from tosajax.native.codegen.builder import IRBuilder, Value, vector
from tosajax.native.codegen.narrowing import Pack, pack_portably, x86_pack

# (code, sums, inputs, weights) -> sums plus dot products; all are vectors of i32, whose lanes hold
# 4 int8 or 2 int16 of inputs and of weights.
Step = Callable[[IRBuilder, Value, Value, Value], Value]


class InstructionSet(NamedTuple):
    """How a processor computes integer dot products.

    Args:
      name: the name, in lower case.
      features: LLVM features that it needs, all of them; empty for any processor.
      machine: value of `platform.machine()`; None matches all.
      lanes: 32-bit accumulators in a vector.
      dot_length: reduction elements of a lane in one instruction: 4 of int8, 2 of int16, or 1 of
        float32.
      registers: vector registers.
      input_offset: added to int8 inputs for instructions that take uint8; 128 or 0.
      is_default: whether programs use it unasked: it was measured, and is faster than XLA's route.
      step: one dot-product instruction on vectors.
      pack: narrows two vectors to one.
      accumulators: how products and convolutions hold their accumulators.
      base: the set for kernels that use vectors only (depthwise); None if it is this one.
      int16: the set for int16 inputs and wide weights; None if it is this one.
      float32: the set for float32, which multiplies and adds with one rounding; None if it is
        this one.
      level: LLVM's optimization level, 0 to 3; tests compile emulated sets at 0.
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
    float32: InstructionSet | None = None
    level: int = 3

    @property
    def vector_set(self) -> InstructionSet:
        """The set for kernels that use vectors only."""
        return self.base or self

    @property
    def int16_set(self) -> InstructionSet:
        """The set that multiplies 16 bits by 16 bits."""
        return self.int16 or self

    @property
    def float32_set(self) -> InstructionSet:
        """The set that multiplies float32."""
        return self.vector_set.float32 or self

    @property
    def is_float(self) -> bool:
        """Whether lanes are float32."""
        return self.dot_length == 1

    @property
    def depth(self) -> int:
        """Reduction elements that one step of `accumulators` consumes."""
        return self.accumulators.DEPTH or self.dot_length

    @property
    def inner(self) -> int:
        """Consecutive reduction elements of one channel in packed weights."""
        return self.accumulators.INNER or self.dot_length

    @property
    def step_bytes(self) -> int:
        """Bytes of one pixel that a step reads."""
        return self.depth * self.element_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a step reads for one vector of channels."""
        return self.lanes * self.step_bytes

    @property
    def label(self) -> str:
        """The name as part of an identifier."""
        return self.name.replace("-", "_")

    @property
    def element_bytes(self) -> int:
        """Bytes of an input or a weight as an instruction reads it: 1, 2 or 4."""
        return 4 // self.dot_length


def _vpdpbusd(bits: int) -> Step:
    """uint8 x int8, 4 products in a lane (AVX-VNNI, AVX512-VNNI); vectors of so many bits."""

    def step(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
        operands = (operand.bitcast(vector("i8", bits // 8)) for operand in (x, weight))
        return code.call(sums.type, f"llvm.x86.avx512.vpdpbusd.{bits}", sums, *operands)

    return step


def _pmaddwd(intrinsic: str, bits: int) -> Step:
    """int16 x int16, 2 products in a lane (AVX2, AVX512BW); vectors of so many bits."""

    def step(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
        operands = (operand.bitcast(vector("i16", bits // 16)) for operand in (x, weight))
        return sums + code.call(sums.type, intrinsic, *operands)

    return step


def _sdot(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
    """int8 x int8, 4 products in a lane (Arm dotprod)."""
    operands = (operand.bitcast(vector("i8", 16)) for operand in (x, weight))
    return code.call(sums.type, "llvm.aarch64.neon.sdot.v4i32.v16i8", sums, *operands)


def _portable_step(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
    """int16 x int16, 2 products in a lane, by instructions of any processor."""
    del code
    low = ((x << 16) >> 16) * ((weight << 16) >> 16)
    return sums + low + (x >> 16) * (weight >> 16)


def _fused_multiply_add(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
    """float32 x float32, one product in a lane; vectors of the same bits as i32."""
    del code
    return floats.to_bits(floats.multiply_add(*map(floats.of_bits, (x, weight, sums))))


def _with_float32(isa: InstructionSet) -> InstructionSet:
    """A set, and its set for float32: the same vectors."""
    float32 = isa._replace(
        name=f"{isa.name}-float32",
        dot_length=1,
        input_offset=0,
        step=_fused_multiply_add,
        int16=None,
    )
    return isa._replace(float32=float32)


_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_VNNI = (*_AVX512, "avx512vnni")
_AMX = (*_VNNI, "amx-tile", "amx-int8")
_AVX2 = ("avx2", "fma")
_AVX_VNNI = (*_AVX2, "avxvnni")
_I8MM = ("dotprod", "i8mm")
PORTABLE = _with_float32(
    InstructionSet(
        "portable",
        features=(),
        machine=None,
        lanes=4,
        dot_length=2,
        registers=16,
        input_offset=0,
        is_default=False,
        step=_portable_step,
    )
)
_AVX512_SET = _with_float32(
    InstructionSet(
        "avx512",
        _AVX512,
        machine="x86_64",
        lanes=16,
        dot_length=2,
        registers=32,
        input_offset=0,
        is_default=True,
        step=_pmaddwd("llvm.x86.avx512.pmaddw.d.512", 512),
        pack=x86_pack("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packsswb.512"),
    )
)
_AVX2_SET = _with_float32(
    InstructionSet(
        "avx2",
        _AVX2,
        machine="x86_64",
        lanes=8,
        dot_length=2,
        registers=16,
        input_offset=0,
        is_default=True,
        step=_pmaddwd("llvm.x86.avx2.pmadd.wd", 256),
        pack=x86_pack("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packsswb"),
    )
)
_VNNI_SET = _AVX512_SET._replace(
    name="avx512-vnni",
    features=_VNNI,
    dot_length=4,
    input_offset=128,
    step=_vpdpbusd(512),
    int16=_AVX512_SET,
)
_AVX_VNNI_SET = _AVX2_SET._replace(
    name="avx-vnni",
    features=_AVX_VNNI,
    dot_length=4,
    input_offset=128,
    is_default=False,
    step=_vpdpbusd(256),
    int16=_AVX2_SET,
)
_AMX_SET = _VNNI_SET._replace(
    name="amx-int8",
    features=_AMX,
    input_offset=0,
    accumulators=TileAccumulators,
    base=_VNNI_SET,
)
_DOTPROD_SET = _with_float32(
    InstructionSet(
        "dotprod",
        ("dotprod",),
        machine="aarch64",
        lanes=4,
        dot_length=4,
        registers=32,
        input_offset=0,
        is_default=False,
        step=_sdot,
        int16=PORTABLE,
    )
)
_I8MM_SET = _DOTPROD_SET._replace(
    name="i8mm", features=_I8MM, accumulators=PairAccumulators, base=_DOTPROD_SET
)
# Fastest first.
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
    """How the operating system reports a feature of an Arm processor.

    Args:
      auxval: argument of Linux' `getauxval` (AT_HWCAP or AT_HWCAP2).
      bit: the bit of the result of `getauxval`.
      sysctl: name for macOS' `sysctlbyname`.
    """

    auxval: int
    bit: int
    sysctl: bytes


# LLVM, as of 22, does not detect these on Linux and macOS.
_ARM_FEATURES = {
    "dotprod": _ArmFeature(16, 20, b"hw.optional.arm.FEAT_DotProd"),
    "i8mm": _ArmFeature(26, 13, b"hw.optional.arm.FEAT_I8MM"),
}
# Linux on x86: arch_prctl, ARCH_REQ_XCOMP_PERM, and the state component of AMX tiles.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def features() -> Mapping[str, bool]:
    """LLVM's feature names, and whether this processor has each; unknown ones are absent."""
    detected = dict(llvm.get_host_cpu_features())
    if _machine() == "aarch64":
        missing = {name: f for name, f in _ARM_FEATURES.items() if name not in detected}
        detected |= {name: _arm_has(feature) for name, feature in missing.items()}
    if detected.get("amx-int8"):
        detected["amx-int8"] = _may_use_tiles()
    return detected


def _machine() -> str:
    return {"arm64": "aarch64"}.get(platform.machine(), platform.machine())


def _arm_has(feature: _ArmFeature) -> bool:
    library = ctypes.CDLL(None)
    if sys.platform == "darwin":
        value, size, zero = ctypes.c_int(0), ctypes.c_size_t(4), ctypes.c_size_t(0)
        failed = library.sysctlbyname(
            feature.sysctl, ctypes.byref(value), ctypes.byref(size), None, zero
        )
        return not failed and value.value == 1
    getauxval = getattr(library, "getauxval", None)
    if getauxval is None:
        return False
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    return bool(getauxval(feature.auxval) & 1 << feature.bit)


@functools.cache
def _may_use_tiles() -> bool:
    """Requests permission for AMX tiles from Linux; whether this process has it."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


@functools.cache
def usable() -> tuple[InstructionSet, ...]:
    """The instruction sets of this processor, fastest first."""
    has, machine = features(), _machine()
    return tuple(
        s for s in SETS if s.machine in (None, machine) and all(has.get(f) for f in s.features)
    )


def chosen(native: bool | None) -> InstructionSet | None:
    """The instruction set of programs for this processor, or None for XLA's route.

    Args:
      native: the user's choice; None uses a set that `is_default`, if there is one.
    """
    if native is None:
        return next((s for s in usable() if s.is_default), None)
    return usable()[0] if native else None
