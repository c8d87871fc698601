"""Constants in MLIR text: every bit of every element type, in every spelling."""

from __future__ import annotations

import bisect
import itertools
import random
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from limits import most_steps

from tosajax.io import mlir
from tosajax.io.mlir.literals import Literals, format_of, integers
from tosajax.io.mlir.tree import Literal
from tosajax.report import FormatError, UnsupportedError

pytest.importorskip("xdsl")

_INTEGERS = {"i4": 4, "i8": 8, "i16": 16, "i32": 32, "i48": 48, "index": 64, "i64": 64}
_UNSIGNED = {"ui8": 8, "ui16": 16, "ui32": 32}
# Bits of the exponent and of the fraction.
_FLOATS = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7), "f8E5M2": (5, 2), "f8E4M3FN": (4, 3)}


def _read(body: str, element: str, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of dense<body>."""
    form = format_of(element)
    assert form is not None
    return Literals({}, 0).array(Literal("dense", body, 0, len(body)), form, shape)


def _width(element: str) -> int:
    return 1 + sum(_FLOATS[element]) if element in _FLOATS else (_INTEGERS | _UNSIGNED)[element]


def _boundaries(bits: int) -> list[int]:
    half = 1 << (bits - 1)
    return [-half, half - 1, 0, -1, 1, -half + 1, half - 2, 7 % half, -7 % half - half]


def _numbers(array: np.ndarray) -> list[int]:
    return [int(n) for n in array.ravel()]


def _patterns(array: np.ndarray) -> list[int]:
    return [int(n) for n in array.ravel().view(f"u{array.itemsize}")]


def _hex(numbers: list[int], octets: int) -> str:
    mask = (1 << (8 * octets)) - 1
    data = b"".join((n & mask).to_bytes(octets, "little") for n in numbers)
    return f'"0x{data.hex().upper()}"'


def _constant(body: str, count: int, element: str) -> str:
    """A module that returns a constant."""
    kind = f"tensor<{count}x{element}>"
    return f"""func.func @main() -> {kind} {{
      %c = "tosa.const"() <{{values = dense<{body}> : {kind}}}> : () -> {kind}
      return %c : {kind}
    }}"""


# Integers.


@pytest.mark.parametrize("element", _INTEGERS)
def test_integers_in_lists(element):
    bits = _INTEGERS[element]
    numbers = _boundaries(bits)
    body = f"[{', '.join(map(str, numbers))}]"
    found = _read(body, element, (9,))
    assert _numbers(found) == numbers
    assert _numbers(_read(f"[[{body[1:-1]}]]", element, (1, 9))) == numbers
    spread = body.replace(",", " ,\n\t").replace("[", "[ ").replace("]", "\n]")
    assert _numbers(_read(spread, element, (9,))) == numbers


@pytest.mark.parametrize("element", ["i4", "i8", "i16", "i32", "i48", "i64"])
def test_integers_without_a_sign_of_their_type(element):
    """255 and -1 are the same i8, as in MLIR."""
    bits = _INTEGERS[element]
    full = 1 << bits
    assert _numbers(_read(f"[{full - 1}, {full // 2}, 0]", element, (3,))) == [-1, -full // 2, 0]
    assert _numbers(_read(f"[0x{full - 1:X}, 0x{full // 2:x}, -0x1]", element, (3,))) == [
        -1,
        -full // 2,
        -1,
    ]
    for beyond in (full, -full // 2 - 1):
        with pytest.raises(FormatError, match=f"{beyond}.* is beyond {element}"):
            _read(f"[{beyond}, 1]", element, (2,))


@pytest.mark.parametrize("element", _UNSIGNED)
def test_unsigned_integers(element):
    bits = _UNSIGNED[element]
    numbers = [0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1]
    assert _numbers(_read(str(numbers), element, (5,))) == numbers
    assert _numbers(_read(_hex(numbers, bits // 8), element, (5,))) == numbers
    with pytest.raises(FormatError, match="-1 is beyond"):
        _read("[-1, 1]", element, (2,))


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i48", "index"])
def test_integers_in_hexadecimal(element):
    bits = _INTEGERS[element]
    numbers = _boundaries(bits)
    found = _read(_hex(numbers, bits // 8), element, (3, 3))
    assert _numbers(found) == numbers
    assert found.shape == (3, 3)


def test_signed_integers():
    assert _numbers(_read("[127, -128, -1]", "si8", (3,))) == [127, -128, -1]
    with pytest.raises(FormatError, match="128 is beyond si8"):
        _read("[128, 0]", "si8", (2,))


@pytest.mark.parametrize("bits", [4, 8, 16, 32, 48])
@pytest.mark.parametrize(("stated", "result"), [("ui", "ui"), ("ui", "i"), ("i", "ui")])
def test_unsigned_constants_are_signless(bits, stated, result):
    """Those above the largest signed integer wrap, however they are written."""
    half, octets = 1 << (bits - 1), -(-bits // 8)
    numbers = [0, 1, half - 1, half, half + 1, 2 * half - 1]
    wanted = [0, 1, half - 1, -half, 1 - half, -1]
    for body, found in (
        (str(numbers), wanted),
        (_hex(numbers, octets), wanted),
        ("dense_resource<r>", wanted),
        (str(2 * half - 1), [-1] * 6),
        (_hex([half], octets), [-half] * 6),
    ):
        kind, own = f"tensor<6x{result}{bits}>", f"tensor<6x{stated}{bits}>"
        text = _constant(body, 6, f"{result}{bits}").replace(f"> : {kind}}}", f"> : {own}}}")
        text = text.replace("dense<dense_resource<r>>", "dense_resource<r>")
        data = '"0x01000000' + _hex(numbers, octets)[3:]
        text += f"{{-# dialect_resources: {{ builtin: {{ r: {data} }} }} #-}}"
        values = mlir.read_text(text).tensors["c"].values
        assert values is not None
        assert values.tolist() == found


def test_comments_in_the_metadata_of_a_file():
    text = _constant("x", 2, "i8").replace("dense<x>", "dense_resource<r>")
    found = mlir.read_text(
        text
        + """{-# // a comment: { "
          dialect_resources: { /// of "resources" }
            builtin: { // r: "0x0400000001"
              r: "0x040000000102" // #-}
            }
          }, //
          external_resources: { mlir_reproducer: { verify_each: true, n: 3 } } // }}}
        #-}"""
    )
    values = found.tensors["c"].values
    assert values is not None
    assert values.tolist() == [1, 2]


# Zeros but for some elements.

_SPARSE = {
    "sparse<[[0, 0], [1, 2]], [1, -5]>": {(0, 0): 1, (1, 2): -5},
    "sparse<[[2, 3]] , [ 7 ] >": {(2, 3): 7},
    "sparse<[[0, 0], [1, 2]], 5>": {(0, 0): 5, (1, 2): 5},
    "sparse<1, 5>": {(1, 1): 5},
    "sparse<[[0, 1], [0, 1]], [4, 5]>": {(0, 1): 4},  # the first one, as in MLIR
    'sparse<[[1, 1], [0, 0]], "0x07000000FFFFFFFF">': {(1, 1): 7, (0, 0): -1},
    "sparse<>": {},
}


@pytest.mark.parametrize("body", _SPARSE)
def test_sparse_constants(body):
    text = _constant("0", 12, "i32").replace("12x", "3x4x").replace("dense<0>", body)
    found = mlir.read_text(text).tensors["c"].values
    assert found is not None
    wanted = np.zeros((3, 4), np.int32)
    for place, number in _SPARSE[body].items():
        wanted[place] = number
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("body", "element", "wanted"),
    [
        ("[[0], [2]], [1.5, 3.0]", "f32", [1.5, 0, 3]),
        ("[0, 2], [1.5, 3.0]", "bf16", [1.5, 0, 3]),
        ("2, true", "i1", [0, 0, 1]),
        ("[[1]], [15]", "ui4", [0, -1, 0]),
        ("[[1]], [255]", "ui8", [0, -1, 0]),
    ],
)
def test_sparse_constants_of_types(body, element, wanted):
    text = _constant("0", 3, element).replace("dense<0>", f"sparse<{body}>")
    found = mlir.read_text(text).tensors["c"].values
    assert found is not None
    assert found.astype(np.float32).tolist() == wanted


@pytest.mark.parametrize(
    ("body", "message"),
    {
        "[[3, 0]], [1]": "has an index beyond its shape",
        "[[0, -1]], [1]": "has an index beyond its shape",
        "[[0, 0], [1]], [1, 2]": "brackets",
        "[[0]], [1]": "brackets",
        "[0], [1]": "brackets",
        "[[0, 0, 1, 2]], [1, 2]": "brackets",
        "[[0, 0]], [1, 2]": "brackets",
        "[[0, 0]]": "has no indices and values",
        "[[0, 0]],": "has no indices and values",
        '"0x00", [1]': "has no indices and values",
        "1.0, 2": "'1.0' is not a number of index",
        "[], []": "is not a number of index",
    }.items(),
)
def test_broken_sparse_constants(body, message):
    text = _constant("0", 12, "i32").replace("12x", "3x4x").replace("dense<0>", f"sparse<{body}>")
    with pytest.raises(FormatError, match=message):
        mlir.read_text(text)
    with pytest.raises(FormatError, match="no dimensions"):
        mlir.read_text(
            _constant("0", 1, "i32").replace("1x", "").replace("dense<0>", "sparse<0, 1>")
        )


def test_a_sparse_constant_without_dimensions():
    text = _constant("0", 1, "i32").replace("1x", "")
    with pytest.raises(FormatError, match="has no dimensions, expected one or more"):
        mlir.read_text(text.replace("dense<0>", "sparse<0, 1>"))


def test_int4_in_hexadecimal():
    """A byte each; some writers fill it up with the sign."""
    numbers = [*range(-8, 8)]
    zeros = "".join(f"{n & 15:02x}" for n in numbers)
    signs = "".join(f"{n & 255:02x}" for n in numbers)
    for digits in (zeros, signs):
        assert _numbers(_read(f'"0x{digits}"', "i4", (16,))) == numbers
    with pytest.raises(FormatError, match="other bits than those of i4"):
        _read('"0x1807"', "i4", (2,))


@pytest.mark.parametrize("count", [1, 2, 8, 9, 24, 25])
def test_booleans(count):
    random_ = random.Random(count)
    wanted = [random_.random() < 0.5 for _ in range(count)]
    words = ", ".join("true" if w else "false" for w in wanted)
    digits = ", ".join("1" if w else "0" for w in wanted)
    octets = "".join("01" if w else "00" for w in wanted)
    for body in (f"[{words}]", f"[{digits}]", f'"0x{octets}"'):
        assert _read(body, "i1", (count,)).tolist() == wanted


def test_booleans_packed_as_llvm_21_does():
    wanted = [True, False, False, True, True, True, False, True, True]
    assert _read('"0xB901"', "i1", (9,)).tolist() == wanted
    for body, value in (('"0x00"', False), ('"0xFF"', True)):
        for count in (2, 8, 9):
            assert _read(body, "i1", (count,)).tolist() == [value] * count
    with pytest.raises(UnsupportedError, match="may mean two things"):
        _read('"0x01"', "i1", (8,))
    assert _read('"0x01"', "i1", (9,)).all()  # one byte of LLVM 24, for all


# Floats.


@pytest.mark.parametrize("element", _FLOATS)
def test_floats_in_hexadecimal(element):
    """Every pattern of 16 bits, and the boundaries of 32: NaN keeps its payload."""
    bits = _width(element)
    patterns = [*range(1 << bits)] if bits <= 16 else _patterns_of_f32()
    assert _patterns(_read(_hex(patterns, bits // 8), element, (len(patterns),))) == patterns
    listed = ", ".join(f"0x{p:0{bits // 4}X}" for p in patterns)
    assert _patterns(_read(f"[{listed}]", element, (len(patterns),))) == patterns


def _patterns_of_f32() -> list[int]:
    exponents, fractions = (
        [0, 1, 126, 127, 254, 255],
        [0, 1, 0x200000, 0x3FFFFF, 0x400000, 0x7FFFFF],
    )
    return [
        sign << 31 | exponent << 23 | fraction
        for sign, exponent, fraction in itertools.product((0, 1), exponents, fractions)
    ]


@pytest.mark.parametrize("element", _FLOATS)
def test_floats_some_of_them_in_hexadecimal(element):
    nan = (1 << (_width(element) - 1)) - 1
    body = f"[1.0, 0x{nan:X}, -2.500000e-01, 0x1, 0.0, -0.0, 0x0000000{nan:X}]"
    found = _read(body, element, (7,))
    assert [_patterns(found)[i] for i in (1, 3, 6)] == [nan, 1, nan]
    assert found.astype(np.float64)[[0, 2, 4, 5]].tolist() == [1.0, -0.25, 0.0, -0.0]
    assert _patterns(found)[5] == 1 << (_width(element) - 1)


def _value(pattern: int, element: str) -> Fraction | None:
    """The number of a pattern without sign, by the definition of the type; None if not finite."""
    exponent_bits, fraction_bits = _FLOATS[element]
    exponent, fraction = pattern >> fraction_bits, pattern & ((1 << fraction_bits) - 1)
    top = (1 << exponent_bits) - 1
    if exponent == top and (element != "f8E4M3FN" or fraction == (1 << fraction_bits) - 1):
        return None
    bias = (1 << (exponent_bits - 1)) - 1
    significand = fraction + ((1 << fraction_bits) if exponent else 0)
    return significand * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def _nearest(number: Fraction, element: str) -> int:
    """The pattern that is nearest, of two the even one, by comparing with all numbers of the type.

    Beyond the largest number, the next one would be infinity, or NaN of a type without it.
    """
    if element not in _TABLES:
        values = []
        for pattern in range(1 << (_width(element) - 1)):
            value = _value(pattern, element)
            if value is None:
                break
            values.append(value)
        values.append(2 * values[-1] - values[-2])
        _TABLES[element] = values
    values = _TABLES[element]
    above = min(bisect.bisect_left(values, number), len(values) - 1)
    below = max(above - 1, 0)
    low, high = number - values[below], values[above] - number
    if low == high:
        return below if below % 2 == 0 else above
    return below if low < high else above


_TABLES: dict[str, list[Fraction]] = {}


@pytest.mark.parametrize("element", ["f16", "bf16", "f8E5M2", "f8E4M3FN"])
def test_decimals_are_rounded_once(element):
    """Ties, and numbers so near to them that rounding to float32 first would make them ties."""
    random_ = random.Random(3)
    numbers = [0.0, 5e-324, 1e-45, 1e308]
    for _ in range(400):
        pattern = random_.randrange((1 << (_width(element) - 1)) - 1)
        ends = _value(pattern, element), _value(pattern + 1, element)
        if None not in ends:
            middle = float(sum(ends) / 2)  # type: ignore[arg-type]
            numbers += [middle, np.nextafter(middle, 0), np.nextafter(middle, 1e300)]
    texts = [_decimal(float(n)) for n in numbers]
    found = _read(f"[{', '.join(texts)}]", element, (len(texts),))
    for number, pattern in zip(numbers, _patterns(found), strict=True):
        wanted = _nearest(Fraction(number), element)
        assert pattern == wanted, number
    negative = _read(f"[{', '.join('-' + t for t in texts)}]", element, (len(texts),))
    sign = 1 << (_width(element) - 1)
    assert [p & (sign - 1) for p in _patterns(negative)] == _patterns(found)
    assert all(p & sign for p in _patterns(negative))


def _decimal(number: float) -> str:
    mantissa, e, exponent = repr(number).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + e + exponent


def test_decimals_of_f32_are_rounded_by_way_of_f64():
    """As MLIR does: the text names a double, and the double is rounded."""
    texts = ["0.1", "1.00000005960464477539062500001", "3.4028235e+38", "1.0e-45", "16777217.0"]
    found = _read(f"[{', '.join(texts)}, 3.5e+38]", "f32", (6,))
    wanted = [struct.unpack("<I", struct.pack("<f", float(t)))[0] for t in texts]
    assert _patterns(found) == [*wanted, 0x7F800000]


@pytest.mark.parametrize("element", _FLOATS)
def test_tosa_opt_prints_the_bits_that_we_read(element, tosa_opt):
    """Decimals and hexadecimal numbers of the same constant, as MLIR understands them."""
    random_ = random.Random(5)
    nan = (1 << (_width(element) - 1)) - 1
    numbers = [random_.uniform(-2, 2) * 2.0 ** random_.randint(-12, 8) for _ in range(60)]
    body = ", ".join([*map(_decimal, numbers), f"0x{nan:X}", "0x1", "0x0", "-0.0"])
    text = _constant(f"[{body}]", 64, element)
    printed = tosa_opt(text, "--mlir-print-elementsattrs-with-hex-if-larger=1")
    assert '"0x' in printed
    ours, theirs = (mlir.read_text(t).output_tensors[0].values for t in (text, printed))
    assert ours is not None
    assert theirs is not None
    assert ours.tobytes() == theirs.tobytes()


# Shapes, splats, resources.


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 1, 3), (1, 1, 1, 1), (4, 3, 2, 1)])
def test_shapes_of_lists(shape):
    wanted = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.int8)
    np.testing.assert_array_equal(_read(str(wanted.tolist()), "i8", shape), wanted)


_MISFITS = {
    (1, 2): ("[1, 2]", "[[1], [2]]"),
    (2,): ("[[1, 2]]", "[1, 2, 3]", "[1, 2", "1, 2]", "[1,, 2]", "][1, 2"),
    (2, 2): ("[[1, 2], [3]]", "[[1, 2] [3, 4]]", "[[1, 2, 3, 4]]", "[1, 2, 3, 4]"),
    (1,): ("[]", "[[1]]"),
}


@pytest.mark.parametrize(("shape", "body"), [(s, b) for s, bs in _MISFITS.items() for b in bs])
def test_brackets_that_do_not_fit(shape, body):
    with pytest.raises(FormatError):
        _read(body, "i8", shape)


@pytest.mark.parametrize("body", ["", "[]", "[ ]"])
def test_no_elements(body):
    assert _read(body, "f32", (0,)).shape == (0,)
    with pytest.raises(FormatError):
        _read(body, "f32", (1,))


def test_no_elements_of_more_dimensions():
    assert _read("[[], []]", "i8", (2, 0)).shape == (2, 0)
    assert _read("", "i8", (2, 0, 3)).shape == (2, 0, 3)
    with pytest.raises(FormatError, match="no elements"):
        _read("[[1], []]", "i8", (2, 0))


@pytest.mark.parametrize("element", [*_INTEGERS, *_FLOATS, "i1"])
def test_one_number_for_all(element):
    body = {"i1": "true"}.get(element, "-1.5" if element in _FLOATS else "-3")
    found = _read(body, element, (2, 3))
    assert found.shape == (2, 3)
    assert len({*_patterns(found)}) == 1
    assert found.astype(np.float64).flat[0] == {"true": 1}.get(body) or float(body)


@pytest.mark.parametrize("element", ["i4", "i8", "i16", "i48", "f32", "bf16", "f8E5M2"])
def test_the_bytes_of_one_element_for_all(element):
    octets = -(-_width(element) // 8)
    (one,) = _read(_hex([3], octets), element, (1,)).ravel()
    np.testing.assert_array_equal(_read(_hex([3], octets), element, (4, 2)), np.full((4, 2), one))


def test_one_number_for_more_than_memory():
    for shape in ((1 << 40,), (1 << 29,), (99999999, 99999999, 99999999)):
        with pytest.raises(UnsupportedError, match="a few numbers stand for more than"):
            _read("0", "i8", shape)
    literals, form = Literals({}, 0), format_of("i8")
    assert form is not None
    one = Literal("dense", "1", 0, 1)
    for _ in range(4):
        literals.array(one, form, (1 << 26,))
    with pytest.raises(UnsupportedError):  # together
        literals.array(one, form, (1 << 26,))


def test_constants_of_one_resource():
    """Megabytes of text do not stand for gigabytes of constants."""
    digits = "0x04000000" + "00" * (1 << 20)
    form = format_of("i8")
    assert form is not None
    literals = Literals({"k": (0, len(digits))}, len(digits))
    one = Literal("dense_resource", digits + "k", len(digits), len(digits) + 1)
    for _ in range(256 + 2 * 16):
        literals.array(one, form, (1 << 20,))
    with pytest.raises(UnsupportedError, match="a few numbers stand for more than"):
        literals.array(one, form, (1 << 20,))


def test_resources():
    text = "x 0x08000000 07F9 y"
    digits = "0x0800000007F9"
    literals, form = Literals({"k": (0, len(digits))}, 0), format_of("i8")
    assert form is not None

    def blob(key: str, text: str = digits) -> Literal:
        return Literal("dense_resource", text + key, len(text), len(text) + len(key))

    assert literals.array(blob("k"), form, (2,)).tolist() == [7, -7]
    assert literals.array(blob('"k"'), form, (2,)).tolist() == [7, -7]
    for key, shape, message in (
        ("k", (3,), "2 bytes of data, expected 3"),
        ("other", (2,), "there is no resource 'other'"),
        ("__elided__", (2,), "left out when the text was printed"),
    ):
        with pytest.raises(FormatError, match=message):
            literals.array(blob(key), form, shape)
    assert text  # the digits stand anywhere


def test_resources_of_wide_elements():
    """int48 in six bytes, as MLIR stores it, or eight, as NumPy does."""
    numbers = _boundaries(48)
    form = format_of("i48")
    assert form is not None
    for octets in (6, 8):
        digits = "0x04000000" + _hex(numbers, octets)[3:-1]
        literal = Literal("dense_resource", digits + "k", len(digits), len(digits) + 1)
        found = Literals({"k": (0, len(digits))}, 0).array(literal, form, (9,))
        assert _numbers(found) == numbers


# What is not a number.


_NOT_NUMBERS = {
    "i8": "1.5, 2 | 1 2, 3 | +1, 2 | 1_0, 2 | true, 2 | 0xFFFF, 1 | ٣, 1 | -, 1 | 0x, 1",
    "i1": "true, 2 | true, maybe | true false | 1.0, 0 | truefalse, 1",
    "f32": "1.0, 2 | 1.0, 2.0.0 | 1.0, - 2.0 | 1e5, 1.0 | nan, inf | -0x7F, 1.0 | 10x7F, 1.0 | "
    "0x, 1.0 | 0x7F.0, 1.0 | 0x1FFFFFFFF, 1.0 | 1.0e999, 1.0 | (1.0, 2.0), 1.0 | true, 1.0",
}


@pytest.mark.parametrize(
    ("element", "body"), [(e, b) for e, bs in _NOT_NUMBERS.items() for b in bs.split(" | ")]
)
def test_not_numbers(element, body):
    for text in (f"[{body}]", body):
        with pytest.raises(FormatError):
            _read(text, element, (2,))


@pytest.mark.parametrize(
    ("body", "message"),
    {
        '"0x0"': "not hexadecimal",
        '"0x0g"': "not hexadecimal",
        '"0102"': "does not start with 0x",
        '"0x01 02"': "spaces",
        '"0x010203"': "3 bytes of data, expected 2",
        '"0x"': "0 bytes of data, expected 2",
    }.items(),
)
def test_broken_bytes(body, message):
    with pytest.raises(FormatError, match=message):
        _read(body, "i8", (2,))


def test_lists_of_attributes():
    def read(body: str) -> tuple[int, ...]:
        return integers(Literal("array", body, 0, len(body)))

    assert read("i64: 1, -2, 9223372036854775807") == (1, -2, 9223372036854775807)
    assert read(" i32 : 7") == (7,)
    assert read("i64") == read("i64:") == ()
    assert read("i1: true, false") == (True, False)
    for body in ("f32: 1.0", "i64: 1.0", "i64: 9223372036854775808x", "i8: 300", "", "i64 1"):
        with pytest.raises(FormatError):
            read(body)


# Speed.


def test_constants_are_read_fast(benchmark_text):
    """The work is that of NumPy, not of a loop over elements."""
    for kind, text in benchmark_text.items():
        with most_steps(20_000):
            graph = mlir.read_text(text)
        assert graph.output_tensors[0].values is not None, kind


@pytest.fixture(scope="module")
def benchmark_text() -> dict[str, bytes]:
    generator = np.random.default_rng(1)
    octets = generator.integers(0, 256, 1 << 21, np.uint8)
    numbers = octets.view(np.int8)[: 1 << 19]
    floats = generator.standard_normal(1 << 17).astype(np.float32)
    bits = octets[: 1 << 19].view(np.uint32)
    bodies = {
        ("i8", octets.size): f'"0x{octets.tobytes().hex()}"',
        ("i8", numbers.size): f"[{', '.join(map(str, numbers.tolist()))}]",
        ("f32", floats.size): f"[{', '.join(f'{x:.6e}' for x in floats.tolist())}]",
        ("f32", bits.size): f"[{', '.join(f'0x{x:08X}' for x in bits.tolist())}]",
    }
    return {
        f"{element} {body[:12]}": _constant(body, count, element).encode()
        for (element, count), body in bodies.items()
    }


def test_a_number_just_above_a_tie():
    """Rounding to float32 first, as ml_dtypes does, makes it the tie."""
    just_above = np.array([1 + 2.0**-8 + 2.0**-40])
    assert just_above.astype(ml_dtypes.bfloat16).astype(np.float64).tolist() == [1.0]
    assert _patterns(_read("1.00390625000090949470177292823791503906", "bf16", (1,))) == [0x3F81]
