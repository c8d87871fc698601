"""`tosajax explain`: shows how each operator is computed."""

from __future__ import annotations

import argparse

import tosajax
from tosajax.cli._common import add_batch, add_wide, load, screen_width

HELP = "show how each operator is computed"
EXAMPLES = ("explain model.tosa --batch 32",)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_batch(parser)
    add_wide(parser)


def run(arguments: argparse.Namespace) -> int:
    from tosajax.runtime.batching import carries_batch

    graph = load(arguments)
    fits = graph.is_dynamic or any(carries_batch(t) for t in graph.input_tensors)
    executable = tosajax.compile(graph, batch=arguments.batch if fits else None)
    for tensor in (*graph.input_tensors, *graph.output_tensors):
        if quantization := graph.quantization.get(tensor.name):
            print(f"{tensor.name}: {tensor}, {quantization}")
    print(executable.explain().cost.table(screen_width(arguments)))
    return 0
