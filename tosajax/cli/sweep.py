"""`tosajax sweep`: accuracy of a graph under many settings, over a data set."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import tosajax
from tosajax.atomic import check_folder
from tosajax.cli._common import add_command, positive
from tosajax.sweep import Data, Results, Sweep, grid
from tosajax.sweep.data import load_array
from tosajax.sweep.evaluate import STRATEGIES
from tosajax.viz import check_installed

# By the name of an option: what writes results to the path that is given with it.
_WRITERS = {"csv": Results.to_csv, "json": Results.to_json, "html": Results.to_html}
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
            f"--{name}-quant", type=_quant, metavar="SCALE,ZERO_POINT",
            help=f"of the {name}: real values are {'quantized' if name == 'input' else 'measured'}",
        )  # fmt: skip
    parser.add_argument(
        "--allow-nan", action="store_true", help="take NaN in data, labels and reference as it is"
    )
    parser.add_argument("--batch", type=positive, help="examples at a time")
    parser.add_argument("--strategy", choices=("auto", *STRATEGIES), default="auto")
    parser.add_argument("--store", metavar="FILE", help="keeps rows: what is finished stays so")
    parser.add_argument("--plan", action="store_true", help="say what would be done, and stop")
    for form in _WRITERS:
        parser.add_argument(f"--{form}", metavar="FILE", help=_HELP[form])


def _sweep(arguments: argparse.Namespace) -> int:
    paths = {form: path for form in _WRITERS if (path := getattr(arguments, form))}
    for path in paths.values():
        check_folder(path)
    if "html" in paths:
        check_installed()
    data = _data(arguments)
    axes = {name: values for name, _, _ in _AXES if (values := getattr(arguments, name))}
    sweep = Sweep(
        tosajax.load(arguments.model),
        data,
        arguments.metrics or _usual_metrics(arguments, data),
        grid(**axes),
        arguments.strategy,
        store=arguments.store,
        reference=None if arguments.reference is None else load_array(arguments.reference),
        batch=arguments.batch,
        input_quant=arguments.input_quant,
        output_quant=arguments.output_quant,
        allow_nan=arguments.allow_nan,
    )
    if arguments.plan:
        print(sweep.plan())
        return 0
    found = sweep.run(progress=True)
    for form, path in paths.items():
        _WRITERS[form](found, path)
    print(found)
    return 1 if len(found.errors) == len(found) else 0


def _data(arguments: argparse.Namespace) -> Data:
    if arguments.data.endswith(".npz"):
        if arguments.labels is not None:
            raise ValueError(f"{arguments.data} has its own labels: leave out --labels")
        return Data(arguments.data, allow_nan=arguments.allow_nan)
    labels = None if arguments.labels is None else load_array(arguments.labels)
    return Data((load_array(arguments.data), labels), allow_nan=arguments.allow_nan)


def _usual_metrics(arguments: argparse.Namespace, data: Data) -> list[str]:
    """What there is something to measure by."""
    labelled = ["accuracy"] if data.first().labels is not None else []
    referred = ["agreement", "sqnr", "max_lsb"] if arguments.reference is not None else []
    if not labelled and not referred:
        raise ValueError("nothing to measure by: give --labels or --reference")
    return [*labelled, *referred]


def _quant(text: str) -> tuple[float, int]:
    try:
        scale, zero_point = text.split(",")
        return float(scale), int(zero_point)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not SCALE,ZERO_POINT") from None


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
