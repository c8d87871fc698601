"""`tosajax sweep`: measures the accuracy of a graph under many settings, on a data set."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
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
    from tosajax.sweep import Data, Space

HELP = "measure every combination of settings over a data set, in as few programs as possible"
EXAMPLES = (
    "sweep model.tosa --data x.npy --labels y.npy --weight-bits 8 4",
    "sweep model.tosa --data x.npy --labels y.npy --html page.html",
)
STRATEGIES = ("auto", "loop", "map", "vmap", "sharded")  # as in `Sweep`; help does not import it
COSTS = ("weight_bytes", "macs")  # as in `sweep.layers`


def bits(text: str) -> int | dict[str, int]:
    """Parses bits: N for all layers, or LAYER=N[,LAYER=N...] for some layers."""
    if "=" not in text:
        return positive(text)
    pairs = [part.rpartition("=") for part in text.split(",")]
    if any(not layer for layer, _, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not LAYER=N[,LAYER=N...]")
    return {layer: positive(count) for layer, _, count in pairs}


# Axes of settings: argument, type and help.
_AXES: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("rounding", str, "single, double"),
    (
        "weight_bits",
        bits,
        "bits of weights; of some layers: LAYER=N[,LAYER=N...], by names of "
        "outputs, or regular expressions of outputs and locations",
    ),
    ("act_bits", bits, "bits of activations, as of weights"),
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
    for name, kind, help_text in _AXES:
        metavar = "MODE" if kind is str else "N"
        parser.add_argument(option(name), type=kind, nargs="+", metavar=metavar, help=help_text)
    parser.add_argument(
        "--one-layer", action="store_true",
        help="give the bits to one layer after the other, and the others theirs",
    )  # fmt: skip
    parser.add_argument(
        "--metrics", nargs="+", metavar="NAME",
        help=f"accuracy, top_5, mcnemar, sqnr, ...; costs: {', '.join(COSTS)}",
    )  # fmt: skip
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
        "--cost", choices=[*(name for name, kind, _ in _AXES if kind is not str), *COSTS],
        help="cost, or axis, to draw the metric against on the page of --html, with the best "
        "trade-offs",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    from tosajax.sweep import Sweep

    files = files_of(arguments, FORMS)
    _check_cost(arguments)
    data = _data(arguments)
    graph, input_quant = _model(arguments, data)
    metrics = arguments.metrics or _usual_metrics(arguments, data)
    if arguments.cost in COSTS and arguments.cost not in metrics:
        metrics.append(arguments.cost)
    sweep = Sweep(
        graph,
        data,
        metrics,
        _settings(arguments, graph),
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
    results = sweep.run(progress=True)
    about = _file_names(arguments)
    write(results, files, html={"cost": arguments.cost, "about": about, "command": arguments.line})
    print(results.table(screen_width(arguments)))
    return 1 if len(results.errors) == len(results) else 0


def _check_cost(arguments: argparse.Namespace) -> None:
    cost = arguments.cost
    if not cost or (cost in COSTS and arguments.html):
        return
    if cost in COSTS:
        raise ValueError(f"--cost {cost} is for a page: give --html")
    values = getattr(arguments, cost)
    if values is None or not arguments.html:
        axis = option(cost)
        raise ValueError(f"--cost {cost} is for a page of that axis: give --html and {axis}")
    if arguments.one_layer or any(isinstance(value, Mapping) for value in values):
        raise ValueError(
            f"--cost {cost}, whose values differ between layers: take --cost weight_bytes"
        )


def _settings(arguments: argparse.Namespace, graph: Graph) -> Space:
    from tosajax.sweep import grid

    axes = {name: values for name, _, _ in _AXES if (values := getattr(arguments, name))}
    if not arguments.one_layer:
        return grid(**axes)
    of_bits = {name: axes.pop(name) for name in ("weight_bits", "act_bits") if name in axes}
    return grid(**axes) * _one_layer(graph, of_bits)


def _one_layer(graph: Graph, axes: Mapping[str, Sequence[Any]]) -> Space:
    """The settings of the unchanged graph, and of other bits in one layer each."""
    from tosajax.sweep import Space, one_at_a_time
    from tosajax.sweep.layers import Tensors, layers

    if not axes or any(isinstance(v, Mapping) for values in axes.values() for v in values):
        raise ValueError("--one-layer: give --weight-bits or --act-bits as numbers")
    space = Space(({},))
    tensors: dict[str, Tensors] = {"weight_bits": "weights", "act_bits": "activations"}
    for name, values in axes.items():
        names = layers(graph, tensors[name])
        if not names:
            raise ValueError(f"--one-layer: no layer of the graph has {tensors[name]} of integers")
        space += one_at_a_time(name, names, values)
    return space


def _model(arguments: argparse.Namespace, data: Data) -> tuple[Graph, Any]:
    """The graph; and the scales of its inputs, if the data are real and the file has scales."""
    graph = load(arguments)
    scales = [graph.quantization.get(t.name) for t in graph.input_tensors]
    is_real = any(x.dtype.kind == "f" for x in data.first().inputs)
    if arguments.input_quant is None and is_real and any(scales):
        return graph, [q.of_all if q else None for q in scales]
    return graph, arguments.input_quant


def _file_names(arguments: argparse.Namespace) -> dict[str, str]:
    """The names of a sweep's files, for its page."""
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
    """The default metrics: those that the labels or the reference allow."""
    labelled = ["accuracy"] if data.first().labels is not None else []
    referred = ["agreement", "sqnr", "max_lsb"] if arguments.reference is not None else []
    if not labelled and not referred:
        raise ValueError("nothing to measure by: give --labels or --reference")
    return [*labelled, *referred]


def _array(path: str) -> np.ndarray:
    return arrays([path])[0]
