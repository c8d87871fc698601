"""Reads members of users' ZIP archives, which may be damaged or claim any size."""

from __future__ import annotations

import struct
import zipfile
import zlib

# Errors of reading a broken archive, or a broken JSON member of one.
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    KeyError,
    TypeError,
    ValueError,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RecursionError,
)
_ENCRYPTED = 1  # a bit of a member's flags


def content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int, most: int) -> bytes:
    """Reads a member, unless its compression ratio is too high.

    Args:
      archive: an archive that is open for reading.
      entry: the member's entry.
      size: the size of the file, in bytes.
      most: the highest compression ratio.

    Raises:
      ValueError: the member is encrypted, has another compression than DEFLATE, or is larger.
      One of `BROKEN`: the member is damaged.
    """
    if entry.flag_bits & _ENCRYPTED:
        raise ValueError(f"{entry.filename} is encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{entry.filename} has compression {entry.compress_type}")
    if entry.file_size > most * min(entry.compress_size, size):
        message = f"{entry.filename} has {entry.file_size} bytes in {entry.compress_size}"
        raise ValueError(f"{message}, expected at most {most} times as many")
    return archive.read(entry)
