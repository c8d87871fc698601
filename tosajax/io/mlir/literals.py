"""Parses the text of constants to arrays, bit for bit, all numbers of a list at once.

Sources: the builtin dialect of MLIR, "DenseTypedElementsAttr" and "DenseResourceElementsAttr", and
the behaviour of tosa-opt of LLVM 24.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np

from tosajax.io.mlir.tree import Literal
from tosajax.report import FormatError, UnsupportedError

_FLOATS = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
}
_INTEGER = re.compile(r"(|s|u)i([1-9][0-9]?)")
_WIDEST = 64
# The memory limit of constants: bytes for each character of the text, and in addition. A splat has
# one number for many elements, and many constants may refer to one resource.
_BYTES_A_CHARACTER = 16
_MORE_BYTES = 1 << 28
_FRACTION_OF_F64 = 52
_MORE_BITS = 4
_ALIGNMENT = 4  # bytes before the data of a resource
_BRACKETS = bytes.maketrans(b"[]", b"  ")
_NOT_BRACKETS = bytes(c for c in range(256) if c not in b"[],")
# The indices, one or a list of lists, and the values of a sparse constant.
_SPARSE = re.compile(
    r"\s*+(\[(?:[^\[\]\"]|\[[^\[\]\"]*+\])*+\]|[^\[\],\"\s]++)\s*+,\s*+(.*\S)\s*+", re.DOTALL
)
# Eighteen digits always fit int64; lists with longer integers are parsed one by one.
_INTEGERS = re.compile(rb"(?:\s*+-?[0-9]{1,18}+\s*+,)*+\s*+-?[0-9]{1,18}+\s*+")
_DECIMAL = rb"-?[0-9]++\.[0-9]*+(?:[eE][-+]?[0-9]++)?+"
_DECIMALS = re.compile(rb"(?:\s*+%b\s*+,)*+\s*+%b\s*+" % (_DECIMAL, _DECIMAL))
_ONE_INTEGER = re.compile(rb"-?(?:0x[0-9A-Fa-f]+|[0-9]+)")
# All elements in hexadecimal, with the number of digits of the type.
_EQUALLY_LONG = rb"(?:\s*+0x[0-9A-Fa-f]{%d}\s*+,)*+\s*+0x[0-9A-Fa-f]{%d}\s*+"
_BITS = re.compile(rb"0x[0-9A-Fa-f]++")
_ONE_DECIMAL = re.compile(_DECIMAL)


class Format(NamedTuple):
    """The text format and storage of an element type.

    Args:
      name: the element type's name in MLIR.
      bits: bits of one element.
      storage: the NumPy type: int8 for int4, int64 for int48, unsigned for unsigned integers.
      is_float: whether the type is a float.
    """

    name: str
    bits: int
    storage: np.dtype
    is_float: bool = False

    @property
    def signless(self) -> str:
        """The name without its sign, equal for types that differ only in signedness."""
        return self.name.lstrip("su")

    @property
    def octets(self) -> int:
        """The bytes of one element in a string of hexadecimal digits."""
        return -(-self.bits // 8)


def format_of(name: str) -> Format | None:
    """The format of an element type; None if its numbers are not supported."""
    if name in _FLOATS:
        storage = np.dtype(_FLOATS[name])
        return Format(name, 8 * storage.itemsize, storage, is_float=True)
    if name == "index":
        return Format(name, _WIDEST, np.dtype(np.int64))
    match = _INTEGER.fullmatch(name)
    if match is None or int(match[2]) > _WIDEST:
        return None
    bits = int(match[2])
    if bits == 1:
        return Format(name, 1, np.dtype(np.bool_))
    octets = next(n for n in (1, 2, 4, 8) if 8 * n >= bits)
    return Format(name, bits, np.dtype(f"{'u' if match[1] == 'u' else 'i'}{octets}"))


class Literals:
    """Parses the constants of one text.

    Args:
      resources: the start and end of each resource's "0x..." in the text, by key.
      size: the length of the text, in characters.
    """

    def __init__(self, resources: Mapping[str, tuple[int, int]], size: int) -> None:
        self._resources = resources
        self._allowance = _MORE_BYTES + _BYTES_A_CHARACTER * size

    def array(self, literal: Literal, form: Format, shape: Sequence[int]) -> np.ndarray:
        """The elements of a constant, in `form.storage`.

        Raises:
          FormatError: the text is not a constant of this type and shape.
          UnsupportedError: the constants exceed the memory limit for the text.
        """
        count = math.prod(shape)
        self._allowance -= count * form.storage.itemsize
        if self._allowance < 0:
            raise UnsupportedError(f"a few numbers stand for more than {_MORE_BYTES} bytes")
        try:
            return self._flat(literal, form, shape, count).reshape(shape)
        except ValueError as error:  # also too many or too large dimensions for NumPy
            raise FormatError(f"{error}, for {form.name} of shape {tuple(shape)}") from None

    def _flat(self, literal: Literal, form: Format, shape: Sequence[int], count: int) -> np.ndarray:
        if literal.kind == "dense_resource":
            return _blob(self._resource(literal), form, count)
        if literal.kind == "sparse":
            return self._sparse(literal, form, shape, count)
        if literal.kind not in ("dense", "number"):
            raise FormatError(f"the constant is {literal.kind}<...>")
        if literal.start == literal.end:
            if count:
                raise FormatError("the constant has no elements")
            return np.empty(0, form.storage)
        if literal.text[literal.start] == '"':
            return self._raw(literal, form, count)
        return self._listed(literal.body, form, shape, count)

    def _sparse(
        self, literal: Literal, form: Format, shape: Sequence[int], count: int
    ) -> np.ndarray:
        """Parses a sparse constant: zeros except at a list of indices.

        Of equal indices, the first counts.
        """
        elements = np.zeros(count, form.storage)
        if not literal.body.strip():
            return elements
        match = _SPARSE.fullmatch(literal.body)
        if match is None:
            raise FormatError("a sparse constant has no indices and values")
        places = _places(_ascii(match[1]), shape)
        part = Literal("dense", match[2], 0, len(match[2]))
        elements[places[::-1]] = self._flat(part, form, places.shape, places.size)[::-1]
        return elements

    def _raw(self, literal: Literal, form: Format, count: int) -> np.ndarray:
        """Parses hexadecimal bytes of all elements, or of one element, repeated (a splat)."""
        data = _octets(literal.text, literal.start + 1, literal.end - 1)
        if len(data) != form.octets or count == 1:
            return _elements(data, form, count)
        if form.bits == 1 and count <= 8 and data not in (b"\0", b"\xff"):
            # LLVM 21 packs eight elements into the byte, LLVM 24 repeats it.
            raise UnsupportedError(f"{count} elements of i1 in one byte, which may mean two things")
        return np.repeat(_elements(data, form, 1), count)

    def _listed(self, body: str, form: Format, shape: Sequence[int], count: int) -> np.ndarray:
        text = _ascii(body)
        if b"[" not in text:
            one = _numbers(text, form)
            if one.size != 1:
                raise FormatError(f"the constant has {one.size} elements and no brackets")
            return np.repeat(one, count)
        _check_brackets(text, shape)
        if not count:
            text = text.translate(_BRACKETS).replace(b",", b" ")
            if text.strip():
                raise FormatError(f"{_shown(text.strip())} in a constant of no elements")
            return np.empty(0, form.storage)
        return _numbers(text.translate(_BRACKETS), form)

    def _resource(self, literal: Literal) -> bytes:
        key = literal.body.strip('"')
        if key not in self._resources:
            elided = ": it was left out when the text was printed" if "elided" in key else ""
            raise FormatError(f"there is no resource {key!r}{elided}")
        return _octets(literal.text, *self._resources[key])


def _places(text: bytes, shape: Sequence[int]) -> np.ndarray:
    """Converts indices `[[0, 1], [2, 3]]` to indices in the flattened array of this shape.

    A single number without brackets is one index with that number for all dimensions.
    """
    numbers = _numbers(text.translate(_BRACKETS), Format("index", _WIDEST, np.dtype(np.int64)))
    rank = len(shape)
    if b"[" not in text:
        numbers = np.repeat(numbers, rank)
    elif rank != 1 or text.count(b"[") > 1:
        _check_brackets(text, (-(-numbers.size // max(rank, 1)), rank))
    if not rank:
        raise FormatError("a sparse constant has no dimensions, expected one or more")
    rows = numbers.reshape(-1, rank)
    if ((rows < 0) | (rows >= np.array(shape))).any():
        raise FormatError("a sparse constant has an index beyond its shape")
    return np.asarray(np.ravel_multi_index(tuple(rows.T), tuple(shape)))


def with_sign_of(values: np.ndarray, form: Format) -> np.ndarray:
    """Reinterprets the bits of elements as a type of the same width but other signedness."""
    if values.dtype == form.storage or form.bits == 8 * form.storage.itemsize:
        return values.view(form.storage)
    return _of_bits(values.view(f"u{values.itemsize}"), form)


def integers(literal: Literal) -> tuple[int, ...]:
    """The numbers of an `array<i64: 1, 2>`, of any integer element type.

    Raises:
      FormatError: the numbers are not integers of the type.
    """
    name, _, numbers = literal.body.partition(":")
    form = format_of(name.strip())
    if literal.kind != "array" or form is None or form.is_float:
        raise FormatError(
            f"{literal.kind}<{_shown(_ascii(literal.body))}> is not a list of integers"
        )
    if not numbers.strip():
        return ()
    return tuple(_numbers(_ascii(numbers), form).tolist())


# Strings of hexadecimal digits.


def _octets(text: str, start: int, end: int) -> bytes:
    """Decodes the hexadecimal digits after 0x to bytes."""
    if text[start : start + 2] != "0x":
        raise FormatError("a constant in quotes does not start with 0x")
    try:
        data = bytes.fromhex(text[start + 2 : end])
    except ValueError:
        raise FormatError("a constant in quotes is not hexadecimal") from None
    if 2 * len(data) != end - start - 2:
        raise FormatError("a constant in quotes has spaces")
    return data


def _blob(data: bytes, form: Format, count: int) -> np.ndarray:
    if len(data) < _ALIGNMENT:
        raise FormatError("the data of a resource does not start with its alignment")
    if len(data) - _ALIGNMENT == form.storage.itemsize * count != form.octets * count:
        # Some writers store int48 in eight bytes.
        return _fitting(
            np.frombuffer(data, form.storage.newbyteorder("<"), count, _ALIGNMENT), form
        )
    return _elements(data[_ALIGNMENT:], form, count)


def _elements(data: bytes, form: Format, count: int) -> np.ndarray:
    """Decodes little-endian elements of whole bytes: six for int48, one for int4."""
    if form.bits == 1 and len(data) == -(-count // 8) != count:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little")
        return bits.astype(np.bool_)
    if len(data) != form.octets * count:
        raise FormatError(f"{len(data)} bytes of data, expected {form.octets * count}")
    if form.bits == 8 * form.storage.itemsize:
        return np.frombuffer(data, form.storage.newbyteorder("<")).astype(form.storage)
    octets = np.zeros((count, form.storage.itemsize), np.uint8)
    octets[:, : form.octets] = np.frombuffer(data, np.uint8).reshape(count, form.octets)
    bits = octets.view(f"<u{form.storage.itemsize}")[:, 0]
    unused = bits >> bits.dtype.type(form.bits)
    # Some writers set the unused bits of negative numbers to ones.
    ones = (1 << (8 * form.octets - form.bits)) - 1
    if ((unused != 0) & (unused != ones)).any():
        raise FormatError(f"data has other bits than those of {form.name}")
    return _of_bits(bits, form)


def _of_bits(bits: np.ndarray, form: Format) -> np.ndarray:
    """Converts the low bits of unsigned integers to elements, with sign extension."""
    if form.bits == 1:
        return (bits & bits.dtype.type(1)).astype(np.bool_)
    bits = bits.astype(f"u{form.storage.itemsize}")
    unused = 8 * form.storage.itemsize - form.bits
    held = (bits << bits.dtype.type(unused)).view(form.storage)
    return held >> form.storage.type(unused)


# Lists of numbers.


def _check_brackets(text: bytes, shape: Sequence[int]) -> None:
    """Checks that brackets and commas form a list of this shape."""
    brackets = text.translate(None, _NOT_BRACKETS)
    groups, length = 1, 0
    for dim in shape:
        length += groups * (2 + max(dim - 1, 0))
        groups *= dim
    if len(brackets) == length:
        wanted = b""
        for dim in reversed(shape):
            wanted = b"[" + (wanted + b",") * (dim - 1) + wanted * (dim > 0) + b"]"
        if brackets == wanted:
            return
    raise FormatError("the brackets of the constant do not fit its shape")


def _numbers(text: bytes, form: Format) -> np.ndarray:
    """Parses numbers separated by commas, to `form.storage`."""
    if form.is_float:
        return _floats(text, form)
    if form.bits == 1:
        text = text.replace(b"true", b"1").replace(b"false", b"0")
    if not _INTEGERS.fullmatch(text):
        return _long_integers(text.split(b","), form)
    return _fitting(np.fromstring(text, np.int64, sep=","), form)


def _fitting(numbers: np.ndarray, form: Format) -> np.ndarray:
    """Converts integers to their storage; for signless types, 255 and -1 are the same i8."""
    low, high = _limits(form)
    if numbers.size and not low <= int(numbers.min()) <= int(numbers.max()) <= high:
        beyond = numbers[(numbers < low) | (numbers > high)]
        raise FormatError(f"{beyond[0]} is beyond {form.name}")
    return _of_bits(numbers.astype(np.int64).view(np.uint64), form)


def _long_integers(tokens: list[bytes], form: Format) -> np.ndarray:
    """Parses a list with hexadecimal integers or integers of many digits, one by one."""
    low, high = _limits(form)
    numbers = []
    for token in map(bytes.strip, tokens):
        if not _ONE_INTEGER.fullmatch(token) or len(token) > _WIDEST:
            raise FormatError(f"{_shown(token)} is not a number of {form.name}")
        numbers.append(int(token, 16 if b"x" in token else 10))
        if not low <= numbers[-1] <= high:
            raise FormatError(f"{_shown(token)} is beyond {form.name}")
    mask = (1 << _WIDEST) - 1
    return _of_bits(np.array([number & mask for number in numbers], np.uint64), form)


def _limits(form: Format) -> tuple[int, int]:
    if form.storage.kind == "u":
        return 0, (1 << form.bits) - 1
    half = 1 << (form.bits - 1)
    is_signed = form.name.startswith("si") or form.name == "index"
    return -half, (half if is_signed else 2 * half) - 1


def _floats(text: bytes, form: Format) -> np.ndarray:
    """Parses floats; hexadecimal numbers are their bits."""
    digits = 2 * form.octets
    if re.fullmatch(_EQUALLY_LONG % (digits, digits), text):
        rows = np.frombuffer(
            text.translate(None, b"x, \t\r\n\v\f"), np.uint8
        )  # the leading 0 of 0x stays in each row
        octets = bytes.fromhex(rows.reshape(-1, digits + 1)[:, 1:].tobytes().decode())
        return (
            np.frombuffer(octets, f">u{form.octets}").astype(f"u{form.octets}").view(form.storage)
        )
    in_bits = list(_BITS.finditer(text)) if b"x" in text else []
    decimals = _BITS.sub(b" 0.0 ", text) if in_bits else text
    if not _DECIMALS.fullmatch(decimals):
        raise _not_a_float(text, form)
    numbers = _rounded(np.fromstring(decimals, np.float64, sep=","), form)
    if in_bits:
        commas = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(","))
        places = np.searchsorted(commas, [match.start() for match in in_bits])
        bits = [_float_bits(match[0], form) for match in in_bits]
        numbers.view(f"u{form.octets}")[places] = np.array(bits, np.uint64)
    return numbers


def _float_bits(token: bytes, form: Format) -> int:
    if len(token) <= _WIDEST and int(token, 16) < 1 << form.bits:
        return int(token, 16)
    raise FormatError(f"{_shown(token)} does not have the bits of {form.name}")


def _not_a_float(text: bytes, form: Format) -> FormatError:
    tokens = (token.strip() for token in text.split(b","))
    forms = (_ONE_DECIMAL.fullmatch, _BITS.fullmatch)
    token = next(t for t in tokens if not any(match(t) for match in forms))
    point = ", expected a decimal point" if token.lstrip(b"-").isdigit() else ""
    return FormatError(f"{_shown(token)} is not a number of {form.name}{point}")


def _rounded(numbers: np.ndarray, form: Format) -> np.ndarray:
    """Rounds float64 to nearest, ties to even, in one step."""
    if np.isinf(numbers).any():
        raise FormatError("a number is too large")
    with np.errstate(over="ignore"):
        if form.storage.isbuiltin == 1:  # a type of NumPy's own
            return numbers.astype(form.storage)
        # ml_dtypes rounds to float32 or float16 first. To avoid double rounding, this truncates to
        # a few more bits than the type has, and sets the last bit if others were lost (rounding to
        # odd).
        bits = numbers.view(np.uint64)
        dropped = np.uint64(_FRACTION_OF_F64 - ml_dtypes.finfo(form.storage).nmant - _MORE_BITS)
        kept = bits >> dropped << dropped
        kept |= (kept != bits).astype(np.uint64) << dropped
        return kept.view(np.float64).astype(form.storage)


def _ascii(text: str) -> bytes:
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        raise FormatError("a constant has other characters than ASCII") from None


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("ascii", "replace"))
