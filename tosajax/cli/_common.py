"""Options, files and texts that several commands share."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tosajax.atomic import check_folder
from tosajax.progress import Progress

if TYPE_CHECKING:
    import numpy as np

    from tosajax.graph import Graph

STDIN = "-"
_Step = TypeVar("_Step")


# Output formats of a result, by the names of the methods `to_...` that write them.
FORMS = {
    "csv": "write the rows as CSV",
    "json": "write the rows as JSON",
    "html": "write a page with charts; needs matplotlib",
}


def add_batch(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the number of examples that run at a time."""
    parser.add_argument(
        "--batch", type=positive, default=32, metavar="N", help="examples in one call (32)"
    )


def add_open_batch(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the size of a file's open batch dimension."""
    parser.add_argument(
        "--batch", type=positive, default=1, metavar="N", help="size of open dimensions (1)"
    )


def add_wide(parser: argparse.ArgumentParser) -> None:
    """Adds the option for full-width lines in a terminal."""
    parser.add_argument(
        "--wide", action="store_true", help="whole lines, also where the terminal is narrower"
    )


def screen_width(arguments: argparse.Namespace) -> int | None:
    """The most characters of a line; None for no limit, as in files and pipes."""
    if arguments.wide or sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def add_tensors(parser: argparse.ArgumentParser) -> None:
    """Adds the option that selects tensors."""
    parser.add_argument(
        "--tensors", type=regex, metavar="REGEX", help="only tensors whose names contain this"
    )


def add_forms(parser: argparse.ArgumentParser, forms: Mapping[str, str]) -> None:
    """Adds options for the files that a result is written to."""
    for form, text in forms.items():
        parser.add_argument(option(form), metavar="FILE", help=text)


def add_input(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Adds the option for files of inputs."""
    parser.add_argument(
        "--input", required=required, action="append", metavar="X.npy",
        help="examples stacked on the first axis; once for each input, in the graph's order; "
        "- for standard input",
    )  # fmt: skip


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the file of a new graph."""
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE",
        help="file to write; its suffix chooses the format",
    )  # fmt: skip


def add_random(parser: argparse.ArgumentParser) -> None:
    """Adds options for random inputs, which are used if none are given."""
    parser.add_argument(
        "--random", type=positive, default=16, metavar="N",
        help="without --input: how many random examples (16)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of random examples (0)")


def add_scales(parser: argparse.ArgumentParser) -> None:
    """Adds options for the scales of inputs and outputs."""
    for name in ("input", "output"):
        parser.add_argument(
            f"--{name}-quant", type=quantization, action="append", metavar="SCALE,ZERO_POINT",
            help=f"scale and zero point of an integer {name}; once for each {name}, in the graph's "
            "order; by default those of the model's .quant.json",
        )  # fmt: skip
    parser.add_argument(
        "--scales", metavar="FILE",
        help="take the scales of the .tflite model that the graph was converted from, of the "
        "ExecuTorch program (.pte) that holds it, or, with those of inner tensors, of the "
        "program's ETRecord",
    )  # fmt: skip


def add_clip(parser: argparse.ArgumentParser) -> None:
    """Adds the option for real inputs beyond the range of their scale."""
    parser.add_argument(
        "--clip", action="store_true",
        help="clip real inputs to the range of their scale, however many lie outside; by default "
        "more than 1 %% of them are an error",
    )  # fmt: skip


def files_of(arguments: argparse.Namespace, forms: Mapping[str, str]) -> dict[str, str]:
    """The files to write, by output format, checked before any work is done.

    Raises:
      FileNotFoundError: the folder of a file does not exist.
      ImportError: a format needs matplotlib, which is not installed.
    """
    files = {form: path for form in forms if (path := getattr(arguments, form))}
    for path in files.values():
        check_folder(path)
    if "html" in files:
        from tosajax.viz import check_installed

        check_installed()
    return files


def write(results: object, files: Mapping[str, str], **options: Mapping[str, Any]) -> None:
    """Writes a result in each format; `options` are arguments of its methods, by format."""
    for form, path in files.items():
        getattr(results, f"to_{form}")(path, **options.get(form, {}))


def load(arguments: argparse.Namespace, *, as_floats: bool = False) -> Graph:
    """Loads the model of a command, with the scales from its options.

    Args:
      arguments: those of the command.
      as_floats: as for `tosajax.load`.

    Raises:
      FormatError: a file is damaged.
      ValueError: the number of scales is wrong, or a float tensor has a scale.
    """
    import tosajax

    options = {
        "function": arguments.function,
        "shapes": dict(arguments.shape),
        "as_floats": as_floats,
    }
    if arguments.model == STDIN:
        try:
            graph = tosajax.load(standard_input("the model"), **options)
        except (tosajax.FormatError, tosajax.UnsupportedError) as error:
            raise type(error)(f"standard input: {error}") from None
    else:
        graph = tosajax.load(arguments.model, **options)
    return _with_scales(graph, arguments)


def standard_input(name: str) -> bytes:
    """Reads all bytes of standard input, which is possible only once.

    Raises:
      ValueError: it has been read already, or is a terminal.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise ValueError(f"{name} is to come from standard input, which is a terminal")
    content = sys.stdin.buffer.read()
    if not content:
        raise ValueError(f"{name} is to come from standard input, which is empty, or read already")
    return content


def arrays(paths: Sequence[str] | None) -> list[np.ndarray]:
    """The arrays of .npy files, mapped to memory; an empty list without paths."""
    from tosajax.arguments.arrays import load_array
    from tosajax.report import FormatError

    loaded = []
    for path in paths or ():
        if path != STDIN:
            loaded.append(load_array(path, mapped=True))
            continue
        try:
            loaded.append(load_array(standard_input("an input")))
        except FormatError as error:
            raise FormatError(f"standard input: {error}") from None
    return loaded


def quantization(text: str) -> tuple[float, int]:
    """Parses SCALE,ZERO_POINT."""
    try:
        scale, zero_point = text.split(",")
        pair = float(scale), int(zero_point)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not SCALE,ZERO_POINT") from None
    if not 0 < pair[0] < float("inf"):
        raise argparse.ArgumentTypeError(f"the scale {pair[0]} is not positive and finite")
    return pair


def input_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parses NAME=1x3x224x224; a name may have "=" in it."""
    name, _, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split("x"))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=1x3x224x224")
    return name, shape


def _with_scales(graph: Graph, arguments: argparse.Namespace) -> Graph:
    import dataclasses

    from tosajax.graph import Quantization

    quantization = dict(graph.quantization)
    if path := getattr(arguments, "scales", None):
        from tosajax.compare.model_scales import scales_of_model

        quantization |= scales_of_model(path, graph)
    for option, tensors in (("input", graph.input_tensors), ("output", graph.output_tensors)):
        pairs = getattr(arguments, f"{option}_quant", None) or ()
        pairs = [pairs] if isinstance(pairs, tuple) and pairs else pairs
        if pairs and len(pairs) != len(tensors):
            names = ", ".join(t.name for t in tensors)
            raise ValueError(
                f"{len(pairs)} --{option}-quant, the graph has {len(tensors)} {option}s ({names})"
            )
        for tensor, (scale, zero_point) in zip(tensors, pairs, strict=False):
            if not tensor.dtype.is_integer:
                raise ValueError(f"--{option}-quant of {tensor.name!r}, which is {tensor}")
            quantization[tensor.name] = Quantization((scale,), (zero_point,))
            if not quantization[tensor.name].fits(tensor):
                raise ValueError(
                    f"--{option}-quant {scale},{zero_point}: {tensor.name!r} is {tensor}, which "
                    "does not hold that zero point"
                )
    if quantization == graph.quantization:
        return graph
    return dataclasses.replace(graph, quantization=quantization)


def regex(text: str) -> str:
    """Checks a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def positive(text: str) -> int:
    """Parses an integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def option(name: str) -> str:
    """The option for an argument's name, such as "--act-bits"."""
    return "--" + name.replace("_", "-")


def bytes_in_words(count: int) -> str:
    """The text of a size in bytes, KiB, MiB or GiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def progress(steps: Iterable[_Step], total: int) -> Iterator[_Step]:
    """Yields steps, with a progress bar on a terminal if the `cli` extra is installed."""
    with Progress(total, is_shown=True, unit="batch", stays=False) as bar:
        for step in steps:
            yield step
            bar.update()
