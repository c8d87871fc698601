"""The targets of tosajax, set on a 2-core processor with AVX-512 and AMX."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable

from benchmarks import ours
from benchmarks.results import Measured, Results


class Status(enum.Enum):
    """How a target stands."""

    GOAL = "goal"
    PASS = "pass"
    MISS = "miss"
    NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Target:
    """A number of the results, and its limit.

    Args:
      name: of the number.
      find: the number, None if it was not measured.
      limit: the least, or with `at_most` the most.
      goal: a better value, which is not required.
      unit: of the number.
    """

    name: str
    find: Callable[[Results], float | None]
    limit: float
    goal: float | None = None
    unit: str = "x"
    at_most: bool = False

    def judge(self, results: Results) -> Verdict:
        found = self.find(results)
        if found is None:
            return Verdict(self, None, Status.NOT_MEASURED)
        if not self._reaches(found, self.limit):
            return Verdict(self, found, Status.MISS)
        reached = self.goal is not None and self._reaches(found, self.goal)
        return Verdict(self, found, Status.GOAL if reached else Status.PASS)

    @property
    def wanted(self) -> str:
        goal = "" if self.goal is None else f", goal {self.goal:g} {self.unit}"
        return f"at {'most' if self.at_most else 'least'} {self.limit:g} {self.unit}{goal}"

    def _reaches(self, found: float, wanted: float) -> bool:
        return found <= wanted if self.at_most else found >= wanted


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
    """Every target, in the order of the table."""
    return [target.judge(results) for target in TARGETS]


def exit_status(verdicts: list[Verdict]) -> int:
    """1 when a target is missed; else 2 when one was not measured; else 0."""
    found = {verdict.status for verdict in verdicts}
    if Status.MISS in found:
        return 1
    return 2 if Status.NOT_MEASURED in found else 0


def _faster(
    work: str, against: str, limit: float, goal: float | None = None, *, best: bool = False
) -> Target:
    """The speed relative to a contender; `best` takes our fastest setting."""

    def find(results: Results) -> float | None:
        found = _contenders(results, work)
        if against not in found:
            return None
        own = [name for name in ours.SETTINGS if name in found] if best else [ours.FIRST]
        return found[against]["ratio"][1] / min(found[name]["ratio"][1] for name in own)

    return Target(f"{work} against {against}", find, limit, goal)


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


TARGETS = (
    _faster("resnet8-b32", "JAX f32", 2.2),
    _faster("resnet8-b32", "IREE", 2.2),
    _faster("resnet8-b32", "Arm", 90),
    _faster("resnet8-b32", "LiteRT 2 threads", 0.65),
    _faster("mobilenet-b32", "JAX f32", 1.4),
    _faster("mobilenet-b32", "IREE", 1.4),
    _faster("mobilenet-b32", "Arm", 45),
    _faster("mobilenet-b32", "LiteRT 2 threads", 0.5),
    _faster("resnet8-b256", "LiteRT 2 threads", 1.0, 1.2, best=True),
    _faster("mobilenet-b256", "LiteRT 2 threads", 0.75, 1.0, best=True),
    _faster("matmul-1024", "JAX f32", 5),
    _faster("matmul-1024", "onnxruntime", 0.9),
    _faster("resnet8-f32-b32", "JAX f32", 0.91),
    _faster("mobilenet-f32-b32", "JAX f32", 0.91),
    _faster("mobilenet-f32-b32", "JAX f32, XLA depthwise", 3),
    Target("a convolution of residual-65 against one of residual-17", _growth, 1.3, at_most=True),
    Target("residual-65-b8, compiled", _compile_seconds, 1.5, unit="s", at_most=True),
    Target("one more setting of a sweep", _compilations, 0, unit="compilations", at_most=True),
)
