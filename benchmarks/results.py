"""The results of a run, as its file of JSON holds them."""

from __future__ import annotations

from typing import TypedDict


class Timed(TypedDict):
    """The times of a contender: medians, and ratios to those of the first one."""

    seconds: float
    ratio: list[float]  # lower quartile, median, upper quartile
    cpu_ratio: float
    rounds: int


class Measured(Timed):
    """A contender at one work."""

    compile: float  # seconds to compile and run once
    agreement: str


class Measurement(TypedDict):
    """One work."""

    group: str
    batch: int | None
    macs: int
    bytes: int
    is_exact: bool
    contenders: dict[str, Measured]
    left_out: dict[str, str]  # the reason by contender


class Machine(TypedDict):
    """Processor, cores, its extensions, memory, and versions; nothing that names the machine."""

    cpu: str
    cores: int
    flags: list[str]
    memory_gib: float
    system: str
    python: str
    backend: str
    packages: dict[str, str]


class Start(TypedDict):
    """The start of a process to its first result."""

    seconds: float
    peak_mib: float | None


class OtherSetting(TypedDict):
    """The first call with one setting, and a call with another."""

    compilations_first: int
    compilations_more: int
    seconds_first: float
    seconds_more: float
    changed: bool


class Judged(TypedDict):
    """A run beside its targets, for a page."""

    date: str
    processor: str
    verdicts: dict[str, str]  # by target


class Results(TypedDict):
    """Everything that a run measures."""

    date: str
    quick: bool
    interrupted: bool
    machine: Machine
    missing: list[str]
    limits: dict[str, float]  # best rates by kind; empty before they are measured
    works: dict[str, Measurement]
    left_out: dict[str, str]  # the reason by work
    sweep: OtherSetting | None
    starts: dict[str, dict[str, Start]]
