"""Machine code of modules: compiled by LLVM, kept in memory, and on disk for other processes."""

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
# Addresses of functions that other modules call, and the names of targets. Their machine code lives
# as long as the process: a parked worker may still be in it when Python ends.
_ADDRESSES: dict[str, int] = {}
_REGISTERED: set[str] = set()
_DIGEST = hashlib.sha256().digest_size


def register(call: Call, makers: Sequence[Callable[[Any], Module]]) -> None:
    """Registers a call as a target of XLA's FFI by its name, and compiles its modules.

    Args:
      call: the planned call.
      makers: `module_of` of each kernel, which writes the module of a `KernelKey`.
    """
    with _LOCK:
        if call.name not in _REGISTERED:
            capsule = jax.ffi.pycapsule(ctypes.c_void_p(loaded(call, makers)))
            jax.ffi.register_ffi_target(call.name, capsule, platform="cpu", api_version=1)
            _REGISTERED.add(call.name)


def loaded(call: Call, makers: Sequence[Callable[[Any], Module]]) -> int:
    """Compiles the modules of a call, and returns the address of its entry; see `register`."""
    with _LOCK:
        _publish_common()
        for planned, make in zip(call.plans, makers, strict=True):
            key = planned.key
            names = [key.name, *[key.name + TABLES] * (planned.table > 0)]
            _publish(names, functools.partial(make, key), key.isa)
        return _publish([call.name], call.module, PORTABLE)


def _publish_common() -> None:
    """Compiles the modules that all calls share: the handler, and parked workers."""
    slots = max(1, tiling.threads() - 1)
    names = threads.CLAIM, threads.TASK_BEGAN, threads.PARK
    _publish(names, functools.partial(threads.module, slots), PORTABLE)
    _publish([handler.HANDLE], handler.module, PORTABLE)


def _publish(names: Sequence[str], make: Callable[[], Module], isa: InstructionSet) -> int:
    """Compiles a module once, and publishes functions of it as symbols that other modules link to.

    Returns the address of the first function.
    """
    if names[0] not in _ADDRESSES:
        loaded_code = engine(str(make()), isa)
        for name in names:
            _ADDRESSES[name] = loaded_code.get_function_address(name)
            llvm.add_symbol(name, _ADDRESSES[name])
        loaded_code.detach()  # Else its machine code would go with it.
    return _ADDRESSES[names[0]]


def engine(text: str, isa: InstructionSet) -> Any:
    """Loads the machine code of a module, given as text, into an engine of LLVM's."""
    result = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine_for(isa))
    result.add_object_file(llvm.ObjectFileRef.from_data(_object_file(text, isa)))
    result.finalize_object()
    return result


def _object_file(text: str, isa: InstructionSet) -> bytes:
    """The object file of a module: from disk if it is there undamaged, else compiled and kept."""
    path = _cache_file(text, isa)
    with contextlib.suppress(OSError):
        stored = path.read_bytes()
        if hashlib.sha256(stored[_DIGEST:]).digest() == stored[:_DIGEST]:
            return stored[_DIGEST:]
    compiled = _compiled(text, isa)
    # A folder that cannot be written only costs the next process some time.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(hashlib.sha256(compiled).digest() + compiled)
    return compiled


def _cache_file(text: str, isa: InstructionSet) -> Path:
    """The file for a module's machine code, for this processor and this version of LLVM."""
    folder = os.environ.get(_FOLDER) or Path.home() / ".cache" / "tosajax"
    key = llvm.llvm_version_info, *_target(isa), isa.level, text
    digest = hashlib.sha256(repr(key).encode()).hexdigest()
    return Path(folder) / "native" / f"{digest}.o"


def _compiled(text: str, isa: InstructionSet) -> bytes:
    """Optimizes and compiles a module to an object file."""
    machine = _machine_for(isa)
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=isa.level)
    options.loop_vectorization = True
    # Unrolled steps of a tile would need more registers than there are.
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)


@functools.cache
def _initialize_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine_for(isa: InstructionSet) -> llvm.TargetMachine:
    """A target machine for this processor, with the features of an instruction set."""
    _initialize_llvm()
    cpu, signed = _target(isa)
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=signed, opt=isa.level, jit=True, reloc="static", codemodel="jitdefault"
    )


def _target(isa: InstructionSet) -> tuple[str, str]:
    """LLVM's name of this processor, and the features to enable (+) and to disable (-)."""
    # The portable set must not depend on the processor.
    if not isa.features:
        return "", ""
    # The system may withhold features that processors of this name have, such as SVE.
    withheld = (name for name, has in sorted(features().items()) if not has)
    signed = [*(f"-{name}" for name in withheld), *(f"+{name}" for name in isa.features)]
    return llvm.get_host_cpu_name(), ",".join(signed)
