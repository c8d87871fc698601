"""Find the bad layer: damages one layer of a network, which the comparison then names.

The network classifies 8x8 digits; ExecuTorch made its integers. Real compilers and kernels have
made each of the mistakes: a multiplier off by a factor of 2, a lost channel of weights, another
rounding, a zero point off by one. Errors grow on the way to the output, so the last layers look
worst; only the errors of each layer by itself find the damage.

    pip install -e .
    python examples/find_the_bad_layer.py [--quick]

For each damage it prints the SQNR of the output, the layer that looks worst, and the worst layer.
Exits 1 if the worst layer is not the damaged one.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import tosajax
from tosajax import Graph, Node, rewrite
from tosajax.compare import compare

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one layer for each kind of damage")
    quick = parser.parse_args().quick
    good = tosajax.load(DATA / "et_digits_cnn_a8w8" / "model.tosa")
    images = np.load(DATA / "digits_test" / "inputs_0.npy")[:64]
    missed = 0
    for kind, bad, node in _damages(good, quick):
        comparison = compare(bad, good, images, local=True)
        worst = comparison.worst
        if worst is None:
            print(f"{kind} in {node.title}: no tensor differs on these images")
            missed += 1
            continue
        apparent = min(comparison.rows, key=lambda row: row.total.sqnr)
        right = worst.tensor == node.outputs[0]
        missed += not right
        print(f"{kind} in {node.title}: the output has {comparison.outputs[-1].total.sqnr:.1f} dB")
        print(f"  looks worst: {apparent.title}")
        print(f"  is worst:    {worst.title}{'' if right else ', WRONG'}")
    print("every damaged layer was named" if not missed else f"{missed} were not named")
    return 1 if missed else 0


def _damages(graph: Graph, quick: bool) -> Iterator[tuple[str, Graph, Node]]:
    """Damaged graphs, with the kind of damage and the node."""
    rescales = [n for n in graph.nodes if n.op == "RESCALE" and _narrows(graph, n)]
    convolutions = [n for n in graph.nodes if n.op.endswith("CONV2D")]
    kinds: list[tuple[str, list[Node], Callable[[Graph, Node], Graph]]] = [
        ("half the multiplier", rescales, _half_the_multiplier),
        ("a lost channel", convolutions, _without_a_channel),
        ("other rounding", rescales, _rounded_twice),
        ("a zero point off by one", rescales, _other_zero_point),
    ]
    for at, (kind, nodes, damage) in enumerate(kinds):
        for node in [nodes[at % len(nodes)]] if quick else nodes:
            yield kind, damage(graph, node), node


def _narrows(graph: Graph, node: Node) -> bool:
    """Whether a RESCALE scales sums of products to int8; these factors are not powers of two."""
    made_by = {name: n.op for n in graph.nodes for name in n.outputs}
    return made_by[node.inputs[0]].endswith("CONV2D")


def _half_the_multiplier(graph: Graph, node: Node) -> Graph:
    return _changed(graph, node, 1, lambda multiplier: multiplier // 2)


def _without_a_channel(graph: Graph, node: Node) -> Graph:
    def lose(weight: np.ndarray) -> np.ndarray:
        channel = (..., 0, slice(None)) if node.op == "DEPTHWISE_CONV2D" else 0
        weight[channel] = 0
        return weight

    return _changed(graph, node, 1, lose)


def _rounded_twice(graph: Graph, node: Node) -> Graph:
    return rewrite.rounding(graph, "double", where=f"^{node.outputs[0]}$")


def _other_zero_point(graph: Graph, node: Node) -> Graph:
    return _changed(graph, node, 4, lambda zero_point: zero_point + 1)


def _changed(
    graph: Graph, node: Node, position: int, change: Callable[[np.ndarray], np.ndarray]
) -> Graph:
    """The graph with another constant for one input of a node."""
    old = graph.tensors[node.inputs[position]]
    assert old.values is not None
    new = dataclasses.replace(
        old, name=f"{node.outputs[0]}/damaged", values=change(old.values.copy())
    )
    inputs = (*node.inputs[:position], new.name, *node.inputs[position + 1 :])
    damaged = dataclasses.replace(node, inputs=inputs)
    return dataclasses.replace(
        graph,
        tensors={**graph.tensors, new.name: new},
        nodes=(Node("CONST", (), (new.name,)), *(damaged if n is node else n for n in graph.nodes)),
    )


if __name__ == "__main__":
    sys.exit(main())
