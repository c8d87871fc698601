"""Plans: describe the work of a sweep before it runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from tosajax.sweep import digest
from tosajax.sweep.evaluate import Strategy
from tosajax.sweep.space import Setting

_VALUES = 8  # the most values of an axis in a line
_LINES = 20  # the most lines of programs, and of failing settings


class Program(NamedTuple):
    """A program to compile.

    Args:
      settings: the number of settings that it runs.
      axes: the values of these settings, in order, by axis.
    """

    settings: int
    axes: Mapping[str, tuple[Any, ...]]

    @classmethod
    def of(cls, settings: Iterable[Setting]) -> Program:
        """The program that runs these settings."""
        axes: dict[str, dict[str, Any]] = {}
        count = 0
        for setting in settings:
            count += 1
            for name, value in setting.items():
                axes.setdefault(name, {}).setdefault(digest.canonical(value), value)
        return cls(count, {name: tuple(values.values()) for name, values in axes.items()})


@dataclasses.dataclass(frozen=True)
class Plan:
    """The work of a run.

    Args:
      settings: the number of settings in the sweep.
      finished: the number of settings whose rows are in the store.
      failed: the errors of settings that cannot run, by their index in the sweep.
      failing: these settings, by their index in the sweep.
      programs: the programs to compile; the settings of each differ only in arrays.
      strategy: the strategy of evaluation.
      batch: examples at a time.
      chunk: the most settings at a time.
      arrays_bytes: the size of the arrays of one setting that other settings do not share.
      memory_bytes: about the most live memory, without data and program.
      devices: the number of devices.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> data = np.eye(2, dtype=np.float32), np.arange(2)
      >>> configs = sweep.grid(k=[1.0, 2.0])
      >>> run = sweep.Sweep(lambda setting, x: x * setting["k"], data, configs=configs)
      >>> plan = run.plan()
      >>> plan.settings, plan.finished, len(plan.programs)
      (2, 0, 1)
    """

    settings: int
    finished: int
    failed: Mapping[int, str]
    failing: Mapping[int, Setting]
    programs: tuple[Program, ...]
    strategy: Strategy
    batch: int
    chunk: int
    arrays_bytes: int
    memory_bytes: int
    devices: int

    @property
    def compilations(self) -> int:
        return len(self.programs)

    @property
    def differences(self) -> tuple[str, ...]:
        """The axes whose values differ between programs."""
        sets = [{n: _names(values) for n, values in p.axes.items()} for p in self.programs]
        axes = dict.fromkeys(name for names in sets for name in names)
        return tuple(a for a in axes if any(s.get(a) != sets[0].get(a) for s in sets))

    def __repr__(self) -> str:
        return (
            f"Plan({self.settings} settings, {self.finished} finished, {len(self.failed)} failed, "
            f"{self.compilations} compilations, strategy {self.strategy!r})"
        )

    def __str__(self) -> str:
        remaining = self.settings - self.finished
        by = f", by {', '.join(self.differences)}" if self.differences else ""
        return "\n".join(
            [
                f"{_count(self.settings, 'setting')}: {self.finished} finished, {remaining} to run",
                f"{_count(self.compilations, 'program')} to compile{by}; strategy "
                f"{self.strategy!r} on {_count(self.devices, 'device')}, "
                f"{_count(self.batch, 'example')} and up to {_count(self.chunk, 'setting')} at a "
                "time",
                f"{self.arrays_bytes / 2**20:.2f} MiB for each setting, about "
                f"{self.memory_bytes / 2**20:.0f} MiB at a time",
                *_first_lines(self._programs()),
                *_first_lines(self._failed()),
            ]
        )

    def _programs(self) -> list[str]:
        # Programs may have the same values in different combinations.
        own = self.differences or dict.fromkeys(a for p in self.programs for a in p.axes)
        lines = []
        if shared := {a: v for p in self.programs[:1] for a, v in p.axes.items() if a not in own}:
            lines.append(f"  all programs: {_described(shared)}")
        for number, program in enumerate(self.programs, 1):
            axes = {name: program.axes[name] for name in own if name in program.axes}
            count = _count(program.settings, "setting")
            lines.append(f"  program {number}: {count}, {_described(axes) or 'no axis'}")
        return lines

    def _failed(self) -> list[str]:
        return [
            f"  setting {index} fails ({_described({k: (v,) for k, v in setting.items()})}): "
            f"{self.failed[index]}"
            for index, setting in self.failing.items()
        ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _first_lines(lines: list[str]) -> list[str]:
    more = len(lines) - _LINES
    return lines if more <= 0 else [*lines[:_LINES], f"  and {more} more"]


def _names(values: Iterable[Any]) -> frozenset[str]:
    return frozenset(map(digest.canonical, values))


def _described(axes: Mapping[str, tuple[Any, ...]]) -> str:
    """The axes with their values, such as "rounding single, double; weight_bits 8, 4"."""
    return "; ".join(f"{name} {_listed(values)}" for name, values in axes.items())


def _listed(values: tuple[Any, ...]) -> str:
    texts = [_value_text(value) for value in values]
    if len(texts) > 1 and len(set(texts)) == 1:
        return f"{len(texts)} of {texts[0]}"
    if len(texts) > _VALUES:
        return f"{', '.join(texts[: _VALUES - 2])}, ... {texts[-1]} ({len(texts)} values)"
    return ", ".join(texts)


def _value_text(value: Any) -> str:
    """A short text for a value; for an array, its type and shape."""
    match value:
        case None:
            return "as it is"
        case str():
            return value
        case np.ndarray() | jax.Array() if value.ndim:
            return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        case _:
            return json.dumps(digest.plain(value))
