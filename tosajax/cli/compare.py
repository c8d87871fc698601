"""`tosajax compare`: compares every tensor of a graph with another program."""

from __future__ import annotations

import argparse
import dataclasses

from tosajax.cli import _references
from tosajax.cli._common import (
    FORMS,
    add_batch,
    add_clip,
    add_forms,
    add_input,
    add_random,
    add_scales,
    add_tensors,
    add_wide,
    arrays,
    files_of,
    load,
    progress,
    screen_width,
    write,
)

HELP = "compare every tensor with another program; status 1 if one differs, 2 for errors"
EXAMPLES = (
    "compare model.tosa --against other.tosa --random 8",
    "compare model.tosa --against ref --input x.npy --html page.html",
)
_FORMS = {**FORMS, "model_explorer": "write data that Model Explorer lays over the graph"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(trouble=2)
    parser.add_argument(
        "--against", required=True, action="append", metavar="WHAT", help=_references.HELP
    )
    add_input(parser, required=False)
    add_random(parser)
    add_batch(parser)
    add_scales(parser)
    add_clip(parser)
    add_tensors(parser)
    parser.add_argument("--outputs", action="store_true", help="only the graph's outputs")
    parser.add_argument("--local", action="store_true", help="measure each layer by itself as well")
    parser.add_argument(
        "--atol-lsb", type=float, default=0.0, metavar="N",
        help="steps that integers may differ by, also where compared as real numbers (0)",
    )  # fmt: skip
    parser.add_argument(
        "--min-sqnr", type=float, metavar="DB",
        help="signal to noise ratio that is enough for any tensor; for floats, in place of the "
        "specification's bounds",
    )  # fmt: skip
    parser.add_argument(
        "--exact", action="store_true",
        help="floats have to be equal; by default they may differ by the specification's bounds, "
        "summed over the operators before them",
    )  # fmt: skip
    add_forms(parser, _FORMS)
    add_wide(parser)


def run(arguments: argparse.Namespace) -> int:
    from tosajax.compare import Tolerance, compare

    files = files_of(arguments, _FORMS)
    graph = load(arguments)
    comparison = compare(
        graph,
        _references.reference(arguments.against),
        *arrays(arguments.input),
        tensors=arguments.tensors,
        outputs_only=arguments.outputs,
        local=arguments.local,
        tolerance=Tolerance(arguments.atol_lsb, arguments.min_sqnr, floats=not arguments.exact),
        batch=arguments.batch,
        examples=arguments.random,
        seed=arguments.seed,
        clip=arguments.clip,
        progress=progress,
    )
    comparison = dataclasses.replace(
        comparison, names=(arguments.model, " ".join(arguments.against))
    )
    write(comparison, files, html={"command": arguments.line}, model_explorer={"graph": graph})
    print(comparison.table(screen_width(arguments)))
    return 0 if comparison else 1
