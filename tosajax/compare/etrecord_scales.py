"""Reads a graph's scales from ExecuTorch's ETRecord, inner tensors included."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence

from tosajax.compare import etrecord
from tosajax.compare.etrecord import Program, Value
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Quantization, Tensor
from tosajax.graph.locations import Trace, tensors_by_traces
from tosajax.graph.zero_points import of_one_scale, unsigned_tensors, zero_points
from tosajax.io.stored import Stored

# The types with scales, by their ScalarType numbers in exported programs.
_TYPES = {1: Stored(DType.INT8, is_unsigned=True), 2: Stored(DType.INT8), 3: Stored(DType.INT16)}
_SMALL = {stored.dtype for stored in _TYPES.values()}


def scales_of_etrecord(path: str | os.PathLike[str], graph: Graph) -> dict[str, Quantization]:
    """Reads the scales of a graph's integers from the ETRecord of its ExecuTorch program.

    The exported programs in the ETRecord quantize each tensor. Tensors are matched by the nodes of
    PyTorch in the graph's locations, which ExecuTorch writes with
    `dump_debug_info(ArmCompileSpec.DebugMode.TOSA)`; outputs of nodes without such a location, such
    as TABLE, by the tensors that they are computed from; inputs and outputs also by their order. A
    `.pt2` file that `torch.export.save` wrote from the quantized program is read in the same way.

    Args:
      path: the path of the ETRecord.
      graph: the graph of one of the program's delegates.

    Returns:
      The quantization of the INT8 and INT16 tensors that were found, by the graph's names.

    Raises:
      FormatError: the file is not an ETRecord, or damaged.
      ValueError: no tensor was found, several programs have different scales, or a zero point
        differs from the graph's.
      OSError: the file cannot be read.

    Example:
      >>> import tosajax
      >>> from tosajax.compare import scales_of_etrecord
      >>> graph = tosajax.load("model.tosa")  # doctest: +SKIP
      >>> scales = scales_of_etrecord("etrecord.bin", graph)  # doctest: +SKIP
    """
    programs = etrecord.programs(path)
    traces = {t for p in programs for v in p.values.values() for t in v.traces}
    named = tensors_by_traces(graph, traces)
    matches = [_Match(graph, program, named).run() for program in programs]
    best = max(matches, key=len)
    if not best:
        raise ValueError(f"{os.fspath(path)}: {_why_none(programs, named)}")
    if any(len(other) == len(best) and other != best for other in matches):
        raise ValueError(
            f"{os.fspath(path)}: several programs have the names of {len(best)} tensors, with "
            "different scales: give them one by one"
        )
    _check(os.fspath(path), graph, best)
    count = sum(map(_has_scale, graph.tensors.values()))
    if len(best) < count:
        warnings.warn(
            f"{os.fspath(path)} has scales of {len(best)} of the graph's {count} INT8 and INT16 "
            f"tensors{_location_hint(named)}",
            stacklevel=2,
        )
    return best


def _has_scale(tensor: Tensor) -> bool:
    return tensor.dtype in _SMALL and tensor.values is None


def _location_hint(named: Mapping[Trace, list[str]]) -> str:
    return "" if named else (
        ": its locations do not name nodes of PyTorch, which ExecuTorch writes with "
        "dump_debug_info(ArmCompileSpec.DebugMode.TOSA)"
    )  # fmt: skip


def _why_none(programs: Sequence[Program], named: Mapping[Trace, list[str]]) -> str:
    count = sum(len(program.values) for program in programs)
    if not count:
        return "its programs quantize no tensor by one constant scale"
    return f"none of {count} quantized tensors was found in the graph{_location_hint(named)}"


def _check(path: str, graph: Graph, scales: Mapping[str, Quantization]) -> None:
    """Rejects the scales of another network, or of another calibration, by their zero points."""
    for name, zero_point in zero_points(graph).items():
        if name not in scales:
            continue
        (other,) = scales[name].zero_point
        if (other - zero_point) % (1 << graph.tensors[name].dtype.bits):  # of the same bits
            raise ValueError(
                f"{path}: {name!r} has zero point {other} there, and {zero_point} in the graph: "
                "they are of different networks, or calibrations"
            )


class _Match:
    """Matches the tensors of a graph with the quantized tensors (values) of a program.

    Tensors with only operators such as RESHAPE between them share a scale. They form a group, which
    is named by one of its tensors.
    """

    def __init__(self, graph: Graph, program: Program, named: Mapping[Trace, list[str]]) -> None:
        self._graph, self._program, self._named = graph, program, named
        self._unsigned = unsigned_tensors(graph)
        self._group = of_one_scale(graph)
        self._members: dict[str, list[str]] = {}
        for name in self._group:
            self._members.setdefault(self._group[name], []).append(name)
        self._found: dict[str, Value] = {}  # group -> value
        self._groups: dict[str, str] = {}  # name of value -> group
        self._refused: set[str] = set()  # groups that match values of different scales

    def run(self) -> dict[str, Quantization]:
        for value in self._program.values.values():
            self._add(value, self._by_name(value))
        self._add_ends(self._program.inputs, self._graph.inputs)
        self._add_ends(self._program.outputs, self._graph.outputs)
        self._add_by_sources()
        return {
            name: own
            for group, value in self._found.items()
            if group not in self._refused
            for name in self._members[group]
            if (own := self._quantization(self._graph.tensors[name], value)) is not None
        }

    def _by_name(self, value: Value) -> str | None:
        """The tensor for a value, by name or trace: the last one with a type and size that fit."""
        own = (name for name in value.names if name in self._graph.tensors)
        traced = (name for trace in value.traces for name in reversed(self._named.get(trace, ())))
        return next((name for name in (*own, *traced) if self._fits(name, value)), None)

    def _add_ends(self, values: Sequence[str | None], tensors: Sequence[str]) -> None:
        """Matches the program's inputs or outputs with the graph's by order, if counts agree."""
        if len(values) != len(tensors):
            return
        for key, name in zip(values, tensors, strict=True):
            value = None if key is None else self._program.values.get(key)
            if value is not None and key not in self._groups and self._fits(name, value):
                self._add(value, name)

    def _add_by_sources(self) -> None:
        """Matches a value that is the only one with its sources, in the program and the graph."""
        named = {name for names in self._named.values() for name in names}
        free: dict[frozenset[str], list[str]] = {}
        for group, sources in _sources(self._graph, self._group).items():
            if group not in self._found and group not in named:
                free.setdefault(sources, []).append(group)
        wanted: dict[frozenset[str] | None, list[Value]] = {}
        for value in self._program.values.values():
            if value.name not in self._groups:
                wanted.setdefault(value.sources, []).append(value)
        for sources, values in wanted.items():
            if not sources or not sources <= self._groups.keys():
                continue
            groups = free.get(frozenset(self._groups[name] for name in sources), [])
            fitting = [n for g in groups for n in self._members[g] if self._fits(n, values[0])]
            if len(values) == len(groups) == 1 and fitting:
                self._add(values[0], fitting[0])
            elif len(sources) == 1:
                self._add_moved(values, next(iter(sources)))

    def _add_moved(self, values: Sequence[Value], source: str) -> None:
        """Puts rearranged copies of a value into its group; the graph may have no such tensors."""
        for value in values:
            other = self._program.values[source]
            if value.is_moved and value[1:4] == other[1:4]:
                self._groups[value.name] = self._groups[source]

    def _add(self, value: Value, name: str | None) -> None:
        if name is None:
            return
        group = self._group[name]
        other = self._found.setdefault(group, value)
        if (other.scale, other.zero_point) != (value.scale, value.zero_point):
            self._refused.add(group)
        self._groups[value.name] = group

    def _fits(self, name: str, value: Value) -> bool:
        tensor = self._graph.tensors[name]
        size = None if tensor.shape is None or DYNAMIC in tensor.shape else math.prod(tensor.shape)
        if value.size is not None and size not in (None, value.size):
            return False
        return self._quantization(tensor, value) is not None

    def _quantization(self, tensor: Tensor, value: Value) -> Quantization | None:
        stored = _TYPES.get(value.type)
        if stored is None or not _has_scale(tensor):
            return None
        unsigned = tensor.name in self._unsigned
        return stored.quantization(tensor, (value.scale,), (value.zero_point,), unsigned=unsigned)


def _sources(graph: Graph, groups: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """For each group of INT8 or INT16 tensors, the nearest such groups it is computed from."""
    sources: dict[str, frozenset[str]] = {}
    before: dict[str, frozenset[str]] = {}  # tensor -> its group, or the nearest groups before it
    for name, tensor in graph.tensors.items():
        before[name] = frozenset([groups[name]] if _has_scale(tensor) else ())
    for node in graph.ordered_nodes():
        own = frozenset().union(*(before[name] for name in node.inputs if name in before))
        for name in node.outputs:
            if not before[name]:
                before[name] = own
            elif groups[name] not in own:
                sources[groups[name]] = own
    return sources
