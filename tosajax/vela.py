"""Vela, Arm's compiler for Ethos-U: the cycles and the memory that it estimates of a graph."""

from __future__ import annotations

import csv
import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tosajax.graph import Graph
from tosajax.io import programs, save
from tosajax.report import UnsupportedError
from tosajax.spec.rates import rates_of

PROGRAM = programs.Program("vela", "ethos-u-vela", "vela")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What Vela estimates of a graph on an NPU, in its default system.

    Args:
      npu: the name of the NPU.
      cycles: those of one run, with those that wait for memory.
      npu_cycles: those without.
      sram_bytes: the most bytes of on-chip memory at once.
      other_bytes: those of other memory, weights included.

    Example:
      >>> from tosajax import vela
      >>> vela.Estimate("ethos-u85-256", 1_200_000, 900_000, 384 * 1024, 200_000).cycles
      1200000
    """

    npu: str
    cycles: int
    npu_cycles: int
    sram_bytes: int
    other_bytes: int

    def __str__(self) -> str:
        sram = f"{self.sram_bytes / 1024:,.1f} KiB of SRAM"
        return f"{self.cycles:,} cycles, {self.npu_cycles:,} without memory, {sram}"


def is_installed() -> bool:
    """Whether `estimate` can run."""
    try:
        return bool(PROGRAM.path)
    except ImportError:
        return False


def estimate(graph: Graph, npu: str) -> Estimate:
    """What Vela estimates of an integer graph on an NPU.

    Args:
      graph: the graph, as from `QModel.freeze`.
      npu: the name of the NPU, such as "ethos-u85-256".

    Raises:
      ImportError: Vela is not installed.
      ValueError: there is no such NPU.
      UnsupportedError: Vela does not compile the graph, with its message; or it is of a version
        with another summary.
    """
    rates_of(npu)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(graph, folder / "graph.tosa")
        command = [PROGRAM.path, "graph.tosa", "--accelerator-config", npu, "--output-dir", "."]
        failure = programs.run(command, folder, (folder / "graph.tosa").stat().st_size)
        found = list(folder.glob("graph_summary_*.csv"))
        if failure is not None or not found:
            reason = "no summary" if failure is None else failure.message
            raise UnsupportedError(f"Vela, for {npu}: {reason}")
        try:
            (row,) = csv.DictReader(found[0].read_text().splitlines())
            return _estimate(npu, row)
        except (KeyError, ValueError) as error:
            raise UnsupportedError(f"Vela, for {npu}: its summary has no {error}") from None


def _estimate(npu: str, row: Mapping[str, str]) -> Estimate:
    """Sizes are in KiB there."""
    others = ("dram", "on_chip_flash", "off_chip_flash")
    return Estimate(
        npu,
        int(row["cycles_total"]),
        int(row["cycles_npu"]),
        round(1024 * float(row["sram_memory_used"])),
        round(1024 * sum(float(row[f"{memory}_memory_used"]) for memory in others)),
    )
