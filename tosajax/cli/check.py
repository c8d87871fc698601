"""`tosajax check`: every finding of a validation."""

from __future__ import annotations

import argparse

import tosajax
from tosajax.cli._common import add_open_batch, load

HELP = "list every finding; status 1 if one is an error"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_open_batch(parser)
    parser.add_argument(
        "--target",
        type=_target,
        help='profiles, extensions and level, "PRO-INT+EXT-INT16@8K"; everything by default',
    )


def _target(text: str) -> tosajax.Target:
    try:
        return tosajax.Target.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    graph = tosajax.bind(load(arguments), batch=arguments.batch)
    report = tosajax.validate(graph, arguments.target)
    for finding in report.findings:
        print(f"{finding.verdict.name}: {finding}")
    others = len(report.findings) - len(report.errors)
    summary = f"{len(report.errors)} errors, {others} unpredictable"
    print(f"{arguments.model}: {report.verdict.name} ({summary})")
    return 1 if report.errors else 0
