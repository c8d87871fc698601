"""Reports: findings by rule, and their text in short."""

from __future__ import annotations

import pytest

from tosajax import Finding, Report, Verdict


def finding(op: str, name: str, rule: str, message: str = "is wrong") -> Finding:
    return Finding(Verdict.ERROR, f"{op.lower()}.{rule}", message, f"{op} {name!r}")


def needing(op: str, name: str, need: str) -> Finding:
    return finding(op, name, "profile", f"output {name} needs {need}, target is PRO-INT@8K")


def test_findings_of_one_rule_are_one_group():
    first, other = finding("CONV2D", "a", "e8"), finding("CONV2D", "b", "e3")
    again = finding("CONV2D", "c", "e8", "is wrong as well")
    unpredictable = Finding(Verdict.UNPREDICTABLE, "conv2d.e8", "is wrong", "CONV2D 'a'")
    groups = Report((first, other, again, unpredictable)).grouped()
    assert groups == [(first, again), (other,), (unpredictable,)]


def test_operators_that_need_the_same_of_a_target_are_one_group():
    floats = [needing("CONST", "a", "PRO-FP"), needing("ADD", "b", "PRO-FP")]
    groups = Report((*floats, needing("ADD", "c", "EXT-INT16"))).grouped()
    assert [len(group) for group in groups] == [2, 1]
    assert [group[0].rule for group in groups] == [
        "needs PRO-FP, target is PRO-INT@8K",
        "needs EXT-INT16, target is PRO-INT@8K",
    ]


def test_many_findings_of_a_rule_are_counted_with_an_example_of_each_operator():
    found = [needing("CONST", f"c{n}", "PRO-FP") for n in range(30)]
    found += [needing("ADD", f"a{n}", "PRO-FP") for n in range(5)]
    found.append(finding("MUL", "m", "e1"))
    assert Report(tuple(found)).brief().splitlines() == [
        "ERROR: needs PRO-FP, target is PRO-INT@8K: 35 times (30 CONST, 5 ADD)",
        f"  {found[0]}",
        f"  {found[1]}",
        f"  {found[30]}",
        "  and 32 more",
        "ERROR: MUL 'm': is wrong [mul.e1]",
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 5, 6])
def test_a_few_findings_are_all_there(count):
    report = Report(tuple(finding("ADD", f"a{n}", "e1") for n in range(count)))
    lines = report.brief().splitlines()
    assert len(lines) <= max(count, 5)
    assert (lines == str(report).splitlines()) is (0 < count <= 5)


def test_a_finding_of_the_graph_has_no_operator():
    report = Report(tuple(Finding(Verdict.ERROR, "graph.cycle", f"t{n}") for n in range(6)))
    assert report.brief().splitlines()[:2] == [
        "ERROR: graph.cycle: 6 times (6)",
        "  t0 [graph.cycle]",
    ]
