"""All contenders, and the comparison of their outputs with those of tosajax."""

from __future__ import annotations

import enum
import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import float_jax, ours, plain
from benchmarks.peers import arm, iree, litert, ort
from benchmarks.work import Disagreement, Run, Work


class Kind(enum.Enum):
    """The arithmetic of a contender, which decides how its outputs are compared."""

    EXACT = "the integers of the specification"
    QUANTIZED = "int8, with other rounding"
    FLOAT = "float32 or bfloat16"


class Contender(NamedTuple):
    """One program, or one way to write the work.

    Args:
      prepare: makes the call that is timed; raises NotImplementedError if it cannot.
      kind: of its arithmetic.
      module: must be importable.
    """

    name: str
    prepare: Callable[[Work], Run]
    kind: Kind
    module: str = "jax"

    @property
    def is_installed(self) -> bool:
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:  # its package is missing
            return False


def everyone() -> list[Contender]:
    """tosajax first, in each of its settings."""
    grouped = functools.partial(float_jax.prepare, grouped=True)
    half = functools.partial(float_jax.prepare, dtype=jnp.bfloat16)
    one, two = (functools.partial(litert.prepare, threads=n) for n in (1, 2))
    return [
        *(Contender(name, prepare, Kind.EXACT) for name, prepare in ours.contenders().items()),
        Contender("JAX f32", float_jax.prepare, Kind.FLOAT),
        *([] if jax.default_backend() == "cpu" else [Contender("JAX bf16", half, Kind.FLOAT)]),
        Contender("JAX f32, XLA depthwise", grouped, Kind.FLOAT),
        Contender("plain", plain.prepare, Kind.EXACT),
        Contender("Arm", arm.prepare, Kind.EXACT, "tosa_reference_model"),
        Contender("IREE", iree.prepare, Kind.EXACT, "iree.compiler"),
        Contender("LiteRT 1 thread", one, Kind.QUANTIZED, "ai_edge_litert"),
        Contender("LiteRT 2 threads", two, Kind.QUANTIZED, "ai_edge_litert"),
        Contender("onnxruntime", ort.prepare, Kind.QUANTIZED, "onnxruntime"),
    ]


def agreement(
    work: Work, contender: Contender, outputs: Sequence, expected: Sequence[np.ndarray]
) -> str:
    """The agreement of outputs with those of tosajax, in words.

    Raises:
      Disagreement: an exact contender has other integers.
    """
    results = [
        _same_size(work, contender, np.asarray(y), want)
        for y, want in zip(outputs, expected, strict=True)
    ]
    if contender.kind is Kind.FLOAT:
        return _closeness(results, float_jax.reals(work, expected))
    if not work.is_exact:
        return _closeness(results, expected)
    if contender.kind is Kind.QUANTIZED:
        return _steps(results, expected)
    for result, want in zip(results, expected, strict=True):
        _check_equal(work, contender, result, want)
    return "same bits"


def _same_size(
    work: Work, contender: Contender, result: np.ndarray, want: np.ndarray
) -> np.ndarray:
    """An output in our shape; examples that run alone have one more axis, of length 1."""
    if result.size != want.size:
        found = f"shape {result.shape}, {ours.FIRST} {want.shape}"
        raise Disagreement(f"{work.name}: {contender.name} has an output of {found}")
    return result.reshape(want.shape)


def _check_equal(work: Work, contender: Contender, result: np.ndarray, want: np.ndarray) -> None:
    wrong = np.argwhere(result != want)
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        raise Disagreement(
            f"{work.name}: {contender.name} and {ours.FIRST} differ in {len(wrong)} of "
            f"{want.size} elements, first at {at}: {result[at]} and {want[at]}"
        )


def _steps(results: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """The agreement of integers that may be a few steps off."""
    pairs = zip(results, expected, strict=True)
    off = np.concatenate([(r.ravel().astype(int) - w.ravel().astype(int)) for r, w in pairs])
    return f"{(off == 0).mean():.0%} equal, at most {np.abs(off).max()} off"


def _closeness(results: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """Root mean square of the error, relative to that of the expected values."""
    wide = [(r.astype(float), w.astype(float)) for r, w in zip(results, expected, strict=True)]
    error = sum(float(((r - w) ** 2).sum()) for r, w in wide)
    power = sum(float((w**2).sum()) for _, w in wide)
    return f"error {(error / power) ** 0.5 if power else error:.1e}"
