"""MLIR bytecode that loads the TOSA dialect before it is read further.

tosa-opt knows the dialect `quant` only once it has loaded the TOSA dialect, which depends on it. It
reads the types of a function before its first operation, though. A location that names a type of
TOSA, at the module, has it load the dialect in time.

Source: "MLIR Bytecode Format".
"""

from __future__ import annotations

from tosajax.io.mlir.octets import Octets

_MAGIC_SIZE = 4  # bytes
_ATTRIBUTES, _OFFSETS, _OPERATIONS = 2, 3, 4  # sections
_SECTIONS = ("",) * 9
_LOCATION = b"loc(fused<!tosa.shape<0>>[unknown])\0"
_ALIGNED = 0x80
_PADDING = b"\xcb"


def loading_tosa(data: bytes) -> bytes:
    """The same module in bytecode, with a location that has tosa-opt load the TOSA dialect.

    Args:
      data: whose header is whole.

    Raises:
      FormatError: it is broken.
    """
    part = Octets(data, _MAGIC_SIZE, None, "the file")
    part.number()
    part.text()
    loaded = bytearray(data[: part.at])
    sections = [_section(part) for _ in iter(lambda: bool(part), False)]
    contents = {number: inner for number, _, inner in sections}
    for number in (_ATTRIBUTES, _OFFSETS, _OPERATIONS):
        if number not in contents:
            part.wrong(f"there is no section {number}")
    offsets, size, location = _offsets(contents[_OFFSETS])
    held = contents[_ATTRIBUTES].again()
    start = held.take(size)
    changed = {
        _ATTRIBUTES: data[start : held.at] + _LOCATION + held.rest(),
        _OFFSETS: offsets,
        _OPERATIONS: _operations(contents[_OPERATIONS], location),
    }
    for number, alignment, inner in sections:
        content = changed.get(number)
        _append(loaded, number, alignment, inner.again().rest() if content is None else content)
    return bytes(loaded)


def _section(part: Octets) -> tuple[int, int, Octets]:
    """The number of a section, its alignment or 0, and its content."""
    start = part.at
    number, inner = part.section(_SECTIONS)
    head = Octets(part.data, start, inner.at, part.what)
    identifier, _ = head.byte(), head.number()
    return number, head.number() if identifier & _ALIGNED else 0, inner


def _offsets(part: Octets) -> tuple[bytes, int, int]:
    """The sizes of attributes and types with one more attribute at the end of the attributes.

    Returns:
      The section, the bytes of all attributes before, and the number of the new one.
    """
    part = part.again()
    attributes, types = part.number(), part.number()
    start, count, size = part.at, 0, 0
    while count < attributes:
        part.number()  # of the dialect
        entries = part.count()
        size += sum(part.flagged()[0] for _ in range(entries))
        count += entries
    before = part.data[start : part.at]
    more = _number(0) + _number(1) + _number(len(_LOCATION) << 1)  # of dialect 0, as text
    sizes = _number(attributes + 1) + _number(types)
    return sizes + before + more + part.rest(), size, attributes


def _operations(part: Octets, location: int) -> bytes:
    """The operations with another location of the first one."""
    part = part.again()
    start = part.at
    part.number()  # of operations
    part.number()  # of the name
    part.byte()  # what the operation has
    before = part.data[start : part.at]
    part.number()
    return before + _number(location) + part.rest()


def _append(octets: bytearray, number: int, alignment: int, content: bytes) -> None:
    octets.append(number | (_ALIGNED if alignment else 0))
    octets += _number(len(content))
    if alignment:
        octets += _number(alignment)
        octets += _PADDING * (-len(octets) % alignment)
    octets += content


def _number(value: int) -> bytes:
    """In as few bytes as hold it; the first one's zeros at its low end are the bytes to follow."""
    size = max(1, -(-value.bit_length() // 7))
    if size > 8:
        return b"\0" + value.to_bytes(8, "little")
    return (((value << 1) | 1) << (size - 1)).to_bytes(size, "little")
