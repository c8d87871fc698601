"""Versions of the TOSA specification, as a column of the operator table and of targets."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

_TEXT = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?(?:[.-]draft)?")


class Version(NamedTuple):
    """A version of the specification: 1.0 < 1.1. Patches (1.0.1) change none of its facts."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Reads "1.1", also with a patch or "draft", as files and LLVM write it ("1.1.draft").

        Raises:
          ValueError: it is not a version.
        """
        match = _TEXT.fullmatch(text.strip().lower())
        if match is None:
            raise ValueError(f"{text!r} is not a version of TOSA, such as 1.0")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


V1_0 = Version(1, 0)
V1_1 = Version(1, 1)  # a draft: 1.1.0-draft as of tosa-tools 2026.8
VERSIONS = (V1_0, V1_1)  # those in the operator table, in order


class Versioned(Protocol):
    """A fact of the specification: the first version that has it, and the last, None if open."""

    @property
    def since(self) -> Version: ...

    @property
    def until(self) -> Version | None: ...


def is_in(fact: Versioned, version: Version) -> bool:
    """Whether a version of the specification has this."""
    return fact.since <= version and (fact.until is None or version <= fact.until)


def needed(fact: Versioned) -> str:
    """The versions that have this, for messages: "TOSA 1.1", "TOSA 1.0 to 1.1"."""
    is_one = fact.until in (None, fact.since)
    return f"TOSA {fact.since}" if is_one else f"TOSA {fact.since} to {fact.until}"
