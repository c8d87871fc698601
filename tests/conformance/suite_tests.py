"""Generated conformance tests: their files and their subjects."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tosajax.dtypes import DType

_SELECTION = Path(__file__).with_name("selection.txt")
# Parts of a test's name for the operator's mode, not its operands: NaN and resize modes, rounding,
# RESCALE's scale32, per_channel, input_unsigned and output_unsigned, the branch taken.
_VARIANT = re.compile("mode[A-Z]|rm[A-Z]|round(True|False)|(sc|pc|iu|ou|cond)[01]")
# Elements of the inputs times elements of the outputs: enough to see faults, little enough to run.
_WELL_SIZED = 10_000**2


@dataclasses.dataclass(frozen=True)
class SuiteTest:
    """One test: a folder with a description, a graph, and the inputs."""

    folder: Path

    @property
    def name(self) -> str:
        """The test with its group of kernels, unique in a suite: "conv2d_1x1/<test>"."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        return json.loads((self.folder / "desc.json").read_text())

    @property
    def graph_file(self) -> Path:
        return self.folder / self.description["tosa_file"]

    @property
    def operator(self) -> str:
        return self.description["test_details"]["operator"]

    @property
    def error_if(self) -> str | None:
        """The rule that the graph breaks; None for a legal graph."""
        if not self.description["expected_failure"]:
            return None
        return self.description["test_details"]["ERRORIF"]

    @property
    def kind(self) -> str:
        return "positive" if self.error_if is None else "ERROR_IF"

    @property
    def input_types(self) -> tuple[str, ...]:
        """Element types of inputs and constants, in the order of the operator."""
        return tuple(t["data_type"] for t in self._inputs)

    @property
    def output_types(self) -> tuple[str, ...]:
        return tuple(self.description["test_details"]["output_types"])

    @property
    def accumulators(self) -> tuple[str, ...]:
        return tuple(self.description["test_details"].get("accumulator_types", ()))

    @property
    def generators(self) -> tuple[str, ...]:
        """How the inputs were made: DOT_PRODUCT, SPECIAL, FULL_RANGE and so on."""
        return tuple(sorted({t["generator"] for t in self._inputs} - {"FIXED_DATA"}))

    @property
    def modes(self) -> tuple[str, ...]:
        """How outputs are judged: EXACT, ULP, DOT_PRODUCT and so on."""
        return tuple(sorted({t["mode"] for t in self.compliance["tensors"].values()}))

    @property
    def compliance(self) -> dict[str, Any]:
        """How each output is judged, by name; nothing for an illegal graph."""
        return self.description["meta"].get("compliance", {"tensors": {}})

    @property
    def profiles(self) -> tuple[str, ...]:
        """Profiles that have the test; one of them is enough."""
        return tuple(self.description["test_requirements"].get("profiles_supported", ()))

    @property
    def extensions(self) -> tuple[str, ...]:
        """Extensions that the test needs."""
        return tuple(self.description["test_requirements"].get("extensions_required", ()))

    @property
    def work(self) -> int:
        """Grows with the time of the test: elements of the inputs times those of the outputs."""
        outputs = self.description["test_details"]["output_shapes"]
        return sum(_size(t["shape"]) for t in self._inputs) * sum(map(_size, outputs))

    @property
    def stratum(self) -> tuple[object, ...]:
        """Common to legal tests of which the selection holds one."""
        variant = tuple(part for part in self.folder.name.split("_") if _VARIANT.fullmatch(part))
        dynamic = "tosa-ext-dynamic" in self.extensions
        types = self.input_types[:2], self.output_types, self.accumulators
        return self.operator, *types, self.modes, self.generators, variant, dynamic

    def inputs(self, types: Sequence[DType]) -> list[np.ndarray]:
        """The inputs in the storage of these element types; files hold some as raw bytes."""
        files = self.description["ifm_file"]
        return [
            np.load(self.folder / file, allow_pickle=False).view(dtype.storage)
            for file, dtype in zip(files, types, strict=True)
        ]

    @property
    def _inputs(self) -> list[dict[str, Any]]:
        tensors = self.description["meta"].get("data_gen", {"tensors": {}})["tensors"]
        return sorted(tensors.values(), key=lambda t: t.get("input_pos", 0))


def find(suite: Path, names: Collection[str] | None = None) -> list[SuiteTest]:
    """The tests of a suite by name; also of whole suites of the official generator.

    Raises:
      FileNotFoundError: the suite lacks one of `names`.
    """
    found = {test.name: test for test in map(SuiteTest, _folders(suite))}
    if lost := sorted(set(names or ()) - found.keys()):
        raise FileNotFoundError(f"{suite} lacks {len(lost)} tests, {lost[0]} among them")
    return [found[name] for name in sorted(found if names is None else names)]


def select(tests: Iterable[SuiteTest]) -> list[SuiteTest]:
    """All ERROR_IF tests, and from each stratum of the others the test of the best size."""
    strata: dict[tuple[object, ...], list[SuiteTest]] = {}
    chosen = []
    for test in tests:
        if test.error_if is not None:
            chosen.append(test)
        else:
            strata.setdefault(test.stratum, []).append(test)
    chosen += (min(stratum, key=lambda t: (_misfit(t), t.name)) for stratum in strata.values())
    return sorted(chosen, key=lambda test: test.name)


def selection() -> list[str]:
    """The names of the stratified selection."""
    return _SELECTION.read_text().split()


def _misfit(test: SuiteTest) -> float:
    return abs(math.log(test.work / _WELL_SIZED))


def _folders(suite: Path) -> Iterator[Path]:
    for pattern in ("operators/*/*/*/desc.json", "[!.]*/operators/*/*/*/desc.json"):
        yield from (description.parent for description in suite.glob(pattern))


def _size(shape: Sequence[int]) -> int:
    return max(math.prod(shape), 1)
