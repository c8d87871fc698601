"""`tosajax explain`: how each operator will be computed."""

from __future__ import annotations

import argparse
from typing import Any

import tosajax
from tosajax.batching import carries_batch
from tosajax.cli._common import add_batch, add_command


def add(commands: Any) -> None:
    """Adds the command."""
    add_batch(add_command(commands, "explain", _explain, "show how each operator is computed"))


def _explain(arguments: argparse.Namespace) -> int:
    graph = tosajax.load(arguments.model)
    fits = graph.is_dynamic or any(carries_batch(t) for t in graph.input_tensors)
    executable = tosajax.compile(graph, batch=arguments.batch if fits else None)
    print(executable.explain())
    return 0
