"""`tosajax info`: prints the summary of a graph."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import tosajax
from tosajax.cli._common import STDIN, add_open_batch, add_scales, bytes_in_words, load

if TYPE_CHECKING:
    from tosajax.graph import Graph, Tensor


HELP = "show inputs, outputs, operators and sizes of a graph"
EXAMPLES = ("info model.tosa", "info model.tosa --target ethos-u85-256")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_open_batch(parser)
    add_scales(parser)
    parser.add_argument(
        "--target", metavar="NPU", help="also estimate the cycles of an NPU (ethos-u85-256)"
    )


def run(arguments: argparse.Namespace) -> int:
    from tosajax.graph import declared_variables
    from tosajax.graph.costs import cycles
    from tosajax.spec.rates import rates_of

    rates = None if arguments.target is None else rates_of(arguments.target)
    loaded = load(arguments)
    graph = tosajax.bind(loaded, batch=arguments.batch)
    report = tosajax.validate(graph)
    rows = [
        ("file", _file(arguments.model)),
        ("format", f"{loaded.source.format} {loaded.source.version}".strip()),
        ("producer", loaded.source.producer or "not stated"),
    ]
    rows += [("rewritten", str(rewrite)) for rewrite in loaded.source.rewrites]
    rows += [("input", _described(t, loaded)) for t in loaded.input_tensors]
    rows += [("output", _described(t, loaded)) for t in loaded.output_tensors]
    variables = declared_variables(loaded)
    rows += [
        ("variable", f"{name}: {t}")
        for name, declarations in variables.items()
        for t in declarations
    ]
    if loaded.quantization:
        rows.append(("scales", f"of {len(loaded.quantization)} tensors"))
    if report.errors:
        rows.append(("illegal", f"{len(report.errors)} errors: see `tosajax check`"))
    else:
        rows += _figures(graph, report)
        if rates is not None:
            rows.append(("cycles", f"{cycles(graph, rates):,.0f} of {arguments.target}"))
    for name, text in rows:
        print(f"{name:<12}{text}")
    return 0


def _file(model: str) -> str:
    if model == STDIN:
        return "standard input"
    return f"{model} ({bytes_in_words(Path(model).stat().st_size)})"


def _described(tensor: Tensor, graph: Graph) -> str:
    quantization = graph.quantization.get(tensor.name)
    return f"{tensor.name}: {tensor}" + (f", {quantization}" if quantization else "")


def _figures(graph: Graph, report: tosajax.Report) -> Iterator[tuple[str, str]]:
    from tosajax.graph.costs import arena_bytes
    from tosajax.graph.summary import summarize

    figures = summarize(graph)
    yield "TOSA", str(report.version)
    yield "needs", " + ".join(report.needs or ())
    yield "nodes", f"{sum(figures.operators.values()):,}"
    yield "operators", _counts_text(figures.operators)
    yield "tensors", _counts_text(figures.dtypes)
    yield "parameters", f"{figures.parameters:,} ({bytes_in_words(figures.parameter_bytes)})"
    yield "MACs", f"{figures.macs:,}"
    yield "arena", f"{bytes_in_words(arena_bytes(graph))} of activations at once"


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
