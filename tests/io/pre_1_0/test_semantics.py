"""Upgraded graphs compute what 0.80 says, bit for bit: in tosajax and in Arm's reference model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import old_semantics
import pytest
from old_graphs import CASES, legal, rescale, storage, values_of
from old_semantics import wrapped

import tosajax
from tosajax import Graph, Source, reference_model
from tosajax.io.pre_1_0.model import OldGraph
from tosajax.io.pre_1_0.upgrade import upgrade

_FLOATS = ("FP16", "BF16", "FP32")
_NOT_FUNCTIONS = ("CUSTOM", "COND_IF", "WHILE_LOOP", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE")
_CASES = {
    f"{op}-{'-'.join(row)}": legal(op, row)
    for op, row in CASES
    if not {*row} & {*_FLOATS, "SHAPE"} and op not in (*_NOT_FUNCTIONS, "DIM")
}
# Where the result is defined, and ends of it: the second operand of some has its own limits.
_DEFINED: dict[str, tuple[tuple[int, int], ...]] = {
    "ADD": ((-(1 << 30), 1 << 30), (-(1 << 30), (1 << 30) - 1)),
    "SUB": ((-(1 << 30), 1 << 30), (-(1 << 30), 1 << 30)),
    "INTDIV": ((-(1 << 31) + 1, (1 << 31) - 1), (1, 7)),
    "ABS": ((-(1 << 31) + 1, (1 << 31) - 1),),
    "REDUCE_SUM": ((-(1 << 31) // 3 + 1, (1 << 31) // 3 - 1),),
    "MUL-INT32-INT32": ((-(1 << 31), (1 << 31) - 1), (-31, 31)),
    "NEGATE-INT32": ((-(1 << 31) + 1, (1 << 31) - 1),),
    "RESCALE-INT32": ((-(1 << 30), (1 << 30) - 1),),
    "RESCALE-INT48": ((-(1 << 32), (1 << 32) - 1),),
}
_SHIFTED = ("ARITHMETIC_RIGHT_SHIFT", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT")


def inputs_of(name: str, graph: OldGraph) -> list[np.ndarray]:
    """Values with the ends of the types, or of the numbers whose results are defined."""
    tensors = [graph.tensors[name] for name in graph.inputs]
    values = [values_of(t.dtype, t.shape or (), i) for i, t in enumerate(tensors)]
    defined = [limits for start, limits in _DEFINED.items() if name.startswith(start)]
    for position, (low, high) in enumerate(defined[0] if defined else ()):
        values[position] = _between(low, high, values[position])
    if name.startswith(_SHIFTED):
        values[1] = _between(0, 8 * values[1].itemsize - 1, values[1])
    return values


def _between(low: int, high: int, like: np.ndarray) -> np.ndarray:
    flat = np.random.default_rng(3).integers(low, high, like.size, endpoint=True)
    flat[:3] = [low, high, max(low, min(high, -1))][: like.size]
    return flat.reshape(like.shape).astype(like.dtype)


def merged(graphs: Mapping[str, OldGraph]) -> OldGraph:
    """One graph of several, whose names go before those of their tensors."""
    tensors, nodes, inputs, outputs = {}, [], [], []
    for prefix, graph in graphs.items():

        def named(names: Sequence[str], prefix: str = prefix) -> tuple[str, ...]:
            return tuple(f"{prefix}/{name}" for name in names)

        for name, tensor in zip(named([*graph.tensors]), graph.tensors.values(), strict=True):
            tensors[name] = dataclasses.replace(tensor, name=name)
        nodes += [
            dataclasses.replace(n, inputs=named(n.inputs), outputs=named(n.outputs))
            for n in graph.nodes
        ]
        inputs += named(graph.inputs)
        outputs += named(graph.outputs)
    return OldGraph(tuple(inputs), tuple(outputs), tensors, tuple(nodes))


def run(old: OldGraph, inputs: Sequence[np.ndarray], engine: str) -> dict[str, np.ndarray]:
    """The outputs of the upgraded graph by name."""
    graph = upgrade(old, Source())
    tosajax.validate(graph).raise_errors()
    given = [x.view(f"i{x.itemsize}") if x.dtype.kind == "u" else x for x in inputs]
    if engine == "tosajax":
        return tosajax_outputs(graph, given)
    if not reference_model.is_installed():
        pytest.skip("tosa-tools is not installed")
    return reference_model.run(graph, *given)


def tosajax_outputs(graph: Graph, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    found: Any = tosajax.compile(graph)(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    return dict(zip(graph.outputs, map(np.asarray, outputs), strict=True))


def assert_same(found: np.ndarray, wanted: np.ndarray, dtype: str) -> None:
    assert None not in wanted.ravel(), "the result is not defined"
    bits = [int(v) if dtype == "BOOL" else wrapped(int(v), dtype) for v in wanted.ravel()]
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found.ravel().astype(np.int64), bits)


@pytest.fixture(scope="module", params=["tosajax", "Arm's model"])
def results(request) -> dict[str, np.ndarray]:
    inputs = [x for name, graph in _CASES.items() for x in inputs_of(name, graph)]
    return run(merged(_CASES), inputs, request.param)


@pytest.mark.parametrize("name", _CASES)
def test_operator(results, name):
    old = _CASES[name]
    wanted = old_semantics.evaluate(old, *inputs_of(name, old))
    for output, values in zip(old.outputs, wanted, strict=True):
        assert_same(results[f"{name}/{output}"], values, old.tensors[output].dtype)


# RESCALE, which 1.0 restricts.


class Rescaled(NamedTuple):
    """A RESCALE of 0.80: "U" marks unsigned ends."""

    source: str
    target: str
    input_zp: int
    output_zp: int
    scale: tuple[int, int, bool, bool]  # multiplier, shift, scale32, double_round

    def __str__(self) -> str:
        ends = f"{self.source}({self.input_zp})-{self.target}({self.output_zp})"
        return f"{ends}-{'-'.join(map(str, self.scale))}"

    def graph(self) -> OldGraph:
        multiplier, shift, scale32, double_round = self.scale
        attributes = {
            "input_zp": self.input_zp,
            "output_zp": self.output_zp,
            "multiplier": (multiplier,),
            "shift": (shift,),
            "scale32": scale32,
            "double_round": double_round,
        }
        return rescale(self.source, self.target, self.values().shape, **attributes)

    def values(self) -> np.ndarray:
        """All values of 8 bits; of more, ends and random ones. 0 where a result is not defined."""
        low, high = old_semantics.limits(self.source)
        if high - low < 256:
            return np.arange(low, high + 1).astype(storage(self.source))
        ends = [low, low + 1, low + 127, low + 128, low + 255, low + 256, -1, 0, 1, high - 255]
        ends += [high // 2, high // 2 + 1, high - 1, high]
        generator = np.random.default_rng(7)
        numbers = np.asarray(
            [n for n in ends if low <= n <= high]
            + generator.integers(low, high, 20, endpoint=True).tolist()
            + generator.integers(max(low, -600), min(high, 600), 20).tolist()
        )
        return numbers.astype(storage(self.source))


_ZERO_POINTS = {"INT8": (-128, 3, 127), "UINT8": (0, 128, 255), "UINT16": (0, 32768)}
_SCALES = {
    8: ((1 << 30, 30, True, False), (3 << 29, 33, True, True), (29000, 12, False, False)),
    16: ((1 << 30, 31, True, False), (3 << 29, 40, True, True), (16384, 14, False, False)),
    32: ((1 << 30, 32, True, False), (3 << 29, 50, True, True), (16384, 14, False, False)),
    48: ((16384, 30, False, False), (32767, 33, False, False)),
}
# Unsigned 16 bits on one side, and INT32 on the other, is illegal in 0.80.
_ILLEGAL = (("UINT16", "INT32"), ("INT32", "UINT16"))
_SOURCES = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "INT48")
_TARGETS = ("INT8", "UINT8", "INT16", "UINT16", "INT32")
RESCALED = [
    Rescaled(source, target, input_zp, output_zp, scale)
    for source in _SOURCES
    for target in _TARGETS
    if (source, target) not in _ILLEGAL
    for input_zp in _ZERO_POINTS.get(source, (0,))
    for output_zp in _ZERO_POINTS.get(target, (0,))
    for scale in _SCALES[old_semantics.bits_of(source)]
]


@pytest.fixture(scope="module")
def rescaled() -> dict[str, tuple[OldGraph, np.ndarray, np.ndarray]]:
    """The graph of each RESCALE, its input, and what 0.80 says of it."""
    found = {}
    for one in RESCALED:
        graph, values = one.graph(), one.values()
        (wanted,) = old_semantics.evaluate(graph, values)
        undefined = np.asarray([v is None for v in wanted])
        assert undefined.mean() < 0.3, one
        values[undefined] = 0
        wanted[undefined] = old_semantics.evaluate(graph, values)[0][undefined]
        found[str(one)] = graph, values, wanted
    return found


@pytest.fixture(scope="module", params=["tosajax", "Arm's model"])
def results_of_rescale(request, rescaled) -> dict[str, np.ndarray]:
    graphs = {name: graph for name, (graph, _, _) in rescaled.items()}
    return run(merged(graphs), [values for _, values, _ in rescaled.values()], request.param)


@pytest.mark.parametrize("one", RESCALED, ids=str)
def test_rescale(results_of_rescale, rescaled, one):
    graph, _, wanted = rescaled[str(one)]
    (output,) = graph.outputs
    found = results_of_rescale[f"{one}/{output}"]
    assert_same(found, wanted, one.target)
