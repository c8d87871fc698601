"""Broken modules end in an error of their own, soon, and in little memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from limits import most_steps, no_hang
from spirv_assembler import assemble
from spirv_modules import module

from tosajax import Builder, DType, validate
from tosajax.io import spirv
from tosajax.report import FormatError, UnsupportedError

_DATA = Path(__file__).parent / "data"
_CONSTANTS = {"conv_int8": {0: np.zeros((4, 3, 3, 3), np.int8)}, "extra": {}}
_BYTES = 500 << 20
_COUNTS = [60, pytest.param(5000, marks=pytest.mark.slow)]


@contextmanager
def _bounded() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < _BYTES


def _error(content: bytes, name: str) -> str:
    """What reading content finds, "" for nothing; other errors than these escape."""
    try:
        validate(spirv.read(content, _CONSTANTS[name]))
    except (FormatError, UnsupportedError) as error:
        return str(error)
    return ""


def _loads(content: bytes, name: str) -> bool:
    with no_hang():
        message = _error(content, name)
    assert len(message) < 1000
    return not message


def _broken(content: bytes, generator: random.Random) -> bytes:
    """The content with a few words or bytes changed, or some instructions left out or repeated."""
    broken = bytearray(content)
    for _ in range(generator.choice([1, 1, 2, 4])):
        at = generator.randrange(len(broken))
        if generator.random() < 0.5:
            number = generator.choice([0, 1, 2, 0x7FFFFFFF, 0xFFFFFFFF, generator.randrange(100)])
            struct.pack_into("<I", broken, at & ~3, number)
        else:
            broken[at] = generator.randrange(256)
    if generator.random() < 0.2:
        first, last = sorted(4 * generator.randrange(5, len(content) // 4) for _ in range(2))
        part = b"" if generator.random() < 0.5 else bytes(broken[first:last]) * 2
        broken[first:last] = part
    return bytes(broken)


@pytest.mark.parametrize("name", _CONSTANTS)
def test_truncated(name):
    content = (_DATA / f"{name}.spv").read_bytes()
    with _bounded():
        assert not any(_loads(content[:end], name) for end in range(0, len(content), 4))
        assert not any(_loads(content[:end], name) for end in range(1, len(content), 64))


@pytest.mark.parametrize("name", _CONSTANTS)
@pytest.mark.parametrize("count", _COUNTS)
def test_mutations(name, count):
    content = (_DATA / f"{name}.spv").read_bytes()
    generator = random.Random(f"{name}/{count}")
    loaded = [_loads(_broken(content, generator), name) for _ in range(count)]
    assert 0 < sum(loaded) < count


@pytest.mark.parametrize("number", [0, 1, 0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_every_word_replaced(number):
    """Among the words are all ids, lengths, numbers and opcodes."""
    content = (_DATA / "extra.spv").read_bytes()
    for at in range(0, len(content), 4):
        _loads(content[:at] + struct.pack("<I", number) + content[at + 4 :], "extra")


def test_noise():
    generator = np.random.default_rng(3)
    header = assemble("")[:20]
    for size in (4, 400, 40_000):
        assert not _loads(header + generator.bytes(size), "extra")


# Few words that stand for much.


def _fails(text: str, message: str, kind: type[Exception] = UnsupportedError) -> None:
    content = assemble(text)
    with _bounded(), no_hang(), pytest.raises(kind, match=message):
        spirv.read(content)


_HUGE = "%h = OpConstant %i32 {}\n%shape = OpConstantComposite %array2 %h %h\n"
_HUGE += "%huge = OpTypeTensorARM %f32 %2 %shape\n"


@pytest.mark.parametrize("size", [1 << 14, 1 << 20, (1 << 32) - 1])
@pytest.mark.parametrize(
    "kind", ["OpConstantNull %huge", "OpConstantCompositeReplicateEXT %huge %a"]
)
def test_equal_elements_without_end(size, kind):
    declared = f"%a = OpConstant %f32 1.5f\n{_HUGE.format(size)}%k = {kind}"
    _fails(module(declared=declared), "the constants within the module have more than 268435456")


def test_list_without_end():
    declared = "%n = OpConstant %i32 -1\n%l = OpTypeArray %i32 %n\n%k = OpConstantNull %l"
    _fails(module(declared=declared), "have more than 268435456 bytes")


def test_many_constants_of_many_equal_elements():
    many = "\n".join(f"%k{i} = OpConstantNull %huge" for i in range(3000))
    _fails(module(declared=_HUGE.format(1 << 12) + many), "have more than 268435456 bytes")


def test_parts_shared_without_end():
    """Each of a few composites has the one before a thousand times."""
    lines, dims = ["%k0 = OpConstantNull %row"], ["%3"]
    lines.append("%n = OpConstant %i32 1000")
    for depth in range(1, 5):
        dims.insert(0, "%n")
        rank = len(dims)
        lines += [
            f"%r{rank} = OpConstant %i32 {rank}",
            f"%a{rank} = OpTypeArray %i32 %r{rank}",
            f"%s{rank} = OpConstantComposite %a{rank} {' '.join(dims)}",
            f"%t{rank} = OpTypeTensorARM %f32 %r{rank} %s{rank}",
            f"%k{depth} = OpConstantComposite %t{rank} {f'%k{depth - 1} ' * 1000}",
        ]
    _fails(module(declared="\n".join(lines)), "have more than 268435456 bytes")


def test_constants_of_some_size_are_read():
    declared = _HUGE.format(4096) + "%k = OpConstantNull %huge\n"
    body = "%y = OpExtInst %huge %tosa 14 %x %k"
    graph = spirv.read(assemble(module(body, declared, input="%huge", output="%huge")))
    assert [t.shape for t in graph.tensors.values()] == [(4096, 4096)] * 3


def test_ranks_without_end():
    declared = "%n = OpConstant %i32 0x7FFFFFFF\n%open = OpTypeTensorARM %f32 %n"
    _fails(module(declared=declared), "the rank is 2147483647, of which TOSA has at most 32")


def test_nodes_in_a_long_chain():
    lines = [f"%n{i + 1} = OpExtInst %t %tosa 31 %n{i}" for i in range(20_000)]
    lines[0] = "%n1 = OpExtInst %t %tosa 31 %x"
    body = "\n".join([*lines, "%y = OpExtInst %t %tosa 31 %n20000"])
    graph = spirv.read(assemble(module(body)))
    assert len(graph.nodes) == 20_001


def test_equal_names_without_end():
    """Every tensor of many has the same name, or one that others are given."""
    count = 4000
    body = "\n".join(f"%n{i} = OpExtInst %t %tosa 31 %x" for i in range(count))
    names = "\n".join(f'OpName %n{i} "{"a" if i % 2 else f"a_{i // 2}"}"' for i in range(count))
    content = assemble(module(body + "\n%y = OpExtInst %t %tosa 31 %x", names=names))
    with most_steps(500 * count):
        graph = spirv.read(content)
    assert len(graph.tensors) == count + 2


def test_reading_is_fast():
    """Of constants outside, the work is that of copying them, not of a loop over elements."""
    b = Builder()
    x = b.input("x", DType.FP32, (2048, 2048))
    values = np.random.default_rng(0).random((2048, 2048), np.float32)
    content, constants = spirv.to_bytes(b.graph([b.op("ADD", x, b.const(values, DType.FP32))]))
    with most_steps(20_000):
        spirv.read(content, constants)
