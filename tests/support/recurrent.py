"""Float graphs with loops: a GRU as a WHILE_LOOP, the same unrolled, and a small cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tosajax import Builder, DType, Graph, Tensor

INT32, FP32 = DType.INT32, DType.FP32
GATES = ("r", "z", "n")
# From the builder, x [1, 1, I] and h [1, 1, H] to the next h.
Cell = Callable[[Builder, Tensor, Tensor], Tensor]


def product(b: Builder, x: Tensor, weight: Tensor | np.ndarray, name: str, label: str) -> Tensor:
    """MATMUL of FP32."""
    if not isinstance(weight, Tensor):
        weight = b.const(weight, FP32, name=label)
    zero = b.const(np.zeros(1), FP32)
    return b.op("MATMUL", x, weight, zero, zero, dtype=FP32, name=name)


def times(b: Builder, x: Tensor, y: Tensor, name: str) -> Tensor:
    return b.op("MUL", x, y, b.const([0], DType.INT8), name=name)


def gru_cell(inputs: int, units: int, prefix: str = "") -> Cell:
    """A GRU of random weights; its tensors have the prefix in front of their names."""
    rng = np.random.default_rng(3)
    shapes = {"W": (1, inputs, units), "U": (1, units, units), "b": (1, 1, units)}
    values = {
        f"{kind}{gate}": rng.normal(size=shape) / np.sqrt(shape[1])
        for gate in GATES
        for kind, shape in shapes.items()
    }

    def cell(b: Builder, x: Tensor, h: Tensor) -> Tensor:
        def sums(gate: str) -> tuple[Tensor, Tensor]:
            kind, name = prefix + gate, f"{prefix}of_x_{gate}"
            wx = product(b, x, values[f"W{gate}"], f"{kind}/of_x", f"{prefix}W{gate}")
            bias = b.const(0.2 * values[f"b{gate}"], FP32, name=f"{prefix}b{gate}")
            wx = b.op("ADD", wx, bias, name=name)
            return wx, product(b, h, values[f"U{gate}"], f"{prefix}of_h_{gate}", f"{prefix}U{gate}")

        gates = {}
        for gate in ("r", "z"):
            total = b.op("ADD", *sums(gate), name=f"{prefix}sum_{gate}")
            gates[gate] = b.op("SIGMOID", total, name=f"{prefix}{gate}")
        of_x, of_h = sums("n")
        reset = times(b, gates["r"], of_h, f"{prefix}reset")
        new = b.op("TANH", b.op("ADD", of_x, reset, name=f"{prefix}sum_n"), name=f"{prefix}n")
        old = b.op("SUB", h, new, name=f"{prefix}old")
        return b.op("ADD", new, times(b, gates["z"], old, f"{prefix}kept"), name=f"{prefix}next")

    return cell


def tanh_cell(units: int) -> Cell:
    """tanh(h W + x): the state is looked up in a table."""
    weight = np.random.default_rng(5).normal(size=(1, units, units)) / np.sqrt(units)

    def cell(b: Builder, x: Tensor, h: Tensor) -> Tensor:
        total = b.op("ADD", product(b, h, weight, "of_h", "W"), x, name="sum")
        return b.op("TANH", total, name="next")

    return cell


def counting(
    name: str, states: Sequence[tuple[str, DType, tuple[int, ...]]], limit: int | str
) -> Graph:
    """The condition that the first state is below a limit: a number, or another state."""
    b = Builder(name)
    known = {n: b.input(n, dtype, shape) for n, dtype, shape in states}
    top = known[limit] if isinstance(limit, str) else b.const([[limit]], INT32)
    return b.graph([b.op("GREATER", top, known[states[0][0]])])


def one_more(b: Builder, i: Tensor) -> Tensor:
    return b.op("ADD", i, b.const([[1]], INT32))


def loop(
    b: Builder, condition: Graph, body: Graph, operands: Sequence[Tensor], names: Sequence[str]
) -> tuple[Tensor, ...]:
    """A WHILE_LOOP."""
    graphs: dict[str, Any] = {"cond_graph": b.subgraph(condition), "body_graph": b.subgraph(body)}
    return b.ops("WHILE_LOOP", *operands, names=names, **graphs)


def recurrence(
    cell: Cell, turns: int, inputs: int, units: int, *, limit: str | None = None
) -> Graph:
    """The final state of a cell, turn by turn, over the rows of "xs" [1, turns, I], from "h0".

    Args:
      cell: one turn.
      turns: the rows.
      inputs: of each row.
      units: of the state.
      limit: the name of another input of the graph, the number of turns; else all rows.
    """
    states = [("i", INT32, (1, 1)), ("h", FP32, (1, 1, units)), ("xs", FP32, (1, turns, inputs))]
    states += [("top", INT32, (1, 1))] if limit else []
    b = Builder("step")
    i, h, xs, *top = (b.input(*state) for state in states)
    x = b.op("GATHER", xs, i, name="x")
    body = b.graph([one_more(b, i), cell(b, x, h), xs, *top])
    b = Builder()
    given = [b.input("xs", *states[2][1:]), b.input("h0", *states[1][1:])]
    given += [b.input(limit, INT32, (1, 1))] if limit else []
    xs, h, *top = given
    more = counting("more", states, "top" if limit else turns)
    first = b.const([[0]], INT32, name="first")
    names = [f"{name}_end" for name, *_ in states]
    _, h, *_ = loop(b, more, body, [first, h, xs, *top], names)
    return b.graph([h])


def unrolled(cell: Callable[[str], Cell], turns: int, inputs: int, units: int) -> Graph:
    """The same without a loop; all states are outputs. Names of turn 3 begin with "3/"."""
    b = Builder()
    xs, h = b.input("xs", FP32, (1, turns, inputs)), b.input("h0", FP32, (1, 1, units))
    found = []
    for turn in range(turns):
        x = b.op("GATHER", xs, b.const([[turn]], INT32), name=f"{turn}/x")
        h = cell(f"{turn}/")(b, x, h)
        found.append(h)
    return b.graph(found)


def drawn(seed: int, *shape: int, low: float = -1.0, high: float = 1.0) -> Any:
    """float32 of a range."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)
