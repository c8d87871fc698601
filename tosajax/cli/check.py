"""`tosajax check`: prints every finding of a validation."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import tosajax
from tosajax.atomic import check_folder, write_json
from tosajax.cli._common import add_open_batch, load

HELP = "list every finding; status 1 if one is an error"
EXAMPLES = (
    "check model.tosa",
    "check model.tosa --target PRO-INT+EXT-INT16@8K",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_open_batch(parser)
    parser.add_argument(
        "--target",
        type=_target,
        help='profiles, extensions and level, "PRO-INT+EXT-INT16@8K", of TOSA 1.0 unless it says '
        "TOSA-1.1+PRO-INT, or a NPU: ethos-u55-128, ethos-u65-512, ethos-u85-256, ...; everything "
        "by default, the draft of 1.1 included",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="a line for each finding, also of a rule that many break",
    )
    parser.add_argument("--json", metavar="FILE", help="write every finding as JSON")


def _json_report(report: tosajax.Report) -> dict[str, Any]:
    """All findings, as JSON values."""
    findings = [dataclasses.asdict(f) | {"verdict": f.verdict.name} for f in report.findings]
    return {
        "verdict": report.verdict.name,
        "needs": report.needs,
        "version": str(report.version),
        "findings": findings,
    }


def _target(text: str) -> tosajax.Target:
    try:
        return tosajax.Target.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    if arguments.json:
        check_folder(arguments.json)
    graph = tosajax.bind(load(arguments), batch=arguments.batch)
    report = tosajax.validate(graph, arguments.target)
    if arguments.json:
        write_json(arguments.json, _json_report(report))
    text = str(report) if arguments.verbose else report.brief()
    if report.findings:
        print(text)
    others = len(report.findings) - len(report.errors)
    summary = f"{len(report.errors)} errors, {others} unpredictable"
    if len(text.splitlines()) < len(report.findings):
        summary += "; --verbose lists all"
    print(f"{arguments.model}: {report.verdict.name} ({summary})")
    return 1 if report.errors else 0
