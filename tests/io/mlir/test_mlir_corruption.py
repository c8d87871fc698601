"""Broken MLIR text ends in a FormatError or UnsupportedError, soon, and in little memory."""

from __future__ import annotations

import os
import random
import tracemalloc

import pytest
from limits import no_hang

from tosajax.io import mlir
from tosajax.report import FormatError, TosaError, UnsupportedError

pytest.importorskip("xdsl")

_COUNT = int(os.environ.get("TOSAJAX_MUTATIONS", "40"))  # of each sample
_BYTES = 100 << 20
_STEMS = (
    "allops",
    "allops.generic",
    "allops.strictprops_llvm24oct",
    "types",
    "types.generic",
    "pre10_dialect_llvm19",
    "pre10_dialect_llvm19.generic",
    "cf",
    "fp32_convnet.generic",
    "conv_int8.tosa",
)
# What mutations put into a text.
_PIECES = [
    '"',
    "(",
    ")",
    "{",
    "}",
    "<",
    ">",
    "[",
    "]",
    ",",
    ":",
    "->",
    "-",
    "=",
    "#",
    "!",
    "^",
    "@",
    "%",
    "%0",
    "tensor<",
    "dense<",
    "array<",
    "opaque<",
    "loc(",
    "0x",
    "0x1:f32",
    "?x",
    "*x",
    "99999999999999999999",
    "//",
    "{-#",
    "#-}",
    "\\",
    "\\q",
    "tosa.add",
    "i64",
    "f8E4M3FN",
    "!quant.uniform<",
    "dense_resource<w>",
]


def _is_read(content: bytes | str) -> bool:
    """Whether the content is read; other errors escape."""
    with no_hang():
        try:
            mlir.read_text(content)
            message = ""
        except (FormatError, UnsupportedError, TosaError) as error:
            message = str(error)
    assert len(message) < 1000
    return not message


def _mutated(content: bytes, random_: random.Random) -> bytes:
    broken = bytearray(content)
    for _ in range(random_.choice([1, 1, 1, 2, 3])):
        at, other = random_.randrange(len(broken)), random_.randrange(len(broken))
        size = random_.randint(1, 40)
        match random_.randrange(8):
            case 0:
                broken[at] = random_.randrange(256)
            case 1:
                broken[at:at] = random_.choice(_PIECES).encode()
            case 2:
                del broken[at : at + size]
            case 3:
                broken[at:at] = broken[other : other + size]
            case 4:
                broken[at : at + size] = broken[other : other + size]
            case _:  # a digit for a digit, which often leaves the text whole
                digits = [i for i, c in enumerate(broken) if chr(c).isdigit()]
                broken[random_.choice(digits)] = random_.choice(b"0123456789")
    return bytes(broken)


@pytest.mark.parametrize("stem", _STEMS)
def test_truncated(stem, sample):
    content = sample(f"{stem}.mlir")
    ends = range(0, len(content.rstrip()), 64)
    assert not any(_is_read(content[:end]) for end in ends[:: 1 if _COUNT >= 500 else 3])


@pytest.mark.parametrize("stem", _STEMS)
def test_mutated(stem, sample):
    content = sample(f"{stem}.mlir")
    random_ = random.Random(stem)
    read = [_is_read(_mutated(content, random_)) for _ in range(_COUNT)]
    assert 0 < sum(read) < _COUNT


def _function(body: str, ends: str = "%a: tensor<2xf32>, %c: tensor<1xi1>") -> str:
    return f"func.func @main({ends}) {{\n{body}\nreturn\n}}"


def _typed(kind: str) -> str:
    return _function(f'"tosa.x"() : () -> {kind}')


def _held(attribute: str) -> str:
    return _function(f'"tosa.x"() {{a = {attribute}}} : () -> ()')


def _placed(location: str) -> str:
    return _function(f'"tosa.x"() : () -> () loc({location})')


def _constant(body: str, kind: str) -> str:
    return _function(f'%0 = "tosa.const"() <{{values = dense<{body}> : {kind}}}> : () -> {kind}')


_N = 30_000
_REGIONS = '%0 = "tosa.cond_if"(%c) ({' * 3000 + '"tosa.yield"() : () -> ()'
_DIGITS = "9" * 6000
_ENDLESS = {
    "parentheses": "(" * _N,
    "braces": "{" * _N,
    "modules": "module {" * _N,
    "function types": _typed("((" * _N),
    "tensors": _typed("tensor<" * _N),
    "tuples": _typed("tuple<" * _N),
    "vectors": _typed("vector<" + "[" * _N),
    "dialect types": _typed("!quant.uniform<" + "<" * _N),
    "arrays": _held("[" * _N),
    "dictionaries": _held("{a = " * _N),
    "minus signs": _held("-" * _N + "1"),
    "affine maps": _held("affine_map<(" + "(" * _N),
    "locations": _placed('"a"(' * _N + "unknown" + ")" * _N),
    "fused locations": _placed("fused[" * _N + "unknown" + "]" * _N),
    "open locations": "loc(" * _N,
    "metadata": _function("") + "{-#" + "{" * _N,
    "lists": _constant("[" * _N, "tensor<1xi8>"),
    "regions": _function(_REGIONS + "}) : (tensor<1xi1>) -> ()" * 3000),
    "aliases": "#a = " * _N,
    "dimensions": _constant("0", "tensor<" + "1x" * _N + "i8>"),
    "a string": _function('"' + "a" * _N),
    "a broken string": _function('"tosa.x' + "a" * _N + '\\q"() : () -> ()'),
    "an open symbol": _function('"tosa.x"() {a = @"' + "a" * _N),
    "digits of a dimension": _typed(f"tensor<{_DIGITS}xf32>"),
    "digits of a width": _typed(f"tensor<1xi{_DIGITS}>"),
    "digits of an attribute": _held(f"{_DIGITS} : i8"),
    "digits of an element": _constant(f"[{_DIGITS}, 1]", "tensor<2xi8>"),
    "digits of a float": _constant(f"[{_DIGITS}.0, 1.0]", "tensor<2xf32>"),
    "digits of a hexadecimal float": _constant(f"[0x{_DIGITS}, 1.0]", "tensor<2xf32>"),
    "results": _function("%0:99999999 = tosa.abs %a : tensor<2xf32>"),
    "elements": _constant("0", "tensor<99999999999999999xi8>"),
    "elements of a shape": _function(
        '%0 = "tosa.const_shape"() <{values = dense<0> : tensor<999999999xindex>}> '
        ": () -> !tosa.shape<999999999>"
    ),
    "names of operations": _function(" ".join(f"tosa.x{n}" for n in range(_N))),
}


@pytest.mark.parametrize("what", _ENDLESS)
def test_without_end(what):
    tracemalloc.start()
    try:
        assert not _is_read(_ENDLESS[what])
        assert tracemalloc.get_traced_memory()[1] < _BYTES
    finally:
        tracemalloc.stop()


def test_single_numbers_that_stand_for_memory():
    """Fifty constants of 100 MB in a few kilobytes."""
    kind = "tensor<100000000xi8>"
    lines = (
        f'%{n} = "tosa.const"() <{{values = dense<0> : {kind}}}> : () -> {kind}' for n in range(50)
    )
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedError, match="a few numbers stand for more than"):
            mlir.read_text(_function("\n".join(lines)))
        assert tracemalloc.get_traced_memory()[1] < 500 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"\0" * 1000, b"\xff" * 64, bytes(range(256)) * 8])
def test_noise(content):
    assert not _is_read(content)


def test_depth_that_is_read():
    """Control flow as deep as the parser goes: more than level 8K allows, six."""

    def nested(depth: int) -> str:
        if not depth:
            return "%r = tosa.abs %x : !t\ntosa.yield %r : !t"
        inner = f"{{\n^bb0(%x: !t):\n{nested(depth - 1)}\n}}".replace("%", "%_")
        inner = inner.replace("%_c", "%c")
        return f"%r = tosa.cond_if %c (%y = %x) : tensor<i1> (!t) -> !t {inner} else {inner}\n" + (
            "tosa.yield %r : !t"
        )

    body = nested(6).removesuffix("tosa.yield %r : !t")
    graph = mlir.read_text(f"!t = tensor<2xf32>\n{_function(body, '%x: !t, %c: tensor<i1>')}")
    assert len(list(graph.walk())) == 2**7 - 1
