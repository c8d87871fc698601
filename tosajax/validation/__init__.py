"""Validation: whether a graph is legal, and whether a target supports it.

Structure is checked first, then each node against the operator table, then the rules of its
operator in `checks/`. All findings are collected. The rules rely on the table, so a node that fails
the table's checks skips them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.arguments.types import check_type
from tosajax.checks import Surroundings
from tosajax.graph import Graph, Node, declared_variables
from tosajax.graph.type_rows import needed_version
from tosajax.report import Finding, Report, Verdict
from tosajax.spec.target import Target, target_of
from tosajax.validation.needs import Need, smallest
from tosajax.validation.npu import npu_findings
from tosajax.validation.structure import OPEN, structure_findings, tensor_findings
from tosajax.validation.table import form_findings, input_findings, node_findings

__all__ = ["check_form", "refuse", "validate", "validate_formed"]


def validate(graph: Graph, target: Target | str | None = None) -> Report:
    """Checks a graph against the specification and a target (TOSA 1.0.1).

    Args:
      graph: any graph. Open dimensions are errors (see `tosajax.bind`); rules that are broken
        whatever their sizes are reported before them.
      target: the target, or its text ("PRO-INT@8K"); by default a target with all that tosajax
        supports, including the draft of TOSA 1.1, at level 8K.

    Returns:
      A report of all findings, and the version, profiles and extensions the graph needs.

    Raises:
      TypeError: an argument has the wrong type.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.FP32, (2,))
      >>> report = tosajax.validate(b.graph([b.op("TANH", x)]), "PRO-INT@8K")
      >>> report.verdict.name, report.needs
      ('ERROR', ('PRO-FP',))
      >>> print(report)
      ERROR: TANH 'tanh_1': input FP32, output FP32 needs PRO-FP, ... [tanh.profile]
    """
    check_type("graph", graph, Graph, "a Graph, as from tosajax.load")
    return _report(graph, target_of(target), formed=False)


def validate_formed(graph: Graph, target: Target) -> Report:
    """Validates a graph that passed `check_form`, or was derived from such a graph."""
    return _report(graph, target, formed=True)


def _report(graph: Graph, target: Target, *, formed: bool) -> Report:
    findings: list[Finding] = []
    needs: list[Need] = []
    variables = declared_variables(graph)
    for depth, part in _nested(graph):
        structure = [] if formed else list(structure_findings(part))
        findings += structure
        sizes = list(tensor_findings(part, target))
        findings += (finding for finding in sizes if finding.label != OPEN)
        around = Surroundings(part.subgraphs, variables, depth, target.limits.MAX_NESTING)
        for node in part.nodes if not structure else ():
            form = [] if formed else list(form_findings(node, part))
            findings += form or node_findings(node, part, around, target, needs)
        # Open dimensions come after the rules that are broken whatever the sizes are.
        findings += (finding for finding in sizes if finding.label == OPEN)
        if target.npu is not None and not any(f.verdict is Verdict.ERROR for f in findings):
            findings += npu_findings(part, around, target.npu)
    return Report(tuple(findings), smallest(needs), needed_version(graph))


def refuse(node: Node, graph: Graph, around: Surroundings) -> None:
    """Raises TosaError if a node is illegal whatever the shapes of its outputs."""
    findings = list(form_findings(node, graph))
    findings = findings or list(input_findings(node, graph.tensors, around))
    Report(tuple(findings)).raise_errors()


def _nested(graph: Graph, depth: int = 0) -> Iterator[tuple[int, Graph]]:
    """Yields the graph and all subgraphs, each with its nesting depth; 0 for the graph itself."""
    yield depth, graph
    for part in graph.subgraphs.values():
        yield from _nested(part, depth + 1)


def check_form(graph: Graph) -> None:
    """Checks the form of a graph, on which shape inference and all other checks rely.

    The form is the names, producers and order of tensors, and for each node the number and kinds
    (shape, tensor, attribute) of its arguments according to the operator table. Dimensions may be
    open.

    Raises:
      TosaError: the form is wrong.
    """
    findings: list[Finding] = []
    for part in graph.walk():
        structure = list(structure_findings(part))
        nodes = part.nodes if not structure else ()
        findings += structure or (f for node in nodes for f in form_findings(node, part))
    Report(tuple(findings)).raise_errors()
