"""Checks versions of the format, and compatibility features.

Files before 1.0 have the same file identifier, but different numbers of operators and types, so a
reader checks the version before it decodes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tosajax.io.schema import FEATURES
from tosajax.report import FormatError, UnsupportedError
from tosajax.versions import V1_0, V1_1

SUPPORTED = "1.0.x and 1.1.0-draft"
# The version fields of a written file, by the version that the graph needs.
WRITTEN = {
    V1_0: {"_major": 1, "_minor": 0, "_patch": 0, "_draft": False},
    V1_1: {"_major": 1, "_minor": 1, "_patch": 0, "_draft": True},  # as in tosa-tools 2026.8
}


def is_before_1_0(root: Mapping[str, Any]) -> bool:
    """Whether a file states a version before 1.0."""
    return root["version"] is not None and root["version"]["_major"] < 1


def check_version(root: Mapping[str, Any]) -> str:
    """The version of a file, as text.

    Raises:
      FormatError: the file does not state a version.
      UnsupportedError: tosajax does not read the version.
    """
    version = root["version"]
    if version is None:
        raise FormatError("the file states no version")
    major, minor, patch, draft = (version[k] for k in WRITTEN[V1_0])
    name = f"{major}.{minor}.{patch}{'-draft' if draft else ''}"
    if (major, minor) != (1, 0) and (major, minor, patch, draft) != (1, 1, 0, True):
        raise UnsupportedError(f"TOSA version {name} is not supported, expected {SUPPORTED}")
    return name


def check_features(root: Mapping[str, Any]) -> None:
    """Checks that a file does not need compatibility features, of which tosajax supports none.

    Raises:
      UnsupportedError: a feature bit is set.
    """
    features = (root["compatibility"] or {}).get("features", 0)
    bits = [bit for bit in range(64) if features >> bit & 1]
    if bits:
        names = ", ".join(f"bit {bit} ({FEATURES.get(bit, 'unknown')})" for bit in bits)
        raise UnsupportedError(f"the file needs compatibility features: {names}")


def producer(root: Mapping[str, Any]) -> str:
    """The version of the library that wrote a file; "" if it is not stated."""
    software = root["software_version"]
    if software is None:
        return ""
    numbers = ".".join(str(software[part]) for part in ("_major", "_minor", "_micro"))
    return numbers + (software["_modifier"] or "")
