"""Tables of results: text during a run, and a page of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks import machine, ours, targets
from benchmarks.results import Judged, Machine, Measured, Measurement, Results

_GROUPS = {
    "networks": "Generated networks",
    "operators": "Operators",
    "files": "Networks of files",
}
_HEAD = """\
# Performance

Made by `python -m benchmarks.run`; not to be edited. A ratio is the time of another program for the
same work, divided by that of tosajax: the median of rounds in which all take turns within one
process, with the quartiles in brackets. The outputs were compared before anything was timed: on
integers tosajax, plain, Arm and IREE must agree to the last bit.

- **JAX f32**: the same network in float32, with depthwise convolutions as sums of shifted slices;
  or, **XLA depthwise**, as XLA's own grouped convolution. On accelerators also **JAX bf16**.
- **plain**: each TOSA operator in the simplest JAX, with int32 convolutions.
- **Arm**: the reference model of tosa-tools, by its Python binding, the whole batch in one call.
- **IREE**: with its options for speed, on all cores.
- **LiteRT**: with XNNPACK. **onnxruntime**: QLinearConv, MatMulInteger. Both round differently.
- Networks named **f32** are TOSA graphs of float32; all others are of int8.
- Inputs are in place before the clock starts; the results of a call are ready when it stops.
"""


def work_table(name: str, result: Measurement, limits: Mapping[str, float]) -> str:
    """One work, as text: a line for each contender."""
    header = ["", "time", "rate", "of limit", "ratio", "processor", "compile", "agreement"]
    rows = [header]
    for contender, found in result["contenders"].items():
        rows.append(
            [
                contender,
                _time(found["seconds"]),
                _rate(result, found),
                _share(result, found, limits),
                _ratio(found),
                f"{found['cpu_ratio']:.2f}",
                _time(found["compile"]),
                found["agreement"],
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    notes = [f"left out: {who} ({why})" for who, why in result["left_out"].items()]
    return "\n".join([name, *(f"  {line.rstrip()}" for line in (*lines, *notes)), ""])


def page(results: Results, runs: Mapping[str, Judged]) -> str:
    """The page; the same results give the same page.

    Args:
      results: of a run.
      runs: the newest of each kind of processor, this one included.
    """
    parts = [_HEAD, *_machine_part(results), *_targets_part(runs)]
    for group, title in _GROUPS.items():
        parts += _group_part(results, group, title)
    parts += _starts_part(results)
    parts += _left_out_part(results)
    return "\n".join(parts)


def machine_lines(description: Machine) -> list[str]:
    """The machine and the versions behind the numbers."""
    flags = ", ".join(description["flags"]) or "none of those that matter"
    packages = ", ".join(f"{n} {v}" for n, v in description["packages"].items())
    lines = [
        f"{description['cpu']}, {description['cores']} cores, {description['memory_gib']} GiB, "
        f"{description['system']}",
        f"extensions: {flags}",
        f"Python {description['python']}, {packages}; JAX on {description['backend']}",
    ]
    return [*lines, f"kind, by the fastest products of int8: {machine.kind(description)}"]


def _machine_part(results: Results) -> Iterator[str]:
    yield f"## Machine, {results['date']}{', quick run' if results['quick'] else ''}\n"
    yield from (f"- {line}" for line in machine_lines(results["machine"]))
    limits = results["limits"]
    if limits:
        yield (
            f"- best rates measured here: int8 dot {limits['int8'] / 1e9:,.0f} GOP/s (tosajax, "
            f"1024x1024x1024), float32 dot {limits['float32'] / 1e9:,.0f} GFLOP/s (JAX), copy "
            f"{limits['copy'] / 1e9:.1f} GB/s (read and written)"
        )
    if results["missing"]:
        yield f"- not installed or not found: {', '.join(results['missing'])}"
    if results["interrupted"]:
        yield "- the run was interrupted; this page has the works it measured"
    yield ""


def _targets_part(runs: Mapping[str, Judged]) -> Iterator[str]:
    """A column for each kind of processor that was measured."""
    yield "## Targets, by kind of processor\n"
    yield from (f"- {kind}: {run['processor']}, {run['date']}" for kind, run in runs.items())
    yield ""
    names = dict.fromkeys(name for run in runs.values() for name in run["verdicts"])
    rows = [[name, *(run["verdicts"].get(name, "") for run in runs.values())] for name in names]
    yield from _markdown([["target", *runs], *rows])


def judged(results: Results) -> Judged:
    """What stays of a run when the page is of another."""
    about = results["machine"]
    return {
        "date": results["date"],
        "processor": f"{about['cpu']}, {about['cores']} cores",
        "verdicts": {v.target.name: result(v) for v in targets.judge(results)},
    }


def result(verdict: targets.Verdict) -> str:
    """What was found and wanted, and whether it passes."""
    if verdict.found is None:
        return verdict.status.value
    found = f"{verdict.found:.2f} {verdict.target.unit}"
    return f"{found}, {verdict.target.wanted}: {verdict.status.value}"


def _group_part(results: Results, group: str, title: str) -> Iterator[str]:
    works = {n: w for n, w in results["works"].items() if w["group"] == group}
    if not works:
        return
    yield f"## {title}\n"
    yield from _ours_table(works, results["limits"])
    yield "Ratios of time:\n"
    yield from _matrix(works, _ratio)
    yield "Ratios of processor time, all threads:\n"
    yield from _matrix(works, lambda found: f"{found['cpu_ratio']:.2f}")
    yield "Time to compile and run once:\n"
    yield from _matrix(works, lambda found: _time(found["compile"]), ours_too=True)
    yield "Agreement with tosajax:\n"
    yield from _matrix(works, lambda found: found["agreement"])


def _ours_table(works: Mapping[str, Measurement], limits: Mapping[str, float]) -> Iterator[str]:
    rows = [["work", "setting", "time", "rate", "of limit"]]
    for name, work in works.items():
        for setting in ours.SETTINGS:
            found = work["contenders"].get(setting)
            if found is not None:
                cells = _time(found["seconds"]), _rate(work, found), _share(work, found, limits)
                rows.append([name, setting, *cells])
    yield from _markdown(rows)


def _matrix(
    works: Mapping[str, Measurement], cell: Callable[[Measured], str], *, ours_too: bool = False
) -> Iterator[str]:
    """A row for each work, a column for each contender that did any of them."""
    names = list(dict.fromkeys(n for w in works.values() for n in w["contenders"]))
    shown = [n for n in names if ours_too or n != ours.FIRST]
    rows = [["work", *shown]]
    for name, work in works.items():
        found = work["contenders"]
        rows.append([name, *(cell(found[n]) if n in found else "" for n in shown)])
    yield from _markdown(rows)


def _starts_part(results: Results) -> Iterator[str]:
    if not results["starts"]:
        return
    yield "## Process start to first result\n"
    yield "Each process imports JAX and this package, even if the contender does not need them.\n"
    rows = [["work", "contender", "time", "peak memory"]]
    for work, found in results["starts"].items():
        for name, numbers in found.items():
            peak = numbers["peak_mib"]
            memory = "" if peak is None else f"{peak:.0f} MiB"
            rows.append([work, name, _time(numbers["seconds"]), memory])
    yield from _markdown(rows)


def _left_out_part(results: Results) -> Iterator[str]:
    lines = [f"- {name}: {why}" for name, why in results["left_out"].items()]
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, work in results["works"].items():
        for contender, why in work["left_out"].items():
            reasons.setdefault((contender, why), []).append(name)
    lines += [f"- {who} ({why}): {', '.join(names)}" for (who, why), names in reasons.items()]
    if lines:
        yield "## Left out\n"
        yield from lines
        yield ""


def _markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if number == 0:
            yield "|---" * len(row) + "|"
    yield ""


def _ratio(found: Measured) -> str:
    low, middle, high = found["ratio"]
    return f"{_number(middle)} ({_number(low)}-{_number(high)})"


def _number(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _rate(work: Measurement, found: Measured) -> str:
    """Examples a second, or operations, or bytes read and written."""
    if work["batch"] is not None:
        return f"{work['batch'] / found['seconds']:,.0f}/s"
    if work["macs"]:
        return f"{2 * work['macs'] / found['seconds'] / 1e9:,.1f} GOP/s"
    return f"{work['bytes'] / found['seconds'] / 1e9:.2f} GB/s"


def _share(work: Measurement, found: Measured, limits: Mapping[str, float]) -> str:
    """The rate as a share of the machine's best: of dots where there are any, else of copying."""
    if not limits:
        return ""
    if work["macs"]:
        best = limits["int8" if work["is_exact"] else "float32"]
        return f"{2 * work['macs'] / found['seconds'] / best:.1%} of dot"
    return f"{work['bytes'] / found['seconds'] / limits['copy']:.1%} of copy"
