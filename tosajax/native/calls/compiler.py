"""Machine code of modules: in memory for this process, and on disk for the next ones."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import llvmlite.binding as llvm

from tosajax.atomic import replacing
from tosajax.native import tiling
from tosajax.native.calls import handler, threads
from tosajax.native.calls.schedule import Call
from tosajax.native.codegen.abi import TABLES
from tosajax.native.codegen.builder import Module
from tosajax.native.codegen.isa import PORTABLE, InstructionSet, features

_FOLDER = "TOSAJAX_CACHE"
_LOCK = threading.RLock()
# Addresses of functions that others call, and the names of targets. XLA and helpers hold on to
# their machine code, which lives as long as the process: a thread may still be in it when Python
# ends.
_ADDRESSES: dict[str, int] = {}
_REGISTERED: set[str] = set()
_DIGEST = hashlib.sha256().digest_size


def register(call: Call, makers: Sequence[Callable[[Any], Module]]) -> None:
    """Makes a call a target of XLA's by its name, and compiles what it needs.

    Args:
      call: of some kernels.
      makers: for each of them, what makes the module of its kind.
    """
    with _LOCK:
        if call.name not in _REGISTERED:
            capsule = jax.ffi.pycapsule(ctypes.c_void_p(loaded(call, makers)))
            jax.ffi.register_ffi_target(call.name, capsule, platform="cpu", api_version=1)
            _REGISTERED.add(call.name)


def loaded(call: Call, makers: Sequence[Callable[[Any], Module]]) -> int:
    """The address of the handler of a call; see `register`."""
    with _LOCK:
        _publish_common()
        for planned, make in zip(call.plans, makers, strict=True):
            kind = planned.kind
            names = [kind.name, *[kind.name + TABLES] * (planned.table > 0)]
            _publish(names, functools.partial(make, kind), kind.isa)
        return _publish([call.name], call.module, PORTABLE)


def _publish_common() -> None:
    """Makes what all calls have in common known to them."""
    slots = max(1, tiling.threads() - 1)
    names = threads.CLAIM, threads.TASK_BEGAN, threads.PARK
    _publish(names, functools.partial(threads.module, slots), PORTABLE)
    _publish([handler.HANDLE], handler.module, PORTABLE)


def _publish(names: Sequence[str], make: Callable[[], Module], isa: InstructionSet) -> int:
    """Makes functions of a module known to others, and returns the address of the first."""
    if names[0] not in _ADDRESSES:
        made = engine(str(make()), isa)
        for name in names:
            _ADDRESSES[name] = made.get_function_address(name)
            llvm.add_symbol(name, _ADDRESSES[name])
        made.detach()
    return _ADDRESSES[names[0]]


def engine(text: str, isa: InstructionSet) -> Any:
    """A module's text as machine code in memory."""
    made = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine_for(isa))
    made.add_object_file(llvm.ObjectFileRef.from_data(_object_file(text, isa)))
    made.finalize_object()
    return made


def _object_file(text: str, isa: InstructionSet) -> bytes:
    """An object file, from the disk if it is there and whole."""
    place = _cache_file(text, isa)
    with contextlib.suppress(OSError):
        kept = place.read_bytes()
        if hashlib.sha256(kept[_DIGEST:]).digest() == kept[:_DIGEST]:
            return kept[_DIGEST:]
    made = _compiled(text, isa)
    # A folder that cannot be written costs the next process some time.
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as file:
            file.write(hashlib.sha256(made).digest() + made)
    return made


def _cache_file(text: str, isa: InstructionSet) -> Path:
    """The file of a module's machine code, for this processor and this LLVM."""
    folder = os.environ.get(_FOLDER) or Path.home() / ".cache" / "tosajax"
    about = llvm.llvm_version_info, *_target(isa), isa.level, text
    digest = hashlib.sha256(repr(about).encode()).hexdigest()
    return Path(folder) / "native" / f"{digest}.o"


def _compiled(text: str, isa: InstructionSet) -> bytes:
    machine = _machine_for(isa)
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=isa.level)
    options.loop_vectorization = True
    # A loop over the steps of a tile would hold more than there are registers.
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)


@functools.cache
def _initialize_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine_for(isa: InstructionSet) -> llvm.TargetMachine:
    """A compiler for this processor, with the features that an instruction set has."""
    _initialize_llvm()
    cpu, signed = _target(isa)
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=signed, opt=isa.level, jit=True, reloc="static", codemodel="jitdefault"
    )


def _target(isa: InstructionSet) -> tuple[str, str]:
    """The name of this processor for LLVM, and features."""
    # The portable set stands for a processor of which nothing is known.
    if not isa.features:
        return "", ""
    # A system may withhold what processors of this name have, such as SVE.
    withheld = (name for name, has in sorted(features().items()) if not has)
    signed = [*(f"-{name}" for name in withheld), *(f"+{name}" for name in isa.features)]
    return llvm.get_host_cpu_name(), ",".join(signed)
