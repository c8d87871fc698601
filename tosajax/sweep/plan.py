"""Plans: what a sweep will do, before it does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tosajax.sweep.evaluate import Strategy
from tosajax.sweep.subject import Variant


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run will do.

    Args:
      settings: of the sweep.
      finished: settings whose rows the store has.
      failed: settings that cannot run, with the reason.
      groups: for each program to be compiled, what is static in it, and how many settings it runs.
      strategy: of evaluation.
      batch: examples at a time.
      chunk: settings at a time, at most.
      arrays_bytes: of the arrays of one setting that others do not share.
      memory_bytes: about how much is needed at a time, data and program apart.
      devices: that run it.
    """

    settings: int
    finished: int
    failed: Mapping[int, str]
    groups: tuple[tuple[Variant, int], ...]
    strategy: Strategy
    batch: int
    chunk: int
    arrays_bytes: int
    memory_bytes: int
    devices: int

    @property
    def compilations(self) -> int:
        return len(self.groups)

    def __repr__(self) -> str:
        return (
            f"Plan({self.settings} settings, {self.finished} finished, {len(self.failed)} failed, "
            f"{self.compilations} compilations, strategy {self.strategy!r})"
        )

    def __str__(self) -> str:
        left = self.settings - self.finished
        lines = [
            f"{self.settings} settings, {self.finished} finished, {left} to run",
            f"{self.compilations} compilations, strategy {self.strategy!r} on {self.devices} "
            f"devices, {self.batch} examples and up to {self.chunk} settings at a time",
            f"{self.arrays_bytes / 2**20:.2f} MiB for each setting, about "
            f"{self.memory_bytes / 2**20:.0f} MiB at a time",
        ]
        for variant, count in self.groups:
            static = ", ".join(f"{k}={v!r}" for k, v in variant) or "everything is data"
            lines.append(f"  {count} settings: {static}")
        lines += [f"  setting {index} fails: {why}" for index, why in self.failed.items()]
        return "\n".join(lines)
