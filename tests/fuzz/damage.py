"""Damage to files: of bytes in general, and of what JSON, ZIP and NPY files hold."""

from __future__ import annotations

import io
import json
import random as python_random
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

Random = python_random.Random

_WORDS = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF)
_NUMBERS = (0, -1, 1, 3, 255, 2**31, -(2**31) - 1, 2**63, 2**64, 10**400, 0.5, 1e308, -0.0)
_NOT_FINITE = (float("nan"), float("inf"))
_TEXTS = ("", "x", "\0", "\ud800", "é" * 40, "9" * 5000, "../x", "float32", "<f4", "|O8")
_BOMB = 600 << 20  # bytes of zeros, which take little room in a ZIP file


def of_bytes(random: Random, content: bytes) -> bytes:
    """One to three damages at random places."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        content = random.choice(_OF_BYTES)(random, content)
    return content


def _truncate(random: Random, content: bytes) -> bytes:
    return content[: random.randint(0, len(content))]


def _extend(random: Random, content: bytes) -> bytes:
    return content + random.randbytes(random.choice([1, 7, 4096]))


def _flip(random: Random, content: bytes) -> bytes:
    return _written(
        content, _place(random, content), lambda old: bytes([old[0] ^ 1 << random.randrange(8)])
    )


def _set_byte(random: Random, content: bytes) -> bytes:
    return _written(content, _place(random, content), lambda _: random.randbytes(1))


def _set_word(random: Random, content: bytes) -> bytes:
    """A number at an aligned place: an offset, a length, a type."""
    size = random.choice([2, 4, 8])
    number = random.choice([*_WORDS, len(content), random.randrange(1 << 16)])
    word = struct.pack("<Q", number)[:size]
    return _written(content, _place(random, content) // size * size, lambda _: word)


def _delete(random: Random, content: bytes) -> bytes:
    at = _place(random, content)
    return content[:at] + content[at + random.choice([1, 4, 100]) :]


def _copy(random: Random, content: bytes) -> bytes:
    at, to = _place(random, content), _place(random, content)
    part = content[at : at + random.choice([4, 16, 200])]
    return content[:to] + part + content[to + random.choice([0, len(part)]) :]


def _place(random: Random, content: bytes) -> int:
    """Anywhere, or near the beginning, where most of the structure is."""
    end = max(len(content), 1)
    return random.randrange(min(end, random.choice([64, 256, end])))


def _written(content: bytes, at: int, change: Callable[[bytes], bytes]) -> bytes:
    if not content:
        return b"\0"
    new = change(content[at : at + 1])
    return content[:at] + new + content[at + len(new) :]


_OF_BYTES = (_truncate, _extend, _flip, _flip, _set_byte, _set_word, _set_word, _delete, _copy)


def of_json(random: Random, content: bytes) -> bytes:
    """Another document, most of the time still JSON: values replaced, dropped, moved and nested."""
    if random.random() < 0.25:
        return of_bytes(random, content)
    document = json.loads(content)
    for _ in range(random.choice([1, 1, 2, 4])):
        document = _changed(random, document)
    text = json.dumps(document)
    if random.random() < 0.05:
        # Deeper than recursive readers can go.
        text = text.replace("1", "[" * 100_000 + "]" * 100_000, 1)
    return text.encode(errors="surrogatepass")


def _changed(random: Random, value: Any) -> Any:
    """A copy, changed at one place below."""
    if isinstance(value, dict) and value and random.random() < 0.93:
        key = random.choice(sorted(value))
        rest = {k: v for k, v in value.items() if k != key}
        kind = random.random()
        if kind < 0.06:
            return rest
        if kind < 0.1:
            return {**rest, random.choice(_TEXTS): value[key]}
        return {**value, key: _changed(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.93:
        at = random.randrange(len(value))
        kind = random.random()
        if kind < 0.06:
            return value[:at] + value[at + 1 :]
        if kind < 0.12:
            return [*value, value[at]]
        return [*value[:at], _changed(random, value[at]), *value[at + 1 :]]
    return random.choice(
        [None, True, [], {}, [value], {"x": value}, *_NUMBERS, *_NOT_FINITE, *_TEXTS]
    )


def of_lines(random: Random, content: bytes) -> bytes:
    """JSON, one object a line."""
    if random.random() < 0.3:
        return of_bytes(random, content)
    lines = content.splitlines()
    at = random.randrange(len(lines))
    lines[at] = of_json(random, lines[at])
    return b"\n".join([*lines, b""])


def of_zip(random: Random, content: bytes) -> bytes:
    """An archive with other members, most of the time with sound checksums."""
    if random.random() < 0.3:
        return of_bytes(random, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(sorted(members))
    kind = random.random()
    if kind < 0.7:
        members[name] = _of_member(random, name, members[name])
    elif kind < 0.8:
        del members[name]
    elif kind < 0.9:
        members[random.choice(["../x", "x", "x/y", name.upper()])] = members.pop(name)
    packed = io.BytesIO()
    method = random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(packed, "w", method) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        if 0.9 <= kind < 0.91:
            _add_bomb(archive, name)
    result = packed.getvalue()
    if kind >= 0.95:
        # The lowest bit of the flags, in the directory and at the member: encrypted.
        for start, at in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
            place = result.find(start) + at
            result = result[:place] + bytes([result[place] | 1]) + result[place + 1 :]
    return result


def _add_bomb(archive: zipfile.ZipFile, name: str) -> None:
    """A second member of the name, which readers prefer, of very many zeros."""
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with warnings.catch_warnings(action="ignore"), archive.open(info, "w") as member:
        for _ in range(_BOMB >> 24):
            member.write(bytes(1 << 24))


def _of_member(random: Random, name: str, data: bytes) -> bytes:
    if name.endswith(".json"):
        return of_json(random, data)
    if name.endswith(".npy"):
        return of_npy(random, data)
    if name.endswith(".npz"):
        return of_zip(random, data)
    return of_bytes(random, data)


_DTYPES = [
    "<f4",
    "<f8",
    "|i1",
    "|O",
    "<U9",
    "V4",
    ">i2",
    "?",
    "<M8[s]",
    "<c8",
    "f4,i1",
    "()",
    "<f3",
]
_SHAPES = ["()", "(0,)", "(-1,)", "(3,)", "(1, 4)", "(4, 1)", "(1e3,)", "(9999999999,)", "4"]


def of_npy(random: Random, content: bytes) -> bytes:
    """Another header, of the right length, before the same elements; or other bytes."""
    if random.random() < 0.4 or not content.startswith(b"\x93NUMPY\x01"):
        return of_bytes(random, content)
    length = struct.unpack_from("<H", content, 8)[0]
    header = content[10 : 10 + length].decode("latin1")
    kind = random.random()
    if kind < 0.35:
        header = _replaced(header, "'descr': ", ",", repr(random.choice(_DTYPES)))
    elif kind < 0.7:
        header = _replaced(header, "'shape': ", "), ", random.choice(_SHAPES)[:-1] + " ")
        header = header.replace(" ), ", "), ")
    elif kind < 0.8:
        header = header.replace("False", random.choice(["True", "2", "()", "Fals"]))
    else:
        header = of_bytes(random, header.encode("latin1")).decode("latin1")
    raw = header.encode("latin1")[:65000]
    return content[:8] + struct.pack("<H", len(raw)) + raw + content[10 + length :]


def _replaced(text: str, start: str, end: str, new: str) -> str:
    before, _, rest = text.partition(start)
    _, mark, after = rest.partition(end)
    return before + start + new + mark + after
