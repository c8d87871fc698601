"""Damaged files end in one of our errors or in a graph, soon and in little memory.

TOSAJAX_MUTATIONS=500 damages each file as many times; by default it is fewer.
"""

from __future__ import annotations

import itertools
import os
import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from limits import no_hang
from old_graphs import CASES, NOT_IN_FILES, legal, nested, to_flatbuffer, to_json

import tosajax
from tosajax import FormatError, TosaError, UnsupportedError, io
from tosajax.io.pre_1_0.schema import LAYOUTS

MUTATIONS = int(os.environ.get("TOSAJAX_MUTATIONS", "60"))
_BYTES = 64 << 20
VERSIONS = [*LAYOUTS]


def survives(content: bytes) -> bool:
    """Whether damaged content is still a graph; anything but our errors escapes."""
    try:
        tosajax.validate(io.load(content))
    except (FormatError, UnsupportedError, TosaError):
        return False
    return True


@contextmanager
def in_little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < _BYTES
    finally:
        tracemalloc.stop()


def content_of(version: tuple[int, int], form: str) -> bytes:
    """A file with a region for each operator, of the first types that the version has."""
    root = nested(legal("CONV2D", ("INT8", "INT8", "INT32")), version)
    known = LAYOUTS[version].op.numbers
    seen = set()
    for number, (op, row) in enumerate(CASES):
        if op in seen or op in NOT_IN_FILES or op not in known or "SHAPE" in row:
            continue
        seen.add(op)
        old = legal(op, row)
        if old.subgraphs or (op == "DIM" and version == (0, 60)):
            continue
        (region,) = nested(old, version)["regions"]
        root["regions"].append({**region, "name": f"{op}-{number}"})
    write = to_flatbuffer if form == "flatbuffer" else to_json
    return write(root, version)


@pytest.fixture(scope="module", params=[(v, f) for v in VERSIONS for f in ("flatbuffer", "json")],
                ids=lambda p: f"{p[0][0]}.{p[0][1]}-{p[1]}")  # fmt: skip
def content(request) -> bytes:
    return content_of(*request.param)


def test_whole_files_survive(content):
    with no_hang():
        assert survives(content)


def test_truncated(content):
    step = 64 if MUTATIONS >= 500 else 64 * (len(content) // 64 // MUTATIONS + 1)
    ends = [*range(0, len(content) - 64, step), len(content) // 2]
    for end in ends:
        with no_hang():
            assert not survives(content[:end])


def test_random_mutations(content):
    generator = random.Random(len(content))
    survived = 0
    for number in range(MUTATIONS):
        damaged = bytearray(content)
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(8, len(damaged))] = generator.randrange(256)
        with no_hang():
            if number < 5:
                with in_little_memory():
                    survived += survives(bytes(damaged))
            else:
                survived += survives(bytes(damaged))
    assert survived < MUTATIONS


@pytest.mark.parametrize("number", [0, 0x7FFFFFFF, 0xFFFFFFFF, 0x40000000])
def test_words_replaced(number):
    """Among the words are offsets, counts, dimensions and attributes."""
    content = content_of((0, 80), "flatbuffer")
    words = range(8, len(content) - 3, 4)
    generator = random.Random(number)
    for at in generator.sample(words, min(MUTATIONS, len(words))):
        damaged = bytearray(content)
        struct.pack_into("<I", damaged, at, number)
        with no_hang():
            survives(bytes(damaged))


@pytest.mark.parametrize("number", [-1, 0, 1, (1 << 31) - 1, -(1 << 31)])
@pytest.mark.parametrize("op", sorted({op for op, _ in CASES if op not in NOT_IN_FILES}))
def test_attributes_replaced(op, number):
    """Lists of one such number, and the number in the place of each one."""
    row = next(row for name, row in CASES if name == op)
    root = nested(legal(op, row))
    *_, last = root["regions"][0]["blocks"][0]["operators"]
    for name, value in dict(last.get("attribute") or {}).items():
        if (
            not isinstance(value, list | int)
            or isinstance(value, bool)
            or name in ("mode", "accum_dtype")
        ):
            continue
        short = op in ("RESIZE", "TABLE")
        own = max(min(number, 32767), -32768) if short else number
        for other in ([own], [own] * 3, []) if isinstance(value, list) else (own,):
            last["attribute"][name] = other
            with no_hang():
                survives(to_flatbuffer(root))
        last["attribute"][name] = value


def test_dimensions_replaced():
    """Shapes whose sizes no memory could hold."""
    for op, row in CASES:
        if op in NOT_IN_FILES:
            continue
        root = nested(legal(op, row))
        for tensor in root["regions"][0]["blocks"][0]["tensors"]:
            own = tensor["shape"]
            tensor["shape"] = [(1 << 31) - 1] * len(own)
            with no_hang():
                survives(to_flatbuffer(root))
            tensor["shape"] = own


def test_deep_nesting_of_json():
    for opening in (b"[", b'{"regions":['):
        with no_hang():
            assert not survives(
                b'{"version":{"_major":0,"_minor":80},"regions":' + opening * 100_000
            )


def test_graphs_that_lead_to_many():
    """Each of 30 regions leads to both of the next two: some 2 ** 30 ways through them."""
    operator = {"op": LAYOUTS[0, 80].op.numbers["COND_IF"], "attribute_type": 14}
    block: dict = {"tensors": [], "inputs": [], "outputs": []}
    names = [[f"{side}{i}" for side in "ab"] for i in range(31)]
    regions = [{"name": "main", "blocks": [block | {"operators": [_branch(operator, names[0])]}]}]
    for here, after in itertools.pairwise(names):
        regions += [
            {"name": name, "blocks": [block | {"operators": [_branch(operator, after)]}]}
            for name in here
        ]
    regions += [{"name": name, "blocks": [block]} for name in names[-1]]
    version = {"_major": 0, "_minor": 80, "_patch": 0, "_draft": False}
    with no_hang():
        assert not survives(to_flatbuffer({"version": version, "regions": regions}))


def _branch(operator: dict, names: list[str]) -> dict:
    then_branch, else_branch = names
    return {**operator, "attribute": {"then_branch": then_branch, "else_branch": else_branch}}
