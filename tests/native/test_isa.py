"""Kernels compile to their instruction set's instructions, whatever this processor has."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite")

import llvmlite.binding as llvm

from tosajax.native.codegen import isa
from tosajax.native.codegen.accumulators import TileAccumulators
from tosajax.native.codegen.builder import Module
from tosajax.native.kernels import convolution, depthwise, depthwise_float, matmul
from tosajax.native.kernels.epilogue import EpilogueKey, FloatEpilogue

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
# The instruction that multiplies: in products, and in depthwise convolutions.
WANTED = {
    "amx-int8": ("tdpbssd", "vpdpbusd"),
    "avx512-vnni": ("vpdpbusd", "vpdpbusd"),
    "avx-vnni": ("vpdpbusd", "vpdpbusd"),
    "avx512": ("vpmaddwd", "vpmaddwd"),
    "avx2": ("vpmaddwd", "vpmaddwd"),
    "i8mm": ("smmla", "sdot"),
    "dotprod": ("sdot", "sdot"),
}


def assembly(module: Module, s: isa.InstructionSet) -> str:
    """The text of a module's machine code, for a processor that has the set."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    assert s.machine
    machine = llvm.Target.from_triple(TRIPLES[s.machine]).create_target_machine(
        features=",".join(f"+{name}" for name in s.features), opt=3
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    passes.getModulePassManager().run(parsed, passes)
    return machine.emit_assembly(parsed)


def has(text: str, instruction: str) -> bool:
    return any(instruction in line.split()[:2] for line in text.splitlines())


@pytest.mark.parametrize("s", [s for s in isa.SETS if s.machine], ids=lambda s: s.name)
def test_instructions(s: isa.InstructionSet):
    in_products, in_depthwise = WANTED[s.name]
    end = EpilogueKey(s, False, True, s.lanes, out="i8")
    products = [
        convolution.module_of(convolution.KernelKey(s, 4, 2, 0, True, end)),
        matmul.module_of(matmul.KernelKey(s, 4, 2, 0, 0, True, end)),
    ]
    for module in products:
        assert has(assembly(module, s), in_products)
    window = depthwise.module_of(depthwise.KernelKey(s.vector_set, 3, 3, 4, False, end))
    text = assembly(window, s.vector_set)
    assert has(text, in_depthwise)
    assert not has(text, "ldtilecfg")


@pytest.mark.parametrize("s", [s for s in isa.SETS if s.machine], ids=lambda s: s.name)
def test_instructions_of_float32(s: isa.InstructionSet):
    s = s.float32_set
    end = EpilogueKey(
        s, None, False, s.lanes, floats=FloatEpilogue(("element",), (("ADD", (0, 1)),))
    )
    window = depthwise_float.KernelKey(s, 3, 3, 4, 1, 1, end)
    for module in (
        convolution.module_of(convolution.KernelKey(s, 4, 2, 0, True, end)),
        depthwise_float.module_of(window),
    ):
        text = assembly(module, s)
        wanted = "fmla" if s.machine == "aarch64" else "vfmadd"
        assert any(line.split()[0].startswith(wanted) for line in text.splitlines() if line.strip())
        assert not any(word in text for word in ("fmaf", "ldtilecfg"))


def test_tiles_are_shaped_and_released():
    s = next(s for s in isa.SETS if s.name == "amx-int8")
    end = EpilogueKey(s, None, False, s.lanes)
    text = assembly(convolution.module_of(convolution.KernelKey(s, 20, 2, 1, False, end)), s)
    used = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert [used.count(name) for name in ("ldtilecfg", "tilerelease")] == [1, 1]
    # Two groups of pixels by two vectors of channels, and by the one vector of the last block.
    assert [used.count(name) for name in ("tilezero", "tdpbssd", "tilestored")] == [6, 6, 6]
    assert TileAccumulators.tile_rows(20) == [16, 16, 4, 4, 16, 4, 16, 16]
    assert TileAccumulators.tile_rows(7)[:2] == [7, 7]
