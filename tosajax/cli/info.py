"""`tosajax info`: what a graph consists of."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tosajax
from tosajax.cli._common import add_command, bytes_in_words, positive
from tosajax.graph import Graph, declared_variables
from tosajax.summary import summarize


def add(commands: Any) -> None:
    """Adds the command."""
    parser = add_command(commands, "info", _info, "show what a graph consists of")
    parser.add_argument("--batch", type=positive, default=1, help="size of open dimensions (1)")


def _info(arguments: argparse.Namespace) -> int:
    loaded = tosajax.load(arguments.model)
    graph = tosajax.bind(loaded, batch=arguments.batch)
    report = tosajax.validate(graph)
    rows = [
        ("file", f"{arguments.model} ({bytes_in_words(Path(arguments.model).stat().st_size)})"),
        ("format", f"{loaded.source.format} {loaded.source.version}".strip()),
        ("producer", loaded.source.producer or "not stated"),
    ]
    rows += [("input", f"{t.name}: {t}") for t in loaded.input_tensors]
    rows += [("output", f"{t.name}: {t}") for t in loaded.output_tensors]
    variables = declared_variables(loaded)
    rows += [("variable", f"{name}: {t}") for name, found in variables.items() for t in found]
    if report.errors:
        rows.append(("illegal", f"{len(report.errors)} errors: see `tosajax check`"))
    else:
        rows += _figures(graph, report)
    for name, text in rows:
        print(f"{name:<12}{text}")
    return 0


def _figures(graph: Graph, report: tosajax.Report) -> Iterator[tuple[str, str]]:
    figures = summarize(graph)
    yield "needs", " + ".join(report.needs or ())
    yield "nodes", f"{sum(figures.operators.values()):,}"
    yield "operators", _counted(figures.operators)
    yield "tensors", _counted(figures.dtypes)
    yield "parameters", f"{figures.parameters:,} ({bytes_in_words(figures.parameter_bytes)})"
    yield "MACs", f"{figures.macs:,}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
