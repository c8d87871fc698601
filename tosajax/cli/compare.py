"""`tosajax compare`: every tensor of a graph beside that of another program.

A writer of another form of the result goes into `_WRITERS`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import tosajax
from tosajax.atomic import check_folder
from tosajax.cli._common import add_batch, add_command, add_input, add_random, arrays, progress
from tosajax.cli._references import HELP, reference
from tosajax.compare import Comparison, compare
from tosajax.viz import check_installed

# By the name of an option: what writes a comparison to the path that is given with it.
_WRITERS: dict[str, Callable[..., None]] = {
    "csv": Comparison.to_csv,
    "json": Comparison.to_json,
    "html": Comparison.to_html,
    "model_explorer": Comparison.to_model_explorer,
}
_HELP = {
    "csv": "write the rows as CSV",
    "json": "write the rows as JSON",
    "html": "write a page with charts; needs matplotlib",
    "model_explorer": "write what Model Explorer lays over the graph",
}


def add(commands: Any) -> None:
    """Adds the command."""
    text = "compare every tensor with another program; status 1 if one differs, 2 for errors"
    parser = add_command(commands, "compare", _compare, text, trouble=2)
    parser.add_argument("--against", required=True, action="append", metavar="WHAT", help=HELP)
    add_input(parser, required=False)
    add_random(parser)
    add_batch(parser)
    parser.add_argument("--tensors", metavar="REGEX", help="only names that contain this")
    parser.add_argument("--outputs", action="store_true", help="only the graph's outputs")
    parser.add_argument("--local", action="store_true", help="also what each layer does by itself")
    for form in _WRITERS:
        option = "--" + form.replace("_", "-")
        parser.add_argument(option, metavar="FILE", help=_HELP[form])


def _compare(arguments: argparse.Namespace) -> int:
    paths = {form: path for form in _WRITERS if (path := getattr(arguments, form))}
    for path in paths.values():
        check_folder(path)
    if "html" in paths:
        check_installed()
    graph = tosajax.load(arguments.model)
    found = compare(
        graph,
        reference(arguments.against),
        *arrays(arguments.input),
        tensors=arguments.tensors,
        outputs_only=arguments.outputs,
        local=arguments.local,
        batch=arguments.batch,
        examples=arguments.random,
        seed=arguments.seed,
        progress=progress,
    )
    found = dataclasses.replace(found, names=(arguments.model, " ".join(arguments.against)))
    more = {"html": {"command": arguments.line}, "model_explorer": {"graph": graph}}
    for form, path in paths.items():
        _WRITERS[form](found, path, **more.get(form, {}))
    print(found)
    return 0 if found else 1
