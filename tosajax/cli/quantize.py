"""`tosajax quantize`: writes the integer graph of a float one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tosajax.cli._common import (
    FORMS,
    add_forms,
    add_input,
    add_output,
    arrays,
    files_of,
    load,
    positive,
    write,
)

if TYPE_CHECKING:
    import numpy as np

    from tosajax.graph import Graph
    from tosajax.quant import Budget, Rule
    from tosajax.quant.tune.automatic import Metric

HELP = "write the integer graph of a float or quantized one, calibrated and tuned on examples"
EXAMPLES = (
    "quantize float.tosa --input f.npy --output int8.tosa",
    "quantize float.tosa --input f.npy --labels y.npy --act i16 -o a16.tosa",
    "quantize int8.tflite --input f.npy -o better.tosa",
)
_FORMS = {form: FORMS[form] for form in ("json", "html")}
# Element types, as in `QSpec`; a command's help imports nothing.
_WEIGHTS, _ACTIVATIONS = ("i8", "i4"), ("i8", "i16")
_BATCH = 8
_QUANTIZED = "TFLite flatbuffer"  # a format whose integers have scales


def add_options(parser: argparse.ArgumentParser) -> None:
    add_input(parser, required=True)
    add_output(parser)
    parser.add_argument(
        "--labels", metavar="Y.npy",
        help="an integer for each example: what raises the accuracy of the first output is kept",
    )  # fmt: skip
    parser.add_argument(
        "--weight", choices=_WEIGHTS, default="i8", help="type of weights, one scale a channel (i8)"
    )
    parser.add_argument("--act", choices=_ACTIVATIONS, default="i8", help="of activations (i8)")
    parser.add_argument(
        "--seconds", type=float, default=600.0, metavar="S",
        help="begin no remedy after this time; 0: only calibrate (600)",
    )  # fmt: skip
    parser.add_argument(
        "--wide-macs", type=float, default=0.1, metavar="SHARE",
        help="share of multiply-accumulates that may read INT16 in place of INT8 (0.1)",
    )  # fmt: skip
    parser.add_argument(
        "--wide-outputs", action=argparse.BooleanOptionalAction, default=True,
        help="whether outputs other than of softmax and the like may be INT16 (yes)",
    )  # fmt: skip
    parser.add_argument(
        "--target", metavar="NPU",
        help="the NPU that will run the graph (ethos-u85-256), whose operators limit INT16",
    )  # fmt: skip
    parser.add_argument(
        "--more-cycles", type=float, metavar="SHARE",
        help="share of the target's cycles by which INT16 may prolong the network",
    )  # fmt: skip
    parser.add_argument(
        "--arena-kib", type=positive, metavar="KIB",
        help="the most KiB of activations at once that INT16 may need",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=positive, default=_BATCH, metavar="N",
        help=f"examples of one call in calibration ({_BATCH})",
    )  # fmt: skip
    add_forms(parser, _FORMS)


def run(arguments: argparse.Namespace) -> int:
    from tosajax import io, quant

    io.check_path(arguments.output)
    files = files_of(arguments, _FORMS)
    budget = _budget(arguments)
    graph = _float_graph(arguments)
    inputs = arrays(arguments.input)
    batches = _batches(inputs, arguments.batch)
    metric = None
    if arguments.labels is not None:
        metric = _accuracy(inputs, arrays([arguments.labels])[0], arguments.batch)
    result = quant.auto(
        graph, batches, _rules(arguments), metric=metric, budget=budget, progress=True
    )
    io.save(result.graph, arguments.output)
    write(result, files, html={"command": arguments.line})
    print(f"{result}\n{arguments.output}: {len(result.graph.nodes)} nodes")
    return 0


def _budget(arguments: argparse.Namespace) -> Budget:
    from tosajax import quant

    arena = arguments.arena_kib
    return quant.Budget(
        arguments.seconds,
        arguments.wide_macs,
        arguments.wide_outputs,
        arguments.target,
        arguments.more_cycles,
        None if arena is None else 1024 * arena,
    )


def _float_graph(arguments: argparse.Namespace) -> Graph:
    graph = load(arguments)
    if graph.quantization and graph.source.format == _QUANTIZED:
        return load(arguments, as_floats=True)
    if not any(tensor.dtype.is_float for tensor in graph.input_tensors):
        types = ", ".join(f"{tensor.name}: {tensor}" for tensor in graph.input_tensors)
        raise ValueError(f"no input of graph {graph.name!r} is of floats ({types})")
    return graph


def _rules(arguments: argparse.Namespace) -> list[Rule]:
    """Rules for what differs from the defaults."""
    from tosajax import quant

    specs: dict[str, Any] = {}
    if arguments.weight != _WEIGHTS[0]:
        specs["weight"] = quant.QSpec(arguments.weight, per_channel=True)
    if arguments.act != _ACTIVATIONS[0]:
        specs["act"] = quant.QSpec(arguments.act)
    return [quant.rule(".*", **specs)] if specs else []


def _batches(inputs: Sequence[np.ndarray], size: int) -> list[tuple[np.ndarray, ...]]:
    counts = {len(x) if x.ndim else 0 for x in inputs}
    if len(counts) != 1 or counts == {0}:
        shapes = ", ".join(str(x.shape) for x in inputs)
        raise ValueError(f"--input of shapes {shapes}, expected examples, as many of each input")
    (count,) = counts
    return [tuple(x[at : at + size] for x in inputs) for at in range(0, count, size)]


def _accuracy(inputs: Sequence[np.ndarray], labels: np.ndarray, size: int) -> Metric:
    """The share of examples whose first output has its greatest value at the label."""
    import numpy as np

    if labels.shape != (len(inputs[0]),) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"--labels is {labels.dtype.name} of shape {labels.shape}, expected "
            f"{len(inputs[0])} integers"
        )

    def accuracy(predict: Any) -> float:
        found = [np.asarray(predict(*batch)[0]) for batch in _batches(inputs, size)]
        scores = np.concatenate(found).reshape(len(labels), -1)
        return float(np.mean(scores.argmax(1) == labels))

    return accuracy
