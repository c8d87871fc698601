"""Results of validation: verdicts, findings, reports, and the errors raised from them."""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tosajax import html
from tosajax.versions import V1_0, Version


class Verdict(enum.IntEnum):
    """The three results a graph may have ("TOSA Graph Compliance", TOSA 1.0.1).

    Example:
      >>> import tosajax
      >>> max(tosajax.Verdict.VALID, tosajax.Verdict.UNPREDICTABLE).name
      'UNPREDICTABLE'
    """

    VALID = 0
    UNPREDICTABLE = 1
    ERROR = 2


@dataclasses.dataclass(frozen=True)
class Finding:
    """One broken rule: its place, the value found and the value expected.

    Example:
      >>> import tosajax
      >>> error = tosajax.Verdict.ERROR
      >>> print(tosajax.Finding(error, "conv2d.e8", "bias has 3 channels", "CONV2D 'y'"))
      CONV2D 'y': bias has 3 channels [conv2d.e8]
    """

    verdict: Verdict
    label: str  # names the rule: "conv2d.e8", "graph.cycle"
    message: str  # argument or tensor, found, wanted
    node: str | None = None  # "CONV2D 'layer3/conv'"

    @property
    def rule(self) -> str:
        """The key of findings of one kind: the label, or for targets the missing support."""
        if not self.label.endswith((".profile", ".version")):
            return self.label
        _, needs, target = self.message.partition(" needs ")
        return f"needs {target}" if needs else self.label

    @property
    def operator(self) -> str:
        """The operator of the node, such as "CONV2D"; "" for findings about the whole graph."""
        return (self.node or "").partition(" ")[0]

    def __str__(self) -> str:
        place = f"{self.node}: " if self.node else ""
        return f"{place}{self.message} [{self.label}]"


@dataclasses.dataclass(frozen=True)
class Report:
    """Every finding of a validation, and the needs of the graph.

    Args:
      findings: broken rules.
      needs: profiles and extensions that support all operators; None if no target supports one of
        them.
      version: the first version of the specification that has every part of the graph.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.FP32, (2,))
      >>> report = tosajax.validate(b.graph([b.op("TANH", x)]), "PRO-INT")
      >>> report.errors[0].label
      'tanh.profile'
      >>> report.needs
      ('PRO-FP',)
    """

    findings: tuple[Finding, ...] = ()
    needs: tuple[str, ...] | None = None
    version: Version = V1_0

    @property
    def verdict(self) -> Verdict:
        return max((f.verdict for f in self.findings), default=Verdict.VALID)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.verdict is Verdict.ERROR)

    def grouped(self) -> list[tuple[Finding, ...]]:
        """The findings by rule, in the order in which each rule is first broken.

        Operators that the target does not support are grouped by the support they need.
        """
        groups: dict[tuple[Verdict, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.verdict, finding.rule), []).append(finding)
        return [tuple(group) for group in groups.values()]

    def brief(self, most: int = 3) -> str:
        """A line for each finding; counts and a few examples for a rule that many nodes break."""
        return "\n".join(line for group in self.grouped() for line in _brief(group, most))

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
        facts += [] if self.version == V1_0 else [("version", f"TOSA {self.version}")]
        head = ("verdict", "rule", "where", "message") if self.findings else None
        rows = [[f.verdict.name, f.label, f.node, f.message] for f in self.findings]
        pairs = [(term, html.text(text)) for term, text in facts]
        return html.box("Validation", pairs, head, rows, noun="finding")

    def _count(self) -> str:
        return html.counted(len(self.findings), "finding")

    def __str__(self) -> str:
        lines = [f"{f.verdict.name}: {f}" for f in self.findings]
        return "\n".join(lines) if lines else "VALID"


def _brief(group: Sequence[Finding], most: int) -> Iterator[str]:
    """The lines of findings that share a rule."""
    first, count = group[0], len(group)
    if count <= most + 2:  # the summary would have as many lines
        yield from (f"{f.verdict.name}: {f}" for f in group)
        return
    operators = Counter(f.operator for f in group)
    counts = ", ".join(f"{n} {op}".rstrip() for op, n in operators.most_common())
    yield f"{first.verdict.name}: {first.rule}: {count} times ({counts})"
    seen: Counter[str] = Counter()
    turns = [seen.update([f.operator]) or seen[f.operator] for f in group]
    shown = sorted(range(count), key=turns.__getitem__)[:most]  # one of each operator before two
    yield from (f"  {group[at]}" for at in sorted(shown))
    yield f"  and {count - most} more"


class TosaError(ValueError):
    """The graph breaks a rule of the specification; `report` lists all findings.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.FP32, (2,))
      >>> try:
      ...     tosajax.compile(b.graph([b.op("TANH", x)]), "PRO-INT")
      ... except tosajax.TosaError as error:
      ...     print(error.report.errors[0].label)
      tanh.profile
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        shown = [str(f) for f in report.errors[:20]]
        if len(report.errors) > len(shown):
            shown.append(f"and {len(report.errors) - len(shown)} more errors")
        super().__init__("\n".join(shown))

    def __reduce__(self) -> tuple[Any, ...]:
        # Without it pickle passes the message, not the report, to `__init__`.
        return type(self), (self.report,), self.__dict__


class FormatError(ValueError):
    """The bytes are not a well-formed file of the format.

    Example:
      >>> import tosajax
      >>> try:
      ...     tosajax.load(b"{}")
      ... except tosajax.FormatError:
      ...     print("not a well-formed file")
      not a well-formed file
    """


class UnsupportedError(NotImplementedError):
    """The file or graph is legal, but uses something that tosajax does not have.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> try:
      ...     tosajax.export(jnp.linalg.qr, jnp.ones((2, 2)))
      ... except tosajax.UnsupportedError:
      ...     print("TOSA does not have it")
      TOSA does not have it
    """
