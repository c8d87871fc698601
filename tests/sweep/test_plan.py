"""Plans describe the work by its settings, and compile nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import small_networks as small
from compilations import compiled_of

from tosajax import rewrite
from tosajax.sweep import Plan, Sweep, grid, of_graph
from tosajax.sweep import graphs as graphs_module
from tosajax.sweep import sweep as sweep_module
from tosajax.sweep.plan import Program

EXAMPLES = small.images(2), np.zeros(2, np.int32)


def test_a_plan_of_a_graph(monkeypatch: Any) -> None:
    """The plan lists settings by value; each structure is written once for all settings."""
    written = []
    digest_of = graphs_module.digest_of
    monkeypatch.setattr(graphs_module, "digest_of", lambda g: (written.append(g), digest_of(g))[1])
    weight = np.zeros((3, 3, 3, 2), np.int8)
    configs = grid(rounding=["single", "double"], act_bits=[None, 8, 4], weight_bits=[8, 4]) + grid(
        **{"acc1/weight": [weight, weight + 1]}
    )
    swept = Sweep(small.two_layers(), EXAMPLES, configs=configs)
    plans: list[Plan] = []
    # Small programs that convert arrays; none is a program of the network.
    assert compiled_of(lambda: plans.append(swept.plan())) < 5
    assert swept.compilations == 0
    # The model itself, and three structures: 8 bits change nothing in int8.
    assert len(written) == 3
    text = str(plans[0])
    assert text.splitlines()[:2] == [
        "14 settings: 0 finished, 14 to run",
        "3 programs to compile, by rounding, act_bits, weight_bits, acc1/weight; strategy 'loop' "
        "on 1 device, 2 examples and up to 14 settings at a time",
    ]
    assert text.splitlines()[3:] == [
        "  program 1: 8 settings, rounding single, double; act_bits as it is, 8; weight_bits 8, 4",
        "  program 2: 4 settings, rounding single, double; act_bits 4; weight_bits 8, 4",
        "  program 3: 2 settings, acc1/weight 2 of int8[3, 3, 3, 2]",
    ]
    found = {p.settings: p for p in plans[0].programs}
    assert found[4].axes == {
        "rounding": ("single", "double"), "act_bits": (4,), "weight_bits": (8, 4)
    }  # fmt: skip


def test_structures_that_differ_in_little_are_apart() -> None:
    """Outlines differ wherever files of the graphs do."""
    graph = small.two_layers()
    others = [
        graph,
        small.two_layers(weights=1),  # in constants alone
        small.two_layers(batch=-1),
        small.two_layers(names=("a", "b", "c", "d", "e")),
        rewrite.rounding(graph, "double"),
        rewrite.bits(graph, 4),
        rewrite.scale(graph, 16),
    ]
    subject = of_graph(graph)
    found = [subject._structure(other) for other in others]
    assert found[0] == found[1]
    assert len(set(found)) == len(others) - 1
    assert [of_graph(graph)._structure(other) for other in others] == found


def plan(programs: list[Program], **more: Any) -> Plan:
    options: dict[str, Any] = {"settings": 9, "finished": 2, "failed": {}, "failing": {}, **more}
    options |= {"batch": 1, "chunk": 1, "arrays_bytes": 0, "memory_bytes": 0, "devices": 2}
    return Plan(programs=tuple(programs), strategy="loop", **options)


@pytest.mark.parametrize(
    ("groups", "lines"),
    [
        ([[{}]], ["  program 1: 1 setting, no axis"]),
        (
            [[{"a": 1, "b": True}, {"a": 1.5, "b": True}], [{"a": 2, "b": True}]],
            [
                "  all programs: b true",
                "  program 1: 2 settings, a 1, 1.5",
                "  program 2: 1 setting, a 2",
            ],
        ),
        # The same values, in other combinations.
        (
            [[{"a": 1, "b": 1}, {"a": 2, "b": 2}], [{"a": 1, "b": 2}, {"a": 2, "b": 1}]],
            ["  program 1: 2 settings, a 1, 2; b 1, 2", "  program 2: 2 settings, a 1, 2; b 2, 1"],
        ),
        (
            [[{"a": n} for n in range(60)]],
            ["  program 1: 60 settings, a 0, 1, 2, 3, 4, 5, ... 59 (60 values)"],
        ),
        (
            [[{"a": n} for n in range(8)]],
            ["  program 1: 8 settings, a 0, 1, 2, 3, 4, 5, 6, 7"],
        ),
        ([[{"a": {"conv.*": 4}}]], ['  program 1: 1 setting, a {"conv.*": 4}']),
        (
            [[{"a": n}] for n in range(30)],
            [*(f"  program {n + 1}: 1 setting, a {n}" for n in range(20)), "  and 10 more"],
        ),
        (
            [[{"a": n}] for n in range(20)],
            [f"  program {n + 1}: 1 setting, a {n}" for n in range(20)],
        ),
    ],
)  # fmt: skip
def test_programs_by_their_values(groups: Any, lines: list[str]) -> None:
    found = str(plan([Program.of(group) for group in groups])).splitlines()
    assert found[0] == "9 settings: 2 finished, 7 to run"
    assert found[3:] == lines


@pytest.mark.parametrize(
    ("count", "most", "batch"), [(2, 4, 2), (4, 4, 4), (5, 4, 3), (9, 4, 3), (10, 4, 4), (3, 1, 1)]
)
def test_batches_are_as_equal_as_can_be(
    monkeypatch: Any, count: int, most: int, batch: int
) -> None:
    monkeypatch.setattr(sweep_module, "_BATCH", most)
    examples = small.images(count), np.zeros(count, np.int32)
    configs = grid(weight_bits=[8])
    assert Sweep(small.two_layers(), examples, configs=configs).plan().batch == batch
    # Examples that are only counted at their end come in full batches.
    assert Sweep(small.two_layers(), lambda: [examples], configs=configs).plan().batch == most


def test_a_batch_has_an_example_however_large(monkeypatch: Any) -> None:
    monkeypatch.setattr(sweep_module, "_CACHE_BYTES", 1)
    assert Sweep(small.two_layers(), EXAMPLES, configs=grid(weight_bits=[8])).plan().batch == 1


def test_memory_is_in_mebibytes() -> None:
    found = dataclasses.replace(plan([]), arrays_bytes=3 << 19, memory_bytes=5 << 20)
    assert str(found).splitlines()[2] == "1.50 MiB for each setting, about 5 MiB at a time"


def test_the_arrays_of_a_setting_are_those_that_others_do_not_share() -> None:
    weight = np.zeros((3, 3, 3, 2), np.int8)
    one = Sweep(small.two_layers(), EXAMPLES, configs=grid(**{"acc1/weight": [weight]}))
    two = Sweep(small.two_layers(), EXAMPLES, configs=grid(**{"acc1/weight": [weight, weight + 1]}))
    assert one.plan().arrays_bytes == 0
    assert two.plan().arrays_bytes == weight.nbytes


@pytest.mark.parametrize(("strategy", "at_a_time"), [("loop", 1), ("vmap", 3)])
def test_memory_is_of_arrays_and_of_the_tensors_of_settings_at_a_time(
    strategy: str, at_a_time: int
) -> None:
    weight = np.zeros((3, 3, 3, 2), np.int8)
    configs = grid(**{"acc1/weight": [weight, weight + 1, weight + 2]})
    swept = Sweep(small.two_layers(), EXAMPLES, configs=configs, strategy=strategy)
    found = swept.plan()
    assert (found.batch, found.chunk) == (2, 3)
    tensors = swept.subject.bytes_per_example() * 2 * at_a_time
    assert tensors > 0
    assert found.memory_bytes == 3 * weight.nbytes + tensors


def test_settings_that_fail() -> None:
    found = str(plan([], failed={3: "E: no"}, failing={3: {"a": 1, "b": "x"}}))
    assert found.splitlines()[-1] == "  setting 3 fails (a 1; b x): E: no"
