"""`tosajax sweep`: accuracy of a graph under many settings, over a data set."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tosajax.atomic import check_folder
from tosajax.cli._common import add_command, load, positive, quantization

if TYPE_CHECKING:
    import numpy as np

    from tosajax.graph import Graph
    from tosajax.sweep import Data

STRATEGIES = ("auto", "loop", "map", "vmap", "sharded")  # those of `Sweep`, help imports none
# What `Results.to_csv` and the like write.
_HELP = {
    "csv": "write the rows as CSV",
    "json": "write the rows as JSON",
    "html": "write a page with charts; needs matplotlib",
}
# Axes of settings: option, type and what it does.
_AXES: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("rounding", str, "single, double"),
    ("weight_bits", positive, "bits of weights"),
    ("act_bits", positive, "bits of activations"),
    ("table_bits", positive, "2**N steps in each TABLE"),
    ("scale_bits", positive, "16 or 32, of RESCALE's multipliers"),
)


def add(commands: Any) -> None:
    """Adds the command."""
    text = "measure every combination of settings over a data set, in as few programs as possible"
    parser = add_command(commands, "sweep", _sweep, text)
    parser.add_argument(
        "--data", required=True, metavar="X.npy",
        help="examples on the first axis; or an .npz of inputs and `labels`",
    )  # fmt: skip
    parser.add_argument("--labels", metavar="Y.npy", help="an integer for each example")
    parser.add_argument("--reference", metavar="R.npy", help="outputs to compare with")
    for name, kind, what in _AXES:
        parser.add_argument(_option(name), type=kind, nargs="+", metavar="N", help=what)
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help="accuracy, top_5, sqnr, ...")
    for name in ("input", "output"):
        parser.add_argument(
            f"--{name}-quant", type=quantization, metavar="SCALE,ZERO_POINT",
            help=f"of the {name}: real values are {'quantized' if name == 'input' else 'measured'}",
        )  # fmt: skip
    parser.add_argument(
        "--allow-nan", action="store_true", help="take NaN in data, labels and reference as it is"
    )
    parser.add_argument("--batch", type=positive, help="examples at a time")
    parser.add_argument("--strategy", choices=STRATEGIES, default="auto")
    parser.add_argument("--store", metavar="FILE", help="keeps rows: what is finished stays so")
    parser.add_argument("--plan", action="store_true", help="say what would be done, and stop")
    for form in _HELP:
        parser.add_argument(f"--{form}", metavar="FILE", help=_HELP[form])
    parser.add_argument(
        "--cost", choices=[name for name, kind, _ in _AXES if kind is positive],
        help="axis that the page of --html draws the metric against, with the best trade-offs",
    )  # fmt: skip


def _sweep(arguments: argparse.Namespace) -> int:
    from tosajax.sweep import Sweep, grid
    from tosajax.viz import check_installed

    paths = {form: path for form in _HELP if (path := getattr(arguments, form))}
    for path in paths.values():
        check_folder(path)
    if "html" in paths:
        check_installed()
    if arguments.cost and (not arguments.html or getattr(arguments, arguments.cost) is None):
        raise ValueError(
            f"--cost {arguments.cost} is for a page of that axis: "
            f"give --html and {_option(arguments.cost)}"
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
        allow_nan=arguments.allow_nan,
    )
    if arguments.plan:
        print(sweep.plan())
        return 0
    found = sweep.run(progress=True)
    more = {"cost": arguments.cost, "about": _about(arguments), "command": arguments.line}
    for form, path in paths.items():
        getattr(found, f"to_{form}")(path, **(more if form == "html" else {}))
    print(found)
    return 1 if len(found.errors) == len(found) else 0


def _model(arguments: argparse.Namespace, data: Data) -> tuple[Graph, Any]:
    """The graph, and the scale of its input where the data are real and its file says the scale."""
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
    """What there is something to measure by."""
    labelled = ["accuracy"] if data.first().labels is not None else []
    referred = ["agreement", "sqnr", "max_lsb"] if arguments.reference is not None else []
    if not labelled and not referred:
        raise ValueError("nothing to measure by: give --labels or --reference")
    return [*labelled, *referred]


def _array(path: str) -> np.ndarray:
    from tosajax.arguments.arrays import load_array

    return load_array(path, mapped=True)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
