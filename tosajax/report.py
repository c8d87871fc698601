"""Results of validation: verdicts, findings, reports, and the errors raised from them."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from tosajax import html


class Verdict(enum.IntEnum):
    """The three results a graph may have ("TOSA Graph Compliance", TOSA 1.0.1)."""

    VALID = 0
    UNPREDICTABLE = 1
    ERROR = 2


@dataclasses.dataclass(frozen=True)
class Finding:
    """One broken rule: where, what was found, what was wanted."""

    verdict: Verdict
    label: str  # names the rule: "conv2d.e8", "graph.cycle"
    message: str  # argument or tensor, found, wanted
    node: str | None = None  # "CONV2D 'layer3/conv'"

    def __str__(self) -> str:
        place = f"{self.node}: " if self.node else ""
        return f"{place}{self.message} [{self.label}]"


@dataclasses.dataclass(frozen=True)
class Report:
    """Every finding of a validation, and the needs of the graph.

    Args:
      findings: broken rules.
      needs: profiles and extensions that support all operators; None where no target supports one
        of them.
    """

    findings: tuple[Finding, ...] = ()
    needs: tuple[str, ...] | None = None

    @property
    def verdict(self) -> Verdict:
        return max((f.verdict for f in self.findings), default=Verdict.VALID)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.verdict is Verdict.ERROR)

    def raise_errors(self) -> None:
        """Raises TosaError when a finding is an error."""
        if self.errors:
            raise TosaError(self)

    def __repr__(self) -> str:
        first = f", first: {html.shortened(str(self.findings[0]), 120)}" if self.findings else ""
        return f"Report({self.verdict.name}, {self._count()}{first})"

    def _repr_html_(self) -> str:
        needs = "no target supports it" if self.needs is None else ", ".join(self.needs) or "none"
        facts = [("verdict", self.verdict.name), ("found", self._count()), ("needs", needs)]
        head = ("verdict", "rule", "where", "message") if self.findings else None
        rows = [[f.verdict.name, f.label, f.node, f.message] for f in self.findings]
        pairs = [(term, html.text(text)) for term, text in facts]
        return html.box("Validation", pairs, head, rows, noun="finding")

    def _count(self) -> str:
        return html.counted(len(self.findings), "finding")

    def __str__(self) -> str:
        lines = [f"{f.verdict.name}: {f}" for f in self.findings]
        return "\n".join(lines) if lines else "VALID"


class TosaError(ValueError):
    """The graph breaks a rule of the specification; `report` lists all findings."""

    def __init__(self, report: Report) -> None:
        self.report = report
        shown = [str(f) for f in report.errors[:20]]
        if len(report.errors) > len(shown):
            shown.append(f"and {len(report.errors) - len(shown)} more errors")
        super().__init__("\n".join(shown))

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle passes the message to `__init__`, not the report.
        return type(self), (self.report,), self.__dict__


class FormatError(ValueError):
    """The bytes are not a well-formed file of the format."""


class UnsupportedError(NotImplementedError):
    """The file or graph is legal, but uses something that tosajax does not have."""
