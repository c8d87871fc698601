"""The `tosajax` command: info, check, explain, run."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tosajax
from tosajax.batching import carries_batch
from tosajax.dataset import Dataset
from tosajax.graph import Graph, declared_variables
from tosajax.summary import summarize


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.command(arguments)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output left; let Python's own flush at exit go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except tosajax.TosaError as error:
        if arguments.debug:
            raise
        first, *more = error.report.errors
        rest = f" (and {len(more)} more: see `tosajax check`)" if more else ""
        return _fail(f"{arguments.model}: {first}{rest}")
    except (ValueError, TypeError, OSError, NotImplementedError, MemoryError) as error:
        if arguments.debug:
            raise
        return _fail(_one_line(error, arguments.model))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tosajax", description="Run and inspect TOSA graphs.")
    parser.add_argument("--version", action="version", version=f"tosajax {tosajax.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    info = _command(commands, "info", _info, "show what a graph consists of")
    info.add_argument("--batch", type=_positive, default=1, help="size of open dimensions (1)")

    check = _command(commands, "check", _check, "list every finding; status 1 if one is an error")
    check.add_argument("--batch", type=_positive, default=1, help="size of open dimensions (1)")
    check.add_argument(
        "--target",
        type=_target,
        help='profiles, extensions and level, "PRO-INT+EXT-INT16@8K"; everything by default',
    )

    explain = _command(commands, "explain", _explain, "show how each operator will be computed")
    explain.add_argument("--batch", type=_positive, default=32, help="examples in one call (32)")

    run = _command(commands, "run", _run, "run a graph over a data set")
    run.add_argument(
        "--input", required=True, action="append", metavar="X.npy",
        help="examples stacked on the first axis; once for each input, in the graph's order",
    )  # fmt: skip
    run.add_argument(
        "--output", required=True, action="append", metavar="Y.npy",
        help="where results go; once for each output, in the graph's order",
    )  # fmt: skip
    run.add_argument("--batch", type=_positive, default=32, help="examples in one call (32)")
    return parser


def _command(commands: Any, name: str, function: Any, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("model", help="a .tosa file or its JSON form")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(command=function)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def _target(text: str) -> tosajax.Target:
    try:
        return tosajax.Target.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# info


def _info(arguments: argparse.Namespace) -> int:
    loaded = tosajax.load(arguments.model)
    graph = tosajax.bind(loaded, batch=arguments.batch)
    report = tosajax.validate(graph)
    rows = [
        ("file", f"{arguments.model} ({_bytes(Path(arguments.model).stat().st_size)})"),
        ("format", f"{loaded.source.format} {loaded.source.version}".strip()),
        ("producer", loaded.source.producer or "not stated"),
    ]
    rows += [("input", f"{t.name}: {t}") for t in loaded.input_tensors]
    rows += [("output", f"{t.name}: {t}") for t in loaded.output_tensors]
    variables = declared_variables(loaded)
    rows += [("variable", f"{name}: {t}") for name, found in variables.items() for t in found]
    if report.errors:
        rows.append(("illegal", f"{len(report.errors)} errors: see `tosajax check`"))
    else:
        rows += _figures(graph, report)
    for name, text in rows:
        print(f"{name:<12}{text}")
    return 0


def _figures(graph: Graph, report: tosajax.Report) -> Iterator[tuple[str, str]]:
    figures = summarize(graph)
    yield "needs", " + ".join(report.needs or ())
    yield "nodes", f"{sum(figures.operators.values()):,}"
    yield "operators", _counted(figures.operators)
    yield "tensors", _counted(figures.dtypes)
    yield "parameters", f"{figures.parameters:,} ({_bytes(figures.parameter_bytes)})"
    yield "MACs", f"{figures.macs:,}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


# check


def _check(arguments: argparse.Namespace) -> int:
    graph = tosajax.bind(tosajax.load(arguments.model), batch=arguments.batch)
    report = tosajax.validate(graph, arguments.target)
    for finding in report.findings:
        print(f"{finding.verdict.name}: {finding}")
    others = len(report.findings) - len(report.errors)
    summary = f"{len(report.errors)} errors, {others} unpredictable"
    print(f"{arguments.model}: {report.verdict.name} ({summary})")
    return 1 if report.errors else 0


# explain


def _explain(arguments: argparse.Namespace) -> int:
    graph = tosajax.load(arguments.model)
    fits = graph.is_dynamic or any(carries_batch(t) for t in graph.input_tensors)
    executable = tosajax.compile(graph, batch=arguments.batch if fits else None)
    print(executable.explain())
    return 0


# run


def _run(arguments: argparse.Namespace) -> int:
    graph = tosajax.load(arguments.model)
    _check_paths(graph, arguments)
    arrays = [np.load(path, allow_pickle=False) for path in arguments.input]
    data = Dataset.of(graph, arrays)
    start = time.perf_counter()
    results = data.run(graph, arguments.batch, progress=_progress)
    seconds = time.perf_counter() - start
    for path, result in zip(arguments.output, results, strict=True):
        _save(path, result)
    rate = data.count / seconds
    print(f"{data.count} examples in {seconds:.2f} s ({rate:,.0f}/s, compilation included)")
    for path, result in zip(arguments.output, results, strict=True):
        print(f"{path}: {result.dtype} {result.shape}")
    return 0


def _check_paths(graph: Graph, arguments: argparse.Namespace) -> None:
    """Refuses wrong counts and unwritable places before any work is done."""
    for what, given, wanted in (
        ("--input", arguments.input, graph.inputs),
        ("--output", arguments.output, graph.outputs),
    ):
        if len(given) != len(wanted):
            names = ", ".join(wanted)
            raise ValueError(f"{len(given)} {what}, the graph has {len(wanted)} ({names})")
    for path in arguments.output:
        if not Path(path).resolve().parent.is_dir():
            raise FileNotFoundError(f"there is no folder for {path}")


def _save(path: str, array: np.ndarray) -> None:
    """Writes the whole file or nothing."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.resolve().parent, suffix=".npy")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, array, allow_pickle=False)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _progress(steps: Iterable[Any], total: int) -> Iterable[Any]:
    """A progress bar on a terminal, where the `cli` extra is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return steps
    return tqdm(steps, total=total, unit="batch", disable=None, leave=False)


def _fail(message: str, status: int = 1) -> int:
    print(f"tosajax: error: {message}", file=sys.stderr)
    return status


def _one_line(error: BaseException, model: str) -> str:
    text = str(error).strip().splitlines()
    message = text[0] if text else type(error).__name__
    return message if model in message else f"{model}: {message}"


if __name__ == "__main__":
    sys.exit(main())
