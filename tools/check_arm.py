"""Runs native kernels for ARM under QEMU's emulation, beside their definitions.

    python tools/check_arm.py          # each case of tests/native on each of ARM's sets; minutes

Needs qemu-aarch64 and a C compiler for ARM (Debian: qemu-user, gcc-aarch64-linux-gnu,
libc6-dev-arm64-cross).
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("support", "native")]

import native_sums  # noqa: E402
import test_addition  # noqa: E402
import test_kernels  # noqa: E402
import test_matmul  # noqa: E402
import test_pool  # noqa: E402

from tosajax.native import call, handler, helpers, isa  # noqa: E402
from tosajax.native.call import Prepared  # noqa: E402

_COMPILER, _EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
_SYSROOT = "/usr/aarch64-linux-gnu"
SETS = [s for s in isa.SETS if s.machine in (None, "aarch64")]


class Case(NamedTuple):
    """A kernel, and what it is to compute."""

    name: str
    kernel: Prepared
    wanted: np.ndarray


def convolutions(s: isa.InstructionSet) -> Iterator[Case]:
    for name, case in test_kernels.CASES.items():
        for extreme in (False, True):
            o = test_kernels.drawn(case, 7, extreme=extreme)
            yield Case(name, test_kernels.prepared(s, case, o), o.sums(case))
        e = test_kernels.epilogue_of(o.bias.size, 5, double=True, per_channel=True)
        if case.wide:
            e = test_kernels.epilogue_of_wide(o.bias.size, 5, "i16")
        wanted = test_kernels.scaled(o.sums(case), e)
        yield Case(f"{name}, scaled", test_kernels.prepared(s, case, o, e), wanted)


def products(s: isa.InstructionSet) -> Iterator[Case]:
    for name, sizes in test_matmul.CASES.items():
        for seed, zero_points in enumerate(test_matmul.ZERO_POINTS):
            inputs = test_matmul.drawn(sizes, seed, extreme=seed % 2 > 0)
            zps = test_matmul.bytes_of(*zero_points)
            wanted = test_matmul.product(inputs, zps)
            yield Case(f"{name}, product", call.multiply(s, inputs, zps), wanted)
        wide = test_matmul.drawn(sizes, 3, extreme=True, dtype=np.int16)
        zeros = test_matmul.ZEROS
        wanted = test_matmul.product(wide, zeros)
        yield Case(f"{name}, product of int16", call.multiply(s, wide, zeros), wanted)


def additions(s: isa.InstructionSet) -> Iterator[Case]:
    pairs = test_addition.EVERY_PAIR
    for seed in range(6):
        scales, e = native_sums.drawn(seed)
        wanted = native_sums.added("SUB", pairs, scales, e)
        yield Case(f"difference {seed}", call.add(s, "SUB", pairs, scales, e), wanted)
        scales, e = test_addition.twice(seed, (True, False), "both")
        wanted = native_sums.added("ADD", pairs, scales, e)
        yield Case(f"sum {seed}, scaled twice", call.add(s, "ADD", pairs, scales, e), wanted)


def terms(s: isa.InstructionSet) -> Iterator[Case]:
    for name, seed in itertools.product(test_kernels.SUMS, range(3)):
        for op, is_right in (("ADD", False), ("SUB", True)):
            kernel, wanted = test_kernels.joined(s, name, seed, op, is_right=is_right)
            yield Case(f"{name}, a term of {op} {seed}", kernel, wanted)


def pools(s: isa.InstructionSet) -> Iterator[Case]:
    for name, op in itertools.product(test_pool.CASES, test_pool.OPERATORS):
        case = test_pool.CASES[name]
        for seed, dtype in enumerate((np.int8, np.int16)):
            x, zps = test_pool.drawn(case, dtype, seed), test_pool.zero_points(dtype, seed + 5)
            wanted = test_pool.pooled(op, x, case.window, test_pool.numbers(zps))
            yield Case(f"{op}, {name}", test_pool.prepared(s, op, case, x, zps), wanted)


class Machine:
    """Compiles kernels for a set, and runs them.

    Args:
      s: the instruction set.
      folder: for files.
    """

    def __init__(self, s: isa.InstructionSet, folder: Path) -> None:
        self.folder = folder
        self.target = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(
            features=",".join(f"+{name}" for name in s.features), opt=3, reloc="pic"
        )
        self.helpers = self._object("helpers", str(helpers.module(1)))
        self.known: set[str] = set()

    def _object(self, name: str, text: str) -> Path:
        module = llvm.parse_assembly(text)
        passes = llvm.create_pass_builder(self.target, llvm.create_pipeline_tuning_options(3))
        passes.getModulePassManager().run(module, passes)
        file = self.folder / f"{name}.o"
        file.write_bytes(self.target.emit_object(module))
        return file

    def call(self, number: int, kernel: Prepared) -> str:
        """Writes what a call needs; its line for the program."""
        x = np.asarray(kernel.operands[0])
        kind, fields, workspace = kernel.plan(x.shape)
        library = self.folder / f"{kind.name}.so"
        if kind.name not in self.known:
            made = self._object(kind.name, str(kernel.module_of(kind)))
            subprocess.run([_COMPILER, "-shared", "-o", library, made, self.helpers], check=True)
            self.known.add(kind.name)
        plan = np.array(fields, np.int64)
        plan[handler.THREADS] = 1
        operands = [*map(np.ascontiguousarray, kernel.operands), plan]
        shape = x.shape[0], *kernel.out(x.shape)
        sizes = [o.nbytes for o in operands]
        sizes += [int(np.prod(shape)) * np.dtype(kernel.dtype).itemsize, workspace]
        head = np.array([len(operands), 2, *sizes], np.int64)
        given = self.folder / f"{number}.in"
        given.write_bytes(head.tobytes() + b"".join(o.tobytes() for o in operands))
        return f"{library} {kind.name} {given} {self.folder / f'{number}.out'}"

    def results(self, program: Path, cases: list[Case]) -> Iterator[np.ndarray]:
        lines = [self.call(number, case.kernel) for number, case in enumerate(cases)]
        emulated = [_EMULATOR, "-cpu", "max", "-L", _SYSROOT, program]
        subprocess.run(emulated, input="\n".join(lines), text=True, check=True)
        for number, case in enumerate(cases):
            found = (self.folder / f"{number}.out").read_bytes()
            yield np.frombuffer(found, case.kernel.dtype).reshape(case.wanted.shape)


def main() -> int:
    for name in (_COMPILER, _EMULATOR):
        if shutil.which(name) is None:
            raise SystemExit(f"no {name}: {__doc__}")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "calls"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([_COMPILER, "-O1", "-o", program, source, "-ldl"], check=True)
        for s in SETS:
            cases = [*convolutions(s), *terms(s), *products(s), *additions(s), *pools(s)]
            within = Path(folder) / s.name
            within.mkdir()
            found = Machine(s, within).results(program, cases)
            wrong = [
                case.name
                for case, result in zip(cases, found, strict=True)
                if not np.array_equal(result, case.wanted)
            ]
            failed += len(wrong)
            print(f"{s.name}: {len(cases) - len(wrong)} of {len(cases)}", *wrong, sep="\n  ")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
