"""The targets of tosajax on two cores, by kind of processor."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks import machine, ours
from benchmarks.results import Measured, Results


class Status(enum.Enum):
    """How a target stands."""

    PASS = "pass"
    MISS = "miss"
    NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Target:
    """A number of the results, and its limit.

    Args:
      name: of the number.
      find: the number of some results, None if it was not measured.
      limit: the least, or with `at_most` the most.
      unit: of the number.
    """

    name: str
    find: Callable[[Any], float | None]
    limit: float
    unit: str = "x"
    at_most: bool = False

    def judge(self, results: Any) -> Verdict:
        found = self.find(results)
        if found is None:
            return Verdict(self, None, Status.NOT_MEASURED)
        reached = found <= self.limit if self.at_most else found >= self.limit
        return Verdict(self, found, Status.PASS if reached else Status.MISS)

    @property
    def wanted(self) -> str:
        return f"at {'most' if self.at_most else 'least'} {self.limit:g} {self.unit}"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A target, and the number found."""

    target: Target
    found: float | None
    status: Status

    def __str__(self) -> str:
        found = "" if self.found is None else f"{self.found:.2f} {self.target.unit}, "
        return f"{self.status.value:<13}{self.target.name}: {found}wanted {self.target.wanted}"


def judge(results: Results) -> list[Verdict]:
    """Every target of the processor, in the order of the table."""
    return [target.judge(results) for target in of_kind(machine.kind(results["machine"]))]


def exit_status(verdicts: list[Verdict]) -> int:
    """1 when a target is missed; else 2 when one was not measured; else 0."""
    found = {verdict.status for verdict in verdicts}
    if Status.MISS in found:
        return 1
    return 2 if Status.NOT_MEASURED in found else 0


def _faster(work: str, against: str, limit: float, *, best: bool = False) -> Target:
    """The speed relative to a contender; `best` takes our fastest setting."""

    def find(results: Results) -> float | None:
        found = _contenders(results, work)
        if against not in found:
            return None
        own = [name for name in ours.SETTINGS if name in found] if best else [ours.FIRST]
        return found[against]["ratio"][1] / min(found[name]["ratio"][1] for name in own)

    return Target(f"{work} against {against}", find, limit)


def _contenders(results: Results, work: str) -> dict[str, Measured]:
    return results["works"][work]["contenders"] if work in results["works"] else {}


def _growth(results: Results) -> float | None:
    """Time of a convolution among 65 over that of one among 17."""
    deep, flat = (_contenders(results, f"residual-{n}-b8").get(ours.FIRST) for n in (65, 17))
    if deep is None or flat is None:
        return None
    return (deep["seconds"] / 65) / (flat["seconds"] / 17)


def _compile_seconds(results: Results) -> float | None:
    found = _contenders(results, "residual-65-b8").get(ours.FIRST)
    return None if found is None else found["compile"]


def _compilations(results: Results) -> float | None:
    found = results["sweep"]
    return found["compilations_more"] if found else None


class Limits(NamedTuple):
    """What depends on the kind of processor: speeds relative to LiteRT with 2 threads, if not said.

    Args:
      resnet: ResNet-8, 32 images.
      matmul: int8 MATMUL relative to float32 JAX.
      arm: ResNet-8 of 32 images relative to Arm's model.
      compile: seconds for 65 convolutions.
    """

    resnet: float
    matmul: float
    arm: float
    compile: float


KINDS = {
    "AVX2": Limits(resnet=1.2, matmul=1.5, arm=100, compile=1.5),
    "VNNI": Limits(resnet=1.2, matmul=3.4, arm=250, compile=1.2),
    "AMX": Limits(resnet=1.0, matmul=8, arm=250, compile=1.2),
}
_LITERT = "LiteRT 2 threads"


def of_kind(kind: str) -> tuple[Target, ...]:
    """The targets of a kind of processor."""
    limits = KINDS[kind]
    deep = "a convolution of residual-65 against one of residual-17"
    return (
        _faster("resnet8-b1", _LITERT, 0.8),
        _faster("resnet8-b32", "JAX f32", 2.2),
        _faster("resnet8-b32", "IREE", 2.2),
        _faster("resnet8-b32", "Arm", limits.arm),
        _faster("resnet8-b32", _LITERT, limits.resnet),
        _faster("mobilenet-b1", _LITERT, 0.8),
        _faster("mobilenet-b32", "JAX f32", 1.4),
        _faster("mobilenet-b32", "IREE", 1.4),
        _faster("mobilenet-b32", "Arm", 45),
        _faster("mobilenet-b32", _LITERT, 1.0),
        _faster("resnet8-b256", _LITERT, 1.2, best=True),
        _faster("mobilenet-b256", _LITERT, 1.0, best=True),
        _faster("matmul-1024", "JAX f32", limits.matmul),
        _faster("matmul-1024", "onnxruntime", 0.9),
        _faster("resnet8-f32-b32", "JAX f32", 0.91),
        _faster("mobilenet-f32-b32", "JAX f32", 0.91),
        _faster("mobilenet-f32-b32", "JAX f32, XLA depthwise", 3),
        Target(deep, _growth, 1.3, at_most=True),
        Target(
            "residual-65-b8, compiled", _compile_seconds, limits.compile, unit="s", at_most=True
        ),
        Target("one more setting of a sweep", _compilations, 0, unit="compilations", at_most=True),
    )
