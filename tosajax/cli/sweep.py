"""`tosajax sweep`: accuracy of a graph under many settings, over a data set."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tosajax.cli._common import (
    FORMS,
    add_clip,
    add_forms,
    add_wide,
    arrays,
    files_of,
    load,
    option,
    positive,
    quantization,
    screen_width,
    write,
)

if TYPE_CHECKING:
    import numpy as np

    from tosajax.graph import Graph
    from tosajax.sweep import Data

HELP = "measure every combination of settings over a data set, in as few programs as possible"
EXAMPLES = (
    "sweep model.tosa --data x.npy --labels y.npy --weight-bits 8 4",
    "sweep model.tosa --data x.npy --labels y.npy --html page.html",
)
STRATEGIES = ("auto", "loop", "map", "vmap", "sharded")  # of `Sweep`, which help does not import
# Axes of settings: argument, type and help.
_AXES: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("rounding", str, "single, double"),
    ("weight_bits", positive, "bits of weights"),
    ("act_bits", positive, "bits of activations"),
    ("table_bits", positive, "2**N steps in each TABLE"),
    ("scale_bits", positive, "16 or 32, of RESCALE's multipliers"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", required=True, metavar="X.npy",
        help="examples on the first axis; or an .npz file of inputs and `labels`",
    )  # fmt: skip
    parser.add_argument("--labels", metavar="Y.npy", help="an integer for each example")
    parser.add_argument("--reference", metavar="R.npy", help="outputs to compare with")
    for name, kind, what in _AXES:
        metavar = "N" if kind is positive else "MODE"
        parser.add_argument(option(name), type=kind, nargs="+", metavar=metavar, help=what)
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help="accuracy, top_5, sqnr, ...")
    for name in ("input", "output"):
        parser.add_argument(
            f"--{name}-quant", type=quantization, metavar="SCALE,ZERO_POINT",
            help=f"scale and zero point of the {name}, "
            + ("for data of real numbers" if name == "input" else "for metrics of real numbers"),
        )  # fmt: skip
    add_clip(parser)
    parser.add_argument(
        "--allow-nan", action="store_true", help="accept NaN in data, labels and reference"
    )
    parser.add_argument("--batch", type=positive, metavar="N", help="examples in one call")
    parser.add_argument(
        "--strategy", choices=STRATEGIES, default="auto", help="how settings share programs (auto)"
    )
    parser.add_argument("--store", metavar="FILE", help="keep finished rows, and go on from them")
    parser.add_argument("--plan", action="store_true", help="show the plan, and stop")
    add_forms(parser, FORMS)
    add_wide(parser)
    parser.add_argument(
        "--cost", choices=[name for name, kind, _ in _AXES if kind is positive],
        help="axis to draw the metric against on the page of --html, with the best trade-offs",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    from tosajax.sweep import Sweep, grid

    files = files_of(arguments, FORMS)
    if arguments.cost and (not arguments.html or getattr(arguments, arguments.cost) is None):
        raise ValueError(
            f"--cost {arguments.cost} is for a page of that axis: "
            f"give --html and {option(arguments.cost)}"
        )
    data = _data(arguments)
    graph, input_quant = _model(arguments, data)
    axes = {name: values for name, _, _ in _AXES if (values := getattr(arguments, name))}
    sweep = Sweep(
        graph,
        data,
        arguments.metrics or _usual_metrics(arguments, data),
        grid(**axes),
        arguments.strategy,
        store=arguments.store,
        reference=None if arguments.reference is None else _array(arguments.reference),
        batch=arguments.batch,
        input_quant=input_quant,
        output_quant=arguments.output_quant,
        clip=arguments.clip,
        allow_nan=arguments.allow_nan,
    )
    if arguments.plan:
        print(sweep.plan())
        return 0
    found = sweep.run(progress=True)
    about = _about(arguments)
    write(found, files, html={"cost": arguments.cost, "about": about, "command": arguments.line})
    print(found.table(screen_width(arguments)))
    return 1 if len(found.errors) == len(found) else 0


def _model(arguments: argparse.Namespace, data: Data) -> tuple[Graph, Any]:
    """The graph, and the scales of its inputs where the data are real and its file has them."""
    graph = load(arguments)
    known = [graph.quantization.get(t.name) for t in graph.input_tensors]
    is_real = any(x.dtype.kind == "f" for x in data.first().inputs)
    if arguments.input_quant is None and is_real and any(known):
        return graph, [q.of_all if q else None for q in known]
    return graph, arguments.input_quant


def _about(arguments: argparse.Namespace) -> dict[str, str]:
    """The files of a sweep, for its page."""
    names = ("model", "data", "labels", "reference")
    return {name: path for name in names if (path := getattr(arguments, name)) is not None}


def _data(arguments: argparse.Namespace) -> Data:
    from tosajax.sweep import Data

    if arguments.data.endswith(".npz"):
        data = Data(arguments.data, allow_nan=arguments.allow_nan)
        if arguments.labels is not None:
            raise ValueError(f"{arguments.data} has its own labels: leave out --labels")
        return data
    labels = None if arguments.labels is None else _array(arguments.labels)
    return Data((_array(arguments.data), labels), allow_nan=arguments.allow_nan)


def _usual_metrics(arguments: argparse.Namespace, data: Data) -> list[str]:
    """The metrics that labels or a reference allow."""
    labelled = ["accuracy"] if data.first().labels is not None else []
    referred = ["agreement", "sqnr", "max_lsb"] if arguments.reference is not None else []
    if not labelled and not referred:
        raise ValueError("nothing to measure by: give --labels or --reference")
    return [*labelled, *referred]


def _array(path: str) -> np.ndarray:
    return arrays([path])[0]
