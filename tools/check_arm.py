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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("support", "native")]

import native_sums  # noqa: E402
import test_addition  # noqa: E402
import test_chain  # noqa: E402
import test_elementwise_kernels  # noqa: E402
import test_kernels  # noqa: E402
import test_matmul  # noqa: E402
import test_pool  # noqa: E402

from tosajax.native import call  # noqa: E402
from tosajax.native.calls import handler, schedule, threads  # noqa: E402
from tosajax.native.calls.schedule import KernelCall  # noqa: E402
from tosajax.native.codegen import isa  # noqa: E402
from tosajax.native.codegen.builder import Module  # noqa: E402

_COMPILER, _EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
_SYSROOT = "/usr/aarch64-linux-gnu"
SETS = [s for s in isa.SETS if s.machine in (None, "aarch64")]


class Case(NamedTuple):
    """Kernels of a call, and what the last one is to compute."""

    name: str
    kernels: Sequence[KernelCall]
    wanted: np.ndarray


def convolutions(s: isa.InstructionSet) -> Iterator[Case]:
    for name, case in test_kernels.CASES.items():
        for extreme in (False, True):
            o = test_kernels.drawn(case, 7, extreme=extreme)
            yield Case(name, [test_kernels.prepared(s, case, o)], o.sums(case))
        e = test_kernels.epilogue_of(o.bias.size, 5, double=True, per_channel=True)
        if case.is_int16:
            e = test_kernels.epilogue_of_int16(o.bias.size, 5, "i16")
        wanted = test_kernels.scaled(o.sums(case), e)
        yield Case(f"{name}, scaled", [test_kernels.prepared(s, case, o, e)], wanted)


def products(s: isa.InstructionSet) -> Iterator[Case]:
    for name, sizes in test_matmul.CASES.items():
        for seed, zero_points in enumerate(test_matmul.ZERO_POINTS):
            inputs = test_matmul.drawn(sizes, seed, extreme=seed % 2 > 0)
            zps = test_matmul.bytes_of(*zero_points)
            wanted = test_matmul.product(inputs, zps)
            yield Case(f"{name}, product", [call.multiply(s, inputs, zps)], wanted)
        wide = test_matmul.drawn(sizes, 3, extreme=True, dtype=np.int16)
        zeros = test_matmul.ZEROS
        wanted = test_matmul.product(wide, zeros)
        yield Case(f"{name}, product of int16", [call.multiply(s, wide, zeros)], wanted)


def additions(s: isa.InstructionSet) -> Iterator[Case]:
    pairs = test_addition.EVERY_PAIR
    for seed in range(6):
        scales, e = native_sums.drawn(seed)
        wanted = native_sums.added("SUB", pairs, scales, e)
        yield Case(f"difference {seed}", [call.add(s, "SUB", pairs, scales, e)], wanted)
        scales, e = test_addition.twice(seed, (True, False), "both")
        wanted = native_sums.added("ADD", pairs, scales, e)
        yield Case(f"sum {seed}, scaled twice", [call.add(s, "ADD", pairs, scales, e)], wanted)


def terms(s: isa.InstructionSet) -> Iterator[Case]:
    for name, seed in itertools.product(test_kernels.SUMS, range(3)):
        for op, is_right in (("ADD", False), ("SUB", True)):
            kernel, wanted = test_kernels.joined(s, name, seed, op, is_right=is_right)
            yield Case(f"{name}, a term of {op} {seed}", [kernel], wanted)


def pools(s: isa.InstructionSet) -> Iterator[Case]:
    for name, op in itertools.product(test_pool.CASES, test_pool.OPERATORS):
        case = test_pool.CASES[name]
        for seed, dtype in enumerate((np.int8, np.int16)):
            x, zps = test_pool.drawn(case, dtype, seed), test_pool.zero_points(dtype, seed + 5)
            wanted = test_pool.pooled(op, x, case.window, test_pool.numbers(zps))
            yield Case(f"{op}, {name}", [test_pool.prepared(s, op, case, x, zps)], wanted)


def operators(s: isa.InstructionSet) -> Iterator[Case]:
    """Elementwise operators of integers, and several passes over rows."""
    for name, case in test_elementwise_kernels.CASES.items():
        if "float" not in (*case.elements, case.result):
            arrays = case.arrays(test_elementwise_kernels.SHAPE)
            yield Case(name, [case.kernel(s, arrays)], case.wanted(arrays))
    inputs = test_elementwise_kernels.chain_inputs(2, 45)
    kernel = test_elementwise_kernels.chain(s, *inputs)
    yield Case("several passes", [kernel], test_elementwise_kernels.chained(*inputs))


def chains(s: isa.InstructionSet) -> Iterator[Case]:
    for images in (1, 8):
        wanted = test_chain.one_by_one(test_chain.residual(images))[-1]
        yield Case(f"a chain of {images} images", test_chain.residual(images, s), wanted)


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
        self.common = [
            self._object("helpers", threads.module(1)),
            self._object("handler", handler.module()),
        ]

    def _object(self, name: str, module: Module) -> Path:
        file = self.folder / f"{name}.o"
        if not file.exists():
            parsed = llvm.parse_assembly(str(module))
            passes = llvm.create_pass_builder(self.target, llvm.create_pipeline_tuning_options(3))
            passes.getModulePassManager().run(parsed, passes)
            file.write_bytes(self.target.emit_object(parsed))
        return file

    def call(self, number: int, kernels: Sequence[KernelCall]) -> str:
        """Writes what a call needs; its line for the program."""
        links, arrays, _ = call.link_kernels(kernels)
        last, images = len(kernels) - 1, arrays[0].shape[0]
        planned = schedule.plan_call(links, [last], images, operands=len(arrays), waits=False)
        planned.words[handler.HEAD.index("threads")] = 1
        library = self.folder / f"{planned.name}.so"
        if not library.exists():
            modules = {planned.name: planned.module()}
            for kernel, of in zip(kernels, planned.plans, strict=True):
                modules[of.key.name] = kernel.module_of(of.key)
            objects = [self._object(name, module) for name, module in modules.items()]
            command = [_COMPILER, "-shared", "-o", library, *objects, *self.common]
            subprocess.run(command, check=True)
        operands = [*map(np.ascontiguousarray, arrays), planned.words]
        made = kernels[last].placeholder(last)
        sizes = [o.nbytes for o in operands]
        sizes += [int(np.prod(made.shape)) * made.dtype.itemsize, planned.workspace]
        head = np.array([len(operands), 2, *sizes], np.int64)
        given = self.folder / f"{number}.in"
        given.write_bytes(head.tobytes() + b"".join(o.tobytes() for o in operands))
        return f"{library} {planned.name} {given} {self.folder / f'{number}.out'}"

    def results(self, program: Path, cases: list[Case]) -> Iterator[np.ndarray]:
        lines = [self.call(number, case.kernels) for number, case in enumerate(cases)]
        emulated = [_EMULATOR, "-cpu", "max", "-L", _SYSROOT, program]
        subprocess.run(emulated, input="\n".join(lines), text=True, check=True)
        for number, case in enumerate(cases):
            found = (self.folder / f"{number}.out").read_bytes()
            yield np.frombuffer(found, case.kernels[-1].dtype).reshape(case.wanted.shape)


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
            makers = convolutions, terms, products, additions, pools, operators, chains
            cases = [case for maker in makers for case in maker(s)]
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
