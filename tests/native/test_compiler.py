"""Machine code is compiled once, kept on disk, and fits the processor."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from tosajax.native.calls import compiler
from tosajax.native.codegen import isa
from tosajax.native.kernels import convolution
from tosajax.native.kernels.epilogue import EpilogueKey

S = isa.usable()[-1]
KIND = convolution.KernelKey(S, 1, 1, 0, False, EpilogueKey(S, None, False, S.lanes))
TEXT = str(convolution.module_of(KIND))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOSAJAX_CACHE", str(tmp_path))
    return tmp_path / "native"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    compiled = compiler._compiled

    def counted(text: str, s: isa.InstructionSet) -> bytes:
        found.append(text)
        return compiled(text, s)

    monkeypatch.setattr(compiler, "_compiled", counted)
    return found


def test_it_is_compiled_once(folder, compilations):
    for _ in range(2):
        assert compiler.engine(TEXT, S).get_function_address(KIND.name)
    assert compilations == [TEXT]
    (file,) = folder.iterdir()
    assert file.suffix == ".o"


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_compiled_again(folder, compilations, damage):
    compiler.engine(TEXT, S)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    parts = {"cut": whole[:-9], "flipped": whole[:-1] + bytes([whole[-1] ^ 1]), "empty": b""}
    file.write_bytes(parts[damage])
    compiler.engine(TEXT, S)
    assert len(compilations) == 2
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch, compilations):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOSAJAX_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert compiler.engine(TEXT, S)
    assert len(compilations) == 2


def test_another_text_has_another_file(folder, compilations):
    compiler.engine(TEXT, S)
    other = KIND._replace(pixels=2)
    compiler.engine(str(convolution.module_of(other)), S)
    assert len(list(folder.iterdir())) == len(compilations) == 2


def test_code_of_a_module_is_the_same_in_each_process():
    assert str(convolution.module_of(KIND)) == TEXT


def test_what_the_system_withholds_is_not_used(monkeypatch):
    """LLVM assumes AVX-512 or SVE by the name of the processor."""
    monkeypatch.setattr(compiler, "features", lambda: {"avx2": True, "avx512f": False})
    s = next(s for s in isa.SETS if s.features == ("avx2", "fma"))
    _, features = compiler._target(s)
    assert features == "-avx512f,+avx2,+fma"
    assert compiler._target(S) == ("", "")


@pytest.mark.parametrize("has", [True, False])
@pytest.mark.parametrize("machine", ["aarch64", "arm64"])
def test_features_that_llvm_does_not_detect_come_from_the_system(machine, has, monkeypatch):
    monkeypatch.setattr(isa.platform, "machine", lambda: machine)
    monkeypatch.setattr(isa.llvm, "get_host_cpu_features", lambda: {"neon": True})
    dotprod = isa._ARM_FEATURES["dotprod"]
    monkeypatch.setattr(isa, "_arm_has", lambda feature: has and feature is dotprod)
    isa.usable.cache_clear()
    try:
        assert [s.name for s in isa.usable()] == ["dotprod"] * has + ["portable"]
    finally:
        isa.usable.cache_clear()


@pytest.mark.parametrize("answer", [0, -1])
def test_tiles_are_used_where_the_system_permits_them(answer, monkeypatch):
    class Library:
        def syscall(self, *numbers: int) -> int:
            assert numbers == (158, 0x1023, 18)
            return answer

    amx = next(s for s in isa.SETS if s.name == "amx-int8")
    monkeypatch.setattr(isa.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(isa.sys, "platform", "linux")
    monkeypatch.setattr(isa.ctypes, "CDLL", lambda name: Library())
    has = dict.fromkeys(amx.features, True)
    monkeypatch.setattr(isa.llvm, "get_host_cpu_features", lambda: has)
    for cache in (isa.usable, isa._may_use_tiles):
        cache.cache_clear()
    try:
        assert isa.usable()[0].name == ("avx512-vnni" if answer else "amx-int8")
        assert isa.chosen(None) == isa.usable()[0]
    finally:
        for cache in (isa.usable, isa._may_use_tiles):
            cache.cache_clear()
