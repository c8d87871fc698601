"""The machine of the measurements, and its best rates."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import operators, ours, timing
from benchmarks.results import Machine

# Extensions that decide which kernels libraries take.
_FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
_PACKAGES = (
    "tosajax",
    "jax",
    "jaxlib",
    "numpy",
    "tosa-tools",
    "iree-base-compiler",
    "ai-edge-litert",
    "llvmlite",
    "onnxruntime",
)
_COPIED = 1 << 28  # bytes
_CALLS = 9


def describe() -> Machine:
    """Processor, cores, its extensions, memory, and versions; nothing that names the machine."""
    facts = _cpu_facts()
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    return {
        "cpu": facts.get("model name", platform.machine()),
        "cores": cores(),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "backend": jax.default_backend(),
        "packages": {name: v for name in _PACKAGES if (v := version(name)) is not None},
    }


def offer_all_cores() -> None:
    """Makes every core a device of JAX, for settings that share a batch among them.

    Call it before any other use of JAX.
    """
    jax.config.update("jax_num_cpu_devices", cores())


def cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def kind(description: Machine) -> str:
    """The processor's kind, by its fastest products of int8: "AMX", "VNNI" or "AVX2"."""
    flags = set(description["flags"])
    if "amx_int8" in flags:
        return "AMX"
    return "VNNI" if flags & {"avx512_vnni", "avx_vnni"} else "AVX2"


def version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def peak_mib() -> float | None:
    """The peak memory of this process alone; Linux only."""
    path = Path("/proc/self/status")
    if not path.exists():
        return None
    lines = path.read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields["VmHWM"].split()[0]) / 1024


def limits() -> dict[str, float]:
    """Best rates measured here: operations of int8 and float32 dots, bytes copied; by second."""
    work = operators.matmul("limit", 1024, 1024, 1024)
    return {
        "int8": 2 * work.macs / _best(ours.prepare(work)),
        "float32": 2 * work.macs / _best(_float_dot(1024)),
        "copy": 2 * _COPIED / _best(_copy(_COPIED)),
    }


def _float_dot(size: int):
    a, b = (jnp.asarray(np.random.default_rng(n).random((size, size), np.float32)) for n in (0, 1))
    dot = jax.jit(jnp.matmul)
    return lambda: (jax.block_until_ready(dot(a, b)),)


def _copy(size: int):
    source, target = np.zeros(size, np.uint8), np.ones(size, np.uint8)
    return lambda: (np.copyto(target, source),)


def _best(run) -> float:
    """Seconds of the fastest call, after one that does not count."""
    run()
    return min(timing.seconds_of(run, 1) for _ in range(_CALLS))


def _cpu_facts() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
