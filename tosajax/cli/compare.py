"""`tosajax compare`: every tensor of a graph beside that of another program.

A writer of another form of the result goes into `_HELP`.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from tosajax.atomic import check_folder
from tosajax.cli._common import (
    add_batch,
    add_command,
    add_input,
    add_random,
    add_scales,
    arrays,
    load,
    progress,
    regex,
)
from tosajax.cli._references import HELP, reference

# By the name of an option, what the method `to_...` of a comparison writes to its path.
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
    add_scales(parser)
    parser.add_argument(
        "--tensors", type=regex, metavar="REGEX", help="only names that contain this"
    )
    parser.add_argument("--outputs", action="store_true", help="only the graph's outputs")
    parser.add_argument("--local", action="store_true", help="also what each layer does by itself")
    parser.add_argument(
        "--atol-lsb", type=float, default=0.0, metavar="N",
        help="steps that integers may differ by, those compared as real numbers included (0)",
    )  # fmt: skip
    parser.add_argument(
        "--min-sqnr", type=float, metavar="DB",
        help="signal to noise that is near enough for any tensor; for floats, in place of the "
        "specification's bounds",
    )  # fmt: skip
    parser.add_argument(
        "--exact", action="store_true",
        help="floats have to be equal; by default, they may differ by the specification's bounds, "
        "summed over the operators before them",
    )  # fmt: skip
    for form in _HELP:
        option = "--" + form.replace("_", "-")
        parser.add_argument(option, metavar="FILE", help=_HELP[form])


def _compare(arguments: argparse.Namespace) -> int:
    from tosajax.compare import Tolerance, compare
    from tosajax.viz import check_installed

    paths = {form: path for form in _HELP if (path := getattr(arguments, form))}
    for path in paths.values():
        check_folder(path)
    if "html" in paths:
        check_installed()
    graph = load(arguments)
    found = compare(
        graph,
        reference(arguments.against),
        *arrays(arguments.input),
        tensors=arguments.tensors,
        outputs_only=arguments.outputs,
        local=arguments.local,
        tolerance=Tolerance(arguments.atol_lsb, arguments.min_sqnr, floats=not arguments.exact),
        batch=arguments.batch,
        examples=arguments.random,
        seed=arguments.seed,
        progress=progress,
    )
    found = dataclasses.replace(found, names=(arguments.model, " ".join(arguments.against)))
    more = {"html": {"command": arguments.line}, "model_explorer": {"graph": graph}}
    for form, path in paths.items():
        getattr(found, f"to_{form}")(path, **more.get(form, {}))
    print(found)
    return 0 if found else 1
